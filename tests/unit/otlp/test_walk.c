/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "otlp/json/json.h"
#include "tests/support/fake_sink.h"
#include "tests/support/items.h"
#include "tests/support/test.h"
#include "tests/support/walk_check.h"

static int setup(void **state)
{
    int rc = walk_check_setup(state, BR_TRACES);
    ((struct walk_check *)*state)->options.utf8 = BR_UTF8_REJECT;
    return rc;
}

static int teardown(void **state)
{
    return walk_check_teardown(state);
}

/* Opens nested messages: fields[0] is the outermost, 0 ends the list. */
struct path {
    size_t open[16];
    int n;
};

static void enter(struct wire *w, struct path *p, const uint32_t *fields)
{
    for (p->n = 0; fields[p->n]; p->n++)
        p->open[p->n] = wire_open(w, fields[p->n]);
}

static void leave(struct wire *w, struct path *p)
{
    while (p->n > 0)
        wire_close(w, p->open[--p->n]);
}

static const uint32_t in_span[] = {1, 2, 2, 0};

/* --- Valid and invalid requests --------------------------------------------------------------- */

static void an_empty_body_is_a_request(void **state)
{
    struct walk_check *c = *state;
    struct wire w = {0};
    for (c->signal = BR_TRACES; c->signal <= BR_PROFILES; c->signal++) {
        assert_int_equal(walk_check(c, &w), 0);
        assert_int_equal(c->item->n_parts, 0);
        assert_int_equal(c->item->n_records, 0);
        assert_true(walk_check_writes(c, &w));
    }
}

static void records_are_counted_and_bytes_kept(void **state)
{
    struct walk_check *c = *state;
    for (c->signal = BR_TRACES; c->signal <= BR_PROFILES; c->signal++) {
        for (uint32_t n = 0; n < 200; n += 7) {
            struct wire w = {0};
            uint32_t resources = n % 4 + 1;
            items_request(&w, c->signal, 0, n, resources);
            assert_int_equal(walk_check(c, &w), 0);
            assert_int_equal(c->item->n_records, n);
            assert_int_equal(c->item->n_parts, resources + (c->signal == BR_PROFILES));
            assert_int_equal(c->item->n_pending, 0);
            assert_true(walk_check_writes(c, &w));
            wire_free(&w);
        }
    }
}

/* A request may end at the end of a top-level field. Every other cut is malformed. */
static void a_cut_request_is_malformed(void **state)
{
    struct walk_check *c = *state;
    struct wire w = {0};
    size_t boundary = 0;
    items_traces(&w, 0, 3, 1);
    boundary = w.len;
    items_traces(&w, 3, 3, 1);
    size_t whole = w.len;
    for (w.len = 0; w.len <= whole; w.len++) {
        bool ok = w.len == 0 || w.len == boundary || w.len == whole;
        assert_int_equal(walk_check(c, &w), ok ? 0 : BR_EINVAL);
    }
    w.len = whole;
    wire_free(&w);
}

static void random_damage_is_an_error_or_a_request(void **state)
{
    struct walk_check *c = *state;
    for (c->signal = BR_TRACES; c->signal <= BR_PROFILES; c->signal++) {
        struct wire w = {0};
        uint64_t seed = 1;
        items_request(&w, c->signal, 0, 4, 2);
        for (size_t i = 0; i < w.len; i++) {
            uint8_t was = w.data[i];
            for (int k = 0; k < 24; k++) {
                unsigned wrong = k < 8 ? was ^ 1u << k : (unsigned)fake_random(&seed);
                w.data[i] = (uint8_t)wrong;
                int rc = walk_check(c, &w);
                assert_true(rc == BR_EINVAL || rc == BR_ETOOBIG ||
                            (rc == 0 && walk_check_writes(c, &w)));
                assert_true(rc == 0 || c->err.text[0]);
            }
            w.data[i] = was;
        }
        wire_free(&w);
    }
}

/* Encodes all lengths and numbers of a request with more bytes than necessary.
 * protobuf.dev/programming-guides/encoding does not require the shortest form, and async-profiler
 * pads lengths to five bytes. */
