/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/k8s_attributes/watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/task.h"
#include "egress/kubernetes.h"

#define PAGE 250               /* largest number of pods that one list request returns */
#define WATCH_S 5              /* duration in seconds after which the API ends a watch request */
#define ANSWER_MAX (64u << 20) /* largest answer of the Kubernetes API, in bytes */
#define REQUEST_MS 60000u      /* time limit of a request in milliseconds */
#define PAUSE_MS 100u          /* shortest time between two watch requests in milliseconds */
#define RETRY_MIN_MS 1000u     /* delay after the first failure in milliseconds */
/* longest delay between a failure and the next request in milliseconds */
#define RETRY_MAX_MS 30000u
#define VERSION_SIZE 128 /* size in bytes of a buffer for a resource version */

/* A pod that an answer adds, changes or deletes. */
struct change {
    bool deleted;
    struct k8s_pod *pod;
};

/* An answer of the Kubernetes API that a thread parses. */
struct job {
    struct br_task task;
    struct k8s_watch *watch; /* NULL after the watch was freed */
    const struct k8s_rules *rules;
    struct br_buf *body;
    bool watching; /* true: answer to a watch request; false: answer to a list request */
    /* results */
    struct change *changes;
    uint32_t n_changes, cap_changes;
    char version[VERSION_SIZE];
    char *more; /* token that requests the next page of the list; NULL: this was the last page */
    bool failed, expired;
};

struct k8s_watch {
    struct br_node *node;
    const struct k8s_config *config;
    struct k8s_table *table;
    struct k8s_rules rules;
    struct br_kubernetes kubernetes;
    struct br_client *client;
    struct br_exchange exchange;
    struct br_header header;
    struct br_str path, selectors, token;
    struct br_deferred deferred; /* reads the answer after on_done */
    /* time limit of the request in progress, or delay before the next request */
    struct br_timer timer;
    bool sending;
    struct br_buf *body; /* the answer; NULL: the request has failed */
    unsigned status;
    char why[256];
    struct job *job;
    bool watching;
    char version[VERSION_SIZE];
    char *more;
    uint64_t list; /* number of the current list */
    unsigned n_failed;
    struct br_log_limit limit;
};

/* --- Requests --------------------------------------------------------------------------------- */

static void watch_on_timer(struct br_timer *timer);

/* Appends a text with percent-encoding. */
static void watch_encode(struct br_str *out, const char *text)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~";
    for (; *text; text++) {
        if (strchr(plain, *text))
            br_str_putc(out, *text);
        else
            br_str_printf(out, "%%%02X", (unsigned char)*text);
    }
}

static void watch_put_filter(struct br_str *out, const struct k8s_filter *filter)
{
    const char *comma = out->len ? "," : "";
    switch ((enum k8s_filter_op)filter->op) {
    case K8S_EQUALS:
        br_str_printf(out, "%s%s=%s", comma, filter->key, filter->value);
        break;
    case K8S_NOT_EQUALS:
        br_str_printf(out, "%s%s!=%s", comma, filter->key, filter->value);
        break;
    case K8S_EXISTS:
        br_str_printf(out, "%s%s", comma, filter->key);
        break;
    case K8S_DOES_NOT_EXIST:
        br_str_printf(out, "%s!%s", comma, filter->key);
        break;
    }
}

/* Writes the label and field selectors, which all requests contain. */
static int watch_make_selectors(struct k8s_watch *watch)
{
    const struct k8s_filters *filters = &watch->config->filter;
    const struct k8s_filter *labels = filters->labels.items, *fields = filters->fields.items;
    struct br_str label = {.max = 65536}, field = {.max = 65536};
    const char *node = filters->node;
    if (*filters->node_from_env_var)
        node = getenv(filters->node_from_env_var);
    for (size_t i = 0; i < filters->labels.count; i++)
        watch_put_filter(&label, &labels[i]);
    for (size_t i = 0; i < filters->fields.count; i++)
        watch_put_filter(&field, &fields[i]);
    if (node && *node)
        br_str_printf(&field, "%sspec.nodeName=%s", field.len ? "," : "", node);
    if (field.len) {
        br_str_puts(&watch->selectors, "&fieldSelector=");
        watch_encode(&watch->selectors, field.data);
    }
    if (label.len) {
        br_str_puts(&watch->selectors, "&labelSelector=");
        watch_encode(&watch->selectors, label.data);
    }
    bool failed = label.failed || field.failed || watch->selectors.failed;
    br_str_release(&label);
    br_str_release(&field);
    return failed ? BR_ENOMEM : 0;
}

