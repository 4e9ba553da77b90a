/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the changes that the join makes to samples: links and attributes. */
#include "base/mem.h"
#include "tests/support/join_steps.h"
#include "tests/support/otlp_text.h"
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

/* Items without anything to join are forwarded byte for byte. */
static void items_without_joins_pass_unchanged(void **state)
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
    join_rig_send(r, BR_PROFILES, &w, false); /* a profile without resources or dictionary */
    join_rig_send(r, BR_TRACES, &w, true);
    assert_int_equal(r->out[3].bytes.len + r->out[4].bytes.len, 0);
    struct br_buf *buf =
        otlp_text(r->h->host.pool, BR_PROFILES,
                  "{'resourceProfiles': [{'resource': {'attributes': [{'key': 'service.name',"
                  "'value': {'stringValue': 'shop'}}]},"
                  "'scopeProfiles': [{'profiles': [{'samples': [{'values': ['5']}]}]}]}]}");
    wire_raw(&w, buf->data, buf->len);
    br_buf_unref(buf);
    join_rig_send(r, BR_PROFILES, &w, false); /* samples without a dictionary */
    assert_int_equal(r->out[5].bytes.len, w.len);
    assert_memory_equal(r->out[5].bytes.data, w.data, w.len);
    join_steps_check_counts(r, ":", 0, 0, 0, 0, 1);
    wire_free(&w);
    join_rig_free(r);
}

