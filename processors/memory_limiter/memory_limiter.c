/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory limiter sets the limits of the process's memory budget (base/memory.h). Memory is
 * counted when it is allocated, so memory use is not polled. Above the soft limit (limit minus
 * spike), receivers reject a request before they read its body. A request that is already being
 * read can only use memory that is left in the budget. Requests that were accepted earlier are
 * processed unless the hard limit is exceeded.
 */
#include <stdio.h>

#include "base/mem.h"
#include "core/shared.h"
#include "pipeline/component.h"

#define MIB 1048576u
#define RETRY_MS 1000

struct config {
    uint64_t check_interval;
    int64_t limit_mib, spike_limit_mib, limit_percentage, spike_limit_percentage;
};

/* Notes whether a node already logs for a limiter. A limiter has one node per pipeline and
 * worker. All of these nodes observe the same memory, so only one of them logs. */
struct log_owner {
    bool taken;
};

struct state {
    struct br_node *node;
    struct log_owner *log_owner; /* shared by all nodes of this limiter */
    double *accepted[BR_SIGNALS], *refused[BR_SIGNALS];
    struct br_timer filtering;
    bool was_over;
};

static const struct br_option options[] = {
    BR_DURATION(struct config, check_interval, "0s",
                "interval at which memory usage is compared with the soft limit, to log when it "
                "crosses the limit; required, as in the Collector"),
    BR_INT(struct config, limit_mib, 0, 0, 4294967295.0,
           "hard limit in MiB; takes precedence over limit_percentage"),
    BR_INT(struct config, spike_limit_mib, 0, 0, 4294967295.0,
           "difference between the hard and the soft limit in MiB; 0: 20 % of the hard limit"),
    BR_INT(struct config, limit_percentage, 0, 0, 100,
           "hard limit as a percentage of the memory of the machine or control group"),
    BR_INT(struct config, spike_limit_percentage, 0, 0, 100,
           "difference between the hard and the soft limit, as a percentage of the same memory as "
           "limit_percentage; 0: 20 % of the hard limit"),
    BR_IGNORED("min_gc_interval_when_soft_limited", "Braid has no garbage collector"),
    BR_IGNORED("min_gc_interval_when_hard_limited", "Braid has no garbage collector"),
    BR_IGNORED("max_gc_interval_when_soft_limited", "Braid has no garbage collector"),
    BR_IGNORED("max_gc_interval_when_hard_limited", "Braid has no garbage collector"),
    BR_IGNORED("garbage_collector", "Braid has no garbage collector"),
    BR_OPT_END,
};

static int memory_limiter_check(void *config, const struct br_yaml *node, const char *path,
                                struct br_arena *arena, struct br_errs *errs)
{
    const struct config *settings = config;
    size_t before = errs->n_errors;
    (void)arena;
    if (!settings->check_interval)
        br_errs_add_key(errs, node, path, "check_interval",
                        "must be greater than zero, such as 1s");
    if (!settings->limit_mib && !settings->limit_percentage)
        br_errs_add(errs, node, path, "limit_mib or limit_percentage must be greater than zero");
    if (settings->limit_mib && settings->limit_mib <= settings->spike_limit_mib)
        br_errs_add_key(errs, node, path, "spike_limit_mib", "must be smaller than limit_mib");
    if (settings->limit_percentage &&
        settings->limit_percentage <= settings->spike_limit_percentage)
        br_errs_add_key(errs, node, path, "spike_limit_percentage",
                        "must be smaller than limit_percentage");
    return errs->n_errors > before ? BR_EINVAL : 0;
}

static int memory_limiter_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    static const char *const items[BR_SIGNALS] = {"spans", "profile_samples"};
    (void)err;
    state->node = node;
    for (int i = 0; i < BR_SIGNALS; i++) {
        char name[96];
        if (!node->in_pipeline[i])
            continue;
        (void)snprintf(name, sizeof name, "otelcol_processor_memory_limiter_accepted_%s", items[i]);
        state->accepted[i] = br_node_metric(node, BR_COUNTER, name, NULL, NULL);
        (void)snprintf(name, sizeof name, "otelcol_processor_memory_limiter_refused_%s", items[i]);
        state->refused[i] = br_node_metric(node, BR_COUNTER, name, NULL, NULL);
    }
    return 0;
}

