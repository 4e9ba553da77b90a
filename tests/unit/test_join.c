/* SPDX-License-Identifier: Apache-2.0 */
/* The join as a component: requests in, requests out, counters. Expected figures are arithmetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h wants the four above */
#include <cmocka.h>

#include "base/mem.h"
#include "pipeline/shared.h"
#include "tests/support/fault.h"
#include "tests/support/join_rig.h"

#define T7 "00000000000000000000000000000007"
#define S42 "000000000000002a"
#define CPU "samples:count"

static void send_span(struct join_rig *r, const char *service, uint64_t trace, uint64_t span,
                      const char *name)
{
    struct wire w = {0};
    put_one_span(&w, service, trace, span, name);
    join_rig_send(r, BR_TRACES, &w, true);
    wire_free(&w);
}

static void send_sample(struct join_rig *r, const char *service, uint64_t trace, uint64_t span,
                        uint64_t value)
{
    struct wire w = {0};
    put_one_sample(&w, service, trace, span, value);
    join_rig_send(r, BR_PROFILES, &w, false);
    wire_free(&w);
}

/* The counters of samples of a type, in the order joined, late, unknown, too late, unlinked. */
static void check_counts(struct join_rig *r, const char *type, int joined, int late, int unknown,
                         int too_late, int unlinked)
{
    assert_int_equal((int)join_rig_count(r, "samples_joined", type), joined);
    assert_int_equal((int)join_rig_count(r, "samples_joined_late", type), late);
    assert_int_equal((int)join_rig_count(r, "samples_unknown_span", type), unknown);
    assert_int_equal((int)join_rig_count(r, "samples_too_late", type), too_late);
    assert_int_equal((int)join_rig_count(r, "samples_unlinked", type), unlinked);
}

/* --- Samples
 * -------------------------------------------------------------------------------------- */

static void a_linked_sample_gets_its_spans_name(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{}", NULL, 0);
    send_span(r, "shop", 7, 42, "GET /cart");
    send_sample(r, "shop", 7, 42, 5);
    assert_string_equal(join_rig_last(r), "5 " T7 "/" S42 ": span.name=GET /cart\n");
    check_counts(r, CPU, 1, 0, 0, 0, 0);
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
    check_counts(r, ":", 0, 0, 0, 0, 1);
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
    send_span(r, "shop", 7, 0xfedcba9876543210u, "op");
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
    check_counts(r, CPU, 3, 0, 0, 0, 2);
    wire_free(&any);
    join_rig_free(r);
}

