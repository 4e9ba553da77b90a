/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/tracestate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/decimal.h"
#include "base/mem.h"
#include "base/steps.h"
#include "otlp/trace_id.h"

#define KEY_MAX 256
#define TENANT_MAX 241
#define SYSTEM_MAX 14
#define VALUE_MAX 256

static bool tracestate_lower(char letter)
{
    return letter >= 'a' && letter <= 'z';
}

static bool tracestate_is(struct br_tracestate_text text, const char *word)
{
    return br_bytes_are(text.data, text.len, word);
}

/* Parses hex digits of either case. Returns false if the text is empty or contains another
 * character. */
static bool tracestate_parse_hex(struct br_tracestate_text text, uint64_t *ret)
{
    uint64_t v = 0;
    for (size_t i = 0; i < text.len; i++) {
        int digit = br_hex_value((char)text.data[i]);
        if (digit < 0)
            return false;
        v = v << 4 | (uint64_t)digit;
    }
    *ret = v;
    return text.len > 0;
}

/* --- The members of `ot` --------------------------------------------------------------------- */

static bool tracestate_ot_key_valid(struct br_tracestate_text key)
{
    if (key.len == 0 || !tracestate_lower(key.data[0]))
        return false;
    for (size_t i = 1; i < key.len; i++)
        if (!tracestate_lower(key.data[i]) && !br_is_digit(key.data[i]))
            return false;
    return true;
}

static bool tracestate_ot_value_valid(struct br_tracestate_text value)
{
    for (size_t i = 0; i < value.len; i++) {
        char c = value.data[i];
        if (!tracestate_lower((char)(c | 0x20)) && !br_is_digit(c) && c != '.' && c != '_' &&
            c != '-')
            return false;
    }
    return true;
}

static bool tracestate_read_ot_member(struct br_tracestate *tracestate,
                                      struct br_tracestate_text member)
{
    const char *colon = memchr(member.data, ':', member.len);
    if (!colon)
        return false;
    struct br_tracestate_text key = {member.data, (size_t)(colon - member.data)};
    struct br_tracestate_text value = {colon + 1, member.len - key.len - 1};
    if (!tracestate_ot_key_valid(key) || !tracestate_ot_value_valid(value))
        return false;
    if (tracestate_is(key, "rv")) {
        tracestate->rv = value;
        return value.len == BR_THRESHOLD_DIGITS &&
               tracestate_parse_hex(value, &tracestate->randomness);
    }
    if (tracestate_is(key, "th")) {
        tracestate->th = value;
        if (value.len > BR_THRESHOLD_DIGITS || !tracestate_parse_hex(value, &tracestate->threshold))
            return false;
        tracestate->threshold <<= 4 * (BR_THRESHOLD_DIGITS - value.len);
        return true;
    }
    tracestate->extras[tracestate->n_extras++] = member;
    return true;
}

/* Parses the value of `ot`. A field of `ot` has at least two bytes (key and colon) and a
 * separator, so `extras` has space for all fields. */
static bool tracestate_read_ot(struct br_tracestate *tracestate, struct br_tracestate_text text)
{
    const char *p = text.data, *end = p + text.len;
    tracestate->th = tracestate->rv = (struct br_tracestate_text){NULL, 0};
    tracestate->n_extras = 0;
    if (text.len == 0 || text.len > BR_TRACESTATE_OT_MAX || end[-1] == ';')
        return false;
    while (p < end) {
        const char *stop = memchr(p, ';', (size_t)(end - p));
        size_t len = (size_t)((stop ? stop : end) - p);
        if (!tracestate_read_ot_member(tracestate, (struct br_tracestate_text){p, len}))
            return false;
        p += len + 1;
    }
    return true;
}

/* --- The members ----------------------------------------------------------------------------- */

static bool tracestate_key_part_valid(const char *p, size_t len, size_t max, bool digit_first)
{
    if (len == 0 || len > max || (!tracestate_lower(p[0]) && !(digit_first && br_is_digit(p[0]))))
        return false;
    for (size_t i = 1; i < len; i++)
        if (!tracestate_lower(p[i]) && !br_is_digit(p[i]) && (!p[i] || !strchr("_-*/", p[i])))
            return false;
    return true;
}

static bool tracestate_key_valid(struct br_tracestate_text key)
{
    const char *at = memchr(key.data, '@', key.len);
    if (!at)
        return tracestate_key_part_valid(key.data, key.len, KEY_MAX, false);
    size_t tenant = (size_t)(at - key.data);
    return key.len <= KEY_MAX && tracestate_key_part_valid(key.data, tenant, TENANT_MAX, true) &&
           tracestate_key_part_valid(at + 1, key.len - tenant - 1, SYSTEM_MAX, false);
}

static bool tracestate_value_valid(struct br_tracestate_text value)
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

static struct br_tracestate_text tracestate_trim(const char *p, size_t len)
{
    while (len && (p[len - 1] == ' ' || p[len - 1] == '\t'))
        len--;
    for (; len && (*p == ' ' || *p == '\t'); len--)
        p++;
    return (struct br_tracestate_text){p, len};
}

