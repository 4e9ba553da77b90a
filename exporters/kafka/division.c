/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/kafka/division.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/divide/divide.h"
#include "otlp/trace_id.h"

/* name of the metadata entry that contains the message key of a piece */
#define KEY_NAME "kafka.message.key"
#define KEYS_MAX 65536
#define DELAY_MS 1000

struct key {
    char text[KAFKA_KEY_MAX + 1]; /* key in text form; "": the messages have no key */
};

struct division {
    struct br_item *item;
    struct br_map *numbers; /* maps a routing key to the number of its bucket plus one */
    struct key *keys;       /* message key of each bucket, by the bucket's number */
    uint32_t n_keys, cap_keys;
    bool full; /* true if the item has more than KEYS_MAX different keys */
    struct br_list pieces;
};

/* --- Keys --------------------------------------------------------------------------------------
 */

/* Assigns the next free bucket to a routing key of `len` bytes, and returns the bucket. Returns
 * BR_BUCKET_NONE if there are too many keys or memory is short. */
static uint32_t division_add_bucket(struct division *division, const uint8_t *key, size_t len)
{
    int rc = br_grow(&division->keys, &division->cap_keys, division->n_keys + 1, sizeof(struct key),
                     KEYS_MAX);
    division->full = division->full || rc == BR_EFULL;
    if (rc)
        return BR_BUCKET_NONE;
    uint32_t number = division->n_keys;
    if (br_map_put(division->numbers, key, len, (void *)(uintptr_t)(number + 1), NULL))
        return BR_BUCKET_NONE;
    division->keys[division->n_keys++] = (struct key){{0}};
    return number;
}

static uint32_t division_find(const struct division *division, const uint8_t *key, size_t len)
{
    uintptr_t found = (uintptr_t)br_map_get(division->numbers, key, len);
    return found ? (uint32_t)(found - 1) : BR_BUCKET_NONE;
}

static uint32_t division_of_trace(void *arg, const uint8_t trace_id[16])
{
    struct division *division = arg;
    uint32_t bucket = division_find(division, trace_id, 16);
    if (bucket != BR_BUCKET_NONE)
        return bucket;
    bucket = division_add_bucket(division, trace_id, 16);
    if (bucket != BR_BUCKET_NONE && br_trace_id_valid(trace_id))
        (void)br_hex_encode(trace_id, 16, division->keys[bucket].text);
    return bucket;
}

static uint32_t division_of_key(void *arg, const uint8_t *key, size_t len)
{
    static const uint8_t secret[16];
    struct division *division = arg;
    /* 9 bytes, so that the bucket's key cannot equal a trace id, which has 16 bytes */
    uint8_t hashed[9] = {'k'};
    uint64_t hash = br_siphash(secret, key, len);
    memcpy(hashed + 1, &hash, sizeof hash);
    uint32_t bucket = division_find(division, hashed, sizeof hashed);
    if (bucket != BR_BUCKET_NONE)
        return bucket;
    bucket = division_add_bucket(division, hashed, sizeof hashed);
    if (bucket == BR_BUCKET_NONE)
        return bucket;
    char *text = division->keys[bucket].text;
    if (len <= KAFKA_KEY_MAX && br_utf8_valid(key, len) == len && !memchr(key, '\0', len))
        (void)snprintf(text, KAFKA_KEY_MAX + 1, "%.*s", (int)len, (const char *)key);
    else
        (void)snprintf(text, KAFKA_KEY_MAX + 1, "%016llx", (unsigned long long)hash);
    return bucket;
}

/* --- Pieces ------------------------------------------------------------------------------------
 */

/* Stores the message key and the metadata of the whole item in the metadata of a piece. */
static int division_set_metadata(struct br_item *piece, const struct br_item *whole,
                                 const char *key)
{
    size_t name_len = sizeof KEY_NAME, key_len = strlen(key) + 1,
           rest = whole->metadata ? br_item_metadata_len(whole) : 1;
    char *text = br_arena_calloc(&piece->arena, 1, name_len + key_len + rest);
    if (!text)
        return BR_ENOMEM;
    memcpy(text, KEY_NAME, name_len);
    memcpy(text + name_len, key, key_len);
    if (whole->metadata)
        memcpy(text + name_len + key_len, whole->metadata, rest);
    piece->metadata = text;
    return 0;
}

