/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pyroscope exporter: sends profiles as pprof to the push API of one or more Pyroscope servers.
 * Source: the distributor and the validation of grafana/pyroscope.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/str.h"
#include "exporters/pyroscope/pyroscope.h"
#include "net/client.h"
#include "net/route.h"

#define ENDPOINTS_MAX 16
#define NS_PER_MS 1000000u

struct basic_auth {
    const char *username;
    struct br_secret password;
};

struct limits {
    uint64_t max_age, max_ahead;
    int64_t max_profile_size, max_samples;
};

/* Largest amount of data, in bytes, that one worker queues for a failing endpoint after the
 * other endpoints have accepted it. */
#define APART_BYTES (64u << 20)

struct config {
    const char *endpoint;
    struct br_strings endpoints;
    const char *tenant, *tenant_metadata;
    struct br_strings metadata_keys; /* list whose only element is tenant_metadata */
    struct basic_auth *basic_auth;
    struct br_secret bearer_token;
    struct br_auth_config *auth;
    struct br_headers headers;
    struct br_tls_config tls;
    struct br_secret proxy_url;
    int compression;
    int64_t max_conns_per_host;
    struct br_client_keepalive keepalive;
    struct br_series_config labels;
    struct limits limits;
    struct br_exporter_config common;
};

/* Reasons why profiles are dropped before they are sent. */
enum reason { TOO_OLD, TOO_NEW, TOO_LARGE, REASONS };
static const char *const reasons[] = {"too_old", "too_new", "too_large"};

struct state {
    struct br_pprof_writer *writer;
    struct pyroscope_labels *labels;
    struct pyroscope_times *times;
    struct br_list writings; /* items whose pprofs are being written (pyroscope_writing_start) */
    struct pyroscope_push *push[ENDPOINTS_MAX];
    size_t n_push;
    /* sends each request to all endpoints; NULL if there is one endpoint */
    struct br_fanout *fanout;
    char *authorization;
    struct br_log_limit limit[REASONS];
};

static const char *const compressions[] = {"gzip", "none", NULL};

static const struct br_option basic_auth_options[] = {
    BR_STRING(struct basic_auth, username, "",
              "user name; for Grafana Cloud, the number of the stack"),
    BR_SECRET(struct basic_auth, password, "password or token"),
    BR_OPT_END,
};

static const struct br_option limits_options[] = {
    BR_DURATION(struct limits, max_age, "1h",
                "drop profiles that are older than this duration; 0: never"),
    BR_DURATION(struct limits, max_ahead, "10m",
                "drop profiles whose time is more than this duration in the future; 0: never"),
    BR_INT(
        struct limits, max_profile_size, 1 << 20, 0, (double)BR_BUF_MAX / 2,
        "largest pprof profile in bytes, uncompressed; a larger profile is divided; 0: unlimited"),
    BR_INT(
        struct limits, max_samples, 16000, 0, UINT32_MAX,
        "largest number of samples in a pprof profile; a larger profile is divided; 0: unlimited"),
    BR_IGNORED("max_request_size", "each profile is sent in a separate request"),
    BR_IGNORED("max_request_profiles", "each profile is sent in a separate request"),
    BR_OPT_END,
};

static const struct br_option options[] = {
    BR_STRING(struct config, endpoint, NULL,
              "URL of the Pyroscope server, to which the path of its API is appended"),
    BR_STRINGS(struct config, endpoints,
               "URLs of several Pyroscope servers; every profile is sent to each of them"),
    BR_STRING(struct config, tenant, NULL, "name of the tenant, sent in the X-Scope-OrgID header"),
    BR_STRING(struct config, tenant_metadata, NULL,
              "key of the client metadata that contains the tenant; requests without this metadata "
              "use `tenant`"),
    BR_PRESENT(struct config, basic_auth, struct basic_auth, basic_auth_options,
               "user name and password for HTTP Basic authentication"),
    BR_SECRET(struct config, bearer_token, "token for `Authorization: Bearer`"),
    BR_HEADERS(struct config, headers, "headers to add to every request"),
    BR_STRUCT(struct config, tls, br_tls_client_options, "TLS settings of the connection"),
    BR_AUTH_CLIENT_ROW(struct config),
    BR_SECRET(struct config, proxy_url, BR_PROXY_HELP),
    BR_ENUM(struct config, compression, "gzip", compressions, "compression of requests"),
    BR_INT(struct config, max_conns_per_host, 256, 0, 10000,
           "largest number of concurrent connections, each of which sends one profile at a time; "
           "0: 100"),
    BR_CLIENT_KEEPALIVE_ROWS(struct config),
    BR_STRUCT(struct config, labels, pyroscope_label_options,
              "which attributes become labels of the series"),
    BR_STRUCT(struct config, limits, limits_options, "limits of the Pyroscope server"),
    BR_EXPORTER_OPTIONS(struct config, common, "30s"),
    BR_OPT_END,
};

