/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names, labels, types and times of Pyroscope's ingestion. Expected values are from Pyroscope's
 * tests (api/model/labelset/labelset_test.go, pkg/og/util/attime/attime_test.go) and its
 * convertMetadata. For unusual names they follow its parser, which reads one rune after the other.
 */
#include "base/mem.h"
#include "base/str.h"
#include "opentelemetry/proto/resource/v1/resource.pb-c.h"
#include "profile/name.h"
#include "tests/support/corpus.h"
#include "tests/support/fault.h"
#include "tests/support/test.h"

#define S 1000000000ull

/* Returns the parsed name as `app{k=v,…}`, or the error message. */
static const char *parsed(const char *text, char out[512])
{
    struct br_arena arena = {0};
    struct br_app_name name;
    struct br_err err = {0};
    struct br_str s = {.data = out, .cap = 512, .fixed = true};
    int rc = br_app_name_parse(text, strlen(text), &arena, &name, &err);
    out[0] = '\0';
    if (rc != 0) {
        assert_int_equal(rc, BR_EINVAL);
        br_str_puts(&s, err.text);
    } else {
        br_str_add(&s, name.app, name.app_len);
        br_str_putc(&s, '{');
        for (size_t i = 0; i < name.n_labels; i++) {
            br_str_puts(&s, i ? "," : "");
            br_str_add(&s, name.labels[i].name, name.labels[i].name_len);
            br_str_putc(&s, '=');
            br_str_add(&s, name.labels[i].value, name.labels[i].value_len);
        }
        br_str_putc(&s, '}');
    }
    br_arena_release(&arena);
    return out;
}

static void test_grammar(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        /* labelset_test.go */
        {"foo", "foo{}"},
        {"foo{bar=1,baz=2}", "foo{bar=1,baz=2}"},
        {" foo { bar = 1 , baz = 2 } ", "foo{bar=1,baz=2}"},
        /* derived by hand from the states of the parser */
        {"foo{}", "foo{}"},
        {"foo{", "foo{}"},
        {"foo{bar=1", "foo{}"},
        {"foo{bar", "foo{}"},
        {"foo{bar}", "foo{}"},
        {"foo{bar}baz=1}", "foo{}"},
        {"foo{bar=1,}", "foo{bar=1}"},
        {"foo{bar=1}baz=2}", "foo{bar=1,baz=2}"},
        {"foo{bar=1}junk", "foo{bar=1}"},
        {"foo{bar=}", "foo{bar=}"},
        {"foo{bar=a=b{c}", "foo{bar=a=b{c}"},
        {"foo{bar=1,bar=2}", "foo{bar=2}"},
        {"foo{bar=\"q\"}", "foo{bar=\"q\"}"},
        {"a-b/c.d_9", "a-b/c.d_9{}"},
        {"foo{otel.scope.name=x y}", "foo{otel.scope.name=x y}"},
        {"foo{__name__=bar,a=b}", "bar{a=b}"},
        {"foo{__session_id__=3}", "foo{__session_id__=3}"},
        {"", "service name is required"},
        {" {a=b}", "service name is required"},
        {"foo{=1}", "label name is required"},
        {"foo{__name__=}", "service name is required"},
        {"fo!o", "invalid service name: fo!o: character is not allowed: '!'"},
        {"foo{a-b=1}", "invalid label name: a-b: character is not allowed: '-'"},
        {"foo{a,b=1}", "invalid label name: a,b: character is not allowed: ','"},
        {"foo{bar=1},baz=2}", "invalid label name: ,baz: character is not allowed: ','"},
        {"f\xc3\xb6o", "invalid service name: byte 1 is not allowed: 0xc3"},
    };
    char out[512];
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++)
        assert_string_equal(parsed(cases[i].text, out), cases[i].want);
}

