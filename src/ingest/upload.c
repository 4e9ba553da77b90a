/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/upload.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "core/authenticator.h"
#include "ingest/pieces.h"

#define DELAY_MS 1000
#define REFUSED_EVERY_MS 10000
#define SHED_DELAY_MS 5000
#define METADATA_MAX 16384
#define MEMORY_LIMIT "memory limit reached"

/* --- End of an upload ------------------------------------------------------------------------- */

static void upload_free(struct br_upload *upload)
{
    br_list_remove(&upload->link);
    br_free(upload->partial);
    br_free(upload);
}

void br_ingest_log_refused(struct br_ingest *ingest, const struct br_request *request,
                           enum br_status status, const char *why)
{
    struct br_node *node = ingest->node;
    br_log_limited(&node->log, BR_LOG_WARN, &ingest->refused_log, br_host_mono_ms(node->host),
                   REFUSED_EVERY_MS, "rejected a request from %s: %s: %s",
                   request->peer[0] ? request->peer : "a local client", br_status_name(status),
                   why);
}

void br_ingest_refuse_text(struct br_ingest_listener *listener, struct br_request *request,
                           unsigned code, const char *why)
{
    br_ingest_log_refused(listener->ingest, request, BR_STATUS_INVALID_ARGUMENT, why);
    br_http_reply(listener->http, request,
                  &(struct br_http_answer){
                      .status = code, .type = "text/plain", .data = why, .len = strlen(why)});
}

void br_upload_answer_accepted(const struct br_upload *upload, struct br_request *request,
                               const struct br_outcome *outcome)
{
    const char *text = outcome->text;
    bool done = outcome->verdict == BR_DONE;
    br_http_reply(upload->listener->http, request,
                  &(struct br_http_answer){.status = done ? 202 : br_outcome_http(outcome),
                                           .delay_ms = br_retry_delay_ms(outcome),
                                           .type = text[0] ? "text/plain" : NULL,
                                           .data = text,
                                           .len = strlen(text)});
}

void br_ingest_log_unknown(struct br_ingest *ingest, const struct br_request *request,
                           const char *paths, char *why)
{
    char path[121];
    (void)snprintf(path, sizeof path, "%s", request->path);
    for (char *p = path; *p; p++)
        if (*p < '!' || *p > '~')
            *p = '?';
    (void)snprintf(why, BR_INGEST_UNKNOWN_MAX, "unknown path %s; %.190s", path, paths);
    br_ingest_log_refused(ingest, request, BR_STATUS_UNIMPLEMENTED, why);
}

static void upload_answer(struct br_upload *upload, const struct br_outcome *outcome)
{
    struct br_request *request = upload->request;
    if (outcome->verdict != BR_DONE)
        br_ingest_log_refused(upload->listener->ingest, request, br_outcome_grpc(outcome),
                              outcome->text);
    struct br_upload was = *upload;
    was.request = NULL;
    was.partial = NULL;
    request->user = NULL;
    upload_free(upload);
    was.kind->answer(&was, request, outcome);
}

static void upload_refuse_as(struct br_upload *upload, const struct br_outcome *outcome)
{
    *upload->meter->refused[upload->signal] += 1;
    upload_answer(upload, outcome);
}

static void upload_reject_as(struct br_upload *upload, const struct br_outcome *outcome)
{
    *upload->meter->failed[upload->signal] += 1;
    upload_answer(upload, outcome);
}

static void upload_refuse(struct br_upload *upload, const char *why)
{
    struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, DELAY_MS, "%s", why);
    upload_refuse_as(upload, &outcome);
}

void br_upload_reject(struct br_upload *upload, enum br_status status, const char *why)
{
    struct br_outcome outcome = br_outcome_reject(status, "%s", why);
    upload_reject_as(upload, &outcome);
}

/* --- Start of an upload ----------------------------------------------------------------------- */

/* Returns true if the body of the upload may be read. Otherwise answers the request with an error
 * and returns false. */
