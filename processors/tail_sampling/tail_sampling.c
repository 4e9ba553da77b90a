/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tail_sampling processor keeps or drops whole traces. One instance serves a traces pipeline
 * and a profiles pipeline; the instances of all workers share one table of traces.
 *
 * The processor holds a request until all of its traces are decided. A request of spans then loses
 * the spans of traces that are not sampled, and a request of profiles the links to these traces.
 */
#include "processors/tail_sampling/tail_sampling.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "core/shared.h"
#include "pipeline/delay.h"

#define HOUSEKEEPING_MS 1000
/* Held items are checked SHARE_OF_WAIT times per decision_wait, but at intervals of at most
 * CHECK_MAX_MS. Items are not checked more often, because each check reads the list of all held
 * items. */
#define SHARE_OF_WAIT 20
#define CHECK_MAX_MS 100
/* delay before an item is processed again whose spans or links could not be removed, because memory
 * was short */
#define RETRY_MS 1000

/* A request that waits for the decisions about its traces. */
struct held {
    struct br_list link;
    /* the held item, owned by the processor; its sender has already been answered unless
     * item->sender is BR_SENDER_WAITS */
    struct br_item *item;
    struct tail_ref *refs; /* traces of the item */
    uint32_t n_refs;
    uint64_t came_ms, due_ms;
};

struct tail {
    struct br_node *node;
    const struct tail_config *config;
    struct tail_policies policies;
    struct tail_table *table;
    struct tail_tally tally;
    struct br_arena scratch; /* memory for the current item */
    struct br_delay delay;   /* forwards released items to the next component */
    struct br_list held;     /* list of struct held, oldest first */
    size_t held_bytes;
    struct br_timer check, housekeeping;
    uint64_t check_ms; /* time of the next check; 0: the timer is not armed */
    /* the next check reads all items, because traces were decided before they were due */
    bool check_all;
    struct br_log_limit gave_up_limit, memory_limit;
    double *new_traces, *early, *too_large, *late[2], *gave_up, *held_gauge, *waiting, *folded;
    double *decisions[TAIL_DECISIONS];
    /* metric for each policy and decision; created when needed */
    double *(*policy_decisions)[TAIL_DECISIONS];
};

/* --- Metrics ---------------------------------------------------------------------------------- */

static const char *const sampled_labels[TAIL_DECISIONS] = {"false", "true", "false"};
static const char *const decision_labels[TAIL_DECISIONS] = {"not_sampled", "sampled", "dropped"};

static double *tail_counter(struct tail *tail, const char *name, const char *policy,
                            enum tail_decision decision)
{
    const char *slash = strchr(tail->node->id, '/');
    char full[400];
    struct br_str labels = {.max = 2048};
    br_label(&labels, "processor", tail->node->id);
    if (policy) {
        (void)snprintf(full, sizeof full, "%.190s%s%.190s", slash ? slash + 1 : "",
                       slash ? "." : "", policy);
        br_label(&labels, "policy", full);
    }
    br_label(&labels, "sampled", sampled_labels[decision]);
    br_label(&labels, "decision", decision_labels[decision]);
    double *metric =
        br_metric(tail->node->host->metrics, BR_COUNTER, name, labels.data ? labels.data : "");
    br_str_release(&labels);
    return metric;
}

static void tail_count_policies(struct tail *tail)
{
    for (size_t i = 0; i < tail->policies.count; i++) {
        for (int k = 0; k < TAIL_DECISIONS; k++) {
            uint64_t n = tail->tally.policies[i][k];
            double **metric = &tail->policy_decisions[i][k];
            if (!n)
                continue;
            if (!*metric)
                *metric =
                    tail_counter(tail, "otelcol_processor_tail_sampling_count_traces_sampled",
                                 tail->policies.policies[i].config->name, (enum tail_decision)k);
            **metric += (double)n;
            tail->tally.policies[i][k] = 0;
        }
    }
}