static void the_first_label_of_the_list_wins(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{labels: {span_id: [mine, span_id]}}", NULL, 0);
    struct wire any = {0};
    send_span(r, "shop", 7, 1, "one");
    send_span(r, "shop", 7, 2, "two");
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
    send_span(r, "shop", 7, 1, "one");
    send_span(r, "shop", 7, 2, "two");
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
    put_sample(&w, &(struct sample_in){.value = 3, /* nor is a trace alone */
                                       .attributes = {label},
                                       .link = dict_link(&d, b.trace, NULL)});
    put_sample(&w, &(struct sample_in){.value = 4, /* a link without a trace leaves the label's */
                                       .attributes = {trace},
                                       .link = dict_link(&d, NULL, a.span)});
    wire_close(&w, p);
    close_resource(&w, o);
    dict_put(&w, &d);
    join_rig_send(r, BR_PROFILES, &w, false);
    assert_string_equal(join_rig_last(r),
                        "1 " T7 "/0000000000000002: span_id=1 trace_id=8 span.name=two\n"
                        "2 " T7 "/0000000000000001: span_id=1 span.name=one\n"
                        "3 " T7 "/0000000000000001: span_id=1 span.name=one\n"
                        "4 /0000000000000001: trace_id=8\n");
    wire_free(&w);
    join_rig_free(r);
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
    send_sample(r, "shop", 7, 42, 5);
    assert_string_equal(join_rig_last(r),
                        "5 " T7 "/" S42 ": span.name=GET span.kind=server http.route=/cart "
                        "span.status=error host.name=h1 service.name=shop\n");
    send_sample(r, "shop", 7, 43, 6);
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
    send_sample(r, "shop", 7, 42, 5);
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
    send_sample(r, "shop", 7, 42, 5);
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
        send_sample(r, "shop", 7, i, 5);
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
        send_sample(i ? b : a, "shop", 7, 42, 5);
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
    send_sample(a, "shop", 7, 42, 5);
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
    send_span(r, "shop", 7, 42, "GET");
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

/* --- Orders -------------------------------------------------------------------------------------
 */

static void outcomes_are_counted_by_profile_type(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{window: 10s}", NULL, 0);
    struct wire w = {0};
    struct dict d = {0};
    struct ids id = join_ids(7, 1), later = join_ids(7, 2), never = join_ids(7, 3);
    send_span(r, "shop", 7, 1, "a");
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    static const char *const types[] = {"cpu", "wall"};
    for (unsigned t = 0; t < 2; t++) {
        size_t p =
            open_profile(&w, &d, &(struct profile_in){.type = types[t], .unit = "nanoseconds"});
        for (unsigned i = 0; i <= t; i++) {
            put_sample(&w, &(struct sample_in){.link = dict_link(&d, id.trace, id.span)});
            put_sample(&w, &(struct sample_in){.link = dict_link(&d, later.trace, later.span)});
            put_sample(&w, &(struct sample_in){.link = dict_link(&d, never.trace, never.span)});
            put_sample(&w, &(struct sample_in){.value = 1});
        }
        wire_close(&w, p);
    }
    close_resource(&w, o);
    dict_put(&w, &d);
    join_rig_send(r, BR_PROFILES, &w, false);
    check_counts(r, "cpu:nanoseconds", 1, 0, 0, 0, 1);
    check_counts(r, "wall:nanoseconds", 2, 0, 0, 0, 2);
    fake_host_advance(r->h, 5000);
    send_span(r, "shop", 7, 2, "b");
    check_counts(r, "cpu:nanoseconds", 1, 1, 0, 0, 1);
    check_counts(r, "wall:nanoseconds", 2, 2, 0, 0, 2);
    fake_host_advance(r->h, 60000);
    check_counts(r, "cpu:nanoseconds", 1, 1, 1, 0, 1);
    check_counts(r, "wall:nanoseconds", 2, 2, 2, 0, 2);
    send_span(r, "shop", 7, 1, "a");
    fake_host_advance(r->h, 10500);
    join_rig_send(r, BR_PROFILES, &w, false);
    check_counts(r, "cpu:nanoseconds", 1, 1, 1, 1, 2);
    check_counts(r, "wall:nanoseconds", 2, 2, 2, 2, 4);
    wire_free(&w);
    join_rig_free(r);
}

static void a_span_after_its_samples_is_told_at_once(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{}", NULL, 0);
    send_sample(r, "shop", 7, 42, 5);
    send_sample(r, "shop", 7, 42, 6);
    send_span(r, "shop", 7, 42, "GET");
    assert_string_equal(join_rig_last(r), "GET " S42 ": profile.id=" T7
                                          " profile.type=samples:count profile.sample_count=11 "
                                          "profile.inclusive_sample_count=11"
                                          " pyroscope.profile.id=" S42 "\n");
    check_counts(r, CPU, 0, 2, 0, 0, 0);
    join_rig_free(r);
}

static void profiles_wait_for_their_spans(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{profile_hold: 10s}", NULL, 0);
    send_span(r, "shop", 7, 1, "a");
    send_sample(r, "shop", 7, 1, 5); /* all known: does not wait */
    assert_int_equal(r->n_out, 2);
    check_counts(r, CPU, 1, 0, 0, 0, 0);
    send_sample(r, "shop", 7, 42, 5);
    send_sample(r, "shop", 7, 43, 6);
    assert_int_equal(r->n_out, 2);
    assert_int_equal(r->n_done, 4); /* answered: it is ours now */
    fake_host_advance(r->h, 4000);
    send_span(r, "shop", 7, 42, "GET");
    fake_host_advance(r->h, 5999);
    assert_int_equal(r->n_out, 3);
    fake_host_advance(r->h, 1);
    assert_int_equal(r->n_out, 5);
    assert_string_equal(r->out[3].text, "5 " T7 "/" S42 ": span.name=GET\n");
    assert_string_equal(r->out[4].text, "6 " T7 "/000000000000002b:\n");
    check_counts(r, CPU, 1, 1, 1, 0, 0);
    fake_host_advance(r->h, 600000);
    check_counts(r, CPU, 1, 1, 1, 0, 0);
    join_rig_free(r);
}

/* With a hold as long as the window both orders join, at the edges of the window, too: what was
 * known when the sample came is still known when it leaves. */
static void a_hold_of_the_whole_window_joins_both_orders(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{window: 10s, profile_hold: 10s}", NULL, 0);
    struct wire w = {0};
    struct dict d = {0};
    struct ids a = join_ids(7, 1), b = join_ids(7, 2), c = join_ids(7, 3);
    send_span(r, "shop", 7, 3, "too old");
    fake_host_advance(r->h, 8000); /* so old that it has left when the sample does */
    send_span(r, "shop", 7, 1, "before");
    fake_host_advance(r->h, 9900);
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    size_t p = open_profile(&w, &d, &(struct profile_in){.type = "samples", .unit = "count"});
    put_sample(&w, &(struct sample_in){.value = 1, .link = dict_link(&d, a.trace, a.span)});
    put_sample(&w, &(struct sample_in){.value = 2, .link = dict_link(&d, b.trace, b.span)});
    put_sample(&w, &(struct sample_in){.value = 3, .link = dict_link(&d, c.trace, c.span)});
    wire_close(&w, p);
    close_resource(&w, o);
    dict_put(&w, &d);
    join_rig_send(r, BR_PROFILES, &w, false);
    fake_host_advance(r->h, 9900);
    send_span(r, "shop", 7, 2, "after");
    fake_host_advance(r->h, 100);
    assert_string_equal(join_rig_last(r), "1 " T7 "/0000000000000001: span.name=before\n"
                                          "2 " T7 "/0000000000000002: span.name=after\n"
                                          "3 " T7 "/0000000000000003:\n");
    check_counts(r, CPU, 1, 1, 0, 1, 0);
    wire_free(&w);
    join_rig_free(r);
}

/* --- Spans --------------------------------------------------------------------------------------
 */

static void spans_of_profiled_services_wait_for_their_figures(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{hold: 10s}", NULL, 0);
    send_span(r, "shop", 7, 1, "a"); /* nobody knows that shop is profiled */
    assert_int_equal(r->n_out, 1);
    send_sample(r, "shop", 7, 1, 5);
    send_span(r, "cart", 7, 2, "b");
    assert_int_equal(r->n_out, 3);
    send_span(r, "shop", 7, 42, "GET");
    send_span(r, "shop", 7, 43, "PUT");
    assert_int_equal(r->n_out, 3);
    fake_host_advance(r->h, 9000);
    send_sample(r, "shop", 7, 42, 9);
    fake_host_advance(r->h, 999);
    assert_int_equal(r->n_out, 4);
    fake_host_advance(r->h, 1);
    assert_int_equal(r->n_out, 6);
    assert_string_equal(r->out[4].text, "GET " S42 ": profile.id=" T7
                                        " profile.type=samples:count profile.sample_count=9 "
                                        "profile.inclusive_sample_count=9"
                                        " pyroscope.profile.id=" S42 "\n");
    assert_string_equal(r->out[5].text, "PUT 000000000000002b:\n");
    assert_int_equal((int)join_rig_count(r, "spans_marked", NULL), 1);
    join_rig_free(r);
}

static void likely_spans_are_marked_at_once(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{mark: likely, window: 10s}", NULL, 0);
    send_span(r, "shop", 7, 1, "a");
    assert_string_equal(join_rig_last(r), "a 0000000000000001:\n");
    send_sample(r, "shop", 7, 1, 5);
    send_span(r, "shop", 7, 42, "GET");
    assert_string_equal(join_rig_last(r), "GET " S42 ": pyroscope.profile.id=" S42 "\n");
    send_span(r, "cart", 7, 43, "b");
    assert_string_equal(join_rig_last(r), "b 000000000000002b:\n");
    fake_host_advance(r->h, 12000);
    send_span(r, "shop", 7, 44, "late");
    assert_string_equal(join_rig_last(r), "late 000000000000002c:\n");
    assert_int_equal((int)join_rig_count(r, "spans_marked", NULL), 1);
    join_rig_free(r);
}

/* With an instance in the profile's resource only spans of that instance are likely; references
 * count. */
static void instances_are_told_apart(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{mark: likely}", NULL, 0);
    struct wire w = {0};
    struct dict d = {0};
    struct ids id = join_ids(7, 1);
    uint32_t name = dict_string(&d, "service.name"), shop = dict_string(&d, "shop"),
             instance = dict_string(&d, "service.instance.id"), one = dict_string(&d, "one");
    size_t rp = wire_open(&w, 1), resource = wire_open(&w, 1);
    for (unsigned i = 0; i < 2; i++) {
        size_t pair = wire_open(&w, 1), any;
        wire_varint(&w, 3, i ? instance : name);
        any = wire_open(&w, 2);
        wire_varint(&w, 8, i ? one : shop);
        wire_close(&w, any);
        wire_close(&w, pair);
    }
    wire_close(&w, resource);
    size_t scope = wire_open(&w, 2);
    size_t p = open_profile(&w, &d, &(struct profile_in){.type = "samples", .unit = "count"});
    put_sample(&w, &(struct sample_in){.value = 1, .link = dict_link(&d, id.trace, id.span)});
    wire_close(&w, p);
    wire_close(&w, scope);
    wire_close(&w, rp);
    dict_put(&w, &d);
    join_rig_send(r, BR_PROFILES, &w, false);
    wire_clear(&w);
    static const char *const instances[] = {"one", "two", NULL};
    for (unsigned i = 0; i < 3; i++) {
        struct open o = open_resource(&w, "shop", instances[i], NULL, NULL);
        put_span(&w, &(struct span_in){.ids = join_ids(7, 2 + i), .name = "a"});
        close_resource(&w, o);
    }
    join_rig_send(r, BR_TRACES, &w, true);
    assert_string_equal(join_rig_last(r),
                        "a 0000000000000002: pyroscope.profile.id=0000000000000002\n"
                        "a 0000000000000003:\n"
                        "a 0000000000000004:\n");
    wire_free(&w);
    join_rig_free(r);
}

/* Some profilers do not say whose profile it is: the joined spans do. */
static void profiles_without_a_service_name_have_their_spans(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{mark: likely}", NULL, 0);
    send_span(r, "shop", 7, 1, "a");
    send_sample(r, NULL, 7, 1, 5);
    send_span(r, "shop", 7, 42, "GET");
    assert_string_equal(join_rig_last(r), "GET " S42 ": pyroscope.profile.id=" S42 "\n");
    send_span(r, NULL, 7, 43, "PUT");
    assert_string_equal(join_rig_last(r), "PUT 000000000000002b:\n");
    join_rig_free(r);
}

static void a_mark_that_is_there_stays(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{mark: likely}", NULL, 0);
    struct wire w = {0};
    send_sample(r, "shop", 7, 1, 5);
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    put_span(&w, &(struct span_in){.ids = join_ids(7, 42),
                                   .name = "GET",
                                   .attributes = {"pyroscope.profile.id", "mine"}});
    close_resource(&w, o);
    join_rig_send(r, BR_TRACES, &w, true);
    assert_string_equal(join_rig_last(r), "GET " S42 ": pyroscope.profile.id=mine\n");
    assert_int_equal(r->out[1].bytes.len, w.len);
    wire_free(&w);
    join_rig_free(r);
}

/* --- Figures ------------------------------------------------------------------------------------
 */

struct figure_case {
    struct profile_in profile;
    struct sample_in samples[3];
    unsigned n;
    const char *want; /* type, count and duration of the span */
};

static void figures_follow_type_unit_and_period(void **state)
{
    (void)state;
    static const uint8_t id[16] = {0xab, 0xcd};
    static const struct figure_case cases[] = {
        /* values are nanoseconds; 30 ms and 24 ms at one sample each 10 ms are 3 and 2 */
        {{"cpu", "nanoseconds", "cpu", "nanoseconds", 10000000, NULL},
         {{.value = 30000000}, {.value = 24000000}},
         2,
         "cpu:nanoseconds profile.sample_count=5 profile.duration_us=54000 "
         "profile.inclusive_sample_count=5 profile.inclusive_duration_us=54000"},
        /* without a period each sample is one */
        {{"cpu", "nanoseconds", NULL, NULL, 0, NULL},
         {{.value = 30000000}, {.value = 24000000}},
         2,
         "cpu:nanoseconds profile.sample_count=2 profile.duration_us=54000 "
         "profile.inclusive_sample_count=2 profile.inclusive_duration_us=54000"},
        /* timestamps count, and tell the time by the period */
        {{"cpu", "nanoseconds", "cpu", "nanoseconds", 10000000, NULL},
         {{.no_value = true, .n_times = 4}},
         1,
         "cpu:nanoseconds profile.sample_count=4 profile.duration_us=40000 "
         "profile.inclusive_sample_count=4 profile.inclusive_duration_us=40000"},
        {{"cpu", "nanoseconds", "cpu", "nanoseconds", 10000000, NULL},
         {{.value = 70000000, .n_times = 3}},
         1,
         "cpu:nanoseconds profile.sample_count=3 profile.duration_us=70000 "
         "profile.inclusive_sample_count=3 profile.inclusive_duration_us=70000"},
        {{"cpu", "microseconds", NULL, NULL, 0, NULL},
         {{.value = 1500}},
         1,
         "cpu:microseconds profile.sample_count=1 profile.duration_us=1500 "
         "profile.inclusive_sample_count=1 profile.inclusive_duration_us=1500"},
        /* values are periods: 3 + 1 + 2 at 1/19 s */
        {{"samples", "count", "cpu", "nanoseconds", 52631578, NULL},
         {{.value = 3}, {.value = 1}, {.no_value = true, .n_times = 2}},
         3,
         "samples:count profile.sample_count=6 profile.duration_us=315789 "
         "profile.inclusive_sample_count=6 profile.inclusive_duration_us=315789"},
        {{"samples", "count", "cpu", "milliseconds", 10, NULL},
         {{.value = 3}},
         1,
         "samples:count profile.sample_count=3 profile.duration_us=30000 "
         "profile.inclusive_sample_count=3 profile.inclusive_duration_us=30000"},
        /* a count without a period, or with one that is no CPU's, has no time */
        {{"samples", "count", NULL, NULL, 0, NULL},
         {{.value = 3}, {.value = 4}},
         2,
         "samples:count profile.sample_count=7 "
         "profile.inclusive_sample_count=7"},
        {{"samples", "count", "space", "bytes", 524288, NULL},
         {{.value = 3}},
         1,
         "samples:count profile.sample_count=3 "
         "profile.inclusive_sample_count=3"},
        {{"alloc_space", "bytes", "space", "bytes", 524288, NULL},
         {{.value = 1000000}, {.value = 1}},
         2,
         "alloc_space:bytes profile.sample_count=2 "
         "profile.inclusive_sample_count=2"},
        {{"wall", "nanoseconds", "wall", "nanoseconds", 20000000, NULL},
         {{.value = 40000000}},
         1,
         "wall:nanoseconds profile.sample_count=2 profile.duration_us=40000 "
         "profile.inclusive_sample_count=2 profile.inclusive_duration_us=40000"},
        {{"off_cpu", "nanoseconds", NULL, NULL, 0, NULL},
         {{.value = 1234567}},
         1,
         "off_cpu:nanoseconds profile.sample_count=1 profile.duration_us=1234 "
         "profile.inclusive_sample_count=1 profile.inclusive_duration_us=1234"},
        /* values below zero (deltas of some profilers) and numbers beyond all sense do no harm */
        {{"cpu", "nanoseconds", NULL, NULL, 0, NULL},
         {{.value = (uint64_t)-5}, {.value = 2000}},
         2,
         "cpu:nanoseconds profile.sample_count=2 profile.duration_us=2 "
         "profile.inclusive_sample_count=2 profile.inclusive_duration_us=2"},
        {{"cpu", "seconds", "cpu", "seconds", INT64_MAX, NULL},
         {{.value = INT64_MAX}},
         1,
         "cpu:seconds profile.sample_count=1 profile.duration_us=18446744073709551 "
         "profile.inclusive_sample_count=1 profile.inclusive_duration_us=18446744073709551"},
        {{"samples", "count", "cpu", "nanoseconds", 10000000, id},
         {{.value = 1}},
         1,
         "samples:count profile.sample_count=1 profile.duration_us=10000 "
         "profile.inclusive_sample_count=1 profile.inclusive_duration_us=10000"},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        const struct figure_case *c = &cases[i];
        struct join_rig *r = join_rig_new("{}", NULL, 0);
        struct wire w = {0};
        struct dict d = {0};
        struct ids ids = join_ids(7, 42);
        char want[512];
        struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
        size_t p = open_profile(&w, &d, &c->profile);
        uint32_t link = dict_link(&d, ids.trace, ids.span);
        for (unsigned s = 0; s < c->n; s++) {
            struct sample_in sample = c->samples[s];
            sample.link = link;
            put_sample(&w, &sample);
        }
        wire_close(&w, p);
        close_resource(&w, o);
        dict_put(&w, &d);
        join_rig_send(r, BR_PROFILES, &w, false);
        send_span(r, "shop", 7, 42, "GET");
        (void)snprintf(want, sizeof want,
                       "GET " S42 ": profile.id=%s profile.type=%s pyroscope.profile.id=" S42 "\n",
                       c->profile.id ? "abcd0000000000000000000000000000" : T7, c->want);
        if (strcmp(join_rig_last(r), want) != 0)
            fail_msg("case %zu: %s, not %s", i, join_rig_last(r), want);
        wire_free(&w);
        join_rig_free(r);
    }
}

/* Go's CPU profiles say the same twice, as samples:count and as cpu:nanoseconds; a wall profile of
 * the same span is another time. The CPU's counts, once. */
static void types_of_one_span_do_not_add_up(void **state)
{
    (void)state;
    static const struct profile_in profiles[] = {
        {"samples", "count", "cpu", "nanoseconds", 10000000, NULL},
        {"cpu", "nanoseconds", "cpu", "nanoseconds", 10000000, NULL},
        {"wall", "nanoseconds", NULL, NULL, 0, NULL},
    };
    static const uint64_t values[] = {3, 30000000, 900000000};
    struct join_rig *r = join_rig_new("{}", NULL, 0);
    struct ids ids = join_ids(7, 42);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < 3; i++) {
            struct wire w = {0};
            struct dict d = {0};
            struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
            size_t p = open_profile(&w, &d, &profiles[i]);
            put_sample(&w, &(struct sample_in){.value = values[i],
                                               .link = dict_link(&d, ids.trace, ids.span)});
            wire_close(&w, p);
            close_resource(&w, o);
            dict_put(&w, &d);
            join_rig_send(r, BR_PROFILES, &w, false);
            wire_free(&w);
        }
    }
    send_span(r, "shop", 7, 42, "GET");
    assert_string_equal(join_rig_last(r),
                        "GET " S42 ": profile.id=" T7
                        " profile.type=samples:count,cpu:nanoseconds,wall:nanoseconds"
                        " profile.sample_count=6 profile.duration_us=60000 "
                        "profile.inclusive_sample_count=6 profile.inclusive_duration_us=60000"
                        " pyroscope.profile.id=" S42 "\n");
    join_rig_free(r);
}

