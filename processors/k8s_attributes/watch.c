/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/k8s_attributes/watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/task.h"
#include "egress/kubernetes.h"

#define PAGE 250               /* largest number of objects that one list request returns */
#define TOKEN_MAX 65536u       /* longest token for the next page, in bytes */
#define WATCH_S 5              /* duration in seconds after which the API ends a watch request */
#define ANSWER_MAX (64u << 20) /* largest answer of the Kubernetes API, in bytes */
#define REQUEST_MS 60000u      /* time limit of a request in milliseconds */
#define PAUSE_MS 100u          /* shortest time between two watch requests in milliseconds */
#define RETRY_MIN_MS 1000u     /* delay after the first failure in milliseconds */
/* longest delay between a failure and the next request in milliseconds */
#define RETRY_MAX_MS 30000u
#define VERSION_SIZE 128 /* size in bytes of a buffer for a resource version */

/* Media types of answers that contain only the metadata of objects, which are much smaller.
 * Source: kubernetes.io/docs/reference/using-api/api-concepts, "Metadata-only fetches". */
#define METADATA(type) "application/json;as=" type ";g=meta.k8s.io;v=v1,application/json"

/* An object that an answer adds, changes or deletes. */
struct change {
    bool deleted;
    struct k8s_object *object;
};

/* An answer of the Kubernetes API that a thread parses. */
struct job {
    struct br_task task;
    struct watch *watch; /* NULL after the watch was freed */
    const struct k8s_rules *rules;
    struct br_buf *body;
    bool watching; /* true: answer to a watch request; false: answer to a list request */
    /* results */
    struct change *changes;
    uint32_t n_changes, cap_changes;
    uint32_t n_ignored; /* number of objects without a uid and a name, or with too long texts */
    char version[VERSION_SIZE];
    char *more; /* token that requests the next page of the list; NULL: this was the last page */
    bool failed, expired;
};

/* The list and the watch of one kind of objects. */
struct watch {
    struct k8s_watches *set;
    enum k8s_kind kind;
    struct k8s_rules rules;
    struct br_exchange exchange;
    struct br_header headers[2];
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
    bool listed; /* all objects have been listed at least once */
    char version[VERSION_SIZE];
    char *more;
    unsigned page; /* number of objects that a list request asks for */
    uint64_t list; /* number of the current list */
    unsigned n_failed;
    struct br_log_limit limit, full_limit;
    /* metrics: number of objects, and of objects that were ignored: the table was full, or the
     * object could not be read */
    double *count, *ignored;
};

