/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/otlp.h"

#include "base/bytes.h"
#include "ingest/pieces.h"

#include <string.h>
#include <strings.h>

#include "base/map.h"
#include "base/mem.h"
#include "otlp/edit/edit.h"
#include "otlp/json/json.h"

/* Maximum size in bytes of a body that the worker reads itself. Larger bodies are read in a thread.
 * A body of the maximum size takes one or two milliseconds. The maximum is lower for JSON, which is
 * converted to protobuf first. */
#define READ_NOW (1u << 20)
#define JSON_NOW (512u << 10)

void br_otlp_handler_init(struct br_otlp_handler *handler, struct br_node *node)
{
    handler->node = node;
    handler->repaired =
        br_node_metric(node, BR_COUNTER, "braid_receiver_repaired_strings", NULL, NULL);
    handler->corrected =
        br_node_metric(node, BR_COUNTER, "braid_receiver_corrected_times", NULL, NULL);
}

/* --- Bodies ----------------------------------------------------------------------------------- */

static int ingest_otlp_decode(struct br_reading *reading, struct br_buf **ret)
{
    const struct br_otlp_handler *handler = reading->arg;
    const struct br_buf *text = br_reading_bytes(reading);
    return br_json_decode(br_otlp_request(reading->signal), (const char *)text->data, text->len,
                          handler->max_depth, reading->max_body, reading->host->pool, ret,
                          &reading->err);
}

int br_otlp_repair_text(struct br_reading *reading)
{
    const struct br_buf *text = br_reading_bytes(reading);
    size_t len = text->len;
    if (br_utf8_valid(text->data, len) == len ||
        (len = br_utf8_replace(text->data, len, NULL)) > reading->max_body)
        return BR_EINVAL;
    struct br_buf *repaired = br_buf_new(reading->host->pool, len);
    if (!repaired)
        return br_err_set(&reading->err, BR_ENOMEM, "no memory for the repaired text");
    repaired->len = (uint32_t)br_utf8_replace(text->data, text->len, repaired->data);
    br_reading_replace(reading, repaired);
    reading->repaired_json = true;
    return 0;
}

static int ingest_otlp_from_json(struct br_reading *reading)
{
    const struct br_otlp_handler *handler = reading->arg;
    struct br_buf *plain = NULL;
    if (br_reading_bytes(reading)->len > JSON_NOW && reading->max_now != SIZE_MAX)
        return BR_EAGAIN;
    int rc = ingest_otlp_decode(reading, &plain);
    if (rc == BR_EINVAL && handler->utf8 == BR_UTF8_REPAIR) {
        int repaired = br_otlp_repair_text(reading);
        if (!repaired)
            rc = ingest_otlp_decode(reading, &plain);
        else if (repaired != BR_EINVAL)
            rc = repaired;
    }
    if (rc == 0)
        br_reading_replace(reading, plain);
    return rc;
}

static int ingest_otlp_walk_whole(struct br_reading *reading, struct br_walk_options *options)
{
    struct br_buf *buf = br_reading_bytes(reading);
    br_item_free(reading->item);
    reading->item = br_item_new(reading->host, reading->signal);
    if (!reading->item)
        return BR_ENOMEM;
    /* Counts the item's samples by type for the receiver's metrics. If memory is short, the
     * receiver counts the samples without a type. */
    struct br_sample_types *types = NULL;
    if (reading->signal == BR_PROFILES)
        types = br_arena_calloc(&reading->item->arena, 1, sizeof *types);
    options->types = types;
    int rc = br_walk(reading->item, buf, buf->data, buf->len, options, &reading->n_repaired,
                     &reading->err);
    options->types = NULL;
    reading->item->sample_types = types;
    if (rc == 0 && reading->item->odd_times)
        rc = br_item_correct_times(reading->item, reading->now_ns, &reading->n_corrected);
    return rc;
}

