/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes items from requests. Every receiver that has a server uses this module.
 *
 * - An ingest belongs to one node, and contains the node's listeners and uploads.
 * - An upload is one request, from its headers to the outcome of its item. The upload's kind
 * defines the format of the body and of the answer.
 * - The receiver implements a listener's `begin`. `begin` examines path and content type,
 * determines the protocol, and creates the upload. This module implements the handler's `body` and
 * `gone`.
 */
#pragma once

#include "base/list.h"
#include "ingest/http.h"
#include "ingest/http_service.h"
#include "ingest/reading.h"
#include "otlp/sample_types.h"
#include "pipeline/override.h"

/* metadata key of the tenant, which is the name of the header that Pyroscope, Tempo and Mimir
 * use */
#define BR_TENANT_KEY "x-scope-orgid"

struct br_ingest {
    struct br_node *node;
    /* name of the header that contains the tenant; NULL: the name is BR_TENANT_KEY */
    const char *tenant_header;
    struct br_workbench bench; /* decoders and tables for the readings that run in the worker */
    struct br_list uploads, listeners;
    /* list of the transfers of pieces that have not ended (pieces.h) */
    struct br_list sendings;
    /* list of the readings that run in threads (struct br_reading_task) */
    struct br_list readings;
    /* informs other components that this node receives profiles; accepts no override */
    struct br_overridable overridable;
    struct br_log_limit refused_log; /* limits how often br_ingest_log_refused logs a message */
    unsigned n_stopping;
    /* true: the drain waits until `sendings` is empty. While this is true, n_stopping is higher by
     * one */
    bool awaits_sendings;
};

enum br_meter_result { BR_METER_ACCEPTED, BR_METER_REFUSED, BR_METER_FAILED, BR_METER_RESULTS };

#define BR_METER_TYPES_MAX 16

/* Counters otelcol_receiver_{accepted,refused,failed}_{spans,profile_samples} of one transport.
 * The counters of profile samples have a label sample_type if the type is known, with at most
 * BR_METER_TYPES_MAX values. */
struct br_meter {
    double *accepted[BR_SIGNALS], *refused[BR_SIGNALS], *failed[BR_SIGNALS];
    /* counter of invalid references; NULL unless the receiver accepts only profiles */
    double *strays;
    struct br_node *node;
    const char *transport;
    unsigned n_types;
    struct {
        char name[BR_SAMPLE_TYPE_SIZE];
        double *counters[BR_METER_RESULTS];
    } types[BR_METER_TYPES_MAX];
};

/* Adds `n_records` to a counter of the meter. `n_records` is the item's current number of records,
 * or its number of records when it was received. */
void br_meter_count(struct br_meter *meter, enum br_meter_result result, const struct br_item *item,
                    uint32_t n_records);

/* Counts all received records of a finished item as accepted, refused or failed, according to its
 * outcome. */
void br_meter_count_outcome(struct br_meter *meter, const struct br_item *item);

/* One listener. The receiver zeroes the struct and sets service.handler.begin, http, max_body
 * and drops_metadata; br_ingest_listen sets the other fields. */
struct br_ingest_listener {
    struct br_http_service service;
    struct br_ingest *ingest;
    struct br_list link;
    /* HTTP config of the listener; NULL: the listener serves only gRPC */
    const struct br_http_config *http;
    size_t max_body;
    /* true: client metadata is not stored, because the option include_metadata is false */
    bool drops_metadata;
};

struct br_upload;

struct br_upload_kind {
    /* Makes an item from the body, in the worker or in a thread (reading.h). If this function
     * fails, its error code determines the status of the response:
     * - BR_ENOMEM: a retryable status
     * - BR_ETOOBIG or BR_EFULL: RESOURCE_EXHAUSTED
     * - other codes: reading->invalid */
    br_read_fn *read;
    /* maximum size, in bytes, of an uncompressed body that is read in the worker */
    size_t read_now;
    /* Updates counters of the receiver after a successful reading. May be NULL. */
    void (*on_read)(struct br_upload *upload, const struct br_reading *reading);
    /* Answers `request` with the outcome. Borrows `upload` until return. upload->request is already
     * NULL. upload->item is the finished item, or NULL if the upload has no item. */
    void (*answer)(const struct br_upload *upload, struct br_request *request,
                   const struct br_outcome *outcome);
};

