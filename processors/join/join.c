/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The join processor links every profile sample to the span in which it was taken. One instance
 * serves a traces pipeline and a profiles pipeline; the instances of all workers share one table.
 */
#include "processors/join/join.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "core/shared.h"

#define HOUSEKEEPING_MS 1000

/* An item that is held: a traces item waits for samples, a profiles item waits for spans. */
struct held {
    struct br_list link;
    /* the held item, owned by the join; its sender has already been answered unless item->sender
     * is BR_SENDER_WAITS */
    struct br_item *item;
    uint64_t came_ms, until_ms;
    uint8_t *memo; /* results of join_samples, one byte per sample; used for profiles only */
};

static const struct br_option label_options[] = {
    BR_STRINGS(struct join_labels, span_id,
               "names of sample attributes that contain a span id; default: span_id, profile_id, "
               "process.context.label.span_id, process.context.label.profile_id"),
    BR_STRINGS(struct join_labels, trace_id,
               "names of sample attributes that contain a trace id; default: trace_id, "
               "process.context.label.trace_id"),
    BR_OPT_END,
};

static const char *const root_links[] = {"root", "span", NULL};

static const struct br_option local_root_options[] = {
    BR_ENUM(struct join_local_root, link, "root", root_links,
            "root: a sample keeps the link to its local root; span: a sample with timestamps gets "
            "the link and the name of the deepest span that was open"),
    BR_INT(struct join_local_root, max_spans, 256, 1, JOIN_FAMILY_MAX,
           "limit on the number of spans of a trace and service that are examined to find the deepest "
           "one; the newest are examined first"),
    BR_OPT_END,
};

static const char *const marks[] = {"never", "likely", "exact", NULL};

static const struct br_option options[] = {
    BR_DURATION(struct join_config, window, "2m",
                "how long a span stays in the table, where samples find it"),
    BR_INT(struct join_config, max_bytes, 64 << 20, JOIN_BYTES_MIN, JOIN_BYTES_MAX,
           "size of the table in bytes; when it is full, the oldest spans are evicted"),
    BR_STRINGS(struct join_config, sample_attributes,
               "keys of attributes that are copied from the span or its resource to joined "
               "samples, in addition to span.name; may include span.kind and span.status"),
    BR_INT(
        struct join_config, max_values, 1000, 1, 1000000,
        "largest number of distinct values of each added attribute; further values become _other"),
    BR_STRUCT(struct join_config, labels, label_options,
              "names of the attributes that contain the ids of samples without a link"),
    BR_STRUCT(struct join_config, local_root, local_root_options,
              "how to treat samples that name their local root, which is the first span of their "
              "service in a trace"),
    BR_DURATION(struct join_config, hold, "0s",
                "how long spans of profiled services are held until their samples arrive"),
    BR_DURATION(struct join_config, profile_hold, "0s",
                "how long profiles are held until the spans of their samples arrive"),
    BR_INT(struct join_config, hold_max_bytes, 32 << 20, 0, 1099511627776.0,
           "largest number of bytes of held requests, divided among the workers; further requests "
           "are not held"),
    BR_ENUM(struct join_config, mark, "never", marks,
            "likely: spans of profiled services get pyroscope.profile.id at once; exact: held "
            "spans have this attribute only if they have samples, even if an SDK wrote it"),
    BR_BOOL(struct join_config, infer, false,
            "join samples without a span id to the span that was open on their thread"),
    BR_INT(struct join_config, top_functions, 0, 0, JOIN_TOP_SHOWN_MAX,
           "number of functions in the attribute profile.top_functions of spans with samples; 0: "
           "the attribute is not added"),
    BR_STRUCT(struct join_config, span_metrics, join_span_metrics_options,
              "metrics of CPU time and allocated memory by span name"),
    BR_PRESENT(struct join_config, keep, struct join_keep, join_keep_options,
               "conditions for keeping links; samples lose all other links, and are then merged if "
               "their stacks are equal"),
    BR_OPT_END,
};

