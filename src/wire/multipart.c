/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/multipart.h"

#include <string.h>
#include <strings.h>

#include "base/steps.h"

/* --- Content-Type and Content-Disposition ----------------------------------------------------- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_token(char c)
{
    return c > ' ' && c < 0x7f && !strchr("()<>@,;:\\\"/[]?={}", c);
}

/* A header's text, from `p` to `end`. */
struct text {
    const char *p, *end;
};

static void skip_space(struct text *t)
{
    while (t->p < t->end && is_space(*t->p))
        t->p++;
}

struct parameter {
    const char *name;
    size_t name_len;
    char value[256]; /* without quotes and escapes, terminated */
    size_t len;
};

static bool put(struct parameter *ret, char c)
{
    if (ret->len + 1 >= sizeof ret->value || c == '\0')
        return false;
    ret->value[ret->len++] = c;
    return true;
}

static bool read_quoted(struct text *t, struct parameter *ret)
{
    for (t->p++; t->p < t->end && *t->p != '"'; t->p++) {
        /* Browsers of old sent paths with single backslashes: only what needs it is an escape. */
        if (*t->p == '\\' && t->end - t->p > 1 && (t->p[1] == '"' || t->p[1] == '\\'))
            t->p++;
        if (!put(ret, *t->p))
            return false;
    }
    return t->p < t->end && *t->p++ == '"';
}

/* Reads `; name=value`. 1: there is one; 0: the text has ended; -1: it is no parameter. */
static int next_parameter(struct text *t, struct parameter *ret)
{
    skip_space(t);
    if (t->p == t->end)
        return 0;
    if (*t->p++ != ';')
        return -1;
    skip_space(t);
    if (t->p == t->end) /* a semicolon at the end */
        return 0;
    ret->name = t->p;
    while (t->p < t->end && is_token(*t->p))
        t->p++;
    ret->name_len = (size_t)(t->p - ret->name);
    skip_space(t);
    if (!ret->name_len || t->p == t->end || *t->p++ != '=')
        return -1;
    skip_space(t);
    ret->len = 0;
    if (t->p < t->end && *t->p == '"') {
        if (!read_quoted(t, ret))
            return -1;
    } else {
        /* Clients leave the quotes away around `/` and `=` too. */
        while (t->p < t->end && *t->p != ';' && !is_space(*t->p))
            if (!put(ret, *t->p++))
                return -1;
    }
    ret->value[ret->len] = '\0';
    return 1;
}

static bool parameter_is(const struct parameter *p, const char *name)
{
    return p->name_len == strlen(name) && strncasecmp(p->name, name, p->name_len) == 0;
}

/* Skips the word before the parameters, which has to be `word`. */
static bool skip_word(struct text *t, const char *word)
{
    size_t n = strlen(word);
    skip_space(t);
    if ((size_t)(t->end - t->p) < n || strncasecmp(t->p, word, n) != 0)
        return false;
    t->p += n;
    return t->p == t->end || *t->p == ';' || is_space(*t->p);
}

bool br_multipart_is(const char *type)
{
    struct text t = {type, type ? type + strlen(type) : NULL};
    return type && skip_word(&t, "multipart/form-data");
}

static bool is_boundary(const char *s, size_t len)
{
    if (len == 0 || len > BR_BOUNDARY_MAX || s[len - 1] == ' ')
        return false;
    for (size_t i = 0; i < len; i++) {
        bool letter = (s[i] >= '0' && s[i] <= '9') || (s[i] >= 'A' && s[i] <= 'Z') ||
                      (s[i] >= 'a' && s[i] <= 'z');
        if (!letter && !strchr("'()+_,-./:=? ", s[i]))
            return false;
    }
    return true;
}

