/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In the requests, frames and samples have numbers, so that the output can be counted. After every
 * test, the rig checks that the ledger balances: each received record is sent, rejected or dropped.
 */
#include "base/mem.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/scan.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"
#include "tests/support/wire.h"

extern const struct br_component br_profile_limits_processor;

#define LABELS "processor=\"profile_limits\""
#define CHANGED(what) "braid_profile_limits_changed", LABELS ",what=\"" what "\""

static void expect(const char *text, const char *part)
{
    if (!text || !strstr(text, part))
        fail_msg("%s\nis not in\n%s", part, text ? text : "nothing");
}

static struct rig *rig_of(const char *config)
{
    return rig_new(&br_profile_limits_processor, config);
}

/* --- Stacks ---------------------------------------------------------------------------------- */

/* Locations 1 to 9 have functions 1 to 9. Location 10 has functions 1, 2, 3 inlined into 4.
 * Location 11 does not have a function. */
static const char *deep(const char *stacks)
{
    static char text[1 << 16];
    (void)snprintf(
        text, sizeof text,
        "{\"resourceProfiles\":[{\"scopeProfiles\":[{\"profiles\":[{\"samples\":"
        "[{\"stackIndex\":1,\"values\":[\"1\"]}]}]}]}],\"dictionary\":{\"mappingTable\":[{}],"
        "\"locationTable\":[{},{\"lines\":[{\"functionIndex\":1}]},{\"lines\":[{\"functionIndex\":"
        "2}]},"
        "{\"lines\":[{\"functionIndex\":3}]},{\"lines\":[{\"functionIndex\":4}]},"
        "{\"lines\":[{\"functionIndex\":5}]},{\"address\":\"7\",\"lines\":[{\"functionIndex\":1,"
        "\"line\":\"11\"},{\"functionIndex\":2,\"line\":\"12\"},{\"functionIndex\":3},"
        "{\"functionIndex\":4}]},{\"address\":\"8\"}],\"functionTable\":[{},{\"nameStrindex\":1},"
        "{\"nameStrindex\":2},{\"nameStrindex\":3},{\"nameStrindex\":4},{\"nameStrindex\":5}],"
        "\"linkTable\":[{}],\"stringTable\":[\"\",\"a\",\"b\",\"c\",\"d\",\"e\"],"
        "\"attributeTable\":[{}],\"stackTable\":[{},%s]}}",
        stacks);
    return text;
}

#define STACK(list) "{\"locationIndices\":[" list "]}"
/* Adds string 6, which is the name of function 6, and the given location. */
#define MARK_STRINGS "\"stringTable\":[\"\",\"a\",\"b\",\"c\",\"d\",\"e\",\"[truncated]\"]"
#define MARK_FUNCTION "{\"nameStrindex\":5},{\"nameStrindex\":6}]"
#define MARK_LOCATION "{\"lines\":[{\"functionIndex\":6}]}"

