/* SPDX-License-Identifier: Apache-2.0 */
#include "attribute/regex.h"

#include <stdio.h>
#include <time.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/steps.h"

/* maximum number of steps of the search for one pattern in one text */
#define MATCH_STEPS_MAX 1000000
/* maximum number of steps per start offset if the time is limited; they take about 0.2 ms */
#define BOUND_STEPS_MAX 20000
/* nanoseconds allowed per byte of an item; most patterns take half a nanosecond per byte, and
 * few take more than two */
#define TIME_NS_PER_BYTE 20u
/* if a match took less than SURE_NS nanoseconds, the thread was probably not interrupted */
#define SURE_NS 1000000u
/* A request may be processed in several pieces, which divide its time limit. Each piece gets at
 * least this fraction of the limit, because starting a match takes time even in a short text. */
#define SHARE_MIN (1.0 / 256)
/* memory limit, in KiB, of PCRE2's interpreter, which is used if machine code runs out of stack */
#define HEAP_KIB_MAX 16384

/* Number of start offsets after which the clock is read again. The number is lower in long
 * texts, where each start offset takes longer. */
#define STRIDE_MAX 128
#define STRIDE_MIN 4
#define STRIDE_WORK (4u << 20)

static void *regex_memory_get(size_t size, void *arg)
{
    (void)arg;
    return br_malloc(size);
}

static void regex_memory_put(void *memory, void *arg)
{
    (void)arg;
    br_free(memory);
}

static int regex_prepare(struct br_regex *regex)
{
    if (!regex->memory)
        regex->memory = pcre2_general_context_create(regex_memory_get, regex_memory_put, NULL);
    if (regex->memory && !regex->limits)
        regex->limits = pcre2_match_context_create(regex->memory);
    if (!regex->limits)
        return BR_ENOMEM;
    (void)pcre2_set_match_limit(regex->limits, MATCH_STEPS_MAX);
    (void)pcre2_set_heap_limit(regex->limits, HEAP_KIB_MAX);
    return 0;
}

/* Compiles a pattern. Follows Go's regexp where PCRE2 differs: `$` is the end of the text, and
 * classes are ASCII. */
