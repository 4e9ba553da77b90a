/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/redaction/memo.h"

#include <stdbool.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "wire/protobuf.h"

/* The key of a lookup in the memo (the cache of results): a text, and the rules to apply to it. */
struct wanted {
    const void *text;
    size_t len;
    uint8_t kind;
};

static bool memo_is_known(const void *entry, const void *key)
{
    const struct redact_known *known = *(struct redact_known *const *)entry;
    const struct wanted *wanted = key;
    return known && known->kind == wanted->kind &&
           br_bytes_equal(known->bytes, known->len, wanted->text, wanted->len);
}

static uint64_t memo_hash(const struct redact_memo *memo, uint8_t kind, const void *text,
                          size_t len)
{
    const uint64_t secret[2] = {memo->places.secret[0] + kind, memo->places.secret[1]};
    return br_hash_keyed(secret, text, len);
}

const struct redact_known *redact_memo_get(const struct redact_memo *memo, uint8_t kind,
                                           const void *text, size_t len)
{
    if (!memo->known || len > REDACT_MEMO_TEXT_MAX)
        return NULL;
    struct redact_known *const *place =
        br_cache_find(&memo->places, memo_hash(memo, kind, text, len), memo_is_known,
                      &(struct wanted){text, len, kind});
    return place ? *place : NULL;
}

void redact_memo_put(struct redact_memo *memo, uint8_t kind, const void *text, size_t len,
                     uint8_t verdict, uint16_t rule, const void *out, size_t out_len)
{
    if (len > REDACT_MEMO_TEXT_MAX || out_len > REDACT_MEMO_TEXT_MAX)
        return;
    if (!memo->known) {
        memo->known = br_calloc(REDACT_MEMO_PLACES, sizeof *memo->known);
        br_cache_init(&memo->places, memo->known, sizeof *memo->known, REDACT_MEMO_PLACES, 1);
    }
    struct redact_known *known = memo->known ? br_malloc(sizeof *known + len + out_len) : NULL;
    if (!known)
        return;
    *known = (struct redact_known){(uint16_t)len, (uint16_t)out_len, kind, verdict, rule};
    br_put_bytes(br_put_bytes(known->bytes, text, len), out, out_len);
    struct redact_known **place = br_cache_take(&memo->places, memo_hash(memo, kind, text, len));
    br_free(*place);
    *place = known;
}

void redact_memo_release(struct redact_memo *memo)
{
    for (size_t i = 0; memo->known && i < REDACT_MEMO_PLACES; i++)
        br_free(memo->known[i]);
    br_free(memo->known);
    memo->known = NULL;
}
