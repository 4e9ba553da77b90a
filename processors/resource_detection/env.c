/* SPDX-License-Identifier: Apache-2.0 */
/* The detector env: attributes from the environment variable OTEL_RESOURCE_ATTRIBUTES. */
#include <string.h>

#include "base/bytes.h"
#include "base/str.h"
#include "processors/resource_detection/detectors.h"

#define TEXT_MAX 256 /* longest key and longest value in the variable, in bytes */

/* Returns true if the text matches a pattern with the wildcards * and ?. */
static bool env_matches(const char *pattern, const char *text)
{
    const char *star = NULL, *from = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = ++pattern;
            from = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star;
            text = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

static bool env_matches_any(const struct br_strings *patterns, const char *text)
{
    for (size_t i = 0; i < patterns->count; i++)
        if (env_matches(patterns->items[i], text))
            return true;
    return false;
}

static bool env_is_used(const struct detect_run *run, const char *key)
{
    const struct detect_env_attributes *filter = &run->section->env;
    if (filter->included.count && !env_matches_any(&filter->included, key))
        return false;
    return !env_matches_any(&filter->excluded, key);
}

static bool env_is_space(char letter)
{
    return letter == ' ' || (letter >= '\t' && letter <= '\r');
}

/* Copies a text without blanks around it. Returns false if it is too long or not ASCII. */
static bool env_trim(const char *text, size_t len, char ret[TEXT_MAX + 1])
{
    while (len && env_is_space(*text)) {
        text++;
        len--;
    }
    while (len && env_is_space(text[len - 1]))
        len--;
    if (len > TEXT_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] >= 0x80)
            return false;
    memcpy(ret, text, len);
    ret[len] = '\0';
    return true;
}

/* Decodes %XX and "+" in place, like Go's url.QueryUnescape. Returns false if a "%" is not followed
 * by two hex digits, or if the text would contain a NUL. */
static bool env_unescape(char *text)
{
    char *out = text;
    for (; *text; text++) {
        uint8_t byte = (uint8_t)*text;
        if (byte == '%') {
            if (!text[1] || br_hex_decode(text + 1, 2, &byte, 1) != 1 || !byte)
                return false;
            text += 2;
        } else if (byte == '+') {
            byte = ' ';
        }
        *out++ = (char)byte;
    }
    *out = '\0';
    return true;
}

static bool env_read_pair(struct detect_run *run, const char *pair, size_t key_len,
                          size_t value_len)
{
    char key[TEXT_MAX + 1], value[TEXT_MAX + 1];
    if (!env_trim(pair, key_len, key) || !*key || !env_trim(pair + key_len + 1, value_len, value) ||
        !env_unescape(value))
        return false;
    if (env_is_used(run, key))
        detect_any(run, "", key, value);
    return true;
}

static void env_begin(struct detect_run *run)
{
    const char *name = "OTEL_RESOURCE_ATTRIBUTES", *p = detect_variable(name);
    while (p && env_is_space(*p))
        p++;
    if (!p || !*p) {
        name = "OTEL_RESOURCE";
        p = detect_variable(name);
    }
    while (p && *p) {
        const char *equals = strchr(p, '=');
        size_t len = equals ? strcspn(equals + 1, ",") : 0;
        if (!equals || !env_read_pair(run, p, (size_t)(equals - p), len)) {
            detect_fail(run,
                        "%s must have the form key=value,key=value with escapes as in URLs; "
                        "invalid from \"%.60s\" on",
                        name, p);
            return;
        }
        p = equals + 1 + len;
        p += *p == ',';
        while (env_is_space(*p))
            p++;
    }
    detect_end(run);
}

const struct detector detect_env = {.begin = env_begin};
