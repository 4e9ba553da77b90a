/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The adaptive extension: sheds load according to the CPU usage of the process (core/shed.h). Each
 * check that finds a CPU usage of at least cpu_percentage raises the step of load shedding by one.
 * When the usage has been below resume_percentage for the time `recovery`, the step is lowered by
 * one. Between the two percentages the step does not change. Otherwise the CPU time that a step
 * saves would lower the step again at once.
 */
#include <stdio.h>

#include "base/mem.h"
#include "core/shed.h"
#include "extensions/adaptive/cpus.h"
#include "pipeline/broadcast.h"
#include "pipeline/component.h"

#define NS_PER_MS 1000000u
#define SHORTEST_NS 100000000u

struct config {
    double cpu_percentage, resume_percentage;
    int64_t memory_percentage;
    double cpus;
    uint64_t check_interval, recovery;
    bool shed_traces;
};

struct state {
    struct br_node *node;
    struct br_timer check_timer;
    struct br_broadcast broadcast;
    bool sending; /* true: a broadcast of `sent_step` is in progress */
    unsigned sent_step, step;
    double cpus;
    /* values at the previous check of the CPU usage: CPU time of the process in nanoseconds, and
     * milliseconds of the monotonic clock */
    uint64_t cpu_ns, checked_ms;
    /* if `calm` is true: time since when the CPU usage has been below resume_percentage, in
     * milliseconds of the monotonic clock */
    uint64_t calm_ms;
    bool calm;
    double *step_metric, *cpu_metric;
};

static const struct br_option options[] = {
    BR_DOUBLE(struct config, cpu_percentage, 80, 0, 100,
              "CPU usage in percent at which each check raises the step of load shedding by one; "
              "0: never"),
    BR_DOUBLE(struct config, resume_percentage, 60, 0, 100,
              "if CPU usage, in percent, stays below this value for `recovery`, the step of load "
              "shedding is lowered by one"),
    BR_INT(struct config, memory_percentage, 70, 0, 99,
           "memory usage, in percent of the soft limit of memory_limiter, at which load shedding "
           "begins; 0: never"),
    BR_DOUBLE(struct config, cpus, 0, 0, 4096,
              "number of CPUs that counts as 100 percent; 0: one per worker, but at most as many "
              "as the process may use"),
    BR_DURATION(struct config, check_interval, "1s", "interval at which CPU usage is checked"),
    BR_DURATION(struct config, recovery, "10s",
                "how long CPU usage must stay below resume_percentage before the step of load "
                "shedding is lowered"),
    BR_BOOL(struct config, shed_traces, true,
            "in the last step of load shedding, also reject traces"),
    BR_OPT_END,
};

static int adaptive_check(void *config, const struct br_yaml *node, const char *path,
                          struct br_arena *arena, struct br_errs *errs)
{
    const struct config *settings = config;
    size_t before = errs->n_errors;
    (void)arena;
    if (settings->cpu_percentage > 0 && settings->resume_percentage >= settings->cpu_percentage)
        br_errs_add_key(errs, node, path, "resume_percentage",
                        "must be smaller than cpu_percentage");
    if (settings->check_interval < SHORTEST_NS)
        br_errs_add_key(errs, node, path, "check_interval", "must be 100ms or more");
    if (settings->cpu_percentage <= 0 && settings->memory_percentage == 0)
        br_errs_add_key(errs, node, path, "cpu_percentage",
                        "or memory_percentage must be greater than zero");
    return errs->n_errors > before ? BR_EINVAL : 0;
}

/* --- Sending the step to the workers --------------------------------------------------------- */

static void adaptive_visit(struct br_broadcast *broadcast, struct br_host *host)
{
    const struct state *state = br_container_of(broadcast, struct state, broadcast);
    const struct config *config = state->node->config;
    br_shed_set(host, state->sent_step, (unsigned)config->memory_percentage);
}

static void adaptive_send_step(struct state *state);

static void adaptive_done(struct br_broadcast *broadcast, struct br_host *home)
{
    struct state *state = br_container_of(broadcast, struct state, broadcast);
    state->sending = false;
    if (state->sent_step != state->step && !home->draining)
        adaptive_send_step(state);
}

