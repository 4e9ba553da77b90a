/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pyroscope exporter: profiles as pprof, to the push API of one Pyroscope or several. Source:
 * what grafana/pyroscope's distributor and its validation take.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/str.h"
#include "exporters/pyroscope/labels.h"
#include "exporters/pyroscope/push.h"
#include "exporters/pyroscope/times.h"
#include "exporters/pyroscope/writing.h"
#include "net/client.h"

#define ENDPOINTS_MAX 16
#define LOG_EVERY_MS 60000
#define NS_PER_MS 1000000u
/* What the pprofs of an item take, of which each needs its own tables and labels: so many times the
 * item, but at least so many bytes. */
#define ITEM_GROWTH 4
#define ITEM_BYTES ((size_t)64 << 20)

struct basic_auth {
    const char *username;
    struct br_secret password;
};

struct limits {
    uint64_t max_age, max_ahead;
    int64_t max_profile_size, max_samples, max_request_size, max_request_profiles;
};

#define APART_BYTES (64u << 20) /* that an endpoint which fails is behind the others, of each worker */

struct config {
    const char *endpoint;
    struct br_strings endpoints;
    const char *tenant, *tenant_metadata;
    struct br_strings metadata_keys; /* tenant_metadata, as a list */
    struct basic_auth *basic_auth;
    struct br_secret bearer_token;
    struct br_headers headers;
    struct br_tls_config tls;
    int compression;
    int64_t max_conns_per_host;
    uint64_t idle_conn_timeout;
    struct pyroscope_label_config labels;
    struct limits limits;
    struct br_exporter_config common;
};

/* Why profiles are dropped before they are sent. */
enum reason { TOO_OLD, TOO_NEW, TOO_LARGE, REASONS };
static const char *const reasons[] = {"too_old", "too_new", "too_large"};

struct state {
    struct br_pprof_writer *writer;
    struct pyroscope_labels *labels;
    struct pyroscope_times *times;
    struct br_list writings; /* of large items, in threads */
    struct pyroscope_push *push[ENDPOINTS_MAX];
    size_t n_push;
    struct br_fanout *fanout; /* NULL: there is one endpoint */
    char *authorization;
    struct br_log_limit limit[REASONS];
};

static const char *const compressions[] = {"gzip", "none", NULL};

static const struct br_option basic_auth_options[] = {
    BR_STRING(struct basic_auth, username, "", "user, for Grafana Cloud the number of the stack"),
    BR_SECRET(struct basic_auth, password, "password or token"),
    BR_OPT_END,
};

static const struct br_option limits_options[] = {
    BR_DURATION(struct limits, max_age, "1h", "older profiles are dropped; 0: none are"),
    BR_DURATION(struct limits, max_ahead, "10m", "profiles of the future are dropped; 0: none are"),
    BR_INT(struct limits, max_profile_size, 4 << 20, 0, BR_BUF_MAX / 2,
           "bytes of a pprof, plain; larger ones are divided; 0: no limit"),
    BR_INT(struct limits, max_samples, 16000, 0, UINT32_MAX, "samples of a pprof, likewise"),
    BR_INT(struct limits, max_request_size, 4 << 20, 1, BR_BUF_MAX / 2,
           "bytes of a request, plain, unless one profile has more"),
    BR_INT(struct limits, max_request_profiles, 64, 1, 4096, "profiles of a request"),
    BR_OPT_END,
};

static const struct br_option options[] = {
    BR_STRING(struct config, endpoint, NULL, "URL of Pyroscope; the API's path is added"),
    BR_STRINGS(struct config, endpoints, "several, each of which gets everything"),
    BR_STRING(struct config, tenant, NULL, "X-Scope-OrgID"),
    BR_STRING(struct config, tenant_metadata, NULL,
              "client metadata that says the tenant; `tenant` where there is none"),
    BR_PRESENT(struct config, basic_auth, struct basic_auth, basic_auth_options,
               "HTTP's Basic authentication"),
    BR_SECRET(struct config, bearer_token, "token of `Authorization: Bearer`"),
    BR_HEADERS(struct config, headers, "headers of every request"),
    BR_STRUCT(struct config, tls, br_tls_client_options, "TLS"),
    BR_ENUM(struct config, compression, "gzip", compressions, "of requests"),
    BR_INT(struct config, max_conns_per_host, 0, 0, 10000, "connections at once; 0: 100"),
    BR_DURATION(struct config, idle_conn_timeout, "90s", "close unused connections after it"),
    BR_STRUCT(struct config, labels, pyroscope_label_options, "labels of the series"),
    BR_STRUCT(struct config, limits, limits_options, "what Pyroscope would refuse"),
    BR_EXPORTER_OPTIONS(struct config, common, "30s"),
    BR_OPT_END,
};

