/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job is one profile of one target: a timer, and at most one request. Jobs begin at random
 * moments of the first interval and then keep their beat. A scrape that cannot begin is skipped and
 * counted, not made up for.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "net/client.h"
#include "receivers/pprof/delta.h"
#include "receivers/pprof/pprof.h"

#define LOG_EVERY_MS 60000
#define HELD_MAX (64u << 20) /* bytes with the keeper above which nothing is scraped */
#define PATH_MAX_LEN 1024
#define HEADERS_MAX (BR_HEADERS_MAX + 1)
#define NS_PER_MS 1000000

enum result { OK, EMPTY, FAILED, IN_USE, SKIPPED_BUSY, SKIPPED_HELD, RESULTS };

struct target;

struct job {
    struct target *target;
    enum pprof_kind kind;
    struct br_timer beat, timeout;
    uint64_t due_ms; /* the next beat */
    uint64_t timeout_ms;
    bool busy;
    bool cumulative;           /* values since the program began, as they come */
    struct pprof_delta *delta; /* NULL: what comes is sent */
    struct br_exchange exchange;
    char path[PATH_MAX_LEN];
};

struct target {
    struct pprof_scraper *scraper;
    const struct pprof_target_config *config;
    struct br_client *client;
    struct br_addition resource;
    struct br_log_limit log_limit;
    struct job jobs[PPROF_KINDS];
    unsigned n_jobs;
};

struct pprof_scraper {
    struct br_node *node;
    const struct pprof_config *config;
    struct pprof_reader *reader;
    struct br_keeper *keeper;
    struct br_consumer next;
    struct br_arena arena; /* of what lives as long as the scraper */
    struct target *targets;
    size_t n_targets;
    struct br_header headers[HEADERS_MAX];
    size_t n_headers;
    struct br_meter meter;
    double *results[RESULTS];
    bool stopping;
    void (*on_idle)(void *arg);
    void *on_idle_arg;
};

/* As Grafana Alloy names what it scrapes, with Pyroscope's renaming of godeltaprof_*. */
static const struct {
    const char *name;
    bool since_start; /* values count since the program began */
} kinds[PPROF_KINDS] = {
    [PPROF_CPU] = {"process_cpu", false},
    [PPROF_HEAP] = {"memory", true},
    [PPROF_ALLOCS] = {"memory", true},
    [PPROF_GOROUTINE] = {"goroutine", false},
    [PPROF_BLOCK] = {"block", true},
    [PPROF_MUTEX] = {"mutex", true},
    [PPROF_GODELTAPROF_MEMORY] = {"memory", false},
    [PPROF_GODELTAPROF_BLOCK] = {"block", false},
    [PPROF_GODELTAPROF_MUTEX] = {"mutex", false},
};

/* --- One scrape ------------------------------------------------------------------------------- */

static void count(struct job *j, enum result result)
{
    *j->target->scraper->results[result] += 1;
}

static void complain(struct job *j, const char *why)
{
    struct target *t = j->target;
    struct br_node *node = t->scraper->node;
    uint64_t held;
    char more[64] = "";
    if (!br_log_allow(&t->log_limit, br_host_mono_ms(node->host), LOG_EVERY_MS, &held))
        return;
    if (held)
        (void)snprintf(more, sizeof more, " (%llu such messages held back)",
                       (unsigned long long)held);
    br_warn(&node->log, "%s%s: %s%s", t->config->endpoint, j->path, why, more);
}

static void fail(struct job *j, const char *why)
{
    count(j, FAILED);
    complain(j, why);
}

/* Replaces what the program counted since it began by the difference. `*len` is 0 after the first.
 */
static int subtract(struct job *j, const uint8_t **data, size_t *len, struct br_arena *arena,
                    struct br_err *err)
{
    return j->delta ? pprof_delta_take(j->delta, *data, *len, arena, data, len, err) : 0;
}