static void test_maxima(void **state)
{
    struct br_arena arena = {0};
    struct br_app_name name;
    struct br_err err = {0};
    struct br_str s = {0};
    (void)state;
    br_str_puts(&s, "a{");
    for (int i = 0; i < BR_LABELS_MAX; i++)
        br_str_printf(&s, "k%d=v,", i);
    assert_int_equal(br_app_name_parse(s.data, s.len, &arena, &name, &err), 0);
    assert_int_equal(name.n_labels, BR_LABELS_MAX);
    br_str_puts(&s, "k0=again,");
    assert_int_equal(br_app_name_parse(s.data, s.len, &arena, &name, &err), 0);
    assert_memory_equal(name.labels[0].value, "again", 5);
    br_str_puts(&s, "one_more=v,");
    assert_int_equal(br_app_name_parse(s.data, s.len, &arena, &name, &err), BR_EINVAL);
    assert_string_equal(err.text, "more than 128 labels");
    br_str_clear(&s);
    while (s.len <= BR_APP_NAME_MAX)
        br_str_putc(&s, 'a');
    assert_int_equal(br_app_name_parse(s.data, s.len, &arena, &name, &err), BR_EINVAL);
    assert_int_equal(br_app_name_parse(s.data, s.len - 1, &arena, &name, &err), 0);
    br_str_release(&s);
    br_arena_release(&arena);
}

/* Returns the attributes that protobuf-c reads, "k=v " each. */
static const char *resource(const struct br_label *labels, size_t n, char out[512])
{
    struct br_arena arena = {0};
    struct br_addition a = {0};
    struct br_str s = {.data = out, .cap = 512, .fixed = true};
    out[0] = '\0';
    assert_int_equal(br_labels_resource(&arena, labels, n, &a), 0);
    Opentelemetry__Proto__Resource__V1__Resource *r =
        opentelemetry__proto__resource__v1__resource__unpack(NULL, a.len, a.data);
    assert_non_null(r);
    for (size_t i = 0; i < r->n_attributes; i++) {
        assert_int_equal(br_utf8_valid((const uint8_t *)r->attributes[i]->value->string_value,
                                       strlen(r->attributes[i]->value->string_value)),
                         strlen(r->attributes[i]->value->string_value));
        br_str_printf(&s, "%s=%s ", r->attributes[i]->key, r->attributes[i]->value->string_value);
    }
    opentelemetry__proto__resource__v1__resource__free_unpacked(r, NULL);
    br_arena_release(&arena);
    return out;
}

#define LABEL(k, v)                                                                                \
    {                                                                                              \
        k, sizeof(k) - 1, v, sizeof(v) - 1                                                         \
    }

static void test_resource(void **state)
{
    static const struct br_label plain[] = {LABEL("service_name", "shop"), LABEL("env", ""),
                                            LABEL("", "x"), LABEL("a.b", "c=d")};
    static const struct br_label both[] = {LABEL("service.name", "dotted"), LABEL("k", "1"),
                                           LABEL("service_name", "plain"), LABEL("k", "2")};
    static const struct br_label bad[] = {LABEL("k\xff", "\xc3(\xe2\x82")};
    static const struct br_label many[BR_LABELS_MAX + 1];
    static char large[BR_APP_NAME_MAX + 1];
    struct br_label full = {"k", 1, large, BR_APP_NAME_MAX - 1};
    struct br_arena arena = {0};
    struct br_addition a = {0};
    char out[512];
    (void)state;
    assert_string_equal(resource(plain, 4, out), "service.name=shop env= a.b=c=d ");
    assert_string_equal(resource(both, 4, out),
                        "pyroscope.label.service.name=dotted service.name=plain k=2 ");
    assert_string_equal(resource(bad, 1, out),
                        "k\xef\xbf\xbd=\xef\xbf\xbd(\xef\xbf\xbd\xef\xbf\xbd ");
    assert_string_equal(resource(NULL, 0, out), "");
    assert_int_equal(br_labels_resource(&arena, many, BR_LABELS_MAX + 1, &a), BR_EINVAL);
    assert_int_equal(br_labels_resource(&arena, many, BR_LABELS_MAX, &a), 0);
    assert_int_equal(a.len, 0);
    assert_int_equal(br_labels_resource(&arena, &full, 1, &a), 0);
    full.value_len++;
    assert_int_equal(br_labels_resource(&arena, &full, 1, &a), BR_EINVAL);
    br_arena_release(&arena);
}