/* --- Config ---------------------------------------------------------------------------------- */

static void check_url(const char *url, const struct br_yaml *node, const char *path,
                      struct br_errs *errs)
{
    struct br_endpoint endpoint;
    struct br_err err = {0};
    if (br_endpoint_read(url, false, &endpoint, &err))
        br_errs_add(errs, node, path, "%s", err.text);
}

static void check_endpoints(const struct config *c, const struct br_yaml *node, const char *path,
                            struct br_errs *errs)
{
    const struct br_yaml *list = br_yaml_get(node, "endpoints");
    char at[256];
    if (!c->endpoint && !c->endpoints.n)
        br_errs_add(errs, node, path, "endpoint, or endpoints, is required");
    if (c->endpoint && c->endpoints.n)
        br_errs_add(errs, list, path, "endpoint and endpoints are both given; keep one");
    if (c->endpoints.n > ENDPOINTS_MAX)
        br_errs_add(errs, list, path, "endpoints are %d at the most", ENDPOINTS_MAX);
    (void)snprintf(at, sizeof at, "%s::endpoint", path);
    if (c->endpoint)
        check_url(c->endpoint, br_yaml_get(node, "endpoint"), at, errs);
    for (size_t i = 0; i < c->endpoints.n; i++) {
        (void)snprintf(at, sizeof at, "%s::endpoints[%zu]", path, i);
        /* A text counts as a list of one. */
        check_url(c->endpoints.v[i], list->type == BR_YAML_SEQ ? list->items[i] : list, at, errs);
    }
}

static void check_labels(const struct pyroscope_label_config *c, const struct br_yaml *node,
                         const char *path, struct br_errs *errs)
{
    char at[256];
    (void)snprintf(at, sizeof at, "%s::labels::max", path);
    if (c->max > PYROSCOPE_LABELS_DEFAULT)
        br_errs_warn(errs, br_yaml_get(br_yaml_get(node, "labels"), "max"), at,
                     "Pyroscope refuses series of more than %d labels, unless its own limit "
                     "(max_label_names_per_series) is raised",
                     PYROSCOPE_LABELS_DEFAULT);
}

static bool separates(const struct br_strings *keys, const char *name)
{
    for (size_t i = 0; i < keys->n; i++)
        if (strcasecmp(keys->v[i], name) == 0)
            return true;
    return false;
}

static int check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
                 struct br_errs *errs)
{
    struct config *c = config;
    size_t before = errs->n_errors;
    check_endpoints(c, node, path, errs);
    check_labels(&c->labels, node, path, errs);
    if (c->basic_auth && c->bearer_token.text)
        br_errs_add(errs, node, path, "basic_auth and bearer_token exclude each other");
    if (c->tenant_metadata && c->common.sending_queue.batch &&
        !separates(&c->common.sending_queue.batch->partition.metadata_keys, c->tenant_metadata))
        br_errs_add(errs, node, path,
                    "tenant_metadata needs batches of one tenant each: "
                    "sending_queue::batch::partition::metadata_keys must have \"%s\"",
                    c->tenant_metadata);
    (void)br_exporter_check(&c->common, node, path, errs);
    if (c->tenant_metadata) {
        c->metadata_keys.v = br_arena_calloc(arena, 1, sizeof *c->metadata_keys.v);
        if (!c->metadata_keys.v)
            return br_errs_add(errs, node, path, "out of memory");
        c->metadata_keys.v[c->metadata_keys.n++] = c->tenant_metadata;
    }
    return errs->n_errors > before ? BR_EINVAL : 0;
}

static const struct br_strings *metadata_keys(const void *config)
{
    return &((const struct config *)config)->metadata_keys;
}

