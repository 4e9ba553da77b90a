/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the cost of worst-case traces requests, in two sizes. A request has a part that is long or
 * has many members, and as many spans as possible for which this part is read. Other requests have
 * trees of spans that are deep, broad or circular. Either the walk rejects the request, or each
 * component that reads traces (a "reader") takes a number of steps (base/steps.h) in proportion to
 * the bytes. For manual use, `--mode times` prints the CPU time of each reader for 1 MiB instead.
 */
#include "tests/support/test.h"
#include "tests/support/walk_check.h"
#include "tests/support/wire.h"
#include "tests/support/worst.h"
#include "tests/support/worst_bench.h"

#define MIB (1u << 20)
#define UNKNOWN_FIELD 14
#define START_NS 1700000000000000000u

/* --- Shapes ----------------------------------------------------------------------------------- */

/* A request of `size` bytes that is being built. At most half of the bytes are one long part, such
 * as a text. */
struct shape {
    size_t size;
    char *text;                               /* size / 2 bytes */
    struct wire resource, scope, spans, more; /* more: ResourceSpans after the first one */
};

static bool has_room(const struct shape *s)
{
    return s->resource.len + s->scope.len + s->spans.len + s->more.len < s->size;
}

static void put_ids(struct wire *w, uint64_t trace, uint64_t span, uint64_t parent)
{
    uint8_t id[16] = {1};
    memcpy(id + 8, &trace, 8);
    wire_len(w, 1, id, 16);
    memcpy(id + 8, &span, 8);
    wire_len(w, 2, id + 8, 8);
    memcpy(id + 8, &parent, 8);
    if (parent)
        wire_len(w, 4, id + 8, 8);
    wire_i64(w, 7, START_NS);
    wire_i64(w, 8, START_NS + 1000);
}

static size_t open_span(struct shape *s, uint64_t trace, uint64_t span, uint64_t parent)
{
    size_t at = wire_open(&s->spans, 2);
    put_ids(&s->spans, trace, span, parent);
    return at;
}

static void put_span(struct shape *s, uint64_t trace, uint64_t span, uint64_t parent)
{
    wire_close(&s->spans, open_span(s, trace, span, parent));
}

static void put_spans(struct shape *s)
{
    for (uint64_t i = 1; has_room(s); i++)
        put_span(s, i, i, 0);
}

static void long_service(struct shape *s)
{
    wire_attribute_of(&s->resource, 1, "service.name", s->text, s->size / 2);
    put_spans(s);
}

static void long_resource_value(struct shape *s)
{
    wire_attribute_of(&s->resource, 1, "k", s->text, s->size / 2);
    put_spans(s);
}

static void put_value_of_many_fields(const struct shape *s, struct wire *w, uint32_t field)
{
    size_t pair = wire_open(w, field);
    wire_str(w, 1, "k");
    wire_value_of_many_fields(w, 2, s->size / 2);
    wire_close(w, pair);
}

static void resource_of_many_fields(struct shape *s)
{
    put_value_of_many_fields(s, &s->resource, 1);
    put_spans(s);
}

static void scope_of_many_fields(struct shape *s)
{
    size_t scope = wire_open(&s->scope, 1);
    put_value_of_many_fields(s, &s->scope, 3);
    wire_close(&s->scope, scope);
    put_spans(s);
}

static void many_resource_attributes(struct shape *s)
{
    while (s->resource.len < s->size / 2)
        wire_attribute_of(&s->resource, 1, "k", "v", 1);
    put_spans(s);
}

static void long_scope(struct shape *s)
{
    size_t scope = wire_open(&s->scope, 1);
    wire_len(&s->scope, 1, s->text, s->size / 2);
    wire_close(&s->scope, scope);
    put_spans(s);
}

static void many_scope_attributes(struct shape *s)
{
    size_t scope = wire_open(&s->scope, 1);
    while (s->scope.len < s->size / 2)
        wire_attribute_of(&s->scope, 3, "k", "v", 1);
    wire_close(&s->scope, scope);
    put_spans(s);
}

/* Appends a span whose field number `field` is long, and other spans of the same trace. */
static void long_field(struct shape *s, uint32_t field)
{
    size_t span = open_span(s, 1, 1, 0);
    wire_len(&s->spans, field, s->text, s->size / 2);
    wire_close(&s->spans, span);
    for (uint64_t i = 2; has_room(s); i++)
        put_span(s, 1, i, 1);
}

static void long_name(struct shape *s)
{
    long_field(s, 5);
}