static bool upload_admit(struct br_upload *upload)
{
    struct br_node *node = upload->listener->ingest->node;
    if (!node->next[upload->signal]) {
        struct br_outcome o =
            br_outcome_reject(BR_STATUS_UNIMPLEMENTED, "receiver %s is not in any %s pipeline",
                              node->id, br_signal_name(upload->signal));
        upload_reject_as(upload, &o);
        return false;
    }
    bool ends = br_node_is_shutting_down(node);
    if (ends || br_host_over_limit(node->host)) {
        upload_refuse(upload, ends ? "shutting down" : MEMORY_LIMIT);
        return false;
    }
    if (br_shed_refuses(node->host, upload->signal)) {
        struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, SHED_DELAY_MS, "overloaded");
        upload_refuse_as(upload, &o);
        return false;
    }
    return true;
}

/* Returns the maximum size of a body, in bytes: the config's limit, or the size of the largest
 * body that can ever fit into the memory limit if that is less. */
static size_t upload_largest_body(const struct br_upload *upload)
{
    struct br_memory *memory = upload->listener->ingest->node->host->memory;
    size_t max = upload->listener->max_body,
           largest = memory ? br_memory_largest(memory) : SIZE_MAX;
    return largest < max ? largest : max;
}

struct br_upload *br_upload_new(const struct br_upload *how, struct br_request *request)
{
    struct br_upload *upload = br_malloc(sizeof *upload);
    if (!upload) {
        struct br_outcome outcome =
            br_outcome_retry(BR_STATUS_UNAVAILABLE, DELAY_MS, "out of memory");
        *how->meter->refused[how->signal] += 1;
        how->kind->answer(how, request, &outcome);
        return NULL;
    }
    *upload = *how;
    upload->request = request;
    upload->item = NULL;
    upload->reading = NULL;
    upload->partial = NULL;
    request->user = upload;
    request->max_body = upload_largest_body(upload);
    br_list_append(&upload->listener->ingest->uploads, &upload->link);
    return upload_admit(upload) ? upload : NULL;
}

/* Returns true if a rejected request of `wanted` bytes may succeed when it is sent again. If the
 * request is large, frees unused memory first. */
static bool upload_may_fit_later(const struct br_upload *upload, size_t wanted)
{
    struct br_memory *memory = upload->listener->ingest->node->host->memory;
    if (!memory || wanted < br_memory_hard(memory) / BR_READING_LARGE)
        return true;
    br_memory_settle(memory, 0);
    return wanted <= br_memory_largest(memory);
}

/* --- Items ------------------------------------------------------------------------------------ */

/* Returns the name of the header that contains the value of a metadata key. */
static const char *upload_source_of(const struct br_ingest *ingest, const char *key)
{
    return ingest->tenant_header && strcasecmp(key, BR_TENANT_KEY) == 0 ? ingest->tenant_header
                                                                        : key;
}

static void upload_put_metadata(struct br_str *text, const char *key, const char *value)
{
    br_str_add(text, key, strlen(key) + 1);
    br_str_add(text, value, strlen(value) + 1);
}

/* Appends an attribute of the authenticated client, whose key begins with BR_AUTH_KEY. A request
 * header with the same name is ignored, so that clients cannot forge the attribute. */
static void upload_put_auth(struct br_str *text, const char *key, const struct br_request *request)
{
    for (const char *name = request->auth; name && *name;) {
        const char *value = name + strlen(name) + 1;
        if (strcasecmp(name, key + strlen(BR_AUTH_KEY)) == 0)
            upload_put_metadata(text, key, value);
        name = value + strlen(value) + 1;
    }
}

/* Appends the IP address of the client, without its port and zone. A client of a unix socket has no
 * address. */
