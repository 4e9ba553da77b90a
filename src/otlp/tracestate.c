/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/tracestate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/steps.h"
#include "otlp/trace_id.h"

#define KEY_MAX 256
#define TENANT_MAX 241
#define SYSTEM_MAX 14
#define VALUE_MAX 256

static bool lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is(struct br_tracestate_text text, const char *word)
{
    return text.len == strlen(word) && memcmp(text.data, word, text.len) == 0;
}

/* Digits of either case; false when there is none, or anything else. */
static bool parse_hex(struct br_tracestate_text text, uint64_t *ret)
{
    uint64_t v = 0;
    for (size_t i = 0; i < text.len; i++) {
        char c = (char)(text.data[i] | 0x20);
        if (!digit(text.data[i]) && (c < 'a' || c > 'f'))
            return false;
        v = v << 4 | (uint64_t)(digit(text.data[i]) ? text.data[i] - '0' : c - 'a' + 10);
    }
    *ret = v;
    return text.len > 0;
}

/* --- The members of `ot` --------------------------------------------------------------------- */

static bool ot_key_valid(struct br_tracestate_text key)
{
    if (key.len == 0 || !lower(key.data[0]))
        return false;
    for (size_t i = 1; i < key.len; i++)
        if (!lower(key.data[i]) && !digit(key.data[i]))
            return false;
    return true;
}

static bool ot_value_valid(struct br_tracestate_text value)
{
    for (size_t i = 0; i < value.len; i++) {
        char c = value.data[i];
        if (!lower((char)(c | 0x20)) && !digit(c) && c != '.' && c != '_' && c != '-')
            return false;
    }
    return true;
}

static bool read_ot_member(struct br_tracestate *t, struct br_tracestate_text member)
{
    const char *colon = memchr(member.data, ':', member.len);
    if (!colon)
        return false;
    struct br_tracestate_text key = {member.data, (size_t)(colon - member.data)};
    struct br_tracestate_text value = {colon + 1, member.len - key.len - 1};
    if (!ot_key_valid(key) || !ot_value_valid(value))
        return false;
    if (is(key, "rv")) {
        t->rv = value;
        return value.len == BR_THRESHOLD_DIGITS && parse_hex(value, &t->randomness);
    }
    if (is(key, "th")) {
        t->th = value;
        if (value.len > BR_THRESHOLD_DIGITS || !parse_hex(value, &t->threshold))
            return false;
        t->threshold <<= 4 * (BR_THRESHOLD_DIGITS - value.len);
        return true;
    }
    t->extras[t->n_extras++] = member;
    return true;
}

/* A member takes two bytes at least, and a separator, so `extras` has room for all. */
static bool read_ot(struct br_tracestate *t, struct br_tracestate_text text)
{
    const char *p = text.data, *end = p + text.len;
    t->th = t->rv = (struct br_tracestate_text){NULL, 0};
    t->n_extras = 0;
    if (text.len == 0 || text.len > BR_TRACESTATE_OT_MAX || end[-1] == ';')
        return false;
    while (p < end) {
        const char *stop = memchr(p, ';', (size_t)(end - p));
        size_t len = (size_t)((stop ? stop : end) - p);
        if (!read_ot_member(t, (struct br_tracestate_text){p, len}))
            return false;
        p += len + 1;
    }
    return true;
}

/* --- The members ----------------------------------------------------------------------------- */

static bool key_part_valid(const char *p, size_t len, size_t max, bool digit_first)
{
    if (len == 0 || len > max || (!lower(p[0]) && !(digit_first && digit(p[0]))))
        return false;
    for (size_t i = 1; i < len; i++)
        if (!lower(p[i]) && !digit(p[i]) && (!p[i] || !strchr("_-*/", p[i])))
            return false;
    return true;
}

static bool key_valid(struct br_tracestate_text key)
{
    const char *at = memchr(key.data, '@', key.len);
    if (!at)
        return key_part_valid(key.data, key.len, KEY_MAX, false);
    size_t tenant = (size_t)(at - key.data);
    return key.len <= KEY_MAX && key_part_valid(key.data, tenant, TENANT_MAX, true) &&
           key_part_valid(at + 1, key.len - tenant - 1, SYSTEM_MAX, false);
}