/* Adds the counts in tail->tally, which the last call of the table set, to the metrics. */
static void tail_count(struct tail *tail)
{
    struct tail_tally *tally = &tail->tally;
    uint64_t n = 0;
    for (int k = 0; k < TAIL_DECISIONS; k++) {
        *tail->decisions[k] += (double)tally->decisions[k];
        n += tally->decisions[k];
    }
    if (n)
        tail_count_policies(tail);
    *tail->new_traces += (double)tally->new_traces;
    *tail->early += (double)tally->early;
    *tail->too_large += (double)tally->too_large;
    for (int i = 0; i < 2; i++)
        *tail->late[i] += (double)tally->late_spans[i];
    *tail->held_gauge = (double)tail->held_bytes;
    *tally = (struct tail_tally){.policies = tally->policies};
}

static void tail_make_metrics(struct tail *tail)
{
    struct br_node *node = tail->node;
    static const char late[] = "otelcol_processor_tail_sampling_early_releases_from_cache_decision";
    for (int k = 0; k < TAIL_DECISIONS; k++)
        tail->decisions[k] =
            tail_counter(tail, "otelcol_processor_tail_sampling_global_count_traces_sampled", NULL,
                         (enum tail_decision)k);
    tail->new_traces = br_node_metric(
        node, BR_COUNTER, "otelcol_processor_tail_sampling_new_trace_id_received", NULL, NULL);
    tail->too_large = br_node_metric(
        node, BR_COUNTER, "otelcol_processor_tail_sampling_traces_dropped_too_large", NULL, NULL);
    tail->waiting = br_node_metric(
        node, BR_GAUGE, "otelcol_processor_tail_sampling_sampling_traces_on_memory", NULL, NULL);
    tail->late[0] = br_node_metric(node, BR_COUNTER, late, "sampled", "false");
    tail->late[1] = br_node_metric(node, BR_COUNTER, late, "sampled", "true");
    tail->early =
        br_node_metric(node, BR_COUNTER, "braid_tail_sampling_early_decisions", NULL, NULL);
    tail->gave_up = br_node_metric(node, BR_COUNTER, "braid_tail_sampling_gave_up", NULL, NULL);
    tail->held_gauge = br_node_metric(node, BR_GAUGE, "braid_tail_sampling_held_bytes", NULL, NULL);
    tail->folded =
        br_node_metric(node, BR_COUNTER, "braid_tail_sampling_samples_folded", NULL, NULL);
}

static void tail_on_housekeeping(struct br_timer *timer)
{
    struct tail *tail = br_container_of(timer, struct tail, housekeeping);
    *tail->waiting = (double)tail_table_waiting(tail->table);
    (void)br_host_timer(tail->node->host, timer, HOUSEKEEPING_MS, tail_on_housekeeping);
}

/* --- Applying decisions ----------------------------------------------------------------------- */

static struct tail_caller tail_caller_of(struct tail *tail)
{
    struct br_host *host = tail->node->host;
    return (struct tail_caller){
        .table = tail->table,
        .config = tail->config,
        .policies = &tail->policies,
        .now = {br_host_mono_ms(host), br_host_unix_ns(host) / 1000000000},
        .tally = &tail->tally,
    };
}

/* Removes the spans of traces that are not sampled, or the links to these traces. Returns 0,
 * BR_EINVAL, BR_EFULL or BR_ENOMEM; on failure the item is unchanged. */
