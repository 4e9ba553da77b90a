/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/json_tree.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "otlp/json_number.h"

#define TEXT_MAX (1u << 30)
#define NAME_MAX_ESCAPED 384u /* six bytes for each of the longest name we look for */

struct parser {
    struct br_json_tree *tree;
    const char *p, *end;
    size_t max_nodes;
    unsigned max_depth;
    struct br_err *err;
};

static int parse_value(struct parser *ps, unsigned depth);

static int fail(struct parser *ps, const char *what)
{
    return br_err_set(ps->err, BR_EINVAL, "not JSON: %s at byte %zu", what,
                      (size_t)(ps->p - ps->tree->text));
}

/* --- Characters ----------------------------------------------------------------------------- */

/* The next byte after white space; 0 at the end (a NUL in the text fits nowhere either). */
static char peek(struct parser *ps)
{
    while (ps->p < ps->end && (*ps->p == ' ' || *ps->p == '\t' || *ps->p == '\n' || *ps->p == '\r'))
        ps->p++;
    return ps->p < ps->end ? *ps->p : '\0';
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The four digits of a \u escape; -1 where they are none. */
static long hex4(const char *p, const char *end)
{
    long v = 0;
    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int d = hex_digit(p[i]);
        if (d < 0)
            return -1;
        v = v << 4 | d;
    }
    return v;
}

/* Reads the escape whose backslash is at `p`. Returns the byte after it, or NULL; a surrogate pair
 * is one escape, a lone surrogate is none. */
