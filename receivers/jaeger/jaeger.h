/* SPDX-License-Identifier: Apache-2.0 */
/* Types and functions that the files of the Jaeger receiver share. */
#pragma once

#include "base/arena.h"
#include "ingest/grpc_config.h"
#include "ingest/otlp.h"
#include "net/udp.h"
#include "otlp/build/spans.h"
#include "wire/thrift.h"

/* --- Config (config.c) ------------------------------------------------------------------------ */

struct jaeger_udp_config {
    const char *endpoint;
    int64_t queue_size, max_packet_size, socket_buffer_size;
};

struct jaeger_protocols {
    struct br_grpc_config *grpc;
    struct br_http_config *thrift_http;
    struct jaeger_udp_config *thrift_compact, *thrift_binary;
};

struct jaeger_config {
    struct jaeger_protocols protocols;
};

extern const struct br_option jaeger_options[];
int jaeger_check(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
                 struct br_errs *errs);

/* --- Conversion (span.c) ---------------------------------------------------------------------- */

/* A reference to another span. */
struct jaeger_reference {
    uint64_t trace_high, trace_low, span_id;
    bool follows; /* FOLLOWS_FROM; otherwise CHILD_OF */
};

/* A span. Its tags and references are in struct jaeger_reading. */
struct jaeger_span {
    uint64_t trace_high, trace_low, id;
    uint64_t parent_id; /* 0: the references determine the parent */
    uint64_t start_ns, duration_ns;
    const uint8_t *name;
    size_t name_len;
    bool sampled;
};

/* The state of the conversion of one request. */
struct jaeger_reading {
    struct br_reading *reading;
    struct br_spans spans;  /* the result */
    struct br_tags tags;    /* tags of the current span */
    struct br_tags fields;  /* fields of the current log */
    struct br_tags process; /* tags of the current process */
    struct jaeger_reference *references;
    uint32_t n_references, cap_references;
    struct br_arena scratch;    /* strings of the current span */
    uint32_t n_read, n_invalid; /* numbers of spans, and of spans without valid ids */
    /* the tags otel.scope.name, otel.scope.version and w3c.tracestate become fields, as in the
     * Collector for protobuf but not for Thrift */
    bool takes_scope;
};

/* Appends a tag. A type of EMPTY means that the type is unknown, and that `type_name` is its name.
 * Returns 0 or BR_ENOMEM. */
int jaeger_add_tag(struct jaeger_reading *reading, struct br_tags *tags, struct br_tag tag,
                   const char *type_name);

/* Appends a reference of the current span. Returns 0 or BR_ENOMEM. */
int jaeger_add_reference(struct jaeger_reading *reading, const struct jaeger_reference *reference);

/* Sets `*ret` to the Resource of a process, whose tags are in reading->process. Returns 0 or
 * BR_ENOMEM. */
int jaeger_resource(struct jaeger_reading *reading, const uint8_t *service, size_t service_len,
                    uint32_t *ret);

/* Begins a span, and removes the tags and references of the previous one. */
void jaeger_begin_span(struct jaeger_reading *reading);

/* Writes a log, whose fields are in reading->fields, as an event of the current span. Returns 0 or
 * BR_ENOMEM. */
int jaeger_put_event(struct jaeger_reading *reading, uint64_t time_ns);

/* Writes the remaining fields of the span and ends it. A span without valid ids is removed and
 * counted. Returns 0, BR_EFULL or BR_ENOMEM. */
int jaeger_end_span(struct jaeger_reading *reading, const struct jaeger_span *span,
                    uint32_t resource);

/* --- Formats (thrift.c, proto.c) -------------------------------------------------------------- */

/* Reads a Batch of jaeger.thrift. Returns 0, BR_EINVAL, BR_EFULL or BR_ENOMEM. */
int jaeger_read_batch(struct jaeger_reading *reading, struct br_thrift *thrift);

/* Reads a call of Agent.emitBatch in agent.thrift. Returns the same codes. */
int jaeger_read_call(struct jaeger_reading *reading, struct br_thrift *thrift);

/* Reads a PostSpansRequest of collector.proto. Returns the same codes. */
int jaeger_read_proto(struct jaeger_reading *reading, const uint8_t *data, size_t len);

/* --- Receiver (jaeger.c, udp.c) --------------------------------------------------------------- */

struct jaeger;

/* A UDP socket and its packets. */
struct jaeger_udp {
    struct jaeger *jaeger;
    const struct jaeger_udp_config *config; /* NULL: the protocol is not used */
    br_read_fn *read;
    struct br_udp *socket;
    struct br_meter meter;
    /* counters of packets that were dropped, by reason */
    double *dropped_full, *dropped_memory, *dropped_size, *dropped_socket;
    struct br_list packets; /* list of struct jaeger_packet that have not ended */
    unsigned n_packets;
    struct br_log_limit lost_limit, invalid_limit;
};

struct jaeger {
    struct br_ingest ingest;
    struct br_otlp_handler otlp; /* settings and counters for the walk over the converted spans */
    struct br_ingest_listener grpc, http;
    struct br_meter grpc_meter, http_meter;
    struct jaeger_udp compact, binary;
};

/* Prepares a protocol, which `config` may leave out (NULL). */
void jaeger_udp_init(struct jaeger_udp *udp, struct jaeger *jaeger,
                     const struct jaeger_udp_config *config, const char *transport,
                     br_read_fn *read);

/* Opens the socket in the first worker. Returns 0 or an error of br_udp_open. */
int jaeger_udp_start(struct jaeger_udp *udp, const char *what, struct br_err *err);

/* Closes the socket. */
void jaeger_udp_stop(struct jaeger_udp *udp);

/* Closes the socket and forgets the packets that are in the pipeline. */
void jaeger_udp_release(struct jaeger_udp *udp);