static void overlong_varints_are_valid(void **state)
{
    struct walk_check *c = *state;
    static const uint8_t request[] = {
        0x8a, 0x80, 0x00, 0x94, 0x80, 0x80, 0x80, 0x00, /* resource_spans, 20 bytes */
        0x92, 0x00, 0x8f, 0x80, 0x80, 0x00,             /* scope_spans, 15 */
        0x92, 0x80, 0x80, 0x80, 0x00, 0x87, 0x80, 0x00, /* spans, 7 */
        0x2a, 0x81, 0x00, 'x',                          /* name */
        0x30, 0x83, 0x00,                               /* kind */
    };
    struct wire w = {0};
    /* lengths: span 4 + 3 = 7; scope 8 + 7 = 15; resource 6 + 15 = 21 */
    wire_raw(&w, request, sizeof request);
    w.data[3] = 0x95;
    c->options.spans = true;
    assert_int_equal(walk_check(c, &w), 0);
    assert_int_equal(c->item->n_records, 1);
    assert_int_equal(c->item->spans[0].kind, 3);
    assert_memory_equal(c->item->spans[0].name, "x", 1);
    assert_true(walk_check_writes(c, &w));
    wire_free(&w);
}

static void lengths_beyond_their_parent_are_malformed(void **state)
{
    struct walk_check *c = *state;
    static const char *const bad[] = {
        "\x0a\x01",                                     /* one byte of resource_spans is missing */
        "\x0a\x02\x12\x01",                             /* scope_spans exceeds resource_spans ... */
        "\x0a\x02\x12\x01\x00",                         /* ... even if there are more bytes */
        "\x0a\x04\x12\x02\x12\x01\x00",                 /* the span exceeds its scope */
        "\x0a\xff\xff\xff\xff\x0f",                     /* 4 GiB */
        "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", /* 2^64 - 1 */
    };
    static const size_t lens[] = {2, 4, 5, 7, 6, 11};
    for (size_t i = 0; i < BR_COUNT(bad); i++) {
        struct wire w = {0};
        wire_raw(&w, bad[i], lens[i]);
        assert_int_equal(walk_check(c, &w), BR_EINVAL);
        wire_free(&w);
    }
}

/* --- Every field of the schema with every wire type ------------------------------------------- */

static bool is_list(const ProtobufCFieldDescriptor *f)
{
    return f->label == PROTOBUF_C_LABEL_REPEATED;
}

static unsigned wire_of(const ProtobufCFieldDescriptor *f)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 1;
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return 5;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return 2;
    default:
        return 0;
    }
}

static void put_zero(struct wire *w, uint32_t field, unsigned type)
{
    if (type == 0)
        wire_varint(w, field, 0);
    else if (type == 1)
        wire_i64(w, field, 0);
    else if (type == 5)
        wire_i32(w, field, 0);
    else
        wire_len(w, field, NULL, 0);
}

static unsigned n_tried;

static void try_field(struct walk_check *c, const uint32_t *path, const char *message,
                      const ProtobufCFieldDescriptor *f, unsigned type)
{
    struct wire w = {0};
    struct path p;
    unsigned native = wire_of(f);
    enter(&w, &p, path);
    put_zero(&w, f->id, type);
    if (strcmp(message, "Sample") == 0)
        wire_varint(&w, 4, 1); /* a sample is only valid with a value */
    leave(&w, &p);
    bool ok = type == native || (is_list(f) && native != 2 && type == 2);
    /* The sample is rejected because it is empty, not because of its wire type. */
    if (strcmp(f->name, "samples") == 0)
        ok = false;
    if ((walk_check(c, &w) == 0) != ok)
        fail_msg("%s.%s with wire type %u is %s", message, f->name, type,
                 ok ? "rejected" : "accepted");
    /* A resource without content is not kept. */
    if (ok && !*path && f->id == 1)
        wire_clear(&w);
    if (ok)
        assert_true(walk_check_writes(c, &w));
    n_tried++;
    wire_free(&w);
}

static void try_message(struct walk_check *c, const ProtobufCMessageDescriptor *d, uint32_t *path,
                        int depth)
{
    static const unsigned types[] = {0, 1, 2, 5};
    for (unsigned i = 0; i < d->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &d->fields[i];
        for (size_t t = 0; t < BR_COUNT(types); t++)
            try_field(c, path, d->short_name, f, types[t]);
        if (f->type != PROTOBUF_C_TYPE_MESSAGE || depth == 9)
            continue;
        path[depth] = f->id;
        path[depth + 1] = 0;
        try_message(c, f->descriptor, path, depth + 1);
        path[depth] = 0;
    }
    /* Fields of future versions, of any type, in any message. */
    for (size_t t = 0; t < BR_COUNT(types); t++) {
        struct wire w = {0};
        struct path p;
        enter(&w, &p, path);
        put_zero(&w, 1000, types[t]);
        if (strcmp(d->short_name, "Sample") == 0)
            wire_varint(&w, 4, 1);
        leave(&w, &p);
        assert_int_equal(walk_check(c, &w), 0);
        assert_true(walk_check_writes(c, &w));
        wire_free(&w);
    }
}

