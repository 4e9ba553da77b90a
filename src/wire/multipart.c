/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/multipart.h"

#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/steps.h"

/* --- Content-Type and Content-Disposition ----------------------------------------------------- */

static bool multipart_is_space(char letter)
{
    return letter == ' ' || letter == '\t';
}

static bool multipart_is_token(char letter)
{
    return letter > ' ' && letter < 0x7f && !strchr("()<>@,;:\\\"/[]?={}", letter);
}

/* The unparsed part of a header value, from `p` to `end`. */
struct text {
    const char *p, *end;
};

static void multipart_skip_space(struct text *text)
{
    while (text->p < text->end && multipart_is_space(*text->p))
        text->p++;
}

struct parameter {
    const char *name;
    size_t name_len;
    char value[256]; /* value of the parameter without quotes and escapes, terminated */
    size_t len;
};

static bool multipart_put(struct parameter *ret, char letter)
{
    if (ret->len + 1 >= sizeof ret->value || letter == '\0')
        return false;
    ret->value[ret->len++] = letter;
    return true;
}

static bool multipart_read_quoted(struct text *text, struct parameter *ret)
{
    for (text->p++; text->p < text->end && *text->p != '"'; text->p++) {
        /* Old browsers sent paths with single backslashes, so only `\"` and `\\` are escapes. */
        if (*text->p == '\\' && text->end - text->p > 1 &&
            (text->p[1] == '"' || text->p[1] == '\\'))
            text->p++;
        if (!multipart_put(ret, *text->p))
            return false;
    }
    return text->p < text->end && *text->p++ == '"';
}

/* Parses `; name=value`. Returns 1 for a parameter, 0 at the end of the text, -1 if the
 * parameter is malformed. */
static int multipart_next_parameter(struct text *text, struct parameter *ret)
{
    multipart_skip_space(text);
    if (text->p == text->end)
        return 0;
    if (*text->p++ != ';')
        return -1;
    multipart_skip_space(text);
    if (text->p == text->end) /* the text ends with a semicolon */
        return 0;
    ret->name = text->p;
    while (text->p < text->end && multipart_is_token(*text->p))
        text->p++;
    ret->name_len = (size_t)(text->p - ret->name);
    multipart_skip_space(text);
    if (!ret->name_len || text->p == text->end || *text->p++ != '=')
        return -1;
    multipart_skip_space(text);
    ret->len = 0;
    if (text->p < text->end && *text->p == '"') {
        if (!multipart_read_quoted(text, ret))
            return -1;
    } else {
        /* Clients omit the quotes even around values that contain `/` and `=`. */
        while (text->p < text->end && *text->p != ';' && !multipart_is_space(*text->p))
            if (!multipart_put(ret, *text->p++))
                return -1;
    }
    ret->value[ret->len] = '\0';
    return 1;
}

static bool multipart_parameter_is(const struct parameter *parameter, const char *name)
{
    return br_bytes_are_nocase(parameter->name, parameter->name_len, name);
}

/* Skips the first word of a header value if it equals `word`. Returns false if the first word
 * differs. */
static bool multipart_skip_word(struct text *text, const char *word)
{
    size_t n = strlen(word);
    multipart_skip_space(text);
    if ((size_t)(text->end - text->p) < n || strncasecmp(text->p, word, n) != 0)
        return false;
    text->p += n;
    return text->p == text->end || *text->p == ';' || multipart_is_space(*text->p);
}

bool br_multipart_is(const char *type)
{
    struct text text = {type, type ? type + strlen(type) : NULL};
    return type && multipart_skip_word(&text, "multipart/form-data");
}

static bool multipart_is_boundary(const char *text, size_t len)
{
    if (len == 0 || len > BR_BOUNDARY_MAX || text[len - 1] == ' ')
        return false;
    for (size_t i = 0; i < len; i++) {
        bool digit = text[i] >= '0' && text[i] <= '9';
        bool letter = (text[i] >= 'A' && text[i] <= 'Z') || (text[i] >= 'a' && text[i] <= 'z');
        if (!digit && !letter && !strchr("'()+_,-./:=? ", text[i]))
            return false;
    }
    return true;
}