/* --- Config ---------------------------------------------------------------------------------- */

static void pyroscope_exporter_check_url(const char *url, const struct br_yaml *node,
                                         const char *path, struct br_errs *errs)
{
    static const char *const added[] = {"/push.v1.PusherService/Push", "/ingest", NULL};
    struct br_endpoint endpoint;
    struct br_err err = {0};
    if (br_endpoint_read(url, false, &endpoint, &err))
        br_errs_add(errs, node, path, "%s", err.text);
    br_endpoint_check_base(url, added, "leave out the path of the API, which is appended", node,
                           path, errs);
}

static void pyroscope_exporter_check_endpoints(const struct config *config,
                                               const struct br_yaml *node, const char *path,
                                               struct br_errs *errs)
{
    const struct br_yaml *list = br_yaml_get(node, "endpoints");
    char at[256];
    if (!config->endpoint && !config->endpoints.count)
        br_errs_add(errs, node, path, "endpoint, or endpoints, is required");
    if (config->endpoint && config->endpoints.count)
        br_errs_add(errs, list, path, "endpoint and endpoints cannot be used together");
    if (config->endpoints.count > ENDPOINTS_MAX)
        br_errs_add(errs, list, path, "at most %d endpoints are allowed", ENDPOINTS_MAX);
    (void)snprintf(at, sizeof at, "%s::endpoint", path);
    if (config->endpoint)
        pyroscope_exporter_check_url(config->endpoint, br_yaml_get(node, "endpoint"), at, errs);
    for (size_t i = 0; i < config->endpoints.count; i++) {
        (void)snprintf(at, sizeof at, "%s::endpoints[%zu]", path, i);
        /* `endpoints` may also be a single text, which is a list with one element */
        pyroscope_exporter_check_url(config->endpoints.items[i],
                                     list->type == BR_YAML_SEQ ? list->items[i] : list, at, errs);
    }
}

static void pyroscope_exporter_check_labels(const struct br_series_config *label_config,
                                            const struct br_yaml *node, const char *path,
                                            struct br_errs *errs)
{
    char at[256];
    (void)snprintf(at, sizeof at, "%s::labels::max", path);
    if (label_config->max > BR_SERIES_LABELS_DEFAULT)
        br_errs_warn(errs, br_yaml_get(br_yaml_get(node, "labels"), "max"), at,
                     "Pyroscope rejects series of more than %d labels, unless its limit "
                     "(max_label_names_per_series) is raised",
                     BR_SERIES_LABELS_DEFAULT);
}

static bool pyroscope_exporter_separates(const struct br_strings *keys, const char *name)
{
    for (size_t i = 0; i < keys->count; i++)
        if (strcasecmp(keys->items[i], name) == 0)
            return true;
    return false;
}

static int pyroscope_exporter_check(void *config, const struct br_yaml *node, const char *path,
                                    struct br_arena *arena, struct br_errs *errs)
{
    struct config *settings = config;
    size_t before = errs->n_errors;
    pyroscope_exporter_check_endpoints(settings, node, path, errs);
    br_proxies_check(settings->proxy_url.text, node, path, errs);
    pyroscope_exporter_check_labels(&settings->labels, node, path, errs);
    if (settings->basic_auth && settings->bearer_token.text)
        br_errs_add(errs, node, path, "basic_auth and bearer_token cannot be used together");
    if (settings->tenant_metadata && settings->common.sending_queue.batch &&
        !pyroscope_exporter_separates(
            &settings->common.sending_queue.batch->partition.metadata_keys,
            settings->tenant_metadata))
        br_errs_add(errs, node, path,
                    "tenant_metadata needs batches of one tenant: "
                    "sending_queue::batch::partition::metadata_keys must contain \"%s\"",
                    settings->tenant_metadata);
    (void)br_exporter_check(&settings->common, node, path, errs);
    if (settings->tenant_metadata) {
        settings->metadata_keys.items =
            br_arena_calloc(arena, 1, sizeof *settings->metadata_keys.items);
        if (!settings->metadata_keys.items)
            return br_errs_add(errs, node, path, "out of memory");
        settings->metadata_keys.items[settings->metadata_keys.count++] = settings->tenant_metadata;
    }
    return errs->n_errors > before ? BR_EINVAL : 0;
}