static void only_known_fields_need_a_wire_type(void **state)
{
    struct walk_check *c = *state;
    for (c->signal = BR_TRACES; c->signal <= BR_PROFILES; c->signal++) {
        uint32_t path[16] = {0};
        n_tried = 0;
        try_message(c, br_otlp_request(c->signal), path, 0);
        assert_true(n_tried > 200);
    }
}

static void groups_are_rejected(void **state)
{
    struct walk_check *c = *state;
    struct wire w = {0};
    struct path p;
    enter(&w, &p, in_span);
    wire_tag(&w, 1000, 3);
    wire_tag(&w, 1000, 4);
    leave(&w, &p);
    assert_int_equal(walk_check(c, &w), BR_EINVAL);
    wire_free(&w);
}

/* --- Ids -------------------------------------------------------------------------------------- */

static void ids_have_their_length_or_are_empty(void **state)
{
    struct walk_check *c = *state;
    static const struct {
        enum br_signal signal;
        uint32_t path[8], field;
        size_t size;
    } ids[] = {
        {BR_TRACES, {1, 2, 2}, 1, 16},    {BR_TRACES, {1, 2, 2}, 2, 8},
        {BR_TRACES, {1, 2, 2}, 4, 8},     {BR_TRACES, {1, 2, 2, 13}, 1, 16},
        {BR_TRACES, {1, 2, 2, 13}, 2, 8}, {BR_PROFILES, {1, 2, 2}, 7, 16},
        {BR_PROFILES, {2, 4}, 1, 16},     {BR_PROFILES, {2, 4}, 2, 8},
    };
    static const uint8_t bytes[33];
    for (size_t i = 0; i < BR_COUNT(ids); i++) {
        for (size_t len = 0; len <= 32; len++) {
            struct wire w = {0};
            struct path p;
            c->signal = ids[i].signal;
            enter(&w, &p, ids[i].path);
            wire_len(&w, ids[i].field, bytes, len);
            leave(&w, &p);
            int want = len == 0 || len == ids[i].size ? 0 : BR_EINVAL;
            if (walk_check(c, &w) != want)
                fail_msg("id %zu with %zu bytes", i, len);
            wire_free(&w);
        }
    }
}

/* --- Depth ------------------------------------------------------------------------------------ */

/* Writes an AnyValue in field `field`: a string inside `n` nested lists, or key-value lists. */
static void nest(struct wire *w, uint32_t field, unsigned n, bool pairs)
{
    size_t any = wire_open(w, field);
    if (n == 0) {
        wire_str(w, 1, "x");
    } else {
        size_t list = wire_open(w, pairs ? 6 : 5);
        size_t pair = pairs ? wire_open(w, 1) : 0;
        nest(w, pairs ? 2 : 1, n - 1, pairs);
        if (pairs)
            wire_close(w, pair);
        wire_close(w, list);
    }
    wire_close(w, any);
}

/* Levels count from the request, which is level 1. A list adds a level for itself and one for
 * its values. A key-value list adds another for its pairs. */
static void nesting_is_counted_in_messages(void **state)
{
    struct walk_check *c = *state;
    static const struct {
        enum br_signal signal;
        uint32_t path[8]; /* fields from the request to the message that contains the AnyValue */
        uint32_t field;
    } places[] = {
        {BR_TRACES, {1, 1, 1}, 2},        /* request, ResourceSpans, Resource, KeyValue, AnyValue */
        {BR_TRACES, {1, 2, 1, 3}, 2},     /* an attribute of a scope */
        {BR_TRACES, {1, 2, 2, 9}, 2},     /* of a span */
        {BR_TRACES, {1, 2, 2, 11, 3}, 2}, /* of an event */
        {BR_TRACES, {1, 2, 2, 13, 4}, 2}, /* of a link */
        {BR_PROFILES, {1, 1, 1}, 2},      {BR_PROFILES, {1, 2, 1, 3}, 2},
        {BR_PROFILES, {2, 6}, 2}, /* an entry of the attribute table */
    };
    for (size_t i = 0; i < BR_COUNT(places); i++) {
        for (int pairs = 0; pairs < 2; pairs++) {
            for (unsigned n = 0; n < 12; n++) {
                struct wire w = {0};
                struct path p;
                c->signal = places[i].signal;
                enter(&w, &p, places[i].path);
                unsigned deepest = 1 + (unsigned)p.n + 1 + n * (pairs ? 3 : 2);
                nest(&w, places[i].field, n, pairs);
                leave(&w, &p);
                for (unsigned max = 8; max < 40; max++) {
                    c->options.max_depth = max;
                    int want = deepest <= max ? 0 : BR_ETOOBIG;
                    if (walk_check(c, &w) != want)
                        fail_msg("place %zu: %u levels, %u allowed", i, deepest, max);
                }
                c->options.max_depth = 0; /* 64 */
                assert_int_equal(walk_check(c, &w), deepest <= 64 ? 0 : BR_ETOOBIG);
                wire_free(&w);
            }
        }
    }
}

