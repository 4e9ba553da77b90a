/* SPDX-License-Identifier: Apache-2.0 */
/* The walk repairs, rejects or passes strings with invalid UTF-8. */
#include "base/mem.h"
#include "otlp/json/json.h"
#include "tests/support/fake_sink.h"
#include "tests/support/items.h"
#include "tests/support/test.h"
#include "tests/support/walk_check.h"

static int setup(void **state)
{
    return walk_check_setup(state, BR_PROFILES);
}

static int teardown(void **state)
{
    return walk_check_teardown(state);
}

#define FFFD "\xef\xbf\xbd"

/* A field of type string. The tests use every such field of the schema's descriptors. */
struct place {
    enum br_signal signal;
    uint32_t path[12]; /* ends with the number of the string's field */
    int n;
};

static struct place places[400];
static size_t n_places;

static void find_strings(enum br_signal signal, const ProtobufCMessageDescriptor *d, uint32_t *path,
                         int depth)
{
    for (unsigned i = 0; i < d->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &d->fields[i];
        path[depth] = f->id;
        if (f->type == PROTOBUF_C_TYPE_STRING && n_places < BR_COUNT(places)) {
            struct place *p = &places[n_places++];
            *p = (struct place){.signal = signal, .n = depth + 1};
            memcpy(p->path, path, sizeof *path * (size_t)(depth + 1));
        } else if (f->type == PROTOBUF_C_TYPE_MESSAGE && depth < 8) {
            find_strings(signal, f->descriptor, path, depth + 1);
        }
    }
}

static void put(struct wire *w, const struct place *p, const char *text, size_t len)
{
    size_t open[12];
    int n = 0;
    for (; n < p->n - 1; n++)
        open[n] = wire_open(w, p->path[n]);
    wire_len(w, p->path[n], text, len);
    while (n > 0)
        wire_close(w, open[--n]);
}

static const struct {
    const char *bad, *good;
    size_t bad_len;
    bool repaired;
} texts[] = {
    {"", "", 0, false},
    {"plain", "plain", 5, false},
    {"\xc3\xa4\xf0\x9f\x98\x80", "\xc3\xa4\xf0\x9f\x98\x80", 6, false},
    {"\xff", FFFD, 1, true},
    {"a\xff", "a" FFFD, 2, true},
    {"\xff"
     "a",
     FFFD "a", 2, true},
    {"1234567\xff", "1234567" FFFD, 8, true},
    {"12345678\xff", "12345678" FFFD, 9, true},
    {"\xff"
     "12345678",
     FFFD "12345678", 9, true},
    {"123456789012345\x80", "123456789012345" FFFD, 16, true},
    {"1234567890123456\x80", "1234567890123456" FFFD, 17, true},
    {"12345678901234567890123456789\xc3(", "12345678901234567890123456789" FFFD "(", 31, true},
    {"1234567890123456789012345678901\xff", "1234567890123456789012345678901" FFFD, 32, true},
    {"12345678901234567890123456789012\xff", "12345678901234567890123456789012" FFFD, 33, true},
    {"1234567890\xff"
     "12345678901234567890123456789012345678901234567890",
     "1234567890" FFFD "12345678901234567890123456789012345678901234567890", 61, true},
    {"caf\xe9", "caf" FFFD, 4, true}, /* Latin-1 */
};

static void every_string_of_the_schema(void **state)
{
    struct walk_check *c = *state;
    uint32_t path[12];
    n_places = 0;
    find_strings(BR_TRACES, br_otlp_request(BR_TRACES), path, 0);
    size_t of_traces = n_places;
    find_strings(BR_PROFILES, br_otlp_request(BR_PROFILES), path, 0);
    assert_true(of_traces > 10 && n_places - of_traces > 10);
    for (size_t i = 0; i < n_places; i++) {
        for (size_t k = 0; k < BR_COUNT(texts); k++) {
            struct wire bad = {0}, good = {0};
            c->signal = places[i].signal;
            put(&bad, &places[i], texts[k].bad, texts[k].bad_len);
            put(&good, &places[i], texts[k].good, strlen(texts[k].good));
            c->options.utf8 = BR_UTF8_REPAIR;
            assert_int_equal(walk_check(c, &bad), 0);
            assert_int_equal(c->repaired, texts[k].repaired);
            assert_true(walk_check_writes(c, &good));
            c->options.utf8 = BR_UTF8_REJECT;
            assert_int_equal(walk_check(c, &bad), texts[k].repaired ? BR_EINVAL : 0);
            assert_int_equal(walk_check(c, &good), 0);
            c->options.utf8 = BR_UTF8_PASS;
            assert_int_equal(walk_check(c, &bad), 0);
            assert_int_equal(c->repaired, 0);
            assert_true(walk_check_writes(c, &bad));
            wire_free(&bad);
            wire_free(&good);
        }
    }
}