static void upload_put_address(struct br_str *text, const char *peer)
{
    static const char mapped[] = "::ffff:";
    char address[sizeof((struct br_request *)0)->peer];
    bool bracket = peer[0] == '[';
    const char *start = bracket ? peer + 1 : peer;
    size_t len = strcspn(start, bracket ? "]%" : ":");
    memcpy(address, start, len);
    address[len] = '\0';
    struct in6_addr ip;
    if (inet_pton(bracket ? AF_INET6 : AF_INET, address, &ip) != 1)
        return;
    bool v4 = strncasecmp(address, mapped, sizeof mapped - 1) == 0 && strchr(address, '.');
    upload_put_metadata(text, BR_ADDRESS_KEY, v4 ? address + sizeof mapped - 1 : address);
}

/* Copies to the item the metadata that components use: name\0value\0 pairs, ended by an empty name.
 */
static void upload_keep_metadata(struct br_item *item, const struct br_upload *upload)
{
    const struct br_ingest *ingest = upload->listener->ingest;
    const struct br_request *request = upload->request;
    const struct br_strings *keys = ingest->node->metadata_keys;
    struct br_str text = {.max = METADATA_MAX};
    for (size_t i = 0; keys && i < keys->count; i++) {
        const char *key = keys->items[i], *source = upload_source_of(ingest, key);
        bool is_auth = br_text_starts_nocase(key, BR_AUTH_KEY);
        if (strcasecmp(key, BR_ADDRESS_KEY) == 0) {
            upload_put_address(&text, request->peer);
            continue;
        }
        size_t n_headers = upload->listener->drops_metadata ? 0 : request->n_headers;
        if (is_auth)
            upload_put_auth(&text, key, request);
        for (size_t k = 0; k < n_headers && !is_auth; k++)
            if (strcasecmp(request->headers[k].name, source) == 0)
                upload_put_metadata(&text, key, request->headers[k].value);
    }
    if (text.len && !text.failed)
        item->metadata = br_arena_strndup(&item->arena, text.data, text.len);
    br_str_release(&text);
}

static void upload_on_stopped(void *arg)
{
    struct br_ingest *ingest = arg;
    if (--ingest->n_stopping == 0)
        br_node_drained(ingest->node);
}

/* Ends the drain's wait for transfers of pieces if all transfers have ended. A transfer can
 * continue after the last request has ended. */
static void upload_check_sendings(struct br_ingest *ingest)
{
    if (!ingest->awaits_sendings || !br_list_empty(&ingest->sendings))
        return;
    ingest->awaits_sendings = false;
    upload_on_stopped(ingest);
}

static void upload_on_done(struct br_item *item, void *arg)
{
    struct br_upload *upload = arg;
    struct br_ingest *ingest = upload->listener->ingest;
    const struct br_outcome *outcome = &item->outcome;
    br_item_answered(item);
    br_meter_count_outcome(upload->meter, item);
    if (upload->request) {
        struct br_outcome how =
            upload->partial && outcome->verdict == BR_DONE ? *upload->partial : *outcome;
        upload_answer(upload, &how);
    } else {
        upload_free(upload);
    }
    upload_check_sendings(ingest);
}

static void upload_send(struct br_upload *upload, struct br_item *item, struct br_list *pieces)
{
    struct br_ingest *ingest = upload->listener->ingest;
    upload_keep_metadata(item, upload);
    br_item_received(item);
    item->done = upload_on_done;
    item->done_arg = upload;
    upload->item = item;
    if (br_shed_drops(ingest->node->host, item->signal)) {
        br_pieces_free(pieces);
        br_shed_item(item);
    } else if (!br_list_empty(pieces)) {
        br_pieces_send(ingest->node, item, pieces, &ingest->sendings);
    } else {
        br_node_forward(ingest->node, item);
    }
}

/* --- Bodies ----------------------------------------------------------------------------------- */

static void upload_fail_reading(struct br_upload *upload, const struct br_reading *reading, int rc)
{
    const char *why = br_reading_why(reading, rc);
    if (rc == BR_ENOMEM)
        upload_refuse(upload, why);
    else if (rc == BR_ETOOBIG || rc == BR_EFULL)
        br_upload_reject(upload, BR_STATUS_RESOURCE_EXHAUSTED, why);
    else
        br_upload_reject(upload, reading->invalid, why);
}

