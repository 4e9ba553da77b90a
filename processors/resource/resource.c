/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resource processor applies the Collector's actions to the Resources of both signals. Only the
 * Resource message is rewritten; all other bytes are forwarded as they were received.
 */
#include <string.h>

#include "attribute/rules.h"
#include "base/buf.h"
#include "base/cache.h"
#include "otlp/dictionary/dictionary.h"
#include "pipeline/component.h"
#include "wire/protobuf.h"

#define SCRATCH_MAX (256u << 20)
/* largest cached entry, in bytes: total size of Resource, metadata and result */
#define CACHE_ENTRY_MAX 8192
/* number of cached entries; all entries together take at most 2 MiB */
#define CACHE_ENTRIES 256
#define CACHE_WAYS 2u

/* --- Cached results --------------------------------------------------------------------------- */

/*
 * Senders repeat the same few Resources. A Resource whose result is cached takes only one hash and
 * one comparison. The cache has a fixed number of entries of limited size. An entry is removed only
 * when a newer one replaces it.
 */

struct resource_cached {
    uint64_t hash;
    struct br_buf *buf; /* Resource, metadata and result, in this order; NULL: the entry is empty */
    uint32_t in_len, metadata_len, out_len;
    bool changed; /* false: the rules do not change the Resource, and there is no result */
};

struct resource_cache {
    /* maps each hash to an index in `entries`; if two hashes have the same index, the entry that
     * was used last is kept */
    struct br_cache places;
    struct resource_cached entries[CACHE_ENTRIES];
};

/* The data on which the result of the rules depends: the Resource and the metadata. */
struct resource_input {
    const uint8_t *data;
    /* client metadata of the item, including its terminating zero; NULL: the item has no
     * metadata, or the rules do not read it */
    const char *metadata;
    size_t len, metadata_len;
    uint64_t hash; /* hash of Resource and metadata; set by resource_cache_find */
};

static bool resource_cache_equal(const void *entry, const void *key)
{
    const struct resource_cached *cached = entry;
    const struct resource_input *in = key;
    if (!cached->buf || cached->hash != in->hash)
        return false;
    if (cached->in_len != in->len || cached->metadata_len != in->metadata_len)
        return false;
    if (in->len && memcmp(cached->buf->data, in->data, in->len) != 0)
        return false;
    return !in->metadata_len ||
           memcmp(cached->buf->data + in->len, in->metadata, in->metadata_len) == 0;
}

/* Initializes a zeroed cache, which must not be moved afterwards. */
static void resource_cache_init(struct resource_cache *cache)
{
    br_cache_init(&cache->places, cache->entries, sizeof *cache->entries,
                  CACHE_ENTRIES / CACHE_WAYS, CACHE_WAYS);
}

/* Returns the entry for the input, or NULL if no entry is cached. The entry is valid until the
 * next resource_cache_put. */
static const struct resource_cached *resource_cache_find(struct resource_cache *cache,
                                                         struct resource_input *in)
{
    in->hash = br_cache_hash(&cache->places, in->data, in->len);
    if (in->metadata_len) {
        const uint64_t *secret = cache->places.secret;
        const uint64_t both[2] = {secret[0] ^ in->hash, secret[1]};
        in->hash = br_hash_keyed(both, in->metadata, in->metadata_len);
    }
    return br_cache_find(&cache->places, in->hash, resource_cache_equal, in);
}

/* Stores the result for the input `in`. Takes ownership of `buf`, which must have the layout of
 * resource_cached.buf. Must be called after resource_cache_find with the same input. */
static void resource_cache_put(struct resource_cache *cache, const struct resource_input *in,
                               struct br_buf *buf, size_t out_len, bool changed)
{
    struct resource_cached *cached = br_cache_take(&cache->places, in->hash);
    br_buf_unref(cached->buf);
    *cached = (struct resource_cached){.hash = in->hash,
                                       .buf = buf,
                                       .in_len = (uint32_t)in->len,
                                       .metadata_len = (uint32_t)in->metadata_len,
                                       .out_len = (uint32_t)out_len,
                                       .changed = changed};
}

static void resource_cache_clear(struct resource_cache *cache)
{
    for (size_t i = 0; i < CACHE_ENTRIES; i++) {
        br_buf_unref(cache->entries[i].buf);
        cache->entries[i] = (struct resource_cached){0};
    }
}

/* Returns the changed Resource of an entry. */
static const uint8_t *resource_cached_output(const struct resource_cached *cached)
{
    return cached->buf->data + cached->in_len + cached->metadata_len;
}