int br_otlp_walk(struct br_reading *reading, const struct br_otlp_handler *handler)
{
    /* Only the items that are forwarded get a list of their spans: the pieces, or the whole item if
     * it is not cut. Lists for the whole item and for its pieces would take too much memory. */
    struct br_walk_options options = {
        .max_depth = handler->max_depth, .utf8 = handler->utf8, .memo = &reading->bench->memo};
    bool spans = handler->node->spans_wanted,
         large = br_reading_bytes(reading)->len > br_pieces_from(reading->signal);
    if (large && reading->max_now != SIZE_MAX)
        return BR_EAGAIN; /* a request that is cut into pieces is read in a thread */
    options.spans = spans && !large;
    int rc = ingest_otlp_walk_whole(reading, &options);
    bool cuts = rc == 0 && !handler->whole && br_pieces_wanted(reading->item);
    options.spans = spans;
    if (cuts) {
        br_item_forget_spans(reading->item);
        rc = br_pieces_cut(reading, &options);
    }
    if (rc == 0 && spans && (large || cuts) && br_list_empty(&reading->pieces))
        rc = ingest_otlp_walk_whole(reading, &options);
    /* br_walk returns BR_ETOOBIG if messages are nested too deeply, but callers report this code as
     * "request too large" */
    return rc == BR_ETOOBIG ? BR_EINVAL : rc;
}

int br_otlp_read(struct br_reading *reading)
{
    int rc = br_reading_unpack(reading);
    if (rc == 0 && reading->format == BR_UPLOAD_JSON)
        rc = ingest_otlp_from_json(reading);
    return rc ? rc : br_otlp_walk(reading, reading->arg);
}

/* Logs a request that is not empty but contains no records, once per client address. Most likely,
 * the client uses another version of OTLP or sends another signal. */
static void ingest_otlp_note_empty(struct br_otlp_handler *handler, const struct br_upload *upload,
                                   const struct br_reading *reading)
{
    static const uint8_t key[16];
    const struct br_item *item = reading->item;
    if (reading->body_len == 0 || !item || !upload->request)
        return;
    if (item->n_records || item->n_profiles || !br_list_empty(&reading->pieces))
        return;
    const char *peer = upload->request->peer, *port = strrchr(peer, ':');
    int len = (int)(port ? (size_t)(port - peer) : strlen(peer));
    uint64_t hash = br_siphash(key, peer, (size_t)len);
    for (unsigned i = 0; i < handler->n_noted; i++)
        if (handler->noted[i] == hash)
            return;
    if (handler->n_noted == BR_COUNT(handler->noted))
        return;
    handler->noted[handler->n_noted++] = hash;
    br_warn(&handler->node->log,
            "a request from %.*s with %zu bytes contained no %s: it may use another version of "
            "OTLP or another signal (counted in braid_ledger_empty_requests; logged once per "
            "address)",
            len ? len : 14, len ? peer : "a local client", reading->body_len,
            item->signal == BR_TRACES ? "span" : "profile");
}

void br_otlp_count_repaired(struct br_otlp_handler *handler, const struct br_reading *reading)
{
    *handler->repaired += reading->n_repaired + (double)reading->repaired_json;
}

static void ingest_otlp_on_read(struct br_upload *upload, const struct br_reading *reading)
{
    struct br_otlp_handler *handler = upload->arg;
    ingest_otlp_note_empty(handler, upload, reading);
    br_otlp_count_repaired(handler, reading);
    if (reading->n_corrected && *handler->corrected < 1)
        br_warn(&handler->node->log,
                "profiles have times before 1971, either zero or not in nanoseconds: they are "
                "corrected and counted (braid_receiver_corrected_times); logged once");
    *handler->corrected += reading->n_corrected;
}

static void ingest_otlp_answer(const struct br_upload *upload, struct br_request *request,
                               const struct br_outcome *outcome)
{
    const struct br_item *item = upload->item;
    struct br_outcome of_profiles = *outcome;
    if (upload->signal == BR_PROFILES && item && item->n_profiles)
        of_profiles.n_rejected =
            br_signal_share(outcome->n_rejected, item->received_records, item->n_profiles);
    br_otlp_reply(request, upload->signal, upload->format, &of_profiles,
                  upload->format == BR_UPLOAD_GRPC ? NULL : upload->listener->http);
}

static const struct br_upload_kind kind = {br_otlp_read, READ_NOW, ingest_otlp_on_read,
                                           ingest_otlp_answer};

/* --- Requests --------------------------------------------------------------------------------- */