int br_multipart_boundary(const char *type, char ret[BR_BOUNDARY_MAX + 1], struct br_err *err)
{
    struct text text = {type, type + strlen(type)};
    struct parameter p;
    char found[BR_BOUNDARY_MAX + 1] = "";
    if (!multipart_skip_word(&text, "multipart/form-data"))
        return br_err_set(err, BR_EINVAL, "the content type is not multipart/form-data");
    int more;
    while ((more = multipart_next_parameter(&text, &p)) > 0) {
        if (!multipart_parameter_is(&p, "boundary"))
            continue;
        if (found[0] || !multipart_is_boundary(p.value, p.len))
            return br_err_set(err, BR_EINVAL,
                              found[0] ? "more than one boundary"
                                       : "the boundary is invalid (RFC 2046)");
        memcpy(found, p.value, p.len + 1);
    }
    if (more < 0 || !found[0])
        return br_err_set(err, BR_EINVAL, "multipart/form-data without a boundary");
    memcpy(ret, found, sizeof found);
    return 0;
}

/* --- The body --------------------------------------------------------------------------------- */

struct body {
    /* separator of the parts of a form, which is CRLF, "--" and the boundary */
    char needle[4 + BR_BOUNDARY_MAX + 1];
    size_t needle_len;
    const uint8_t *p, *end;
};

/* Examines the bytes at `p` after a boundary. Returns 1 if a part follows, and stores its first
 * byte in `*ret`. Returns 0 at the end of the form, and -1 if the boundary is part of the
 * content. */
static int multipart_after_delimiter(const struct body *body, const uint8_t *p, const uint8_t **ret)
{
    bool last = body->end - p >= 2 && p[0] == '-' && p[1] == '-';
    p += last ? 2 : 0;
    const uint8_t *blanks = p;
    while (p < body->end && multipart_is_space((char)*p))
        p++;
    br_steps_add((size_t)(p - blanks) + 1);
    if (last && p == body->end)
        return 0;
    if (body->end - p < 2 || p[0] != '\r' || p[1] != '\n')
        return -1;
    *ret = p + 2;
    return !last;
}

/* Finds the next delimiter at or after `body->p`, and sets `body->p` to the byte after the
 * delimiter. `*ret` is the end of the content before the delimiter. Returns 1 if a part follows,
 * 0 at the end of the form, -1 if the form has no further delimiter. */
static int multipart_next_delimiter(struct body *body, const uint8_t **ret)
{
    const uint8_t *p = body->p;
    while (p < body->end) {
        const uint8_t *at = memmem(p, (size_t)(body->end - p), body->needle, body->needle_len);
        br_steps_add((size_t)((at ? at : body->end) - p));
        if (!at)
            return -1;
        const uint8_t *next = body->end;
        int more = multipart_after_delimiter(body, at + body->needle_len, &next);
        if (more >= 0) {
            *ret = at;
            body->p = next;
            return more;
        }
        p = at + 2;
    }
    return -1;
}

/* Finds the first delimiter. A delimiter at the very beginning of the form needs no CRLF before it.
 * Returns the same values as multipart_next_delimiter. */
static int multipart_first_delimiter(struct body *body)
{
    const uint8_t *ignored;
    size_t n = body->needle_len - 2;
    if ((size_t)(body->end - body->p) >= n && memcmp(body->p, body->needle + 2, n) == 0) {
        const uint8_t *next = body->end;
        int more = multipart_after_delimiter(body, body->p + n, &next);
        if (more >= 0) {
            body->p = next;
            return more;
        }
    }
    return multipart_next_delimiter(body, &ignored);
}

