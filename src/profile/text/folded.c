/* SPDX-License-Identifier: Apache-2.0 */
/* Folded text ("groups") and lines of stacks, read as Pyroscope's pkg/og/convert/parser.go does,
 * but for its lines of at most 64 KiB, behind which it silently stops. */
#include <string.h>

#include "profile/text/stacks.h"

struct reader {
    struct br_stacks stacks;
    struct br_text_type type;
    const char *p, *end;
    size_t line; /* from 1 */
};

/* The next line without its end, LF or CRLF. False at the end of the text. */
static bool next_line(struct reader *r, const char **ret, size_t *ret_len)
{
    if (r->p == r->end)
        return false;
    const char *start = r->p, *lf = memchr(start, '\n', (size_t)(r->end - start));
    const char *stop = lf ? lf : r->end;
    r->p = lf ? lf + 1 : r->end;
    r->line++;
    *ret_len = (size_t)(stop - start);
    if (*ret_len > 0 && stop[-1] == '\r')
        --*ret_len;
    *ret = start;
    return true;
}

/* A decimal int64 with an optional sign, as strconv.Atoi takes it. */
static bool read_count(const char *p, size_t len, int64_t *ret)
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

static int add(struct reader *r, const char *stack, size_t len, int64_t count, struct br_err *err)
{
    int64_t value;
    int rc = br_text_scale(&r->type, count, &value, err);
    if (rc != 0 || value == 0)
        return rc;
    uint32_t node = br_stacks_path(&r->stacks, BR_STACKS_ROOT, stack, len);
    return br_stacks_add(&r->stacks, node, value, err);
}

/* A line without a space is no error to Pyroscope. */
static int read_group(struct reader *r, const char *line, size_t len, struct br_err *err)
{
    const char *space = len ? memrchr(line, ' ', len) : NULL;
    int64_t count;
    if (!space)
        return 0;
    if (!read_count(space + 1, len - (size_t)(space + 1 - line), &count))
        return br_err_set(err, BR_EINVAL, "no number of samples behind the last space");
    return add(r, line, (size_t)(space - line), count, err);
}

static int read_line(struct reader *r, const char *line, size_t len, struct br_err *err)
{
    return len == 0 ? 0 : add(r, line, len, 1, err);
}

typedef int line_fn(struct reader *r, const char *line, size_t len, struct br_err *err);

static int read_all(struct reader *r, line_fn *read, struct br_err *err)
{
    const char *line;
    size_t len;
    while (br_stacks_ok(&r->stacks) && next_line(r, &line, &len)) {
        int rc = read(r, line, len, err);
        if (rc != 0) {
            br_err_prefix(err, "line %zu: ", r->line);
            return rc;
        }
    }
    return 0;
}

static int read_text(struct br_build *b, const struct br_profile_source *s, line_fn *read,
                     struct br_arena *scratch, struct br_err *err)
{
    struct reader r = {.p = s->len ? (const char *)s->data : ""};
    r.end = r.p + s->len;
    int rc = br_stacks_init(&r.stacks, b, s, err);
    br_text_type_init(&r.type, s);
    if (rc == 0)
        rc = read_all(&r, read, err);
    if (rc == 0)
        rc = br_stacks_emit(&r.stacks, s, &r.type, scratch, err);
    br_stacks_release(&r.stacks);
    return rc;
}

int br_folded_read(struct br_build *b, const struct br_profile_source *s, struct br_arena *scratch,
                   struct br_err *err)
{
    return read_text(b, s, read_group, scratch, err);
}

int br_lines_read(struct br_build *b, const struct br_profile_source *s, struct br_arena *scratch,
                  struct br_err *err)
{
    return read_text(b, s, read_line, scratch, err);
}