static int join_check(void *config, const struct br_yaml *node, const char *path,
                      struct br_arena *arena, struct br_errs *errs)
{
    static const char *span_ids[] = {"span_id", "profile_id", "process.context.label.span_id",
                                     "process.context.label.profile_id"};
    static const char *trace_ids[] = {"trace_id", "process.context.label.trace_id"};
    struct join_config *join_config = config;
    const struct {
        const char *name;
        uint64_t value;
    } holds[] = {{"hold", join_config->hold}, {"profile_hold", join_config->profile_hold}};
    (void)arena;
    if (!join_config->labels.span_id.count)
        join_config->labels.span_id = (struct br_strings){span_ids, BR_COUNT(span_ids)};
    if (!join_config->labels.trace_id.count)
        join_config->labels.trace_id = (struct br_strings){trace_ids, BR_COUNT(trace_ids)};
    if (join_config->sample_attributes.count > JOIN_ATTRIBUTES_MAX)
        return br_errs_add_key(errs, node, path, "sample_attributes",
                               "at most %d attributes, got %zu", JOIN_ATTRIBUTES_MAX,
                               join_config->sample_attributes.count);
    if (join_config->window < 1000000000)
        return br_errs_add_key(errs, node, path, "window", "must be at least 1s");
    if (join_config->mark == JOIN_MARK_EXACT && !join_config->hold)
        return br_errs_add_key(errs, node, path, "mark", "exact requires `hold`");
    for (size_t i = 0; i < BR_COUNT(holds); i++)
        if (holds[i].value > join_config->window)
            return br_errs_add_key(errs, node, path, holds[i].name,
                                   "must not be longer than the window");
    return 0;
}

/* --- Counting --------------------------------------------------------------------------- */

static double *join_type_metric(struct join *join, double **at, uint16_t type, const char *what)
{
    if (!*at) {
        char name[64];
        (void)snprintf(name, sizeof name, "braid_join_%s", what);
        *at = br_node_metric(join->node, BR_COUNTER, name, "profile_type",
                             join_table_type_name(join->table, type));
    }
    return *at;
}

static double *join_counter(struct join *join, uint16_t type, enum join_outcome outcome)
{
    static const char *const names[JOIN_COUNTS] = {
        [JOIN_COUNT_JOINED] = "samples_joined",        [JOIN_COUNT_LATE] = "samples_joined_late",
        [JOIN_COUNT_UNKNOWN] = "samples_unknown_span", [JOIN_COUNT_TOO_LATE] = "samples_too_late",
        [JOIN_COUNT_UNLINKED] = "samples_unlinked",    [JOIN_COUNT_INFERRED] = "samples_inferred",
        [JOIN_COUNT_AMBIGUOUS] = "samples_ambiguous",
    };
    return join_type_metric(join, &join->counts[type][outcome], type, names[outcome]);
}

void join_count_folded(struct join *join, uint16_t type, double count, double value)
{
    *join_type_metric(join, &join->folded[type], type, "samples_folded") += count;
    *join_type_metric(join, &join->folded_values[type], type, "folded_values") += value;
}

void join_count(struct join *join, uint16_t type, enum join_outcome outcome, double count)
{
    if (outcome == JOIN_COUNT_JOINED || outcome == JOIN_COUNT_LATE ||
        outcome == JOIN_COUNT_INFERRED)
        join_progress_note(&join_table_progress(join->table)->joined);
    *join_counter(join, type, outcome) += count;
}

void join_count_tally(struct join *join, const struct join_tally *tally)
{
    if (!tally->any)
        return;
    for (uint16_t t = 0; t < JOIN_TYPES; t++) {
        if (tally->late[t])
            join_progress_note(&join_table_progress(join->table)->joined);
        if (tally->late[t])
            *join_counter(join, t, JOIN_COUNT_LATE) += (double)tally->late[t];
        if (tally->unknown[t])
            *join_counter(join, t, JOIN_COUNT_UNKNOWN) += (double)tally->unknown[t];
    }
    *join->evicted += (double)tally->evicted;
}

static void join_note_table(struct join *join)
{
    struct join_stats stats;
    join_table_stats(join->table, br_host_mono_ms(join->node->host), &stats);
    *join->table_bytes = (double)stats.bytes;
    *join->table_spans = (double)stats.spans;
    *join->table_pending = (double)stats.pending;
    *join->table_age = (double)stats.oldest_ms / 1000.0;
}

static const char *join_reason(const struct join_progress *progress)
{
    if (!progress->named && progress->ambiguous)
        return "samples name several spans at once: the profiler labels threads that serve several "
               "requests; use a bridge that labels each task";
    if (!progress->named && !progress->inferable)
        return "no sample names a span by its link or by a label of `labels`, or has the "
               "attributes "
               "that `infer` requires";
    if (!progress->common)
        return "no service.name has both spans and samples";
    if (!progress->named)
        return "no sample matches a span by thread and time: clocks may differ, or thread ids may "
               "have different origins";
    return "the spans that samples name do not arrive: they may be sent to another process, arrive "
           "more than `window` earlier or later, or not be sampled";
}

/* Logs the most likely reason if no sample was joined within one window after spans and samples had
 * arrived. Logs at most once. */