static bool tracestate_read_member(struct br_tracestate *tracestate,
                                   struct br_tracestate_text member)
{
    const char *equals = memchr(member.data, '=', member.len);
    if (!equals)
        return false;
    struct br_tracestate_text key = {member.data, (size_t)(equals - member.data)};
    struct br_tracestate_text value = {equals + 1, member.len - key.len - 1};
    if (!tracestate_key_valid(key) || !tracestate_value_valid(value))
        return false;
    if (tracestate_is(key, "ot"))
        return tracestate_read_ot(tracestate, value);
    if (tracestate->n_others == BR_TRACESTATE_MEMBERS)
        return false;
    tracestate->others[tracestate->n_others++] = member;
    return true;
}

bool br_tracestate_read(struct br_tracestate *ret, const void *text, size_t len)
{
    ret->th = ret->rv = (struct br_tracestate_text){NULL, 0};
    ret->n_others = ret->n_extras = 0;
    if (len == 0 || len > BR_TRACESTATE_MAX)
        return len == 0;
    br_steps_add(len);
    const char *p = text, *end = br_mem_end(p, len);
    size_t n = 0;
    while (p < end) {
        const char *stop = memchr(p, ',', (size_t)(end - p));
        size_t member_len = (size_t)((stop ? stop : end) - p);
        struct br_tracestate_text member = tracestate_trim(p, member_len);
        if (++n > BR_TRACESTATE_MEMBERS || (member.len && !tracestate_read_member(ret, member)))
            return false;
        p += member_len + 1;
    }
    return true;
}

/* --- Finding a member ------------------------------------------------------------------------ */

/* Parses a member. Returns false if the member is not valid. */
static bool tracestate_split_member(const char *data, size_t len,
                                    struct br_tracestate_text *ret_key,
                                    struct br_tracestate_text *ret_value)
{
    struct br_tracestate_text member = tracestate_trim(data, len);
    const char *equals = member.len ? memchr(member.data, '=', member.len) : NULL;
    if (!equals)
        return false;
    *ret_key = (struct br_tracestate_text){member.data, (size_t)(equals - member.data)};
    *ret_value = (struct br_tracestate_text){equals + 1, member.len - ret_key->len - 1};
    return tracestate_key_valid(*ret_key) && tracestate_value_valid(*ret_value);
}

bool br_tracestate_get(const void *text, size_t len, const char *key, const void **ret_value,
                       size_t *ret_len)
{
    const char *p = text, *end = br_mem_end(p, len);
    struct br_tracestate_text keys[BR_TRACESTATE_MEMBERS], value, found = {NULL, 0};
    size_t n = 0;
    br_steps_add(len);
    while (p < end) {
        const char *stop = memchr(p, ',', (size_t)(end - p));
        size_t member_len = (size_t)((stop ? stop : end) - p);
        if (member_len) {
            if (n == BR_TRACESTATE_MEMBERS ||
                !tracestate_split_member(p, member_len, &keys[n], &value))
                return false;
            for (size_t i = 0; i < n; i++)
                if (br_bytes_equal(keys[i].data, keys[i].len, keys[n].data, keys[n].len))
                    return false;
            if (tracestate_is(keys[n++], key))
                found = value;
        }
        p += member_len + 1;
    }
    if (!found.data)
        return false;
    *ret_value = found.data;
    *ret_len = found.len;
    return true;
}

/* --- Changing and writing -------------------------------------------------------------------- */

void br_tracestate_set_threshold(struct br_tracestate *tracestate, uint64_t threshold)
{
    (void)snprintf(tracestate->own_th, sizeof tracestate->own_th, "%014" PRIx64, threshold);
    size_t len = BR_THRESHOLD_DIGITS;
    while (len > 1 && tracestate->own_th[len - 1] == '0')
        len--;
    tracestate->threshold = threshold;
    tracestate->th = (struct br_tracestate_text){tracestate->own_th, len};
}

void br_tracestate_set_randomness(struct br_tracestate *tracestate, uint64_t randomness)
{
    (void)snprintf(tracestate->own_rv, sizeof tracestate->own_rv, "%014" PRIx64, randomness);
    tracestate->randomness = randomness;
    tracestate->rv = (struct br_tracestate_text){tracestate->own_rv, BR_THRESHOLD_DIGITS};
}

void br_tracestate_clear_threshold(struct br_tracestate *tracestate)
{
    tracestate->th = (struct br_tracestate_text){NULL, 0};
}

static char *tracestate_put(char *out, const char *data, size_t len)
{
    memcpy(out, data, len);
    return out + len;
}

static char *tracestate_put_ot(char *out, const char *separator, const char *name,
                               struct br_tracestate_text text)
{
    out = tracestate_put(out, separator, strlen(separator));
    out = tracestate_put(out, name, strlen(name));
    return tracestate_put(out, text.data, text.len);
}

size_t br_tracestate_write(const struct br_tracestate *tracestate, char *out)
{
    const char *start = out, *separator = "ot=";
    if (tracestate->rv.len) {
        out = tracestate_put_ot(out, separator, "rv:", tracestate->rv);
        separator = ";";
    }
    if (tracestate->th.len) {
        out = tracestate_put_ot(out, separator, "th:", tracestate->th);
        separator = ";";
    }
    for (size_t i = 0; i < tracestate->n_extras; i++, separator = ";")
        out = tracestate_put_ot(out, separator, "", tracestate->extras[i]);
    for (size_t i = 0; i < tracestate->n_others; i++)
        out = tracestate_put_ot(out, out == start ? "" : ",", "", tracestate->others[i]);
    return (size_t)(out - start);
}