static bool value_valid(struct br_tracestate_text value)
{
    if (value.len == 0 || value.len > VALUE_MAX || value.data[value.len - 1] == ' ')
        return false;
    for (size_t i = 0; i < value.len; i++) {
        char c = value.data[i];
        if (c < 0x20 || c > 0x7e || c == ',' || c == '=')
            return false;
    }
    return true;
}

static struct br_tracestate_text trim(const char *p, size_t len)
{
    while (len && (p[len - 1] == ' ' || p[len - 1] == '\t'))
        len--;
    for (; len && (*p == ' ' || *p == '\t'); len--)
        p++;
    return (struct br_tracestate_text){p, len};
}

static bool read_member(struct br_tracestate *t, struct br_tracestate_text member)
{
    const char *equals = memchr(member.data, '=', member.len);
    if (!equals)
        return false;
    struct br_tracestate_text key = {member.data, (size_t)(equals - member.data)};
    struct br_tracestate_text value = {equals + 1, member.len - key.len - 1};
    if (!key_valid(key) || !value_valid(value))
        return false;
    if (is(key, "ot"))
        return read_ot(t, value);
    if (t->n_others == BR_TRACESTATE_MEMBERS)
        return false;
    t->others[t->n_others++] = member;
    return true;
}

bool br_tracestate_read(struct br_tracestate *ret, const void *text, size_t len)
{
    ret->th = ret->rv = (struct br_tracestate_text){NULL, 0};
    ret->n_others = ret->n_extras = 0;
    if (len == 0 || len > BR_TRACESTATE_MAX)
        return len == 0;
    br_steps_add(len);
    const char *p = text, *end = p + len;
    size_t n = 0;
    while (p < end) {
        const char *stop = memchr(p, ',', (size_t)(end - p));
        size_t member_len = (size_t)((stop ? stop : end) - p);
        struct br_tracestate_text member = trim(p, member_len);
        if (++n > BR_TRACESTATE_MEMBERS || (member.len && !read_member(ret, member)))
            return false;
        p += member_len + 1;
    }
    return true;
}

/* --- Changing and writing -------------------------------------------------------------------- */

void br_tracestate_set_threshold(struct br_tracestate *t, uint64_t threshold)
{
    (void)snprintf(t->own_th, sizeof t->own_th, "%014" PRIx64, threshold);
    size_t len = BR_THRESHOLD_DIGITS;
    while (len > 1 && t->own_th[len - 1] == '0')
        len--;
    t->threshold = threshold;
    t->th = (struct br_tracestate_text){t->own_th, len};
}

void br_tracestate_set_randomness(struct br_tracestate *t, uint64_t randomness)
{
    (void)snprintf(t->own_rv, sizeof t->own_rv, "%014" PRIx64, randomness);
    t->randomness = randomness;
    t->rv = (struct br_tracestate_text){t->own_rv, BR_THRESHOLD_DIGITS};
}

void br_tracestate_clear_threshold(struct br_tracestate *t)
{
    t->th = (struct br_tracestate_text){NULL, 0};
}

static char *put(char *out, const char *data, size_t len)
{
    memcpy(out, data, len);
    return out + len;
}

static char *put_ot(char *out, const char *separator, const char *name,
                    struct br_tracestate_text text)
{
    out = put(out, separator, strlen(separator));
    out = put(out, name, strlen(name));
    return put(out, text.data, text.len);
}

size_t br_tracestate_write(const struct br_tracestate *t, char *out)
{
    const char *start = out, *separator = "ot=";
    if (t->rv.len) {
        out = put_ot(out, separator, "rv:", t->rv);
        separator = ";";
    }
    if (t->th.len) {
        out = put_ot(out, separator, "th:", t->th);
        separator = ";";
    }
    for (size_t i = 0; i < t->n_extras; i++, separator = ";")
        out = put_ot(out, separator, "", t->extras[i]);
    for (size_t i = 0; i < t->n_others; i++)
        out = put_ot(out, out == start ? "" : ",", "", t->others[i]);
    return (size_t)(out - start);
}