static const char *read_escape(const char *p, const char *end, uint32_t *ret)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (end - p < 2)
        return NULL;
    if (p[1] != 'u') {
        const char *letter = memchr(letters, p[1], sizeof letters - 1);
        if (!letter)
            return NULL;
        *ret = (unsigned char)meanings[letter - letters];
        return p + 2;
    }
    long high = hex4(p + 2, end);
    if (high < 0 || (high >= 0xdc00 && high <= 0xdfff))
        return NULL;
    if (high < 0xd800 || high > 0xdbff) {
        *ret = (uint32_t)high;
        return p + 6;
    }
    if (end - p < 12 || p[6] != '\\' || p[7] != 'u')
        return NULL;
    long low = hex4(p + 8, end);
    if (low < 0xdc00 || low > 0xdfff)
        return NULL;
    *ret = 0x10000u + ((uint32_t)(high - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
    return p + 12;
}

static size_t put_utf8(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(0xf00 >> n | c);
    return n;
}

/* --- The tree ------------------------------------------------------------------------------- */

static int add(struct parser *ps, struct br_json_node node)
{
    struct br_json_tree *t = ps->tree;
    int rc = br_grow(&t->nodes, &t->cap, (size_t)t->n + 1, sizeof *t->nodes, ps->max_nodes);
    if (rc == BR_EFULL && ps->max_nodes > (size_t)(ps->end - t->text) / 2)
        return fail(ps, "text ends too early"); /* no room is left to close the brackets */
    if (rc == BR_EFULL)
        return br_err_set(ps->err, rc, "JSON with more than %zu values", ps->max_nodes);
    if (rc != 0)
        return br_err_set(ps->err, BR_ENOMEM, "no memory for JSON");
    t->nodes[t->n++] = node;
    return 0;
}

static int parse_string(struct parser *ps)
{
    const char *start = ps->p + 1;
    const char *p = start;
    bool escaped = false;
    while (p < ps->end && *p != '"') {
        uint32_t c;
        ps->p = p;
        if ((unsigned char)*p < 0x20)
            return fail(ps, "control character in a string");
        if (*p != '\\') {
            p++;
            continue;
        }
        escaped = true;
        p = read_escape(p, ps->end, &c);
        if (!p)
            return fail(ps, "bad escape");
    }
    ps->p = p;
    if (p == ps->end)
        return fail(ps, "string without end");
    ps->p++;
    return add(ps, (struct br_json_node){.at = (uint32_t)(start - ps->tree->text),
                                         .len = (uint32_t)(p - start),
                                         .type = BR_JSON_STRING,
                                         .escaped = escaped});
}

static int parse_number(struct parser *ps)
{
    size_t len = br_number_scan(ps->p, (size_t)(ps->end - ps->p));
    if (len == 0)
        return fail(ps, "unexpected character");
    struct br_json_node node = {
        .at = (uint32_t)(ps->p - ps->tree->text), .len = (uint32_t)len, .type = BR_JSON_NUMBER};
    ps->p += len;
    return add(ps, node);
}

static int parse_word(struct parser *ps, const char *word, enum br_json_type type)
{
    size_t len = strlen(word);
    if ((size_t)(ps->end - ps->p) < len || memcmp(ps->p, word, len) != 0)
        return fail(ps, "unexpected character");
    ps->p += len;
    return add(ps, (struct br_json_node){.type = (uint8_t)type});
}

/* The value that comes next, as the last child of `parent`. */
static int parse_child(struct parser *ps, uint32_t parent, unsigned depth)
{
    uint32_t child = ps->tree->n;
    int rc = parse_value(ps, depth);
    if (rc != 0)
        return rc;
    struct br_json_node *nodes = ps->tree->nodes;
    nodes[child].prev = nodes[parent].at;
    nodes[parent].at = child;
    return 0;
}

static int parse_member(struct parser *ps, uint32_t object, unsigned depth)
{
    if (peek(ps) != '"')
        return fail(ps, "no name");
    int rc = parse_child(ps, object, depth);
    if (rc != 0)
        return rc;
    if (peek(ps) != ':')
        return fail(ps, "no colon");
    ps->p++;
    return parse_child(ps, object, depth);
}

static int parse_container(struct parser *ps, enum br_json_type type, unsigned depth)
{
    char close = type == BR_JSON_OBJECT ? '}' : ']';
    uint32_t self = ps->tree->n;
    if (depth >= ps->max_depth)
        return br_err_set(ps->err, BR_EINVAL, "JSON nests deeper than %u brackets", ps->max_depth);
    int rc = add(ps, (struct br_json_node){.type = (uint8_t)type});
    if (rc != 0)
        return rc;
    ps->p++;
    if (peek(ps) == close) {
        ps->p++;
        return 0;
    }
    for (;;) {
        rc = type == BR_JSON_OBJECT ? parse_member(ps, self, depth + 1)
                                    : parse_child(ps, self, depth + 1);
        if (rc != 0)
            return rc;
        ps->tree->nodes[self].len++;
        char c = peek(ps);
        if (c != ',' && c != close)
            return fail(ps, "no comma");
        ps->p++;
        if (c == close)
            return 0;
    }
}

static int parse_value(struct parser *ps, unsigned depth)
{
    switch (peek(ps)) {
    case '{':
        return parse_container(ps, BR_JSON_OBJECT, depth);
    case '[':
        return parse_container(ps, BR_JSON_ARRAY, depth);
    case '"':
        return parse_string(ps);
    case 't':
        return parse_word(ps, "true", BR_JSON_TRUE);
    case 'f':
        return parse_word(ps, "false", BR_JSON_FALSE);
    case 'n':
        return parse_word(ps, "null", BR_JSON_NULL);
    default:
        return ps->p == ps->end ? fail(ps, "text ends too early") : parse_number(ps);
    }
}

int br_json_parse(struct br_json_tree *t, const char *text, size_t len, unsigned max_depth,
                  size_t max_nodes, struct br_err *err)
{
    *t = (struct br_json_tree){.text = text};
    struct parser ps = {t, text, text + len, len / 2 + 1, max_depth, err};
    if (max_nodes && max_nodes < ps.max_nodes)
        ps.max_nodes = max_nodes;
    if (len > TEXT_MAX)
        return br_err_set(err, BR_ETOOBIG, "JSON is larger than %u bytes", TEXT_MAX);
    ps.p += br_utf8_valid((const uint8_t *)text, len);
    if (ps.p != ps.end)
        return fail(&ps, "invalid UTF-8");
    ps.p = text;
    int rc = parse_value(&ps, 0);
    (void)peek(&ps);
    if (rc == 0 && ps.p != ps.end)
        rc = fail(&ps, "text after the end");
    if (rc != 0)
        br_json_tree_release(t);
    return rc;
}

void br_json_tree_release(struct br_json_tree *t)
{
    br_free(t->nodes);
    *t = (struct br_json_tree){0};
}

/* --- Strings -------------------------------------------------------------------------------- */

size_t br_json_unescape(const struct br_json_tree *t, const struct br_json_node *node, char *out)
{
    const char *p = t->text + node->at;
    const char *end = p + node->len;
    size_t n = 0;
    while (p < end) {
        uint32_t c;
        if (*p != '\\') {
            out[n++] = *p++;
            continue;
        }
        p = read_escape(p, end, &c);
        if (!p)
            break; /* cannot be: the parser has read it */
        n += put_utf8(out + n, c);
    }
    return n;
}

bool br_json_string_is(const struct br_json_tree *t, const struct br_json_node *node,
                       const char *name)
{
    char plain[NAME_MAX_ESCAPED];
    const char *text = t->text + node->at;
    size_t len = node->len;
    if (node->escaped) {
        if (len > sizeof plain)
            return false;
        len = br_json_unescape(t, node, plain);
        text = plain;
    }
    return len == strlen(name) && memcmp(text, name, len) == 0;
}
