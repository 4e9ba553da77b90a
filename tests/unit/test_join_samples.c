/* SPDX-License-Identifier: Apache-2.0 */
/* What the join does to samples: their links, and the attributes they get. */
#include "base/mem.h"
#include "tests/support/join_steps.h"
#include "tests/support/test.h"

static void a_linked_sample_gets_its_spans_name(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{}", NULL, 0);
    join_steps_send_span(r, "shop", 7, 42, "GET /cart");
    join_steps_send_sample(r, "shop", 7, 42, 5);
    assert_string_equal(join_rig_last(r), "5 " T7 "/" S42 ": span.name=GET /cart\n");
    join_steps_check_counts(r, CPU, 1, 0, 0, 0, 0);
    assert_int_equal(r->n_done, 2);
    assert_int_equal((int)join_rig_count(r, "spans_entered", NULL), 1);
    join_rig_free(r);
}

/* What the join has nothing to say about leaves byte for byte as it came. */
static void what_does_not_join_passes_unchanged(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{sample_attributes: [http.route]}", NULL, 0);
    struct wire w = {0};
    r->order = REORDER_NOT;
    put_one_sample(&w, "shop", 7, 42, 5);
    join_rig_send(r, BR_PROFILES, &w, false);
    assert_int_equal(r->out[0].bytes.len, w.len);
    assert_memory_equal(r->out[0].bytes.data, w.data, w.len);
    wire_clear(&w);
    put_one_span(&w, "shop", 7, 43, "a");
    for (int spans = 0; spans < 2; spans++) {
        join_rig_send(r, BR_TRACES, &w, spans);
        assert_int_equal(r->out[1 + spans].bytes.len, w.len);
        assert_memory_equal(r->out[1 + spans].bytes.data, w.data, w.len);
    }
    wire_clear(&w);
    join_rig_send(r, BR_PROFILES, &w, false); /* no resources, no dictionary */
    join_rig_send(r, BR_TRACES, &w, true);
    assert_int_equal(r->out[3].bytes.len + r->out[4].bytes.len, 0);
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    size_t p = wire_open(&w, 2);
    put_sample(&w, &(struct sample_in){.value = 5});
    wire_close(&w, p);
    close_resource(&w, o);
    join_rig_send(r, BR_PROFILES, &w, false); /* samples without a dictionary */
    assert_memory_equal(r->out[5].bytes.data, w.data, w.len);
    join_steps_check_counts(r, ":", 0, 0, 0, 0, 1);
    wire_free(&w);
    join_rig_free(r);
}

struct label_case {
    const char *key, *value, *trace_key, *trace_value; /* values NULL: none */
    const char *link;                                  /* that the sample gets; NULL: not joined */
};