static int read_profile(struct job *j, const uint8_t *data, size_t len, struct br_item **ret,
                        struct br_err *err)
{
    struct pprof_scraper *s = j->target->scraper;
    struct br_arena arena;
    br_arena_init(&arena, BR_BUF_MAX);
    int rc = subtract(j, &data, &len, &arena, err);
    struct br_profile_source source = {.data = data,
                                       .len = len,
                                       .resource = &j->target->resource,
                                       .pyroscope_name = kinds[j->kind].name,
                                       .start_ns = br_host_unix_ns(s->node->host),
                                       .cumulative = j->cumulative};
    source.end_ns = source.start_ns;
    if (rc == 0 && len > 0)
        rc = pprof_read(s->reader, BR_FORMAT_PPROF, &source, ret, err);
    br_arena_release(&arena);
    return rc;
}

static void take(struct job *j, const struct br_buf *body)
{
    struct pprof_scraper *s = j->target->scraper;
    struct br_buf *plain;
    const uint8_t *data;
    size_t len;
    struct br_item *item = NULL;
    struct br_err err = {0};
    int rc = pprof_unpack(s->reader, body ? body->data : NULL, body ? body->len : 0, &plain, &data,
                          &len, &err);
    if (rc == 0)
        rc = read_profile(j, data, len, &item, &err);
    br_buf_unref(plain);
    if (rc != 0) {
        *s->meter.failed[BR_PROFILES] += 1;
        fail(j, err.text);
        return;
    }
    count(j, item ? OK : EMPTY);
    if (!item)
        return;
    *s->meter.accepted[BR_PROFILES] += item->n_items;
    br_item_received(item);
    br_keeper_send(s->keeper, item);
}

/* Go's "Could not enable CPU profiling: cpu profiling already in use": somebody else looks. */
static bool is_in_use(const struct br_exchange *x)
{
    static const char text[] = "already in use";
    return x->http_status == 500 && x->response &&
           memmem(x->response->data, x->response->len, text, sizeof text - 1) != NULL;
}

static void on_timeout(struct br_timer *t);

static void end(struct job *j)
{
    j->busy = false;
    (void)br_host_timer_park(j->target->scraper->node->host, &j->timeout, on_timeout);
}

static void on_done(struct br_exchange *x)
{
    struct job *j = x->user;
    char why[256];
    end(j);
    if (j->target->scraper->stopping)
        return;
    if (x->error) {
        fail(j, x->error_text);
    } else if (is_in_use(x)) {
        count(j, IN_USE);
    } else if (x->http_status != 200) {
        (void)snprintf(why, sizeof why, "HTTP %u %.*s", x->http_status,
                       x->response ? (int)(x->response->len < 120 ? x->response->len : 120) : 0,
                       x->response ? (const char *)x->response->data : "");
        why[strcspn(why, "\r\n")] = '\0';
        fail(j, why);
    } else {
        take(j, x->response);
    }
}

static void on_timeout(struct br_timer *t)
{
    struct job *j = br_container_of(t, struct job, timeout);
    char why[64];
    br_client_cancel(j->target->client, &j->exchange);
    end(j);
    (void)snprintf(why, sizeof why, "no answer in %llu ms", (unsigned long long)j->timeout_ms);
    fail(j, why);
}

/* Begins a scrape now, unless there is a reason not to. */
static void scrape(struct job *j)
{
    struct pprof_scraper *s = j->target->scraper;
    struct br_host *host = s->node->host;
    if (j->busy) {
        count(j, SKIPPED_BUSY);
        complain(j, "the scrape before is still under way");
        return;
    }
    if (br_host_over_limit(host) || br_keeper_bytes(s->keeper) > HELD_MAX) {
        count(j, SKIPPED_HELD);
        return;
    }
    j->busy = true;
    j->exchange = (struct br_exchange){.method = "GET",
                                       .path = j->path,
                                       .user_agent = "Braid/" BR_VERSION,
                                       .headers = s->headers,
                                       .n_headers = s->n_headers,
                                       .max_response = (size_t)s->config->max_profile_size,
                                       .on_done = on_done,
                                       .user = j};
    (void)br_host_timer(host, &j->timeout, j->timeout_ms, on_timeout);
    br_client_send(j->target->client, &j->exchange);
}

static void on_beat(struct br_timer *t)
{
    struct job *j = br_container_of(t, struct job, beat);
    struct pprof_scraper *s = j->target->scraper;
    uint64_t now = br_host_mono_ms(s->node->host);
    uint64_t interval = s->config->scrape_interval / NS_PER_MS;
    j->due_ms += interval;
    if (j->due_ms <= now)
        j->due_ms = now + interval;
    (void)br_host_timer(s->node->host, &j->beat, j->due_ms - now, on_beat);
    scrape(j);
}

