/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The join between a test and a sink, on a fake host; requests made for it, and what comes out of
 * it as text, read by protobuf-c. What is the test's own is in the C library's memory.
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
    char *text;        /* join_text of them */
    uint64_t at_ms;    /* when it came */
    char metadata[64]; /* of the item: its first name and value, name=value */
};

struct join_rig {
    struct fake_host *h;
    struct br_arena arena;
    struct br_node node;
    struct br_consumer sink;
    enum join_rig_sink verdict;
    bool blind; /* the sink does not look at what comes: it needs memory for it */
    struct join_out out[JOIN_RIG_OUT_MAX]; /* items that came to the sink, also those it refused */
    unsigned n_out;
    struct br_item *kept[JOIN_RIG_OUT_MAX]; /* RIG_KEEP: not finished */
    unsigned n_kept;
    unsigned n_done, n_retry, n_reject; /* how items that were sent in ended */
    enum reorder order; /* of the fields of what is sent; as the test wrote them by default */
    uint64_t random;    /* that shuffles them */
    bool drained;
};

/* Variants of a suite (RUN_VARIANTS): each value of enum reorder, as the order of new rigs. */
const char *join_rig_order(unsigned variant);

/* The same with REORDER_NOT and REORDER_FALLING alone, for suites that take long. */
const char *join_rig_order_falling(unsigned variant);

/* A started join with the YAML as its config, on a host of its own. `shared` (may be NULL) is what
 * it shares with others. */
struct join_rig *join_rig_new(const char *yaml, struct br_shared *shared, unsigned worker);

/* As join_rig_new, without having created its node, and creates it: for tests that run out of
 * memory. What was not created must still be freed, with join_rig_destroy. */
struct join_rig *join_rig_prepare(const char *yaml, struct br_shared *shared, unsigned worker);
bool join_rig_create(struct join_rig *r);

/* Drains, destroys, and fails the test when something is left or the ledger does not close. */
void join_rig_free(struct join_rig *r);

/* Starts to drain; destroys without having drained. */
void join_rig_drain(struct join_rig *r);
void join_rig_destroy(struct join_rig *r);

/* What the config is refused with; "" when it is not. Lives until the next call. */
const char *join_rig_error(const char *yaml);

/* Sends a request through and turns. `spans`: with the list of spans that a receiver would make. */
void join_rig_send(struct join_rig *r, enum br_signal signal, const struct wire *w, bool spans);
struct br_item *join_rig_item(struct join_rig *r, enum br_signal signal, const struct wire *w,
                              bool spans);
void join_rig_consume(struct join_rig *r, struct br_item *item);

/* As join_rig_send, of a request in OTLP/JSON (tests/support/otlp_text.h), which is a format of
 * printf. */
void join_rig_send_text(struct join_rig *r, enum br_signal signal, bool spans, const char *format,
                        ...) __attribute__((format(printf, 4, 5)));

/* Finishes what the sink keeps. */
void join_rig_release(struct join_rig *r, enum join_rig_sink verdict);

/* The text of the last item that came out; "" when none did. */
const char *join_rig_last(const struct join_rig *r);

/* A counter of the join; with `type`, of that profile type. 0 when there is none. */
double join_rig_count(struct join_rig *r, const char *name, const char *type);

/* What the last output says of a span's attribute; -1: it does not. */
long long join_rig_span_int(const struct join_rig *r, const char *span, const char *key);

/* What one of the outputs says of it; -1: none does. */
long long join_rig_said(struct join_rig *r, const char *span, const char *key);

/* What a request says, a line an item:
 *   NAME SPAN_ID: key=value ...
 *   VALUE TRACE_ID/SPAN_ID: key=value ...
 * A sample's value is its first one, or its first timestamp; without a link it has "-". The caller
 * frees the text. */
char *join_text(enum br_signal signal, const void *data, size_t len);

/* --- Requests --------------------------------------------------------------------------------- */

struct ids {
    uint8_t trace[16], span[8];
};

/* Ids out of numbers: the trace id ends in `trace`, big-endian, the span id is `span`. */
struct ids join_ids(uint64_t trace, uint64_t span);

/* Opens a ResourceSpans or ResourceProfiles of that service (NULL: without) and a scope in it;
 * `key` and `value` are a further attribute of the resource, unless NULL. Then spans or profiles
 * follow. */
struct open {
    size_t resource, scope;
};
struct open open_resource(struct wire *w, const char *service, const char *instance,
                          const char *key, const char *value);
void close_resource(struct wire *w, struct open o);

/* As open_resource, of a resource with these attributes: `n` times key and value, a value NULL:
 * without that attribute. */
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

/* A request with one resource of `service` and one span without attributes. */
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

/* A stack of two frames: that function, called by `main`. */
uint32_t dict_stack(struct dict *d, const char *leaf);

/* Appends it to the request, and frees it. */
void dict_put(struct wire *w, struct dict *d);

struct profile_in {
    const char *type, *unit, *period_type, *period_unit;
    int64_t period;
    const uint8_t *id;
};
size_t open_profile(struct wire *w, struct dict *d, const struct profile_in *p);

/* With timestamps and without `values`, values other than the first are 0. */
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

/* A request with one sample of samples:count of `service`, linked. */
void put_one_sample(struct wire *w, const char *service, uint64_t trace, uint64_t span,
                    uint64_t value);

/* Spans with a mark, and those of them whose figures say that they are partial. */
struct join_rig_marks {
    unsigned n, n_partial;
};

/* Fails the test if the span, number `id` of trace 7, left with the mark pyroscope.profile.id and
 * no sample left with its link, or not as many as it says, unless it says that it is partial. Each
 * sample has one timestamp. Counts the mark. */
void join_rig_check_mark(struct join_rig *r, const char *span, uint64_t id,
                         struct join_rig_marks *marks);