struct k8s_watches {
    struct br_node *node;
    const struct k8s_config *config;
    struct k8s_table *table;
    struct br_kubernetes kubernetes;
    struct br_client *client;
    struct watch watches[K8S_KINDS];
    unsigned n_watches, n_listed;
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

static const char *watch_node_name(const struct k8s_filters *filters)
{
    const char *name =
        *filters->node_from_env_var ? getenv(filters->node_from_env_var) : filters->node;
    return name ? name : "";
}

/* Writes the conditions on fields: on a pod those of `filter`, on a node its name. */
static void watch_put_fields(const struct watch *watch, struct br_str *out)
{
    const struct k8s_filters *filters = &watch->set->config->filter;
    const struct k8s_filter *fields = filters->fields.items;
    const char *node = watch_node_name(filters);
    for (size_t i = 0; i < filters->fields.count && watch->kind == K8S_POD; i++)
        watch_put_filter(out, &fields[i]);
    if (*node && watch->kind == K8S_POD)
        br_str_printf(out, "%sspec.nodeName=%s", out->len ? "," : "", node);
    if (*node && watch->kind == K8S_NODE)
        br_str_printf(out, "metadata.name=%s", node);
    if (watch->kind == K8S_NAMESPACE && watch->set->config->reads_kube_system_only)
        br_str_puts(out, "metadata.name=kube-system");
}

/* Writes the label and field selectors, which all requests contain. */
static int watch_make_selectors(struct watch *watch)
{
    const struct k8s_filters *filters = &watch->set->config->filter;
    const struct k8s_filter *labels = filters->labels.items;
    struct br_str label = {.max = 65536}, field = {.max = 65536};
    for (size_t i = 0; i < filters->labels.count && watch->kind == K8S_POD; i++)
        watch_put_filter(&label, &labels[i]);
    watch_put_fields(watch, &field);
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

static void watch_make_path(struct watch *watch)
{
    const struct k8s_kind_info *kind = &k8s_kinds[watch->kind];
    const char *namespace = watch->set->config->filter.namespace;
    br_str_clear(&watch->path);
    br_str_puts(&watch->path, kind->group);
    if (*namespace && kind->namespaced) {
        br_str_puts(&watch->path, "/namespaces/");
        watch_encode(&watch->path, namespace);
    }
    br_str_printf(&watch->path, "/%s?", kind->plural);
    if (watch->watching) {
        br_str_printf(
            &watch->path,
            "watch=1&allowWatchBookmarks=true&timeoutSeconds=%d&resourceVersion=", WATCH_S);
        watch_encode(&watch->path, watch->version);
    } else {
        br_str_printf(&watch->path, "limit=%u", watch->page);
        if (watch->more) {
            br_str_puts(&watch->path, "&continue=");
            watch_encode(&watch->path, watch->more);
        }
    }
    if (watch->selectors.len)
        br_str_puts(&watch->path, watch->selectors.data);
}

static void watch_on_deferred(struct br_deferred *deferred);

static void watch_restart(struct watch *watch)
{
    watch->watching = false;
    br_free(watch->more);
    watch->more = NULL;
}

/* Makes the next request return less data, because the answer was larger than ANSWER_MAX. */
static void watch_shrink(struct watch *watch)
{
    if (watch->watching)
        watch_restart(watch);
    else if (watch->page > 1)
        watch->page /= 2;
}

static void watch_on_done(struct br_exchange *exchange)
{
    struct watch *watch = exchange->user;
    watch->sending = false;
    watch->status = exchange->error ? 0 : exchange->http_status;
    watch->body = !exchange->error && exchange->http_status == 200 && exchange->response
                      ? br_buf_ref(exchange->response)
                      : NULL;
    if (exchange->error == BR_EFULL)
        watch_shrink(watch);
    if (exchange->error)
        (void)snprintf(watch->why, sizeof watch->why, "%s", exchange->error_text);
    else
        (void)snprintf(watch->why, sizeof watch->why,
                       "the Kubernetes API answered with status %u%s", exchange->http_status,
                       exchange->http_status == 403
                           ? "; the service account needs the permissions list and watch"
                           : "");
    br_host_defer(watch->set->node->host, &watch->deferred, watch_on_deferred);
}

/* Repeats the request after a delay. */
static void watch_fail(struct watch *watch, const char *why)
{
    struct br_node *node = watch->set->node;
    uint64_t delay_ms = RETRY_MIN_MS;
    watch->n_failed++;
    for (unsigned i = 1; i < watch->n_failed && delay_ms < RETRY_MAX_MS; i++)
        delay_ms *= 2;
    br_node_warn(node, &watch->limit, "cannot read %s: %s", k8s_kinds[watch->kind].plural, why);
    (void)br_host_timer(node->host, &watch->timer,
                        delay_ms < RETRY_MAX_MS ? delay_ms : RETRY_MAX_MS, watch_on_timer);
}

/* Writes the headers: the credentials, and for kinds other than pods a request for metadata only.
 * Returns their number. */
static size_t watch_make_headers(struct watch *watch)
{
    size_t n = 0;
    if (watch->token.len)
        watch->headers[n++] = (struct br_header){"authorization", watch->token.data};
    if (watch->kind != K8S_POD)
        watch->headers[n++] =
            (struct br_header){"accept", watch->watching ? METADATA("PartialObjectMetadata")
                                                         : METADATA("PartialObjectMetadataList")};
    return n;
}

static void watch_send(struct watch *watch)
{
    struct k8s_watches *set = watch->set;
    const char *authorization = br_kubernetes_authorization(&set->kubernetes);
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
        !br_host_timer(set->node->host, &watch->timer, REQUEST_MS, watch_on_timer)) {
        watch_fail(watch, "out of memory");
        return;
    }
    watch->exchange = (struct br_exchange){.method = "GET",
                                           .path = watch->path.data,
                                           .user_agent = "Braid/" BR_VERSION,
                                           .headers = watch->headers,
                                           .n_headers = watch_make_headers(watch),
                                           .max_response = ANSWER_MAX,
                                           .on_done = watch_on_done,
                                           .user = watch};
    watch->sending = true;
    br_client_send(set->client, &watch->exchange);
}

/* Ends a request that takes too long, or sends the next one. */
static void watch_on_timer(struct br_timer *timer)
{
    struct watch *watch = br_container_of(timer, struct watch, timer);
    if (!watch->sending) {
        watch_send(watch);
        return;
    }
    br_client_cancel(watch->set->client, &watch->exchange);
    watch->sending = false;
    watch_fail(watch, "the Kubernetes API did not answer in time");
}

/* --- Answers, in a thread --------------------------------------------------------------------- */

static void job_add(struct job *job, const json_t *json, bool deleted)
{
    struct k8s_object *object;
    int rc = k8s_object_read(job->rules, json, deleted, &object);
    job->n_ignored += rc == BR_EINVAL;
    job->failed = job->failed || rc == BR_ENOMEM;
    if (rc)
        return;
    if (br_grow(&job->changes, &job->cap_changes, (size_t)job->n_changes + 1, sizeof *job->changes,
                K8S_OBJECTS_MAX)) {
        br_free(object);
        job->failed = true;
        return;
    }
    job->changes[job->n_changes++] = (struct change){.deleted = deleted, .object = object};
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
        job->failed = job->failed || !job->more || size > TOKEN_MAX;
    }
    json_array_foreach(json_object_get(root, "items"), i, object) job_add(job, object, false);
    json_decref(root);
}