/* Fields that are not strings keep their bytes. */
static void bytes_are_not_repaired(void **state)
{
    struct walk_check *c = *state;
    struct wire bad = {0}, good = {0};
    for (int repaired = 0; repaired < 2; repaired++) {
        struct wire *w = repaired ? &good : &bad;
        size_t rs = wire_open(w, 1), scope = wire_open(w, 2), span = wire_open(w, 2);
        wire_len(w, 2, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
        wire_str(w, 5, repaired ? FFFD : "\xff");
        wire_str(w, 1000, "\xff unknown");
        size_t pair = wire_open(w, 9), any = wire_open(w, 2);
        wire_str(w, 7, "\xff bytes_value");
        wire_close(w, any);
        wire_close(w, pair);
        wire_close(w, span);
        wire_close(w, scope);
        wire_close(w, rs);
        wire_i64(w, 77, 0xffffffffffffffffu);
    }
    c->signal = BR_TRACES;
    assert_int_equal(walk_check(c, &bad), 0);
    assert_int_equal(c->repaired, 1);
    assert_true(walk_check_writes(c, &good));
    wire_free(&bad);
    wire_free(&good);
}

static void repaired_strings_are_counted(void **state)
{
    struct walk_check *c = *state;
    struct wire w = {0}, want = {0};
    for (int repaired = 0; repaired < 2; repaired++) {
        struct wire *o = repaired ? &want : &w;
        items_profiles(o, 0, 3, 2);
        size_t d = wire_open(o, 2);
        const char *bad = repaired ? "b" FFFD "d"
                                   : "b\xff"
                                     "d";
        for (int i = 0; i < 40; i++)
            wire_str(o, 5, i % 2 ? "good" : bad);
        wire_close(o, d);
    }
    assert_int_equal(walk_check(c, &w), 0);
    assert_int_equal(c->repaired, 20);
    assert_int_equal(c->item->n_records, 3);
    assert_true(walk_check_writes(c, &want));
    wire_free(&w);
    wire_free(&want);
}

static void spans_refer_to_repaired_strings(void **state)
{
    struct walk_check *c = *state;
    struct wire w = {0};
    for (uint64_t i = 0; i < 100; i++) {
        size_t rs = wire_open(&w, 1), scope = wire_open(&w, 2), span = wire_open(&w, 2);
        wire_str(&w, 5, "\xff");
        wire_close(&w, span);
        wire_close(&w, scope);
        wire_close(&w, rs);
    }
    c->signal = BR_TRACES;
    c->options.spans = true;
    assert_int_equal(walk_check(c, &w), 0);
    assert_int_equal(c->item->n_records, 100);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(c->item->spans[i].name_len, 3);
        assert_memory_equal(c->item->spans[i].name, FFFD, 3);
    }
    wire_free(&w);
}

/* A repaired string is longer, so the lengths of the enclosing messages grow and may take another
 * byte. */
static void enclosing_lengths_grow_with_repaired_strings(void **state)
{
    struct walk_check *c = *state;
    static const struct place name = {BR_TRACES, {1, 2, 2, 5}, 4};
    char bad[700], good[2100];
    c->signal = BR_TRACES;
    for (size_t n = 1; n < sizeof bad; n++) {
        struct wire w = {0}, want = {0};
        memset(bad, 0xff, n);
        for (size_t i = 0; i < n; i++)
            memcpy(good + 3 * i, FFFD, 3);
        put(&w, &name, bad, n);
        put(&want, &name, good, 3 * n);
        assert_int_equal(walk_check(c, &w), 0);
        assert_true(walk_check_writes(c, &want));
        wire_free(&w);
        wire_free(&want);
    }
}

/* Both of two Resource fields contain strings to repair. */
static void two_resources_with_bad_strings(void **state)
{
    struct walk_check *c = *state;
    struct wire w = {0}, want = {0};
    size_t rs = wire_open(&w, 1);
    for (int i = 0; i < 2; i++) {
        size_t resource = wire_open(&w, 1);
        wire_attribute(&w, 1, "k", i ? "\xff" : "\xfe");
        wire_close(&w, resource);
    }
    wire_close(&w, rs);
    rs = wire_open(&want, 1);
    size_t resource = wire_open(&want, 1);
    wire_attribute(&want, 1, "k", FFFD);
    wire_attribute(&want, 1, "k", FFFD);
    wire_close(&want, resource);
    wire_close(&want, rs);
    for (c->signal = BR_TRACES; c->signal <= BR_PROFILES; c->signal++) {
        assert_int_equal(walk_check(c, &w), 0);
        assert_int_equal(c->repaired, 2);
        assert_true(walk_check_writes(c, &want));
    }
    wire_free(&w);
    wire_free(&want);
}

SUITE(walk_utf8)
{
    const struct CMUnitTest tests[] = {
        TEST(every_string_of_the_schema),
        TEST(bytes_are_not_repaired),
        TEST(repaired_strings_are_counted),
        TEST(spans_refer_to_repaired_strings),
        TEST(enclosing_lengths_grow_with_repaired_strings),
        TEST(two_resources_with_bad_strings),
    };
    return RUN(tests, NULL, NULL);
}