static void long_tracestate(struct shape *s)
{
    for (size_t i = 0; i + 5 < s->size / 2; i += 5)
        memcpy(s->text + i, "k=v, ", 5);
    long_field(s, 3);
}

static void long_value(struct shape *s)
{
    size_t span = open_span(s, 1, 1, 0);
    wire_attribute_of(&s->spans, 9, "k", s->text, s->size / 2);
    wire_close(&s->spans, span);
    put_spans(s);
}

static void long_key(struct shape *s)
{
    size_t span = open_span(s, 1, 1, 0), pair = wire_open(&s->spans, 9);
    wire_len(&s->spans, 1, s->text, s->size / 2);
    wire_close(&s->spans, pair);
    wire_close(&s->spans, span);
    put_spans(s);
}

/* A span with many attributes, which all have the same key. */
static void many_attributes(struct shape *s)
{
    size_t span = open_span(s, 1, 1, 0);
    while (has_room(s))
        wire_attribute_of(&s->spans, 9, "k", "v", 1);
    wire_close(&s->spans, span);
}

static void many_keys(struct shape *s)
{
    size_t span = open_span(s, 1, 1, 0);
    for (unsigned i = 0; has_room(s); i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "k%u", i);
        wire_attribute_of(&s->spans, 9, key, "v", 1);
    }
    wire_close(&s->spans, span);
}

static void spans_of_many_attributes(struct shape *s)
{
    for (uint64_t i = 1; has_room(s); i++) {
        size_t span = open_span(s, i, i, 0);
        for (int k = 0; k < 1000; k++)
            wire_attribute_of(&s->spans, 9, "k", "secret", 6);
        wire_close(&s->spans, span);
    }
}

/* Attributes with nested values. The depth is the greatest that the walk accepts by default. */
static void nested_values(struct shape *s)
{
    for (uint64_t i = 1; has_room(s); i++) {
        struct wire *w = &s->spans;
        size_t span = open_span(s, i, i, 0), pair = wire_open(w, 9), at[40];
        wire_str(w, 1, "k");
        for (int k = 0; k < 40; k += 2) {
            at[k] = wire_open(w, k ? 1 : 2);
            at[k + 1] = wire_open(w, 5);
        }
        for (int k = 40; k-- > 0;)
            wire_close(w, at[k]);
        wire_close(w, pair);
        wire_close(w, span);
    }
}

static void many_events(struct shape *s)
{
    size_t span = open_span(s, 1, 1, 0);
    while (has_room(s)) {
        size_t event = wire_open(&s->spans, 11);
        wire_str(&s->spans, 2, "secret");
        wire_attribute_of(&s->spans, 3, "k", "v", 1);
        wire_close(&s->spans, event);
    }
    wire_close(&s->spans, span);
}

static void many_links(struct shape *s)
{
    size_t span = open_span(s, 1, 1, 0);
    while (has_room(s)) {
        size_t link = wire_open(&s->spans, 13);
        wire_str(&s->spans, 3, "k=v");
        wire_close(&s->spans, link);
    }
    wire_close(&s->spans, span);
}

static void repeated_span(struct shape *s)
{
    while (has_room(s))
        put_span(s, 1, 1, 0);
}

static void children_of_one(struct shape *s)
{
    for (uint64_t i = 2; has_room(s); i++)
        put_span(s, 1, i, 1);
}

static void deep_family(struct shape *s)
{
    for (uint64_t i = 1; has_room(s); i++)
        put_span(s, 1, i + 1, i);
}

/* A chain of spans, each of which is the parent of the span before it. */
static void deep_family_backwards(struct shape *s)
{
    for (uint64_t i = s->size; has_room(s); i--)
        put_span(s, 1, i + 1, i);
}

static void own_parents(struct shape *s)
{
    for (uint64_t i = 1; has_room(s); i++)
        put_span(s, 1, i, i);
}

static void parents_in_a_ring(struct shape *s)
{
    for (uint64_t i = 0; has_room(s); i++)
        put_span(s, 1, 1 + i % 1000, 1 + (i + 1) % 1000);
}

static void spans_without_ids(struct shape *s)
{
    while (has_room(s))
        wire_len(&s->spans, 2, "\x2a", 0);
}

static void unknown_fields(struct shape *s)
{
    size_t span = open_span(s, 1, 1, 0);
    while (has_room(s)) {
        wire_varint(&s->spans, UNKNOWN_FIELD + 20, 1);
        wire_varint(&s->resource, UNKNOWN_FIELD, 1);
    }
    wire_close(&s->spans, span);
}