static void stacks(void **state)
{
    (void)state;
    static const struct {
        const char *config, *before, *after, *locations;
        int cut;
    } cases[] = {
        {"max_stack_depth: 3", STACK("1,2,3"), STACK("1,2,3"), "{\"address\":\"8\"}]", 0},
        {"max_stack_depth: 3", STACK("1,2,3,4"), STACK("1,2,8"),
         "{\"address\":\"8\"}," MARK_LOCATION "]", 1},
        {"max_stack_depth: 3", STACK("1,2,3,4,5") "," STACK("5") "," STACK("5,4,3,2"),
         STACK("1,2,8") "," STACK("5") "," STACK("5,4,8"), "{\"address\":\"8\"}," MARK_LOCATION "]",
         2},
        {"max_stack_depth: 1", STACK("1,2"), STACK("8"), "{\"address\":\"8\"}," MARK_LOCATION "]",
         1},
        {"max_stack_depth: 0", STACK("1,2,3,4,5"), STACK("1,2,3,4,5"), "{\"address\":\"8\"}]", 0},
        /* Inlined functions count as frames. */
        {"max_stack_depth: 5", STACK("5,6"), STACK("5,6"), "{\"address\":\"8\"}]", 0},
        {"max_stack_depth: 5", STACK("6,7"), STACK("6,7"), "{\"address\":\"8\"}]", 0},
        {"max_stack_depth: 5", STACK("6,7,7"), STACK("6,8"),
         "{\"address\":\"8\"}," MARK_LOCATION "]", 1},
        {"max_stack_depth: 4", STACK("7,6"), STACK("7,8,9"),
         "{\"address\":\"8\"},{\"address\":\"7\",\"lines\":[{\"functionIndex\":1,\"line\":\"11\"},"
         "{\"functionIndex\":2,\"line\":\"12\"}]}," MARK_LOCATION "]",
         1},
        {"max_stack_depth: 4", STACK("7,6") "," STACK("1,6") "," STACK("6,1"),
         STACK("7,8,9") "," STACK("1,8,9") "," STACK("10,9"),
         "{\"address\":\"8\"},{\"address\":\"7\",\"lines\":[{\"functionIndex\":1,\"line\":\"11\"},"
         "{\"functionIndex\":2,\"line\":\"12\"}]}," MARK_LOCATION
         ",{\"address\":\"7\",\"lines\":[{\"functionIndex\":1,\"line\":\"11\"},"
         "{\"functionIndex\":2,\"line\":\"12\"},{\"functionIndex\":3}]}]",
         3},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct rig *r = rig_of(cases[i].config);
        char after[1 << 10];
        const char *out = rig_run(r, BR_PROFILES, deep(cases[i].before));
        (void)snprintf(after, sizeof after, "\"stackTable\":[{},%s]", cases[i].after);
        expect(out, after);
        expect(out, cases[i].locations);
        if (cases[i].cut) {
            expect(out, MARK_STRINGS);
            expect(out, MARK_FUNCTION);
        } else {
            assert_string_equal(out, deep(cases[i].before));
        }
        assert_int_equal((int)rig_metric(r, CHANGED("stack")), cases[i].cut);
        /* The truncated stack is within the limit, so a second pass does not change it. */
        char again[1 << 16];
        (void)snprintf(again, sizeof again, "%s", out);
        assert_string_equal(rig_run(r, BR_PROFILES, again), again);
        rig_free(r);
    }
}

/* Returns a request of one sample, whose stack repeats location 1 `depth` times. The location
 * does not have lines, the table of functions is empty, and the only string is empty. */
static struct br_item *deep_stack(struct rig *r, unsigned depth, bool packed)
{
    struct wire w = {0};
    size_t part = wire_open(&w, 1), scope = wire_open(&w, 2), profile = wire_open(&w, 2);
    size_t sample = wire_open(&w, 2);
    wire_varint(&w, 1, 1);
    wire_varint(&w, 4, 1);
    wire_close(&w, sample);
    wire_close(&w, profile);
    wire_close(&w, scope);
    wire_close(&w, part);
    size_t dictionary = wire_open(&w, 2);
    wire_close(&w, wire_open(&w, 2));
    wire_close(&w, wire_open(&w, 2));
    wire_close(&w, wire_open(&w, 7));
    size_t stack = wire_open(&w, 7), list = packed ? wire_open(&w, 1) : 0;
    for (unsigned i = 0; i < depth; i++) {
        if (packed)
            wire_number(&w, 1);
        else
            wire_varint(&w, 1, 1);
    }
    if (packed)
        wire_close(&w, list);
    wire_close(&w, stack);
    wire_close(&w, dictionary);
    return rig_item_of(r, BR_PROFILES, &w);
}

static void the_default_depth_is_64(void **state)
{
    (void)state;
    static const unsigned depths[] = {63, 64, 65, 1000, 1000000};
    for (unsigned i = 0; i < 2 * BR_COUNT(depths); i++) {
        unsigned depth = depths[i / 2], n = 0;
        struct rig *r = rig_of("");
        rig_send(r, deep_stack(r, depth, i % 2));
        assert_int_equal(r->n_out, 1);
        const char *at = strstr(r->out.data, "\"locationIndices\":[");
        assert_non_null(at);
        at += strlen("\"locationIndices\":[");
        for (; strncmp(at, "1,", 2) == 0; at += 2)
            n++;
        if (depth <= 64) {
            assert_int_equal(n, depth - 1);
            expect(at, "1]");
        } else {
            /* An empty table first gets its zero value. */
            assert_int_equal(n, 63);
            assert_int_equal(strncmp(at, "2]", 2), 0);
            expect(r->out.data, "\"stringTable\":[\"\",\"[truncated]\"]");
            expect(r->out.data, "\"functionTable\":[{},{\"nameStrindex\":1}]");
            expect(r->out.data, "\"locationTable\":[{},{},{\"lines\":[{\"functionIndex\":1}]}]");
        }
        rig_free(r);
    }
}

