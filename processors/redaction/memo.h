/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores the results of redacting earlier texts, because senders repeat the same texts. The hash of
 * a text selects one place, which contains the newest text with that hash. The memo therefore never
 * grows and need not be cleaned. A lookup compares the whole text.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/cache.h"

#define REDACT_MEMO_PLACES 8192
#define REDACT_MEMO_TEXT_MAX 512 /* longest text or result, in bytes, that is stored */

struct redact_known {
    uint16_t len, out_len;
    uint8_t kind;    /* number that identifies the applied rules, as the caller defines it */
    uint8_t verdict; /* verdict on the text, as the caller defines it */
    uint16_t rule;   /* number that identifies the rule that decided, as the caller defines it */
    uint8_t bytes[]; /* the text, and directly after it the result */
};

/* The struct must be zeroed before its first use. */
struct redact_memo {
    /* stored results, by place; NULL before the first redact_memo_put */
    struct redact_known **known;
    struct br_cache places; /* assigns a place in `known` to each hash */
};

void redact_memo_release(struct redact_memo *memo);

/* Returns the stored result for the text, or NULL if no result is stored. The result is valid
 * until the next redact_memo_put. */
const struct redact_known *redact_memo_get(const struct redact_memo *memo, uint8_t kind,
                                           const void *text, size_t len);

/* Stores the result for a text if it is short enough and there is enough memory. */
void redact_memo_put(struct redact_memo *memo, uint8_t kind, const void *text, size_t len,
                     uint8_t verdict, uint16_t rule, const void *out, size_t out_len);
