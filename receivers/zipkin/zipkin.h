/* SPDX-License-Identifier: Apache-2.0 */
/* Types and functions that the files of the Zipkin receiver share. */
#pragma once

#include "base/arena.h"
#include "ingest/otlp.h"
#include "otlp/build/spans.h"
#include "otlp/json/parts.h"

#define ZIPKIN_DEPTH 32       /* largest number of open brackets in a JSON text */
#define ZIPKIN_ADDRESS_MAX 46 /* size of the text of an IP address */

struct zipkin_config {
    /* must be the first field, because BR_HTTP_ROWS_KEEPING requires it */
    struct br_http_config http;
    bool parse_string_tags;
};

extern const struct br_option zipkin_options[];

struct zipkin {
    struct br_ingest ingest;
    struct br_otlp_handler otlp; /* settings and counters for the walk over the converted spans */
    struct br_ingest_listener listener;
    struct br_meter v1_json, v1_thrift, v2_json, v2_proto;
    bool parse_string_tags;
};

/* A string in the request or in zipkin_reading.scratch. */
struct zipkin_text {
    const char *data;
    size_t len;
};

/* The state of the conversion of one request. */
struct zipkin_reading {
    struct br_reading *reading;
    bool parse_string_tags;
    uint32_t n_spans;        /* number of spans that were read, for error messages */
    struct br_spans spans;   /* the result */
    struct br_tags tags;     /* tags of the current span, which become attributes */
    struct br_tags resource; /* attributes of the Resource */
    struct br_tags more;     /* attributes of an event or a link */
    struct br_arena scratch; /* strings of the current span */
};

/* Kinds of spans in Zipkin's order, which is also that of its protobuf enum. */
enum zipkin_kind {
    ZIPKIN_NONE,
    ZIPKIN_CLIENT,
    ZIPKIN_SERVER,
    ZIPKIN_PRODUCER,
    ZIPKIN_CONSUMER,
};

struct zipkin_endpoint {
    struct zipkin_text service;
    char ipv4[ZIPKIN_ADDRESS_MAX], ipv6[ZIPKIN_ADDRESS_MAX]; /* "": absent */
    uint32_t port;                                           /* 0: absent */
};

/* A span of version 2. Its tags are in zipkin_reading.tags. */
struct zipkin_span {
    uint64_t trace_high, trace_low, id, parent_id;
    struct zipkin_text name;
    enum zipkin_kind kind;
    uint64_t timestamp_us, duration_us; /* timestamp_us: 0: absent */
    struct zipkin_endpoint local, remote;
};

