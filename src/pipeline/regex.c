/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/regex.h"

#include <stdio.h>

#include "base/err.h"
#include "base/mem.h"

#define MATCH_STEPS_MAX 1000000 /* of one pattern over one text */

static void *memory_get(size_t size, void *arg)
{
    (void)arg;
    return br_malloc(size);
}

static void memory_put(void *p, void *arg)
{
    (void)arg;
    br_free(p);
}

static int prepare(struct br_regex *r)
{
    if (!r->memory)
        r->memory = pcre2_general_context_create(memory_get, memory_put, NULL);
    if (r->memory && !r->limits)
        r->limits = pcre2_match_context_create(r->memory);
    if (!r->limits)
        return BR_ENOMEM;
    (void)pcre2_set_match_limit(r->limits, MATCH_STEPS_MAX);
    return 0;
}

/* As Go's regexp, where the two differ: `$` is the end of the text, classes are ASCII. */
int br_regex_compile(struct br_regex *r, const char *pattern, pcre2_code **ret,
                     char why[BR_REGEX_WHY_SIZE])
{
    pcre2_compile_context *context = prepare(r) ? NULL : pcre2_compile_context_create(r->memory);
    int code;
    PCRE2_SIZE at;
    uint32_t groups = 0;
    if (!context)
        return BR_ENOMEM;
    pcre2_code *made = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_DOLLAR_ENDONLY |
                                         PCRE2_NEVER_BACKSLASH_C,
                                     &code, &at, context);
    pcre2_compile_context_free(context);
    if (made) {
        (void)pcre2_jit_compile(made, PCRE2_JIT_COMPLETE); /* without it matching is only slower */
        (void)pcre2_pattern_info(made, PCRE2_INFO_CAPTURECOUNT, &groups);
        r->most_groups = groups > r->most_groups ? groups : r->most_groups;
        *ret = made;
        return 0;
    }
    if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)
        return BR_ENOMEM;
    PCRE2_UCHAR text[160];
    (void)pcre2_get_error_message(code, text, sizeof text);
    (void)snprintf(why, BR_REGEX_WHY_SIZE, "%s, at character %zu", (const char *)text,
                   (size_t)at + 1);
    return BR_EINVAL;
}

int br_regex_ready(struct br_regex *r)
{
    if (prepare(r))
        return BR_ENOMEM;
    pcre2_match_data_free(r->match);
    r->match = pcre2_match_data_create(r->most_groups + 1, r->memory);
    return r->match ? 0 : BR_ENOMEM;
}

void br_regex_release(struct br_regex *r)
{
    pcre2_match_data_free(r->match);
    pcre2_match_context_free(r->limits);
    pcre2_general_context_free(r->memory);
    *r = (struct br_regex){0};
}

int br_regex_match(const struct br_regex *r, const pcre2_code *pattern, const void *text,
                   size_t len)
{
    PCRE2_SPTR subject = text ? text : (const void *)"";
    int rc = pcre2_match(pattern, subject, len, 0, 0, r->match, r->limits);
    /* Machine code has a small stack of its own, the interpreter has the heap. */
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(pattern, subject, len, 0, PCRE2_NO_JIT, r->match, r->limits);
    if (rc >= 0)
        return 1;
    return rc == PCRE2_ERROR_NOMATCH ? 0 : rc == PCRE2_ERROR_NOMEMORY ? BR_ENOMEM : BR_EFULL;
}