static int tail_apply(struct tail *tail, struct br_item *item, const struct tail_ref *refs,
                      uint32_t n_refs, const char *reason)
{
    struct br_mem_scope scope;
    uint32_t before = item->n_records, n_removed = 0, n_folded = 0, n_merged = 0;
    for (uint32_t i = 0; i < n_refs; i++)
        n_removed += refs[i].state == TAIL_REMOVED;
    if (!n_removed)
        return 0;
    if (item->signal == BR_TRACES && n_removed == n_refs) {
        br_item_clear_parts(item);
        br_item_report(item, BR_RESULT_DROPPED, reason, before);
        return 0;
    }
    br_item_edit_begin(&scope, item);
    int rc = item->signal == BR_TRACES
                 ? tail_spans_remove(item, refs, n_refs)
                 : tail_samples_unlink(tail->config, item, refs, n_refs, &n_folded, &n_merged);
    rc = br_item_edit_end(&scope, rc);
    if (rc)
        return rc;
    *tail->folded += n_folded;
    if (item->signal == BR_TRACES)
        br_item_report(item, BR_RESULT_DROPPED, reason, before - item->n_records);
    else
        br_item_report(item, BR_RESULT_DROPPED, "folded", n_merged);
    return 0;
}

static void tail_refuse(struct br_item *item, int rc)
{
    if (rc == BR_EINVAL)
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT, "tail_sampling: malformed data");
    else if (rc == BR_EFULL)
        br_item_reject(
            item, BR_STATUS_INVALID_ARGUMENT,
            "tail_sampling: a list of attributes is too long, or a request is too large");
    else
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "tail_sampling: out of memory");
}

/* Forwards an item from which spans or links were removed. `kept` is false if the item has just
 * arrived. */
static void tail_send(struct tail *tail, struct br_item *item, bool kept)
{
    if (item->signal == BR_TRACES && item->n_records == 0 && item->n_parts == 0)
        br_item_done(item);
    else if (kept)
        br_delay_forward(&tail->delay, item);
    else
        br_node_forward(tail->node, item);
}

/* Forwards an item whose traces are decided, and whose sender waits for the outcome. Takes
 * ownership of `refs`. */
static void tail_pass(struct tail *tail, struct br_item *item, struct tail_ref *refs,
                      uint32_t n_refs)
{
    struct tail_caller caller = tail_caller_of(tail);
    int rc = tail_apply(tail, item, refs, n_refs, "sampled");
    tail_table_release(&caller, refs, n_refs);
    if (rc)
        tail_refuse(item, rc);
    else
        tail_send(tail, item, false);
}

/* --- Holding ---------------------------------------------------------------------------------- */

static void tail_remove(struct tail *tail, struct held *held)
{
    struct tail_caller caller = tail_caller_of(tail);
    br_list_remove(&held->link);
    tail->held_bytes -= held->item->size;
    tail_table_release(&caller, held->refs, held->n_refs);
    br_free(held);
}

/* Releases an item whose traces are decided. If there is not enough memory to remove spans or
 * links, the item is forwarded unchanged if `force` is true, and otherwise stays held. Returns
 * false if it stays held. */
static bool tail_release(struct tail *tail, struct held *held, const char *reason, bool force)
{
    struct br_item *item = held->item;
    size_t size = item->size;
    int rc = tail_apply(tail, item, held->refs, held->n_refs, reason);
    if (rc == BR_ENOMEM && !force)
        return false;
    if (rc)
        br_node_warn(
            tail->node, &tail->memory_limit,
            "a request is forwarded unchanged, because spans or links could not be removed "
            "from it: %s",
            rc == BR_ENOMEM ? "out of memory" : "it is too large or malformed");
    tail->held_bytes = tail->held_bytes - size + item->size;
    tail_remove(tail, held);
    tail_send(tail, item, true);
    return true;
}

/* Decides about the traces of an item before they are due, and releases the item. */
static void tail_evict(struct tail *tail, struct held *held)
{
    struct tail_caller caller = tail_caller_of(tail);
    (void)tail_table_decided(&caller, held->refs, held->n_refs, true, false, &held->due_ms);
    (void)tail_release(tail, held, "sampled", true);
}

static uint32_t tail_count_decided(const struct held *held)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < held->n_refs; i++)
        n += held->refs[i].state != TAIL_WAITING;
    return n;
}

