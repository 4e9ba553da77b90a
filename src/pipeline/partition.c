/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/batch.h"

#include <string.h>
#include <strings.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"

/* number of bytes at the start of a key; they contain the signal, and whether the sender waits */
#define PREFIX 2

struct br_partitions {
    struct br_node *node;
    struct br_partition_config config;
    struct br_consumer *next;
    struct br_map *batchers; /* map from the key of a partition to its batcher */
    /* by signal: total weight of the data in all batchers (br_batch_config.weight) */
    size_t weights[BR_SIGNALS];
    void (*on_end)(void *arg);
    void *on_end_arg;
};

static bool partition_separates(const struct br_strings *keys, const char *name)
{
    for (size_t i = 0; i < keys->count; i++)
        if (strcasecmp(keys->items[i], name) == 0)
            return true;
    return false;
}

/* Writes the key of the item's partition. The key contains the item's values of the configured
 * metadata keys, and no other metadata. */
static void partition_key_of(const struct br_partitions *partitions, const struct br_item *item,
                             struct br_str *out)
{
    const struct br_strings *keys = partitions->config.keys;
    const char *at = keys && keys->count ? item->metadata : NULL;
    br_str_putc(out, item->signal == BR_TRACES ? 't' : 'p');
    br_str_putc(out, item->sender == BR_SENDER_WAITS ? 'w' : '-');
    while (at && *at) {
        const char *value = at + strlen(at) + 1, *next = value + strlen(value) + 1;
        if (partition_separates(keys, at))
            br_str_add(out, at, (size_t)(next - at));
        at = next;
    }
}

/* Frees one idle batcher. Returns false if no batcher is idle. */
static bool partition_remove_idle(struct br_partitions *partitions)
{
    struct br_batcher *batcher;
    const void *key;
    size_t len;
    for (size_t i = 0; (batcher = br_map_at(partitions->batchers, i, &key, &len)); i++) {
        if (!br_batcher_idle(batcher))
            continue;
        (void)br_map_remove(partitions->batchers, key, len);
        br_batcher_free(batcher);
        return true;
    }
    return false;
}

static struct br_batcher *partition_make(struct br_partitions *partitions,
                                         const struct br_item *item, const struct br_str *key)
{
    struct br_batch_config config = partitions->config.batch;
    config.late = config.late || item->sender == BR_SENDER_WAITS;
    config.weight = &partitions->weights[item->signal];
    config.metadata = key->data + PREFIX;
    config.metadata_len = key->len - PREFIX;
    if (br_map_count(partitions->batchers) >= partitions->config.limit &&
        !partition_remove_idle(partitions))
        return NULL;
    struct br_batcher *batcher =
        br_batcher_new(partitions->node, item->signal, &config, partitions->next);
    if (batcher && br_map_put(partitions->batchers, key->data, key->len, batcher, NULL)) {
        br_batcher_free(batcher);
        return NULL;
    }
    if (batcher)
        br_batcher_on_end(batcher, partitions->on_end, partitions->on_end_arg);
    return batcher;
}

static struct br_batcher *partition_batcher_for(struct br_partitions *partitions,
                                                const struct br_item *item)
{
    struct br_str key = {0};
    partition_key_of(partitions, item, &key);
    struct br_batcher *batcher =
        key.failed ? NULL : br_map_get(partitions->batchers, key.data, key.len);
    if (!batcher && !key.failed)
        batcher = partition_make(partitions, item, &key);
    br_str_release(&key);
    return batcher;
}

void br_partitions_add(struct br_partitions *partitions, struct br_item *item)
{
    struct br_batcher *batcher = partition_batcher_for(partitions, item);
    if (batcher)
        br_batcher_add(batcher, item);
    else
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000,
                      "batch: too many metadata values, or out of memory");
}

void br_partitions_flush(struct br_partitions *partitions)
{
    struct br_batcher *batcher;
    for (size_t i = 0; (batcher = br_map_at(partitions->batchers, i, NULL, NULL)); i++)
        br_batcher_flush(batcher);
}

bool br_partitions_idle(const struct br_partitions *partitions)
{
    const struct br_batcher *batcher;
    for (size_t i = 0; (batcher = br_map_at(partitions->batchers, i, NULL, NULL)); i++)
        if (!br_batcher_idle(batcher))
            return false;
    return true;
}

size_t br_partitions_weight(const struct br_partitions *partitions, enum br_signal signal)
{
    return partitions->weights[signal];
}

void br_partitions_on_end(struct br_partitions *partitions, void (*fn)(void *arg), void *arg)
{
    struct br_batcher *batcher;
    partitions->on_end = fn;
    partitions->on_end_arg = arg;
    for (size_t i = 0; (batcher = br_map_at(partitions->batchers, i, NULL, NULL)); i++)
        br_batcher_on_end(batcher, fn, arg);
}

size_t br_partitions_count(const struct br_partitions *partitions)
{
    return br_map_count(partitions->batchers);
}

struct br_partitions *br_partitions_new(struct br_node *node,
                                        const struct br_partition_config *config,
                                        struct br_consumer *next)
{
    struct br_partitions *p = br_calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->node = node;
    p->config = *config;
    p->next = next;
    p->batchers = br_map_new(config->limit);
    if (p->batchers)
        return p;
    br_free(p);
    return NULL;
}

static void partition_free_batcher(void *right)
{
    br_batcher_free(right);
}

void br_partitions_free(struct br_partitions *partitions)
{
    if (!partitions)
        return;
    br_map_free(partitions->batchers, partition_free_batcher);
    br_free(partitions);
}