static void depth_is_limited_to_a_thousand(void **state)
{
    struct walk_check *c = *state;
    struct wire w = {0};
    struct path p;
    static const uint32_t in_attribute[] = {1, 2, 2, 9, 0};
    c->options.max_depth = BR_WALK_DEPTH_MAX;
    for (unsigned n = 497; n <= 498; n++) {
        wire_clear(&w);
        enter(&w, &p, in_attribute);
        nest(&w, 2, n, false); /* levels: 6 + 2 n */
        leave(&w, &p);
        assert_int_equal(walk_check(c, &w), n == 497 ? 0 : BR_ETOOBIG);
    }
    wire_free(&w);
}

/* --- The Resource ----------------------------------------------------------------------------- */

static void the_resource_may_have_any_position(void **state)
{
    struct walk_check *c = *state;
    for (c->signal = BR_TRACES; c->signal <= BR_PROFILES; c->signal++) {
        for (int place = 0; place < 4; place++) {
            struct wire w = {0};
            size_t rs = wire_open(&w, 1);
            for (int i = 0; i < 3; i++) {
                if (i == place) {
                    size_t resource = wire_open(&w, 1);
                    wire_attribute(&w, 1, "k", "v");
                    wire_close(&w, resource);
                } else if (i == 1) {
                    wire_str(&w, 3, "schema");
                } else {
                    wire_len(&w, 2, NULL, 0);
                }
            }
            wire_close(&w, rs);
            assert_int_equal(walk_check(c, &w), 0);
            size_t len;
            const uint8_t *resource = br_part_resource(&c->item->parts[0], &len);
            /* KeyValue{k: "k", v: AnyValue{"v"}} takes 3 + 5 bytes, and its tag and length 2
             * bytes */
            assert_int_equal(len, place < 3 ? 10 : 0);
            if (len)
                assert_memory_equal(resource, "\x0a\x08\x0a\x01k\x12\x03\x0a\x01v", 10);
            assert_true(walk_check_writes(c, &w));
            wire_free(&w);
        }
    }
}

/* protobuf.dev/programming-guides/encoding, "Last One Wins": embedded messages that occur twice
 * are merged, which equals concatenating their bytes. */
static void two_resources_are_merged(void **state)
{
    struct walk_check *c = *state;
    for (c->signal = BR_TRACES; c->signal <= BR_PROFILES; c->signal++) {
        struct wire w = {0}, want = {0};
        for (int united = 0; united < 2; united++) {
            struct wire *o = united ? &want : &w;
            size_t rs = wire_open(o, 1);
            size_t resource = wire_open(o, 1);
            wire_attribute(o, 1, "a", "1");
            if (united)
                wire_attribute(o, 1, "b", "2");
            if (united)
                wire_varint(o, 2, 7);
            wire_close(o, resource);
            wire_str(o, 3, "schema");
            if (!united) {
                resource = wire_open(o, 1);
                wire_attribute(o, 1, "b", "2");
                wire_close(o, resource);
            }
            wire_str(o, 99, "unknown");
            size_t scope = wire_open(o, 2);
            size_t inner = wire_open(o, 2);
            if (c->signal == BR_TRACES)
                wire_len(o, 2, "12345678", 8);
            wire_close(o, inner);
            wire_close(o, scope);
            if (!united) {
                resource = wire_open(o, 1);
                wire_varint(o, 2, 7);
                wire_close(o, resource);
            }
            wire_close(o, rs);
        }
        c->options.spans = true;
        assert_int_equal(walk_check(c, &w), 0);
        assert_int_equal(c->item->n_records, c->signal == BR_TRACES);
        assert_true(walk_check_writes(c, &want));
        size_t len;
        const uint8_t *united = br_part_resource(&c->item->parts[0], &len);
        /* two attributes of ten bytes each, and two bytes of dropped_attributes_count */
        assert_int_equal(len, 22);
        assert_memory_equal(united, want.data + 4, len);
        if (c->signal == BR_TRACES) {
            const struct br_part *part = &c->item->parts[0];
            assert_true(c->item->spans[0].body >= part->raw &&
                        c->item->spans[0].body < part->raw + part->raw_len);
            assert_memory_equal(&c->item->spans[0].head.span_id, "12345678", 8);
        }
        wire_free(&w);
        wire_free(&want);
    }
}