/* --- Requests out of an item ----------------------------------------------------------------- */

/* What an item becomes. Nothing is sent, or settled, before all of it is there. */
struct batch {
    struct br_node *node;
    struct br_list requests; /* of br_item */
    struct br_item *request; /* the last one */
    size_t size, max_size;   /* bytes of them */
    uint32_t n_lost[REASONS];
    char text[REASONS][160];
};

static struct state *state_of(const struct batch *b)
{
    return b->node->state;
}

static bool judge(const struct batch *b, const struct br_pprof_out *p, enum reason *ret)
{
    const struct limits *l = &((const struct config *)b->node->config)->limits;
    uint64_t now = br_host_unix_ns(b->node->host);
    if (p->too_large)
        *ret = TOO_LARGE;
    else if (p->time_ns && l->max_age && p->time_ns < now && now - p->time_ns >= l->max_age)
        *ret = TOO_OLD;
    else if (p->time_ns && l->max_ahead && p->time_ns > now && p->time_ns - now >= l->max_ahead)
        *ret = TOO_NEW;
    else
        return true;
    return false;
}

static void lose(struct batch *b, const struct br_pprof_out *p, enum reason why)
{
    uint64_t now = br_host_unix_ns(b->node->host);
    if (b->n_lost[why] == 0)
        (void)snprintf(b->text[why], sizeof b->text[why],
                       "%s of %u samples and %u bytes, taken %.0f s %s now", p->name, p->n_samples,
                       p->buf->len,
                       (double)(p->time_ns < now ? now - p->time_ns : p->time_ns - now) / 1e9,
                       p->time_ns < now ? "before" : "after");
    b->n_lost[why] += p->n_items;
}

/* The request that has room for so many bytes more, which may be a new one. */
static struct br_item *request_for(struct batch *b, size_t len)
{
    const struct limits *l = &((const struct config *)b->node->config)->limits;
    struct br_item *r = b->request;
    if (r && r->n_parts < (uint64_t)l->max_request_profiles &&
        r->size + len <= (uint64_t)l->max_request_size)
        return r;
    b->request = br_item_new(b->node->host, BR_PROFILES);
    if (b->request)
        br_list_append(&b->requests, &b->request->link);
    return b->request;
}

/* Gives it a time that no other profile of its series has. */
static bool tell_apart(const struct state *s, const struct br_pprof_out *p, struct br_entry labels)
{
    const struct pyroscope_times_of of = {.labels = labels,
                                          .resource = p->resource,
                                          .pprof = {p->buf->data, p->buf->len},
                                          .time_ns = p->written_ns};
    uint64_t time_ns;
    if (!p->written_ns)
        return true; /* Pyroscope takes its own time */
    if (!pyroscope_times_place(s->times, &of, &time_ns))
        return false;
    if (time_ns != p->written_ns)
        (void)br_pprof_set_time(p, time_ns);
    return true;
}

static int on_pprof(const struct br_pprof_out *p, void *arg)
{
    struct batch *b = arg;
    struct state *s = state_of(b);
    enum reason why;
    const uint8_t *labels;
    size_t len;
    struct br_part part;
    if (!judge(b, p, &why)) {
        lose(b, p, why);
        return 0;
    }
    if (p->n_left_out)
        pyroscope_labels_count(s->labels, p->n_left_out);
    if (!pyroscope_labels_make(s->labels, p, &labels, &len) ||
        !tell_apart(s, p, (struct br_entry){labels, (uint32_t)len}) ||
        pyroscope_part_make(b->node->host->pool, labels, len, p->buf, p->n_items, &part))
        return BR_ENOMEM;
    b->size += part.raw_len;
    if (b->size > b->max_size) {
        br_buf_unref(part.buf);
        return BR_ETOOBIG;
    }
    struct br_item *request = request_for(b, part.raw_len);
    int rc = request ? br_item_add_part(request, &part) : BR_ENOMEM;
    br_buf_unref(part.buf);
    return rc;
}