/* Parses a Content-Disposition such as `form-data; name="x"; filename="y"`. */
static int multipart_read_disposition(struct text text, struct br_form_field *ret,
                                      struct br_err *err)
{
    struct parameter p;
    int more;
    bool named = false;
    if (!multipart_skip_word(&text, "form-data"))
        return br_err_set(err, BR_EINVAL, "a part of the form is not form-data");
    while ((more = multipart_next_parameter(&text, &p)) > 0) {
        if (!multipart_parameter_is(&p, "name"))
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

/* Returns true for a Content-Transfer-Encoding that leaves the bytes unchanged. */
static bool multipart_is_plain(struct text text)
{
    static const char *const plain[] = {"binary", "8bit", "7bit"};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        struct text again = text;
        if (multipart_skip_word(&again, plain[i]))
            return true;
    }
    return false;
}

static bool multipart_has_control(const char *line, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (((unsigned char)line[i] < ' ' && line[i] != '\t') || line[i] == 0x7f)
            return true;
    return false;
}

/* Parses one header line of a part. */
static int multipart_read_header(const char *line, size_t len, bool *disposed,
                                 struct br_form_field *ret, struct br_err *err)
{
    size_t n = 0;
    while (n < len && multipart_is_token(line[n]))
        n++;
    if (n == 0 || n == len || line[n] != ':' || multipart_has_control(line, len))
        return br_err_set(err, BR_EINVAL, "a part of the form has a malformed header");
    struct text value = {line + n + 1, line + len};
    if (br_bytes_are_nocase(line, n, "content-disposition")) {
        if (*disposed)
            return br_err_set(err, BR_EINVAL, "a part of the form has two dispositions");
        *disposed = true;
        return multipart_read_disposition(value, ret, err);
    }
    if (br_bytes_are_nocase(line, n, "content-transfer-encoding") && !multipart_is_plain(value))
        return br_err_set(err, BR_EINVAL,
                          "a part of the form has an unsupported Content-Transfer-Encoding");
    return 0;
}

/* Parses the headers of a part at `body->p`, and sets `body->p` to the first byte of the
 * content. */
static int multipart_read_head(struct body *body, struct br_form_field *ret, struct br_err *err)
{
    size_t left = (size_t)(body->end - body->p);
    const uint8_t *limit = body->p + (left < BR_FORM_HEAD_MAX ? left : BR_FORM_HEAD_MAX);
    bool disposed = false;
    for (unsigned n = 0; n <= BR_FORM_HEADERS_MAX; n++) {
        const uint8_t *nl = memmem(body->p, (size_t)(limit - body->p), "\r\n", 2);
        if (!nl)
            break;
        const char *line = (const char *)body->p;
        size_t len = (size_t)(nl - body->p);
        body->p = nl + 2;
        if (len == 0 && !disposed)
            return br_err_set(err, BR_EINVAL, "a part of the form has no Content-Disposition");
        if (len == 0)
            return 0;
        int rc = multipart_read_header(line, len, &disposed, ret, err);
        if (rc)
            return rc;
    }
    return br_err_set(err, BR_EINVAL, "the headers of a part are incomplete or too large");
}

int br_multipart_parse(const char *boundary, const uint8_t *data, size_t len,
                       struct br_form_field *ret, size_t max, size_t *ret_n, struct br_err *err)
{
    struct body body = {
        .needle = "\r\n--", .needle_len = 4 + strlen(boundary), .p = data, .end = data + len};
    size_t n = 0;
    if (body.needle_len >= sizeof body.needle)
        return br_err_set(err, BR_EINVAL, "the boundary is invalid (RFC 2046)");
    memcpy(body.needle + 4, boundary, body.needle_len - 4);
    int more = len ? multipart_first_delimiter(&body) : -1;
    while (more > 0) {
        const uint8_t *end = NULL;
        if (n == max)
            return br_err_set(err, BR_EINVAL, "the form has more than %zu fields", max);
        int rc = multipart_read_head(&body, &ret[n], err);
        if (rc)
            return rc;
        ret[n].data = body.p;
        /* if the part has no content, the CRLF that ends its headers belongs to the delimiter */
        body.p -= 2;
        more = multipart_next_delimiter(&body, &end);
        if (more >= 0)
            ret[n].len = end > ret[n].data ? (size_t)(end - ret[n].data) : 0;
        n++;
    }
    if (more < 0)
        return br_err_set(err, BR_EINVAL,
                          n ? "the form is truncated" : "the body contains no form");
    *ret_n = n;
    return 0;
}

const struct br_form_field *br_form_find(const struct br_form_field *fields, size_t count,
                                         const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].name, name) == 0)
            return &fields[i];
    return NULL;
}