/* If parts of the request are missing in the item, counts them as failed, and prepares a response
 * that reports them as rejected. This response is sent if the item ends as BR_DONE. Returns 0 or
 * BR_ENOMEM. */
static int upload_note_partial(struct br_upload *upload, const struct br_reading *reading)
{
    if (!reading->n_left_out)
        return 0;
    upload->partial = br_malloc(sizeof *upload->partial);
    if (!upload->partial)
        return BR_ENOMEM;
    *upload->partial = br_outcome_reject(reading->invalid, "%s", reading->left_out);
    *upload->meter->failed[upload->signal] += reading->n_left_out;
    return 0;
}

static void upload_on_read(void *owner, struct br_reading *reading, int rc)
{
    struct br_upload *upload = owner;
    if (rc == 0)
        rc = upload_note_partial(upload, reading);
    if (rc) {
        upload_fail_reading(upload, reading, rc);
        return;
    }
    if (upload->kind->on_read)
        upload->kind->on_read(upload, reading);
    struct br_item *item = reading->item;
    reading->item = NULL;
    upload_send(upload, item, &reading->pieces);
}

/* Starts to read the body, and takes over the caller's reference to `body`. */
static void upload_read(struct br_upload *upload, struct br_buf *body)
{
    struct br_ingest *ingest = upload->listener->ingest;
    const struct br_reading how = {.arg = upload->arg,
                                   .request = upload->request,
                                   .signal = upload->signal,
                                   .format = upload->format,
                                   .encoding = upload->encoding,
                                   .max_body = upload->request->max_body,
                                   .now_ns = br_host_unix_ns(ingest->node->host),
                                   .max_now = upload->kind->read_now,
                                   .host = ingest->node->host,
                                   .bench = &ingest->bench,
                                   .body = body,
                                   .invalid = BR_STATUS_INVALID_ARGUMENT};
    br_reading_start(&how, upload->kind->read, upload_on_read, upload, &ingest->readings,
                     &upload->reading);
}

static void upload_on_body(struct br_handler *self, struct br_request *request)
{
    struct br_upload *upload = request->user;
    (void)self;
    if (request->body_error == BR_BODY_TOO_BIG) {
        struct br_outcome outcome =
            br_outcome_reject(BR_STATUS_RESOURCE_EXHAUSTED, "the request is larger than %zu bytes",
                              request->max_body);
        upload_reject_as(upload, &outcome);
        return;
    }
    if (request->body_error == BR_BODY_MALFORMED) {
        br_upload_reject(upload, BR_STATUS_INVALID_ARGUMENT,
                         "the body must be one length-prefixed message");
        return;
    }
    if (request->body_error && upload_may_fit_later(upload, request->body_wanted)) {
        upload_refuse(upload, MEMORY_LIMIT);
        return;
    }
    if (request->body_error) {
        br_upload_reject(upload, BR_STATUS_RESOURCE_EXHAUSTED,
                         "the request takes more memory than the memory limit allows");
        return;
    }
    if (request->grpc_compressed && upload->encoding == BR_ENCODING_NONE) {
        br_upload_reject(upload, BR_STATUS_INTERNAL,
                         "a message is marked as compressed, but there is no grpc-encoding header");
        return;
    }
    struct br_buf *body = request->body ? request->body : br_buf_new(request->pool, 1);
    request->body = NULL;
    if (body)
        upload_read(upload, body);
    else
        upload_refuse(upload, MEMORY_LIMIT);
}

static void upload_on_gone(struct br_handler *self, struct br_request *request)
{
    struct br_upload *upload = request->user;
    (void)self;
    request->user = NULL;
    if (!upload)
        return;
    upload->request = NULL;
    br_reading_cancel(&upload->reading);
    if (!upload->item)
        upload_free(upload);
}