/* Moves the references to decided traces to `decided`, sorted as before. */
static void tail_take_decided(struct held *held, struct tail_ref *decided)
{
    uint32_t n = 0, n_waiting = 0;
    for (uint32_t i = 0; i < held->n_refs; i++) {
        if (held->refs[i].state == TAIL_WAITING)
            held->refs[n_waiting++] = held->refs[i];
        else
            decided[n++] = held->refs[i];
    }
    held->n_refs = n_waiting;
}

/* Divides a held item in two. Returns an item with the spans of decided traces, or NULL if the item
 * cannot be divided. `held` keeps the other spans. */
static struct br_item *tail_split(struct tail *tail, struct held *held)
{
    struct br_item *item = held->item, *decided, *waiting;
    struct br_mem_scope scope;
    br_item_edit_begin(&scope, item);
    bool divided = tail_divide(item, held->refs, held->n_refs, &decided, &waiting);
    (void)br_item_edit_end(&scope, 0);
    if (!divided)
        return NULL;
    tail->held_bytes = tail->held_bytes - item->size + waiting->size;
    held->item = waiting;
    br_item_hold(waiting, BR_HOLDER_HOLDS);
    br_item_clear_parts(item);
    br_item_done(item);
    return decided;
}

/* Releases the spans of decided traces if at least half of the item's traces are decided. Each
 * division at least halves the number of traces, so an item is copied only a few times. */
static void tail_release_part(struct tail *tail, struct held *held)
{
    struct tail_caller caller = tail_caller_of(tail);
    uint32_t n = tail_count_decided(held);
    if (held->item->signal != BR_TRACES || held->item->sender == BR_SENDER_WAITS || n == 0 ||
        n < held->n_refs - n)
        return;
    struct tail_ref *refs = br_malloc(n * sizeof *refs);
    struct br_item *decided = refs ? tail_split(tail, held) : NULL;
    if (!decided) {
        br_free(refs);
        return;
    }
    tail_take_decided(held, refs);
    if (tail_apply(tail, decided, refs, n, "sampled"))
        br_node_warn(tail->node, &tail->memory_limit,
                     "a request is forwarded unchanged, because memory is short");
    tail_table_release(&caller, refs, n);
    tail_send(tail, decided, true);
}

/* Releases the item if its traces are decided. Otherwise updates the time at which it is due. */
static void tail_look(struct tail *tail, struct held *held)
{
    struct tail_caller caller = tail_caller_of(tail);
    uint64_t patience_ms = held->came_ms + tail->config->decision_wait / 1000000;
    bool patient = caller.now.mono_ms < patience_ms;
    if (tail_table_decided(&caller, held->refs, held->n_refs, false, patient, &held->due_ms)) {
        if (tail_release(tail, held, "sampled", false))
            return;
        held->due_ms = caller.now.mono_ms + RETRY_MS;
    } else {
        tail_release_part(tail, held);
    }
    if (!held->due_ms)
        held->due_ms = patience_ms;
}

static uint64_t tail_interval(const struct tail *tail)
{
    uint64_t ms = tail->config->decision_wait / 1000000 / SHARE_OF_WAIT;
    if (ms > CHECK_MAX_MS)
        return CHECK_MAX_MS;
    return ms ? ms : 1;
}

static void tail_on_check(struct br_timer *timer);

/* Arms the timer for a check at `due_ms`, unless an earlier check is planned. If there is no memory
 * for the timer, all items are released. */
static void tail_arm(struct tail *tail, uint64_t due_ms)
{
    struct br_host *host = tail->node->host;
    uint64_t now_ms = br_host_mono_ms(host);
    if (tail->check_ms && tail->check_ms <= due_ms)
        return;
    br_host_timer_stop(host, &tail->check);
    tail->check_ms = due_ms;
    if (br_host_timer(host, &tail->check, due_ms > now_ms ? due_ms - now_ms : 0, tail_on_check))
        return;
    tail->check_ms = 0;
    while (!br_list_empty(&tail->held))
        tail_evict(tail, br_container_of(tail->held.next, struct held, link));
}