int br_multipart_boundary(const char *type, char ret[BR_BOUNDARY_MAX + 1], struct br_err *err)
{
    struct text t = {type, type + strlen(type)};
    struct parameter p;
    char found[BR_BOUNDARY_MAX + 1] = "";
    if (!skip_word(&t, "multipart/form-data"))
        return br_err_set(err, BR_EINVAL, "the content type is not multipart/form-data");
    int more;
    while ((more = next_parameter(&t, &p)) > 0) {
        if (!parameter_is(&p, "boundary"))
            continue;
        if (found[0] || !is_boundary(p.value, p.len))
            return br_err_set(err, BR_EINVAL,
                              found[0] ? "more than one boundary"
                                       : "the boundary is none by RFC 2046");
        memcpy(found, p.value, p.len + 1);
    }
    if (more < 0 || !found[0])
        return br_err_set(err, BR_EINVAL, "multipart/form-data without a boundary");
    memcpy(ret, found, sizeof found);
    return 0;
}

/* --- The body --------------------------------------------------------------------------------- */

struct body {
    char needle[4 + BR_BOUNDARY_MAX + 1]; /* CRLF--boundary */
    size_t needle_len;
    const uint8_t *p, *end;
};

/* What follows a delimiter at `p`: 1 another part, whose first byte `*ret` becomes; 0 the end of
 * the form; -1: it was content that looks like one. */
static int after_delimiter(const struct body *b, const uint8_t *p, const uint8_t **ret)
{
    bool last = b->end - p >= 2 && p[0] == '-' && p[1] == '-';
    p += last ? 2 : 0;
    const uint8_t *blanks = p;
    while (p < b->end && is_space((char)*p))
        p++;
    br_steps_add((size_t)(p - blanks) + 1);
    if (last && p == b->end)
        return 0;
    if (b->end - p < 2 || p[0] != '\r' || p[1] != '\n')
        return -1;
    *ret = p + 2;
    return !last;
}

/* Finds the next delimiter at or after b->p, which becomes what follows it; `*ret` is where the
 * content before it ends. As after_delimiter; -1: there is none. */
static int next_delimiter(struct body *b, const uint8_t **ret)
{
    const uint8_t *p = b->p;
    while (p < b->end) {
        const uint8_t *at = memmem(p, (size_t)(b->end - p), b->needle, b->needle_len);
        br_steps_add((size_t)((at ? at : b->end) - p));
        if (!at)
            return -1;
        const uint8_t *next = b->end;
        int more = after_delimiter(b, at + b->needle_len, &next);
        if (more >= 0) {
            *ret = at;
            b->p = next;
            return more;
        }
        p = at + 2;
    }
    return -1;
}

/* The first delimiter may stand at the very beginning, without a line's end before it. */
static int first_delimiter(struct body *b)
{
    const uint8_t *ignored;
    size_t n = b->needle_len - 2;
    if ((size_t)(b->end - b->p) >= n && memcmp(b->p, b->needle + 2, n) == 0) {
        const uint8_t *next = b->end;
        int more = after_delimiter(b, b->p + n, &next);
        if (more >= 0) {
            b->p = next;
            return more;
        }
    }
    return next_delimiter(b, &ignored);
}

/* `form-data; name="x"; filename="y"`. */
static int read_disposition(struct text t, struct br_form_field *ret, struct br_err *err)
{
    struct parameter p;
    int more;
    bool named = false;
    if (!skip_word(&t, "form-data"))
        return br_err_set(err, BR_EINVAL, "a part of the form is no form-data");
    while ((more = next_parameter(&t, &p)) > 0) {
        if (!parameter_is(&p, "name"))
            continue;
        if (named || p.len > BR_FORM_NAME_MAX)
            return br_err_set(err, BR_EINVAL,
                              named ? "a part of the form has two names"
                                    : "a field's name is longer than %d bytes",
                              BR_FORM_NAME_MAX);
        named = true;
        memcpy(ret->name, p.value, p.len + 1);
    }
    if (more < 0 || !named)
        return br_err_set(err, BR_EINVAL, "a part of the form has no name");
    return 0;
}