static void job_read_event(struct job *job, const json_t *event)
{
    const char *type = json_string_value(json_object_get(event, "type"));
    const json_t *object = json_object_get(event, "object");
    if (!type || strcmp(type, "ERROR") == 0) {
        job->expired = json_integer_value(json_object_get(object, "code")) == 410;
        job->failed = !job->expired;
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
        else if (next)
            job->failed = true;
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
        br_free(job->changes[i].object);
    br_free(job->changes);
    br_free(job->more);
    br_buf_unref(job->body);
    br_free(job);
}

/* --- Answers, in the worker ------------------------------------------------------------------- */

/* Adds an object to the table, which takes it. */
static void watch_put(struct watch *watch, struct k8s_object *object)
{
    object->list = watch->list;
    if (!k8s_table_put(watch->set->table, object))
        return;
    *watch->ignored += 1;
    br_node_warn(watch->set->node, &watch->full_limit,
                 "no memory for further %s, which are ignored; increase the memory limit, or read "
                 "fewer objects with filter",
                 k8s_kinds[watch->kind].plural);
}

/* Frees the objects whose grace period has ended. */
static void watch_sweep(struct watch *watch)
{
    struct k8s_watches *set = watch->set;
    uint64_t now_ms = br_host_mono_ms(set->node->host),
             grace_ms = set->config->pod_delete_grace_period / 1000000;
    if (now_ms > grace_ms)
        k8s_table_sweep(set->table, watch->kind, now_ms - grace_ms);
    *watch->count = (double)k8s_table_count(set->table, watch->kind);
}

/* Moves the objects of an answer to the table. */
static void watch_apply(struct watch *watch, struct job *job)
{
    struct k8s_watches *set = watch->set;
    uint64_t now_ms = br_host_mono_ms(set->node->host);
    if (!watch->watching && !watch->more)
        watch->list = ++set->table->list;
    *watch->ignored += job->n_ignored;
    if (job->n_ignored)
        br_node_warn(set->node, &watch->full_limit,
                     "%u %s were ignored, because they have no uid and name, or their texts are "
                     "longer than %u bytes",
                     job->n_ignored, k8s_kinds[watch->kind].plural, K8S_TEXTS_MAX);
    for (uint32_t i = 0; i < job->n_changes; i++) {
        struct change *change = &job->changes[i];
        if (change->deleted) {
            k8s_table_delete(set->table, change->object, now_ms);
        } else {
            watch_put(watch, change->object);
            change->object = NULL;
        }
    }
    if (job->version[0])
        memcpy(watch->version, job->version, sizeof watch->version);
    br_free(watch->more);
    watch->more = job->more;
    job->more = NULL;
    watch_sweep(watch);
}

/* Ends a list after its last page. */
static void watch_complete(struct watch *watch)
{
    struct k8s_watches *set = watch->set;
    k8s_table_delete_others(set->table, watch->kind, watch->list, br_host_mono_ms(set->node->host));
    watch->watching = true;
    if (watch->listed)
        return;
    watch->listed = true;
    br_log_write(&set->node->log, BR_LOG_INFO, "listed %zu %s",
                 k8s_table_count(set->table, watch->kind), k8s_kinds[watch->kind].plural);
    if (++set->n_listed == set->n_watches)
        atomic_store(&set->table->is_complete, true);
}

static void job_on_done(struct br_task *task)
{
    struct job *job = br_container_of(task, struct job, task);
    struct watch *watch = job->watch;
    if (!watch) {
        job_free(job);
        return;
    }
    watch->job = NULL;
    watch_apply(watch, job);
    bool failed = job->failed, expired = job->expired;
    if (!failed && !watch->watching && !watch->more)
        watch_complete(watch);
    if (failed || expired)
        watch_restart(watch);
    job_free(job);
    if (failed) {
        watch_fail(watch,
                   "the answer of the Kubernetes API is an error or is invalid, or out of memory");
        return;
    }
    watch->n_failed = 0;
    uint64_t delay_ms = watch->watching ? PAUSE_MS : 0;
    if (expired)
        delay_ms = RETRY_MIN_MS;
    if (!br_host_timer(watch->set->node->host, &watch->timer, delay_ms, watch_on_timer))
        watch_fail(watch, "out of memory");
}

static void watch_on_deferred(struct br_deferred *deferred)
{
    struct watch *watch = br_container_of(deferred, struct watch, deferred);
    struct br_host *host = watch->set->node->host;
    br_host_timer_stop(host, &watch->timer);
    if (!watch->body) {
        if (watch->status == 410)
            watch_restart(watch);
        /* a watch without events has an empty body */
        if (watch->status == 200 && watch->watching) {
            watch->n_failed = 0;
            watch_sweep(watch);
            (void)br_host_timer(host, &watch->timer, PAUSE_MS, watch_on_timer);
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
    br_task_init(&job->task, host, job_read, job_on_done);
    watch->job = job;
    br_task_start(&job->task);
}

/* --- Life ------------------------------------------------------------------------------------- */

/* Prepares the watch of one kind. */
static int watch_init(struct k8s_watches *set, enum k8s_kind kind)
{
    struct watch *watch = &set->watches[set->n_watches++];
    const char *plural = k8s_kinds[kind].plural;
    watch->set = set;
    watch->kind = kind;
    watch->page = PAGE;
    watch->token.max = BR_WATCHED_SIZE_MAX;
    watch->count =
        br_node_metric(set->node, BR_GAUGE, "braid_k8s_attributes_objects", "resource", plural);
    watch->ignored = br_node_metric(set->node, BR_COUNTER, "braid_k8s_attributes_ignored_objects",
                                    "resource", plural);
    int rc = k8s_rules_init(&watch->rules, set->config, kind);
    return rc ? rc : watch_make_selectors(watch);
}

static void watch_release(struct watch *watch)
{
    br_host_timer_stop(watch->set->node->host, &watch->timer);
    br_host_defer_cancel(&watch->deferred);
    if (watch->sending)
        br_client_cancel(watch->set->client, &watch->exchange);
    if (watch->job) {
        br_task_stop(&watch->job->task);
        watch->job->watch = NULL; /* the job is freed when the worker learns that it has ended */
    }
    k8s_rules_release(&watch->rules);
    br_buf_unref(watch->body);
    br_free(watch->more);
    br_str_release(&watch->path);
    br_str_release(&watch->selectors);
    br_str_release(&watch->token);
}

/* Makes the client, with one connection for each kind, because a watch request occupies its
 * connection. */
static int watch_connect(struct k8s_watches *set, struct br_err *err)
{
    struct br_node *node = set->node;
    const struct k8s_config *config = set->config;
    char origin[BR_KUBERNETES_ORIGIN_SIZE];
    const struct br_client_config client = {.endpoint = origin,
                                            .tls = &set->kubernetes.tls,
                                            .max_connections = set->n_watches,
                                            .log = &node->log};
    const char *variable = config->filter.node_from_env_var;
    if (*variable && !getenv(variable))
        return br_err_set(err, BR_EINVAL,
                          "filter::node_from_env_var: the environment variable %s is not set; set "
                          "it to spec.nodeName with the downward API",
                          variable);
    if (!br_kubernetes_origin(origin))
        return br_err_set(err, BR_EINVAL,
                          "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, "
                          "because the process does not run in a pod");
    br_kubernetes_begin(&set->kubernetes, node->host,
                        config->auth_type == K8S_AUTH_NONE ? NULL : config->service_account,
                        &node->log);
    return node->host->ops->connect(node->host, &client, &set->client, err);
}

int k8s_watches_new(struct br_node *node, const struct k8s_config *config, struct k8s_table *table,
                    struct k8s_watches **ret, struct br_err *err)
{
    struct k8s_watches *set = br_calloc(1, sizeof *set);
    int rc = 0;
    if (!set)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    set->node = node;
    set->config = config;
    set->table = table;
    for (unsigned kind = 0; kind < K8S_KINDS && !rc; kind++)
        if (config->reads[kind])
            rc = watch_init(set, (enum k8s_kind)kind);
    rc = rc ? br_err_set(err, BR_ENOMEM, "out of memory") : watch_connect(set, err);
    if (rc) {
        k8s_watches_free(set);
        return rc;
    }
    *ret = set;
    for (unsigned i = 0; i < set->n_watches; i++)
        watch_send(&set->watches[i]);
    return 0;
}

void k8s_watches_free(struct k8s_watches *set)
{
    if (!set)
        return;
    for (unsigned i = 0; i < set->n_watches; i++)
        watch_release(&set->watches[i]);
    br_client_free(set->client);
    br_kubernetes_release(&set->kubernetes);
    br_free(set);
}
