/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/partition.h"

#include <string.h>
#include <strings.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"

#define PREFIX 2 /* of a key: signal and whether somebody waits */

struct br_partitions {
    struct br_node *node;
    struct br_partition_config config;
    struct br_consumer *next;
    struct br_map *batchers; /* by prefix and metadata */
    size_t weight;           /* in all of them */
    void (*on_end)(void *arg);
    void *on_end_arg;
};

static bool separates(const struct br_strings *keys, const char *name)
{
    for (size_t i = 0; i < keys->n; i++)
        if (strcasecmp(keys->v[i], name) == 0)
            return true;
    return false;
}

/* Of an item's metadata what it is kept apart by: others may have asked for more. */
static void key_of(const struct br_partitions *p, const struct br_item *item, struct br_str *out)
{
    const struct br_strings *keys = p->config.keys;
    const char *at = keys && keys->n ? item->metadata : NULL;
    br_str_putc(out, item->signal == BR_TRACES ? 't' : 'p');
    br_str_putc(out, item->waits ? 'w' : '-');
    while (at && *at) {
        const char *value = at + strlen(at) + 1, *next = value + strlen(value) + 1;
        if (separates(keys, at))
            br_str_add(out, at, (size_t)(next - at));
        at = next;
    }
}

/* False when none could go. */
static bool remove_idle(struct br_partitions *p)
{
    struct br_batcher *b;
    const void *key;
    size_t len;
    for (size_t i = 0; (b = br_map_at(p->batchers, i, &key, &len)); i++) {
        if (!br_batcher_idle(b))
            continue;
        (void)br_map_remove(p->batchers, key, len);
        br_batcher_free(b);
        return true;
    }
    return false;
}

static struct br_batcher *make(struct br_partitions *p, const struct br_item *item,
                               const struct br_str *key)
{
    struct br_batch_config config = p->config.batch;
    config.late = config.late || item->waits;
    config.weight = &p->weight;
    config.metadata = key->data + PREFIX;
    config.metadata_len = key->len - PREFIX;
    if (br_map_count(p->batchers) >= p->config.limit && !remove_idle(p))
        return NULL;
    struct br_batcher *b = br_batcher_new(p->node, item->signal, &config, p->next);
    if (b && br_map_put(p->batchers, key->data, key->len, b, NULL)) {
        br_batcher_free(b);
        return NULL;
    }
    if (b)
        br_batcher_on_end(b, p->on_end, p->on_end_arg);
    return b;
}

static struct br_batcher *batcher_for(struct br_partitions *p, const struct br_item *item)
{
    struct br_str key = {0};
    key_of(p, item, &key);
    struct br_batcher *b = key.failed ? NULL : br_map_get(p->batchers, key.data, key.len);
    if (!b && !key.failed)
        b = make(p, item, &key);
    br_str_release(&key);
    return b;
}

void br_partitions_add(struct br_partitions *p, struct br_item *item)
{
    struct br_batcher *b = batcher_for(p, item);
    if (b)
        br_batcher_add(b, item);
    else
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000,
                      "batch: too many metadata values, or no memory");
}

void br_partitions_flush(struct br_partitions *p)
{
    struct br_batcher *b;
    for (size_t i = 0; (b = br_map_at(p->batchers, i, NULL, NULL)); i++)
        br_batcher_flush(b);
}

bool br_partitions_idle(const struct br_partitions *p)
{
    const struct br_batcher *b;
    for (size_t i = 0; (b = br_map_at(p->batchers, i, NULL, NULL)); i++)
        if (!br_batcher_idle(b))
            return false;
    return true;
}

size_t br_partitions_weight(const struct br_partitions *p)
{
    return p->weight;
}

void br_partitions_on_end(struct br_partitions *p, void (*fn)(void *arg), void *arg)
{
    struct br_batcher *b;
    p->on_end = fn;
    p->on_end_arg = arg;
    for (size_t i = 0; (b = br_map_at(p->batchers, i, NULL, NULL)); i++)
        br_batcher_on_end(b, fn, arg);
}

size_t br_partitions_count(const struct br_partitions *p)
{
    return br_map_count(p->batchers);
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

static void free_batcher(void *b)
{
    br_batcher_free(b);
}

void br_partitions_free(struct br_partitions *p)
{
    if (!p)
        return;
    br_map_free(p->batchers, free_batcher);
    br_free(p);
}
