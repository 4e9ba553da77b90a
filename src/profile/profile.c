/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/profile.h"

#include <ctype.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/str.h"
#include "wire/protobuf.h"

/* Memory limit for reading a profile: GROWTH bytes per byte of the upload plus SPARE. SPARE is 1
 * MiB minus an allowance for memory that is not counted. */
#define GROWTH 4
#define SPARE (((size_t)1 << 20) - (16u << 10))

#define TEXT_MIN (1u << 20)
#define TEXT_GROWTH 4

static br_profile_read_fn *const readers[] = {
    [BR_FORMAT_PPROF] = br_pprof_read,
    [BR_FORMAT_JFR] = br_jfr_read,
    [BR_FORMAT_FOLDED] = br_folded_read,
    [BR_FORMAT_LINES] = br_lines_read,
    [BR_FORMAT_TRIE] = br_trie_read,
    [BR_FORMAT_TREE] = br_tree_read,
    [BR_FORMAT_SPEEDSCOPE] = br_speedscope_read,
    [BR_FORMAT_PERF_SCRIPT] = br_perf_script_read,
    [BR_FORMAT_CPUPROFILE] = br_cpuprofile_read,
    [BR_FORMAT_GECKO] = br_gecko_read,
};

static const bool divides[BR_COUNT(readers)] = {
    [BR_FORMAT_FOLDED] = true,
    [BR_FORMAT_LINES] = true,
    [BR_FORMAT_PERF_SCRIPT] = true,
    [BR_FORMAT_SPEEDSCOPE] = true,
};

bool br_profile_divides(enum br_profile_format format)
{
    return (size_t)format < BR_COUNT(divides) && divides[format];
}

/* Reads a profile, and limits the memory of the builder and the arena in proportion to the
 * upload. The limit includes one more copy of the dictionary, which is made when the request is
 * taken out of the builder. */
static int profile_read_within(br_profile_read_fn *read, struct br_build *build,
                               const struct br_profile_source *source, struct br_arena *scratch,
                               struct br_err *err)
{
    size_t most = GROWTH * (source->len + source->labels_len) + SPARE,
           built = br_build_memory(build);
    size_t limit = br_build_limit(build, built + most), arena_max = scratch->max;
    if (arena_max > scratch->used + most)
        scratch->max = scratch->used + most;
    int rc = read(build, source, scratch, err);
    if (!rc && br_build_memory(build) + br_build_take_size(build) > built + most)
        rc = br_err_set(err, BR_EFULL, "the converted profile would be more than %d times as large",
                        GROWTH);
    scratch->max = arena_max;
    (void)br_build_limit(build, limit);
    return rc;
}

static bool profile_is_text(enum br_profile_format format)
{
    return format != BR_FORMAT_PPROF && format != BR_FORMAT_JFR && format != BR_FORMAT_TRIE &&
           format != BR_FORMAT_TREE;
}

/* Skips a byte order mark, which Windows programs put at the start of a text. */
static const uint8_t *profile_skip_mark(const uint8_t *data, size_t *len)
{
    static const uint8_t mark[] = {0xef, 0xbb, 0xbf};
    if (*len < sizeof mark || memcmp(data, mark, sizeof mark) != 0)
        return data;
    *len -= sizeof mark;
    return data + sizeof mark;
}

const char *br_profile_known_mistake(const uint8_t *data, size_t len)
{
    static const struct {
        const char *start;
        const char *why;
    } mistakes[] = {
        {"\x04\x22\x4d\x18",
         "it is compressed with LZ4, as .jfr.lz4 files are: decompress it first"},
        {"[object FormData]",
         "the client sent the text \"[object FormData]\" instead of the fields of its form"},
    };
    for (size_t i = 0; i < BR_COUNT(mistakes); i++)
        if (br_bytes_start(data, len, mistakes[i].start))
            return mistakes[i].why;
    return NULL;
}

int br_profile_read(struct br_build *build, enum br_profile_format format,
                    const struct br_profile_source *source, struct br_arena *scratch,
                    struct br_err *err)
{
    if ((size_t)format >= BR_COUNT(readers) || !readers[format])
        return br_err_set(err, BR_EUNSUPPORTED, "unknown profile format");
    const char *mistake = br_profile_known_mistake(source->data, source->len);
    if (mistake)
        return br_err_set(err, BR_EINVAL, "%s", mistake);
    if (format == BR_FORMAT_PPROF)
        return br_pprof_read(build, source, scratch, err);
    struct br_profile_source plain = *source;
    if (profile_is_text(format))
        plain.data = profile_skip_mark(plain.data, &plain.len);
    return profile_read_within(readers[format], build, &plain, scratch, err);
}

size_t br_profile_text_max(const struct br_profile_source *source)
{
    return TEXT_MIN + TEXT_GROWTH * (source->len + source->labels_len);
}

/* --- Guessing the format ---------------------------------------------------------------------- */

