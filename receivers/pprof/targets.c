/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's targets: from the config to their jobs, and their end. */
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "receivers/pprof/scrape.h"

/* --- Targets ---------------------------------------------------------------------------------- */

static int init_job(struct pprof_job *j, struct pprof_target *t, enum pprof_kind kind,
                    struct br_err *err)
{
    const struct pprof_config *c = t->scraper->config;
    const char *path = pprof_profile_config(c, kind)->path;
    j->target = t;
    j->kind = kind;
    j->path_size = strlen(t->prefix) + strlen(path) + PPROF_PATH_MORE;
    j->path = br_arena_alloc(&t->scraper->arena, j->path_size);
    if (!j->path)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    if (c->delta && pprof_kind_since_start(c, kind) && pprof_profile_config(c, kind)->seconds == 0 &&
        !(j->delta = pprof_delta_new()))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    return 0;
}

/* By either name; the config's map has unique keys, and the one that wins in the Resource is asked
 * first. */
static void find_service(struct pprof_target *t)
{
    static const char *const keys[] = {"service_name", "service.name"};
    t->service = "";
    for (size_t k = 0; k < BR_COUNT(keys) && t->service_len == 0; k++) {
        const struct br_yaml *v = br_yaml_get(t->config->labels, keys[k]);
        if (!v)
            continue;
        t->service = v->text;
        t->service_len = v->len;
    }
}

/* `instance`: what the program is called where the config does not say, as in Prometheus. */
static int init_target(struct pprof_target *t, struct pprof_scraper *s,
                       const struct pprof_target_config *config, struct br_err *err)
{
    struct br_endpoint endpoint;
    t->scraper = s;
    t->config = config;
    find_service(t);
    int rc = br_endpoint_read(config->endpoint, false, &endpoint, err);
    if (rc)
        return rc;
    t->prefix = br_arena_strndup(&s->arena, endpoint.path, strlen(endpoint.path));
    t->origin =
        br_arena_printf(&s->arena, "http%s://%s", endpoint.tls ? "s" : "", endpoint.authority);
    if (!t->prefix || !t->origin)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    const struct br_label instance = {"instance", strlen("instance"), endpoint.authority,
                                      strlen(endpoint.authority)};
    rc = pprof_resource(config->labels, &instance, 1, &s->arena, &t->resource, err);
    for (int i = 0; rc == 0 && i < PPROF_KINDS; i++)
        rc = init_job(&t->jobs[i], t, (enum pprof_kind)i, err);
    return rc;
}

/* This worker's share. */
static int init_targets(struct pprof_scraper *s, struct br_err *err)
{
    const struct pprof_target_config *all = s->config->targets.v;
    const struct br_host *host = s->node->host;
    size_t n_workers = host->n_workers ? host->n_workers : 1;
    size_t n = s->config->targets.n, mine = (n + n_workers - 1 - host->worker) / n_workers;
    s->targets = br_calloc(mine ? mine : 1, sizeof *s->targets);
    if (!s->targets)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    for (size_t i = host->worker; i < n; i += n_workers) {
        int rc = init_target(&s->targets[s->n_targets++], s, &all[i], err);
        if (rc)
            return rc;
    }
    return 0;
}

/* --- Headers ---------------------------------------------------------------------------------- */

static char *basic(struct pprof_scraper *s, const struct pprof_basic_auth *auth)
{
    const char *password = auth->password.text ? auth->password.text : "";
    struct br_str pair = {0}, text = {0};
    br_str_printf(&pair, "%s:%s", auth->username, password);
    br_str_puts(&text, "Basic ");
    br_str_base64(&text, (const uint8_t *)pair.data, pair.len);
    char *value =
        pair.failed || text.failed ? NULL : br_arena_strndup(&s->arena, text.data, text.len);
    br_str_release(&pair);
    br_str_release(&text);
    return value;
}

static int init_headers(struct pprof_scraper *s, struct br_err *err)
{
    const struct pprof_config *c = s->config;
    if (c->basic_auth || c->bearer_token.text) {
        char *value = c->basic_auth ? basic(s, c->basic_auth)
                                    : br_arena_printf(&s->arena, "Bearer %s", c->bearer_token.text);
        if (!value)
            return br_err_set(err, BR_ENOMEM, "out of memory");
        s->headers[s->n_headers++] = (struct br_header){"authorization", value};
    }
    for (size_t i = 0; i < c->headers.n; i++)
        s->headers[s->n_headers++] =
            (struct br_header){c->headers.names[i], c->headers.values[i].text};
    return 0;
}

/* --- The whole -------------------------------------------------------------------------------- */

static void consume(struct br_consumer *self, struct br_item *item)
{
    br_node_forward(br_container_of(self, struct pprof_scraper, next)->node, item);
}

void pprof_scraper_report(struct pprof_scraper *s)
{
    void (*on_idle)(void *) = s->on_idle;
    if (!s->stopping || !on_idle || s->n_reading || !br_list_empty(&s->waiting) ||
        !br_redelivery_idle(s->redelivery))
        return;
    s->on_idle = NULL;
    on_idle(s->on_idle_arg);
}