static const struct br_strings *pyroscope_exporter_metadata_keys(const void *config)
{
    return &((const struct config *)config)->metadata_keys;
}

/* --- Requests -------------------------------------------------------------------------------- */

/* The requests made from one item. The requests are sent once all requests of the item exist. */
struct batch {
    struct br_node *node;
    struct br_list requests; /* list of struct br_item, each a request with one profile */
    size_t size, max_size;   /* total size of the requests in bytes, and its limit */
    uint32_t n_dropped[REASONS];
    char text[REASONS][160];
};

static struct state *pyroscope_exporter_state_of(const struct batch *batch)
{
    return batch->node->state;
}

static bool pyroscope_exporter_accepts(const struct batch *batch, const struct br_pprof_out *result,
                                       enum reason *ret)
{
    const struct limits *limits = &((const struct config *)batch->node->config)->limits;
    uint64_t now = br_host_unix_ns(batch->node->host);
    if (result->too_large)
        *ret = TOO_LARGE;
    else if (result->time_ns && limits->max_age && result->time_ns < now &&
             now - result->time_ns >= limits->max_age)
        *ret = TOO_OLD;
    else if (result->time_ns && limits->max_ahead && result->time_ns > now &&
             result->time_ns - now >= limits->max_ahead)
        *ret = TOO_NEW;
    else
        return true;
    return false;
}

static void pyroscope_exporter_note_dropped(struct batch *batch, const struct br_pprof_out *result,
                                            enum reason why)
{
    uint64_t now = br_host_unix_ns(batch->node->host);
    if (batch->n_dropped[why] == 0)
        (void)snprintf(
            batch->text[why], sizeof batch->text[why],
            "%s of %u samples and %u bytes, taken %.0f s %s now", result->name, result->n_samples,
            result->buf->len,
            (double)(result->time_ns < now ? now - result->time_ns : result->time_ns - now) / 1e9,
            result->time_ns < now ? "before" : "after");
    batch->n_dropped[why] += result->n_records;
}

static int pyroscope_exporter_add_request(struct batch *batch, const struct br_part *part)
{
    struct br_item *request = br_item_new(batch->node->host, BR_PROFILES);
    if (!request)
        return BR_ENOMEM;
    br_list_append(&batch->requests, &request->link);
    return br_item_add_part(request, part);
}

/* Gives a profile a time that is unique in its series. */
static bool pyroscope_exporter_set_time(const struct state *state,
                                        const struct br_pprof_out *result, struct br_entry labels)
{
    const struct pyroscope_times_of of = {.labels = labels,
                                          .resource = result->resource,
                                          .pprof = {result->buf->data, result->buf->len},
                                          .time_ns = result->written_ns};
    uint64_t time_ns;
    if (!result->written_ns)
        /* if the profile has no time, Pyroscope uses the time at which it receives the profile */
        return true;
    if (!pyroscope_times_place(state->times, &of, &time_ns))
        return false;
    if (time_ns != result->written_ns)
        (void)br_pprof_set_time(result, time_ns);
    return true;
}

static int pyroscope_exporter_on_pprof(const struct br_pprof_out *result, struct batch *batch)
{
    struct state *state = pyroscope_exporter_state_of(batch);
    enum reason why;
    const uint8_t *labels;
    size_t len;
    struct br_part part;
    if (!pyroscope_exporter_accepts(batch, result, &why)) {
        pyroscope_exporter_note_dropped(batch, result, why);
        return 0;
    }
    if (result->n_left_out)
        pyroscope_labels_count(state->labels, result->n_left_out);
    if (!pyroscope_labels_make(state->labels, result, &labels, &len) ||
        !pyroscope_exporter_set_time(state, result, (struct br_entry){labels, (uint32_t)len}) ||
        pyroscope_part_make(batch->node->host->pool, labels, len, result->buf, result->n_records,
                            &part))
        return BR_ENOMEM;
    batch->size += part.raw_len;
    if (batch->size > batch->max_size) {
        br_buf_unref(part.buf);
        return BR_ETOOBIG;
    }
    int rc = pyroscope_exporter_add_request(batch, &part);
    br_buf_unref(part.buf);
    return rc;
}

static void pyroscope_exporter_report_dropped(struct batch *batch, struct br_item *item)
{
    struct state *state = pyroscope_exporter_state_of(batch);
    for (int i = 0; i < REASONS; i++) {
        if (batch->n_dropped[i] == 0)
            continue;
        br_item_report(item, BR_RESULT_DROPPED, reasons[i], batch->n_dropped[i]);
        item->outcome.n_rejected += batch->n_dropped[i];
        br_node_warn(batch->node, &state->limit[i], "dropped, %s: %s", reasons[i], batch->text[i]);
    }
}