static void tail_on_check(struct br_timer *timer)
{
    struct tail *tail = br_container_of(timer, struct tail, check);
    uint64_t now_ms = br_host_mono_ms(tail->node->host), due_ms = UINT64_MAX;
    bool roots = tail->config->decision_wait_after_root_received > 0;
    bool all = roots || tail->check_all;
    tail->check_ms = 0;
    tail->check_all = false;
    for (struct br_list *link = tail->held.next, *next; link != &tail->held; link = next) {
        struct held *held = br_container_of(link, struct held, link);
        next = link->next;
        if (all || held->due_ms <= now_ms)
            tail_look(tail, held);
    }
    for (struct br_list *link = tail->held.next; link != &tail->held; link = link->next) {
        const struct held *held = br_container_of(link, struct held, link);
        due_ms = held->due_ms < due_ms ? held->due_ms : due_ms;
    }
    uint64_t soonest_ms = now_ms + tail_interval(tail);
    if (due_ms < soonest_ms || (roots && due_ms != UINT64_MAX))
        due_ms = soonest_ms;
    if (due_ms != UINT64_MAX)
        tail_arm(tail, due_ms);
    tail_count(tail);
}

static size_t tail_most_bytes(const struct tail *tail)
{
    return br_host_share(tail->node->host, (size_t)tail->config->hold_max_bytes);
}

/* Makes room for an item of `size` bytes by releasing the oldest held items. Returns false if the
 * item may not be held. The limit does not cover released items, because most of them are delivered
 * in this loop iteration; tail_is_blocked limits their size. */
static bool tail_make_room(struct tail *tail, size_t size)
{
    size_t most = tail_most_bytes(tail);
    if (tail->node->draining || size > most)
        return false;
    while (tail->held_bytes + size > most)
        tail_evict(tail, br_container_of(tail->held.next, struct held, link));
    return true;
}

/* Returns true if too many released items wait for the next component. */
static bool tail_is_blocked(const struct tail *tail)
{
    return br_delay_bytes(&tail->delay) > tail_most_bytes(tail) && !tail->node->draining;
}

/* Holds the item's data until `due_ms`. If a sender waits for the delivery, holds the item itself
 * instead of its data. Takes ownership of `refs`. Returns false if there is not enough memory;
 * nothing was taken then. */
static bool tail_hold(struct tail *tail, struct br_item *item, struct tail_ref *refs,
                      uint32_t n_refs, uint64_t due_ms)
{
    struct held *held = br_calloc(1, sizeof *held);
    struct br_item *own = held ? br_delay_take(item) : NULL;
    if (!own) {
        br_free(held);
        return false;
    }
    *held = (struct held){.item = own, .refs = refs, .n_refs = n_refs};
    held->came_ms = br_host_mono_ms(tail->node->host);
    held->due_ms = due_ms ? due_ms : held->came_ms + tail->config->decision_wait / 1000000;
    tail->held_bytes += own->size;
    br_list_append(&tail->held, &held->link);
    uint64_t soon_ms = held->came_ms + tail_interval(tail);
    bool roots = tail->config->decision_wait_after_root_received > 0;
    tail_arm(tail, roots && soon_ms < held->due_ms ? soon_ms : held->due_ms);
    return true;
}

/* --- The component ---------------------------------------------------------------------------- */

/* The traces of an item that has been added to the table. */
struct entered {
    struct tail_ref *refs;
    uint32_t n_refs;
    uint64_t due_ms;
    /* true if the table is full and block_on_overflow is set, so that the sender has to wait */
    bool blocked;
};