/* 63 stacks each cut one location of 200 lines and 200 kB at a different line. The copies of the
 * location would be too large to write. */
static void copies_of_cut_locations_are_limited(void **state)
{
    (void)state;
    struct wire w = {0};
    char *text = calloc(1, 200000);
    assert_non_null(text);
    memset(text, 'x', 199999);
    size_t part = wire_open(&w, 1), scope = wire_open(&w, 2), profile = wire_open(&w, 2);
    size_t sample = wire_open(&w, 2);
    wire_varint(&w, 4, 1);
    wire_close(&w, sample);
    wire_close(&w, profile);
    wire_close(&w, scope);
    wire_close(&w, part);
    size_t dictionary = wire_open(&w, 2);
    wire_close(&w, wire_open(&w, 2));
    wire_close(&w, wire_open(&w, 2));
    size_t location = wire_open(&w, 2);
    for (unsigned i = 0; i < 100; i++) {
        size_t line = wire_open(&w, 3);
        wire_str(&w, 1000, text); /* an unknown field */
        wire_close(&w, line);
    }
    wire_close(&w, location);
    wire_close(&w, wire_open(&w, 7));
    for (unsigned i = 0; i < 63; i++) {
        size_t stack = wire_open(&w, 7);
        for (unsigned k = 0; k < i; k++)
            wire_varint(&w, 1, 1);
        wire_varint(&w, 1, 2);
        wire_close(&w, stack);
    }
    wire_close(&w, dictionary);
    free(text);
    struct rig *r = rig_of("max_profile_size: 0");
    rig_send(r, rig_item_of(r, BR_PROFILES, &w));
    assert_int_equal(r->n_out, 0);
    assert_int_equal(r->outcome.verdict, BR_DONE);
    assert_true(rig_dropped(r, BR_PROFILES, "profile_too_large") == 1);
    rig_free(r);
}

/* --- Labels ---------------------------------------------------------------------------------- */

/* Returns a request of samples with attributes 1, 2 and so on. `attributes` have keys 1 (k), 2
 * (span_id) or 3 (n). Strings 4 to 7 are a, b, c and d. If `mapping`, the mapping has attribute 1,
 * too. */
static const char *labelled(const char *attributes, unsigned n, const char *mapping)
{
    static char text[1 << 16];
    char indices[256] = "";
    for (unsigned i = 1; i <= n; i++)
        (void)snprintf(indices + strlen(indices), sizeof indices - strlen(indices), "%s%u",
                       i > 1 ? "," : "", i);
    (void)snprintf(text, sizeof text,
                   "{\"resourceProfiles\":[{\"scopeProfiles\":[{\"profiles\":[{\"samples\":"
                   "[{\"attributeIndices\":[%s],\"values\":[\"1\"]}]}]}]}],\"dictionary\":"
                   "{\"mappingTable\":[{}%s],\"locationTable\":[{}],\"functionTable\":[{}],"
                   "\"linkTable\":[{}],\"stringTable\":[\"\",\"k\",\"span_id\",\"n\",\"a\",\"b\","
                   "\"c\",\"d\"],\"attributeTable\":[{},%s],\"stackTable\":[{}]}}",
                   indices, mapping, attributes);
    return text;
}

#define REF(key, value) "{\"keyStrindex\":" key ",\"value\":{\"stringValueStrindex\":" value "}}"
#define TEXT(key, value) "{\"keyStrindex\":" key ",\"value\":{\"stringValue\":\"" value "\"}}"
#define INT(key, value) "{\"keyStrindex\":" key ",\"value\":{\"intValue\":\"" value "\"}}"