struct br_upload {
    struct br_list link;
    const struct br_upload_kind *kind;
    void *arg; /* argument for the functions of `kind` */
    struct br_ingest_listener *listener;
    struct br_meter *meter;
    struct br_request *request; /* the request; NULL after the client has disconnected */
    /* the item of the request; NULL until the item is in the pipeline */
    struct br_item *item;
    /* the task of the thread that reads the body; NULL: no thread is reading the body */
    struct br_reading_task *reading;
    enum br_signal signal;
    enum br_upload_format format;
    enum br_encoding encoding; /* compression of the body or of the gRPC message */
    /* outcome for the response if the item ends as BR_DONE; NULL: the outcome of the item is
     * used */
    struct br_outcome *partial;
};

/* Initialises `ingest` for `node`. Returns 0, or BR_ENOMEM with a message in `err`. */
int br_ingest_init(struct br_ingest *ingest, struct br_node *node, struct br_err *err);

/* Closes the listeners, and cancels all readings and all transfers of pieces. Items that are in the
 * pipeline stay there, but their clients do not get a response. Accepts a zeroed `ingest`. */
void br_ingest_release(struct br_ingest *ingest);

/* Stops the listeners. Calls br_node_drained when all requests and all transfers of pieces have
 * ended. A transfer can outlive its client. */
void br_ingest_drain(struct br_ingest *ingest);

/* Starts listening. `what`, for example "grpc", is part of log lines and of the listener's name.
 * Returns 0 or an error of br_host_ops.serve. */
int br_ingest_listen(struct br_ingest *ingest, struct br_ingest_listener *listener,
                     const char *what, struct br_server_config *config, struct br_err *err);

#define BR_FLAWS_SIZE 512

/* Counts the invalid samples and references of a profile. If the profile has any, describes them in
 * `ret` and returns true. */
bool br_meter_flaws(const struct br_meter *meter, const struct br_reading *reading,
                    char ret[BR_FLAWS_SIZE]);

/* Creates the metrics for the signals in `signals` (BR_SIGNAL_BIT). `transport` ("grpc", "http")
 * is borrowed as long as the meter is used. */
void br_meter_init(struct br_meter *meter, struct br_node *node, const char *transport,
                   unsigned signals);

/* Creates the upload of a request, in `begin`. Copies all fields of `how` except link, request and
 * item. In the following cases, answers the request itself and returns NULL:
 * - The node is not in a pipeline for the signal, or is draining.
 * - The memory limit is exceeded, load is shed, or memory is short. */
struct br_upload *br_upload_new(const struct br_upload *how, struct br_request *request);

/* Logs that a request was rejected, with the client and the reason, at most once in ten seconds. */
void br_ingest_log_refused(struct br_ingest *ingest, const struct br_request *request,
                           enum br_status status, const char *why);

/* Logs that a request with spans or profiles was rejected as invalid, and answers it with the HTTP
 * status `code` and the text `why`. */
void br_ingest_refuse_text(struct br_ingest_listener *listener, struct br_request *request,
                           unsigned code, const char *why);

/* An `answer` of br_upload_kind for receivers of other formats: 202 as Zipkin and Jaeger answer, or
 * the HTTP status of the outcome. The body is the text of the outcome. */
void br_upload_answer_accepted(const struct br_upload *upload, struct br_request *request,
                               const struct br_outcome *outcome);

/* size in bytes of the text that br_ingest_log_unknown writes */
#define BR_INGEST_UNKNOWN_MAX 360

/* Writes an error text to `why`, and logs it. The text states that the request's path does not
 * exist, followed by `paths`, a sentence that lists the existing paths. `why` must have space for
 * BR_INGEST_UNKNOWN_MAX bytes. */
void br_ingest_log_unknown(struct br_ingest *ingest, const struct br_request *request,
                           const char *paths, char *why);

/* Ends an upload that has no item: rejects it with `status` and the reason `why`, and counts it
 * as failed. */
void br_upload_reject(struct br_upload *upload, enum br_status status, const char *why);