/* Adds the spans or samples of an item to the table. */
static int tail_enter(struct tail *tail, struct br_item *item, struct entered *ret)
{
    struct tail_caller caller = tail_caller_of(tail);
    struct br_mem_scope scope;
    struct tail_span *spans = NULL;
    struct tail_samples *samples = NULL;
    uint32_t n_samples = 0;
    br_item_edit_begin(&scope, item);
    int rc = item->signal == BR_TRACES
                 ? tail_spans_read(&tail->policies, tail->config, item, &tail->scratch, &spans)
                 : tail_samples_read(tail->config, item, &tail->scratch, &samples, &n_samples);
    rc = br_item_edit_end(&scope, rc);
    br_node_count_gave_up(tail->node, tail->gave_up, tail->policies.n_gave_up, &tail->gave_up_limit,
                          "matching a pattern took too long; it counts as not matching");
    tail->policies.n_gave_up = 0;
    if (!rc && item->signal == BR_TRACES) {
        rc = tail_table_add_spans(&caller, spans, item->n_records, &ret->refs, &ret->n_refs,
                                  &ret->due_ms);
        ret->blocked = rc == BR_EFULL;
    } else if (!rc) {
        rc = tail_table_add_samples(&caller, samples, n_samples, &ret->refs, &ret->n_refs,
                                    &ret->due_ms);
    }
    br_arena_release(&tail->scratch);
    return rc;
}

/* Plans a check of all held items if the table decided traces before they were due. */
static void tail_note_early(struct tail *tail)
{
    if (!tail->tally.early || br_list_empty(&tail->held))
        return;
    tail->check_all = true;
    tail_arm(tail, br_host_mono_ms(tail->node->host) + tail_interval(tail));
}

/* Holds an item until its traces are decided, or forwards it if they are. */
static void tail_take(struct tail *tail, struct br_item *item, struct entered *entered)
{
    struct tail_caller caller = tail_caller_of(tail);
    uint64_t ignored_ms;
    if (!tail_table_decided(&caller, entered->refs, entered->n_refs, false, true, &ignored_ms)) {
        if (tail_make_room(tail, item->size) &&
            tail_hold(tail, item, entered->refs, entered->n_refs, entered->due_ms))
            return;
        (void)tail_table_decided(&caller, entered->refs, entered->n_refs, true, false, &ignored_ms);
    }
    tail_pass(tail, item, entered->refs, entered->n_refs);
}

static void tail_consume(struct br_node *node, struct br_item *item)
{
    struct tail *tail = node->state;
    struct entered entered = {.refs = NULL};
    if (tail_is_blocked(tail)) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000,
                      "tail_sampling: the requests that wait for the next component exceed "
                      "hold_max_bytes");
        return;
    }
    int rc = tail_enter(tail, item, &entered);
    if (!rc)
        tail_take(tail, item, &entered);
    else if (entered.blocked)
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000,
                      "tail_sampling: num_traces traces wait for a decision");
    else
        tail_refuse(item, rc);
    tail_note_early(tail);
    tail_count(tail);
}

static void tail_on_hold_idle(void *arg)
{
    struct tail *tail = arg;
    if (tail->node->draining && br_list_empty(&tail->held) && br_delay_is_idle(&tail->delay))
        br_node_drained(tail->node);
}

/* The argument of tail_make_table. */
struct making {
    const struct tail_config *config;
    unsigned n_meters;
};

static void *tail_make_table(const void *arg)
{
    const struct making *making = arg;
    return tail_table_new(making->config, making->n_meters);
}

static void tail_free_table(void *table)
{
    tail_table_free(table);
}

/* Returns the table that this node shares with the nodes of other workers. If a processor is in
 * several pipelines of a signal, each of them has its own table, because the same spans can arrive
 * in all of these pipelines. */
static struct tail_table *tail_take_table(const struct tail *tail)
{
    struct br_host *host = tail->node->host;
    struct making making = {tail->config, tail->policies.n_meters};
    char name[600];
    for (unsigned turn = 0;; turn++) {
        /* The number distinguishes the tables before and after a reload: the old node, which is
         * being drained, has the same id as the new one. */
        (void)snprintf(name, sizeof name, "traces of %.500s (%u, %u)", tail->node->id,
                       host->generation, turn);
        struct tail_table *table = br_shared_get(host, name, tail_make_table, &making);
        if (!table || tail_table_take(table, host->worker))
            return table;
        br_shared_put(host, table, tail_free_table);
    }
}