/* --- Spans ------------------------------------------------------------------------------------ */

/* Writes one scope with `n` spans of `bytes` bytes each. */
static void put_equal_spans(struct wire *w, uint32_t n, size_t bytes)
{
    static const char name[64];
    size_t rs = wire_open(w, 1), scope = wire_open(w, 2);
    for (uint32_t i = 0; i < n; i++) {
        size_t span = wire_open(w, 2);
        if (bytes > 2)
            wire_len(w, 5, name, bytes - 4);
        wire_close(w, span);
    }
    wire_close(w, scope);
    wire_close(w, rs);
}

/* In a request, a span takes at least two bytes, but its entry in the list of spans takes about
 * eighty. The length of the list is limited by the size that spans with ids and times need, and by
 * 64 MiB. */
static void the_list_of_spans_is_limited(void **state)
{
    struct walk_check *c = *state;
    static const struct {
        uint32_t most;
        size_t bytes;
    } cases[] = {
        {8548, 2}, /* 8,192, and one for every 48 of the 17,104 bytes of the request */
        {(64u << 20) / sizeof(struct br_span), 56},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        for (uint32_t more = 0; more <= 1; more++) {
            struct wire w = {0};
            put_equal_spans(&w, cases[i].most + more, cases[i].bytes);
            c->options.spans = true;
            assert_int_equal(walk_check(c, &w), more ? BR_ETOOBIG : 0);
            assert_int_equal(c->item ? c->item->n_records : 0, more ? 0 : cases[i].most);
            c->options.spans = false;
            assert_int_equal(walk_check(c, &w), 0);
            wire_free(&w);
        }
    }
}

/* --- Parts ------------------------------------------------------------------------------------ */

static void parts_without_content_are_not_kept(void **state)
{
    struct walk_check *c = *state;
    struct wire w = {0}, want = {0};
    for (int i = 0; i < 100000; i++) {
        wire_len(&w, 1, "", 0);
        if (i % 1000 == 0)
            items_traces(&w, 0, 1, 1);
        if (i % 1000 == 0)
            items_traces(&want, 0, 1, 1);
    }
    assert_int_equal(walk_check(c, &w), 0);
    assert_int_equal(c->item->n_parts, 100);
    assert_int_equal(c->item->n_records, 100);
    assert_true(walk_check_writes(c, &want));
    wire_clear(&w);
    wire_len(&w, 1, "", 0);
    assert_int_equal(walk_check(c, &w), 0);
    assert_int_equal(c->item->n_parts, 0);
    assert_int_equal(c->item->size, 0);
    wire_free(&w);
    wire_free(&want);
}

/* In traces, field 2 is an unknown field too. In profiles, an empty dictionary is kept once. */
static void adjacent_unknown_fields_are_one_part(void **state)
{
    struct walk_check *c = *state;
    for (int s = 0; s < BR_SIGNALS; s++) {
        struct wire w = {0};
        c->signal = (enum br_signal)s;
        for (int i = 0; i < 1000; i++)
            wire_varint(&w, 15, (uint64_t)i);
        wire_len(&w, 2, "", 0);
        for (int i = 0; i < 1000; i++)
            wire_i64(&w, 1000, 7);
        assert_int_equal(walk_check(c, &w), 0);
        assert_int_equal(c->item->n_parts, s == BR_TRACES ? 1 : 3);
        assert_int_equal(c->item->size, w.len);
        assert_true(walk_check_writes(c, &w));
        wire_free(&w);
    }
    c->signal = BR_TRACES;
}

/* If each ResourceSpans takes four bytes, the limit is 4,096 parts, and one more for every 96 of
 * the 17,096 bytes of the request. */
