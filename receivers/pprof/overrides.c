/* SPDX-License-Identifier: Apache-2.0 */
/* Rules at run time: which jobs scrape, and how often. */
#include <string.h>

#include "base/mem.h"
#include "receivers/pprof/scrape.h"

#define NS_PER_MS 1000000

static struct pprof_scraper *scraper_of(struct br_overridable *t)
{
    return br_container_of(t, struct pprof_scraper, overridable);
}

static bool matches(const struct pprof_override *r, const struct pprof_target *t)
{
    bool service = !r->service || (strlen(r->service) == t->service_len &&
                                   memcmp(r->service, t->service, t->service_len) == 0);
    return service && (!r->target || strcmp(r->target, t->config->endpoint) == 0);
}

static bool is_live(const struct pprof_scraper *s, const struct pprof_override *r)
{
    return r->until_ms > br_host_mono_ms(s->node->host);
}

/* --- What jobs are to do ---------------------------------------------------------------------- */

static uint64_t at_once(struct pprof_job *j)
{
    (void)j;
    return 0;
}

struct want {
    uint64_t interval_ms, rule, until_ms;
};

/* The shorter of what is wanted so far and what a rule (NULL: the config) asks for. */
static void ask(const struct pprof_config *c, int kind, struct want *want,
                const struct pprof_override *rule)
{
    uint64_t shortest = pprof_job_shortest_ms(c, (enum pprof_kind)kind);
    uint64_t interval_ms = rule ? rule->interval_ms : 0;
    if (interval_ms == 0)
        interval_ms = c->scrape_interval / NS_PER_MS;
    if (interval_ms < shortest)
        interval_ms = shortest;
    if (want->interval_ms && want->interval_ms <= interval_ms)
        return;
    want->interval_ms = interval_ms;
    want->rule = rule ? rule->id : 0;
    want->until_ms = rule ? rule->until_ms : 0;
}

static void refresh_target(struct pprof_scraper *s, struct pprof_target *t,
                           uint64_t (*delay_ms)(struct pprof_job *j))
{
    struct want want[PPROF_KINDS] = {0};
    for (int k = 0; k < PPROF_KINDS; k++)
        if (!t->config->on_demand && pprof_profile_config(s->config, (enum pprof_kind)k)->enabled)
            ask(s->config, k, &want[k], NULL);
    for (size_t i = 0; i < s->n_rules; i++) {
        if (!matches(&s->rules[i], t))
            continue;
        for (int k = 0; k < PPROF_KINDS; k++)
            if (s->rules[i].kinds[k])
                ask(s->config, k, &want[k], &s->rules[i]);
    }
    for (int k = 0; k < PPROF_KINDS; k++) {
        struct pprof_job *j = &t->jobs[k];
        bool sooner =
            want[k].interval_ms && (!j->interval_ms || want[k].interval_ms < j->interval_ms);
        j->rule = want[k].rule;
        j->until_ms = want[k].until_ms;
        if (want[k].interval_ms != j->interval_ms)
            pprof_job_set(j, want[k].interval_ms, sooner ? delay_ms(j) : UINT32_MAX);
    }
}

static void forget(struct pprof_scraper *s, size_t i)
{
    br_free(s->rules[i].service);
    br_free(s->rules[i].target);
    s->rules[i] = s->rules[--s->n_rules];
}

static void on_rules_end(struct br_timer *t)
{
    pprof_overrides_refresh(br_container_of(t, struct pprof_scraper, rules_end), at_once);
}

void pprof_overrides_refresh(struct pprof_scraper *s, uint64_t (*delay_ms)(struct pprof_job *j))
{
    struct br_host *host = s->node->host;
    uint64_t now = br_host_mono_ms(host), next = UINT64_MAX;
    for (size_t i = s->n_rules; i-- > 0;) {
        if (!is_live(s, &s->rules[i]))
            forget(s, i);
        else if (s->rules[i].until_ms < next)
            next = s->rules[i].until_ms;
    }
    if (next == UINT64_MAX)
        (void)br_host_timer_park(host, &s->rules_end, on_rules_end);
    else
        (void)br_host_timer(host, &s->rules_end, next - now, on_rules_end);
    for (size_t i = 0; i < s->n_targets; i++)
        refresh_target(s, &s->targets[i], delay_ms);
}

void pprof_overrides_release(struct pprof_scraper *s)
{
    while (s->n_rules > 0)
        forget(s, s->n_rules - 1);
    br_host_timer_stop(s->node->host, &s->rules_end);
}