static int tail_create(struct br_node *node, struct br_err *err)
{
    struct tail *tail = node->state;
    tail->node = node;
    tail->config = node->config;
    br_list_init(&tail->held);
    br_arena_init(&tail->scratch, TAIL_SCRATCH_MAX);
    br_delay_init(&tail->delay, node, tail_on_hold_idle, tail);
    int rc = tail_policies_init(&tail->policies, tail->config, err);
    if (rc == BR_EINVAL)
        return rc;
    if (!rc) {
        tail->table = tail_take_table(tail);
        tail->tally.policies = br_calloc(tail->policies.count + 1, sizeof *tail->tally.policies);
        tail->policy_decisions =
            br_calloc(tail->policies.count + 1, sizeof *tail->policy_decisions);
    }
    if (!tail->table || !tail->tally.policies || !tail->policy_decisions)
        return br_err_set(err, BR_ENOMEM, "no memory for the policies and the table of traces");
    tail_make_metrics(tail);
    return 0;
}

static int tail_start(struct br_node *node, struct br_err *err)
{
    struct tail *tail = node->state;
    (void)err;
    if (node->host->worker == 0)
        (void)br_host_timer(node->host, &tail->housekeeping, HOUSEKEEPING_MS, tail_on_housekeeping);
    return 0;
}

/* Drops the traces of an item that are not decided. */
static void tail_drop_waiting(struct tail *tail, struct held *held)
{
    struct tail_caller caller = tail_caller_of(tail);
    (void)tail_table_decided(&caller, held->refs, held->n_refs, false, false, &held->due_ms);
    for (uint32_t i = 0; i < held->n_refs; i++)
        if (held->refs[i].state == TAIL_WAITING)
            held->refs[i].state = TAIL_REMOVED;
    (void)tail_release(tail, held, "shutdown", true);
}

static void tail_drain(struct br_node *node)
{
    struct tail *tail = node->state;
    bool drops = tail->config->drop_pending_traces_on_shutdown && node->host->draining;
    while (!br_list_empty(&tail->held)) {
        struct held *held = br_container_of(tail->held.next, struct held, link);
        if (drops)
            tail_drop_waiting(tail, held);
        else
            tail_evict(tail, held);
    }
    br_host_timer_stop(node->host, &tail->check);
    tail->check_ms = 0;
    tail_count(tail);
    tail_on_hold_idle(tail);
}

static void tail_destroy(struct br_node *node)
{
    struct tail *tail = node->state;
    br_host_timer_stop(node->host, &tail->check);
    br_host_timer_stop(node->host, &tail->housekeeping);
    while (tail->held.next && !br_list_empty(&tail->held)) {
        struct held *held = br_container_of(tail->held.next, struct held, link);
        struct br_item *item = held->item;
        tail_remove(tail, held);
        br_delay_abandon(&tail->delay, item);
    }
    br_delay_release(&tail->delay);
    tail_policies_release(&tail->policies);
    br_free(tail->tally.policies);
    br_free(tail->policy_decisions);
    br_arena_release(&tail->scratch);
    br_shared_put(node->host, tail->table, tail_free_table);
}

extern const struct br_component br_tail_sampling_processor;
const struct br_component br_tail_sampling_processor = {
    .name = "tail_sampling",
    .kind = BR_PROCESSOR,
    .signals = BR_BOTH_SIGNALS,
    .stability = "alpha",
    .help = "keeps or drops whole traces, with their samples",
    .options = tail_options,
    .config_size = sizeof(struct tail_config),
    .state_size = sizeof(struct tail),
    .shared = true,
    .handles_alone = BR_SIGNAL_BIT(BR_TRACES),
    .check = tail_check,
    .create = tail_create,
    .start = tail_start,
    .consume = tail_consume,
    .drain = tail_drain,
    .destroy = tail_destroy,
};
