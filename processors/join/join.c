/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The join: every profile sample to the span it was taken in. One instance serves a traces and a
 * profiles pipeline; the workers' instances share one table.
 */
#include "processors/join/join.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "pipeline/shared.h"

#define HOUSEKEEPING_MS 1000

/* An item that waits: spans for their samples, samples for their spans. */
struct held {
    struct br_list link;
    struct br_item *item; /* ours: its sender has its answer */
    uint64_t came_ms, until_ms;
    uint8_t *memo; /* profiles: of join_samples */
};

static const struct br_option label_options[] = {
    BR_STRINGS(struct join_labels, span_id,
               "sample attributes that hold a span id; default: span_id, profile_id, "
               "process.context.label.span_id, process.context.label.profile_id"),
    BR_STRINGS(struct join_labels, trace_id,
               "sample attributes that hold a trace id; default: trace_id, "
               "process.context.label.trace_id"),
    BR_OPT_END,
};

static const char *const marks[] = {"never", "likely", NULL};

static const struct br_option options[] = {
    BR_DURATION(struct join_config, window, "2m", "how long spans are remembered"),
    BR_INT(struct join_config, max_bytes, 64 << 20, JOIN_BYTES_MIN, JOIN_BYTES_MAX,
           "size of the table; when it is full the oldest spans leave"),
    BR_STRINGS(struct join_config, sample_attributes,
               "attributes of the span or its resource that joined samples get beside span.name; "
               "span.kind and span.status too"),
    BR_INT(struct join_config, max_values, 1000, 1, 1000000,
           "distinct values of each added attribute; then _other"),
    BR_STRUCT(struct join_config, labels, label_options,
              "where samples without a link name their span"),
    BR_DURATION(struct join_config, hold, "0s",
                "how long spans of profiled services wait for their samples' figures"),
    BR_DURATION(struct join_config, profile_hold, "0s",
                "how long profiles wait for spans that have not come"),
    BR_INT(struct join_config, hold_max_bytes, 32 << 20, 0, 1099511627776.0,
           "most bytes that wait, shared out among the workers; beyond it nothing waits"),
    BR_ENUM(struct join_config, mark, "never", marks,
            "likely: spans of profiled services get pyroscope.profile.id at once"),
    BR_BOOL(struct join_config, infer, false,
            "joins samples that name no span to the one that was open on their thread"),
    BR_INT(struct join_config, top_functions, 0, 0, JOIN_TOP_SHOWN_MAX,
           "spans with samples say which functions took most of their time themselves; 0: none"),
    BR_STRUCT(struct join_config, span_metrics, join_span_metrics_options,
              "counters at the telemetry endpoint"),
    BR_PRESENT(struct join_config, keep, struct join_keep, join_keep_options,
               "which links survive; samples with another lose theirs and are folded by stack"),
    BR_OPT_END,
};

static int check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
                 struct br_errs *errs)
{
    static const char *span_ids[] = {"span_id", "profile_id", "process.context.label.span_id",
                                     "process.context.label.profile_id"};
    static const char *trace_ids[] = {"trace_id", "process.context.label.trace_id"};
    struct join_config *c = config;
    char at[256];
    const struct {
        const char *name;
        uint64_t value;
    } holds[] = {{"hold", c->hold}, {"profile_hold", c->profile_hold}};
    (void)arena;
    if (!c->labels.span_id.n)
        c->labels.span_id = (struct br_strings){span_ids, BR_COUNT(span_ids)};
    if (!c->labels.trace_id.n)
        c->labels.trace_id = (struct br_strings){trace_ids, BR_COUNT(trace_ids)};
    if (c->sample_attributes.n > JOIN_ATTRIBUTES_MAX) {
        (void)snprintf(at, sizeof at, "%s::sample_attributes", path);
        return br_errs_add(errs, br_yaml_get(node, "sample_attributes"), at,
                           "at most %d attributes, got %zu", JOIN_ATTRIBUTES_MAX,
                           c->sample_attributes.n);
    }
    if (c->window < 1000000000) {
        (void)snprintf(at, sizeof at, "%s::window", path);
        return br_errs_add(errs, br_yaml_get(node, "window"), at, "must be at least 1s");
    }
    for (size_t i = 0; i < BR_COUNT(holds); i++) {
        if (holds[i].value <= c->window)
            continue;
        (void)snprintf(at, sizeof at, "%s::%s", path, holds[i].name);
        return br_errs_add(errs, br_yaml_get(node, holds[i].name), at,
                           "must not be longer than the window");
    }
    return 0;
}