static void join_log_reason(struct join *join)
{
    const struct join_progress *progress = join_table_progress(join->table);
    uint64_t now_ms = br_host_mono_ms(join->node->host), window_ms = join->config->window / 1000000;
    if (join->reason_logged || !progress->spans || !progress->samples)
        return;
    join->both_ms = join->both_ms ? join->both_ms : now_ms;
    if (now_ms - join->both_ms < window_ms)
        return;
    join->reason_logged = true;
    if (progress->joined)
        return;
    br_warn(&join->node->log,
            "spans and samples have arrived for a window, and no sample was joined: %s",
            join_reason(progress));
}

static void join_on_housekeeping(struct br_timer *timer)
{
    struct join *join = br_container_of(timer, struct join, housekeeping);
    struct join_tally tally = {0};
    bool more = join_table_expire(join->table, br_host_mono_ms(join->node->host), &tally);
    join_count_tally(join, &tally);
    join_note_table(join);
    join_log_reason(join);
    (void)br_host_timer(join->node->host, &join->housekeeping, more ? 1 : HOUSEKEEPING_MS,
                        join_on_housekeeping);
}

/* --- Holding ---------------------------------------------------------------------------- */

static void join_release(struct join *join, enum br_signal signal, struct held *held)
{
    struct br_item *item = held->item;
    br_list_remove(&held->link);
    join->held_bytes -= item->size;
    if (signal == BR_TRACES)
        join_mark_spans(join, item, true, held->until_ms <= br_host_mono_ms(join->node->host));
    else
        (void)join_samples(join, item, JOIN_PASS_LAST, held->memo, held->came_ms);
    br_free(held->memo);
    br_free(held);
    br_delay_forward(&join->delay, item);
}

/* Releases the items whose hold time ends at `ms` or earlier. Profiles are released first, so that
 * spans with the same time include the totals of the profiles' samples. */
static void join_release_until(struct join *join, uint64_t ms)
{
    for (int s = BR_SIGNALS - 1; s >= 0; s--) {
        while (!br_list_empty(&join->held[s])) {
            struct held *held = br_container_of(join->held[s].next, struct held, link);
            if (held->until_ms > ms)
                break;
            join_release(join, (enum br_signal)s, held);
        }
    }
}

static void join_on_release(struct br_timer *t);

/* Starts the release timer for the oldest item. Releases all items if there is not enough memory
 * for the timer. */
static void join_rearm(struct join *join)
{
    uint64_t due = UINT64_MAX, now = br_host_mono_ms(join->node->host);
    for (int s = 0; s < BR_SIGNALS; s++) {
        if (br_list_empty(&join->held[s]))
            continue;
        const struct held *held = br_container_of(join->held[s].next, struct held, link);
        due = held->until_ms < due ? held->until_ms : due;
    }
    br_host_timer_stop(join->node->host, &join->release);
    if (due != UINT64_MAX && !br_host_timer(join->node->host, &join->release,
                                            due > now ? due - now : 0, join_on_release))
        join_release_until(join, UINT64_MAX);
}

static void join_on_release(struct br_timer *timer)
{
    struct join *join = br_container_of(timer, struct join, release);
    join_release_until(join, br_host_mono_ms(join->node->host));
    join_rearm(join);
}

/* Returns true if the item may be held. The limit covers held items, and released items that have
 * not been delivered yet. An item that would exceed the limit is forwarded at once, and its sender
 * gets the outcome of the delivery. */
static bool join_may_hold(struct join *join, const struct br_item *item)
{
    size_t ours = join->held_bytes + br_delay_bytes(&join->delay),
           most = br_host_share(join->node->host, (size_t)join->config->hold_max_bytes);
    if (!join->node->draining && ours + item->size <= most)
        return true;
    *join->hold_full += item->n_records;
    return false;
}

/* Holds the item's data, and `memo`, for `delay_ms`. If a sender waits for the delivery, holds
 * the item itself instead of its data. Returns false if there is not enough memory. */
static bool join_hold(struct join *join, struct br_item *item, uint64_t delay_ms, uint8_t *memo)
{
    enum br_signal signal = item->signal;
    struct held *held = br_calloc(1, sizeof *held);
    struct br_item *own = held ? br_delay_take(item) : NULL;
    if (!own) {
        br_free(held);
        return false;
    }
    held->item = own;
    held->memo = memo;
    held->came_ms = br_host_mono_ms(join->node->host);
    held->until_ms = held->came_ms + delay_ms;
    join->held_bytes += own->size;
    bool first = br_list_empty(&join->held[signal]);
    br_list_append(&join->held[signal], &held->link);
    if (first)
        join_rearm(join);
    return true;
}

