/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/json_text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "otlp/json_number.h"

/* What jansson 2.14 takes from malloc on a 64-bit machine. */
#define COST_OBJECT 224u
#define COST_ARRAY 128u
#define COST_STRING 96u /* a key with its pair, or a value, beside the bytes themselves */
#define COST_OTHER 48u

#define PLAIN_DIGITS 18u

struct token {
    const char *text;
    size_t len;
};

struct measure {
    size_t cost;
    size_t n_numbers;
    size_t numbers_len; /* their texts, each with its terminator */
    size_t numbers_cut; /* their bytes in the text */
    unsigned depth;
};

static const char *string_end(const char *p, const char *end)
{
    for (p++; p < end && *p != '"'; p++) {
        if (*p == '\\' && p + 1 < end)
            p++;
    }
    return p < end ? p + 1 : end;
}

static bool starts_number(char c)
{
    return c == '-' || (c >= '0' && c <= '9');
}

/* A string, a number or a single byte. False when a number is malformed. */
static bool next_token(const char *p, const char *end, struct token *ret)
{
    *ret = (struct token){p, 1};
    if (*p == '"') {
        ret->len = (size_t)(string_end(p, end) - p);
    } else if (starts_number(*p)) {
        ret->len = br_number_scan(p, (size_t)(end - p));
        const char *after = p + ret->len;
        return ret->len > 0 && (after == end || !memchr("+-.0123456789eE", *after, 15));
    }
    return true;
}

static bool is_apart(const struct token *t)
{
    if (!starts_number(t->text[0]))
        return false;
    size_t n = 0;
    while (n < t->len && t->text[n] >= '0' && t->text[n] <= '9')
        n++;
    return n < t->len || n > PLAIN_DIGITS;
}

static void count(struct measure *m, const struct token *t)
{
    switch (t->text[0]) {
    case '{':
        m->cost += COST_OBJECT;
        m->depth++;
        break;
    case '[':
        m->cost += COST_ARRAY;
        m->depth++;
        break;
    case '}':
    case ']':
        m->depth -= m->depth > 0;
        break;
    case '"':
        m->cost += COST_STRING + t->len;
        break;
    case ',':
        m->cost += COST_OTHER;
        break;
    default:
        break;
    }
    if (is_apart(t)) {
        m->n_numbers++;
        m->numbers_len += t->len + 1;
        m->numbers_cut += t->len;
    }
}

static int measure(struct measure *m, const char *text, size_t len, size_t max_cost,
                   unsigned max_brackets, struct br_err *err)
{
    const char *end = text + len;
    for (const char *p = text; p < end;) {
        struct token t;
        if (!next_token(p, end, &t))
            return br_err_set(err, BR_EINVAL, "not JSON: malformed number at byte %zu",
                              (size_t)(p - text));
        count(m, &t);
        if (m->depth > max_brackets)
            return br_err_set(err, BR_ETOOBIG, "JSON nests deeper than %u brackets", max_brackets);
        if (m->cost > max_cost)
            return br_err_set(err, BR_ETOOBIG, "JSON would take more than %zu bytes of memory",
                              max_cost);
        p += t.len;
    }
    return 0;
}

/* Copies the text with its numbers apart into `out`; returns the length. */
static size_t move_numbers(struct br_json_text *t, const char *text, size_t len, char *out)
{
    const char *end = text + len;
    char *o = out;
    uint32_t at = 0;
    for (const char *p = text; p < end;) {
        struct token token;
        (void)next_token(p, end, &token); /* measure has found them all well formed */
        if (is_apart(&token)) {
            memcpy(t->numbers + at, token.text, token.len);
            t->numbers[at + token.len] = '\0';
            t->offsets[t->n_numbers++] = at;
            at += (uint32_t)token.len + 1;
            o += snprintf(o, 12, "-%u", t->n_numbers);
        } else {
            memcpy(o, token.text, token.len);
            o += token.len;
        }
        p += token.len;
    }
    return (size_t)(o - out);
}

static int load(struct br_json_text *t, const char *text, size_t len, struct br_err *err)
{
    json_error_t why;
    t->root = json_loadb(text, len, JSON_ALLOW_NUL, &why);
    if (!t->root) {
        if (json_error_code(&why) == json_error_out_of_memory)
            return BR_ENOMEM;
        return br_err_set(err, BR_EINVAL, "not JSON: %s (line %d)", why.text, why.line);
    }
    if (!json_is_object(t->root))
        return br_err_set(err, BR_EINVAL, "must be a JSON object");
    return 0;
}

static int load_apart(struct br_json_text *t, const char *text, size_t len,
                      const struct measure *m, struct br_err *err)
{
    /* A reference takes 11 bytes at the most, and two more for snprintf's terminator. */
    size_t room = len - m->numbers_cut + m->n_numbers * 11 + 2;
    char *copy = br_malloc(room);
    t->numbers = br_malloc(m->numbers_len);
    t->offsets = br_calloc(m->n_numbers, sizeof *t->offsets);
    int rc = BR_ENOMEM;
    if (copy && t->numbers && t->offsets)
        rc = load(t, copy, move_numbers(t, text, len, copy), err);
    br_free(copy);
    return rc;
}

int br_json_text_parse(struct br_json_text *t, const char *text, size_t len, size_t max_cost,
                       unsigned max_brackets, struct br_err *err)
{
    struct measure m = {0};
    *t = (struct br_json_text){0};
    if (len > UINT32_MAX / 2)
        return br_err_set(err, BR_ETOOBIG, "JSON of %zu bytes", len);
    int rc = measure(&m, text, len, max_cost, max_brackets, err);
    if (rc == 0)
        rc = m.n_numbers ? load_apart(t, text, len, &m, err) : load(t, text, len, err);
    if (rc != 0)
        br_json_text_release(t);
    if (rc == BR_ENOMEM)
        (void)br_err_set(err, rc, "no memory for JSON");
    return rc;
}

void br_json_text_release(struct br_json_text *t)
{
    json_decref(t->root);
    br_free(t->numbers);
    br_free(t->offsets);
    *t = (struct br_json_text){0};
}

const char *br_json_text_number(const struct br_json_text *t, json_int_t reference)
{
    if (reference >= 0 || -reference > (json_int_t)t->n_numbers)
        return NULL;
    return t->numbers + t->offsets[-reference - 1];
}