static void watch_make_path(struct k8s_watch *watch)
{
    const char *namespace = watch->config->filter.namespace;
    br_str_clear(&watch->path);
    br_str_puts(&watch->path, "/api/v1");
    if (*namespace) {
        br_str_puts(&watch->path, "/namespaces/");
        watch_encode(&watch->path, namespace);
    }
    if (watch->watching) {
        br_str_printf(
            &watch->path,
            "/pods?watch=1&allowWatchBookmarks=true&timeoutSeconds=%d&resourceVersion=", WATCH_S);
        watch_encode(&watch->path, watch->version);
    } else {
        br_str_printf(&watch->path, "/pods?limit=%d", PAGE);
        if (watch->more) {
            br_str_puts(&watch->path, "&continue=");
            watch_encode(&watch->path, watch->more);
        }
    }
    if (watch->selectors.len)
        br_str_puts(&watch->path, watch->selectors.data);
}

static void watch_on_deferred(struct br_deferred *deferred);

static void watch_on_done(struct br_exchange *exchange)
{
    struct k8s_watch *watch = exchange->user;
    watch->sending = false;
    watch->status = exchange->error ? 0 : exchange->http_status;
    watch->body = !exchange->error && exchange->http_status == 200 && exchange->response
                      ? br_buf_ref(exchange->response)
                      : NULL;
    if (exchange->error)
        (void)snprintf(watch->why, sizeof watch->why, "%s", exchange->error_text);
    else
        (void)snprintf(watch->why, sizeof watch->why, "the Kubernetes API answered with status %u",
                       exchange->http_status);
    br_host_defer(watch->node->host, &watch->deferred, watch_on_deferred);
}

/* Repeats the request after a delay. */
static void watch_fail(struct k8s_watch *watch, const char *why)
{
    uint64_t delay_ms = RETRY_MIN_MS;
    watch->n_failed++;
    for (unsigned i = 1; i < watch->n_failed && delay_ms < RETRY_MAX_MS; i++)
        delay_ms *= 2;
    br_node_warn(watch->node, &watch->limit, "cannot read pods: %s", why);
    (void)br_host_timer(watch->node->host, &watch->timer,
                        delay_ms < RETRY_MAX_MS ? delay_ms : RETRY_MAX_MS, watch_on_timer);
}

static void watch_send(struct k8s_watch *watch)
{
    const char *authorization = br_kubernetes_authorization(&watch->kubernetes);
    if (!authorization) {
        watch_fail(watch, "the token of the service account cannot be read");
        return;
    }
    /* a copy, because the token of the service account can change while the request is in
     * progress */
    br_str_clear(&watch->token);
    br_str_puts(&watch->token, authorization);
    watch_make_path(watch);
    if (watch->path.failed || watch->token.failed ||
        !br_host_timer(watch->node->host, &watch->timer, REQUEST_MS, watch_on_timer)) {
        watch_fail(watch, "out of memory");
        return;
    }
    watch->header = (struct br_header){"authorization", watch->token.data};
    watch->exchange = (struct br_exchange){.method = "GET",
                                           .path = watch->path.data,
                                           .user_agent = "Braid/" BR_VERSION,
                                           .headers = &watch->header,
                                           .n_headers = *authorization ? 1 : 0,
                                           .max_response = ANSWER_MAX,
                                           .on_done = watch_on_done,
                                           .user = watch};
    watch->sending = true;
    br_client_send(watch->client, &watch->exchange);
}

/* Ends a request that takes too long, or sends the next one. */
static void watch_on_timer(struct br_timer *timer)
{
    struct k8s_watch *watch = br_container_of(timer, struct k8s_watch, timer);
    if (!watch->sending) {
        watch_send(watch);
        return;
    }
    br_client_cancel(watch->client, &watch->exchange);
    watch->sending = false;
    watch_fail(watch, "the Kubernetes API did not answer in time");
}

/* --- Answers, in a thread --------------------------------------------------------------------- */