static void the_number_of_parts_is_limited(void **state)
{
    struct walk_check *c = *state;
    for (uint32_t n = 4273; n <= 4275; n++) {
        struct wire w = {0};
        for (uint32_t i = 0; i < n; i++)
            wire_len(&w, 1, "\x0a\0", 2);
        int rc = walk_check(c, &w);
        assert_int_equal(rc, n > 4274 ? BR_ETOOBIG : 0);
        if (rc)
            assert_string_equal(c->err.text, "request: too many parts for the size of the request");
        wire_free(&w);
    }
}

static void spans_are_listed_on_demand(void **state)
{
    struct walk_check *c = *state;
    struct wire w = {0};
    items_traces(&w, 0, 1000, 3);
    assert_int_equal(walk_check(c, &w), 0);
    assert_null(c->item->spans);
    c->options.spans = true;
    assert_int_equal(walk_check(c, &w), 0);
    for (uint32_t n = 0; n < 1000; n++) {
        const struct br_span *s = &c->item->spans[n];
        const struct br_part *part = &c->item->parts[s->part];
        uint64_t id = 0;
        for (int i = 0; i < 8; i++)
            id = id << 8 | ((const uint8_t *)&s->head.span_id)[i];
        assert_int_equal(id, n);
        assert_int_equal(s->head.trace_id[15], n / 4 % 256);
        assert_true(s->head.parent_id == 0);
        assert_int_equal(s->kind, n % 6);
        assert_true(s->head.start_ns == 1767225600000000000u + n);
        assert_true(s->head.end_ns == s->head.start_ns + 1000);
        assert_int_equal(s->name_len, n % 3 ? 5 : 14);
        assert_memory_equal(s->name, n % 3 ? "GET /" : "POST /checkout", s->name_len);
        assert_int_equal(s->status, 0);
        assert_true(s->body > part->raw && s->body + s->body_len <= part->raw + part->raw_len);
    }
    wire_free(&w);
}

/* Each case is one KeyValue: key first, value first, overlong tags and lengths, other keys, and
 * a repeated key, of which the last counts. */
static void the_key_of_a_thread_may_have_any_position(void **state)
{
    struct walk_check *c = *state;
    static const struct {
        const char *bytes;
        size_t len;
        bool id, name;
    } pairs[] = {
        {"\x0a\x09thread.id\x12\x02\x18\x07", 15, true, false},
        {"\x12\x02\x18\x07\x0a\x09thread.id", 15, true, false},
        {"\x12\x02\x18\x07\x8a\x00\x09thread.id", 16, true, false},
        {"\x12\x02\x18\x07\x0a\x89\x00thread.id", 16, true, false},
        {"\x0a\x01x\x0a\x09thread.id\x12\x02\x18\x07", 18, true, false},
        {"\x0a\x09thread.id\x0a\x01x\x12\x02\x18\x07", 18, false, false},
        {"\x12\x02\x18\x07\x0a\x0bthread.name", 17, false, true},
        {"\x0a\x0bthread.name\x12\x02\x18\x07", 17, false, true},
        {"\x12\x02\x18\x07\x0a\x0athread.ids", 16, false, false},
        {"\x12\x0b\x0a\x09thread.id\x0a\x09threadsid", 24, false, false},
        {"\x12\x02\x18\x07\x0a\x06thread", 12, false, false},
    };
    c->options.spans = true;
    for (size_t i = 0; i < BR_COUNT(pairs); i++) {
        struct wire w = {0};
        struct path p;
        enter(&w, &p, in_span);
        wire_attribute(&w, 9, "first", "thread.id");
        wire_len(&w, 9, pairs[i].bytes, pairs[i].len);
        leave(&w, &p);
        assert_int_equal(walk_check(c, &w), 0);
        const struct br_span *s = &c->item->spans[0];
        if ((s->thread_id != NULL) != pairs[i].id || (s->thread_name != NULL) != pairs[i].name)
            fail_msg("pair %zu", i);
        if (pairs[i].id) {
            assert_int_equal(s->thread_id_len, 2);
            assert_memory_equal(s->thread_id, "\x18\x07", 2);
        }
        if (pairs[i].name) {
            assert_int_equal(s->thread_name_len, 2);
            assert_memory_equal(s->thread_name, "\x18\x07", 2);
        }
        wire_free(&w);
    }
}