struct label_case {
    const char *key, *value, *trace_key, *trace_value; /* value NULL: absent */
    /* the link that the sample must get; NULL: none, because it is not joined */
    const char *link;
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
        /* this id is not the id of the span */
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

/* Sends a sample with the label span_id, whose AnyValue is the text `first`, and with a second
 * label unless `key` is NULL. */
static const char *join_labelled(struct join_rig *r, const char *first, const char *key,
                                 const char *value)
{
    join_rig_send_text(
        r, BR_PROFILES, false,
        "{'resourceProfiles': [{'resource': {'attributes': [{'key': 'service.name',"
        "'value': {'stringValue': 'shop'}}]},"
        "'scopeProfiles': [{'profiles': [{'sampleType': {'typeStrindex': 1, 'unitStrindex': 2},"
        "'samples': [{'attributeIndices': [1%s], 'values': ['5']}]}]}]}],"
        "'dictionary': {'mappingTable': [{}], 'locationTable': [{}], 'functionTable': [{}],"
        "'linkTable': [{}], 'stackTable': [{}],"
        "'stringTable': ['', 'samples', 'count', 'span_id', '%s'],"
        "'attributeTable': [{}, {'keyStrindex': 3, 'value': {%s}},"
        "{'keyStrindex': 4, 'value': {'stringValue': '%s'}}]}}",
        key ? ", 2" : "", key ? key : "", first, value ? value : "");
    return join_rig_last(r);
}

#define LABEL "'stringValue': 'fedcba9876543210'"

static void ids_may_have_any_type(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{}", NULL, 0);
    join_steps_send_span(r, "shop", 7, 0xfedcba9876543210u, "op");
    /* JFR writes ids as signed integers */
    assert_non_null(strstr(join_labelled(r, "'intValue': '-81985529216486896'", NULL, NULL),
                           "5 " T7 "/fedcba9876543210: span_id=-81985529216486896 span.name=op\n"));
    /* the eight bytes fe dc ba 98 76 54 32 10, and only the first seven of them */
    assert_non_null(
        strstr(join_labelled(r, "'bytesValue': '/ty6mHZUMhA='", NULL, NULL), "span.name=op\n"));
    assert_null(strstr(join_labelled(r, "'bytesValue': '/ty6mHZUMg=='", NULL, NULL), "span.name"));
    assert_non_null(strstr(join_labelled(r, "'arrayValue': {'values': [{" LABEL "}]}", NULL, NULL),
                           "span.name=op\n"));
    /* a list of equal ids counts as one id */
    assert_non_null(
        strstr(join_labelled(r, "'arrayValue': {'values': [{" LABEL "}, {" LABEL "}]}", NULL, NULL),
               "span.name=op\n"));
    join_steps_check_counts(r, CPU, 4, 0, 0, 0, 1);
    join_rig_free(r);
}

/* Sends one sample with these labels and returns the output as text. */
static const char *with_labels(struct join_rig *r, const char *const (*labels)[2], size_t n,
                               const struct ids *link)
{
    struct wire w = {0};
    struct dict d = {0};
    struct open o = open_resource(&w, "shop", NULL, NULL, NULL);
    size_t p = open_profile(&w, &d, &(struct profile_in){.type = "samples", .unit = "count"});
    struct sample_in sample = {.value = 5};
    for (size_t i = 0; i < n; i++)
        sample.attributes[i] = dict_attribute(&d, labels[i][0], labels[i][1]);
    if (link)
        sample.link = dict_link(&d, link->trace, link->span);
    put_sample(&w, &sample);
    wire_close(&w, p);
    close_resource(&w, o);
    dict_put(&w, &d);
    join_rig_send(r, BR_PROFILES, &w, false);
    wire_free(&w);
    return join_rig_last(r);
}

/* If asyncio is used, the SDK labels a thread with all requests that it serves. Such a sample stays
 * without a link. */
static void a_sample_of_several_spans_stays_unlinked(void **state)
{
    (void)state;
    static const char *const cases[][4][2] = {
        {{"span_id", "1"}, {"span_id", "2"}},
        {{"span_id", "1"}, {"trace_id", "7"}, {"span_id", "2"}, {"trace_id", "8"}},
        {{"span_id", "1"}, {"trace_id", "7"}, {"trace_id", "8"}},
        {{"trace_id", "8"}, {"trace_id", "7"}, {"span_id", "1"}},
    };
    struct join_rig *r = join_rig_new("{infer: true}", NULL, 0);
    join_steps_send_span(r, "shop", 7, 1, "one");
    join_steps_send_span(r, "shop", 7, 2, "two");
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        size_t n = 0;
        while (n < 4 && cases[i][n][0])
            n++;
        const char *text = with_labels(r, cases[i], n, NULL);
        if (strncmp(text, "5 -: ", 5) != 0 || strstr(text, "span.name") ||
            !strstr(text, " profile.join=ambiguous\n"))
            fail_msg("case %zu: %s", i, text);
    }
    assert_int_equal((int)join_rig_count(r, "samples_ambiguous", CPU), (int)BR_COUNT(cases));
    join_steps_check_counts(r, CPU, 0, 0, 0, 0, 0);
    join_rig_free(r);
}

/* Java's profiler labels samples with a span id alone. */
static void a_link_without_a_trace_gets_that_of_its_span(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{}", NULL, 0);
    struct ids bare = join_ids(0, 1), unknown = join_ids(0, 9), whole = join_ids(7, 1);
    join_steps_send_span(r, "shop", 7, 1, "one");
    assert_string_equal(with_labels(r, NULL, 0, &bare),
                        "5 " T7 "/0000000000000001: span.name=one\n");
    assert_string_equal(with_labels(r, NULL, 0, &whole),
                        "5 " T7 "/0000000000000001: span.name=one\n");
    assert_string_equal(with_labels(r, NULL, 0, &unknown),
                        "5 00000000000000000000000000000000/0000000000000009:\n");
    join_rig_free(r);
}