/* --- Config ----------------------------------------------------------------------------------- */

struct config {
    struct br_structs attributes; /* list of struct br_rule_config */
    /* names of the headers that actions read (from_context); set by the config check */
    struct br_strings metadata;
    /* processor time, in nanoseconds, that regular expressions may take for an item, in addition
     * to 20 ns per byte */
    uint64_t match_time;
};

struct state {
    struct br_arena arena; /* memory of the rules */
    struct br_rules rules;
    struct resource_cache cache;
    struct br_attributes message;
    struct br_arena scratch;   /* memory for the current Resource */
    struct br_regex_time time; /* time that regular expressions took for the current item */
    struct br_log_limit limit;
    double *gave_up;
    bool reads_metadata;
};

static const struct br_option options[] = {
    {.name = "attributes",
     .kind = BR_OPT_LIST,
     .offset = BR_OPT_FIELD(struct config, attributes, struct br_structs),
     .sub = br_rule_options,
     .size = sizeof(struct br_rule_config),
     .help = "actions on resource attributes, applied in order"},
    BR_DURATION(
        struct config, match_time, "20ms",
        "CPU time for matching all patterns against a request, in addition to 20 ns per byte; when "
        "it is used up, delete and hash apply to all keys, and extract matches nothing"),
    BR_OPT_END,
};

static int resource_check(void *config, const struct br_yaml *node, const char *path,
                          struct br_arena *arena, struct br_errs *errs)
{
    struct config *settings = config;
    int rc = br_rules_check(&settings->attributes, "attributes", node, path, arena, errs);
    return rc ? rc : br_rules_headers(&settings->attributes, arena, &settings->metadata);
}

static int resource_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    struct br_rule_problem problem = {0};
    br_arena_init(&state->arena, 0);
    br_arena_init(&state->scratch, SCRATCH_MAX);
    state->message.arena = &state->scratch;
    resource_cache_init(&state->cache);
    state->reads_metadata = config->metadata.count > 0;
    int rc = br_rules_compile(config->attributes.items, config->attributes.count, &state->arena,
                              &state->rules, &problem);
    if (!rc) {
        br_regex_bound(&state->rules.regex, &state->time);
        state->gave_up = br_node_metric(node, BR_COUNTER, "braid_resource_gave_up", NULL, NULL);
        return 0;
    }
    br_rules_release(&state->rules);
    br_arena_release(&state->arena);
    return br_err_set(err, rc, "%s", rc == BR_ENOMEM ? "out of memory" : problem.text);
}

/* --- Traffic --------------------------------------------------------------------------------- */

/* The state of processing one item. */
struct job {
    struct state *state;
    struct br_item *item;
    struct br_dictionary_view dictionary;
    bool indexed;
    const char *metadata; /* client metadata that the rules may read; NULL: no metadata */
    size_t metadata_len;
};

static struct br_entry resource_string_at(const void *arg, uint64_t index)
{
    return br_dictionary_string(arg, index > UINT32_MAX ? UINT32_MAX : (uint32_t)index);
}

/* Writes the Resource to a new buffer, with each string reference replaced by its text. */
static int resource_write_inline(struct job *job, const struct resource_input *in,
                                 struct br_buf **ret)
{
    int rc = job->indexed ? 0 : br_dictionary_index(job->item, &job->item->arena, &job->dictionary);
    if (rc)
        return rc;
    job->indexed = true;
    *ret = br_buf_new(job->item->host->pool, in->len);
    if (!*ret)
        return BR_ENOMEM;
    const struct br_inliner inliner = {ret, BR_BUF_MAX, resource_string_at, &job->dictionary};
    rc = br_attributes_inline(&inliner, in->data, in->len, BR_RESOURCE_ATTRIBUTES);
    if (rc)
        *ret = br_buf_unref(*ret);
    return rc;
}

/* Reads a Resource and applies the rules to it. */
static int resource_apply(struct job *job, const uint8_t *data, size_t len)
{
    struct br_attributes *attributes = &job->state->message;
    if (br_attributes_read(attributes, BR_RESOURCE_ATTRIBUTES, data, len) &&
        br_rules_apply(&job->state->rules, attributes, job->metadata))
        return 0;
    return attributes->too_many ? BR_EFULL : br_arena_why(&job->state->scratch);
}

/* Writes the changed Resource to a new buffer. If the result is to be cached, a copy of the
 * input precedes the Resource in the buffer. */