static void job_add(struct job *job, const json_t *object, bool deleted)
{
    struct k8s_pod *pod = k8s_pod_read(job->rules, object);
    if (!pod)
        return;
    if (br_grow(&job->changes, &job->cap_changes, (size_t)job->n_changes + 1, sizeof *job->changes,
                K8S_PODS_MAX)) {
        br_free(pod);
        job->failed = true;
        return;
    }
    job->changes[job->n_changes++] = (struct change){.deleted = deleted, .pod = pod};
}

static void job_note_version(struct job *job, const json_t *object)
{
    const json_t *metadata = json_object_get(object, "metadata");
    const char *version = json_string_value(json_object_get(metadata, "resourceVersion"));
    if (version && strlen(version) < sizeof job->version)
        (void)snprintf(job->version, sizeof job->version, "%s", version);
}

static void job_read_page(struct job *job)
{
    json_t *root = json_loadb((const char *)job->body->data, job->body->len, 0, NULL), *object;
    const char *more =
        json_string_value(json_object_get(json_object_get(root, "metadata"), "continue"));
    size_t i;
    job->failed = !json_is_object(root);
    job_note_version(job, root);
    if (more && *more) {
        size_t size = strlen(more) + 1;
        job->more = br_malloc(size);
        if (job->more)
            memcpy(job->more, more, size);
        job->failed = job->failed || !job->more;
    }
    json_array_foreach(json_object_get(root, "items"), i, object) job_add(job, object, false);
    json_decref(root);
}

static void job_read_event(struct job *job, const json_t *event)
{
    const char *type = json_string_value(json_object_get(event, "type"));
    const json_t *object = json_object_get(event, "object");
    if (!type || strcmp(type, "ERROR") == 0) {
        job->expired = true; /* usually 410, because the version is too old */
        return;
    }
    job_note_version(job, object);
    if (strcmp(type, "BOOKMARK") != 0)
        job_add(job, object, strcmp(type, "DELETED") == 0);
}

/* Reads events, one in each line. The last line may be incomplete if the connection has ended. */
static void job_read_events(struct job *job)
{
    const char *p = (const char *)job->body->data, *end = p + job->body->len;
    while (p < end && !job->expired && !job->failed) {
        const char *next = memchr(p, '\n', (size_t)(end - p));
        const char *line_end = next ? next : end;
        json_t *event = json_loadb(p, (size_t)(line_end - p), 0, NULL);
        if (event)
            job_read_event(job, event);
        json_decref(event);
        p = line_end + 1;
    }
}

static void job_read(struct br_task *task)
{
    struct job *job = br_container_of(task, struct job, task);
    if (job->watching)
        job_read_events(job);
    else
        job_read_page(job);
}

static void job_free(struct job *job)
{
    for (uint32_t i = 0; i < job->n_changes; i++)
        br_free(job->changes[i].pod);
    br_free(job->changes);
    br_free(job->more);
    br_buf_unref(job->body);
    br_free(job);
}

/* --- Answers, in the worker ------------------------------------------------------------------- */

static void watch_restart(struct k8s_watch *watch)
{
    watch->watching = false;
    br_free(watch->more);
    watch->more = NULL;
}

/* Moves the pods of an answer to the table. */
static void watch_apply(struct k8s_watch *watch, struct job *job)
{
    uint64_t now_ms = br_host_mono_ms(watch->node->host);
    if (!watch->watching && !watch->more)
        watch->list++;
    for (uint32_t i = 0; i < job->n_changes; i++) {
        struct change *change = &job->changes[i];
        change->pod->list = watch->list;
        if (change->deleted) {
            k8s_table_delete(watch->table, k8s_pod_text(change->pod, change->pod->uid), now_ms);
        } else {
            k8s_table_put(watch->table, change->pod);
            change->pod = NULL;
        }
    }
    if (job->version[0])
        memcpy(watch->version, job->version, sizeof watch->version);
    br_free(watch->more);
    watch->more = job->more;
    job->more = NULL;
    uint64_t grace_ms = watch->config->pod_delete_grace_period / 1000000;
    if (now_ms > grace_ms)
        k8s_table_sweep(watch->table, now_ms - grace_ms);
}

/* Ends a list after its last page. */
static void watch_complete(struct k8s_watch *watch)
{
    k8s_table_delete_others(watch->table, watch->list, br_host_mono_ms(watch->node->host));
    watch->watching = true;
    if (!atomic_exchange(&watch->table->is_complete, true))
        br_log_write(&watch->node->log, BR_LOG_INFO, "listed %zu pods",
                     k8s_table_count(watch->table));
}