/* Nothing, or one of the words that mean that the bytes are as they are. */
static bool is_plain(struct text t)
{
    static const char *const plain[] = {"binary", "8bit", "7bit"};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        struct text again = t;
        if (skip_word(&again, plain[i]))
            return true;
    }
    return false;
}

static bool header_is(const char *line, size_t len, const char *name)
{
    return len == strlen(name) && strncasecmp(line, name, len) == 0;
}

static bool has_control(const char *line, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (((unsigned char)line[i] < ' ' && line[i] != '\t') || line[i] == 0x7f)
            return true;
    return false;
}

/* One line of a part's head. */
static int read_header(const char *line, size_t len, bool *disposed, struct br_form_field *ret,
                       struct br_err *err)
{
    size_t n = 0;
    while (n < len && is_token(line[n]))
        n++;
    if (n == 0 || n == len || line[n] != ':' || has_control(line, len))
        return br_err_set(err, BR_EINVAL, "a header of a part is none");
    struct text value = {line + n + 1, line + len};
    if (header_is(line, n, "content-disposition")) {
        if (*disposed)
            return br_err_set(err, BR_EINVAL, "a part of the form has two dispositions");
        *disposed = true;
        return read_disposition(value, ret, err);
    }
    if (header_is(line, n, "content-transfer-encoding") && !is_plain(value))
        return br_err_set(err, BR_EINVAL, "a part has a Content-Transfer-Encoding");
    return 0;
}

/* Reads the headers at b->p, which becomes the first byte of the content. */
static int read_head(struct body *b, struct br_form_field *ret, struct br_err *err)
{
    size_t left = (size_t)(b->end - b->p);
    const uint8_t *limit = b->p + (left < BR_FORM_HEAD_MAX ? left : BR_FORM_HEAD_MAX);
    bool disposed = false;
    for (unsigned n = 0; n <= BR_FORM_HEADERS_MAX; n++) {
        const uint8_t *nl = memmem(b->p, (size_t)(limit - b->p), "\r\n", 2);
        if (!nl)
            break;
        const char *line = (const char *)b->p;
        size_t len = (size_t)(nl - b->p);
        b->p = nl + 2;
        if (len == 0 && !disposed)
            return br_err_set(err, BR_EINVAL, "a part of the form has no Content-Disposition");
        if (len == 0)
            return 0;
        int rc = read_header(line, len, &disposed, ret, err);
        if (rc)
            return rc;
    }
    return br_err_set(err, BR_EINVAL, "the headers of a part do not end, or are too large");
}

int br_multipart_parse(const char *boundary, const uint8_t *data, size_t len,
                       struct br_form_field *ret, size_t max, size_t *ret_n, struct br_err *err)
{
    struct body b = {
        .needle = "\r\n--", .needle_len = 4 + strlen(boundary), .p = data, .end = data + len};
    size_t n = 0;
    if (b.needle_len >= sizeof b.needle)
        return br_err_set(err, BR_EINVAL, "the boundary is none by RFC 2046");
    memcpy(b.needle + 4, boundary, b.needle_len - 4);
    int more = len ? first_delimiter(&b) : -1;
    while (more > 0) {
        const uint8_t *end = NULL;
        if (n == max)
            return br_err_set(err, BR_EINVAL, "the form has more than %zu fields", max);
        int rc = read_head(&b, &ret[n], err);
        if (rc)
            return rc;
        ret[n].data = b.p;
        b.p -= 2; /* of an absent content the head's last line end is the delimiter's */
        more = next_delimiter(&b, &end);
        if (more >= 0)
            ret[n].len = end > ret[n].data ? (size_t)(end - ret[n].data) : 0;
        n++;
    }
    if (more < 0)
        return br_err_set(err, BR_EINVAL, n ? "the form is cut off" : "there is no form");
    *ret_n = n;
    return 0;
}

const struct br_form_field *br_form_find(const struct br_form_field *fields, size_t n,
                                         const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(fields[i].name, name) == 0)
            return &fields[i];
    return NULL;
}