static void labels(void **state)
{
    (void)state;
    struct rig *r = rig_of("max_label_values: 2");
    const char *out = rig_run(r, BR_PROFILES,
                              labelled(REF("1", "4") "," TEXT("1", "b") "," REF("1", "6"), 3, ""));
    expect(out, "\"attributeTable\":[{}," REF("1", "4") "," TEXT("1", "b") "," REF("1", "8") "]");
    expect(out, "\"d\",\"[other]\"]");
    assert_int_equal((int)rig_metric(r, CHANGED("label")), 1);
    /* Known values are kept, whether the attribute contains the value or refers to it. Other values
     * are replaced, also in later requests. */
    const char *known = labelled(TEXT("1", "a") "," REF("1", "5"), 2, "");
    assert_string_equal(rig_run(r, BR_PROFILES, known), known);
    out =
        rig_run(r, BR_PROFILES,
                labelled("{\"keyStrindex\":1,\"value\":{\"stringValue\":\"d\"},\"unitStrindex\":5}",
                         1, ""));
    expect(out, "{\"keyStrindex\":1,\"value\":{\"stringValueStrindex\":8},\"unitStrindex\":5}");
    /* Each key has a separate set of values. Numbers, and the values of span_id, are not
     * limited. */
    const char *others =
        labelled(REF("3", "6") "," REF("3", "7") "," INT("1", "7") "," INT("1", "8") "," TEXT(
                     "2", "x") "," TEXT("2", "y") "," TEXT("2", "z"),
                 7, "");
    assert_string_equal(rig_run(r, BR_PROFILES, others), others);
    rig_free(r);
}

static void attributes_of_mappings_are_unchanged(void **state)
{
    (void)state;
    struct rig *r = rig_of("max_label_values: 1");
    /* Only the mapping has attributes 2 and 3. */
    const char *in = labelled(REF("1", "4") "," REF("1", "5") "," REF("1", "6"), 1,
                              ",{\"attributeIndices\":[2,3]}");
    assert_string_equal(rig_run(r, BR_PROFILES, in), in);
    rig_free(r);
}

static void values_expire(void **state)
{
    (void)state;
    struct rig *r =
        rig_of("{max_label_values: 1, label_values_window: 10s, unlimited_labels: [n]}");
    const char *a = "{\"stringValue\":\"a\"}";
    expect(rig_run(r, BR_PROFILES, labelled(TEXT("1", "a"), 1, "")), a);
    r->now_ms += 9999;
    expect(rig_run(r, BR_PROFILES, labelled(TEXT("1", "b"), 1, "")), "\"[other]\"");
    r->now_ms += 1;
    expect(rig_run(r, BR_PROFILES, labelled(TEXT("1", "b"), 1, "")), "{\"stringValue\":\"b\"}");
    expect(rig_run(r, BR_PROFILES, labelled(TEXT("1", "a"), 1, "")), "\"[other]\"");
    /* The list in the config replaces the default list. */
    expect(rig_run(r, BR_PROFILES, labelled(TEXT("2", "a") "," TEXT("2", "b"), 2, "")), "[other]");
    const char *n = labelled(TEXT("3", "a") "," TEXT("3", "b"), 2, "");
    assert_string_equal(rig_run(r, BR_PROFILES, n), n);
    rig_free(r);
}

/* There are 1025 keys. The values of the last key are all replaced. */
static void the_number_of_keys_is_limited(void **state)
{
    (void)state;
    struct br_str text = {0};
    br_str_puts(&text, "{'resourceProfiles': [{'scopeProfiles': [{'profiles': [{'samples': ["
                       "{'values': ['1'], 'attributeIndices': [1");
    for (unsigned i = 2; i <= 1025; i++)
        br_str_printf(&text, ",%u", i);
    br_str_puts(&text, "]}]}]}]}], 'dictionary': {'stringTable': [''");
    for (unsigned i = 1; i <= 1025; i++)
        br_str_printf(&text, ",'k%u'", i);
    br_str_puts(&text, "], 'attributeTable': [{}");
    for (unsigned i = 1; i <= 1025; i++)
        br_str_printf(&text, ",{'keyStrindex': %u, 'value': {'stringValue': 'v'}}", i);
    br_str_puts(&text, "]}}");
    struct rig *r = rig_of("max_label_values: 5");
    (void)rig_run(r, BR_PROFILES, text.data);
    br_str_release(&text);
    assert_int_equal((int)rig_metric(r, CHANGED("label")), 1);
    expect(r->out.data, "{\"keyStrindex\":1024,\"value\":{\"stringValue\":\"v\"}}");
    expect(r->out.data, "{\"keyStrindex\":1025,\"value\":{\"stringValueStrindex\":1026}}");
    rig_free(r);
}

/* --- Sizes ----------------------------------------------------------------------------------- */

