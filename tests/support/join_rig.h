/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The join between a test and a sink, on a fake host; requests made for it; and its output as text,
 * read by protobuf-c. The rig's own memory is the C library's.
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
    char *text;        /* join_text of the item */
    uint64_t at_ms;    /* time at which the item arrived */
    char metadata[64]; /* the item's first metadata entry, name=value */
};

struct join_rig {
    struct fake_host *h;
    struct br_arena arena;
    struct br_node node;
    struct br_consumer sink;
    enum join_rig_sink verdict;
    bool blind; /* true: the sink does not read the items, which would need memory */
    /* items received by the sink, including those it rejected */
    struct join_out out[JOIN_RIG_OUT_MAX];
    unsigned n_out;
    struct br_item *kept[JOIN_RIG_OUT_MAX]; /* RIG_KEEP: items not finished */
    unsigned n_kept;
    unsigned n_done, n_retry, n_reject; /* results of the items sent in */
    enum reorder order; /* field order of the requests sent; by default the test's */
    uint64_t random;    /* state of the generator that shuffles them */
    bool drained;
};

/* Variants of a suite (RUN_VARIANTS): each value of enum reorder, as the order of new rigs. */
const char *join_rig_order(unsigned variant);

/* As above, with REORDER_NOT and REORDER_FALLING alone, for suites that take long. */
const char *join_rig_order_falling(unsigned variant);

/* Returns a started join with the YAML as its config, on a new host. `shared` (may be NULL) is
 * the state that it shares with other joins. */
struct join_rig *join_rig_new(const char *yaml, struct br_shared *shared, unsigned worker);

/* The two halves of join_rig_new, for tests that run out of memory: everything before the
 * creation of the node, and the creation. The caller frees the rig with join_rig_destroy in any
 * case. */
struct join_rig *join_rig_prepare(const char *yaml, struct br_shared *shared, unsigned worker);
bool join_rig_create(struct join_rig *r);

/* Drains and destroys the join. Fails the test if memory is leaked or the ledger does not
 * balance. */
void join_rig_free(struct join_rig *r);

/* Start to drain; destroy without having drained. */
void join_rig_drain(struct join_rig *r);
void join_rig_destroy(struct join_rig *r);

/* Returns the error of an invalid config; "" if it is valid. Lives until the next call. */
const char *join_rig_error(const char *yaml);

/* Sends a request through the join and runs the loop. `spans`: with the list of spans that a
 * receiver would make. */
void join_rig_send(struct join_rig *r, enum br_signal signal, const struct wire *w, bool spans);
struct br_item *join_rig_item(struct join_rig *r, enum br_signal signal, const struct wire *w,
                              bool spans);
void join_rig_consume(struct join_rig *r, struct br_item *item);

/* As join_rig_send, for a request in OTLP/JSON (tests/support/otlp_text.h), which is a printf
 * format. */
void join_rig_send_text(struct join_rig *r, enum br_signal signal, bool spans, const char *format,
                        ...) __attribute__((format(printf, 4, 5)));

/* Finishes the items that the sink keeps. */
void join_rig_release(struct join_rig *r, enum join_rig_sink verdict);

/* Returns the text of the last output item; "" without output. */
const char *join_rig_last(const struct join_rig *r);

/* Returns a counter of the join; with `type`, for that profile type. 0 if it does not exist. */
double join_rig_count(struct join_rig *r, const char *name, const char *type);

/* Returns the value of a span's attribute in the last output; -1: absent. */
long long join_rig_span_int(const struct join_rig *r, const char *span, const char *key);

/* Returns its value in any of the outputs; -1: absent from all. */
long long join_rig_said(struct join_rig *r, const char *span, const char *key);

/* Returns a request as text, one line per record:
 *   NAME SPAN_ID: key=value ...
 *   VALUE TRACE_ID/SPAN_ID: key=value ...
 * A sample's value is its first one, or its first timestamp; without a link it has "-". The
 * caller frees the text. */
char *join_text(enum br_signal signal, const void *data, size_t len);

/* --- Requests --------------------------------------------------------------------------------- */

struct ids {
    uint8_t trace[16], span[8];
};

/* Make ids from numbers: the trace id ends in `trace`, big-endian, the span id is `span`. */
struct ids join_ids(uint64_t trace, uint64_t span);

/* Open a ResourceSpans or ResourceProfiles of that service (NULL: without) and a scope in it.
 * `key` and `value` are another attribute of the resource, unless NULL. Spans or profiles
 * follow. */
struct open {
    size_t resource, scope;
};
struct open open_resource(struct wire *w, const char *service, const char *instance,
                          const char *key, const char *value);
void close_resource(struct wire *w, struct open o);

/* As open_resource, for a resource with `n` attributes: pairs of key and value; an attribute
 * whose value is NULL is left out. */
struct open open_resource_of(struct wire *w, const char *const (*attributes)[2], size_t n);

struct span_in {
    struct ids ids;
    const char *name;
    unsigned kind, status;
    const char *attributes[8]; /* key, value, ... */
    uint64_t parent;           /* 0: none */
    uint64_t start_ns, end_ns; /* 0: left out */
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

/* Adds a stack of two frames: that function, called by `main`. */
uint32_t dict_stack(struct dict *d, const char *leaf);

/* Appends the dictionary to the request, and frees it. */
void dict_put(struct wire *w, struct dict *d);

struct profile_in {
    const char *type, *unit, *period_type, *period_unit;
    int64_t period;
    const uint8_t *id;
};
size_t open_profile(struct wire *w, struct dict *d, const struct profile_in *p);

/* A sample with timestamps and without `values` has only values of 0 after the first. */
struct sample_in {
    uint32_t link;
    uint32_t stack;
    uint32_t attributes[64]; /* ended by 0 */
    uint64_t value;
    bool no_value;
    unsigned n_times;
    const uint64_t *times;  /* n_times; NULL: 1000, 1001 ... */
    const uint64_t *values; /* n_times; NULL: `value` */
};
void put_sample(struct wire *w, const struct sample_in *s);

/* Writes a request with one sample of samples:count of `service`, linked. */
void put_one_sample(struct wire *w, const char *service, uint64_t trace, uint64_t span,
                    uint64_t value);

/* Counts of spans with pyroscope.profile.id, and of those among them whose figures are marked
 * partial. */
struct join_rig_marks {
    unsigned n, n_partial;
};

/* Checks the span with number `id` of trace 7. If it has the attribute pyroscope.profile.id, the
 * number of samples with its link must be at least 1 and match its figures, unless it is marked
 * partial. Each sample has one timestamp. Counts the attribute. */
void join_rig_check_mark(struct join_rig *r, const char *span, uint64_t id,
                         struct join_rig_marks *marks);