/* --- Targets ---------------------------------------------------------------------------------- */

static int init_job(struct job *j, struct target *t, enum pprof_kind kind, const char *prefix,
                    struct br_err *err)
{
    const struct pprof_config *c = t->scraper->config;
    const struct pprof_profile_config *p = pprof_profile_config(c, kind);
    int64_t seconds = p->seconds;
    if (kind == PPROF_CPU && seconds == 0)
        seconds = (int64_t)(c->scrape_interval / NS_PER_MS / 1000) - 1;
    *j = (struct job){.target = t,
                      .kind = kind,
                      .timeout_ms = c->scrape_timeout / NS_PER_MS + (uint64_t)seconds * 1000};
    int n = seconds > 0 ? snprintf(j->path, sizeof j->path, "%s%s%cseconds=%lld", prefix, p->path,
                                   strchr(p->path, '?') ? '&' : '?', (long long)seconds)
                        : snprintf(j->path, sizeof j->path, "%s%s", prefix, p->path);
    if (n < 0 || (size_t)n >= sizeof j->path)
        return br_err_set(err, BR_EINVAL, "the path of a profile is too long");
    bool since_start = kinds[kind].since_start && seconds == 0;
    j->cumulative = since_start && !c->delta;
    if (since_start && c->delta)
        j->delta = pprof_delta_new();
    return since_start && c->delta && !j->delta ? br_err_set(err, BR_ENOMEM, "out of memory") : 0;
}

/* What the program is called where the config does not say, as in Prometheus. */
static int init_target(struct target *t, struct pprof_scraper *s,
                       const struct pprof_target_config *config, struct br_err *err)
{
    struct br_endpoint endpoint;
    t->scraper = s;
    t->config = config;
    int rc = br_endpoint_read(config->endpoint, false, &endpoint, err);
    if (rc)
        return rc;
    const struct br_label instance = {"instance", strlen("instance"), endpoint.authority,
                                      strlen(endpoint.authority)};
    rc = pprof_resource(config->labels, &instance, 1, &s->arena, &t->resource, err);
    for (int i = 0; rc == 0 && i < PPROF_KINDS; i++)
        if (pprof_profile_config(s->config, (enum pprof_kind)i)->enabled)
            rc = init_job(&t->jobs[t->n_jobs++], t, (enum pprof_kind)i, endpoint.path, err);
    return rc;
}

/* This worker's share. */
static int init_targets(struct pprof_scraper *s, struct br_err *err)
{
    const struct pprof_target_config *all = s->config->targets.v;
    const struct br_host *host = s->node->host;
    size_t n_workers = host->n_workers ? host->n_workers : 1;
    s->targets = br_arena_calloc(&s->arena, s->config->targets.n + 1, sizeof *s->targets);
    if (!s->targets)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    for (size_t i = host->worker; i < s->config->targets.n; i += n_workers) {
        int rc = init_target(&s->targets[s->n_targets++], s, &all[i], err);
        if (rc)
            return rc;
    }
    return 0;
}