static void a_repeated_label_is_not_ambiguous(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{}", NULL, 0);
    struct ids two = join_ids(7, 2);
    join_steps_send_span(r, "shop", 7, 1, "one");
    join_steps_send_span(r, "shop", 7, 2, "two");
    /* labels that name the same span: one id in two spellings; a name that is not the first of its
     * list; ids in addition to a link */
    static const char *const same[][2] = {{"span_id", "1"}, {"span_id", "01"}};
    static const char *const other[][2] = {
        {"profile_id", "2"}, {"span_id", "1"}, {"profile_id", "3"}};
    static const char *const linked[][2] = {{"span_id", "1"}, {"span_id", "3"}};
    assert_non_null(strstr(with_labels(r, same, 2, NULL), "span.name=one\n"));
    assert_non_null(strstr(with_labels(r, other, 3, NULL), "span.name=one\n"));
    assert_non_null(strstr(with_labels(r, linked, 2, &two), "span.name=two\n"));
    assert_int_equal((int)join_rig_count(r, "samples_ambiguous", CPU), 0);
    /* an earlier join has already added this attribute */
    static const char *const again[][2] = {
        {"span_id", "1"}, {"span_id", "2"}, {"profile.join", "ambiguous"}};
    const char *text = with_labels(r, again, 3, NULL);
    assert_ptr_equal(strstr(text, "profile.join"), strrchr(text, ' ') + 1);
    join_rig_free(r);
}

static void the_first_label_of_the_list_wins(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{labels: {span_id: [mine, span_id]}}", NULL, 0);
    static const char one[] = "'stringValue': '1'";
    join_steps_send_span(r, "shop", 7, 1, "one");
    join_steps_send_span(r, "shop", 7, 2, "two");
    assert_non_null(strstr(join_labelled(r, one, NULL, NULL), "span.name=one\n"));
    assert_non_null(strstr(join_labelled(r, one, "mine", "2"), "span.name=two\n"));
    assert_non_null(strstr(join_labelled(r, one, "profile_id", "2"), "span.name=one\n"));
    assert_non_null(strstr(join_labelled(r, one, "mine", "no id"), "span.name=one\n"));
    join_rig_free(r);
}

/* A label becomes a link, whether its span is known or not. Samples with the same label share the
 * link. */
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
    /* 200 link indices of two bytes each, two links of 30 bytes each, the zero entry, and longer
     * length fields */
    assert_in_range(r->out[0].bytes.len, before + 400, before + 400 + 2 * 30 + 2 + 30);
    wire_free(&w);
    join_rig_free(r);
}