static void job_on_done(struct br_task *task)
{
    struct job *job = br_container_of(task, struct job, task);
    struct k8s_watch *watch = job->watch;
    if (!watch) {
        job_free(job);
        return;
    }
    watch->job = NULL;
    watch_apply(watch, job);
    bool failed = job->failed, expired = job->expired;
    if (!failed && !watch->watching && !watch->more)
        watch_complete(watch);
    if (expired)
        watch_restart(watch);
    job_free(job);
    if (failed) {
        watch_restart(watch);
        watch_fail(watch, "the answer of the Kubernetes API is invalid, or out of memory");
        return;
    }
    watch->n_failed = 0;
    if (!br_host_timer(watch->node->host, &watch->timer, watch->watching ? PAUSE_MS : 0,
                       watch_on_timer))
        watch_fail(watch, "out of memory");
}

static void watch_on_deferred(struct br_deferred *deferred)
{
    struct k8s_watch *watch = br_container_of(deferred, struct k8s_watch, deferred);
    br_host_timer_stop(watch->node->host, &watch->timer);
    if (!watch->body) {
        if (watch->status == 410)
            watch_restart(watch);
        /* a watch without events has an empty body */
        if (watch->status == 200 && watch->watching) {
            watch->n_failed = 0;
            (void)br_host_timer(watch->node->host, &watch->timer, PAUSE_MS, watch_on_timer);
        } else {
            watch_fail(watch, watch->why);
        }
        return;
    }
    struct job *job = br_calloc(1, sizeof *job);
    if (!job) {
        watch->body = br_buf_unref(watch->body);
        watch_fail(watch, "out of memory");
        return;
    }
    job->watch = watch;
    job->rules = &watch->rules;
    job->body = watch->body;
    job->watching = watch->watching;
    watch->body = NULL;
    br_task_init(&job->task, watch->node->host, job_read, job_on_done);
    watch->job = job;
    br_task_start(&job->task);
}

/* --- Life ------------------------------------------------------------------------------------- */

int k8s_watch_new(struct br_node *node, const struct k8s_config *config, struct k8s_table *table,
                  struct k8s_watch **ret, struct br_err *err)
{
    char origin[BR_KUBERNETES_ORIGIN_SIZE];
    struct k8s_watch *watch = br_calloc(1, sizeof *watch);
    if (!watch)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    watch->node = node;
    watch->config = config;
    watch->table = table;
    watch->token.max = BR_WATCHED_SIZE_MAX;
    const struct br_client_config client = {
        .endpoint = origin, .tls = &watch->kubernetes.tls, .max_connections = 1, .log = &node->log};
    int rc = 0;
    if (!br_kubernetes_origin(origin))
        rc = br_err_set(err, BR_EINVAL,
                        "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, because "
                        "the process does not run in a pod");
    if (!rc && (k8s_rules_init(&watch->rules, config) || watch_make_selectors(watch)))
        rc = br_err_set(err, BR_ENOMEM, "out of memory");
    if (!rc) {
        br_kubernetes_begin(&watch->kubernetes, node->host,
                            config->auth_type == K8S_AUTH_NONE ? NULL : config->service_account,
                            &node->log);
        rc = node->host->ops->connect(node->host, &client, &watch->client, err);
    }
    if (rc) {
        k8s_watch_free(watch);
        return rc;
    }
    *ret = watch;
    watch_send(watch);
    return 0;
}

void k8s_watch_free(struct k8s_watch *watch)
{
    if (!watch)
        return;
    br_host_timer_stop(watch->node->host, &watch->timer);
    br_host_defer_cancel(&watch->deferred);
    if (watch->sending)
        br_client_cancel(watch->client, &watch->exchange);
    if (watch->job) {
        br_task_stop(&watch->job->task);
        watch->job->watch = NULL; /* the job is freed when the worker learns that it has ended */
    }
    br_client_free(watch->client);
    br_kubernetes_release(&watch->kubernetes);
    if (watch->rules.config)
        k8s_rules_release(&watch->rules);
    br_buf_unref(watch->body);
    br_free(watch->more);
    br_str_release(&watch->path);
    br_str_release(&watch->selectors);
    br_str_release(&watch->token);
    br_free(watch);
}