/* --- The component ---------------------------------------------------------------------- */

static void join_consume_traces(struct join *join, struct br_item *item)
{
    uint64_t hold_ms = join->config->hold / 1000000;
    struct join_entered entered = join_enter_spans(join, item);
    bool waits = hold_ms && (entered.waits || entered.sampled);
    if (waits && join_may_hold(join, item) && join_hold(join, item, hold_ms, NULL))
        return;
    /* Samples that name the root of a local tree may have been taken in spans below the root. */
    bool deferred =
        entered.profiled && join_table_any_deferred(join->table, br_host_mono_ms(join->node->host));
    bool totals = waits || entered.sampled || deferred;
    if (totals || (entered.profiled && join->config->mark == JOIN_MARK_LIKELY))
        join_mark_spans(join, item, totals, false);
    br_node_forward(join->node, item);
}

static void join_consume_profiles(struct join *join, struct br_item *item)
{
    uint64_t now_ms = br_host_mono_ms(join->node->host),
             hold_ms = join->config->profile_hold / 1000000;
    uint8_t *memo =
        hold_ms && join_may_hold(join, item) ? br_calloc((size_t)item->n_records + 1, 1) : NULL;
    if (!memo) {
        (void)join_samples(join, item, JOIN_PASS_ONLY, NULL, now_ms);
        br_node_forward(join->node, item);
        return;
    }
    if (join_samples(join, item, JOIN_PASS_FIRST, memo, now_ms) &&
        join_hold(join, item, hold_ms, memo))
        return;
    (void)join_samples(join, item, JOIN_PASS_LAST, memo, now_ms);
    br_free(memo);
    br_node_forward(join->node, item);
}

static void join_consume(struct br_node *node, struct br_item *item)
{
    struct join *join = node->state;
    if (item->signal == BR_TRACES)
        join_consume_traces(join, item);
    else
        join_consume_profiles(join, item);
}

static void join_on_hold_idle(void *arg)
{
    struct join *join = arg;
    bool idle = join->node->draining && br_delay_is_idle(&join->delay);
    for (int s = 0; s < BR_SIGNALS; s++)
        idle = idle && br_list_empty(&join->held[s]);
    if (idle)
        br_node_drained(join->node);
}

/* Returns the number of function counters per span if `shown` functions are reported. There are
 * more counters than reported functions, so that the values of the largest functions of one request
 * are exact. */
static unsigned join_top_counters(unsigned shown)
{
    return shown * 4 < JOIN_TOP_MAX ? shown * 4 : JOIN_TOP_MAX;
}

static void *join_make_table(const void *arg)
{
    const struct join *join = arg;
    const struct join_config *config = join->config;
    return join_table_new((size_t)config->max_bytes, config->window / 1000000,
                          join_top_counters((unsigned)config->top_functions), config->infer,
                          join->node->host->n_workers > 1);
}

static void join_free_table(void *table)
{
    join_table_free(table);
}

static void join_make_metrics(struct join *join)
{
    struct br_node *node = join->node;
    join->other_values = br_node_metric(node, BR_COUNTER, "braid_join_other_values", NULL, NULL);
    join->evicted = br_node_metric(node, BR_COUNTER, "braid_join_spans_evicted", NULL, NULL);
    join->marked = br_node_metric(node, BR_COUNTER, "braid_join_spans_marked", NULL, NULL);
    join->spans_entered = br_node_metric(node, BR_COUNTER, "braid_join_spans_entered", NULL, NULL);
    join->hold_full = br_node_metric(node, BR_COUNTER, "braid_join_hold_full_items", NULL, NULL);
    join->trace_spans_cut =
        br_node_metric(node, BR_COUNTER, "braid_join_trace_spans_cut", NULL, NULL);
    join->steps_cut = br_node_metric(node, BR_COUNTER, "braid_join_steps_cut", NULL, NULL);
    join->splits_cut = br_node_metric(node, BR_COUNTER, "braid_join_splits_cut", NULL, NULL);
    join->services_cut = br_node_metric(node, BR_COUNTER, "braid_join_services_cut", NULL, NULL);
    join->table_bytes = br_node_metric(node, BR_GAUGE, "braid_join_table_bytes", NULL, NULL);
    join->table_spans = br_node_metric(node, BR_GAUGE, "braid_join_table_spans", NULL, NULL);
    join->table_pending =
        br_node_metric(node, BR_GAUGE, "braid_join_table_pending_spans", NULL, NULL);
    join->table_age = br_node_metric(node, BR_GAUGE, "braid_join_table_oldest_seconds", NULL, NULL);
}