/* --- Counting -------------------------------------------------------------------------------- */

static double *type_metric(struct join *j, double **at, uint16_t type, const char *what)
{
    if (!*at) {
        char name[64];
        (void)snprintf(name, sizeof name, "braid_join_%s", what);
        *at = br_node_metric(j->node, BR_COUNTER, name, "profile_type",
                             join_table_type_name(j->table, type));
    }
    return *at;
}

static double *counter(struct join *j, uint16_t type, enum join_outcome outcome)
{
    static const char *const names[JOIN_COUNTS] = {"samples_joined",       "samples_joined_late",
                                                   "samples_unknown_span", "samples_too_late",
                                                   "samples_unlinked",     "samples_inferred"};
    return type_metric(j, &j->counts[type][outcome], type, names[outcome]);
}

void join_count_folded(struct join *j, uint16_t type, double n, double value)
{
    *type_metric(j, &j->folded[type], type, "samples_folded") += n;
    *type_metric(j, &j->folded_values[type], type, "folded_values") += value;
}

void join_count(struct join *j, uint16_t type, enum join_outcome outcome, double n)
{
    *counter(j, type, outcome) += n;
}

void join_count_tally(struct join *j, const struct join_tally *tally)
{
    if (!tally->any)
        return;
    for (uint16_t t = 0; t < JOIN_TYPES; t++) {
        if (tally->late[t])
            *counter(j, t, JOIN_COUNT_LATE) += (double)tally->late[t];
        if (tally->unknown[t])
            *counter(j, t, JOIN_COUNT_UNKNOWN) += (double)tally->unknown[t];
    }
    *j->evicted += (double)tally->evicted;
}

static void note_table(struct join *j)
{
    struct join_stats stats;
    join_table_stats(j->table, br_host_mono_ms(j->node->host), &stats);
    *j->table_bytes = (double)stats.bytes;
    *j->table_spans = (double)stats.spans;
    *j->table_pending = (double)stats.pending;
    *j->table_age = (double)stats.oldest_ms / 1000.0;
}

static void on_housekeeping(struct br_timer *t)
{
    struct join *j = br_container_of(t, struct join, housekeeping);
    struct join_tally tally = {0};
    join_table_expire(j->table, br_host_mono_ms(j->node->host), &tally);
    join_count_tally(j, &tally);
    note_table(j);
    (void)br_host_timer(j->node->host, &j->housekeeping, HOUSEKEEPING_MS, on_housekeeping);
}

/* --- Holding --------------------------------------------------------------------------------- */

static void release(struct join *j, enum br_signal signal, struct held *h)
{
    struct br_item *item = h->item;
    br_list_remove(&h->link);
    j->held_bytes -= item->size;
    if (signal == BR_TRACES)
        join_mark_spans(j, item, true);
    else
        (void)join_samples(j, item, JOIN_PASS_LAST, h->memo, h->came_ms);
    br_free(h->memo);
    br_free(h);
    if (item->waits)
        br_node_forward(j->node, item); /* its sender keeps it */
    else
        br_keeper_send(j->keepers[signal], item);
}