/* Returns the labels of a name, "k=v " each. */
static const char *series(const char *text, size_t app_len, bool app_name, char out[512])
{
    struct br_arena arena = {0};
    struct br_app_name name;
    struct br_label *labels;
    size_t n;
    struct br_str s = {.data = out, .cap = 512, .fixed = true};
    out[0] = '\0';
    assert_int_equal(br_app_name_parse(text, strlen(text), &arena, &name, NULL), 0);
    assert_int_equal(br_app_labels(&name, app_len, app_name, &arena, &labels, &n), 0);
    for (size_t i = 0; i < n; i++)
        br_str_printf(&s, "%.*s=%.*s ", (int)labels[i].name_len, labels[i].name,
                      (int)labels[i].value_len, labels[i].value);
    br_arena_release(&arena);
    return out;
}

/* Expected values follow Put (pkg/ingester/pyroscope/ingest_adapter.go) and createLabels
 * (pkg/og/convert/pprof) of Pyroscope. */
static void test_series(void **state)
{
    char out[512];
    (void)state;
    assert_string_equal(series("a.cpu{x=1}", 1, true, out), "x=1 service_name=a ");
    assert_string_equal(series("a{service_name=s}", 1, true, out), "service_name=s app_name=a ");
    assert_string_equal(series("a{service_name=s}", 1, false, out), "service_name=s ");
    assert_string_equal(series("a{service_name=s,app_name=b}", 1, true, out),
                        "service_name=s app_name=b ");
    assert_string_equal(series("a{__x=1,__session_id__=2,_y=3}", 1, true, out),
                        "__session_id__=2 _y=3 service_name=a ");
}

/* Tests every case of convertMetadata (pkg/ingester/pyroscope/ingest_adapter.go) of Pyroscope. */
static void test_types(void **state)
{
    static const struct {
        const char *app, *name, *type, *units;
        size_t app_len;
    } cases[] = {
        {"shop", "process_cpu", "cpu", "count", 4},
        {"my.shop.cpu", "process_cpu", "cpu", "count", 7},
        {"a.itimer", "process_cpu", "cpu", "count", 1},
        {"a.wall", "wall", "wall", "count", 1},
        {"a.seconds", "wall", "wall", "count", 1},
        {"a.nanoseconds", "wall", "wall", "count", 1},
        {"a.microseconds", "wall", "wall", "count", 1},
        {"a.milliseconds", "wall", "wall", "count", 1},
        {"a.inuse_objects", "memory", "inuse_objects", "count", 1},
        {"a.inuse_space", "memory", "inuse_space", "bytes", 1},
        {"a.alloc_objects", "memory", "alloc_objects", "count", 1},
        {"a.alloc_space", "memory", "alloc_space", "bytes", 1},
        {"a.goroutines", "goroutine", "goroutines", "count", 1},
        {"a.mutex_count", "mutex", "contentions", "count", 1},
        {"a.mutex_duration", "mutex", "delay", "nanoseconds", 1},
        {"a.block_count", "block", "contentions", "count", 1},
        {"a.block_duration", "block", "delay", "nanoseconds", 1},
        {"a.lock_count", "block", "contentions", "count", 1},
        {"a.lock_duration", "block", "delay", "nanoseconds", 1},
        {"a.alloc_in_new_tlab_objects", "memory", "alloc_in_new_tlab_objects", "count", 1},
        {"a.alloc_in_new_tlab_bytes", "memory", "alloc_in_new_tlab_bytes", "bytes", 1},
        {"a.alloc_outside_tlab_objects", "memory", "alloc_outside_tlab_objects", "count", 1},
        {"a.alloc_outside_tlab_bytes", "memory", "alloc_outside_tlab_bytes", "bytes", 1},
        {"a.live", "memory", "live", "count", 1},
        {"a.exceptions", "exceptions", "samples", "count", 1},
        {"a.bytes", "memory", "samples", "bytes", 1},
        {".cpu", "process_cpu", "cpu", "count", 0},
    };
    struct br_app_type t;
    struct br_err err = {0};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        assert_int_equal(br_app_type_find(cases[i].app, strlen(cases[i].app), &t, &err), 0);
        assert_string_equal(t.name, cases[i].name);
        assert_string_equal(t.type, cases[i].type);
        assert_string_equal(t.units, cases[i].units);
        assert_int_equal(t.app_len, cases[i].app_len);
    }
    assert_int_equal(br_app_type_find("my.weird.app", 12, &t, &err), BR_EINVAL);
    assert_string_equal(err.text, "unknown profile type: app");
    assert_int_equal(br_app_type_find("a.", 2, &t, &err), BR_EINVAL);
}