/* --- Holding ------------------------------------------------------------------------------------
 */

static void what_does_not_fit_passes_at_once(void **state)
{
    (void)state;
    struct wire w = {0};
    char config[128];
    put_one_sample(&w, "shop", 7, 42, 5);
    (void)snprintf(config, sizeof config, "{profile_hold: 10s, hold_max_bytes: %zu}", 2 * w.len);
    struct join_rig *r = join_rig_new(config, NULL, 0);
    for (unsigned i = 0; i < 3; i++)
        join_rig_send(r, BR_PROFILES, &w, false);
    assert_int_equal(r->n_out, 1);
    assert_int_equal((int)join_rig_count(r, "hold_full_items", NULL), 1);
    /* The one that passed is a sample before its span, as without profile_hold. */
    send_span(r, "shop", 7, 42, "GET");
    check_counts(r, CPU, 0, 1, 0, 0, 0);
    fake_host_advance(r->h, 10000);
    assert_int_equal(r->n_out, 4);
    check_counts(r, CPU, 0, 3, 0, 0, 0);
    join_rig_send(r, BR_PROFILES, &w, false); /* there is room again, but no need */
    assert_int_equal(r->n_out, 5);
    wire_free(&w);
    join_rig_free(r);
}

/* What was released and is not delivered still counts against the limit, so that a destination that
 * takes nothing is felt upstream. */