static const struct {
    const char *path;
    enum br_signal signal;
} methods[] = {
    {"/opentelemetry.proto.collector.trace.v1.TraceService/Export", BR_TRACES},
    {"/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export", BR_PROFILES},
    /* Fluent Bit still sends profiles to this old path, but with the current field numbers. */
    {"/opentelemetry.proto.collector.profiles.v1experimental.ProfilesService/Export", BR_PROFILES},
};

/* Returns true if the version header is absent, or is present once with the value "1". */
static bool ingest_otlp_version_ok(const struct br_request *request)
{
    unsigned n = 0;
    for (size_t i = 0; i < request->n_headers; i++) {
        if (strcmp(request->headers[i].name, "otlp-profiles-development-version") != 0)
            continue;
        if (strcmp(request->headers[i].value, "1") != 0 || n++)
            return false;
    }
    return true;
}

static void ingest_otlp_begin(const struct br_upload *how, struct br_request *request)
{
    struct br_upload *upload = br_upload_new(how, request);
    if (upload && upload->signal == BR_PROFILES && !ingest_otlp_version_ok(request))
        br_upload_reject(upload, BR_STATUS_INVALID_ARGUMENT,
                         "otlp-profiles-development-version must be 1 (or absent), once");
}

bool br_otlp_begin_grpc(struct br_otlp_handler *handler, struct br_ingest_listener *listener,
                        struct br_meter *meter, struct br_request *request)
{
    struct br_upload how = {.kind = &kind,
                            .arg = handler,
                            .listener = listener,
                            .meter = meter,
                            .format = BR_UPLOAD_GRPC};
    size_t i = 0;
    while (i < BR_COUNT(methods) && strcmp(methods[i].path, request->path) != 0)
        i++;
    if (i == BR_COUNT(methods) || !(handler->signals & BR_SIGNAL_BIT(methods[i].signal)))
        return false;
    how.signal = methods[i].signal;
    if (br_grpc_begin(request, &how.encoding))
        ingest_otlp_begin(&how, request);
    return true;
}

/* Determines the format from the content type without its parameters. Returns false if the content
 * type is not supported. */
static bool ingest_otlp_read_type(const struct br_request *request, bool more,
                                  enum br_upload_format *ret)
{
    static const struct {
        const char *type;
        enum br_upload_format format;
        bool more;
    } types[] = {{"application/x-protobuf", BR_UPLOAD_PROTOBUF, false},
                 {"application/json", BR_UPLOAD_JSON, false},
                 {"application/protobuf", BR_UPLOAD_PROTOBUF, true}};
    const char *type = br_request_header(request, "content-type");
    size_t n = type ? strcspn(type, "; \t") : 0;
    for (size_t i = 0; i < BR_COUNT(types); i++) {
        if (!br_bytes_are_nocase(type, n, types[i].type))
            continue;
        *ret = types[i].format;
        return more || !types[i].more;
    }
    return false;
}

static void ingest_otlp_refuse(struct br_ingest_listener *listener, struct br_request *request,
                               unsigned code, const char *why)
{
    br_ingest_log_refused(listener->ingest, request, BR_STATUS_INVALID_ARGUMENT, why);
    br_otlp_refuse(request, code, why, listener->http);
}

bool br_otlp_begin_http(struct br_otlp_handler *handler, struct br_ingest_listener *listener,
                        struct br_meter *meter, struct br_request *request)
{
    const struct br_http_config *http = listener->http;
    struct br_upload how = {.kind = &kind, .arg = handler, .listener = listener, .meter = meter};
    int signal = 0;
    while (signal < BR_SIGNALS &&
           (!handler->paths[signal] || strcmp(handler->paths[signal], request->path) != 0))
        signal++;
    if (signal == BR_SIGNALS)
        return false;
    how.signal = (enum br_signal)signal;
    if (br_http_answer_page(http, NULL, request))
        return true;
    if (strcmp(request->method, "POST") != 0)
        ingest_otlp_refuse(listener, request, 405, "export requests must use POST");
    else if (!ingest_otlp_read_type(request, handler->more_types, &how.format))
        ingest_otlp_refuse(listener, request, 415,
                           "content-type must be application/x-protobuf or application/json");
    else if (!br_http_encoding(http, request, &how.encoding))
        ingest_otlp_refuse(listener, request, 415,
                           "content-encoding must be gzip, zstd, deflate or snappy");
    else
        ingest_otlp_begin(&how, request);
    return true;
}
