/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/build/tags.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"

void br_tags_release(struct br_tags *tags)
{
    br_free(tags->items);
    br_free(tags->order);
    *tags = (struct br_tags){0};
}

void br_tags_clear(struct br_tags *tags)
{
    tags->count = tags->n_sorted = 0;
}

int br_tags_add(struct br_tags *tags, const struct br_tag *tag)
{
    int rc =
        br_grow(&tags->items, &tags->cap, tags->count + (size_t)1, sizeof *tags->items, UINT32_MAX);
    if (rc)
        return BR_ENOMEM;
    tags->items[tags->count++] = *tag;
    return 0;
}

int br_tags_add_text(struct br_tags *tags, const char *key, const char *value, size_t len)
{
    return br_tags_add(tags, &(struct br_tag){.key = key,
                                              .key_len = (uint32_t)strlen(key),
                                              .type = BR_VALUE_STRING,
                                              .data = (const uint8_t *)value,
                                              .len = (uint32_t)len});
}

void br_tag_rename(struct br_tag *tag, const char *old, const char *key)
{
    if (!br_bytes_are(tag->key, tag->key_len, old))
        return;
    tag->key = key;
    tag->key_len = (uint32_t)strlen(key);
}

static int tags_compare_keys(const char *one, size_t one_len, const char *other, size_t other_len)
{
    size_t len = one_len < other_len ? one_len : other_len;
    int difference = len ? memcmp(one, other, len) : 0;
    return difference ? difference : (one_len > other_len) - (one_len < other_len);
}

/* Compares two tags by key. Tags with equal keys keep their order in the list. */
static int tags_compare(const void *one, const void *other, void *arg)
{
    const struct br_tag *items = arg;
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    int difference =
        tags_compare_keys(items[a].key, items[a].key_len, items[b].key, items[b].key_len);
    return difference ? difference : (a > b) - (a < b);
}

int br_tags_sort(struct br_tags *tags)
{
    if (br_grow(&tags->order, &tags->cap_order, tags->count, sizeof *tags->order, UINT32_MAX))
        return BR_ENOMEM;
    for (uint32_t i = 0; i < tags->count; i++)
        tags->order[i] = i;
    if (tags->count)
        qsort_r(tags->order, tags->count, sizeof *tags->order, tags_compare, tags->items);
    tags->n_sorted = tags->count;
    uint32_t n = 0;
    for (uint32_t i = 0; i < tags->count; i++) {
        struct br_tag *tag = &tags->items[tags->order[i]],
                      *next = i + 1 < tags->count ? &tags->items[tags->order[i + 1]] : NULL;
        if (next && br_bytes_equal(tag->key, tag->key_len, next->key, next->key_len))
            tag->dropped = true;
        else
            tags->order[n++] = tags->order[i];
    }
    tags->n_sorted = n;
    return 0;
}

struct br_tag *br_tags_find(const struct br_tags *tags, const char *key)
{
    size_t len = strlen(key);
    for (uint32_t low = 0, high = tags->n_sorted; low < high;) {
        uint32_t middle = low + (high - low) / 2;
        struct br_tag *tag = &tags->items[tags->order[middle]];
        int difference = tags_compare_keys(tag->key, tag->key_len, key, len);
        if (difference == 0)
            return tag->dropped ? NULL : tag;
        if (difference < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

bool br_tag_is(const struct br_tag *tag, const char *text)
{
    return tag->type == BR_VALUE_STRING && br_bytes_are(tag->data, tag->len, text);
}
