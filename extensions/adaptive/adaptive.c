/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The adaptive extension: how much CPU the process uses decides how much is shed (core/shed.h).
 * At or above cpu_percentage each look takes a step up; a step down takes cpu_recovery below
 * resume_percentage; in between nothing changes, so that what a step saves does not undo it.
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
    struct br_timer look;
    struct br_broadcast broadcast;
    bool under_way; /* the broadcast, with `told` */
    unsigned told, step;
    double cpus;
    uint64_t cpu_ns, looked_ms; /* at the look before */
    uint64_t calm_ms;           /* since when it is below resume_percentage */
    bool calm;
    double *step_metric, *cpu_metric;
};

static const struct br_option options[] = {
    BR_DOUBLE(struct config, cpu_percentage, 80, 0, 100,
              "of the CPUs, from which on a step more is shed with each look; 0: never"),
    BR_DOUBLE(struct config, resume_percentage, 60, 0, 100,
              "of the CPUs, below which a step less is shed after recovery"),
    BR_INT(struct config, memory_percentage, 70, 0, 99,
           "of memory_limiter's soft limit, from which on is shed; 0: never"),
    BR_DOUBLE(struct config, cpus, 0, 0, 4096,
              "CPUs that 100 per cent are; 0: one for each worker, as far as the process may use them"),
    BR_DURATION(struct config, check_interval, "1s", "how often the CPU is looked at"),
    BR_DURATION(struct config, recovery, "10s", "how long the CPU has to be calm for a step down"),
    BR_BOOL(struct config, shed_traces, true, "refuse traces too, as the last step"),
    BR_OPT_END,
};

static int check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
                 struct br_errs *errs)
{
    const struct config *c = config;
    size_t before = errs->n_errors;
    (void)arena;
    if (c->cpu_percentage > 0 && c->resume_percentage >= c->cpu_percentage)
        br_errs_add_key(errs, node, path, "resume_percentage",
                        "must be smaller than cpu_percentage");
    if (c->check_interval < SHORTEST_NS)
        br_errs_add_key(errs, node, path, "check_interval", "must be 100ms or more");
    if (c->cpu_percentage <= 0 && c->memory_percentage == 0)
        br_errs_add_key(errs, node, path, "cpu_percentage",
                        "or memory_percentage must be greater than zero");
    return errs->n_errors > before ? BR_EINVAL : 0;
}

/* --- Telling the workers ---------------------------------------------------------------------- */

static void visit(struct br_broadcast *e, struct br_host *host)
{
    const struct state *s = br_container_of(e, struct state, broadcast);
    const struct config *c = s->node->config;
    br_shed_set(host, s->told, (unsigned)c->memory_percentage);
}

static void tell(struct state *s);

static void done(struct br_broadcast *e, struct br_host *home)
{
    struct state *s = br_container_of(e, struct state, broadcast);
    s->under_way = false;
    if (s->told != s->step && !home->draining)
        tell(s);
}

/* Where it cannot be sent, the next look tries again. */
static void tell(struct state *s)
{
    if (s->under_way)
        return;
    unsigned before = s->told;
    s->told = s->step;
    s->under_way = true;
    if (br_broadcast_send(&s->broadcast, s->node->host))
        return;
    s->under_way = false;
    s->told = before;
}

/* --- Looking ---------------------------------------------------------------------------------- */

static void set_step(struct state *s, unsigned step, double percentage)
{
    if (step > s->step)
        br_warn(&s->node->log, "%.0f%% of the CPU is used: %s", percentage, br_shed_text(step));
    else
        br_info(&s->node->log, "%.0f%% of the CPU is used: %s", percentage, br_shed_text(step));
    s->step = step;
    s->calm = false;
    *s->step_metric = step;
}

static void decide(struct state *s, double percentage, uint64_t now)
{
    const struct config *c = s->node->config;
    unsigned last = c->shed_traces ? BR_SHED_TRACES : BR_SHED_PROFILES;
    if (percentage >= c->cpu_percentage) {
        s->calm = false;
        if (s->step < last)
            set_step(s, s->step + 1, percentage);
    } else if (percentage >= c->resume_percentage || s->step == BR_SHED_NONE) {
        s->calm = false;
    } else if (!s->calm) {
        s->calm = true;
        s->calm_ms = now;
    } else if (now - s->calm_ms >= c->recovery / NS_PER_MS) {
        set_step(s, s->step - 1, percentage);
    }
}

static void on_look(struct br_timer *t)
{
    struct state *s = br_container_of(t, struct state, look);
    const struct config *c = s->node->config;
    struct br_host *host = s->node->host;
    (void)br_host_timer(host, &s->look, c->check_interval / NS_PER_MS, on_look);
    uint64_t now = br_host_mono_ms(host), cpu = br_host_cpu_ns(host);
    if (now == s->looked_ms)
        return;
    double used_ms = (double)(cpu - s->cpu_ns) / NS_PER_MS;
    double percentage = 100 * used_ms / ((double)(now - s->looked_ms) * s->cpus);
    s->cpu_ns = cpu;
    s->looked_ms = now;
    *s->cpu_metric = percentage;
    decide(s, percentage, now);
    if (s->told != s->step)
        tell(s);
}

/* --- Life ------------------------------------------------------------------------------------- */

static int create(struct br_node *node, struct br_err *err)
{
    struct state *s = node->state;
    const struct config *c = node->config;
    s->node = node;
    s->broadcast = (struct br_broadcast){.visit = visit, .done = done};
    s->cpus = c->cpus > 0 ? c->cpus : adaptive_cpus(node->host->n_workers, adaptive_quota(""));
    s->step_metric = br_node_metric(node, BR_GAUGE, "braid_adaptive_step", NULL, NULL);
    s->cpu_metric = br_node_metric(node, BR_GAUGE, "braid_adaptive_cpu_percentage", NULL, NULL);
    (void)err;
    return 0;
}

static int start(struct br_node *node, struct br_err *err)
{
    struct state *s = node->state;
    const struct config *c = node->config;
    struct br_host *host = node->host;
    if (host->shed.dropped)
        return br_err_set(err, BR_EINVAL, "one such extension is enough");
    br_shed_set(host, BR_SHED_NONE, (unsigned)c->memory_percentage);
    tell(s);
    if (c->cpu_percentage <= 0)
        return 0;
    s->looked_ms = br_host_mono_ms(host);
    s->cpu_ns = br_host_cpu_ns(host);
    return br_host_timer(host, &s->look, c->check_interval / NS_PER_MS, on_look)
               ? 0
               : br_err_set(err, BR_ENOMEM, "out of memory");
}

/* Where there are no loops, the broadcast may still wait for the end of the turn. */
static void destroy(struct br_node *node)
{
    struct state *s = node->state;
    if (!s->node)
        return;
    br_host_timer_stop(node->host, &s->look);
    if (s->under_way && !node->host->loops)
        br_host_defer_cancel(&s->broadcast.deferred);
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
    .check = check,
    .create = create,
    .start = start,
    .destroy = destroy,
};
