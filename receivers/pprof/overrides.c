/* SPDX-License-Identifier: Apache-2.0 */
/* Overrides change at run time which scrapes run, and their intervals. */
#include <string.h>

#include "base/mem.h"
#include "receivers/pprof/scrape.h"

#define NS_PER_MS 1000000

static struct pprof_scraper *overrides_scraper_of(struct br_overridable *overridable)
{
    return br_container_of(overridable, struct pprof_scraper, overridable);
}

static bool overrides_matches(const struct pprof_override *override,
                              const struct pprof_target *target)
{
    bool service = !override->service ||
                   (strlen(override->service) == target->service_len &&
                    memcmp(override->service, target->service, target->service_len) == 0);
    return service &&
           (!override->target || strcmp(override->target, target->config->endpoint) == 0);
}

static bool overrides_is_live(const struct pprof_scraper *scraper,
                              const struct pprof_override *override)
{
    return override->until_ms > br_host_mono_ms(scraper->node->host);
}

/* --- Intervals of jobs ------------------------------------------------------------------------ */

static uint64_t overrides_no_delay(struct pprof_job *job)
{
    (void)job;
    return 0;
}

struct job_schedule {
    uint64_t interval_ms, override, until_ms;
};

/* Applies the interval of `override`, or that of the config if `override` is NULL, to the
 * schedule of a job. An interval that is not shorter than `schedule->interval_ms` is ignored. */
static void overrides_apply_interval(const struct pprof_config *config, int kind,
                                     struct job_schedule *schedule,
                                     const struct pprof_override *override)
{
    uint64_t shortest = pprof_job_shortest_ms(config, (enum pprof_kind)kind);
    uint64_t interval_ms = override ? override->interval_ms : 0;
    if (interval_ms == 0)
        interval_ms = config->scrape_interval / NS_PER_MS;
    if (interval_ms < shortest)
        interval_ms = shortest;
    if (schedule->interval_ms && schedule->interval_ms <= interval_ms)
        return;
    schedule->interval_ms = interval_ms;
    schedule->override = override ? override->id : 0;
    schedule->until_ms = override ? override->until_ms : 0;
}

static void overrides_refresh_target(struct pprof_scraper *scraper, struct pprof_target *target,
                                     uint64_t (*delay_ms)(struct pprof_job *j))
{
    struct job_schedule schedule[PPROF_KINDS] = {0};
    for (int k = 0; k < PPROF_KINDS; k++)
        if (!target->config->on_demand &&
            pprof_profile_config(scraper->config, (enum pprof_kind)k)->enabled)
            overrides_apply_interval(scraper->config, k, &schedule[k], NULL);
    for (size_t i = 0; i < scraper->n_overrides; i++) {
        if (!overrides_matches(&scraper->overrides[i], target))
            continue;
        for (int k = 0; k < PPROF_KINDS; k++)
            if (scraper->overrides[i].kinds[k])
                overrides_apply_interval(scraper->config, k, &schedule[k], &scraper->overrides[i]);
    }
    for (int k = 0; k < PPROF_KINDS; k++) {
        struct pprof_job *j = &target->jobs[k];
        bool sooner = schedule[k].interval_ms &&
                      (!j->interval_ms || schedule[k].interval_ms < j->interval_ms);
        j->override = schedule[k].override;
        j->until_ms = schedule[k].until_ms;
        if (schedule[k].interval_ms != j->interval_ms)
            pprof_job_set(j, schedule[k].interval_ms, sooner ? delay_ms(j) : UINT32_MAX);
    }
}

static void overrides_remove(struct pprof_scraper *scraper, size_t index)
{
    br_free(scraper->overrides[index].service);
    br_free(scraper->overrides[index].target);
    scraper->overrides[index] = scraper->overrides[--scraper->n_overrides];
}

static void overrides_on_end(struct br_timer *timer)
{
    pprof_overrides_refresh(br_container_of(timer, struct pprof_scraper, overrides_end),
                            overrides_no_delay);
}

void pprof_overrides_refresh(struct pprof_scraper *scraper,
                             uint64_t (*delay_ms)(struct pprof_job *j))
{
    struct br_host *host = scraper->node->host;
    uint64_t now = br_host_mono_ms(host), next = UINT64_MAX;
    for (size_t i = scraper->n_overrides; i-- > 0;) {
        if (!overrides_is_live(scraper, &scraper->overrides[i]))
            overrides_remove(scraper, i);
        else if (scraper->overrides[i].until_ms < next)
            next = scraper->overrides[i].until_ms;
    }
    if (next == UINT64_MAX)
        (void)br_host_timer_park(host, &scraper->overrides_end, overrides_on_end);
    else
        (void)br_host_timer(host, &scraper->overrides_end, next - now, overrides_on_end);
    for (size_t i = 0; i < scraper->n_targets; i++)
        overrides_refresh_target(scraper, &scraper->targets[i], delay_ms);
}

void pprof_overrides_release(struct pprof_scraper *scraper)
{
    while (scraper->n_overrides > 0)
        overrides_remove(scraper, scraper->n_overrides - 1);
    br_host_timer_stop(scraper->node->host, &scraper->overrides_end);
}