static void *memory_limiter_make_voice(const void *arg)
{
    (void)arg;
    return br_calloc(1, sizeof(struct log_owner));
}

/* Returns true if this node logs for the limiter. The first node that calls
 * memory_limiter_owns_log logs. If there is not enough memory to record which node logs, the
 * calling node logs, too. */
static bool memory_limiter_owns_log(struct br_node *node)
{
    struct state *state = node->state;
    char name[600];
    (void)snprintf(name, sizeof name, "log owner of %.500s (%u)", node->id, node->host->generation);
    state->log_owner = br_shared_get(node->host, name, memory_limiter_make_voice, NULL);
    if (!state->log_owner)
        return true;
    bool first = !state->log_owner->taken;
    state->log_owner->taken = true;
    return first;
}

/* Logs when memory use rises above the soft limit or falls below it again. The receivers, not
 * this node, reject requests above the limit. */
static void memory_limiter_on_timer(struct br_timer *timer)
{
    struct state *state = br_container_of(timer, struct state, filtering);
    struct br_host *host = state->node->host;
    const struct config *config = state->node->config;
    bool over = br_host_over_limit(host);
    size_t used = br_memory_used(host->memory);
    if (over && !state->was_over)
        br_warn(&state->node->log,
                "%zu MiB are in use, above the soft limit of %zu MiB: rejecting requests",
                used / MIB, br_memory_soft(host->memory) / MIB);
    else if (!over && state->was_over)
        br_info(&state->node->log, "%zu MiB are in use: accepting requests again", used / MIB);
    state->was_over = over;
    uint64_t ms = config->check_interval / 1000000;
    (void)br_host_timer(host, &state->filtering, ms ? ms : 1, memory_limiter_on_timer);
}

static int memory_limiter_read_limits(const struct config *config, uint64_t *ret_limit,
                                      uint64_t *ret_spike, struct br_err *err)
{
    uint64_t total = 0;
    if (!config->limit_mib && !br_memory_total("", &total))
        return br_err_set(err, BR_EIO, "cannot determine the size of the memory: set limit_mib");
    *ret_limit = config->limit_mib ? (uint64_t)config->limit_mib * MIB
                                   : total / 100 * (uint64_t)config->limit_percentage;
    *ret_spike = config->limit_mib ? (uint64_t)config->spike_limit_mib * MIB
                                   : total / 100 * (uint64_t)config->spike_limit_percentage;
    if (!*ret_spike)
        *ret_spike = *ret_limit / 5;
    return 0;
}

static int memory_limiter_start(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    struct br_host *host = node->host;
    uint64_t limit = 0, spike = 0;
    int rc = memory_limiter_read_limits(node->config, &limit, &spike, err);
    if (rc)
        return rc;
    br_memory_limit(host->memory, limit - spike, limit);
    if (!memory_limiter_owns_log(node))
        return 0;
    br_info(&node->log, "hard limit %llu MiB, rejecting requests above %llu MiB",
            (unsigned long long)limit / MIB, (unsigned long long)(limit - spike) / MIB);
    memory_limiter_on_timer(&state->filtering);
    return 0;
}

static void memory_limiter_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    if (br_memory_used(node->host->memory) > br_memory_hard(node->host->memory)) {
        *state->refused[item->signal] += item->n_records;
        br_item_retry(item, BR_STATUS_UNAVAILABLE, RETRY_MS, "memory limit reached");
        return;
    }
    *state->accepted[item->signal] += item->n_records;
    br_node_forward(node, item);
}

static void memory_limiter_destroy(struct br_node *node)
{
    struct state *state = node->state;
    br_host_timer_stop(node->host, &state->filtering);
    br_shared_put(node->host, state->log_owner, br_free);
}

extern const struct br_component br_memory_limiter_processor;
const struct br_component br_memory_limiter_processor = {
    .name = "memory_limiter",
    .kind = BR_PROCESSOR,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "rejects requests while too much memory is in use",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .check = memory_limiter_check,
    .create = memory_limiter_create,
    .start = memory_limiter_start,
    .consume = memory_limiter_consume,
    .destroy = memory_limiter_destroy,
};