/* Many resources with one span each. */
static void many_resources(struct shape *s)
{
    for (uint64_t i = 1; has_room(s); i++) {
        char name[24];
        (void)snprintf(name, sizeof name, "service%u", (unsigned)i);
        struct wire *w = &s->more;
        size_t part = wire_open(w, 1), resource = wire_open(w, 1);
        wire_attribute_of(w, 1, "service.name", name, strlen(name));
        wire_attribute_of(w, 1, "k", "a text that makes it as long as the walk asks for", 49);
        wire_close(w, resource);
        size_t scope = wire_open(w, 2), span = wire_open(w, 2);
        put_ids(w, i, i, 0);
        wire_close(w, span);
        wire_close(w, scope);
        wire_close(w, part);
    }
}

static void put_scopes(struct shape *s, size_t resource_len)
{
    struct wire *w = &s->more;
    size_t part = wire_open(w, 1), resource = wire_open(w, 1);
    wire_attribute_of(w, 1, "k", s->text, resource_len);
    wire_close(w, resource);
    for (uint64_t i = 1; has_room(s); i++) {
        size_t scopes = wire_open(w, 2), scope = wire_open(w, 1);
        wire_str(w, 1, "secret");
        wire_close(w, scope);
        size_t span = wire_open(w, 2);
        put_ids(w, i, i, 0);
        wire_close(w, span);
        wire_close(w, scopes);
    }
    wire_close(w, part);
}

static void many_scopes(struct shape *s)
{
    put_scopes(s, 1);
}

static void scopes_of_a_long_resource(struct shape *s)
{
    put_scopes(s, s->size / 2);
}

static const struct {
    const char *name;
    void (*make)(struct shape *s);
    bool refused; /* rejected by the walk */
} shapes[] = {
    {"a long service", long_service, false},
    {"a long value of a resource", long_resource_value, false},
    {"a resource's value of many fields", resource_of_many_fields, false},
    {"a scope's value of many fields", scope_of_many_fields, false},
    {"a resource of many attributes", many_resource_attributes, false},
    {"a long scope", long_scope, false},
    {"a scope of many attributes", many_scope_attributes, false},
    {"a long name", long_name, false},
    {"a long tracestate", long_tracestate, false},
    {"a long value", long_value, false},
    {"a long key", long_key, false},
    {"one key very often", many_attributes, false},
    {"very many keys", many_keys, false},
    {"spans of many attributes", spans_of_many_attributes, false},
    {"values in values", nested_values, false},
    {"very many events", many_events, false},
    {"very many links", many_links, false},
    {"one span very often", repeated_span, false},
    {"children of one", children_of_one, false},
    {"a deep family", deep_family, false},
    {"a deep family, backwards", deep_family_backwards, false},
    {"their own parents", own_parents, false},
    {"parents in a ring", parents_in_a_ring, false},
    {"spans without ids", spans_without_ids, true},
    {"unknown fields", unknown_fields, false},
    {"very many resources", many_resources, false},
    {"very many scopes", many_scopes, false},
    {"scopes of a long resource", scopes_of_a_long_resource, false},
};

static struct wire make_shape(size_t i, size_t size)
{
    struct shape s = {.size = size, .text = malloc(size / 2)};
    struct wire w = {0};
    assert_non_null(s.text);
    memset(s.text, ' ', size / 2);
    shapes[i].make(&s);
    size_t part = wire_open(&w, 1), resource = wire_open(&w, 1);
    wire_raw(&w, s.resource.data, s.resource.len);
    wire_close(&w, resource);
    size_t scope = wire_open(&w, 2);
    wire_raw(&w, s.scope.data, s.scope.len);
    wire_raw(&w, s.spans.data, s.spans.len);
    wire_close(&w, scope);
    wire_close(&w, part);
    wire_raw(&w, s.more.data, s.more.len);
    wire_free(&s.resource);
    wire_free(&s.scope);
    wire_free(&s.spans);
    wire_free(&s.more);
    free(s.text);
    return w;
}

/* --- The readers ------------------------------------------------------------------------------ */

extern const struct br_component br_join_processor, br_batch_processor, br_redaction_processor,
    br_filter_processor, br_attributes_processor, br_resource_processor, br_transform_processor,
    br_probabilistic_sampler_processor, br_span_processor, br_group_by_attrs_processor,
    br_tail_sampling_processor;