static void the_last_thread_counts(void **state)
{
    struct walk_check *c = *state;
    struct wire w = {0};
    struct path p;
    c->options.spans = true;
    enter(&w, &p, in_span);
    wire_attribute(&w, 9, "thread.id", "one");
    wire_attribute(&w, 9, "thread.name", "main");
    wire_attribute(&w, 9, "thread.id", "three");
    leave(&w, &p);
    assert_int_equal(walk_check(c, &w), 0);
    const struct br_span *s = &c->item->spans[0];
    assert_int_equal(s->thread_id_len, 7);
    assert_memory_equal(s->thread_id, "\x0a\x05three", 7);
    assert_int_equal(s->thread_name_len, 6);
    assert_memory_equal(s->thread_name, "\x0a\x04main", 6);
    wire_free(&w);
}

static void the_last_of_a_field_counts(void **state)
{
    struct walk_check *c = *state;
    struct wire w = {0};
    struct path p;
    enter(&w, &p, in_span);
    wire_varint(&w, 6, 2);
    wire_str(&w, 5, "first");
    size_t status = wire_open(&w, 15);
    wire_varint(&w, 3, 1);
    wire_close(&w, status);
    wire_len(&w, 4, "abcdefgh", 8);
    wire_varint(&w, 6, 5);
    wire_str(&w, 5, "last");
    status = wire_open(&w, 15);
    wire_varint(&w, 3, 2);
    wire_close(&w, status);
    wire_len(&w, 4, NULL, 0);
    leave(&w, &p);
    c->options.spans = true;
    assert_int_equal(walk_check(c, &w), 0);
    const struct br_span *s = &c->item->spans[0];
    assert_int_equal(s->kind, 5);
    assert_int_equal(s->status, 2);
    assert_true(s->head.parent_id == 0);
    assert_memory_equal(s->name, "last", 4);
    wire_free(&w);
}

/* --- Errors ----------------------------------------------------------------------------------- */

static void errors_name_the_place(void **state)
{
    struct walk_check *c = *state;
    struct wire w = {0};
    items_traces(&w, 0, 2, 1);
    size_t rs = wire_open(&w, 1);
    wire_len(&w, 2, NULL, 0);
    size_t scope = wire_open(&w, 2);
    wire_len(&w, 2, NULL, 0);
    wire_len(&w, 2, NULL, 0);
    size_t span = wire_open(&w, 2);
    wire_len(&w, 1, "123456789012345", 15);
    wire_close(&w, span);
    wire_close(&w, scope);
    wire_close(&w, rs);
    assert_int_equal(walk_check(c, &w), BR_EINVAL);
    assert_string_equal(
        c->err.text,
        "resource_spans[1].scope_spans[1].spans[2]: a trace id must have 16 bytes or none");
    assert_int_equal(c->err.code, BR_EINVAL);
    wire_free(&w);
}

/* Attribute references have no meaning in traces, so any index is accepted. */
static void references_in_traces_are_ignored(void **state)
{
    struct walk_check *c = *state;
    static const uint64_t indices[] = {0, 1, 4294967295u, UINT64_MAX, 1ull << 40};
    for (size_t i = 0; i < BR_COUNT(indices); i++) {
        struct wire w = {0};
        struct path p;
        static const uint32_t in_attribute[] = {1, 2, 2, 9, 0};
        enter(&w, &p, in_attribute);
        wire_varint(&w, 3, indices[i]);
        size_t any = wire_open(&w, 2);
        wire_varint(&w, 8, indices[i]);
        wire_close(&w, any);
        leave(&w, &p);
        assert_int_equal(walk_check(c, &w), 0);
        wire_free(&w);
    }
}

/* Keys and values have lengths near those at which the walk changes its method. Each byte of them
 * is made invalid in turn. An attribute whose KeyValue has no other fields takes the fast path. An
 * attribute with an unknown field does not, and must give the same result. */