/* Receives the output in place of the rig's sink. */
struct capture {
    struct br_consumer input;
    unsigned n, n_samples, most_samples;
    size_t most_bytes;
    uint64_t sum; /* sum of the values */
    bool metadata;
};

static uint64_t sum_of(const uint8_t *p, const uint8_t *end, unsigned level)
{
    uint64_t sum = 0;
    struct br_field f;
    while (p < end && (p = br_scan(p, end, &f))) {
        if (level < 4 && f.number == (level == 0 ? 1 : 2) && f.wire == BR_WIRE_LEN)
            sum += sum_of(f.data, p, level + 1);
        else if (level == 4 && f.number == 4 && f.wire == BR_WIRE_VARINT)
            sum += f.value;
        else if (level == 4 && f.number == 4) {
            uint64_t v;
            assert_non_null(br_scan_varint(f.data, p, &v));
            sum += v;
        }
    }
    return sum;
}

static void on_item(struct br_consumer *self, struct br_item *item)
{
    struct capture *t = br_container_of(self, struct capture, input);
    struct br_rope rope = {0};
    const uint8_t *data;
    br_mem_set_hooks(NULL);
    assert_int_equal(br_item_write(item, &rope), 0);
    struct br_buf *buf = br_rope_flat(&rope, item->host->pool, &data);
    assert_non_null(buf);
    t->n++;
    t->n_samples += item->n_records;
    t->most_samples = item->n_records > t->most_samples ? item->n_records : t->most_samples;
    t->most_bytes = rope.len > t->most_bytes ? rope.len : t->most_bytes;
    t->sum += sum_of(data, data + rope.len, 0);
    t->metadata = t->metadata || item->metadata;
    br_buf_unref(buf);
    br_rope_release(&rope);
    br_item_done(item);
}

/* Profiles with the given numbers of samples, whose values are 1, 2, 3 and so on. Each sample
 * has an attribute with a unique string of `each` bytes; that of sample `big` has `big_len`
 * bytes. If `shared`, each has a second one that all share. The first profile has an original
 * payload. */
struct sizes {
    unsigned profiles[4];
    unsigned each, big, big_len, shared, payload;
};

static void put_attribute(struct br_str *text, size_t len, unsigned number)
{
    br_str_puts(text, ",{'value': {'stringValue': '");
    for (size_t i = 0; i < len; i++)
        br_str_putc(text, 'x');
    br_str_printf(text, "%u'}}", number);
}

static void put_payload(struct br_str *text, size_t len)
{
    uint8_t *bytes = malloc(len);
    assert_non_null(bytes);
    memset(bytes, 'p', len);
    br_str_puts(text, "'originalPayloadFormat': 'jfr', 'originalPayload': '");
    br_str_base64(text, bytes, len);
    br_str_puts(text, "',");
    free(bytes);
}

static struct br_item *sized(struct rig *r, const struct sizes *s)
{
    struct br_str text = {0};
    unsigned n = 0;
    br_str_puts(&text, "{'resourceProfiles': [{'scopeProfiles': [{'profiles': [");
    for (unsigned k = 0; k < 4 && s->profiles[k]; k++) {
        br_str_puts(&text, k ? ",{" : "{");
        if (k == 0 && s->payload)
            put_payload(&text, s->payload);
        br_str_puts(&text, "'samples': [");
        for (unsigned i = 0; i < s->profiles[k]; i++) {
            n++;
            br_str_printf(&text, "%s{'attributeIndices': [%u%s], 'values': ['%u']}", i ? "," : "",
                          n + 1, s->shared ? ",1" : "", n);
        }
        br_str_puts(&text, "]}");
    }
    br_str_puts(&text, "]}]}], 'dictionary': {'attributeTable': [{}");
    put_attribute(&text, s->shared, 0);
    for (unsigned i = 1; i <= n; i++)
        put_attribute(&text, i == s->big ? s->big_len : s->each, i);
    br_str_puts(&text, "]}}");
    struct br_item *item = rig_item(r, BR_PROFILES, text.data);
    br_str_release(&text);
    return item;
}

static struct capture run_sized(const char *config, const struct sizes *s, struct rig **ret)
{
    struct capture t = {.input = {on_item}};
    *ret = rig_of(config);
    (*ret)->node.next[BR_PROFILES] = &t.input;
    struct br_item *item = sized(*ret, s);
    item->metadata = "a\0b\0";
    rig_send(*ret, item);
    (*ret)->node.next[BR_PROFILES] = &(*ret)->sink;
    assert_int_equal((*ret)->n_ended, 1);
    assert_int_equal((*ret)->outcome.verdict, BR_DONE);
    return t;
}