static int division_on_group(struct br_item *group, uint32_t bucket, void *arg)
{
    struct division *division = arg;
    if (!group->n_records) {
        br_item_free(group);
        return 0;
    }
    br_list_append(&division->pieces, &group->link);
    return division_set_metadata(group, division->item, division->keys[bucket].text);
}

static int division_run(struct division *division)
{
    const struct br_routing routing = {.route = BR_ROUTE_TRACE,
                                       .max_buckets = KEYS_MAX,
                                       .of_trace = division_of_trace,
                                       .of_key = division_of_key,
                                       .arg = division};
    struct br_mem_scope scope;
    br_item_edit_begin(&scope, division->item);
    scope.sends = true;
    division->numbers = br_map_new(KEYS_MAX);
    int rc = division->numbers
                 ? br_item_divide(division->item, &routing, division_on_group, division)
                 : BR_ENOMEM;
    br_map_free(division->numbers, NULL);
    br_free(division->keys);
    rc = br_item_edit_end(&scope, rc);
    return rc == BR_ENOMEM && division->full ? BR_EFULL : rc;
}

static void division_drop_pieces(struct br_list *pieces)
{
    struct br_list *link;
    while ((link = br_list_shift(pieces)))
        br_item_free(br_container_of(link, struct br_item, link));
}

/* Retries an item that cannot be divided if memory is short, and otherwise rejects the item. */
static void division_fail(struct br_item *item, int rc)
{
    if (rc == BR_ENOMEM)
        br_item_retry(item, BR_STATUS_UNAVAILABLE, DELAY_MS, "out of memory");
    else
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT,
                       "the request cannot be divided by trace within the memory limit");
}

/* Makes the pieces children of `item`. */
static void division_adopt(struct br_item *item, const struct br_list *pieces)
{
    item->outcome = BR_OUTCOME_DONE;
    for (struct br_list *link = pieces->next; link != pieces; link = link->next)
        br_item_adopt(item, br_container_of(link, struct br_item, link));
}

static int division_on_half(struct br_item *half, void *arg)
{
    br_list_append(arg, &half->link);
    return 0;
}

/* Splits an item in half and divides each half. Used if the item has too many traces, or if its
 * pieces need too much memory. */
static void division_halve(struct br_item *item, struct br_consumer *next)
{
    struct br_list halves, *link;
    uint32_t n = (item->n_records + 1) / 2;
    br_list_init(&halves);
    int rc = item->signal == BR_TRACES ? br_traces_split(item, n, 0, division_on_half, &halves)
                                       : br_profiles_split(item, n, 0, division_on_half, &halves);
    if (rc) {
        division_drop_pieces(&halves);
        division_fail(item, rc);
        return;
    }
    for (link = halves.next; link != &halves; link = link->next)
        br_container_of(link, struct br_item, link)->metadata = item->metadata;
    division_adopt(item, &halves);
    while ((link = br_list_shift(&halves)))
        kafka_divide(br_container_of(link, struct br_item, link), next);
    br_item_release_parent(item);
}

void kafka_divide(struct br_item *item, struct br_consumer *next)
{
    struct division division = {.item = item};
    struct br_list *link;
    br_list_init(&division.pieces);
    int rc = division_run(&division);
    if (rc) {
        division_drop_pieces(&division.pieces);
        if (rc == BR_EFULL && item->n_records > 1)
            division_halve(item, next);
        else
            division_fail(item, rc);
        return;
    }
    division_adopt(item, &division.pieces);
    while ((link = br_list_shift(&division.pieces)))
        br_consume(next, br_container_of(link, struct br_item, link));
    br_item_release_parent(item);
}

const char *kafka_key(const struct br_item *item)
{
    const char *key = br_item_metadata(item, KEY_NAME);
    return key && key[0] ? key : NULL;
}