static void what_nobody_takes_counts_against_the_limit(void **state)
{
    (void)state;
    struct wire w = {0};
    char config[128];
    put_one_sample(&w, "shop", 7, 42, 5);
    (void)snprintf(config, sizeof config, "{profile_hold: 1s, hold_max_bytes: %zu}", 2 * w.len);
    struct join_rig *r = join_rig_new(config, NULL, 0);
    r->verdict = RIG_KEEP;
    for (unsigned i = 0; i < 2; i++)
        join_rig_send(r, BR_PROFILES, &w, false);
    fake_host_advance(r->h, 1000);
    assert_int_equal(r->n_kept, 2);
    assert_int_equal(r->n_done, 2);
    join_rig_send(r, BR_PROFILES, &w, false);
    assert_int_equal(r->n_kept, 3);
    assert_int_equal(r->n_done, 2); /* this one's sender waits */
    join_rig_release(r, RIG_DONE);
    assert_int_equal(r->n_done, 3);
    join_rig_send(r, BR_PROFILES, &w, false);
    assert_int_equal(r->n_done, 4);
    assert_int_equal(r->n_kept, 0);
    wire_free(&w);
    join_rig_free(r);
}

static void what_is_refused_is_sent_again(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{hold: 1s, profile_hold: 1s}", NULL, 0);
    r->verdict = RIG_RETRY;
    send_sample(r, "shop", 7, 42, 5);
    send_span(r, "shop", 7, 42, "GET");
    assert_int_equal(r->n_out, 0);
    assert_int_equal(r->n_done, 2);
    fake_host_advance(r->h, 5000);
    assert_true(r->n_out > 4); /* both, again and again */
    assert_int_equal(*r->h->host.ledger.held[BR_TRACES], 1);
    r->verdict = RIG_DONE;
    fake_host_advance(r->h, 20000);
    assert_int_equal(*r->h->host.ledger.held[BR_TRACES], 0);
    assert_int_equal(*r->h->host.ledger.sent[BR_TRACES], 1);
    assert_int_equal(*r->h->host.ledger.sent[BR_PROFILES], 1);
    check_counts(r, CPU, 0, 1, 0, 0, 0); /* counted once, however often it was sent */
    join_rig_free(r);
}