static struct br_buf *resource_write_result(struct job *job, const struct resource_input *in,
                                            bool keep, size_t out_len)
{
    size_t key_len = keep ? in->len + in->metadata_len : 0;
    struct br_buf *buf = br_buf_new(job->item->host->pool, key_len + out_len);
    if (!buf)
        return NULL;
    uint8_t *p = buf->data;
    if (keep)
        p = br_put_bytes(br_put_bytes(p, in->data, in->len), in->metadata, in->metadata_len);
    buf->len = (uint32_t)(br_attributes_write(&job->state->message, p) - buf->data);
    return buf;
}

static int resource_rewrite_new(struct job *job, struct br_part *part, struct resource_input *in)
{
    struct br_buf *inlined = NULL;
    bool refers = job->item->signal == BR_PROFILES &&
                  br_attributes_have_references(in->data, in->len, BR_RESOURCE_ATTRIBUTES);
    int rc = refers ? resource_write_inline(job, in, &inlined) : 0;
    const uint8_t *data = inlined ? inlined->data : in->data;
    size_t len = inlined ? inlined->len : in->len;
    if (!rc)
        rc = resource_apply(job, data, len);
    size_t out_len = rc ? 0 : br_attributes_size(&job->state->message);
    bool keep = !refers && !job->state->time.spent &&
                in->len + in->metadata_len + out_len <= CACHE_ENTRY_MAX;
    struct br_buf *buf =
        rc || out_len > BR_BUF_MAX ? NULL : resource_write_result(job, in, keep, out_len);
    if (buf) {
        const uint8_t *out = buf->data + buf->len - out_len;
        bool changed = out_len != len || (len && memcmp(out, data, len) != 0);
        if (changed)
            br_item_set_resource(job->item, part, buf, out, out_len);
        if (keep)
            resource_cache_put(&job->state->cache, in, br_buf_ref(buf), out_len, changed);
    } else if (!rc) {
        rc = out_len > BR_BUF_MAX ? BR_EFULL : BR_ENOMEM;
    }
    br_buf_unref(buf);
    br_buf_unref(inlined);
    br_arena_release(&job->state->scratch);
    return rc;
}

static int resource_rewrite(struct job *job, struct br_part *part)
{
    struct resource_input in = {.metadata = job->metadata, .metadata_len = job->metadata_len};
    in.data = br_part_resource(part, &in.len);
    const struct resource_cached *cached = resource_cache_find(&job->state->cache, &in);
    if (!cached)
        return resource_rewrite_new(job, part, &in);
    if (cached->changed)
        br_item_set_resource(job->item, part, cached->buf, resource_cached_output(cached),
                             cached->out_len);
    return 0;
}

static void resource_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    struct job j = {.state = state, .item = item};
    struct br_mem_scope scope;
    int rc = 0;
    br_regex_time_begin(&state->time, config->match_time, item);
    if (state->reads_metadata) {
        j.metadata = item->metadata;
        j.metadata_len = br_item_metadata_len(item);
    }
    br_item_edit_begin(&scope, item);
    for (uint32_t i = 0; i < item->n_parts && !rc; i++)
        if (item->parts[i].kind == BR_PART_RESOURCE)
            rc = resource_rewrite(&j, &item->parts[i]);
    rc = br_item_edit_end(&scope, rc);
    br_node_count_gave_up(node, state->gave_up, state->message.n_gave_up, &state->limit,
                          "matching a pattern took too long");
    state->message.n_gave_up = 0;
    if (rc == BR_EFULL)
        br_item_reject(
            item, BR_STATUS_INVALID_ARGUMENT,
            "resource: the Resource has too many attributes, or the result is too large");
    else if (rc)
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "resource: out of memory");
    else
        br_node_forward(node, item);
}

static void resource_destroy(struct br_node *node)
{
    struct state *state = node->state;
    resource_cache_clear(&state->cache);
    br_attributes_release(&state->message);
    br_rules_release(&state->rules);
    br_arena_release(&state->scratch);
    br_arena_release(&state->arena);
}

static const struct br_strings *resource_metadata_keys(const void *config)
{
    return &((const struct config *)config)->metadata;
}

extern const struct br_component br_resource_processor;
const struct br_component br_resource_processor = {
    .name = "resource",
    .kind = BR_PROCESSOR,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "changes the attributes of resources",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .metadata_keys = resource_metadata_keys,
    .check = resource_check,
    .create = resource_create,
    .consume = resource_consume,
    .destroy = resource_destroy,
};
