/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/redaction/memo.h"

#include <stdbool.h>
#include <string.h>

#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "wire/protobuf.h"

static size_t memo_place(const struct redact_memo *memo, uint8_t kind, const void *text, size_t len)
{
    const uint64_t secret[2] = {memo->secret[0] + kind, memo->secret[1]};
    return (size_t)(br_hash_keyed(secret, text, len) % REDACT_MEMO_PLACES);
}

const struct redact_known *redact_memo_get(const struct redact_memo *memo, uint8_t kind,
                                           const void *text, size_t len)
{
    if (!memo->places || len > REDACT_MEMO_TEXT_MAX)
        return NULL;
    const struct redact_known *k = memo->places[memo_place(memo, kind, text, len)];
    bool same = k && k->len == len && k->kind == kind && (!len || !memcmp(k->bytes, text, len));
    return same ? k : NULL;
}

void redact_memo_put(struct redact_memo *memo, uint8_t kind, const void *text, size_t len,
                     uint8_t verdict, const void *out, size_t out_len)
{
    if (len > REDACT_MEMO_TEXT_MAX || out_len > REDACT_MEMO_TEXT_MAX)
        return;
    if (!memo->places) {
        memo->places = br_calloc(REDACT_MEMO_PLACES, sizeof *memo->places);
        br_random_bytes(memo->secret, sizeof memo->secret);
    }
    struct redact_known *k = memo->places ? br_malloc(sizeof *k + len + out_len) : NULL;
    if (!k)
        return;
    *k = (struct redact_known){(uint16_t)len, (uint16_t)out_len, kind, verdict};
    br_put_bytes(br_put_bytes(k->bytes, text, len), out, out_len);
    size_t place = memo_place(memo, kind, text, len);
    br_free(memo->places[place]);
    memo->places[place] = k;
}

void redact_memo_release(struct redact_memo *memo)
{
    for (size_t i = 0; memo->places && i < REDACT_MEMO_PLACES; i++)
        br_free(memo->places[i]);
    br_free(memo->places);
    memo->places = NULL;
}