static void what_is_rejected_after_its_hold_is_dropped(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{profile_hold: 1s}", NULL, 0);
    r->verdict = RIG_REJECT;
    send_sample(r, "shop", 7, 42, 5);
    fake_host_advance(r->h, 1000);
    assert_int_equal(r->n_out, 1);
    assert_int_equal((int)fake_host_dropped(r->h, BR_PROFILES, "rejected"), 1);
    join_rig_free(r);
}

static void draining_releases_what_waits(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{hold: 1m, profile_hold: 1m}", NULL, 0);
    send_sample(r, "shop", 7, 42, 5);
    send_span(r, "shop", 7, 42, "GET");
    send_span(r, "shop", 7, 43, "PUT");
    assert_int_equal(r->n_out, 0);
    r->verdict = RIG_RETRY;
    join_rig_drain(r);
    assert_int_equal(r->n_out, 3);
    assert_false(r->drained); /* nobody has taken it yet */
    assert_string_equal(r->out[0].text, "5 " T7 "/" S42 ": span.name=GET\n");
    assert_non_null(strstr(r->out[1].text, "profile.sample_count=5"));
    assert_string_equal(r->out[2].text, "PUT 000000000000002b:\n");
    r->verdict = RIG_DONE;
    fake_host_advance(r->h, 1000);
    assert_true(r->drained);
    /* What still comes does not wait any more. */
    send_sample(r, "shop", 7, 44, 5);
    assert_int_equal(r->n_out, 7);
    join_rig_free(r);
}