static void settle_lost(struct batch *b, struct br_item *item)
{
    struct state *s = state_of(b);
    uint64_t held;
    for (int i = 0; i < REASONS; i++) {
        if (b->n_lost[i] == 0)
            continue;
        br_item_settle(item, BR_FATE_DROPPED, reasons[i], b->n_lost[i]);
        item->outcome.n_rejected += b->n_lost[i];
        if (br_log_allow(&s->limit[i], br_host_mono_ms(b->node->host), LOG_EVERY_MS, &held))
            br_warn(&b->node->log, "dropped, %s: %s (%llu more since the last such line)",
                    reasons[i], b->text[i], (unsigned long long)held);
    }
}

static void give_up(struct batch *b, struct br_item *item, int rc)
{
    struct br_list *l;
    while ((l = br_list_shift(&b->requests)))
        br_item_free(br_container_of(l, struct br_item, link));
    if (rc == BR_ENOMEM)
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "out of memory");
    else
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT,
                       "as pprof they take too many bytes, or the dictionary has too many entries");
}

static size_t max_size(const struct br_item *item)
{
    return item->size > ITEM_BYTES / ITEM_GROWTH ? ITEM_GROWTH * item->size : ITEM_BYTES;
}

static void batch_init(struct batch *b, struct br_node *node, const struct br_item *item)
{
    *b = (struct batch){.node = node, .max_size = max_size(item)};
    br_list_init(&b->requests);
}

/* Sends what the item has become; `rc` says whether all of it is there. */
static void batch_send(struct batch *b, struct br_item *item, int rc)
{
    struct state *s = state_of(b);
    struct br_list *l;
    pyroscope_labels_forget(s->labels);
    if (rc) {
        give_up(b, item, rc);
        return;
    }
    item->outcome = BR_OUTCOME_DONE;
    struct br_consumer *next =
        s->fanout ? br_fanout_input(s->fanout) : pyroscope_push_input(s->push[0]);
    for (l = b->requests.next; l != &b->requests; l = l->next) {
        struct br_item *request = br_container_of(l, struct br_item, link);
        request->metadata = item->metadata;
        br_item_adopt(item, request);
    }
    settle_lost(b, item);
    while ((l = br_list_shift(&b->requests)))
        br_consume(next, br_container_of(l, struct br_item, link));
    br_item_release_parent(item);
}

static void on_written(struct br_node *node, struct br_item *item, int rc,
                       const struct br_pprof_out *pprofs, uint32_t n)
{
    struct batch b;
    batch_init(&b, node, item);
    for (uint32_t i = 0; i < n && !rc; i++)
        rc = on_pprof(&pprofs[i], &b);
    batch_send(&b, item, rc);
}

static void consume(struct br_node *node, struct br_item *item)
{
    struct state *s = node->state;
    const struct config *c = node->config;
    const struct br_pprof_options want = {.max_samples = (uint32_t)c->limits.max_samples,
                                          .max_bytes = (size_t)c->limits.max_profile_size,
                                          .max_work = max_size(item),
                                          .keep_label = pyroscope_labels_keep,
                                          .asks_clients = c->labels.sample_attributes.v != NULL,
                                          .arg = s->labels};
    struct batch b;
    batch_init(&b, node, item);
    if (item->size <= PYROSCOPE_WRITING_NOW)
        batch_send(&b, item, br_pprof_write(s->writer, item, &want, on_pprof, &b));
    else if (!pyroscope_writing_start(&s->writings, node, item, &want, on_written))
        batch_send(&b, item, BR_ENOMEM);
}

/* --- Life ------------------------------------------------------------------------------------ */

/* The Authorization header; "" for none. NULL when there is no memory. */
static char *authorization(const struct config *c)
{
    struct br_str pair = {0}, out = {0};
    if (c->basic_auth) {
        const char *password = c->basic_auth->password.text;
        br_str_printf(&pair, "%s:%s", c->basic_auth->username, password ? password : "");
        br_str_puts(&out, "Basic ");
        br_str_base64(&out, (const uint8_t *)pair.data, pair.len);
    } else {
        br_str_puts(&out, c->bearer_token.text ? "Bearer " : "");
        br_str_puts(&out, c->bearer_token.text ? c->bearer_token.text : "");
    }
    char *text = pair.failed || out.failed ? NULL : br_strdup(out.len ? out.data : "");
    br_str_release(&pair);
    br_str_release(&out);
    return text;
}