static void labels_name_spans(void **state)
{
    (void)state;
    static const struct label_case cases[] = {
        {"span_id", "00f067aa0ba902b7", NULL, NULL,
         "4bf92f3577b34da6a3ce929d0e0e4736/00f067aa0ba902b7"},
        {"span_id", "00F067AA0BA902B7", NULL, NULL,
         "4bf92f3577b34da6a3ce929d0e0e4736/00f067aa0ba902b7"},
        {"span_id", "f067aa0ba902b7", NULL, NULL,
         "4bf92f3577b34da6a3ce929d0e0e4736/00f067aa0ba902b7"},
        {"span_id", "  00f067aa0ba902b7\t", NULL, NULL,
         "4bf92f3577b34da6a3ce929d0e0e4736/00f067aa0ba902b7"},
        {"span_id", "0000000000000000f067aa0ba902b7", NULL, NULL,
         "4bf92f3577b34da6a3ce929d0e0e4736/00f067aa0ba902b7"},
        {"profile_id", "00f067aa0ba902b7", NULL, NULL,
         "4bf92f3577b34da6a3ce929d0e0e4736/00f067aa0ba902b7"},
        {"process.context.label.span_id", "00f067aa0ba902b7", "process.context.label.trace_id",
         "4bf92f3577b34da6a3ce929d0e0e4736", "4bf92f3577b34da6a3ce929d0e0e4736/00f067aa0ba902b7"},
        {"process.context.label.profile_id", "00f067aa0ba902b7", NULL, NULL,
         "4bf92f3577b34da6a3ce929d0e0e4736/00f067aa0ba902b7"},
        {"span_id", "00f067aa0ba902b7", "trace_id", "4BF92F3577B34DA6A3CE929D0E0E4736",
         "4bf92f3577b34da6a3ce929d0e0e4736/00f067aa0ba902b7"},
        /* not these */
        {"span_id", "00f067aa0ba902b8", NULL, NULL, NULL},
        {"span_id", "", NULL, NULL, NULL},
        {"span_id", "0000000000000000", NULL, NULL, NULL},
        {"span_id", "00f067aa0ba902bx", NULL, NULL, NULL},
        {"span_id", "100f067aa0ba902b7", NULL, NULL, NULL},
        {"Span_Id", "00f067aa0ba902b7", NULL, NULL, NULL},
        {"span_id", "00f067aa0ba902b7", "trace_id", "4bf92f3577b34da6a3ce929d0e0e4737", NULL},
        {"trace_id", "4bf92f3577b34da6a3ce929d0e0e4736", NULL, NULL, NULL},
    };
    static const uint8_t trace[16] = {0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6,
                                      0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36};
    static const uint8_t span[8] = {0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7};
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        const struct label_case *c = &cases[i];
        struct join_rig *r = join_rig_new("{}", NULL, 0);
        struct wire w = {0};
        struct dict d = {0};
        struct span_in s = {.name = "op"};
        memcpy(s.ids.trace, trace, 16);
        memcpy(s.ids.span, span, 8);
        struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
        put_span(&w, &s);
        close_resource(&w, o);
        join_rig_send(r, BR_TRACES, &w, true);
        wire_clear(&w);
        o = open_resource(&w, "shop", NULL, NULL, NULL);
        size_t p = open_profile(&w, &d, &(struct profile_in){.type = "samples", .unit = "count"});
        struct sample_in sample = {.value = 5,
                                   .attributes = {dict_attribute(&d, c->key, c->value)}};
        if (c->trace_key)
            sample.attributes[1] = dict_attribute(&d, c->trace_key, c->trace_value);
        put_sample(&w, &sample);
        wire_close(&w, p);
        close_resource(&w, o);
        dict_put(&w, &d);
        join_rig_send(r, BR_PROFILES, &w, false);
        const char *text = join_rig_last(r);
        if (c->link) {
            if (strncmp(text + 2, c->link, strlen(c->link)) != 0 ||
                !strstr(text, " span.name=op\n"))
                fail_msg("case %zu: %s", i, text);
        } else {
            if (strstr(text, "span.name"))
                fail_msg("case %zu: %s", i, text);
        }
        wire_free(&w);
        join_rig_free(r);
    }
}

/* A sample with two labels, whose AnyValues the test writes. */
static const char *join_labelled(struct join_rig *r, const struct wire *first, const char *key,
                                 const char *value)
{
    struct wire w = {0};
    struct dict d = {0};
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    size_t p = open_profile(&w, &d, &(struct profile_in){.type = "samples", .unit = "count"});
    struct sample_in sample = {.value = 5,
                               .attributes = {dict_attribute_any(&d, "span_id", first)}};
    if (key)
        sample.attributes[1] = dict_attribute(&d, key, value);
    put_sample(&w, &sample);
    wire_close(&w, p);
    close_resource(&w, o);
    dict_put(&w, &d);
    join_rig_send(r, BR_PROFILES, &w, false);
    wire_free(&w);
    return join_rig_last(r);
}

static void ids_come_in_every_type(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{}", NULL, 0);
    struct wire any = {0};
    join_steps_send_span(r, "shop", 7, 0xfedcba9876543210u, "op");
    wire_varint(&any, 3, 0xfedcba9876543210u); /* JFR: signed */
    assert_non_null(strstr(join_labelled(r, &any, NULL, NULL),
                           "5 " T7 "/fedcba9876543210: span_id=-81985529216486896 span.name=op\n"));
    wire_clear(&any);
    static const uint8_t bytes[] = {0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10};
    wire_len(&any, 7, bytes, 8);
    assert_non_null(strstr(join_labelled(r, &any, NULL, NULL), "span.name=op\n"));
    wire_clear(&any);
    wire_len(&any, 7, bytes, 7);
    assert_null(strstr(join_labelled(r, &any, NULL, NULL), "span.name"));
    wire_clear(&any);
    size_t list = wire_open(&any, 5);
    for (unsigned n = 0; n < 2; n++) {
        size_t element = wire_open(&any, 1);
        wire_str(&any, 1, "fedcba9876543210");
        wire_close(&any, element);
        if (n == 0) {
            struct wire one = {0};
            wire_raw(&one, any.data, any.len);
            wire_close(&one, list); /* a list of one */
            assert_non_null(strstr(join_labelled(r, &one, NULL, NULL), "span.name=op\n"));
            wire_free(&one);
        }
    }
    wire_close(&any, list); /* a list of two names no span */
    assert_null(strstr(join_labelled(r, &any, NULL, NULL), "span.name"));
    join_steps_check_counts(r, CPU, 3, 0, 0, 0, 2);
    wire_free(&any);
    join_rig_free(r);
}