static void profiles_of_many_samples(void **state)
{
    (void)state;
    struct rig *r;
    /* One profile of ten samples: at most four in a request. */
    struct capture t = run_sized("max_samples: 4", &(struct sizes){.profiles = {10}}, &r);
    assert_int_equal(t.n, 3);
    assert_int_equal(t.most_samples, 4);
    assert_int_equal(t.sum, 55);
    assert_true(t.metadata);
    assert_int_equal((int)rig_metric(r, "braid_profile_limits_splits", LABELS), 1);
    rig_free(r);
    /* Three profiles of four samples are within the limit. */
    t = run_sized("max_samples: 4", &(struct sizes){.profiles = {4, 4, 4}}, &r);
    assert_int_equal(t.n, 1);
    assert_int_equal(t.sum, 78);
    rig_free(r);
    /* A large profile between smaller ones. */
    t = run_sized("max_samples: 4", &(struct sizes){.profiles = {1, 5, 1}}, &r);
    assert_int_equal(t.n, 2);
    assert_int_equal(t.sum, 28);
    rig_free(r);
    t = run_sized("max_samples: 0", &(struct sizes){.profiles = {10}}, &r);
    assert_int_equal(t.n, 1);
    rig_free(r);
}

static void large_requests(void **state)
{
    (void)state;
    struct rig *r;
    /* 100 samples of slightly more than 1000 bytes: at most 9 in 10,000. */
    struct capture t = run_sized("max_profile_size: 10000",
                                 &(struct sizes){.profiles = {60, 40}, .each = 1000}, &r);
    assert_in_range(t.n, 12, 13);
    assert_in_range(t.most_bytes, 9000, 10000);
    assert_int_equal(t.n_samples, 100);
    assert_int_equal(t.sum, 5050);
    rig_free(r);
    t = run_sized("max_profile_size: 0", &(struct sizes){.profiles = {60, 40}, .each = 1000}, &r);
    assert_int_equal(t.n, 1);
    rig_free(r);
}

/* The seventh of ten samples alone exceeds the limit. Only this sample is dropped. */
static void one_sample_too_large(void **state)
{
    (void)state;
    struct rig *r;
    struct sizes s = {.profiles = {10}, .each = 1000, .big = 7, .big_len = 20000};
    struct capture t = run_sized("max_profile_size: 10000", &s, &r);
    assert_int_equal(t.n_samples, 9);
    assert_int_equal(t.sum, 55 - 7);
    assert_in_range(t.most_bytes, 3000, 10000);
    assert_true(rig_dropped(r, BR_PROFILES, "profile_too_large") == 1);
    assert_true(*r->host.ledger.sent[BR_PROFILES] == 9);
    rig_free(r);
    /* If it is the only sample, the output is empty. */
    s = (struct sizes){.profiles = {1}, .each = 20000};
    t = run_sized("max_profile_size: 10000", &s, &r);
    assert_int_equal(t.n, 0);
    assert_true(rig_dropped(r, BR_PROFILES, "profile_too_large") == 1);
    rig_free(r);
}

/* The original payload of a profile is dropped before any of its samples, and only if necessary. */
static void original_payloads(void **state)
{
    (void)state;
    struct rig *r;
    struct sizes s = {.profiles = {10}, .each = 100, .payload = 20000};
    struct capture t = run_sized("max_profile_size: 10000", &s, &r);
    assert_int_equal(t.n_samples, 10);
    assert_int_equal(t.sum, 55);
    assert_true(t.most_bytes < 10000);
    assert_int_equal((int)rig_metric(r, CHANGED("payload")), 1);
    rig_free(r);
    s.payload = 5000;
    s.each = 1000;
    t = run_sized("max_profile_size: 10000", &s, &r);
    assert_int_equal(t.sum, 55);
    assert_int_equal((int)rig_metric(r, CHANGED("payload")), 0);
    rig_free(r);
}