/* --- br_overridable --------------------------------------------------------------------------- */

/* Returns true if an override that does not name any kind of profile applies to `kind`. An
 * override without kinds applies to all kinds that the config enables. If the config enables no
 * kind, the override applies to the CPU profile. */
static bool overrides_is_default(const struct pprof_config *config, enum pprof_kind kind)
{
    for (int k = 0; k < PPROF_KINDS; k++)
        if (pprof_profile_config(config, (enum pprof_kind)k)->enabled)
            return pprof_profile_config(config, kind)->enabled;
    return kind == PPROF_CPU;
}

/* Returns the number of jobs to which an override applies. */
static int overrides_count_jobs(const struct pprof_scraper *scraper,
                                const struct pprof_override *override)
{
    int n_targets = 0, n_kinds = 0;
    for (size_t i = 0; i < scraper->n_targets; i++)
        n_targets += overrides_matches(override, &scraper->targets[i]);
    for (int k = 0; k < PPROF_KINDS; k++)
        n_kinds += override->kinds[k];
    return n_targets * n_kinds;
}

static int overrides_copy_override(struct pprof_override *copy, const struct br_override *override,
                                   struct br_err *err)
{
    copy->service = override->service ? br_strdup(override->service) : NULL;
    copy->target = override->target ? br_strdup(override->target) : NULL;
    if ((!override->service || copy->service) && (!override->target || copy->target))
        return 0;
    br_free(copy->service);
    br_free(copy->target);
    return br_err_set(err, BR_ENOMEM, "out of memory");
}

static void overrides_withdraw_override(struct pprof_scraper *scraper, uint64_t id)
{
    for (size_t i = scraper->n_overrides; i-- > 0;)
        if (scraper->overrides[i].id == id)
            overrides_remove(scraper, i);
}

static int overrides_apply(struct br_overridable *overridable, const struct br_override *override,
                           struct br_err *err)
{
    struct pprof_scraper *scraper = overrides_scraper_of(overridable);
    struct pprof_override copy = {
        override->id, override->until_ms, override->interval_ms, NULL, NULL, {0}};
    if (scraper->stopping)
        return 0;
    for (int k = 0; k < PPROF_KINDS; k++) {
        const char *name = pprof_kind_name(scraper->config, (enum pprof_kind)k);
        copy.kinds[k] = *name && br_override_has_type(
                                     override, name,
                                     !override->keep &&
                                         overrides_is_default(scraper->config, (enum pprof_kind)k));
    }
    int rc = overrides_copy_override(&copy, override, err);
    if (rc)
        return rc;
    overrides_withdraw_override(scraper, override->id);
    int n = overrides_is_live(scraper, &copy) ? overrides_count_jobs(scraper, &copy) : 0;
    if (n > 0 && scraper->n_overrides == BR_OVERRIDES_MAX)
        n = br_err_set(err, BR_EFULL, "more than %d overrides at a time", BR_OVERRIDES_MAX);
    if (n > 0) {
        scraper->overrides[scraper->n_overrides++] = copy;
    } else {
        br_free(copy.service);
        br_free(copy.target);
    }
    pprof_overrides_refresh(scraper, overrides_no_delay);
    return n;
}

static void overrides_withdraw(struct br_overridable *overridable, uint64_t id)
{
    struct pprof_scraper *scraper = overrides_scraper_of(overridable);
    if (scraper->stopping)
        return;
    overrides_withdraw_override(scraper, id);
    pprof_overrides_refresh(scraper, overrides_no_delay);
}

static void overrides_list(const struct br_overridable *overridable, br_collected_fn *fn, void *arg)
{
    static const char *const states[PPROF_RESULTS] = {
        [PPROF_WAITING] = "waiting",    [PPROF_OK] = "ok",         [PPROF_EMPTY] = "ok",
        [PPROF_FAILED] = "failing",     [PPROF_IN_USE] = "in use", [PPROF_BUSY] = "busy",
        [PPROF_LOW_MEMORY] = "waiting", [PPROF_SHED] = "shed",
    };
    const struct pprof_scraper *scraper =
        br_container_of(overridable, struct pprof_scraper, overridable);
    for (size_t i = 0; i < scraper->n_targets * PPROF_KINDS; i++) {
        const struct pprof_target *target = &scraper->targets[i / PPROF_KINDS];
        const struct pprof_job *j = &target->jobs[i % PPROF_KINDS];
        if (j->interval_ms)
            fn(&(struct br_collected){.component = scraper->node->id,
                                      .service = target->service,
                                      .target = target->config->endpoint,
                                      .type = pprof_kind_name(scraper->config, j->kind),
                                      .interval_ms = j->interval_ms,
                                      .override = j->override,
                                      .until_ms = j->until_ms,
                                      .state = states[j->last]},
               arg);
    }
}

const struct br_overridable_ops pprof_overridable_ops = {overrides_apply, overrides_withdraw,
                                                         overrides_list};
