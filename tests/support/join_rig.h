/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the processor join on a fake host, between a test and a sink. Also has functions that make
 * requests, and functions that return the output of the join as text, which protobuf-c reads. The
 * rig itself uses memory of the C library.
 */
#pragma once

#include "base/arena.h"
#include "core/shared.h"
#include "pipeline/component.h"
#include "tests/support/fake_host.h"
#include "tests/support/reorder.h"
#include "tests/support/wire.h"

#define JOIN_RIG_OUT_MAX 4096

enum join_rig_sink { RIG_DONE, RIG_RETRY, RIG_REJECT, RIG_KEEP };

struct join_out {
    enum br_signal signal;
    struct wire bytes;
    char *text;        /* the item as text, as returned by join_text */
    uint64_t at_ms;    /* time at which the item arrived, in milliseconds */
    char metadata[64]; /* the item's first metadata entry, as name=value */
};

struct join_rig {
    struct fake_host *h;
    struct br_arena arena;
    struct br_node node;
    struct br_consumer sink;
    enum join_rig_sink verdict;
    bool blind; /* true: the sink does not read the items, because reading needs memory */
    /* items received by the sink, including those it rejected */
    struct join_out out[JOIN_RIG_OUT_MAX];
    unsigned n_out;
    /* items that the sink has not finished; only with RIG_KEEP */
    struct br_item *kept[JOIN_RIG_OUT_MAX];
    unsigned n_kept;
    unsigned n_done, n_retry, n_reject; /* results of the items sent in */
    /* order of the fields in the requests that are sent; by default the order of the variant */
    enum reorder order;
    uint64_t random; /* state of the generator that shuffles the fields */
    bool drained;
};

/* Selects a variant of a suite (RUN_VARIANTS). There is a variant for each value of enum reorder.
 * In this variant, the requests of new rigs have their fields in this order. */
const char *join_rig_order(unsigned variant);

/* Does the same with only two variants, REORDER_NOT and REORDER_FALLING, for suites that take
 * long. */
const char *join_rig_order_falling(unsigned variant);

/* Returns a started join with the YAML as its config, on a new host. `shared` is the state that the
 * join shares with the joins of other workers, or NULL. */
struct join_rig *join_rig_new(const char *yaml, struct br_shared *shared, unsigned worker);

/* Do the same as join_rig_new, in two steps, for tests in which memory runs out. join_rig_prepare
 * does everything before the node is created. join_rig_create creates the node, and returns false
 * if this fails. The caller must free the rig with join_rig_destroy in both cases. */
struct join_rig *join_rig_prepare(const char *yaml, struct br_shared *shared, unsigned worker);
bool join_rig_create(struct join_rig *r);

/* Drains and destroys the join. Fails the test if memory is leaked or the ledger does not
 * balance. */
void join_rig_free(struct join_rig *r);

/* join_rig_drain starts to drain the join. join_rig_destroy frees the rig, even if the join was not
 * drained. */
void join_rig_drain(struct join_rig *r);
void join_rig_destroy(struct join_rig *r);

/* Returns the error of an invalid config; "" if it is valid. The text is valid until the next
 * call. */
const char *join_rig_error(const char *yaml);

/* Sends a request through the join and runs the loop. If `spans`, the item contains the list of its
 * spans, as receivers make it. */
void join_rig_send(struct join_rig *r, enum br_signal signal, const struct wire *w, bool spans);
struct br_item *join_rig_item(struct join_rig *r, enum br_signal signal, const struct wire *w,
                              bool spans);
void join_rig_consume(struct join_rig *r, struct br_item *item);

/* Does the same as join_rig_send for a request in OTLP/JSON (tests/support/otlp_text.h). `format`
 * is a printf format of the JSON text. */
void join_rig_send_text(struct join_rig *r, enum br_signal signal, bool spans, const char *format,
                        ...) __attribute__((format(printf, 4, 5)));

/* Finishes all items that the sink keeps (RIG_KEEP) with this result. */
void join_rig_release(struct join_rig *r, enum join_rig_sink verdict);

/* Returns the text of the last output item; "" without output. */
const char *join_rig_last(const struct join_rig *r);

/* Returns the value of a counter of the join. If `type` is not NULL, this is the counter for this
 * profile type. Returns 0 if the counter does not exist. */
double join_rig_count(struct join_rig *r, const char *name, const char *type);

/* Returns the value of an attribute of a span in the last output, or -1 if the output does not
 * contain this attribute. */