static int init_headers(struct pprof_scraper *s, struct br_err *err)
{
    const struct pprof_config *c = s->config;
    char *value = NULL;
    if (c->basic_auth) {
        const char *password = c->basic_auth->password.text;
        struct br_str text = {0};
        char *pair =
            br_arena_printf(&s->arena, "%s:%s", c->basic_auth->username, password ? password : "");
        br_str_puts(&text, "Basic ");
        if (pair)
            br_str_base64(&text, (const uint8_t *)pair, strlen(pair));
        if (pair && !text.failed)
            value = br_arena_strndup(&s->arena, text.data, text.len);
        br_str_release(&text);
    } else if (c->bearer_token.text) {
        value = br_arena_printf(&s->arena, "Bearer %s", c->bearer_token.text);
    }
    if (!value && (c->basic_auth || c->bearer_token.text))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    if (value)
        s->headers[s->n_headers++] = (struct br_header){"authorization", value};
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

static void report_idle(struct pprof_scraper *s)
{
    void (*on_idle)(void *) = s->on_idle;
    if (!s->stopping || !on_idle || !br_keeper_idle(s->keeper))
        return;
    s->on_idle = NULL;
    on_idle(s->on_idle_arg);
}

static void on_kept_end(void *arg)
{
    report_idle(arg);
}

static void make_metrics(struct pprof_scraper *s)
{
    static const char *const results[RESULTS] = {
        [OK] = "ok",         [EMPTY] = "empty",       [FAILED] = "failed",
        [IN_USE] = "in_use", [SKIPPED_BUSY] = "busy", [SKIPPED_HELD] = "memory",
    };
    br_meter_init(&s->meter, s->node, "scrape", BR_SIGNAL_BIT(BR_PROFILES));
    for (int i = 0; i < RESULTS; i++)
        s->results[i] = br_node_metric(s->node, BR_COUNTER, "braid_receiver_pprof_scrapes",
                                       "result", results[i]);
}

struct pprof_scraper *pprof_scraper_new(struct br_node *node, struct pprof_reader *reader,
                                        struct br_err *err)
{
    struct pprof_scraper *s = br_calloc(1, sizeof *s);
    if (!s) {
        br_err_set(err, BR_ENOMEM, "out of memory");
        return NULL;
    }
    s->node = node;
    s->config = node->config;
    s->reader = reader;
    s->next.consume = consume;
    br_arena_init(&s->arena, BR_BUF_MAX);
    make_metrics(s);
    s->keeper = br_keeper_new(node, &s->next, false, on_kept_end, s);
    int rc = s->keeper ? init_headers(s, err) : br_err_set(err, BR_ENOMEM, "out of memory");
    if (rc == 0)
        rc = init_targets(s, err);
    if (rc == 0)
        return s;
    pprof_scraper_free(s);
    return NULL;
}

static int start_job(struct job *j, struct br_err *err)
{
    struct pprof_scraper *s = j->target->scraper;
    struct br_host *host = s->node->host;
    uint64_t interval = s->config->scrape_interval / NS_PER_MS;
    uint64_t delay = (uint64_t)(br_host_random(host) * (double)interval);
    /* Parked timers can be armed whatever happens to memory. */
    if (!br_host_timer_park(host, &j->beat, on_beat) ||
        !br_host_timer_park(host, &j->timeout, on_timeout))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    j->due_ms = br_host_mono_ms(host) + delay;
    (void)br_host_timer(host, &j->beat, delay, on_beat);
    return 0;
}

int pprof_scraper_start(struct pprof_scraper *s, struct br_err *err)
{
    struct br_host *host = s->node->host;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->n_targets; i++) {
        struct target *t = &s->targets[i];
        const struct br_client_config config = {.endpoint = t->config->endpoint,
                                                .tls = &s->config->tls,
                                                .max_connections = t->n_jobs ? t->n_jobs : 1,
                                                .log = &s->node->log};
        rc = host->ops->connect(host, &config, &t->client, err);
        for (unsigned k = 0; rc == 0 && k < t->n_jobs; k++)
            rc = start_job(&t->jobs[k], err);
    }
    return rc;
}

static void stop_jobs(struct pprof_scraper *s)
{
    struct br_host *host = s->node->host;
    s->stopping = true;
    for (size_t i = 0; i < s->n_targets; i++) {
        struct target *t = &s->targets[i];
        for (unsigned k = 0; k < t->n_jobs; k++) {
            struct job *j = &t->jobs[k];
            if (j->busy)
                br_client_cancel(t->client, &j->exchange);
            j->busy = false;
            br_host_timer_stop(host, &j->beat);
            br_host_timer_stop(host, &j->timeout);
        }
    }
}

void pprof_scraper_stop(struct pprof_scraper *s, void (*on_idle)(void *arg), void *arg)
{
    s->on_idle = on_idle;
    s->on_idle_arg = arg;
    stop_jobs(s);
    report_idle(s);
}

void pprof_scraper_free(struct pprof_scraper *s)
{
    if (!s)
        return;
    s->on_idle = NULL;
    stop_jobs(s);
    for (size_t i = 0; i < s->n_targets; i++) {
        br_client_free(s->targets[i].client);
        for (unsigned k = 0; k < s->targets[i].n_jobs; k++)
            pprof_delta_free(s->targets[i].jobs[k].delta);
    }
    br_keeper_free(s->keeper);
    br_arena_release(&s->arena);
    br_free(s);
}