static bool make_pushes(struct br_node *node)
{
    struct state *s = node->state;
    const struct config *c = node->config;
    struct br_fanout_end ends[ENDPOINTS_MAX];
    struct pyroscope_push_config config = {.tls = &c->tls,
                                           .headers = &c->headers,
                                           .authorization.text =
                                               s->authorization[0] ? s->authorization : NULL,
                                           .tenant = c->tenant,
                                           .tenant_metadata = c->tenant_metadata,
                                           .gzip = c->compression == 0,
                                           .timeout_ms = c->common.timeout / NS_PER_MS,
                                           .idle_timeout_ms = c->idle_conn_timeout / NS_PER_MS,
                                           .max_connections = (unsigned)c->max_conns_per_host,
                                           .retry = &c->common.retry_on_failure};
    const struct br_queue_config *queue = &c->common.sending_queue;
    bool apart = queue->enabled && !queue->wait_for_result; /* nobody waits for the answer */
    size_t n = c->endpoint ? 1 : c->endpoints.n;
    for (; s->n_push < n; s->n_push++) {
        config.endpoint = c->endpoint ? c->endpoint : c->endpoints.v[s->n_push];
        s->push[s->n_push] = pyroscope_push_new(node, &config);
        if (!s->push[s->n_push])
            return false;
        ends[s->n_push] = (struct br_fanout_end){.next = pyroscope_push_input(s->push[s->n_push]),
                                                 .name = config.endpoint,
                                                 .kind = "endpoint",
                                                 .id = config.endpoint,
                                                 .delivers = true,
                                                 .final = true,
                                                 .apart_bytes = apart ? APART_BYTES : 0};
    }
    if (n > 1)
        s->fanout = br_fanout_new(node->host, NULL, ends, n);
    return n == 1 || s->fanout;
}

static int create(struct br_node *node, struct br_err *err)
{
    struct state *s = node->state;
    const struct config *c = node->config;
    br_list_init(&s->writings);
    s->writer = br_pprof_writer_new(node->host);
    s->labels = pyroscope_labels_new(node, &c->labels);
    s->times = pyroscope_times_new();
    s->authorization = authorization(c);
    if (!s->writer || !s->labels || !s->times || !s->authorization || !make_pushes(node))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    return 0;
}

static int start(struct br_node *node, struct br_err *err)
{
    struct state *s = node->state;
    for (size_t i = 0; i < s->n_push; i++) {
        int rc = pyroscope_push_start(s->push[i], err);
        if (rc)
            return rc;
    }
    return 0;
}

static void on_endpoint_end(void *arg)
{
    struct br_node *node = arg;
    const struct state *s = node->state;
    if (!node->drained && br_fanout_idle(s->fanout))
        br_node_drained(node);
}

/* The queue is empty; an endpoint may still have something that the others have. */
static void drain(struct br_node *node)
{
    const struct state *s = node->state;
    if (!s->fanout || br_fanout_idle(s->fanout))
        br_node_drained(node);
    else
        br_fanout_on_end(s->fanout, on_endpoint_end, node);
}

static void destroy(struct br_node *node)
{
    struct state *s = node->state;
    pyroscope_writing_leave(&s->writings);
    if (s->fanout) {
        br_fanout_on_end(s->fanout, NULL, NULL);
        br_fanout_close(s->fanout);
    }
    for (size_t i = 0; i < ENDPOINTS_MAX; i++)
        pyroscope_push_free(s->push[i]);
    br_fanout_free(s->fanout);
    pyroscope_labels_free(s->labels);
    pyroscope_times_free(s->times);
    br_pprof_writer_free(s->writer);
    br_free(s->authorization);
}

extern const struct br_component br_pyroscope_exporter;
const struct br_component br_pyroscope_exporter = {
    .name = "pyroscope",
    .kind = BR_EXPORTER,
    .signals = BR_SIGNAL_BIT(BR_PROFILES),
    .stability = "beta",
    .help = "profiles as pprof, to Pyroscope's push API",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .exporter_wrapped = true,
    .retries_parts = true,
    .resolves = true,
    .common_at = offsetof(struct config, common),
    .metadata_keys = metadata_keys,
    .check = check,
    .create = create,
    .start = start,
    .consume = consume,
    .drain = drain,
    .destroy = destroy,
};
