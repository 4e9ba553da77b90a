/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes items of requests, for every receiver that has a server.
 *
 * An ingest is what one node has of it: its listeners and its uploads. An upload is one request
 * from its first header to the outcome of its item; its kind says what the body is and how it is
 * answered. A listener's `begin` is the receiver's: it looks at path and type, asks each protocol
 * "is this one yours?", and makes the upload; body and gone are here.
 */
#pragma once

#include "base/list.h"
#include "ingest/http.h"
#include "ingest/reading.h"
#include "otlp/sample_types.h"
#include "pipeline/component.h"
#include "pipeline/override.h"

#define BR_TENANT_KEY "x-scope-orgid" /* Pyroscope's, Tempo's and Mimir's name for it */

struct br_ingest {
    struct br_node *node;
    const char
        *tenant_header; /* what metadata of the key BR_TENANT_KEY is taken from; NULL: that */
    struct br_workbench bench; /* of readings that are done at once */
    struct br_list uploads, listeners;
    struct br_list sendings;           /* of pieces.h */
    struct br_list readings;           /* br_reading_task: readings in threads */
    struct br_overridable overridable; /* says that profiles are taken; no override is for it */
    struct br_log_limit refused_log;   /* of br_ingest_say_refused */
    unsigned n_stopping;
    bool awaits_sendings; /* it is draining, and `sendings` was not empty: one of n_stopping */
};

enum br_meter_result { BR_METER_ACCEPTED, BR_METER_REFUSED, BR_METER_FAILED, BR_METER_RESULTS };

#define BR_METER_TYPES_MAX 16

/* otelcol_receiver_{accepted,refused,failed}_{spans,profile_samples} of one transport. Those of
 * profiles have a label sample_type where the type is known, with at most BR_METER_TYPES_MAX
 * values. */
struct br_meter {
    double *accepted[BR_SIGNALS], *refused[BR_SIGNALS], *failed[BR_SIGNALS];
    double *strays; /* of receivers of profiles alone */
    struct br_node *node;
    const char *transport;
    unsigned n_types;
    struct {
        char name[BR_SAMPLE_TYPE_SIZE];
        double *counters[BR_METER_RESULTS];
    } types[BR_METER_TYPES_MAX];
};

/* Counts the `n_items` spans or samples that an item has, or had when it was received. */
void br_meter_count(struct br_meter *meter, enum br_meter_result result, const struct br_item *item,
                    uint32_t n_items);

/* The same by the outcome of an item that has ended. */
void br_meter_count_outcome(struct br_meter *meter, const struct br_item *item);

/* One listener. Zeroed, with `begin` of the receiver's; the rest is set by br_ingest_listen. */
struct br_ingest_listener {
    struct br_handler service;
    struct br_ingest *ingest;
    struct br_server *server;
    struct br_list link;
    char name[160];
    const struct br_http_config *http; /* NULL: gRPC only */
    size_t max_body;
    bool drops_metadata; /* include_metadata: false */
};

struct br_upload;

struct br_upload_kind {
    /* Makes an item of the body, in whichever thread (reading.h). Returns 0 with r->item set;
     * BR_EAGAIN when it is to be begun again in a thread of the pool; BR_ENOMEM: not now;
     * BR_ETOOBIG or BR_EFULL: RESOURCE_EXHAUSTED; BR_EINVAL: r->invalid. */
    br_read_fn *read;
    size_t read_now; /* plain bytes of a body that is read at once */
    /* For counters of the receiver's own: a reading has ended well. NULL: there are none. */
    void (*on_read)(struct br_upload *upload, const struct br_reading *reading);
    /* Answers `r` with how it ended. `x` is borrowed until return and has no request any more; its
     * item is the one that ended, NULL where there was none. */
    void (*answer)(const struct br_upload *upload, struct br_request *request,
                   const struct br_outcome *outcome);
};

struct br_upload {
    struct br_list link;
    const struct br_upload_kind *kind;
    void *arg; /* the kind's own */
    struct br_ingest_listener *listener;
    struct br_meter *meter;
    struct br_request *request;      /* NULL once the client went away */
    struct br_item *item;            /* NULL until it is in the pipeline */
    struct br_reading_task *reading; /* NULL unless a thread reads the body */
    enum br_signal signal;
    enum br_upload_format format;
    enum br_encoding encoding; /* of the body, or of the gRPC message */
    struct br_outcome *partly; /* the answer if the item ends well; NULL: the item's outcome */
};

/* Returns 0 or BR_ENOMEM. */
int br_ingest_init(struct br_ingest *ingest, struct br_node *node, struct br_err *err);

/* Closes what is open; items under way have no one who waits for them any more. Accepts a zeroed
 * one. */
void br_ingest_release(struct br_ingest *ingest);

/* Stops the listeners and says br_node_drained when all requests have ended, and all sendings, of
 * which some have no client any more. */
void br_ingest_drain(struct br_ingest *ingest);

/* Listens; `what` ("grpc") is for log and names. Errors as br_host_ops.serve. */
int br_ingest_listen(struct br_ingest *ingest, struct br_ingest_listener *listener,
                     const char *what, struct br_server_config *config, struct br_err *err);

#define BR_FLAWS_SIZE 512

/* Counts the samples and references that are wrong in a profile that was read. Returns whether
 * there are any, with a sentence about them. */
bool br_meter_flaws(const struct br_meter *meter, const struct br_reading *reading,
                    char ret[BR_FLAWS_SIZE]);

/* Makes the metrics with `transport` ("grpc", "http"), which is borrowed for the meter's life, for
 * the signals in `signals`. */
void br_meter_init(struct br_meter *meter, struct br_node *node, const char *transport,
                   unsigned signals);

/* Makes an upload of the request, in `begin`. Of `how`, all but link, request and item is taken
 * over. Answers it, and returns NULL, when the node has no pipeline for it, is draining, is over
 * the memory limit, or there is no memory. */
struct br_upload *br_upload_new(const struct br_upload *how, struct br_request *request);

/* Says in the log, every ten seconds at the most, that a request was refused: whose, and why. */
void br_ingest_say_refused(struct br_ingest *ingest, const struct br_request *request,
                           enum br_status status, const char *why);

#define BR_INGEST_UNKNOWN_MAX 360 /* bytes of br_ingest_say_unknown's text */

/* Writes that the request's path does not exist, and the sentence `paths` on those that do; and
 * logs it as br_ingest_say_refused does. `why` has BR_INGEST_UNKNOWN_MAX bytes. */
void br_ingest_say_unknown(struct br_ingest *ingest, const struct br_request *request,
                           const char *paths, char *why);

/* Ends an upload that has no item: it is rejected with `status` and the sentence `why`, and counts
 * as failed. */
void br_upload_reject(struct br_upload *upload, enum br_status status, const char *why);
