/* SPDX-License-Identifier: Apache-2.0 */
/* Reads folded text ("groups") and lines of stacks in the same way as Pyroscope's
 * pkg/og/convert/parser.go. Pyroscope's parser stops silently at a line of more than 64 KiB;
 * this reader has no such limit. */
#include <string.h>

#include "base/decimal.h"
#include "profile/text/stacks.h"

struct reader {
    /* source (data and settings) of the current or next part; each part becomes a separate
     * request */
    struct br_profile_source source;
    struct br_arena *scratch;
    struct br_stacks stacks;
    struct br_text_type type;
    const char *p, *end;
    size_t line; /* number of the current line, from 1 */
    /* sum of the fractions that have not yet been added to a value, in billionths of a unit */
    int64_t billionths;
};

/* Reads the next line without its line ending (LF or CRLF). Returns false at the end of the
 * text. */
static bool folded_next_line(struct reader *reader, const char **ret, size_t *ret_len)
{
    if (reader->p == reader->end)
        return false;
    const char *start = reader->p, *lf = memchr(start, '\n', (size_t)(reader->end - start));
    const char *stop = lf ? lf : reader->end;
    reader->p = lf ? lf + 1 : reader->end;
    reader->line++;
    *ret_len = (size_t)(stop - start);
    if (*ret_len > 0 && stop[-1] == '\r')
        --*ret_len;
    *ret = start;
    return true;
}

#define BILLION 1000000000

/* Parses a count such as "-3" or "2.5". Digits after the ninth decimal are ignored. */
static bool folded_read_count(const char *p, const char *end, int64_t *ret, int64_t *ret_billionths)
{
    const char *point = memchr(p, '.', (size_t)(end - p));
    *ret_billionths = 0;
    if (!br_decimal_parse_signed(p, (size_t)((point ? point : end) - p), ret))
        return false;
    if (!point)
        return true;
    p = point + 1;
    *ret_billionths = (int64_t)br_decimal_fraction(&p, end, BILLION);
    return p == end;
}

static int folded_add(struct reader *reader, const char *stack, size_t len, int64_t count,
                      int64_t billionths, struct br_err *err)
{
    int64_t value, carried = 0;
    int rc = br_text_scale(&reader->type, count, &value, err);
    if (rc == 0)
        rc = br_text_scale(&reader->type, billionths, &carried, err);
    if (rc != 0)
        return rc;
    reader->billionths += carried;
    if (__builtin_add_overflow(value, reader->billionths / BILLION, &value))
        return br_err_set(err, BR_EINVAL, "a number too large for its unit");
    reader->billionths %= BILLION;
    if (value == 0)
        return 0;
    uint32_t node = br_stacks_path(&reader->stacks, BR_STACKS_ROOT, stack, len);
    bool divided;
    rc = br_stacks_add(&reader->stacks, node, value, err);
    return rc ? rc
              : br_stacks_divide(&reader->stacks, &reader->source, &reader->type, reader->scratch,
                                 &divided, err);
}

/* Reads a stack with its count. A line without a space is skipped, as in Pyroscope. Unlike in
 * Pyroscope, counts may have a fraction, as in FlameGraph. The fractions lost by rounding are
 * added to later counts, so that the sum is correct. */
static int folded_read_group(struct reader *reader, const char *line, size_t len,
                             struct br_err *err)
{
    const char *space = len ? memrchr(line, ' ', len) : NULL, *end = line + len;
    int64_t count, billionths;
    if (!space)
        return 0;
    if (!folded_read_count(space + 1, end, &count, &billionths))
        return br_err_set(err, BR_EINVAL, "no number of samples after the last space");
    return folded_add(reader, line, (size_t)(space - line), count, billionths, err);
}

static int folded_read_line(struct reader *reader, const char *line, size_t len, struct br_err *err)
{
    return len == 0 ? 0 : folded_add(reader, line, len, 1, 0, err);
}

typedef int line_fn(struct reader *reader, const char *line, size_t len, struct br_err *err);

static int folded_read_all(struct reader *reader, line_fn *read, struct br_err *err)
{
    const char *line;
    size_t len;
    while (br_stacks_ok(&reader->stacks) && folded_next_line(reader, &line, &len)) {
        int rc = read(reader, line, len, err);
        if (rc != 0) {
            br_err_prefix(err, "line %zu: ", reader->line);
            return rc;
        }
    }
    return 0;
}

static int folded_read_text(struct br_build *build, const struct br_profile_source *source,
                            line_fn *read, struct br_arena *scratch, struct br_err *err)
{
    struct reader reader = {
        .source = *source, .scratch = scratch, .p = source->len ? (const char *)source->data : ""};
    reader.end = reader.p + source->len;
    int rc = br_stacks_init(&reader.stacks, build, source, err);
    br_text_type_init(&reader.type, source);
    if (rc == 0)
        rc = folded_read_all(&reader, read, err);
    if (rc == 0)
        rc = br_stacks_emit(&reader.stacks, &reader.source, &reader.type, scratch, err);
    br_stacks_release(&reader.stacks);
    return rc;
}

int br_folded_read(struct br_build *build, const struct br_profile_source *source,
                   struct br_arena *scratch, struct br_err *err)
{
    return folded_read_text(build, source, folded_read_group, scratch, err);
}

int br_lines_read(struct br_build *build, const struct br_profile_source *source,
                  struct br_arena *scratch, struct br_err *err)
{
    return folded_read_text(build, source, folded_read_line, scratch, err);
}