static void the_first_label_of_the_list_wins(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{labels: {span_id: [mine, span_id]}}", NULL, 0);
    struct wire any = {0};
    join_steps_send_span(r, "shop", 7, 1, "one");
    join_steps_send_span(r, "shop", 7, 2, "two");
    wire_str(&any, 1, "1");
    assert_non_null(strstr(join_labelled(r, &any, NULL, NULL), "span.name=one\n"));
    assert_non_null(strstr(join_labelled(r, &any, "mine", "2"), "span.name=two\n"));
    assert_non_null(strstr(join_labelled(r, &any, "profile_id", "2"), "span.name=one\n"));
    assert_non_null(strstr(join_labelled(r, &any, "mine", "no id"), "span.name=one\n"));
    wire_free(&any);
    join_rig_free(r);
}

/* A label becomes a link whether its span is known or not; samples with the same share one. */
static void labels_become_links(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{}", NULL, 0);
    struct wire w = {0};
    struct dict d = {0};
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    size_t p = open_profile(&w, &d, &(struct profile_in){.type = "samples", .unit = "count"});
    uint32_t span = dict_attribute(&d, "span_id", "2a"),
             trace = dict_attribute(&d, "trace_id", "7");
    for (unsigned i = 0; i < 100; i++) {
        put_sample(&w, &(struct sample_in){.value = 5, .attributes = {span, trace}});
        put_sample(&w, &(struct sample_in){.value = 6, .attributes = {span}});
    }
    wire_close(&w, p);
    close_resource(&w, o);
    size_t before = d.links.len + d.strings.len + d.attributes.len + w.len;
    dict_put(&w, &d);
    join_rig_send(r, BR_PROFILES, &w, false);
    const char *text = join_rig_last(r);
    assert_int_equal(strncmp(text, "5 " T7 "/" S42 ": span_id=2a trace_id=7\n", 72), 0);
    assert_non_null(strstr(text, "\n6 00000000000000000000000000000000/" S42 ": span_id=2a\n"));
    /* 200 link indices of two bytes, two links of 30, the zero entry, and longer lengths. */
    assert_in_range(r->out[0].bytes.len, before + 400, before + 400 + 2 * 30 + 2 + 30);
    wire_free(&w);
    join_rig_free(r);
}

static void a_link_beats_a_label(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{}", NULL, 0);
    struct wire w = {0};
    struct dict d = {0};
    struct ids a = join_ids(7, 1), b = join_ids(7, 2);
    join_steps_send_span(r, "shop", 7, 1, "one");
    join_steps_send_span(r, "shop", 7, 2, "two");
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    size_t p = open_profile(&w, &d, &(struct profile_in){.type = "samples", .unit = "count"});
    uint32_t label = dict_attribute(&d, "span_id", "1"),
             trace = dict_attribute(&d, "trace_id", "8");
    static const uint8_t none[16];
    put_sample(&w, &(struct sample_in){.value = 1,
                                       .attributes = {label, trace},
                                       .link = dict_link(&d, b.trace, b.span)});
    put_sample(&w, &(struct sample_in){.value = 2, /* zeros are no link */
                                       .attributes = {label},
                                       .link = dict_link(&d, none, none)});
    put_sample(&w, &(struct sample_in){.value = 3, /* a trace alone is none, but the label's */
                                       .attributes = {label},
                                       .link = dict_link(&d, b.trace, NULL)});
    put_sample(&w, &(struct sample_in){.value = 4, /* a link without a trace leaves the label's */
                                       .attributes = {trace},
                                       .link = dict_link(&d, NULL, a.span)});
    put_sample(&w, &(struct sample_in){.value = 5, /* a link's trace beats the label's */
                                       .attributes = {label, trace},
                                       .link = dict_link(&d, b.trace, NULL)});
    wire_close(&w, p);
    close_resource(&w, o);
    dict_put(&w, &d);
    join_rig_send(r, BR_PROFILES, &w, false);
    assert_string_equal(join_rig_last(r),
                        "1 " T7 "/0000000000000002: span_id=1 trace_id=8 span.name=two\n"
                        "2 " T7 "/0000000000000001: span_id=1 span.name=one\n"
                        "3 " T7 "/0000000000000001: span_id=1 span.name=one\n"
                        "4 /0000000000000001: trace_id=8\n"
                        "5 " T7 "/0000000000000001: span_id=1 trace_id=8 span.name=one\n");
    wire_free(&w);
    join_rig_free(r);
}