static uint64_t at(const char *text)
{
    return br_app_time(text, strlen(text), 1577836800 * S);
}

static void test_times(void **state)
{
    const uint64_t now = 1577836800 * S;
    (void)state;
    /* attime_test.go */
    assert_int_equal(at("now"), now);
    assert_int_equal(at("now-1s"), now - S);
    assert_int_equal(at("now+1s"), now + S);
    assert_int_equal(at("now-1min"), now - 60 * S);
    assert_int_equal(at("now-1h"), now - 3600 * S);
    assert_int_equal(at("now-1d"), now - 86400 * S);
    assert_int_equal(at("now-1w"), now - 7 * 86400 * S);
    assert_int_equal(at("now-1mon"), now - 30 * 86400 * S);
    assert_int_equal(at("now-1M"), now - 30 * 86400 * S);
    assert_int_equal(at("now-1y"), now - 365 * 86400 * S);
    assert_int_equal(at("now-1"), now);
    assert_int_equal(at("20200101"), now);
    assert_int_equal(at("1577836800"), now);
    assert_int_equal(at("1577836800001"), now + 1000000);
    assert_int_equal(at("1577836800000001"), now + 1000);
    assert_int_equal(at("1577836800000000001"), now + 1);
    /* derived by hand from the code of attime */
    assert_int_equal(at(" 1_577,836 800 "), now);
    assert_int_equal(at("now-1h30min"), now - 5400 * S);
    assert_int_equal(at("now - 1h-30m"), now - 5400 * S);
    assert_int_equal(at("yesterday"), now);
    assert_int_equal(at(""), now);
    assert_int_equal(at("now-h"), now);
    assert_int_equal(at("20201301"), 20201301 * S); /* not a date, but seconds */
    assert_int_equal(at("20200230"), 20200230 * S);
    assert_int_equal(at("20240229"), 1709164800 * S);
    assert_int_equal(at("19500101"), 0);
    assert_int_equal(at("0"), 0);
    /* times that do not fit or are malformed */
    assert_int_equal(at("now-9999999999999999999y"), 0);
    assert_int_equal(at("now+9999999999999999999999999s"), UINT64_MAX);
    assert_int_equal(at("99999999999999999999999999999"), UINT64_MAX);
    assert_int_equal(at("29990101"), UINT64_MAX);
}

static void no_memory(void *arg)
{
    static const char text[] = "shop{service_name=x,a=b}";
    struct br_arena arena = {0};
    struct br_app_name name;
    struct br_label *labels;
    struct br_addition a = {0};
    size_t n = 0;
    (void)arg;
    fault_start();
    int rc = br_app_name_parse(text, strlen(text), &arena, &name, NULL);
    if (rc == 0)
        rc = br_app_labels(&name, name.app_len, true, &arena, &labels, &n);
    if (rc == 0)
        rc = br_labels_resource(&arena, labels, n, &a);
    fault_stop();
    assert_int_equal(rc, fault_failed() ? BR_ENOMEM : 0);
    assert_true(fault_failed() || a.len > 0);
    br_arena_release(&arena);
}

static void test_no_memory(void **state)
{
    (void)state;
    fault_each("name", no_memory, NULL);
}

static void replay(const uint8_t *data, size_t len)
{
    struct br_arena arena = {0};
    struct br_app_name name;
    struct br_label *labels;
    struct br_addition a;
    size_t n;
    if (br_app_name_parse((const char *)data, len, &arena, &name, NULL) == 0) {
        assert_in_range(name.app_len, 1, len);
        assert_int_equal(br_app_labels(&name, name.app_len, true, &arena, &labels, &n), 0);
        assert_int_equal(br_labels_resource(&arena, labels, n, &a), 0);
    }
    br_arena_release(&arena);
}

static void test_corpus(void **state)
{
    (void)state;
    assert_true(corpus_replay("name", replay) > 5);
}

SUITE(name)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grammar),   cmocka_unit_test(test_maxima),
        cmocka_unit_test(test_resource),  cmocka_unit_test(test_series),
        cmocka_unit_test(test_types),     cmocka_unit_test(test_times),
        cmocka_unit_test(test_no_memory), cmocka_unit_test(test_corpus),
    };
    return RUN(tests, NULL, NULL);
}