long long join_rig_span_int(const struct join_rig *r, const char *span, const char *key);

/* Returns the value of an attribute of a span in any of the outputs, or -1 if no output contains
 * this attribute. */
long long join_rig_said(struct join_rig *r, const char *span, const char *key);

/* Returns a request as text, one line per record:
 *   NAME SPAN_ID: key=value ...
 *   VALUE TRACE_ID/SPAN_ID: key=value ...
 * The first line is the form of a span, and the second line is the form of a sample. VALUE is the
 * first value of the sample, or its first timestamp if it has no values. If the sample has no link,
 * the line has "-" instead of the ids. The caller frees the text. */
char *join_text(enum br_signal signal, const void *data, size_t len);

/* --- Requests --------------------------------------------------------------------------------- */

struct ids {
    uint8_t trace[16], span[8];
};

/* Makes ids from numbers. The last eight bytes of the trace id are `trace`, and the span id is
 * `span`. Both are big-endian. */
struct ids join_ids(uint64_t trace, uint64_t span);

/* Opens a ResourceSpans or ResourceProfiles of a service, and a scope in it. The caller then writes
 * spans or profiles. If `service` is NULL, the resource does not have a service. If `key` is not
 * NULL, the resource has another attribute with this key and value. */
struct open {
    size_t resource, scope;
};
struct open open_resource(struct wire *w, const char *service, const char *instance,
                          const char *key, const char *value);
void close_resource(struct wire *w, struct open o);

/* Does the same as open_resource for a resource with `n` attributes, which are pairs of a key and a
 * value. An attribute whose value is NULL is left out. */
struct open open_resource_of(struct wire *w, const char *const (*attributes)[2], size_t n);

struct span_in {
    struct ids ids;
    const char *name;
    unsigned kind, status;
    const char *attributes[8]; /* pairs of a key and a value */
    uint64_t parent;           /* 0: none */
    uint64_t start_ns, end_ns; /* 0: the field is left out */
    uint32_t flags;
};
void put_span(struct wire *w, const struct span_in *s);

/* Writes a request with one resource of `service` and one span without attributes. */
void put_one_span(struct wire *w, const char *service, uint64_t trace, uint64_t span,
                  const char *name);

/* A dictionary under construction. */
struct dict {
    struct wire strings, attributes, links, functions, locations, stacks;
    uint32_t n_strings, n_attributes, n_links, n_stacks;
};
uint32_t dict_string(struct dict *d, const char *text);
uint32_t dict_attribute(struct dict *d, const char *key, const char *value);
uint32_t dict_attribute_int(struct dict *d, const char *key, int64_t value);
uint32_t dict_link(struct dict *d, const uint8_t *trace, const uint8_t *span);

/* Adds a stack of two frames: the function `leaf`, called by `main`. Returns its index. */
uint32_t dict_stack(struct dict *d, const char *leaf);

/* Appends the dictionary to the request, and frees it. */
void dict_put(struct wire *w, struct dict *d);

struct profile_in {
    const char *type, *unit, *period_type, *period_unit;
    int64_t period;
    const uint8_t *id;
};
size_t open_profile(struct wire *w, struct dict *d, const struct profile_in *p);

/* A sample. If it has timestamps but no `values`, its first value is `value`, and all other values
 * are 0. */
struct sample_in {
    uint32_t link;
    uint32_t stack;
    uint32_t attributes[64]; /* indices of attributes; the first 0 ends the list */
    uint64_t value;
    bool no_value;
    unsigned n_times;
    /* array of n_times timestamps; NULL: the timestamps are 1000, 1001, ... */
    const uint64_t *times;
    const uint64_t *values; /* array of n_times values; NULL: see above */
};
void put_sample(struct wire *w, const struct sample_in *s);

/* Writes a request with one sample of `service`. Its type is samples:count, and it is linked to the
 * span. */
void put_one_sample(struct wire *w, const char *service, uint64_t trace, uint64_t span,
                    uint64_t value);

/* Number of spans that have the attribute pyroscope.profile.id, and number of these spans whose
 * figures are marked as partial. */
struct join_rig_marks {
    unsigned n, n_partial;
};

/* Checks the span with number `id` of trace 7. If the span has the attribute pyroscope.profile.id,
 * at least one sample must be linked to it, and the number of these samples must match the figures
 * of the span, unless they are marked as partial. Each sample must have one timestamp. Counts the
 * attribute in `marks`. */
void join_rig_check_mark(struct join_rig *r, const char *span, uint64_t id,
                         struct join_rig_marks *marks);