/* Releases what is due at `ms`. Profiles first: what they bring, the spans of that moment get. */
static void release_until(struct join *j, uint64_t ms)
{
    for (int s = BR_SIGNALS - 1; s >= 0; s--) {
        while (!br_list_empty(&j->held[s])) {
            struct held *h = br_container_of(j->held[s].next, struct held, link);
            if (h->until_ms > ms)
                break;
            release(j, (enum br_signal)s, h);
        }
    }
}

static void on_release(struct br_timer *t);

/* Without memory for the timer nothing waits. */
static void rearm(struct join *j)
{
    uint64_t due = UINT64_MAX, now = br_host_mono_ms(j->node->host);
    for (int s = 0; s < BR_SIGNALS; s++) {
        if (br_list_empty(&j->held[s]))
            continue;
        const struct held *h = br_container_of(j->held[s].next, struct held, link);
        due = h->until_ms < due ? h->until_ms : due;
    }
    br_host_timer_stop(j->node->host, &j->release);
    if (due != UINT64_MAX &&
        !br_host_timer(j->node->host, &j->release, due > now ? due - now : 0, on_release))
        release_until(j, UINT64_MAX);
}

static void on_release(struct br_timer *t)
{
    struct join *j = br_container_of(t, struct join, release);
    release_until(j, br_host_mono_ms(j->node->host));
    rearm(j);
}

/* Whether the item may wait. What waits, and what was released and is not delivered yet, is ours to
 * answer for; past the limit items pass at once and bring back what becomes of them. */
static bool may_hold(struct join *j, const struct br_item *item)
{
    size_t ours = j->held_bytes,
           most = (size_t)j->config->hold_max_bytes / j->node->host->n_workers;
    for (int s = 0; s < BR_SIGNALS; s++)
        ours += br_keeper_bytes(j->keepers[s]);
    if (!j->node->draining && ours + item->size <= most)
        return true;
    *j->hold_full += item->n_items;
    return false;
}

/* The bytes of the pairs, without the empty name that ends them. */
static size_t metadata_len(const char *metadata)
{
    const char *p = metadata;
    while (*p) {
        p += strlen(p) + 1;
        p += strlen(p) + 1;
    }
    return (size_t)(p - metadata);
}

/* An item of our own with the data of `item`, which is left empty; NULL without memory. */
static struct br_item *take_data(struct br_item *item)
{
    struct br_item *own = br_item_new(item->host, item->signal);
    if (own && item->metadata)
        own->metadata = br_arena_strndup(&own->arena, item->metadata, metadata_len(item->metadata));
    if (!own || (item->metadata && !own->metadata)) {
        br_item_free(own);
        return NULL;
    }
    own->received_ms = item->received_ms;
    own->received_items = item->received_items;
    (void)br_item_absorb(own, item); /* into an empty item: cannot fail */
    return own;
}

/* Takes the item's data (and `memo`) over, to send it on in `delay_ms`; or the item itself, where
 * somebody waits for its delivery. False without memory. */
static bool hold(struct join *j, struct br_item *item, uint64_t delay_ms, uint8_t *memo)
{
    enum br_signal signal = item->signal;
    struct held *h = br_calloc(1, sizeof *h);
    struct br_item *own = h && !item->waits ? take_data(item) : item;
    if (!h || !own) {
        br_free(h);
        return false;
    }
    if (own != item)
        br_item_done(item);
    h->item = own;
    h->memo = memo;
    h->came_ms = br_host_mono_ms(j->node->host);
    h->until_ms = h->came_ms + delay_ms;
    br_item_hold(own, BR_HOLDER_HOLDS);
    j->held_bytes += own->size;
    bool first = br_list_empty(&j->held[signal]);
    br_list_append(&j->held[signal], &h->link);
    if (first)
        rearm(j);
    return true;
}

/* --- The component --------------------------------------------------------------------------- */

