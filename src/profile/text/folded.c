/* SPDX-License-Identifier: Apache-2.0 */
/* Folded text ("groups") and lines of stacks, read as Pyroscope's pkg/og/convert/parser.go does,
 * but for its lines of at most 64 KiB, behind which it silently stops. */
#include <string.h>

#include "profile/text/stacks.h"

struct reader {
    struct br_profile_source source; /* of the next part */
    struct br_arena *scratch;
    struct br_stacks stacks;
    struct br_text_type type;
    const char *p, *end;
    size_t line; /* from 1 */
};

/* The next line without its end, LF or CRLF. False at the end of the text. */
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

/* A decimal int64 with an optional sign, as strconv.Atoi takes it. */
static bool folded_read_count(const char *p, size_t len, int64_t *ret)
{
    bool negative = len > 0 && *p == '-';
    size_t i = negative || (len > 0 && *p == '+');
    int64_t v = 0;
    if (i == len)
        return false;
    for (; i < len; i++) {
        int digit = p[i] - '0';
        if (digit < 0 || digit > 9 || __builtin_mul_overflow(v, 10, &v) ||
            __builtin_sub_overflow(v, digit, &v))
            return false;
    }
    if (negative)
        *ret = v;
    return negative || !__builtin_sub_overflow(0, v, ret);
}

static int folded_add(struct reader *reader, const char *stack, size_t len, int64_t count,
                      struct br_err *err)
{
    int64_t value;
    int rc = br_text_scale(&reader->type, count, &value, err);
    if (rc != 0 || value == 0)
        return rc;
    uint32_t node = br_stacks_path(&reader->stacks, BR_STACKS_ROOT, stack, len);
    bool divided;
    rc = br_stacks_add(&reader->stacks, node, value, err);
    return rc ? rc
              : br_stacks_divide(&reader->stacks, &reader->source, &reader->type, reader->scratch,
                                 &divided, err);
}

/* A line without a space is no error to Pyroscope. */
static int folded_read_group(struct reader *reader, const char *line, size_t len,
                             struct br_err *err)
{
    const char *space = len ? memrchr(line, ' ', len) : NULL;
    int64_t count;
    if (!space)
        return 0;
    if (!folded_read_count(space + 1, len - (size_t)(space + 1 - line), &count))
        return br_err_set(err, BR_EINVAL, "no number of samples behind the last space");
    return folded_add(reader, line, (size_t)(space - line), count, err);
}

static int folded_read_line(struct reader *reader, const char *line, size_t len, struct br_err *err)
{
    return len == 0 ? 0 : folded_add(reader, line, len, 1, err);
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