/* Returns a message that begins with the number of the current span, and returns BR_EINVAL. */
int zipkin_fail(struct zipkin_reading *reading, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Begins a span, and removes the tags and strings of the previous one. */
void zipkin_begin_span(struct zipkin_reading *reading);

/* Allocates in reading->scratch. Returns NULL after it has set the error for lack of memory. */
void *zipkin_alloc(struct zipkin_reading *reading, size_t size);

/* --- JSON (json.c) ---------------------------------------------------------------------------- */

/* A member of a JSON object: a scalar, or the position of an object or list. */
struct zipkin_member {
    const char *name;
    struct br_json_token value;
    struct br_json_part part;
};

/* Reads the next object in `scan` into `members`, which ends with a NULL name. Members that are not
 * in the list are ignored. Returns 0 or an error of the scan; BR_EINVAL if the value is not an
 * object. */
int zipkin_json_object(struct zipkin_reading *reading, struct br_json_scan *scan, const char *what,
                       struct zipkin_member *members);

/* Sets `*ret` to the string of a member, or to "" if the member is absent or null. Returns 0,
 * BR_EINVAL if the member has another type, or BR_ENOMEM. */
int zipkin_json_text(struct zipkin_reading *reading, const struct zipkin_member *member,
                     struct zipkin_text *ret);

/* Sets `*ret` to the integer of a member, or to 0 if the member is absent or null. Returns 0, or
 * BR_EINVAL if the member is not an integer between `min` and `max`. */
int zipkin_json_integer(struct zipkin_reading *reading, const struct zipkin_member *member,
                        int64_t min, int64_t max, int64_t *ret);

/* Sets `*ret` to the string of a token with its escapes replaced. Returns 0 or BR_ENOMEM. */
int zipkin_json_plain(struct zipkin_reading *reading, const struct br_json_token *token,
                      struct zipkin_text *ret);

/* Parse the id of a member. An id with fewer digits than usual is padded with zeros on the left. A
 * missing id leaves the result unchanged. Return 0, or BR_EINVAL if the member is not a string of
 * at most 32 (trace id) or 16 hex digits. */
int zipkin_json_trace_id(struct zipkin_reading *reading, const struct zipkin_member *member,
                         uint64_t *ret_high, uint64_t *ret_low);
int zipkin_json_id(struct zipkin_reading *reading, const struct zipkin_member *member,
                   uint64_t *ret);

/* Calls `fn` for each element of a member that must be a list. An absent member and null have no
 * elements. Returns 0, or an error of `fn` or zipkin_fail. */
int zipkin_json_list(struct zipkin_reading *reading, const struct br_json_scan *whole,
                     const struct zipkin_member *member, br_json_element_fn *fn, void *arg);

/* Calls `read` for each span of the text, which is a list of objects. */
typedef int zipkin_json_span_fn(struct zipkin_reading *reading, struct br_json_scan *scan);
int zipkin_json_spans(struct zipkin_reading *reading, const uint8_t *data, size_t len,
                      zipkin_json_span_fn *read);

/* --- Values (value.c) ------------------------------------------------------------------------- */

/* Replaces a string by the integer, floating-point number or boolean that it contains, as the
 * Collector does with parse_string_tags. Other strings, and integers outside int64, are kept. */
void zipkin_parse_tag(struct br_tag *tag);

/* Sets the value of a tag to a JSON number: an integer if it is one and fits into int64, otherwise
 * a floating-point number. A number that is too large for both leaves the tag unchanged. */
void zipkin_read_number(const struct br_json_token *token, struct br_tag *tag);

/* Reads a JSON object whose members become the tags in `into`. Members that are objects, lists or
 * null are ignored. Returns 0, BR_EINVAL if the text is not an object, or BR_ENOMEM. */
int zipkin_read_members(struct zipkin_reading *reading, const char *text, size_t len,
                        struct br_tags *into);

/* Copies an address with `len` bytes, 4 or 16, as text. Any other length gives "". IPv6 addresses
 * are written as RFC 5952 recommends. */
void zipkin_put_address(const uint8_t *bytes, size_t len, char out[ZIPKIN_ADDRESS_MAX]);

/* Parses an IPv4 or IPv6 address. Returns false if the text is not an address. */
bool zipkin_parse_address(struct zipkin_text text, char out[ZIPKIN_ADDRESS_MAX]);

/* Parses 1 to 16 hex digits. Returns false for any other text. */
bool zipkin_parse_hex(const char *text, size_t len, uint64_t *ret);

/* --- Version 1 (v1.c) ------------------------------------------------------------------------- */

struct zipkin_v1_endpoint {
    struct zipkin_text service, ipv4, ipv6;
    int64_t port; /* 0: absent */
};

/* A span of version 1. Its binary annotations are in zipkin_reading.tags. */
struct zipkin_v1_span {
    uint64_t trace_high, trace_low, id, parent_id;
    struct zipkin_text name;
    int64_t timestamp_us, duration_us; /* timestamp_us: 0: absent */
    bool has_times;                    /* `first_us` and `last_us` are valid */
    int64_t first_us, last_us;         /* times of the first and last annotation */
    unsigned kind;                     /* value of Span.SpanKind; 0: unknown */
    bool has_endpoint;                 /* `endpoint` is that of a core annotation */
    struct zipkin_v1_endpoint endpoint;
    struct zipkin_text service;   /* service name of the last binary annotation that has one */
    struct zipkin_text component; /* value of the binary annotation "lc" */
};

/* Adds an annotation to the current span: an event, or one of the core annotations cs, cr, ss, sr,
 * ms and mr, which determine the kind and the service. */
void zipkin_v1_annotate(struct zipkin_reading *reading, struct zipkin_v1_span *span,
                        int64_t timestamp_us, struct zipkin_text value,
                        const struct zipkin_v1_endpoint *endpoint);

/* Adds a binary annotation with the value in `tag`. Returns 0 or BR_ENOMEM. */
int zipkin_v1_add_tag(struct zipkin_reading *reading, struct zipkin_v1_span *span,
                      struct br_tag tag, const struct zipkin_v1_endpoint *endpoint);

/* Writes the remaining fields of the span and ends it. Returns 0, BR_EINVAL if an id is zero,
 * BR_EFULL or BR_ENOMEM. */
int zipkin_v1_end_span(struct zipkin_reading *reading, struct zipkin_v1_span *span);

/* --- Version 2 (span.c) ---------------------------------------------------------------------- */

/* Writes the event of an annotation to the current span. The value "name|{attributes}|dropped" is
 * that of the exporters of OpenTelemetry. */
int zipkin_put_event(struct zipkin_reading *reading, uint64_t timestamp_us,
                     struct zipkin_text value);

/* Writes the remaining fields of a span of version 2 and ends it. */
int zipkin_end_span(struct zipkin_reading *reading, const struct zipkin_span *span);

/* Checks the ids of a span. A trace id or span id of zero is invalid. */
int zipkin_check_ids(struct zipkin_reading *reading, uint64_t trace_high, uint64_t trace_low,
                     uint64_t id);

/* --- Formats ---------------------------------------------------------------------------------- */

/* Each function reads the request `len` bytes at `data` into reading->spans. Returns 0, or
 * BR_EINVAL or BR_ENOMEM with a message in reading->reading->err. */
int zipkin_read_v2_json(struct zipkin_reading *reading, const uint8_t *data, size_t len);
int zipkin_read_v2_proto(struct zipkin_reading *reading, const uint8_t *data, size_t len);
int zipkin_read_v1_thrift(struct zipkin_reading *reading, const uint8_t *data, size_t len);
int zipkin_read_v1_json(struct zipkin_reading *reading, const uint8_t *data, size_t len);