static void consume_traces(struct join *j, struct br_item *item)
{
    uint64_t hold_ms = j->config->hold / 1000000;
    struct join_entered e = join_enter_spans(j, item);
    bool waits = hold_ms && (e.profiled || e.sampled);
    if (waits && may_hold(j, item) && hold(j, item, hold_ms, NULL))
        return;
    if (waits || e.sampled || (e.profiled && j->config->mark == JOIN_MARK_LIKELY))
        join_mark_spans(j, item, waits || e.sampled);
    br_node_forward(j->node, item);
}

static void consume_profiles(struct join *j, struct br_item *item)
{
    uint64_t now_ms = br_host_mono_ms(j->node->host), hold_ms = j->config->profile_hold / 1000000;
    uint8_t *memo = hold_ms && may_hold(j, item) ? br_calloc((size_t)item->n_items + 1, 1) : NULL;
    if (!memo) {
        (void)join_samples(j, item, JOIN_PASS_ONLY, NULL, now_ms);
        br_node_forward(j->node, item);
        return;
    }
    if (join_samples(j, item, JOIN_PASS_FIRST, memo, now_ms) && hold(j, item, hold_ms, memo))
        return;
    (void)join_samples(j, item, JOIN_PASS_LAST, memo, now_ms);
    br_free(memo);
    br_node_forward(j->node, item);
}

static void consume(struct br_node *node, struct br_item *item)
{
    struct join *j = node->state;
    if (item->signal == BR_TRACES)
        consume_traces(j, item);
    else
        consume_profiles(j, item);
}

static void output(struct br_consumer *self, struct br_item *item)
{
    struct join *j = br_container_of(self - item->signal, struct join, output[0]);
    br_node_forward(j->node, item);
}

static void on_kept_end(void *arg)
{
    struct join *j = arg;
    bool idle = j->node->draining;
    for (int s = 0; s < BR_SIGNALS; s++)
        idle = idle && br_list_empty(&j->held[s]) && br_keeper_idle(j->keepers[s]);
    if (idle)
        br_node_drained(j->node);
}

/* So many that among the functions of one request those on top are right. */
static unsigned top_counters(unsigned shown)
{
    return shown * 4 < JOIN_TOP_MAX ? shown * 4 : JOIN_TOP_MAX;
}

static void *make_table(const void *arg)
{
    const struct join *j = arg;
    const struct join_config *c = j->config;
    return join_table_new((size_t)c->max_bytes, c->window / 1000000,
                          top_counters((unsigned)c->top_functions), c->infer,
                          j->node->host->n_workers > 1);
}

static void free_table(void *table)
{
    join_table_free(table);
}

static void make_metrics(struct join *j)
{
    struct br_node *n = j->node;
    j->other_values = br_node_metric(n, BR_COUNTER, "braid_join_other_values", NULL, NULL);
    j->evicted = br_node_metric(n, BR_COUNTER, "braid_join_spans_evicted", NULL, NULL);
    j->marked = br_node_metric(n, BR_COUNTER, "braid_join_spans_marked", NULL, NULL);
    j->spans_entered = br_node_metric(n, BR_COUNTER, "braid_join_spans_entered", NULL, NULL);
    j->hold_full = br_node_metric(n, BR_COUNTER, "braid_join_hold_full_items", NULL, NULL);
    j->families_cut = br_node_metric(n, BR_COUNTER, "braid_join_families_cut", NULL, NULL);
    j->steps_cut = br_node_metric(n, BR_COUNTER, "braid_join_steps_cut", NULL, NULL);
    j->table_bytes = br_node_metric(n, BR_GAUGE, "braid_join_table_bytes", NULL, NULL);
    j->table_spans = br_node_metric(n, BR_GAUGE, "braid_join_table_spans", NULL, NULL);
    j->table_pending = br_node_metric(n, BR_GAUGE, "braid_join_table_pending_spans", NULL, NULL);
    j->table_age = br_node_metric(n, BR_GAUGE, "braid_join_table_oldest_seconds", NULL, NULL);
}