/* --- The overridable ------------------------------------------------------------------------------ */

/* Where neither the rule nor the config names a profile, it is the CPU's. */
static bool is_default(const struct pprof_config *c, enum pprof_kind kind)
{
    for (int k = 0; k < PPROF_KINDS; k++)
        if (pprof_profile_config(c, (enum pprof_kind)k)->enabled)
            return pprof_profile_config(c, kind)->enabled;
    return kind == PPROF_CPU;
}

/* How many jobs it is about. */
static int count_jobs(const struct pprof_scraper *s, const struct pprof_override *r)
{
    int n_targets = 0, n_kinds = 0;
    for (size_t i = 0; i < s->n_targets; i++)
        n_targets += matches(r, &s->targets[i]);
    for (int k = 0; k < PPROF_KINDS; k++)
        n_kinds += r->kinds[k];
    return n_targets * n_kinds;
}

static int copy_rule(struct pprof_override *r, const struct br_override *rule, struct br_err *err)
{
    r->service = rule->service ? br_strdup(rule->service) : NULL;
    r->target = rule->target ? br_strdup(rule->target) : NULL;
    if ((!rule->service || r->service) && (!rule->target || r->target))
        return 0;
    br_free(r->service);
    br_free(r->target);
    return br_err_set(err, BR_ENOMEM, "out of memory");
}

static void withdraw_rule(struct pprof_scraper *s, uint64_t id)
{
    for (size_t i = s->n_rules; i-- > 0;)
        if (s->rules[i].id == id)
            forget(s, i);
}

static int apply(struct br_overridable *t, const struct br_override *rule, struct br_err *err)
{
    struct pprof_scraper *s = scraper_of(t);
    struct pprof_override r = {rule->id, rule->until_ms, rule->interval_ms, NULL, NULL, {0}};
    if (s->stopping)
        return 0;
    for (int k = 0; k < PPROF_KINDS; k++) {
        const char *name = pprof_kind_name(s->config, (enum pprof_kind)k);
        r.kinds[k] = *name && br_override_has_type(rule, name,
                                               !rule->keep &&
                                                   is_default(s->config, (enum pprof_kind)k));
    }
    int rc = copy_rule(&r, rule, err);
    if (rc)
        return rc;
    withdraw_rule(s, rule->id);
    int n = is_live(s, &r) ? count_jobs(s, &r) : 0;
    if (n > 0 && s->n_rules == BR_OVERRIDES_MAX)
        n = br_err_set(err, BR_EFULL, "more than %d rules at a time", BR_OVERRIDES_MAX);
    if (n > 0) {
        s->rules[s->n_rules++] = r;
    } else {
        br_free(r.service);
        br_free(r.target);
    }
    pprof_overrides_refresh(s, at_once);
    return n;
}

static void withdraw(struct br_overridable *t, uint64_t id)
{
    struct pprof_scraper *s = scraper_of(t);
    if (s->stopping)
        return;
    withdraw_rule(s, id);
    pprof_overrides_refresh(s, at_once);
}

static void list(const struct br_overridable *t, br_collected_fn *fn, void *arg)
{
    static const char *const states[PPROF_RESULTS] = {
        [PPROF_WAITING] = "waiting", [PPROF_OK] = "ok",         [PPROF_EMPTY] = "ok",
        [PPROF_FAILED] = "failing",  [PPROF_IN_USE] = "in use", [PPROF_BUSY] = "busy",
        [PPROF_HELD] = "waiting",    [PPROF_SHED] = "shed",
    };
    const struct pprof_scraper *s = br_container_of(t, struct pprof_scraper, overridable);
    for (size_t i = 0; i < s->n_targets * PPROF_KINDS; i++) {
        const struct pprof_target *target = &s->targets[i / PPROF_KINDS];
        const struct pprof_job *j = &target->jobs[i % PPROF_KINDS];
        if (j->interval_ms)
            fn(&(struct br_collected){.component = s->node->id,
                                      .service = target->service,
                                      .target = target->config->endpoint,
                                      .type = pprof_kind_name(s->config, j->kind),
                                      .interval_ms = j->interval_ms,
                                      .rule = j->rule,
                                      .until_ms = j->until_ms,
                                      .state = states[j->last]},
               arg);
    }
}

const struct br_overridable_ops pprof_overridable_ops = {apply, withdraw, list};
