/* SPDX-License-Identifier: Apache-2.0 */
/* The builder of traces requests, and its tags. The fields are those of trace.proto. */
#include "base/mem.h"
#include "otlp/build/spans.h"
#include "otlp/walk/walk.h"
#include "tests/support/fake_host.h"
#include "tests/support/test.h"

static void add(struct br_tags *tags, const char *key, const char *value)
{
    assert_int_equal(br_tags_add_text(tags, key, value, strlen(value)), 0);
}

static void test_tags(void **state)
{
    struct br_tags tags = {0};
    (void)state;
    add(&tags, "b", "1");
    add(&tags, "a", "2");
    add(&tags, "b", "3");
    add(&tags, "", "4");
    add(&tags, "bb", "5");
    assert_int_equal(br_tags_sort(&tags), 0);
    assert_true(br_tag_is(br_tags_find(&tags, "b"), "3")); /* the last of equal keys counts */
    assert_true(br_tag_is(br_tags_find(&tags, ""), "4"));
    assert_true(tags.items[0].dropped && !tags.items[2].dropped);
    assert_null(br_tags_find(&tags, "c"));
    assert_null(br_tags_find(&tags, "B"));
    br_tags_find(&tags, "a")->dropped = true;
    assert_null(br_tags_find(&tags, "a"));
    br_tag_rename(&tags.items[4], "bb", "c");
    br_tag_rename(&tags.items[2], "bb", "c");
    assert_true(tags.items[4].key_len == 1 && tags.items[4].key[0] == 'c');
    assert_int_equal(tags.items[2].key[0], 'b');
    br_tags_clear(&tags);
    assert_int_equal(br_tags_sort(&tags), 0);
    assert_null(br_tags_find(&tags, "b"));
    br_tags_release(&tags);
}

static void one_span(struct br_spans *s, uint32_t resource, const char *scope, const char *name)
{
    br_spans_begin(s);
    br_spans_trace_id(s, BR_SPAN_TRACE_ID, 1, 2);
    br_spans_span_id(s, BR_SPAN_SPAN_ID, 3);
    br_spans_bytes(s, BR_SPAN_NAME, name, strlen(name));
    br_spans_end(s, resource, scope, strlen(scope), "", 0);
}

static struct br_item *taken(struct fake_host *h, struct br_spans *s)
{
    const struct br_walk_options options = {.utf8 = BR_UTF8_REJECT};
    struct br_buf *buf = NULL;
    uint32_t repaired;
    assert_int_equal(br_spans_take(s, &buf), 0);
    struct br_item *item = br_item_new(&h->host, BR_TRACES);
    assert_non_null(item);
    assert_int_equal(br_walk(item, buf, buf->data, buf->len, &options, &repaired, NULL), 0);
    br_buf_unref(buf);
    return item;
}

/* Equal Resources and scopes occur once. A Resource without spans does not occur. */
static void test_groups(void **state)
{
    struct fake_host *h = fake_host_new();
    struct br_tags tags = {0};
    struct br_spans s;
    uint32_t resources[3];
    (void)state;
    br_spans_init(&s, h->host.pool, 1 << 20);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"a", "b", "unused"};
        br_tags_clear(&tags);
        add(&tags, "service.name", names[i]);
        assert_int_equal(br_tags_sort(&tags), 0);
        resources[i] = br_spans_resource(&s, &tags);
        assert_int_equal(br_spans_resource(&s, &tags), resources[i]);
    }
    one_span(&s, resources[0], "x", "1");
    one_span(&s, resources[1], "x", "2");
    one_span(&s, resources[0], "", "3");
    br_spans_begin(&s);
    br_spans_bytes(&s, BR_SPAN_NAME, "undone", 6);
    br_spans_undo(&s);
    one_span(&s, resources[0], "x", "4");
    struct br_item *item = taken(h, &s);
    assert_int_equal(item->n_parts, 2);
    assert_int_equal(item->n_records, 4);
    assert_int_equal(item->parts[0].n_records, 3);
    br_item_free(item);
    br_tags_release(&tags);
    fake_host_free(h);
}

/* Contents of any length get the right length prefix. */
static void test_lengths(void **state)
{
    static const size_t lengths[] = {0, 1, 100, 119, 120, 126, 127, 128, 129, 16383, 16384, 70000};
    static char text[70000];
    struct fake_host *h = fake_host_new();
    struct br_tags none = {0};
    struct br_spans s;
    (void)state;
    memset(text, 'x', sizeof text);
    br_spans_init(&s, h->host.pool, 1 << 20);
    uint32_t resource = br_spans_resource(&s, &none);
    for (size_t i = 0; i < BR_COUNT(lengths); i++) {
        br_spans_begin(&s);
        br_spans_open(&s, BR_SPAN_EVENTS);
        br_spans_bytes(&s, BR_EVENT_NAME, text, lengths[i]);
        br_spans_close(&s);
        br_spans_status(&s, 2, text, lengths[i]);
        br_spans_end(&s, resource, text, lengths[i], "", 0);
    }
    struct br_item *item = taken(h, &s);
    assert_int_equal(item->n_records, BR_COUNT(lengths));
    br_item_free(item);
    fake_host_free(h);
}

/* If the maximum size is reached, the first error is kept, and nothing more is written. */
static void test_maximum(void **state)
{
    static char text[5000];
    struct fake_host *h = fake_host_new();
    struct br_tags none = {0};
    struct br_buf *buf = NULL;
    struct br_spans s;
    (void)state;
    br_spans_init(&s, h->host.pool, 4096);
    uint32_t resource = br_spans_resource(&s, &none);
    br_spans_begin(&s);
    br_spans_bytes(&s, BR_SPAN_NAME, text, sizeof text);
    br_spans_end(&s, resource, "", 0, "", 0);
    one_span(&s, resource, "", "more");
    assert_int_equal(br_spans_take(&s, &buf), BR_EFULL);
    assert_null(buf);
    fake_host_free(h);
}

SUITE(spans)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tags),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_maximum),
    };
    return RUN(tests, NULL, NULL);
}