static void make_keys(struct join *j)
{
    const struct br_strings *more = &j->config->sample_attributes;
    j->keys[j->n_keys++] = "span.name";
    j->keys[JOIN_HOW_KEY] = "profile.join";
    for (size_t i = 0; i < more->n; i++) {
        bool known = false;
        for (unsigned k = 0; k < j->n_keys; k++)
            known = known || strcmp(j->keys[k], more->v[i]) == 0;
        if (!known)
            j->keys[j->n_keys++] = more->v[i];
    }
    for (unsigned k = 1; k < j->n_keys; k++) {
        j->key_lens[k] = strlen(j->keys[k]);
        if (strcmp(j->keys[k], "span.kind") == 0)
            j->kind_key = k;
        else if (strcmp(j->keys[k], "span.status") == 0)
            j->status_key = k;
        else if (j->key_lens[k] < 64)
            j->wanted_lens |= 1ull << j->key_lens[k];
    }
}

static bool make_parts(struct join *j)
{
    struct br_node *node = j->node;
    char name[600];
    (void)snprintf(name, sizeof name, "join table of %s", node->id);
    j->table = br_shared_get(node->host, name, make_table, j);
    for (int s = 0; s < BR_SIGNALS; s++) {
        br_list_init(&j->held[s]);
        j->output[s].consume = output;
        j->keepers[s] = br_keeper_new(node, &j->output[s], false, on_kept_end, j);
    }
    return j->table && j->keepers[0] && j->keepers[1] &&
           join_policy_init(&j->policy, j->config->keep) == 0 &&
           join_span_metrics_init(&j->span_metrics, &j->config->span_metrics, node, j->table) == 0;
}

static int create(struct br_node *node, struct br_err *err)
{
    struct join *j = node->state;
    j->node = node;
    j->config = node->config;
    make_metrics(j);
    make_keys(j);
    if (make_parts(j))
        return 0;
    return br_err_set(err, BR_ENOMEM, "no memory for a table of %lld bytes",
                      (long long)j->config->max_bytes);
}

static int start(struct br_node *node, struct br_err *err)
{
    struct join *j = node->state;
    (void)err;
    join_policy_start(&j->policy, node);
    if (node->host->worker == 0)
        (void)br_host_timer(node->host, &j->housekeeping, HOUSEKEEPING_MS, on_housekeeping);
    return 0;
}

static void drain(struct br_node *node)
{
    struct join *j = node->state;
    release_until(j, UINT64_MAX);
    br_host_timer_stop(node->host, &j->release);
    on_kept_end(j);
}

static void destroy(struct br_node *node)
{
    struct join *j = node->state;
    br_host_timer_stop(node->host, &j->release);
    br_host_timer_stop(node->host, &j->housekeeping);
    for (int s = 0; s < BR_SIGNALS; s++) {
        struct br_list *l;
        while (j->held[s].next && (l = br_list_shift(&j->held[s]))) {
            struct held *h = br_container_of(l, struct held, link);
            if (!h->item->waits)
                br_keep_end(node, h->item);
            br_item_retry(h->item, BR_STATUS_UNAVAILABLE, 0, "shutting down");
            br_free(h->memo);
            br_free(h);
        }
        br_keeper_free(j->keepers[s]);
    }
    join_span_metrics_release(&j->span_metrics);
    join_policy_release(&j->policy);
    br_shared_put(node->host, j->table, free_table);
}

extern const struct br_component br_join_processor;
const struct br_component br_join_processor = {
    .name = "join",
    .kind = BR_PROCESSOR,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "joins every profile sample to the span it was taken in",
    .options = options,
    .config_size = sizeof(struct join_config),
    .state_size = sizeof(struct join),
    .shared = true,
    .wants_spans = true,
    .check = check,
    .create = create,
    .start = start,
    .consume = consume,
    .drain = drain,
    .destroy = destroy,
};