int br_regex_compile(struct br_regex *regex, const char *pattern, pcre2_code **ret,
                     char why[BR_REGEX_WHY_SIZE])
{
    pcre2_compile_context *context =
        regex_prepare(regex) ? NULL : pcre2_compile_context_create(regex->memory);
    int code;
    PCRE2_SIZE at;
    uint32_t groups = 0;
    if (!context)
        return BR_ENOMEM;
    pcre2_code *made = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_DOLLAR_ENDONLY |
                                         PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT,
                                     &code, &at, context);
    pcre2_compile_context_free(context);
    if (made) {
        /* if this fails, matching still works but is slower */
        (void)pcre2_jit_compile(made, PCRE2_JIT_COMPLETE);
        (void)pcre2_pattern_info(made, PCRE2_INFO_CAPTURECOUNT, &groups);
        regex->most_groups = groups > regex->most_groups ? groups : regex->most_groups;
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

int br_regex_ready(struct br_regex *regex)
{
    if (regex_prepare(regex))
        return BR_ENOMEM;
    pcre2_match_data_free(regex->match);
    regex->match = pcre2_match_data_create(regex->most_groups + 1, regex->memory);
    return regex->match ? 0 : BR_ENOMEM;
}

void br_regex_release(struct br_regex *regex)
{
    pcre2_match_data_free(regex->match);
    pcre2_match_context_free(regex->limits);
    pcre2_general_context_free(regex->memory);
    *regex = (struct br_regex){0};
}

void br_regex_bound(struct br_regex *regex, struct br_regex_time *time)
{
    regex->time = time;
    (void)pcre2_set_match_limit(regex->limits, BOUND_STEPS_MAX);
}

static uint64_t regex_clock_ns(clockid_t clock)
{
    struct timespec timespec = {0};
    (void)clock_gettime(clock, &timespec);
    return (uint64_t)timespec.tv_sec * 1000000000u + (uint64_t)timespec.tv_nsec;
}

void br_regex_time_begin(struct br_regex_time *time_left, uint64_t match_ns,
                         const struct br_item *item)
{
    double share = item ? br_item_share(item) : 1;
    share = share < SHARE_MIN ? SHARE_MIN : share;
    *time_left = (struct br_regex_time){.allowed_ns = (uint64_t)((double)match_ns * share)};
    if (item)
        time_left->allowed_ns += (uint64_t)item->size * TIME_NS_PER_BYTE;
}

static uint64_t regex_time_read(const struct br_regex_time *time)
{
    return regex_clock_ns(time->exact ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC);
}

/* Adds the time of a match that began at `began_ns`, by the clock that is in use. The clock of
 * the thread's processor time is slow to read. This clock is used only once a match has taken so
 * long that the thread may have been interrupted. */
static void regex_time_take(struct br_regex_time *time, uint64_t began_ns)
{
    uint64_t took_ns = regex_time_read(time) - began_ns;
    if (!time->exact && took_ns > SURE_NS) {
        time->exact = true;
        took_ns = SURE_NS;
    }
    time->used_ns += took_ns;
    time->spent = time->used_ns >= time->allowed_ns;
}

/* Searches for a match that begins between the offsets `start` and `last`. Returns PCRE2's
 * result. */
static int regex_match_within(const struct br_regex *regex, const pcre2_code *pattern,
                              PCRE2_SPTR text, size_t len, size_t start, size_t last,
                              uint32_t options)
{
    (void)pcre2_set_offset_limit(regex->limits, last);
    int rc = pcre2_match(pattern, text, len, start, options, regex->match, regex->limits);
    /* The stack of the machine code is small. The interpreter uses the heap instead. */
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(pattern, text, len, start, options | PCRE2_NO_JIT, regex->match,
                         regex->limits);
    return rc;
}

static size_t regex_stride_of(const struct br_regex *regex, size_t len)
{
    if (!regex->time)
        return SIZE_MAX;
    size_t stride = STRIDE_WORK / (len + 1);
    if (stride > STRIDE_MAX)
        return STRIDE_MAX;
    return stride < STRIDE_MIN ? STRIDE_MIN : stride;
}

static int regex_match(const struct br_regex *regex, const pcre2_code *pattern, const void *text,
                       size_t len, size_t start, uint32_t options)
{
    PCRE2_SPTR subject = text ? text : (const void *)"";
    size_t stride = regex_stride_of(regex, len);
    struct br_regex_time *time = regex->time;
    int rc;
    for (bool more = true; more;) {
        if (time && time->spent)
            return BR_EFULL;
        uint64_t began_ns = time ? regex_time_read(time) : 0;
        more = len - start >= stride;
        rc = regex_match_within(regex, pattern, subject, len, start,
                                more ? start + stride - 1 : PCRE2_UNSET, options);
        if (time)
            regex_time_take(time, began_ns);
        if (rc != PCRE2_ERROR_NOMATCH)
            break;
        start += more ? stride : 0;
        while (more && start < len && (subject[start] & 0xc0) == 0x80)
            start++;
    }
    if (rc >= 0)
        return 1;
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    return rc == PCRE2_ERROR_NOMEMORY ? BR_ENOMEM : BR_EFULL;
}

int br_regex_match(const struct br_regex *regex, const pcre2_code *pattern, const void *text,
                   size_t len)
{
    br_steps_add(len);
    return regex_match(regex, pattern, text, len, 0, 0);
}

int br_regex_find(const struct br_regex *regex, const pcre2_code *pattern, const void *text,
                  size_t len, size_t start, size_t *ret_from, size_t *ret_to)
{
    int rc = regex_match(regex, pattern, text, len, start, PCRE2_NOTEMPTY);
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(regex->match);
    br_steps_add(rc == 1 && at[1] > start ? at[1] - start : len - start);
    if (rc == 1) {
        /* if a match contains \K in a lookahead, its beginning can be after its end */
        *ret_from = at[0] < at[1] ? at[0] : at[1];
        *ret_to = at[1];
        return at[1] > start ? 1 : 0;
    }
    return rc;
}

int br_regex_search(const struct br_regex *regex, const pcre2_code *pattern, const void *text,
                    size_t len, size_t start)
{
    int rc = regex_match(regex, pattern, text, len, start, 0);
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(regex->match);
    br_steps_add(rc == 1 && at[1] > start ? at[1] - start : len - start);
    return rc;
}