/* Doubles have the fewest digits that are read as the same, as OTLP/JSON has them: 0.1 + 0.2 needs
 * 17 of them. */
static void numbers_are_written_as_everywhere(void **state)
{
    (void)state;
    static const struct {
        uint64_t bits;
        const char *text;
    } doubles[] = {{0x3fd3333333333334u, "0.30000000000000004"},
                   {0x3fb999999999999au, "0.1"},
                   {0x4000000000000000u, "2"},
                   {0x44b52d02c7e14af6u, "1e+23"},
                   {0xfff0000000000000u, "-Infinity"}};
    for (size_t i = 0; i < BR_COUNT(doubles); i++) {
        struct join_rig *r = join_rig_new("{sample_attributes: [http.route]}", NULL, 0);
        struct wire w = {0};
        char want[64];
        struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
        size_t span = wire_open(&w, 2);
        struct ids ids = join_ids(7, 42);
        wire_len(&w, 1, ids.trace, 16);
        wire_len(&w, 2, ids.span, 8);
        size_t pair = wire_open(&w, 9);
        wire_str(&w, 1, "http.route");
        size_t any = wire_open(&w, 2);
        wire_i64(&w, 4, doubles[i].bits);
        wire_close(&w, any);
        wire_close(&w, pair);
        wire_close(&w, span);
        close_resource(&w, o);
        join_rig_send(r, BR_TRACES, &w, true);
        wire_clear(&w);
        put_one_sample(&w, "shop", 7, 42, 5);
        join_rig_send(r, BR_PROFILES, &w, false);
        (void)snprintf(want, sizeof want, " http.route=%s\n", doubles[i].text);
        if (!strstr(join_rig_last(r), want))
            fail_msg("%s: %s", doubles[i].text, join_rig_last(r));
        wire_free(&w);
        join_rig_free(r);
    }
}

