/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores the results for earlier texts, because senders repeat themselves. Each hash has one place,
 * which contains the newest text, so the memo never grows and need not be cleaned. Texts are
 * compared in full.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/cache.h"

#define REDACT_MEMO_PLACES 8192
#define REDACT_MEMO_TEXT_MAX 512 /* longer texts or results are not stored */

struct redact_known {
    uint16_t len, out_len;
    uint8_t kind;    /* the rules that were applied */
    uint8_t verdict; /* defined by the caller */
    uint16_t rule;   /* defined by the caller: the rule that decided */
    uint8_t bytes[]; /* the text, followed by the result */
};

/* Zero-initialized. */
struct redact_memo {
    struct redact_known **known; /* NULL before the first put */
    struct br_cache places;      /* places of `known`, one for each hash */
};

void redact_memo_release(struct redact_memo *memo);

/* Returns the entry of the text, or NULL. It is valid until the next put. */
const struct redact_known *redact_memo_get(const struct redact_memo *memo, uint8_t kind,
                                           const void *text, size_t len);

/* Stores the result for a text if it is short enough and there is enough memory. */
void redact_memo_put(struct redact_memo *memo, uint8_t kind, const void *text, size_t len,
                     uint8_t verdict, uint16_t rule, const void *out, size_t out_len);