static void pyroscope_exporter_drop_requests(struct batch *batch)
{
    struct br_list *list;
    while ((list = br_list_shift(&batch->requests)))
        br_item_free(br_container_of(list, struct br_item, link));
}

static void pyroscope_exporter_drop_batch(struct batch *batch, struct br_item *item, int rc)
{
    pyroscope_exporter_drop_requests(batch);
    if (rc == BR_ENOMEM)
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "out of memory");
    else
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT,
                       "as pprof they exceed the size limit or the memory limit, or the "
                       "dictionary has too many entries");
}

/* Sends the requests, or drops them if `rc` is an error. */
static void pyroscope_exporter_batch_send(struct batch *batch, struct br_item *item, int rc)
{
    struct state *state = pyroscope_exporter_state_of(batch);
    struct br_list *list;
    pyroscope_labels_forget(state->labels);
    if (rc) {
        pyroscope_exporter_drop_batch(batch, item, rc);
        return;
    }
    item->outcome = BR_OUTCOME_DONE;
    struct br_consumer *next =
        state->fanout ? br_fanout_input(state->fanout) : pyroscope_push_input(state->push[0]);
    for (list = batch->requests.next; list != &batch->requests; list = list->next) {
        struct br_item *request = br_container_of(list, struct br_item, link);
        request->metadata = item->metadata;
        br_item_adopt(item, request);
    }
    pyroscope_exporter_report_dropped(batch, item);
    while ((list = br_list_shift(&batch->requests)))
        br_consume(next, br_container_of(list, struct br_item, link));
    br_item_release_pieces(item);
}

/* Makes the requests for the pprofs of an item, and sends them. Frees each pprof as soon as it
 * is copied to a request, so that there are never two copies of all pprofs. */
static bool pyroscope_exporter_on_written(struct br_node *node, struct br_item *item, int rc,
                                          struct br_pprof_out *pprofs, uint32_t count)
{
    struct batch batch = {.node = node, .max_size = pyroscope_writing_work(item, false)};
    struct br_mem_scope scope;
    br_list_init(&batch.requests);
    br_mem_scope_begin(&scope, SIZE_MAX / 2, node->host->memory);
    scope.sends = true;
    bool whole = rc == 0;
    for (uint32_t i = 0; i < count && !rc; i++) {
        rc = pyroscope_exporter_on_pprof(&pprofs[i], &batch);
        br_buf_unref(pprofs[i].buf);
        pprofs[i].buf = NULL;
    }
    br_mem_scope_end(&scope);
    if (whole && rc == BR_ENOMEM) {
        pyroscope_labels_forget(((struct state *)node->state)->labels);
        pyroscope_exporter_drop_requests(&batch);
        return false;
    }
    pyroscope_exporter_batch_send(&batch, item, rc);
    return true;
}

static void pyroscope_exporter_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    const struct br_pprof_options want = {.max_samples = (uint32_t)config->limits.max_samples,
                                          .max_bytes = (size_t)config->limits.max_profile_size,
                                          .keep_label = pyroscope_labels_keep,
                                          .filters_clients =
                                              config->labels.sample_attributes.items != NULL,
                                          .arg = state->labels};
    if (!pyroscope_writing_start(&state->writings, node, item, state->writer, &want,
                                 &config->common.retry_on_failure, pyroscope_exporter_on_written))
        (void)pyroscope_exporter_on_written(node, item, BR_ENOMEM, NULL, 0);
}

/* --- Life ------------------------------------------------------------------------------------ */

/* Returns the Authorization header; "" if no credentials are configured. Returns NULL if memory
 * is short. */
static char *pyroscope_exporter_authorization(const struct config *config)
{
    struct br_str pair = {0}, out = {0};
    if (config->basic_auth) {
        const char *password = config->basic_auth->password.text;
        br_str_printf(&pair, "%s:%s", config->basic_auth->username, password ? password : "");
        br_str_puts(&out, "Basic ");
        br_str_base64(&out, (const uint8_t *)pair.data, pair.len);
    } else if (config->bearer_token.text) {
        br_str_printf(&out, "Bearer %s", config->bearer_token.text);
    }
    const char *made = out.len ? out.data : "";
    char *text = pair.failed || out.failed ? NULL : br_strdup(made);
    br_str_release(&pair);
    br_str_release(&out);
    return text;
}