static void short_attributes_are_checked_like_others(void **state)
{
    struct walk_check *c = *state;
    static const unsigned lens[] = {0,  1,  6,  7,  8,  9,  15, 16, 17,  31,  32,
                                    33, 47, 48, 49, 63, 64, 65, 80, 127, 128, 200};
    char text[256];
    for (unsigned n = 0; n < BR_COUNT(lens) * BR_COUNT(lens) * 4; n++) {
        unsigned key_len = lens[n / 4 % BR_COUNT(lens)], len = lens[n / 4 / BR_COUNT(lens)];
        for (unsigned bad = 0; bad <= key_len + len; bad += 1 + bad / 7) {
            int rcs[2];
            for (int more = 0; more < 2; more++) {
                struct wire w = {0};
                struct path p;
                enter(&w, &p, (const uint32_t[]){1, 2, 2, 9, 0});
                for (unsigned k = 0; k < 2; k++) {
                    bool key = k == (n & 1);
                    unsigned at = key ? bad : bad - key_len, all = key ? key_len : len;
                    memset(text, 'a', sizeof text);
                    if (at < all)
                        text[at] = (char)0xff;
                    if (key) {
                        wire_len(&w, 1, text, key_len);
                        continue;
                    }
                    size_t any = wire_open(&w, 2);
                    /* a value of type bytes may have any content */
                    wire_len(&w, n & 2 ? 7 : 1, text, len);
                    wire_close(&w, any);
                }
                if (more)
                    wire_varint(&w, 15, 1);
                leave(&w, &p);
                rcs[more] = walk_check(c, &w);
                wire_free(&w);
            }
            bool in_text = bad < key_len || (bad < key_len + len && !(n & 2));
            assert_int_equal(rcs[0], in_text ? BR_EINVAL : 0);
            assert_int_equal(rcs[1], rcs[0]);
        }
    }
}

/* Integers and doubles of every length: valid, overlong, cut off, and followed by other bytes. */
static void attribute_numbers_may_have_any_length(void **state)
{
    struct walk_check *c = *state;
    for (unsigned n = 0; n < 14 * 14 * 2; n++) {
        unsigned len = n % 14, last = n / 14 % 14; /* index of the byte that ends the varint */
        uint8_t value[16] = {0};
        struct wire w = {0};
        struct path p;
        memset(value, 0x80, sizeof value);
        value[last] = 1;
        enter(&w, &p, (const uint32_t[]){1, 2, 2, 9, 0});
        if (n >= 14 * 14)
            wire_len(&w, 1, "http.response.size", 18);
        size_t any = wire_open(&w, 2);
        wire_raw(&w, "\x18", 1);
        wire_raw(&w, value, len);
        wire_close(&w, any);
        if (n < 14 * 14)
            wire_len(&w, 1, "http.response.size", 18);
        leave(&w, &p);
        /* The byte after the varint is the tag 0x80, which is cut off. */
        assert_int_equal(walk_check(c, &w), len == last + 1 && last < 10 ? 0 : BR_EINVAL);
        wire_free(&w);
    }
    for (unsigned len = 0; len < 12; len++) {
        struct wire w = {0};
        struct path p;
        enter(&w, &p, (const uint32_t[]){1, 2, 2, 9, 0});
        wire_len(&w, 1, "ratio", 5);
        size_t any = wire_open(&w, 2);
        wire_raw(&w, "\x21", 1);
        wire_raw(&w, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", len);
        wire_close(&w, any);
        leave(&w, &p);
        assert_int_equal(walk_check(c, &w), len == 8 ? 0 : BR_EINVAL);
        wire_free(&w);
    }
}

SUITE(walk)
{
    const struct CMUnitTest tests[] = {
        TEST(an_empty_body_is_a_request),
        TEST(records_are_counted_and_bytes_kept),
        TEST(a_cut_request_is_malformed),
        TEST(random_damage_is_an_error_or_a_request),
        TEST(overlong_varints_are_valid),
        TEST(lengths_beyond_their_parent_are_malformed),
        TEST(only_known_fields_need_a_wire_type),
        TEST(groups_are_rejected),
        TEST(ids_have_their_length_or_are_empty),
        TEST(nesting_is_counted_in_messages),
        TEST(depth_is_limited_to_a_thousand),
        TEST(the_resource_may_have_any_position),
        TEST(two_resources_are_merged),
        TEST(the_list_of_spans_is_limited),
        TEST(parts_without_content_are_not_kept),
        TEST(adjacent_unknown_fields_are_one_part),
        TEST(the_number_of_parts_is_limited),
        TEST(spans_are_listed_on_demand),
        TEST(the_key_of_a_thread_may_have_any_position),
        TEST(the_last_thread_counts),
        TEST(the_last_of_a_field_counts),
        TEST(errors_name_the_place),
        TEST(references_in_traces_are_ignored),
        TEST(short_attributes_are_checked_like_others),
        TEST(attribute_numbers_may_have_any_length),
    };
    return RUN(tests, NULL, NULL);
}