static void a_link_takes_precedence_over_a_label(void **state)
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
    put_sample(&w, &(struct sample_in){.value = 2, /* a link of zeros is ignored */
                                       .attributes = {label},
                                       .link = dict_link(&d, none, none)});
    /* a link with only a trace id is ignored, and the label is used */
    put_sample(&w, &(struct sample_in){
                       .value = 3, .attributes = {label}, .link = dict_link(&d, b.trace, NULL)});
    put_sample(&w, &(struct sample_in){.value = 4, /* a link without a trace gets the label's */
                                       .attributes = {trace},
                                       .link = dict_link(&d, NULL, a.span)});
    /* the trace id of a link takes precedence over the trace id of the label */
    put_sample(&w, &(struct sample_in){.value = 5,
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

/* Sends a request with span 42 of trace 7 that has these attributes. */
static void send_attributes(struct join_rig *r, const char *attributes)
{
    join_rig_send_text(
        r, BR_TRACES, true,
        "{'resourceSpans': [{'resource': {'attributes': [{'key': 'service.name',"
        "'value': {'stringValue': 'shop'}}]}, 'scopeSpans': [{'spans': [{'traceId': '" T7 "',"
        "'spanId': '" S42 "', 'attributes': [%s]}]}]}]}",
        attributes);
}

/* As in OTLP/JSON, a double is written with the fewest digits that are read as the same number. 0.1
 * + 0.2 needs 17 digits. The test sends all digits of the doubles 0x3fd3333333333334,
 * 0x3fb999999999999a and 0x44b52d02c7e14af6. */
static void numbers_are_written_as_in_otlp_json(void **state)
{
    (void)state;
    static const struct {
        const char *sent, *text;
    } doubles[] = {
        {"0.3000000000000000444089209850062616169452667236328125", "0.30000000000000004"},
        {"0.1000000000000000055511151231257827021181583404541015625", "0.1"},
        {"2.0", "2"},
        {"99999999999999991611392", "1e+23"},
        {"'-Infinity'", "-Infinity"}};
    for (size_t i = 0; i < BR_COUNT(doubles); i++) {
        struct join_rig *r = join_rig_new("{sample_attributes: [http.route]}", NULL, 0);
        char want[64], attribute[128];
        (void)snprintf(attribute, sizeof attribute,
                       "{'key': 'http.route', 'value': {'doubleValue': %s}}", doubles[i].sent);
        send_attributes(r, attribute);
        join_steps_send_sample(r, "shop", 7, 42, 5);
        (void)snprintf(want, sizeof want, " http.route=%s\n", doubles[i].text);
        if (!strstr(join_rig_last(r), want))
            fail_msg("%s: %s", doubles[i].text, join_rig_last(r));
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
    send_attributes(r, "{'key': 'b', 'value': {'boolValue': true}},"
                       "{'key': 'i', 'value': {'intValue': '-7'}},"
                       "{'key': 'd', 'value': {'doubleValue': 0.5}},"
                       "{'key': 's', 'value': {'stringValue': ''}},"
                       "{'key': 'list', 'value': {'arrayValue': {}}}");
    join_steps_send_sample(r, "shop", 7, 42, 5);
    assert_string_equal(join_rig_last(r), "5 " T7 "/" S42 ": span.name= b=true i=-7 d=0.5 s=\n");
    join_rig_free(r);
}

/* Texts are truncated between characters: U+20AC has three bytes. */
static void long_texts_are_truncated_between_characters(void **state)
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

static void values_above_max_values_are_other(void **state)
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

/* If an item passes two joins, for example a sidecar's and then a gateway's, the second join does
 * not add an attribute again. */
static void existing_attributes_are_not_added_again(void **state)
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

/* Several dictionary fields are concatenated; entries that the join adds follow all of them. */
static void additions_follow_every_dictionary(void **state)
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
    char second[256]; /* its string follows thread.name */
    (void)snprintf(second, sizeof second,
                   "{'dictionary': {'stringTable': ['color'], 'attributeTable': ["
                   "{'keyStrindex': %u, 'value': {'stringValue': 'red'}}]}}",
                   n_strings + 1);
    struct br_buf *buf = otlp_text(r->h->host.pool, BR_PROFILES, second);
    wire_raw(&w, buf->data, buf->len);
    br_buf_unref(buf);
    join_rig_send(r, BR_PROFILES, &w, false);
    assert_string_equal(join_rig_last(r),
                        "5 " T7 "/" S42 ": thread.name=main color=red span.name=GET\n");
    wire_free(&w);
    join_rig_free(r);
}

SUITE(join_samples)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_linked_sample_gets_its_spans_name),
        cmocka_unit_test(items_without_joins_pass_unchanged),
        cmocka_unit_test(labels_name_spans),
        cmocka_unit_test(ids_may_have_any_type),
        cmocka_unit_test(a_sample_of_several_spans_stays_unlinked),
        cmocka_unit_test(a_repeated_label_is_not_ambiguous),
        cmocka_unit_test(a_link_without_a_trace_gets_that_of_its_span),
        cmocka_unit_test(the_first_label_of_the_list_wins),
        cmocka_unit_test(labels_become_links),
        cmocka_unit_test(a_link_takes_precedence_over_a_label),
        cmocka_unit_test(numbers_are_written_as_in_otlp_json),
        cmocka_unit_test(sample_attributes_come_from_span_and_resource),
        cmocka_unit_test(values_of_every_type_become_text),
        cmocka_unit_test(long_texts_are_truncated_between_characters),
        cmocka_unit_test(long_items_keep_every_attribute),
        cmocka_unit_test(values_above_max_values_are_other),
        cmocka_unit_test(existing_attributes_are_not_added_again),
        cmocka_unit_test(additions_follow_every_dictionary),
    };
    return RUN_VARIANTS(tests, join_rig_order);
}
