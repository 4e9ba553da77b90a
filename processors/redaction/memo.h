/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Remembers what became of texts that came before, because senders repeat themselves. Each hash has
 * one place with the newest text, so that it never grows and never has to be cleaned. Texts are
 * compared in full.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/cache.h"

#define REDACT_MEMO_PLACES 8192
#define REDACT_MEMO_TEXT_MAX 512 /* longer texts, or results, are not remembered */

struct redact_known {
    uint16_t len, out_len;
    uint8_t kind;    /* whose rules it went through */
    uint8_t verdict; /* of the caller's */
    uint16_t rule;   /* the caller's, too: by which */
    uint8_t bytes[]; /* the text, then the result */
};

/* Zeroed at first. */
struct redact_memo {
    struct redact_known **known; /* NULL until the first put */
    struct br_cache places;      /* of these, one for a hash */
};

void redact_memo_release(struct redact_memo *memo);

/* Returns what is known of the text, or NULL. Lives until the next put. */
const struct redact_known *redact_memo_get(const struct redact_memo *memo, uint8_t kind,
                                           const void *text, size_t len);

/* Remembers it, if it is short enough and there is memory. */
void redact_memo_put(struct redact_memo *memo, uint8_t kind, const void *text, size_t len,
                     uint8_t verdict, uint16_t rule, const void *out, size_t out_len);