static void on_kept_end(void *arg)
{
    pprof_scraper_report(arg);
}

static void make_metrics(struct pprof_scraper *s)
{
    static const char *const results[PPROF_RESULTS] = {
        [PPROF_OK] = "ok",         [PPROF_EMPTY] = "empty", [PPROF_FAILED] = "failed",
        [PPROF_IN_USE] = "in_use", [PPROF_BUSY] = "busy",   [PPROF_HELD] = "memory",
        [PPROF_SHED] = "shed",
    };
    br_meter_init(&s->meter, s->node, "scrape", BR_SIGNAL_BIT(BR_PROFILES));
    for (int i = 0; i < PPROF_RESULTS; i++)
        if (results[i])
            s->results[i] = br_node_metric(s->node, BR_COUNTER, "braid_receiver_pprof_scrapes",
                                           "result", results[i]);
}

int pprof_scraper_new(struct br_node *node, struct pprof_reader *reader, struct pprof_scraper **ret,
                      struct br_err *err)
{
    struct pprof_scraper *s = br_calloc(1, sizeof *s);
    if (!s)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    s->node = node;
    s->config = node->config;
    s->reader = reader;
    s->next.consume = consume;
    br_list_init(&s->waiting);
    s->overridable.ops = &pprof_overridable_ops;
    br_arena_init(&s->arena, BR_BUF_MAX);
    make_metrics(s);
    s->redelivery = br_redelivery_new(node, &s->next, false, on_kept_end, s);
    int rc = s->redelivery ? init_headers(s, err) : br_err_set(err, BR_ENOMEM, "out of memory");
    if (rc == 0)
        rc = init_targets(s, err);
    if (rc == 0)
        *ret = s;
    else
        pprof_scraper_free(s);
    return rc;
}

/* So that the targets of one config, and of many hosts that begin together, are not scraped
 * together. */
static uint64_t jitter(struct pprof_job *j)
{
    struct pprof_scraper *s = j->target->scraper;
    double interval_ms = (double)s->config->scrape_interval / 1e6;
    return (uint64_t)(br_host_random(s->node->host) * interval_ms);
}

static void on_parked(struct br_timer *t)
{
    (void)t;
}

/* Parked timers can be armed whatever happens to memory. */
static bool park(struct pprof_scraper *s)
{
    struct br_host *host = s->node->host;
    bool ok = br_host_timer_park(host, &s->rules_end, on_parked) &&
              br_host_timer_park(host, &s->next_piece, on_parked);
    for (size_t i = 0; ok && i < s->n_targets * PPROF_KINDS; i++) {
        struct pprof_job *j = &s->targets[i / PPROF_KINDS].jobs[i % PPROF_KINDS];
        ok = br_host_timer_park(host, &j->beat, on_parked) &&
             br_host_timer_park(host, &j->timeout, on_parked);
    }
    return ok;
}

int pprof_scraper_start(struct pprof_scraper *s, struct br_err *err)
{
    struct br_host *host = s->node->host;
    if (!park(s))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    for (size_t i = 0; i < s->n_targets; i++) {
        struct pprof_target *t = &s->targets[i];
        const struct br_client_config config = {.endpoint = t->config->endpoint,
                                                .tls = &s->config->tls,
                                                .max_connections = PPROF_KINDS,
                                                .log = &s->node->log};
        int rc = host->ops->connect(host, &config, &t->client, err);
        if (rc)
            return rc;
    }
    pprof_overrides_refresh(s, jitter);
    br_overridable_register(&s->overridable, host);
    return 0;
}

static void stop_jobs(struct pprof_scraper *s)
{
    s->stopping = true;
    br_overridable_unregister(&s->overridable);
    pprof_overrides_release(s);
    for (size_t i = 0; i < s->n_targets; i++)
        for (int k = 0; k < PPROF_KINDS && s->targets[i].jobs[k].target; k++)
            pprof_job_stop(&s->targets[i].jobs[k]);
}

void pprof_scraper_stop(struct pprof_scraper *s, void (*on_idle)(void *arg), void *arg)
{
    s->on_idle = on_idle;
    s->on_idle_arg = arg;
    stop_jobs(s);
    pprof_scraper_report(s);
}

void pprof_scraper_free(struct pprof_scraper *s)
{
    if (!s)
        return;
    s->on_idle = NULL;
    stop_jobs(s);
    for (size_t i = 0; i < s->n_targets; i++) {
        br_client_free(s->targets[i].client);
        for (int k = 0; k < PPROF_KINDS; k++) {
            pprof_job_leave(&s->targets[i].jobs[k]);
            pprof_delta_free(s->targets[i].jobs[k].delta);
        }
    }
    pprof_scraper_drop(s);
    br_redelivery_free(s->redelivery);
    br_arena_release(&s->arena);
    br_free(s->targets);
    br_free(s);
}