/* All components that read spans. memory_limiter does not read them. */
static const struct worst_reader readers[] = {
    {"join", &br_join_processor,
     "{max_bytes: 1048576, mark: likely, infer: true, top_functions: 5, sample_attributes: [k, "
     "service.name], span_metrics: {enabled: true}}"},
    {"join, hold", &br_join_processor, "{max_bytes: 16777216, hold: 1s, sample_attributes: [k]}"},
    {"batch", &br_batch_processor, "{timeout: 0s}"},
    {"batch, cut", &br_batch_processor,
     "{timeout: 0s, send_batch_size: 1000, send_batch_max_size: 1000}"},
    {"redaction", &br_redaction_processor,
     "{blocked_value_words: [secret], span_names: {words: [private]}, match_time: 1h}"},
    {"redaction, keys", &br_redaction_processor,
     "{allow_all_keys: false, allowed_keys: [k], match_time: 1h}"},
    {"redaction, patterns", &br_redaction_processor,
     "{blocked_key_patterns: ['^secret'], blocked_values: ['secret'], match_time: 1h}"},
    {"redaction, URLs", &br_redaction_processor,
     "{match_time: 1h, url_sanitizer: {enabled: true, attributes: [k]}}"},
    {"filter, conditions", &br_filter_processor,
     "{match_time: 1h, trace_conditions: ['IsMatch(span.attributes[\"k\"], \"secret\")', "
     "'resource.attributes[\"k\"] == \"none\" or scope.name == \"none\"', "
     "'IsMatch(span.name, \"secret\") and not IsRootSpan()']}"},
    {"filter", &br_filter_processor,
     "{match_time: 1h, spans: {exclude: {match_type: regexp, span_names: [secret]}}}"},
    {"filter, services", &br_filter_processor,
     "{match_time: 1h, spans: {exclude: {match_type: regexp, services: [secret], libraries: "
     "[{name: none}]}}}"},
    {"filter, resources", &br_filter_processor,
     "{match_time: 1h, spans: {exclude: {match_type: regexp, resources: [{key: k, value: "
     "none}]}}}"},
    {"filter, libraries", &br_filter_processor,
     "{match_time: 1h, spans: {exclude: {match_type: regexp, libraries: [{name: none}]}}}"},
    {"filter, values", &br_filter_processor,
     "{match_time: 1h, spans: {exclude: {match_type: regexp, attributes: [{key: k, value: "
     "none}]}}}"},
    {"attributes", &br_attributes_processor,
     "{match_time: 1h, actions: [{key: k, action: hash}, {key: copy, from_attribute: k, action: "
     "upsert}, {key: copy, action: convert, converted_type: int}]}"},
    {"attributes, patterns", &br_attributes_processor,
     "{match_time: 1h, actions: [{pattern: '^k1', action: delete}, {key: k, pattern: "
     "'(?P<first>v)', action: extract}]}"},
    {"resource", &br_resource_processor,
     "{match_time: 1h, attributes: [{key: service.name, action: hash}, {key: copy, "
     "from_attribute: k, action: upsert}]}"},
    {"transform", &br_transform_processor,
     "{match_time: 1h, trace_statements: ['set(span.attributes[\"copy\"], "
     "resource.attributes[\"k\"])', 'set(span.name, Concat([span.name, scope.name], \"-\"))', "
     "'replace_all_patterns(span.attributes, \"value\", \"v\", \"w\")', "
     "'truncate_all(spanevent.attributes, 100)', 'merge_maps(span.attributes, "
     "resource.attributes, \"insert\")', 'set(resource.attributes[\"last\"], span.name) where "
     "IsMatch(span.attributes[\"k\"], \"secret\") == false']}"},
    {"sampler", &br_probabilistic_sampler_processor,
     "{sampling_percentage: 50, fail_closed: false}"},
    {"sampler, proportional", &br_probabilistic_sampler_processor,
     "{mode: proportional, sampling_percentage: 50, fail_closed: false}"},
    {"sampler, equalizing", &br_probabilistic_sampler_processor,
     "{mode: equalizing, sampling_percentage: 50, fail_closed: false}"},
    {"tail sampling", &br_tail_sampling_processor,
     "{decision_wait: 0s, match_time: 1h, policies: [{name: a, type: string_attribute, "
     "string_attribute: {key: k, values: [secret], enabled_regex_matching: true}}, {name: b, type: "
     "ottl_condition, ottl_condition: {span: ['IsMatch(name, \"secret\")']}}, {name: c, type: "
     "trace_state, trace_state: {key: k, values: [v]}}, {name: d, type: probabilistic, "
     "probabilistic: {sampling_percentage: 50}}]}"},
    {"tail sampling, held", &br_tail_sampling_processor,
     "{decision_wait: 1s, num_traces: 100, policies: [{name: a, type: latency, latency: "
     "{threshold_ms: 1000}}]}"},
    {"group_by_attrs", &br_group_by_attrs_processor, "{keys: [k, service.name]}"},
    {"group_by_attrs, compaction", &br_group_by_attrs_processor, "{}"},
    {"span", &br_span_processor,
     "{match_time: 1h, name: {from_attributes: [k], separator: '-', to_attributes: {rules: "
     "['(?P<first>v)', '(?P<second>[0-9])']}}, status: {code: Ok}}"},
};