static void an_idle_join_drains_at_once(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{}", NULL, 0);
    join_rig_drain(r);
    assert_true(r->drained);
    join_rig_free(r);
}

static void destroying_drops_what_waits(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{hold: 1m, profile_hold: 1s}", NULL, 0);
    send_sample(r, "shop", 7, 42, 5);
    r->verdict = RIG_RETRY;
    fake_host_advance(r->h, 1000); /* released, refused, waiting */
    send_sample(r, "shop", 7, 43, 5);
    send_span(r, "shop", 7, 42, "GET");
    assert_int_equal(r->n_out, 1);
    join_rig_destroy(r); /* checks that the ledger closes with nothing held */
}

static void held_items_keep_their_metadata(void **state)
{
    (void)state;
    static const char metadata[] = "x-tenant\0acme\0x-empty\0\0x-last\0z\0";
    struct join_rig *r = join_rig_new("{profile_hold: 1s}", NULL, 0);
    struct wire w = {0};
    put_one_sample(&w, "shop", 7, 42, 5);
    struct br_item *item = join_rig_item(r, BR_PROFILES, &w, false);
    item->metadata = br_arena_strndup(&item->arena, metadata, sizeof metadata - 1);
    join_rig_consume(r, item);
    assert_int_equal(r->n_out, 0);
    r->verdict = RIG_KEEP;
    fake_host_advance(r->h, 1000);
    assert_string_equal(r->out[0].metadata, "x-tenant=acme");
    assert_memory_equal(r->kept[0]->metadata, metadata, sizeof metadata);
    wire_free(&w);
    join_rig_free(r);
}

/* --- Items in other shapes
 * ------------------------------------------------------------------------ */

static void spans_are_found_when_nobody_left_them(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{sample_attributes: [host.name]}", NULL, 0);
    struct wire w = {0}, resource = {0};
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    put_span(&w, &(struct span_in){.ids = join_ids(7, 1), .name = "a"});
    close_resource(&w, o);
    o = open_resource(&w, "cart", NULL, NULL, NULL);
    put_span(&w, &(struct span_in){.ids = join_ids(7, 2), .name = "b"});
    put_span(&w, &(struct span_in){.ids = join_ids(7, 3), .name = "c"});
    close_resource(&w, o);
    struct br_item *item = join_rig_item(r, BR_TRACES, &w, false);
    assert_null(item->spans);
    /* As the resource processor leaves it. */
    wire_attribute(&resource, 1, "host.name", "h2");
    struct br_buf *buf = br_buf_new(r->h->host.pool, resource.len);
    assert_non_null(buf);
    memcpy(buf->data, resource.data, resource.len);
    buf->len = (uint32_t)resource.len;
    br_item_set_resource(item, &item->parts[1], buf, buf->data, resource.len);
    br_buf_unref(buf);
    join_rig_consume(r, item);
    assert_string_equal(join_rig_last(r),
                        "a 0000000000000001:\nb 0000000000000002:\nc 0000000000000003:\n");
    assert_int_equal(*r->h->host.ledger.sent[BR_TRACES], 3);
    send_sample(r, "cart", 7, 3, 5);
    assert_string_equal(join_rig_last(r), "5 " T7 "/0000000000000003: span.name=c host.name=h2\n");
    send_sample(r, "shop", 7, 1, 5);
    assert_string_equal(join_rig_last(r), "5 " T7 "/0000000000000001: span.name=a\n");
    wire_free(&w);
    wire_free(&resource);
    join_rig_free(r);
}