/* --- Collected profiles ----------------------------------------------------------------------- */

static int upload_apply(struct br_overridable *overridable, const struct br_override *override,
                        struct br_err *err)
{
    (void)overridable;
    (void) override;
    (void)err;
    /* reject all overrides, because a receiver cannot request more data from clients that push
     * profiles */
    return 0;
}

static void upload_withdraw(struct br_overridable *overridable, uint64_t id)
{
    (void)overridable;
    (void)id;
}

static void upload_list(const struct br_overridable *overridable, br_collected_fn *fn, void *arg)
{
    const struct br_ingest *ingest = br_container_of(overridable, struct br_ingest, overridable);
    if (ingest->node->next[BR_PROFILES] && !br_list_empty(&ingest->listeners))
        fn(&(struct br_collected){.component = ingest->node->id,
                                  .service = "",
                                  .target = "",
                                  .type = "pushed",
                                  .state = "ok"},
           arg);
}

static const struct br_overridable_ops overridable_ops = {upload_apply, upload_withdraw,
                                                          upload_list};

/* --- Node ------------------------------------------------------------------------------------- */

int br_ingest_init(struct br_ingest *ingest, struct br_node *node, struct br_err *err)
{
    ingest->node = node;
    br_list_init(&ingest->uploads);
    br_list_init(&ingest->listeners);
    br_list_init(&ingest->sendings);
    br_list_init(&ingest->readings);
    ingest->overridable.ops = &overridable_ops;
    br_overridable_register(&ingest->overridable, node->host);
    return br_workbench_init(&ingest->bench) ? br_err_set(err, BR_ENOMEM, "out of memory") : 0;
}

void br_ingest_release(struct br_ingest *ingest)
{
    if (!ingest->node)
        return;
    br_overridable_unregister(&ingest->overridable);
    while (!br_list_empty(&ingest->listeners)) {
        struct br_ingest_listener *listener =
            br_container_of(ingest->listeners.next, struct br_ingest_listener, link);
        br_list_remove(&listener->link);
        br_http_service_release(&listener->service);
    }
    br_pieces_stop(&ingest->sendings);
    while (!br_list_empty(&ingest->uploads)) {
        struct br_upload *upload = br_container_of(ingest->uploads.next, struct br_upload, link);
        if (upload->item)
            /* the item stays in the pipeline and must not call back */
            upload->item->done = NULL;
        br_reading_cancel(&upload->reading);
        upload_free(upload);
    }
    br_reading_wait_all(&ingest->readings);
    br_workbench_release(&ingest->bench);
}

void br_ingest_drain(struct br_ingest *ingest)
{
    ingest->n_stopping = 2;
    ingest->awaits_sendings = true;
    for (struct br_list *list = ingest->listeners.next; list != &ingest->listeners;
         list = list->next) {
        ingest->n_stopping++;
        br_server_stop(br_container_of(list, struct br_ingest_listener, link)->service.server,
                       upload_on_stopped, ingest);
    }
    upload_check_sendings(ingest);
    upload_on_stopped(ingest);
}

int br_ingest_listen(struct br_ingest *ingest, struct br_ingest_listener *listener,
                     const char *what, struct br_server_config *config, struct br_err *err)
{
    listener->ingest = ingest;
    listener->service.handler.body = upload_on_body;
    listener->service.handler.gone = upload_on_gone;
    int rc = br_http_service_listen(&listener->service, ingest->node, what, NULL, config, err);
    if (!rc)
        br_list_append(&ingest->listeners, &listener->link);
    return rc;
}

