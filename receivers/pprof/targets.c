/* SPDX-License-Identifier: Apache-2.0 */
/* Creates and frees the targets of a worker and their jobs. */
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "receivers/pprof/scrape.h"

/* --- Targets ---------------------------------------------------------------------------------- */

static int targets_init_job(struct pprof_job *job, struct pprof_target *target,
                            enum pprof_kind kind, struct br_err *err)
{
    const struct pprof_config *config = target->scraper->config;
    const char *path = pprof_profile_config(config, kind)->path;
    job->target = target;
    job->kind = kind;
    job->path_size = strlen(target->prefix) + strlen(path) + PPROF_PATH_MORE;
    job->path = br_arena_alloc(&target->scraper->arena, job->path_size);
    if (!job->path)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    if (config->delta && pprof_kind_is_total(config, kind) &&
        pprof_profile_config(config, kind)->seconds == 0 && !(job->delta = pprof_delta_new()))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    return 0;
}

/* Finds the service name in the labels. "service_name" takes precedence over "service.name", as
 * in pprof_resource. */
static void targets_find_service(struct pprof_target *target)
{
    static const char *const keys[] = {"service_name", "service.name"};
    target->service = "";
    for (size_t k = 0; k < BR_COUNT(keys) && target->service_len == 0; k++) {
        const struct br_yaml *node = br_yaml_get(target->config->labels, keys[k]);
        if (!node)
            continue;
        target->service = node->text;
        target->service_len = node->len;
    }
}

/* Initialises a target. The label `instance` identifies the program unless the config contains
 * that label, as in Prometheus. */
static int targets_init_one(struct pprof_target *target, struct pprof_scraper *scraper,
                            const struct pprof_target_config *config, struct br_err *err)
{
    struct br_endpoint endpoint;
    target->scraper = scraper;
    target->config = config;
    targets_find_service(target);
    int rc = br_endpoint_read(config->endpoint, false, &endpoint, err);
    if (rc)
        return rc;
    target->prefix = br_arena_strndup(&scraper->arena, endpoint.path, strlen(endpoint.path));
    target->origin = br_arena_printf(&scraper->arena, "http%s://%s", endpoint.tls ? "s" : "",
                                     endpoint.authority);
    if (!target->prefix || !target->origin)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    const struct br_label instance = {"instance", strlen("instance"), endpoint.authority,
                                      strlen(endpoint.authority)};
    rc = pprof_resource(config->labels, &instance, 1, &scraper->arena, &target->resource, err);
    for (int i = 0; rc == 0 && i < PPROF_KINDS; i++)
        rc = targets_init_job(&target->jobs[i], target, (enum pprof_kind)i, err);
    return rc;
}

/* Initialises the targets that this worker scrapes. */
static int targets_init_all(struct pprof_scraper *scraper, struct br_err *err)
{
    const struct pprof_target_config *all = scraper->config->targets.items;
    const struct br_host *host = scraper->node->host;
    size_t mine = br_host_share(host, scraper->config->targets.count);
    scraper->targets = br_calloc(mine ? mine : 1, sizeof *scraper->targets);
    if (!scraper->targets)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    for (size_t i = 0; i < mine; i++) {
        int rc = targets_init_one(&scraper->targets[scraper->n_targets++], scraper,
                                  &all[host->worker + i * host->n_workers], err);
        if (rc)
            return rc;
    }
    return 0;
}

/* --- Headers ---------------------------------------------------------------------------------- */

static char *targets_basic(struct pprof_scraper *scraper, const struct pprof_basic_auth *auth)
{
    const char *password = auth->password.text ? auth->password.text : "";
    struct br_str pair = {0}, text = {0};
    br_str_printf(&pair, "%s:%s", auth->username, password);
    br_str_puts(&text, "Basic ");
    br_str_base64(&text, (const uint8_t *)pair.data, pair.len);
    char *value =
        pair.failed || text.failed ? NULL : br_arena_strndup(&scraper->arena, text.data, text.len);
    br_str_release(&pair);
    br_str_release(&text);
    return value;
}

static int targets_init_headers(struct pprof_scraper *scraper, struct br_err *err)
{
    const struct pprof_config *config = scraper->config;
    if (config->basic_auth || config->bearer_token.text) {
        char *value = config->basic_auth ? targets_basic(scraper, config->basic_auth)
                                         : br_arena_printf(&scraper->arena, "Bearer %s",
                                                           config->bearer_token.text);
        if (!value)
            return br_err_set(err, BR_ENOMEM, "out of memory");
        scraper->headers[scraper->n_headers++] = (struct br_header){"authorization", value};
    }
    for (size_t i = 0; i < config->headers.count; i++)
        scraper->headers[scraper->n_headers++] =
            (struct br_header){config->headers.names[i], config->headers.values[i].text};
    return 0;
}

/* --- Life cycle ------------------------------------------------------------------------------- */

static void targets_consume(struct br_consumer *self, struct br_item *item)
{
    br_node_forward(br_container_of(self, struct pprof_scraper, next)->node, item);
}

void pprof_scraper_report(struct pprof_scraper *scraper)
{
    void (*on_idle)(void *) = scraper->on_idle;
    if (!scraper->stopping || !on_idle || scraper->n_reading || !br_list_empty(&scraper->waiting) ||
        scraper->sent.n_held > 0)
        return;
    scraper->on_idle = NULL;
    on_idle(scraper->on_idle_arg);
}

