/* SPDX-License-Identifier: Apache-2.0 */
/* The batch processor, for both signals. The batcher itself is src/pipeline/batch. */
#include "pipeline/batch.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/map.h"
#include "base/mem.h"

struct config {
    uint64_t timeout;
    int64_t send_batch_size, send_batch_max_size, metadata_cardinality_limit;
    struct br_strings metadata_keys;
    int acknowledge;
};

struct state {
    struct br_node *node;
    struct br_batch_config config;
    struct br_consumer output; /* what batches go to: the next in the pipeline */
    struct br_map *batchers;   /* by metadata; one, under "", without metadata_keys */
    double *cardinality;
};

static const char *const acknowledge[] = {"early", "late", NULL};

static const struct br_option options[] = {
    BR_DURATION(struct config, timeout, "200ms", "a batch leaves after it, whatever its size; 0: at once"),
    BR_INT(struct config, send_batch_size, 8192, 0, 4294967295.0,
           "spans or samples at which a batch leaves; 0: timeout only"),
    BR_INT(struct config, send_batch_max_size, 0, 0, 4294967295.0, "batches are cut above it; 0: never"),
    BR_STRINGS(struct config, metadata_keys,
               "client metadata by which batches are kept apart, and which they go on with"),
    BR_INT(struct config, metadata_cardinality_limit, 1000, 1, 100000,
           "most different values of that metadata"),
    BR_ENUM(struct config, acknowledge, "early", acknowledge,
            "early: answer once it is in the batch; late: when the batch has been delivered"),
    BR_OPT_END,
};

static int check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
                 struct br_errs *errs)
{
    const struct config *c = config;
    char at[256];
    (void)arena;
    if (!c->send_batch_max_size || c->send_batch_max_size >= c->send_batch_size)
        return 0;
    (void)snprintf(at, sizeof at, "%s::send_batch_max_size", path);
    return br_errs_add(errs, br_yaml_get(node, "send_batch_max_size"), at,
                       "must be 0 or at least send_batch_size (%lld), got %lld",
                       (long long)c->send_batch_size, (long long)c->send_batch_max_size);
}

static void output(struct br_consumer *self, struct br_item *item)
{
    struct state *s = br_container_of(self, struct state, output);
    br_node_forward(s->node, item);
}

static int create(struct br_node *node, struct br_err *err)
{
    struct state *s = node->state;
    const struct config *c = node->config;
    s->node = node;
    s->output.consume = output;
    s->config = (struct br_batch_config){.timeout_ms = c->timeout / 1000000,
                                         .min_size = (size_t)c->send_batch_size,
                                         .max_size = (size_t)c->send_batch_max_size,
                                         .late = c->acknowledge == 1};
    if (c->timeout && !s->config.timeout_ms)
        s->config.timeout_ms = 1;
    s->batchers = br_map_new((size_t)c->metadata_cardinality_limit);
    s->cardinality = br_node_metric(node, BR_GAUGE, "otelcol_processor_batch_metadata_cardinality",
                                    NULL, NULL);
    return s->batchers ? 0 : br_err_set(err, BR_ENOMEM, "out of memory");
}

static bool separates(const struct br_strings *keys, const char *name)
{
    for (size_t i = 0; i < keys->n; i++)
        if (strcasecmp(keys->v[i], name) == 0)
            return true;
    return false;
}

/* Of an item's metadata what batches are kept apart by: other processors may have asked for more. */
static void metadata_of(const struct state *s, const struct br_item *item, struct br_str *out)
{
    const struct config *c = s->node->config;
    const char *p = c->metadata_keys.n ? item->metadata : NULL;
    while (p && *p) {
        const char *value = p + strlen(p) + 1, *next = value + strlen(value) + 1;
        if (separates(&c->metadata_keys, p))
            br_str_add(out, p, (size_t)(next - p));
        p = next;
    }
}

static void on_end(void *arg);

static struct br_batcher *batcher_of(struct state *s, const struct br_item *item, const char *key,
                                     size_t len)
{
    struct br_batcher *b = br_map_get(s->batchers, key, len);
    struct br_batch_config config = s->config;
    if (b)
        return b;
    config.metadata = key;
    config.metadata_len = len;
    b = br_batcher_new(s->node, item->signal, &config, &s->output);
    if (b && br_map_put(s->batchers, key, len, b, NULL)) {
        br_batcher_free(b);
        b = NULL;
    }
    if (b)
        br_batcher_on_end(b, on_end, s);
    *s->cardinality = (double)br_map_count(s->batchers);
    return b;
}

static struct br_batcher *batcher_for(struct state *s, const struct br_item *item)
{
    struct br_str key = {0};
    metadata_of(s, item, &key);
    struct br_batcher *b =
        key.failed ? NULL : batcher_of(s, item, key.data ? key.data : "", key.len);
    br_str_release(&key);
    return b;
}

static void consume(struct br_node *node, struct br_item *item)
{
    struct state *s = node->state;
    struct br_batcher *b = batcher_for(s, item);
    if (b)
        br_batcher_add(b, item);
    else
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000,
                      "batch: too many metadata values, or no memory");
}

static bool all_idle(const struct state *s)
{
    const struct br_batcher *b;
    for (size_t i = 0; (b = br_map_at(s->batchers, i, NULL, NULL)); i++)
        if (!br_batcher_idle(b))
            return false;
    return true;
}

static void on_end(void *arg)
{
    struct state *s = arg;
    if (s->node->draining && all_idle(s))
        br_node_drained(s->node);
}

static void drain(struct br_node *node)
{
    struct state *s = node->state;
    struct br_batcher *b;
    for (size_t i = 0; (b = br_map_at(s->batchers, i, NULL, NULL)); i++)
        br_batcher_flush(b);
    if (all_idle(s))
        br_node_drained(node);
}

static void free_batcher(void *b)
{
    br_batcher_free(b);
}

static void destroy(struct br_node *node)
{
    struct state *s = node->state;
    br_map_free(s->batchers, free_batcher);
}

static const struct br_strings *metadata_keys(const void *config)
{
    return &((const struct config *)config)->metadata_keys;
}

extern const struct br_component br_batch_processor;
const struct br_component br_batch_processor = {
    .name = "batch",
    .kind = BR_PROCESSOR,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "gathers items into larger requests; merges profiles' dictionaries",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .metadata_keys = metadata_keys,
    .check = check,
    .create = create,
    .consume = consume,
    .drain = drain,
    .destroy = destroy,
};