/* Sends the step to all workers. If sending fails, the next check tries again. */
static void adaptive_send_step(struct state *state)
{
    if (state->sending)
        return;
    unsigned before = state->sent_step;
    state->sent_step = state->step;
    state->sending = true;
    if (br_broadcast_send(&state->broadcast, state->node->host))
        return;
    state->sending = false;
    state->sent_step = before;
}

/* --- Checking the CPU ------------------------------------------------------------------------ */

static void adaptive_set_step(struct state *state, unsigned step, double percentage)
{
    if (step > state->step)
        br_warn(&state->node->log, "CPU usage is %.0f%%: %s", percentage, br_shed_text(step));
    else
        br_info(&state->node->log, "CPU usage is %.0f%%: %s", percentage, br_shed_text(step));
    state->step = step;
    state->calm = false;
    *state->step_metric = step;
}

static void adaptive_decide(struct state *state, double percentage, uint64_t now)
{
    const struct config *config = state->node->config;
    unsigned last = config->shed_traces ? BR_SHED_TRACES : BR_SHED_PROFILES;
    if (percentage >= config->cpu_percentage) {
        state->calm = false;
        if (state->step < last)
            adaptive_set_step(state, state->step + 1, percentage);
    } else if (percentage >= config->resume_percentage || state->step == BR_SHED_NONE) {
        state->calm = false;
    } else if (!state->calm) {
        state->calm = true;
        state->calm_ms = now;
    } else if (now - state->calm_ms >= config->recovery / NS_PER_MS) {
        adaptive_set_step(state, state->step - 1, percentage);
    }
}

static void adaptive_on_check(struct br_timer *timer)
{
    struct state *state = br_container_of(timer, struct state, check_timer);
    const struct config *config = state->node->config;
    struct br_host *host = state->node->host;
    (void)br_host_timer(host, &state->check_timer, config->check_interval / NS_PER_MS,
                        adaptive_on_check);
    uint64_t now = br_host_mono_ms(host), cpu = br_host_cpu_ns(host);
    if (now == state->checked_ms)
        return;
    double used_ms = (double)(cpu - state->cpu_ns) / NS_PER_MS;
    double percentage = 100 * used_ms / ((double)(now - state->checked_ms) * state->cpus);
    state->cpu_ns = cpu;
    state->checked_ms = now;
    *state->cpu_metric = percentage;
    adaptive_decide(state, percentage, now);
    if (state->sent_step != state->step)
        adaptive_send_step(state);
}

/* --- Component ------------------------------------------------------------------------------- */

static int adaptive_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    state->node = node;
    state->broadcast = (struct br_broadcast){.visit = adaptive_visit, .done = adaptive_done};
    state->cpus =
        config->cpus > 0 ? config->cpus : adaptive_cpus(node->host->n_workers, adaptive_quota(""));
    state->step_metric = br_node_metric(node, BR_GAUGE, "braid_adaptive_step", NULL, NULL);
    state->cpu_metric = br_node_metric(node, BR_GAUGE, "braid_adaptive_cpu_percentage", NULL, NULL);
    (void)err;
    return 0;
}

static int adaptive_start(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    struct br_host *host = node->host;
    if (host->shed.dropped)
        return br_err_set(err, BR_EINVAL, "only one adaptive extension is allowed");
    br_shed_set(host, BR_SHED_NONE, (unsigned)config->memory_percentage);
    adaptive_send_step(state);
    if (config->cpu_percentage <= 0)
        return 0;
    state->checked_ms = br_host_mono_ms(host);
    state->cpu_ns = br_host_cpu_ns(host);
    return br_host_timer(host, &state->check_timer, config->check_interval / NS_PER_MS,
                         adaptive_on_check)
               ? 0
               : br_err_set(err, BR_ENOMEM, "out of memory");
}

/* If the host runs without loops, the broadcast may not have ended yet. */
static void adaptive_destroy(struct br_node *node)
{
    struct state *state = node->state;
    if (!state->node)
        return;
    br_host_timer_stop(node->host, &state->check_timer);
    if (state->sending && !node->host->loops)
        br_host_defer_cancel(&state->broadcast.deferred);
}

extern const struct br_component br_adaptive_extension;
const struct br_component br_adaptive_extension = {
    .name = "adaptive",
    .kind = BR_EXTENSION,
    .stability = "alpha",
    .help = "sheds profiles, then traces, while there is too little CPU or memory",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .check = adaptive_check,
    .create = adaptive_create,
    .start = adaptive_start,
    .destroy = adaptive_destroy,
};