static bool pyroscope_exporter_make_pushes(struct br_node *node)
{
    struct state *state = node->state;
    const struct config *settings = node->config;
    struct br_fanout_end ends[ENDPOINTS_MAX];
    struct pyroscope_push_config config = {
        .tls = &settings->tls,
        .proxy_url = settings->proxy_url.text,
        .headers = &settings->headers,
        .authenticator = br_auth_name(settings->auth),
        .authorization.text = state->authorization[0] ? state->authorization : NULL,
        .tenant = settings->tenant,
        .tenant_metadata = settings->tenant_metadata,
        .gzip = settings->compression == 0,
        .timeout_ms = settings->common.timeout / NS_PER_MS,
        .keepalive = settings->keepalive,
        .max_connections = (unsigned)settings->max_conns_per_host,
        .retry = &settings->common.retry_on_failure};
    const struct br_queue_config *queue = &settings->common.sending_queue;
    /* true if the sender was answered when the item was queued */
    bool apart = queue->enabled && !queue->wait_for_result;
    size_t n = settings->endpoint ? 1 : settings->endpoints.count;
    for (; state->n_push < n; state->n_push++) {
        config.endpoint =
            settings->endpoint ? settings->endpoint : settings->endpoints.items[state->n_push];
        state->push[state->n_push] = pyroscope_push_new(node, &config);
        if (!state->push[state->n_push])
            return false;
        ends[state->n_push] =
            (struct br_fanout_end){.next = pyroscope_push_input(state->push[state->n_push]),
                                   .name = config.endpoint,
                                   .kind = "endpoint",
                                   .id = config.endpoint,
                                   .delivers = true,
                                   .final = true,
                                   .detached_bytes = apart ? APART_BYTES : 0};
    }
    if (n > 1)
        state->fanout = br_fanout_new(node->host, NULL, ends, n);
    return n == 1 || state->fanout;
}

static int pyroscope_exporter_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    br_list_init(&state->writings);
    state->writer = br_pprof_writer_new(node->host);
    state->labels = pyroscope_labels_new(node, &config->labels);
    state->times = pyroscope_times_new();
    state->authorization = pyroscope_exporter_authorization(config);
    if (!state->writer || !state->labels || !state->times || !state->authorization ||
        !pyroscope_exporter_make_pushes(node))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    return 0;
}

static int pyroscope_exporter_start(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    for (size_t i = 0; i < state->n_push; i++) {
        int rc = pyroscope_push_start(state->push[i], err);
        if (rc)
            return rc;
    }
    return 0;
}

static void pyroscope_exporter_on_endpoint_end(void *arg)
{
    struct br_node *node = arg;
    const struct state *state = node->state;
    if (!node->drained && br_fanout_idle(state->fanout))
        br_node_drained(node);
}

/* Called when the queue is empty. Requests may still be in progress for an endpoint that is slower
 * than the other endpoints. */
static void pyroscope_exporter_drain(struct br_node *node)
{
    const struct state *state = node->state;
    if (!state->fanout || br_fanout_idle(state->fanout))
        br_node_drained(node);
    else
        br_fanout_on_end(state->fanout, pyroscope_exporter_on_endpoint_end, node);
}

static void pyroscope_exporter_destroy(struct br_node *node)
{
    struct state *state = node->state;
    pyroscope_writing_cancel_all(&state->writings);
    if (state->fanout) {
        br_fanout_on_end(state->fanout, NULL, NULL);
        br_fanout_close(state->fanout);
    }
    for (size_t i = 0; i < ENDPOINTS_MAX; i++)
        pyroscope_push_free(state->push[i]);
    br_fanout_free(state->fanout);
    pyroscope_labels_free(state->labels);
    pyroscope_times_free(state->times);
    br_pprof_writer_free(state->writer);
    br_free(state->authorization);
}

extern const struct br_component br_pyroscope_exporter;
const struct br_component br_pyroscope_exporter = {
    .name = "pyroscope",
    .kind = BR_EXPORTER,
    .signals = BR_SIGNAL_BIT(BR_PROFILES),
    .stability = "beta",
    .help = "sends profiles as pprof to Pyroscope's push API",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .exporter_wrapped = true,
    .retries_parts = true,
    .resolves = true,
    .common_at = offsetof(struct config, common),
    .metadata_keys = pyroscope_exporter_metadata_keys,
    .check = pyroscope_exporter_check,
    .create = pyroscope_exporter_create,
    .start = pyroscope_exporter_start,
    .consume = pyroscope_exporter_consume,
    .drain = pyroscope_exporter_drain,
    .destroy = pyroscope_exporter_destroy,
};