static void join_make_keys(struct join *join)
{
    const struct br_strings *more = &join->config->sample_attributes;
    join->keys[join->n_keys++] = "span.name";
    join->keys[JOIN_HOW_KEY] = "profile.join";
    for (size_t i = 0; i < more->count; i++) {
        bool known = false;
        for (unsigned k = 0; k < join->n_keys; k++)
            known = known || strcmp(join->keys[k], more->items[i]) == 0;
        if (!known)
            join->keys[join->n_keys++] = more->items[i];
    }
    for (unsigned k = 1; k < join->n_keys; k++) {
        join->key_lens[k] = strlen(join->keys[k]);
        if (strcmp(join->keys[k], "span.kind") == 0)
            join->kind_key = k;
        else if (strcmp(join->keys[k], "span.status") == 0)
            join->status_key = k;
        else if (join->key_lens[k] < 64)
            join->wanted_lens |= 1ull << join->key_lens[k];
    }
}

static bool join_make_parts(struct join *join)
{
    struct br_node *node = join->node;
    char name[600];
    /* The number distinguishes the tables before and after a reload: the old node, which is being
     * drained, has the same id as the new one. */
    (void)snprintf(name, sizeof name, "join table of %.500s (%u)", node->id,
                   node->host->generation);
    join->table = br_shared_get(node->host, name, join_make_table, join);
    for (int s = 0; s < BR_SIGNALS; s++)
        br_list_init(&join->held[s]);
    br_delay_init(&join->delay, node, join_on_hold_idle, join);
    return join->table && join_policy_init(&join->policy, join->config->keep) == 0 &&
           join_span_metrics_init(&join->span_metrics, &join->config->span_metrics, node,
                                  join->table) == 0;
}

static int join_create(struct br_node *node, struct br_err *err)
{
    struct join *join = node->state;
    join->node = node;
    join->config = node->config;
    join_make_metrics(join);
    join_make_keys(join);
    if (join_make_parts(join)) {
        for (int signal = 0; signal < BR_SIGNALS; signal++)
            if (node->in_pipeline[signal])
                join_table_progress(join->table)->signals |= 1u << signal;
        return 0;
    }
    return br_err_set(err, BR_ENOMEM, "no memory for a table of %lld bytes",
                      (long long)join->config->max_bytes);
}

/* Warns if the join is only in traces pipelines or only in profiles pipelines, because then nothing
 * can be joined. */
static void join_check_pipelines(struct join *join)
{
    struct join_progress *progress = join_table_progress(join->table);
    if (progress->signals == 3 || progress->warned)
        return;
    progress->warned = true;
    bool traces = progress->signals & 1u << BR_TRACES;
    br_warn(
        &join->node->log,
        "is not in any %s pipeline, so nothing will be joined; list the same id in both pipelines",
        br_signal_name(traces ? BR_PROFILES : BR_TRACES));
}

static int join_start(struct br_node *node, struct br_err *err)
{
    struct join *join = node->state;
    (void)err;
    join_policy_start(&join->policy, node);
    join_check_pipelines(join);
    if (node->host->worker == 0)
        (void)br_host_timer(node->host, &join->housekeeping, HOUSEKEEPING_MS, join_on_housekeeping);
    return 0;
}

static void join_drain(struct br_node *node)
{
    struct join *join = node->state;
    join_release_until(join, UINT64_MAX);
    br_host_timer_stop(node->host, &join->release);
    join_on_hold_idle(join);
}

static void join_destroy(struct br_node *node)
{
    struct join *join = node->state;
    br_host_timer_stop(node->host, &join->release);
    br_host_timer_stop(node->host, &join->housekeeping);
    for (int s = 0; s < BR_SIGNALS; s++) {
        struct br_list *list;
        while (join->held[s].next && (list = br_list_shift(&join->held[s]))) {
            struct held *held = br_container_of(list, struct held, link);
            br_delay_abandon(&join->delay, held->item);
            br_free(held->memo);
            br_free(held);
        }
    }
    br_delay_release(&join->delay);
    join_span_metrics_release(&join->span_metrics);
    join_policy_release(&join->policy);
    if (join->table)
        join_paging_stop(join);
    br_shared_put(node->host, join->table, join_free_table);
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
    .wants_times = true,
    .check = join_check,
    .create = join_create,
    .start = join_start,
    .consume = join_consume,
    .drain = join_drain,
    .destroy = join_destroy,
};