/* Returns true if the message has only fields of pprof's Profile and has a string table. */
static bool profile_is_pprof(const uint8_t *p, const uint8_t *end)
{
    enum { TEXTS = 6, PERIOD_TYPE = 11, COMMENT = 13, FIELDS = 15 };
    bool texts = false;
    struct br_field field;
    while (p < end) {
        p = br_field_next(p, end, &field);
        if (!p || field.number > FIELDS)
            return false;
        bool nested = field.number <= TEXTS || field.number == PERIOD_TYPE;
        if (field.number != COMMENT && field.wire != (nested ? BR_WIRE_LEN : BR_WIRE_VARINT))
            return false;
        texts = texts || field.number == TEXTS;
    }
    return texts;
}

static const uint8_t *profile_skip_blanks(const uint8_t *p, const uint8_t *end)
{
    static const uint8_t bom[] = {0xef, 0xbb, 0xbf};
    if ((size_t)(end - p) >= sizeof bom && memcmp(p, bom, sizeof bom) == 0)
        p += sizeof bom;
    while (p < end && isspace(*p))
        p++;
    return p;
}

/* Returns true if the text begins with a JSON object. Folded stacks of PHP begin with "{main}"
 * and are not JSON. */
static bool profile_is_json_object(const uint8_t *p, const uint8_t *end)
{
    p = profile_skip_blanks(p, end);
    if (p == end || *p != '{')
        return false;
    p = profile_skip_blanks(p + 1, end);
    return p < end && (*p == '"' || *p == '}');
}

/* Determines the JSON format from the name of the first member. The formats share no names
 * except "shared", which is never first in a Firefox profile. */
static enum br_profile_format profile_json_format(const uint8_t *p, const uint8_t *end)
{
    static const struct {
        const char *name;
        enum br_profile_format format;
    } firsts[] = {
        {"\"nodes\"", BR_FORMAT_CPUPROFILE},
        {"\"startTime\"", BR_FORMAT_CPUPROFILE},
        {"\"endTime\"", BR_FORMAT_CPUPROFILE},
        {"\"samples\"", BR_FORMAT_CPUPROFILE},
        {"\"timeDeltas\"", BR_FORMAT_CPUPROFILE},
        {"\"meta\"", BR_FORMAT_GECKO},
        {"\"libs\"", BR_FORMAT_GECKO},
        {"\"pages\"", BR_FORMAT_GECKO},
        {"\"counters\"", BR_FORMAT_GECKO},
        {"\"threads\"", BR_FORMAT_GECKO},
        {"\"processes\"", BR_FORMAT_GECKO},
        {"\"pausedRanges\"", BR_FORMAT_GECKO},
        {"\"profilerOverhead\"", BR_FORMAT_GECKO},
    };
    p = profile_skip_blanks(profile_skip_blanks(p, end) + 1, end);
    for (size_t i = 0; i < BR_COUNT(firsts); i++)
        if ((size_t)(end - p) >= strlen(firsts[i].name) &&
            memcmp(p, firsts[i].name, strlen(firsts[i].name)) == 0)
            return firsts[i].format;
    return BR_FORMAT_SPEEDSCOPE;
}

/* Returns true if the first line that is not blank is text and ends with a count. */
static bool profile_is_folded(const uint8_t *p, const uint8_t *end)
{
    p = profile_skip_blanks(p, end);
    const uint8_t *eol = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
    if (eol)
        end = eol;
    while (p < end && isspace(end[-1]))
        end--;
    const uint8_t *count = end;
    while (count > p && (isdigit(count[-1]) || count[-1] == '.'))
        count--;
    if (count == end || !isdigit(*count) || count - p < 2 ||
        (count[-1] != ' ' && count[-1] != '\t'))
        return false;
    for (const uint8_t *q = p; q < end; q++)
        if (iscntrl(*q) && *q != '\t')
            return false;
    return br_utf8_valid(p, (size_t)(end - p)) == (size_t)(end - p);
}

bool br_profile_guess(const uint8_t *data, size_t len, enum br_profile_format *ret)
{
    static const uint8_t jfr[] = {'F', 'L', 'R', 0}, gzip[] = {0x1f, 0x8b};
    data = profile_skip_mark(data, &len);
    if (len == 0)
        return false;
    const uint8_t *end = br_mem_end(data, len);
    if (len >= sizeof jfr && memcmp(data, jfr, sizeof jfr) == 0)
        *ret = BR_FORMAT_JFR;
    else if (len >= sizeof gzip && memcmp(data, gzip, sizeof gzip) == 0)
        *ret = BR_FORMAT_PPROF;
    else if (profile_is_json_object(data, end))
        *ret = profile_json_format(data, end);
    else if (br_perf_script_is((const char *)data, len))
        *ret = BR_FORMAT_PERF_SCRIPT;
    else if (profile_is_folded(data, end))
        *ret = BR_FORMAT_FOLDED;
    else if (profile_is_pprof(data, end))
        *ret = BR_FORMAT_PPROF;
    else
        return false;
    return true;
}