/* All samples refer to the same megabyte, which each piece of the profile would repeat. */
static void repeated_bytes_of_pieces_are_limited(void **state)
{
    (void)state;
    struct rig *r;
    struct sizes s = {.profiles = {200}, .shared = 1000000};
    struct capture t = run_sized("{max_samples: 1, max_profile_size: 0}", &s, &r);
    assert_int_equal(t.n, 0);
    assert_true(rig_dropped(r, BR_PROFILES, "profile_too_large") == 200);
    rig_free(r);
}

/* --- Failure --------------------------------------------------------------------------------- */

/* Any content that the walk accepts is handled. */
static void unusual_requests(void **state)
{
    (void)state;
    struct rig *r =
        rig_of("{max_stack_depth: 3, max_label_values: 1, max_samples: 1, max_profile_size: 250}");
    assert_in_range(
        rig_send_mutants(r, BR_PROFILES, deep(STACK("7,6") "," STACK("1,2,3,4,5")), 20000), 300,
        2900);
    assert_in_range(rig_send_mutants(
                        r, BR_PROFILES,
                        labelled(REF("1", "4") "," TEXT("1", "b") "," INT("1", "7"), 3, ""), 20000),
                    300, 19000);
    rig_free(r);
}

static void configs(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"max_stack_depth: -1", "max_stack_depth"},
        {"max_profile_size: 1GB", "max_profile_size"},
        {"max_samples: -5", "max_samples"},
        {"max_label_values: 1000001", "max_label_values"},
        {"label_values_window: 5", "label_values_window"},
        {"max_depth: 5", "max_depth"},
    };
    rig_expect_errors_in(&br_profile_limits_processor, bad, BR_COUNT(bad));
    assert_string_equal(rig_errors(&br_profile_limits_processor, ""), "");
}

/* Sends the request made by `make`. The values of all output samples must add up to `sum`. */
struct low_memory {
    struct capture capture;
    struct br_item *(*make)(struct rig *r);
    uint64_t sum;
};

static struct br_item *make_sized(struct rig *r, void *arg)
{
    struct low_memory *s = arg;
    s->capture = (struct capture){.input = {on_item}};
    r->node.next[BR_PROFILES] = &s->capture.input;
    return s->make(r);
}

static bool check_output(struct rig *r, void *arg)
{
    const struct low_memory *s = arg;
    (void)r;
    assert_true(s->capture.n == 0 || s->capture.sum == s->sum);
    return s->capture.n > 0;
}

static unsigned without_memory_for(const char *config, struct br_item *(*make)(struct rig *r),
                                   uint64_t sum)
{
    struct low_memory s = {.make = make, .sum = sum};
    return rig_run_short(&(struct rig_shortage){
        &br_profile_limits_processor, config, .make = make_sized, .came = check_output, .arg = &s});
}

static struct br_item *make_large(struct rig *r)
{
    return sized(r, &(struct sizes){.profiles = {5}, .each = 1000, .payload = 20000});
}

static struct br_item *make_deep(struct rig *r)
{
    return rig_item(r, BR_PROFILES, deep(STACK("7,6") "," STACK("1,2,3,4,5")));
}

static struct br_item *make_labelled(struct rig *r)
{
    return rig_item(r, BR_PROFILES, labelled(REF("1", "4") "," REF("1", "5"), 2, ""));
}

static void without_memory(void **state)
{
    (void)state;
    assert_in_range(without_memory_for("max_profile_size: 3000", make_large, 15), 10, 300);
    assert_in_range(without_memory_for("max_stack_depth: 3", make_deep, 1), 5, 100);
    assert_in_range(without_memory_for("max_label_values: 1", make_labelled, 1), 5, 100);
}

SUITE(profile_limits)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stacks),
        cmocka_unit_test(the_default_depth_is_64),
        cmocka_unit_test(copies_of_cut_locations_are_limited),
        cmocka_unit_test(labels),
        cmocka_unit_test(attributes_of_mappings_are_unchanged),
        cmocka_unit_test(values_expire),
        cmocka_unit_test(the_number_of_keys_is_limited),
        cmocka_unit_test(profiles_of_many_samples),
        cmocka_unit_test(large_requests),
        cmocka_unit_test(one_sample_too_large),
        cmocka_unit_test(original_payloads),
        cmocka_unit_test(repeated_bytes_of_pieces_are_limited),
        cmocka_unit_test(unusual_requests),
        cmocka_unit_test(configs),
        cmocka_unit_test(without_memory),
    };
    return RUN_VARIANTS(tests, rig_order_not_rising);
}
