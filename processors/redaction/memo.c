/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/redaction/memo.h"

#include <stdbool.h>
#include <string.h>

#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "wire/protobuf.h"

static size_t memo_place(const struct redact_memo *m, uint8_t kind, const void *text, size_t len)
{
    const uint64_t secret[2] = {m->secret[0] + kind, m->secret[1]};
    return (size_t)(br_hash_keyed(secret, text, len) % REDACT_MEMO_PLACES);
}

const struct redact_known *redact_memo_get(const struct redact_memo *m, uint8_t kind,
                                           const void *text, size_t len)
{
    if (!m->places || len > REDACT_MEMO_TEXT_MAX)
        return NULL;
    const struct redact_known *k = m->places[memo_place(m, kind, text, len)];
    bool same = k && k->len == len && k->kind == kind && (!len || !memcmp(k->bytes, text, len));
    return same ? k : NULL;
}

void redact_memo_put(struct redact_memo *m, uint8_t kind, const void *text, size_t len,
                     uint8_t verdict, const void *out, size_t out_len)
{
    if (len > REDACT_MEMO_TEXT_MAX || out_len > REDACT_MEMO_TEXT_MAX)
        return;
    if (!m->places) {
        m->places = br_calloc(REDACT_MEMO_PLACES, sizeof *m->places);
        br_random_bytes(m->secret, sizeof m->secret);
    }
    struct redact_known *k = m->places ? br_malloc(sizeof *k + len + out_len) : NULL;
    if (!k)
        return;
    *k = (struct redact_known){(uint16_t)len, (uint16_t)out_len, kind, verdict};
    br_put_bytes(br_put_bytes(k->bytes, text, len), out, out_len);
    size_t place = memo_place(m, kind, text, len);
    br_free(m->places[place]);
    m->places[place] = k;
}

void redact_memo_release(struct redact_memo *m)
{
    for (size_t i = 0; m->places && i < REDACT_MEMO_PLACES; i++)
        br_free(m->places[i]);
    br_free(m->places);
    m->places = NULL;
}