static void spans_without_an_id_pass(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{mark: likely, hold: 1s}", NULL, 0);
    struct wire w = {0};
    send_sample(r, "shop", 7, 1, 5);
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    size_t at = wire_open(&w, 2);
    wire_str(&w, 5, "no id");
    wire_close(&w, at);
    close_resource(&w, o);
    join_rig_send(r, BR_TRACES, &w, true);
    fake_host_advance(r->h, 1000);
    assert_string_equal(join_rig_last(r), "no id :\n");
    assert_int_equal((int)join_rig_count(r, "spans_entered", NULL), 0);
    wire_free(&w);
    join_rig_free(r);
}

/* Marks go onto the right spans when a request has several resources, some of them profiled. */
static void marks_go_onto_the_right_spans(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{mark: likely}", NULL, 0);
    struct wire w = {0};
    static const char *const services[] = {"a", "shop", "b", "shop"};
    send_sample(r, "shop", 7, 100, 5);
    send_sample(r, "b", 7, 3, 5); /* before its span, in a resource without further samples */
    uint64_t id = 1;
    for (unsigned i = 0; i < 4; i++) {
        struct open o = open_resource(&w, services[i], NULL, NULL, NULL);
        for (unsigned k = 0; k < i; k++)
            put_span(&w, &(struct span_in){.ids = join_ids(7, id++), .name = services[i]});
        close_resource(&w, o);
    }
    join_rig_send(r, BR_TRACES, &w, true);
    assert_string_equal(join_rig_last(r),
                        "shop 0000000000000001: pyroscope.profile.id=0000000000000001\n"
                        "b 0000000000000002: pyroscope.profile.id=0000000000000002\n"
                        "b 0000000000000003: profile.id=" T7 " profile.type=samples:count"
                        " profile.sample_count=5 "
                        "profile.inclusive_sample_count=5 pyroscope.profile.id=0000000000000003\n"
                        "shop 0000000000000004: pyroscope.profile.id=0000000000000004\n"
                        "shop 0000000000000005: pyroscope.profile.id=0000000000000005\n"
                        "shop 0000000000000006: pyroscope.profile.id=0000000000000006\n");
    wire_free(&w);
    join_rig_free(r);
}

/* --- Workers
 * -------------------------------------------------------------------------------------- */

static void workers_share_one_table(void **state)
{
    (void)state;
    struct br_shared *shared = br_shared_new();
    assert_non_null(shared);
    struct join_rig *a = join_rig_new("{hold: 1s}", shared, 0);
    struct join_rig *b = join_rig_new("{hold: 1s}", shared, 1);
    send_span(a, "shop", 7, 42, "GET");
    send_sample(b, "shop", 7, 42, 5);
    assert_string_equal(join_rig_last(b), "5 " T7 "/" S42 ": span.name=GET\n");
    send_span(a, "shop", 7, 43, "PUT"); /* waits: b knows that shop is profiled */
    assert_int_equal(a->n_out, 1);
    send_sample(b, "shop", 7, 43, 6);
    fake_host_advance(a->h, 1000);
    assert_non_null(strstr(join_rig_last(a), "profile.sample_count=6"));
    check_counts(b, CPU, 2, 0, 0, 0, 0);
    /* The first worker looks after the table. */
    fake_host_advance(a->h, 10000);
    assert_int_equal((int)join_rig_count(a, "table_spans", NULL), 2);
    assert_int_equal((int)join_rig_count(b, "table_spans", NULL), 0);
    join_rig_free(a);
    join_rig_free(b);
    br_shared_free(shared);
}

/* --- Memory
 * --------------------------------------------------------------------------------------- */