static void targets_on_delivered(void *arg)
{
    pprof_scraper_report(arg);
}

static void targets_make_metrics(struct pprof_scraper *scraper)
{
    static const char *const results[PPROF_RESULTS] = {
        [PPROF_OK] = "ok",         [PPROF_EMPTY] = "empty", [PPROF_FAILED] = "failed",
        [PPROF_IN_USE] = "in_use", [PPROF_BUSY] = "busy",   [PPROF_LOW_MEMORY] = "memory",
        [PPROF_SHED] = "shed",
    };
    br_meter_init(&scraper->meter, scraper->node, "scrape", BR_SIGNAL_BIT(BR_PROFILES));
    for (int i = 0; i < PPROF_RESULTS; i++)
        if (results[i])
            scraper->results[i] = br_node_metric(
                scraper->node, BR_COUNTER, "braid_receiver_pprof_scrapes", "result", results[i]);
}

int pprof_scraper_new(struct br_node *node, struct pprof_reader *reader, struct pprof_scraper **ret,
                      struct br_err *err)
{
    struct pprof_scraper *scraper = br_calloc(1, sizeof *scraper);
    if (!scraper)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    scraper->node = node;
    scraper->config = node->config;
    scraper->reader = reader;
    scraper->next.consume = targets_consume;
    br_list_init(&scraper->waiting);
    scraper->overridable.ops = &pprof_overridable_ops;
    br_arena_init(&scraper->arena, BR_BUF_MAX);
    targets_make_metrics(scraper);
    br_hold_init_for_node(&scraper->sent, node, &scraper->next, false, targets_on_delivered,
                          scraper);
    int rc = targets_init_headers(scraper, err);
    if (rc == 0)
        rc = targets_init_all(scraper, err);
    if (rc == 0)
        *ret = scraper;
    else
        pprof_scraper_free(scraper);
    return rc;
}

/* Returns a random delay in milliseconds, shorter than scrape_interval. With random delays, the
 * targets of one config are not all scraped at the same time, even by hosts that were started at
 * the same time. */
static uint64_t targets_jitter(struct pprof_job *job)
{
    struct pprof_scraper *scraper = job->target->scraper;
    double interval_ms = (double)scraper->config->scrape_interval / 1e6;
    return (uint64_t)(br_host_random(scraper->node->host) * interval_ms);
}

static void targets_on_parked(struct br_timer *timer)
{
    (void)timer;
}

/* Allocates the timers of all jobs without starting them, because starting such a timer later does
 * not allocate memory. */
static bool targets_park(struct pprof_scraper *scraper)
{
    struct br_host *host = scraper->node->host;
    bool ok = br_host_timer_park(host, &scraper->overrides_end, targets_on_parked) &&
              br_host_timer_park(host, &scraper->next_piece, targets_on_parked);
    for (size_t i = 0; ok && i < scraper->n_targets * PPROF_KINDS; i++) {
        struct pprof_job *j = &scraper->targets[i / PPROF_KINDS].jobs[i % PPROF_KINDS];
        ok = br_host_timer_park(host, &j->schedule, targets_on_parked) &&
             br_host_timer_park(host, &j->timeout, targets_on_parked);
    }
    return ok;
}

int pprof_scraper_start(struct pprof_scraper *scraper, struct br_err *err)
{
    struct br_host *host = scraper->node->host;
    if (!targets_park(scraper))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    for (size_t i = 0; i < scraper->n_targets; i++) {
        struct pprof_target *target = &scraper->targets[i];
        const struct br_client_config config = {.endpoint = target->config->endpoint,
                                                .tls = &scraper->config->tls,
                                                .proxy_url = scraper->config->proxy_url.text,
                                                .max_connections = PPROF_KINDS,
                                                .log = &scraper->node->log};
        int rc = host->ops->connect(host, &config, &target->client, err);
        if (rc)
            return rc;
    }
    pprof_overrides_refresh(scraper, targets_jitter);
    br_overridable_register(&scraper->overridable, host);
    return 0;
}

static void targets_stop_jobs(struct pprof_scraper *scraper)
{
    scraper->stopping = true;
    br_overridable_unregister(&scraper->overridable);
    pprof_overrides_release(scraper);
    for (size_t i = 0; i < scraper->n_targets; i++)
        for (int k = 0; k < PPROF_KINDS && scraper->targets[i].jobs[k].target; k++)
            pprof_job_stop(&scraper->targets[i].jobs[k]);
}

void pprof_scraper_stop(struct pprof_scraper *scraper, void (*on_idle)(void *arg), void *arg)
{
    scraper->on_idle = on_idle;
    scraper->on_idle_arg = arg;
    targets_stop_jobs(scraper);
    pprof_scraper_report(scraper);
}

void pprof_scraper_free(struct pprof_scraper *scraper)
{
    if (!scraper)
        return;
    scraper->on_idle = NULL;
    targets_stop_jobs(scraper);
    for (size_t i = 0; i < scraper->n_targets; i++) {
        br_client_free(scraper->targets[i].client);
        for (int k = 0; k < PPROF_KINDS; k++) {
            pprof_job_cancel_reading(&scraper->targets[i].jobs[k]);
            pprof_delta_free(scraper->targets[i].jobs[k].delta);
        }
    }
    pprof_scraper_drop(scraper);
    br_hold_release(&scraper->sent);
    br_arena_release(&scraper->arena);
    br_free(scraper->targets);
    br_free(scraper);
}