bool br_meter_flaws(const struct br_meter *meter, const struct br_reading *reading,
                    char ret[BR_FLAWS_SIZE])
{
    int len = 0;
    if (reading->n_lost) {
        *meter->failed[BR_PROFILES] += reading->n_lost;
        len = snprintf(ret, BR_FLAWS_SIZE, "%u samples were dropped: %s", reading->n_lost,
                       reading->lost);
    }
    if (reading->n_strays) {
        *meter->strays += reading->n_strays;
        (void)snprintf(ret + len, BR_FLAWS_SIZE - (size_t)len,
                       "%s%u invalid references were ignored: %s", len ? "; " : "",
                       reading->n_strays, reading->stray);
    }
    return reading->n_lost || reading->n_strays;
}

/* --- Counting --------------------------------------------------------------------------------- */

static const char *const results[BR_METER_RESULTS] = {"accepted", "refused", "failed"};

void br_meter_init(struct br_meter *meter, struct br_node *node, const char *transport,
                   unsigned signals)
{
    static const char *const items[BR_SIGNALS] = {"spans", "profile_samples"};
    double **const of[] = {meter->accepted, meter->refused, meter->failed};
    meter->node = node;
    meter->transport = transport;
    for (int s = 0; s < BR_SIGNALS; s++) {
        for (int i = 0; i < BR_METER_RESULTS && (signals & BR_SIGNAL_BIT(s)); i++) {
            char name[96];
            (void)snprintf(name, sizeof name, "otelcol_receiver_%s_%s", results[i], items[s]);
            of[i][s] = br_node_metric(node, BR_COUNTER, name, "transport", transport);
        }
    }
    if (signals == BR_SIGNAL_BIT(BR_PROFILES))
        meter->strays =
            br_node_metric(node, BR_COUNTER, "braid_receiver_pprof_strays", "transport", transport);
}

/* Returns the counters of a sample type, which are created when the type first occurs. If the
 * maximum number of types is reached, all further types share the last counters. */
static double *const *upload_counters_of(struct br_meter *meter, const char *type)
{
    unsigned i = 0;
    while (i < meter->n_types && strcmp(meter->types[i].name, type) != 0)
        i++;
    if (i == BR_METER_TYPES_MAX)
        return meter->types[BR_METER_TYPES_MAX - 1].counters;
    if (i < meter->n_types)
        return meter->types[i].counters;
    if (i == BR_METER_TYPES_MAX - 1)
        type = BR_SAMPLE_TYPE_OTHER;
    meter->n_types++;
    (void)snprintf(meter->types[i].name, sizeof meter->types[i].name, "%s", type);
    struct br_str labels = {.max = 2048};
    br_label(&labels, "receiver", meter->node->id);
    br_label(&labels, "sample_type", type);
    br_label(&labels, "transport", meter->transport);
    for (int k = 0; k < BR_METER_RESULTS; k++) {
        char name[96];
        (void)snprintf(name, sizeof name, "otelcol_receiver_%s_profile_samples", results[k]);
        meter->types[i].counters[k] =
            br_metric(meter->node->host->metrics, BR_COUNTER, name, labels.data ? labels.data : "");
    }
    br_str_release(&labels);
    return meter->types[i].counters;
}

void br_meter_count(struct br_meter *meter, enum br_meter_result result, const struct br_item *item,
                    uint32_t n_records)
{
    double *const *of[] = {meter->accepted, meter->refused, meter->failed};
    const struct br_sample_types *types = item->sample_types;
    uint32_t remaining = n_records;
    for (unsigned i = 0; types && i < types->count; i++) {
        uint32_t n = types->rows[i].n_samples < remaining ? types->rows[i].n_samples : remaining;
        *upload_counters_of(meter, types->rows[i].name)[result] += n;
        remaining -= n;
    }
    *of[result][item->signal] += remaining;
}

void br_meter_count_outcome(struct br_meter *meter, const struct br_item *item)
{
    enum br_meter_result result = BR_METER_FAILED;
    if (item->outcome.verdict == BR_DONE)
        result = BR_METER_ACCEPTED;
    else if (item->outcome.verdict == BR_RETRY)
        result = BR_METER_REFUSED;
    br_meter_count(meter, result, item, item->received_records);
}