/* Whatever fails: items end, the ledger closes, and nothing is left behind. */
static void join_with_faults(void *arg)
{
    struct join_rig *r = join_rig_new(arg, NULL, 0);
    struct wire spans = {0}, samples = {0};
    struct dict d = {0};
    struct ids known = join_ids(7, 1), later = join_ids(7, 2);
    struct open o = open_resource(&spans, "shop", "one", "host.name", "h1");
    put_span(&spans, &(struct span_in){.ids = known, .name = "a", .attributes = {"k", "v"}});
    close_resource(&spans, o);
    o = open_resource(&samples, "shop", "one", NULL, NULL);
    size_t p =
        open_profile(&samples, &d, &(struct profile_in){.type = "cpu", .unit = "nanoseconds"});
    uint32_t label = dict_attribute(&d, "span_id", "1");
    put_sample(&samples, &(struct sample_in){.link = dict_link(&d, known.trace, known.span)});
    put_sample(&samples, &(struct sample_in){.link = dict_link(&d, later.trace, later.span)});
    put_sample(&samples, &(struct sample_in){.attributes = {label}});
    wire_close(&samples, p);
    close_resource(&samples, o);
    dict_put(&samples, &d);
    struct br_item *items[4];
    for (unsigned i = 0; i < 4; i++)
        items[i] = join_rig_item(r, i % 2 ? BR_PROFILES : BR_TRACES, i % 2 ? &samples : &spans, i);
    r->blind = true;
    fault_start();
    for (unsigned i = 0; i < 4; i++) {
        join_rig_consume(r, items[i]);
        fake_host_advance(r->h, 400);
    }
    fake_host_advance(r->h, 10000);
    fault_stop();
    fake_host_advance(r->h, 30000);
    assert_int_equal(r->n_done + r->n_retry + r->n_reject, 4);
    if (!fault_failed()) {
        assert_int_equal(*r->h->host.ledger.sent[BR_TRACES], 2);
        assert_int_equal(*r->h->host.ledger.sent[BR_PROFILES], 6);
    }
    wire_free(&spans);
    wire_free(&samples);
    join_rig_free(r);
}

static void without_memory_items_still_end(void **state)
{
    (void)state;
    static char hold[] = "{hold: 1s, profile_hold: 1s, sample_attributes: [k, host.name]}",
                pass[] = "{mark: likely, sample_attributes: [k, host.name], top_functions: 3, "
                         "span_metrics: {enabled: true}}";
    fault_each("held", join_with_faults, hold);
    fault_each("passed at once", join_with_faults, pass);
}

static void create_with_faults(void *arg)
{
    struct join_rig *r = join_rig_prepare("{}", NULL, 0);
    (void)arg;
    fault_start();
    bool ok = join_rig_create(r);
    fault_stop();
    assert_true(ok || fault_failed());
    join_rig_destroy(r);
}

static void without_memory_it_is_not_created(void **state)
{
    (void)state;
    fault_each("create", create_with_faults, NULL);
}

/* --- Config
 * --------------------------------------------------------------------------------------- */

static void bad_configs_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{window: 999ms}", "must be at least 1s"},
        {"{window: 1s, hold: 1001ms}", "must not be longer than the window"},
        {"{window: 1s, profile_hold: 2s}", "must not be longer than the window"},
        {"{sample_attributes: [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q]}",
         "at most 16 attributes, got 17"},
        {"{max_bytes: 1000}", "max_bytes"},
        {"{max_values: 0}", "max_values"},
        {"{mark: always}", "mark"},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        const char *error = join_rig_error(cases[i][0]);
        if (!strstr(error, cases[i][1]))
            fail_msg("%s: %s", cases[i][0], error);
    }
    assert_string_equal(join_rig_error("{window: 1s, hold: 1s, profile_hold: 1s}"), "");
    assert_string_equal(
        join_rig_error("{sample_attributes: [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]}"),
        "");
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
        cmocka_unit_test(sample_attributes_come_from_span_and_resource),
        cmocka_unit_test(values_of_every_type_become_text),
        cmocka_unit_test(long_texts_are_cut_to_whole_characters),
        cmocka_unit_test(long_items_keep_every_attribute),
        cmocka_unit_test(past_max_values_a_value_is_other),
        cmocka_unit_test(what_is_there_is_not_added_again),
        cmocka_unit_test(additions_come_behind_every_dictionary),
        cmocka_unit_test(outcomes_are_counted_by_profile_type),
        cmocka_unit_test(a_span_after_its_samples_is_told_at_once),
        cmocka_unit_test(profiles_wait_for_their_spans),
        cmocka_unit_test(a_hold_of_the_whole_window_joins_both_orders),
        cmocka_unit_test(spans_of_profiled_services_wait_for_their_figures),
        cmocka_unit_test(likely_spans_are_marked_at_once),
        cmocka_unit_test(instances_are_told_apart),
        cmocka_unit_test(profiles_without_a_service_name_have_their_spans),
        cmocka_unit_test(a_mark_that_is_there_stays),
        cmocka_unit_test(figures_follow_type_unit_and_period),
        cmocka_unit_test(types_of_one_span_do_not_add_up),
        cmocka_unit_test(what_does_not_fit_passes_at_once),
        cmocka_unit_test(what_nobody_takes_counts_against_the_limit),
        cmocka_unit_test(what_is_refused_is_sent_again),
        cmocka_unit_test(what_is_rejected_after_its_hold_is_dropped),
        cmocka_unit_test(draining_releases_what_waits),
        cmocka_unit_test(an_idle_join_drains_at_once),
        cmocka_unit_test(destroying_drops_what_waits),
        cmocka_unit_test(held_items_keep_their_metadata),
        cmocka_unit_test(spans_are_found_when_nobody_left_them),
        cmocka_unit_test(spans_without_an_id_pass),
        cmocka_unit_test(marks_go_onto_the_right_spans),
        cmocka_unit_test(workers_share_one_table),
        cmocka_unit_test(without_memory_items_still_end),
        cmocka_unit_test(without_memory_it_is_not_created),
        cmocka_unit_test(bad_configs_are_refused),
    };
    return cmocka_run_group_tests_name("join", tests, NULL, NULL);
}