static void sample_attributes_come_from_span_and_resource(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{sample_attributes: [span.kind, http.route, span.status, "
                                      "host.name, missing, span.name, http.route, service.name]}",
                                      NULL, 0);
    struct wire w = {0};
    struct open o = open_resource(&w, "shop", NULL, "host.name", "h1");
    put_span(&w, &(struct span_in){.ids = join_ids(7, 42),
                                   .name = "GET",
                                   .kind = 2,
                                   .status = 2,
                                   .attributes = {"http.route", "/cart", "http.route", "/other"}});
    put_span(&w, &(struct span_in){.ids = join_ids(7, 43),
                                   .name = "PUT",
                                   .attributes = {"host.name", "of the span"}});
    close_resource(&w, o);
    join_rig_send(r, BR_TRACES, &w, true);
    join_steps_send_sample(r, "shop", 7, 42, 5);
    assert_string_equal(join_rig_last(r),
                        "5 " T7 "/" S42 ": span.name=GET span.kind=server http.route=/cart "
                        "span.status=error host.name=h1 service.name=shop\n");
    join_steps_send_sample(r, "shop", 7, 43, 6);
    assert_string_equal(join_rig_last(r),
                        "6 " T7 "/000000000000002b: span.name=PUT span.kind=unspecified "
                        "span.status=unset host.name=of the span service.name=shop\n");
    wire_free(&w);
    join_rig_free(r);
}

static void values_of_every_type_become_text(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{sample_attributes: [b, i, d, s, list]}", NULL, 0);
    struct wire w = {0};
    struct ids id = join_ids(7, 42);
    double half = 0.5;
    uint64_t bits;
    memcpy(&bits, &half, 8);
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    size_t at = wire_open(&w, 2);
    wire_len(&w, 1, id.trace, 16);
    wire_len(&w, 2, id.span, 8);
    static const char *const keys[] = {"b", "i", "d", "s", "list"};
    for (unsigned i = 0; i < 5; i++) {
        size_t pair = wire_open(&w, 9), any;
        wire_str(&w, 1, keys[i]);
        any = wire_open(&w, 2);
        if (i == 0)
            wire_varint(&w, 2, 1);
        else if (i == 1)
            wire_varint(&w, 3, (uint64_t)-7);
        else if (i == 2)
            wire_i64(&w, 4, bits);
        else if (i == 3)
            wire_str(&w, 1, "");
        else
            wire_len(&w, 5, NULL, 0);
        wire_close(&w, any);
        wire_close(&w, pair);
    }
    wire_close(&w, at);
    close_resource(&w, o);
    join_rig_send(r, BR_TRACES, &w, true);
    join_steps_send_sample(r, "shop", 7, 42, 5);
    assert_string_equal(join_rig_last(r), "5 " T7 "/" S42 ": span.name= b=true i=-7 d=0.5 s=\n");
    wire_free(&w);
    join_rig_free(r);
}

/* Texts are cut, but not inside a character: U+20AC has three bytes. */
static void long_texts_are_cut_to_whole_characters(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{sample_attributes: [long]}", NULL, 0);
    char text[1024] = "", want[2048];
    for (unsigned i = 0; i < 300; i++)
        memcpy(text + 3 * i, "\xe2\x82\xac", 4);
    struct wire w = {0};
    struct open o = open_resource(&w, text, NULL, NULL, NULL);
    put_span(&w,
             &(struct span_in){.ids = join_ids(7, 42), .name = text, .attributes = {"long", text}});
    close_resource(&w, o);
    join_rig_send(r, BR_TRACES, &w, true);
    join_steps_send_sample(r, "shop", 7, 42, 5);
    (void)snprintf(want, sizeof want, "5 " T7 "/" S42 ": span.name=%.255s long=%.252s\n", text,
                   text);
    assert_string_equal(join_rig_last(r), want);
    wire_free(&w);
    join_rig_free(r);
}

/* Long items must not lose attributes of their later spans. */
static void long_items_keep_every_attribute(void **state)
{
    (void)state;
    enum { N = 30000 };
    struct join_rig *r = join_rig_new("{sample_attributes: [n, a, b, c, d, e, f, g], "
                                      "max_values: 1000000}",
                                      NULL, 0);
    struct wire w = {0};
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    char number[16];
    for (unsigned i = 1; i <= N; i++) {
        (void)snprintf(number, sizeof number, "%u", i);
        put_span(&w, &(struct span_in){
                         .ids = join_ids(7, i), .name = "op", .attributes = {"n", number}});
    }
    close_resource(&w, o);
    join_rig_send(r, BR_TRACES, &w, true);
    assert_int_equal((int)join_rig_count(r, "spans_entered", NULL), N);
    for (unsigned i = 1; i <= N; i += 997) {
        char want[128];
        join_steps_send_sample(r, "shop", 7, i, 5);
        (void)snprintf(want, sizeof want, ": span.name=op n=%u\n", i);
        assert_non_null(strstr(join_rig_last(r), want));
    }
    wire_free(&w);
    join_rig_free(r);
}

static void past_max_values_a_value_is_other(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{max_values: 2, sample_attributes: [http.route]}", NULL, 0);
    struct wire w = {0};
    struct dict d = {0};
    static const char *const names[] = {"a", "b", "c", "d"};
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    for (unsigned i = 0; i < 4; i++)
        put_span(&w, &(struct span_in){.ids = join_ids(7, 1 + i),
                                       .name = names[i],
                                       .attributes = {"http.route", names[3 - i]}});
    close_resource(&w, o);
    join_rig_send(r, BR_TRACES, &w, true);
    wire_clear(&w);
    o = open_resource(&w, "shop", NULL, NULL, NULL);
    size_t p = open_profile(&w, &d, &(struct profile_in){.type = "samples", .unit = "count"});
    for (unsigned i = 0; i < 4; i++) {
        struct ids id = join_ids(7, 1 + i);
        put_sample(&w, &(struct sample_in){.value = i, .link = dict_link(&d, id.trace, id.span)});
    }
    wire_close(&w, p);
    close_resource(&w, o);
    dict_put(&w, &d);
    for (unsigned round = 1; round <= 2; round++) {
        join_rig_send(r, BR_PROFILES, &w, false);
        const char *text = join_rig_last(r);
        assert_non_null(strstr(text, " span.name=a http.route=d\n"));
        assert_non_null(strstr(text, " span.name=b http.route=c\n"));
        assert_non_null(strstr(text, "\n2 " T7 "/0000000000000003: span.name=_other "
                                     "http.route=_other\n"));
        assert_non_null(strstr(text, "\n3 " T7 "/0000000000000004: span.name=_other "
                                     "http.route=_other\n"));
        assert_int_equal((int)join_rig_count(r, "other_values", NULL), 4 * round);
    }
    wire_free(&w);
    join_rig_free(r);
}

/* A join behind a join, as a gateway behind a sidecar, adds nothing twice. */
static void what_is_there_is_not_added_again(void **state)
{
    (void)state;
    static const char config[] = "{sample_attributes: [http.route], hold: 1s}";
    struct join_rig *a = join_rig_new(config, NULL, 0), *b = join_rig_new(config, NULL, 0);
    struct wire w = {0};
    for (unsigned i = 0; i < 2; i++) {
        join_steps_send_sample(i ? b : a, "shop", 7, 42, 5);
        struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
        put_span(&w, &(struct span_in){
                         .ids = join_ids(7, 42), .name = "GET", .attributes = {"http.route", "/"}});
        close_resource(&w, o);
        join_rig_send(i ? b : a, BR_TRACES, i ? &a->out[1].bytes : &w, true);
        fake_host_advance((i ? b : a)->h, 1000);
    }
    assert_string_equal(a->out[1].text, "GET " S42 ": http.route=/ profile.id=" T7
                                        " profile.type=samples:count profile.sample_count=5 "
                                        "profile.inclusive_sample_count=5"
                                        " pyroscope.profile.id=" S42 "\n");
    assert_string_equal(b->out[1].text, a->out[1].text);
    join_steps_send_sample(a, "shop", 7, 42, 5);
    join_rig_send(b, BR_PROFILES, &a->out[2].bytes, false);
    assert_string_equal(a->out[2].text, "5 " T7 "/" S42 ": span.name=GET http.route=/\n");
    assert_string_equal(b->out[2].text, a->out[2].text);
    wire_free(&w);
    join_rig_free(a);
    join_rig_free(b);
}

/* Several dictionary fields are one, concatenated; what the join adds comes behind all of them. */
static void additions_come_behind_every_dictionary(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{}", NULL, 0);
    struct wire w = {0};
    struct dict d = {0};
    struct ids id = join_ids(7, 42);
    join_steps_send_span(r, "shop", 7, 42, "GET");
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    size_t p = open_profile(&w, &d, &(struct profile_in){.type = "samples", .unit = "count"});
    uint32_t n_strings = d.n_strings + 1;
    put_sample(&w, &(struct sample_in){
                       .value = 5, .link = dict_link(&d, id.trace, id.span), .attributes = {1, 2}});
    wire_close(&w, p);
    close_resource(&w, o);
    (void)dict_attribute(&d, "thread.name", "main");
    dict_put(&w, &d);
    size_t second = wire_open(&w, 2);
    wire_str(&w, 5, "color");
    size_t attribute = wire_open(&w, 6);
    wire_varint(&w, 1, n_strings + 1); /* behind thread.name */
    size_t any = wire_open(&w, 2);
    wire_str(&w, 1, "red");
    wire_close(&w, any);
    wire_close(&w, attribute);
    wire_close(&w, second);
    join_rig_send(r, BR_PROFILES, &w, false);
    assert_string_equal(join_rig_last(r),
                        "5 " T7 "/" S42 ": thread.name=main color=red span.name=GET\n");
    wire_free(&w);
    join_rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_linked_sample_gets_its_spans_name),
        cmocka_unit_test(what_does_not_join_passes_unchanged),
        cmocka_unit_test(labels_name_spans),
        cmocka_unit_test(ids_come_in_every_type),
        cmocka_unit_test(the_first_label_of_the_list_wins),
        cmocka_unit_test(labels_become_links),
        cmocka_unit_test(a_link_beats_a_label),
        cmocka_unit_test(numbers_are_written_as_everywhere),
        cmocka_unit_test(sample_attributes_come_from_span_and_resource),
        cmocka_unit_test(values_of_every_type_become_text),
        cmocka_unit_test(long_texts_are_cut_to_whole_characters),
        cmocka_unit_test(long_items_keep_every_attribute),
        cmocka_unit_test(past_max_values_a_value_is_other),
        cmocka_unit_test(what_is_there_is_not_added_again),
        cmocka_unit_test(additions_come_behind_every_dictionary),
    };
    int failed = 0;
    for (unsigned order = 0; order < REORDERS; order++) {
        join_rig_set_order((enum reorder)order);
        failed += cmocka_run_group_tests_name("join samples", tests, NULL, NULL);
    }
    return failed;
}