/* Returns the item of a shape, or NULL if the walk rejects it as expected. */
static struct br_item *walk(struct fake_host *h, size_t shape, const struct wire *w)
{
    struct walk_check c = {.h = h, .signal = BR_TRACES, .options.spans = true};
    int rc = walk_check(&c, w);
    if (rc != (shapes[shape].refused ? BR_ETOOBIG : 0))
        fail_msg("%s of %zu bytes: %s", shapes[shape].name, w->len, c.err.text);
    return c.item;
}

/* Returns an item with the same parts, and with a separate list of spans, which a reader may
 * change. */
static struct br_item *copy_of(struct fake_host *h, const struct br_item *from)
{
    struct br_item *item = br_item_new(&h->host, BR_TRACES);
    assert_non_null(item);
    for (uint32_t i = 0; i < from->n_parts; i++)
        assert_int_equal(br_item_add_part(item, &from->parts[i]), 0);
    if (from->spans) {
        size_t len = from->n_records * sizeof *from->spans;
        item->spans_buf = br_buf_new(h->host.pool, len);
        assert_non_null(item->spans_buf);
        memcpy(item->spans_buf->data, from->spans, len);
        item->spans_buf->len = (uint32_t)len;
        item->spans = (struct br_span *)(void *)item->spans_buf->data;
    }
    return item;
}

/* Sends the shape through the reader. Returns the microseconds of CPU time if `times`, otherwise
 * the number of steps. */
static uint64_t send_shape(struct fake_host *h, size_t reader, size_t shape,
                           const struct br_item *item, bool times)
{
    enum br_verdict verdict = BR_DONE;
    if (!item)
        return 0;
    uint64_t cost = worst_send(h, &readers[reader], copy_of(h, item), times, &verdict);
    if (verdict == BR_RETRY)
        fail_msg("%s: %s of %zu bytes has a retryable result", readers[reader].name,
                 shapes[shape].name, item->size);
    return cost;
}

/* The steps allowed for each byte. A rule of a config may read the long part of a request a few
 * times. Each span costs a few steps. */
#define STEPS_PER_BYTE 64

static void try_shape(struct fake_host *h, size_t shape, size_t size)
{
    struct wire w = make_shape(shape, size);
    struct br_item *item = walk(h, shape, &w);
    for (size_t r = 0; r < BR_COUNT(readers); r++) {
        uint64_t steps = send_shape(h, r, shape, item, false);
        bool transform = readers[r].component == &br_transform_processor;
        uint64_t most = transform ? TRANSFORM_STEPS : STEPS_PER_BYTE;
        if (steps > most * size)
            fail_msg("%s: %s of %zu bytes takes %llu steps", readers[r].name, shapes[shape].name,
                     size, (unsigned long long)steps);
    }
    br_item_free(item);
    wire_free(&w);
}

static void work_is_proportional_to_bytes(void **state)
{
    (void)state;
    struct fake_host *h = fake_host_new();
    for (size_t s = 0; s < BR_COUNT(shapes); s++) {
        try_shape(h, s, MIB / 8);
        try_shape(h, s, worst_mib_max() * MIB / 2);
    }
    fake_host_free(h);
}

static void print_times(void)
{
    struct fake_host *h = fake_host_new();
    (void)printf("ms of CPU over 1 MiB, and steps per byte\n");
    for (size_t s = 0; s < BR_COUNT(shapes); s++) {
        struct wire w = make_shape(s, MIB);
        struct br_item *item = walk(h, s, &w);
        (void)printf("%s:\n", shapes[s].name);
        for (size_t r = 0; r < BR_COUNT(readers); r++) {
            double ms = (double)send_shape(h, r, s, item, true) / 1000;
            double steps = (double)send_shape(h, r, s, item, false) / (double)MIB;
            (void)printf("    %-24s %8.1f %8.2f\n", readers[r].name, ms, steps);
            (void)fflush(stdout);
        }
        br_item_free(item);
        wire_free(&w);
    }
    fake_host_free(h);
}

SUITE(worst_traces)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_is_proportional_to_bytes),
    };
    if (!test_mode_is("times"))
        return RUN(tests, NULL, NULL);
    print_times();
    return 0;
}
