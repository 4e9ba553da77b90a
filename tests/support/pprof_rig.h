/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helpers for unit tests of the pprof reader. The tests write pprofs field by field according to
 * profile.proto. The result of reading a pprof must pass the walk. A test file includes this header
 * once, and it includes profiles_request.h. A test frees its data with done().
 */
#pragma once

#include "profile/profile.h"
#include "tests/support/profiles_pb.h"
#include "tests/support/profiles_request.h"
#include "tests/support/test.h"

typedef Opentelemetry__Proto__Collector__Profiles__V1development__ExportProfilesServiceRequest
    Request;
typedef Opentelemetry__Proto__Profiles__V1development__Profile Profile;
typedef Opentelemetry__Proto__Profiles__V1development__Sample Sample;
typedef Opentelemetry__Proto__Common__V1__KeyValue KeyValue;
typedef Opentelemetry__Proto__Common__V1__AnyValue AnyValue;

#define unpack PROFILES_REQUEST(unpack)
#define free_unpacked PROFILES_REQUEST(free_unpacked)

/* Field numbers of pprof's Profile. */
enum {
    TYPE = 1,
    SAMPLE,
    PMAPPING,
    PLOCATION,
    PFUNCTION,
    PSTRING,
    DROP,
    KEEP,
    TIME,
    DURATION,
    PERIOD_TYPE,
    PERIOD,
    COMMENT,
    DEFAULT_TYPE,
    DOC_URL
};

struct read {
    struct br_err err;
    struct br_profile_source source;
    size_t arena_max, build_max;
    Request *request; /* NULL: reading failed */
};

static inline int run(struct read *r, const uint8_t *data, size_t len)
{
    struct br_arena arena = {.max = r->arena_max ? r->arena_max : 16u << 20};
    struct br_build *b = br_build_new(&host, r->build_max ? r->build_max : 16u << 20);
    struct br_item *item = br_item_new(&host, BR_PROFILES);
    int rc = b && item ? 0 : BR_ENOMEM;
    r->source.data = data;
    r->source.len = len;
    r->err = (struct br_err){0};
    r->request = NULL;
    if (!rc)
        rc = br_profile_read(b, BR_FORMAT_PPROF, &r->source, &arena, &r->err);
    if (!rc)
        rc = br_build_take(b, item);
    if (!rc && item->n_parts) {
        struct br_rope rope = {0};
        rc = br_item_write(item, &rope);
        const uint8_t *bytes;
        struct br_buf *flat = rc ? NULL : br_rope_flat(&rope, host.pool, &bytes);
        br_rope_release(&rope);
        if (flat) {
            struct br_item *walked = br_item_new(&host, BR_PROFILES);
            const struct br_walk_options options = {.utf8 = BR_UTF8_REJECT};
            struct br_err err = {0};
            uint32_t repaired;
            rc = walked ? br_walk(walked, flat, bytes, flat->len, &options, &repaired, &err)
                        : BR_ENOMEM;
            if (rc == BR_EINVAL)
                fail_msg("%s", err.text);
            if (!rc)
                r->request = unpack(NULL, item->size, bytes);
            if (walked)
                br_item_free(walked);
        }
        br_buf_unref(flat);
        rc = flat ? rc : BR_ENOMEM;
    }
    if (item)
        br_item_free(item);
    br_build_free(b);
    br_arena_release(&arena);
    return rc;
}

/* allocated with exactly the size of the message, so that a sanitizer detects reads past it */
static inline int read_message(struct read *r, const struct message *m)
{
    uint8_t *exact = malloc(m->len ? m->len : 1);
    assert_non_null(exact);
    memcpy(exact, m->data, m->len);
    int rc = run(r, exact, m->len);
    free(exact);
    return rc;
}

static inline const char *string_at(const struct read *r, int32_t i)
{
    assert_true(i >= 0 && (size_t)i < r->request->dictionary->n_string_table);
    return r->request->dictionary->string_table[i];
}

static inline Profile *profile_at(const struct read *r, size_t i)
{
    assert_non_null(r->request);
    assert_int_equal(r->request->n_resource_profiles, 1);
    assert_int_equal(r->request->resource_profiles[0]->n_scope_profiles, 1);
    assert_true(i < r->request->resource_profiles[0]->scope_profiles[0]->n_profiles);
    return r->request->resource_profiles[0]->scope_profiles[0]->profiles[i];
}

static inline size_t n_profiles(const struct read *r)
{
    (void)profile_at(r, 0);
    return r->request->resource_profiles[0]->scope_profiles[0]->n_profiles;
}

/* Returns the value of a scope attribute, or NULL. */
static inline AnyValue *scope_value(const struct read *r, const char *key)
{
    (void)profile_at(r, 0);
    Opentelemetry__Proto__Common__V1__InstrumentationScope *s =
        r->request->resource_profiles[0]->scope_profiles[0]->scope;
    for (size_t i = 0; i < s->n_attributes; i++)
        if (!strcmp(s->attributes[i]->key, key))
            return s->attributes[i]->value;
    return NULL;
}

/* Returns the value of the attribute with this key, among the attributes with these indices.
 * Returns NULL if such an attribute does not exist. Sets `*ret_unit` to the unit of the attribute,
 * unless `ret_unit` is NULL. */
static inline AnyValue *value_of(const struct read *r, const int32_t *indices, size_t n,
                                 const char *key, const char **ret_unit)
{
    for (size_t i = 0; i < n; i++) {
        Opentelemetry__Proto__Profiles__V1development__KeyValueAndUnit *a =
            r->request->dictionary->attribute_table[indices[i]];
        if (!strcmp(string_at(r, a->key_strindex), key)) {
            if (ret_unit)
                *ret_unit = string_at(r, a->unit_strindex);
            return a->value;
        }
    }
    return NULL;
}

static inline const char *profile_text(const struct read *r, size_t i, const char *key)
{
    Profile *p = profile_at(r, i);
    AnyValue *v = value_of(r, p->attribute_indices, p->n_attribute_indices, key, NULL);
    return v ? v->string_value : NULL;
}

static inline void done(struct read *r)
{
    if (r->request)
        free_unpacked(r->request, NULL);
    r->request = NULL;
    free_messages();
}

/* --- Written by hand -------------------------------------------------------------------------- */

static inline struct message *strings(const char *const *texts, size_t n)
{
    struct message *m = new_message(0);
    for (size_t i = 0; i < n; i++)
        m = join(m, text(PSTRING, texts[i]));
    return m;
}

static const char *const texts[] = {"",
                                    "cpu",
                                    "nanoseconds",
                                    "samples",
                                    "count",
                                    "main",
                                    "main.go",
                                    "/bin/app",
                                    "b1d",
                                    "span_id",
                                    "trace_id",
                                    "profile_id",
                                    "00F067AA0BA902B7",
                                    "4bf92f3577b34da6a3ce929d0e0e4736",
                                    "bytes",
                                    "kilobytes",
                                    "user",
                                    "a comment",
                                    "https://doc",
                                    "^runtime",
                                    "^keep",
                                    "f00",
                                    "not hex"};
enum {
    CPU = 1,
    NANOSECONDS,
    SAMPLES,
    COUNT,
    MAIN,
    MAIN_GO,
    APP,
    BUILD_ID,
    SPAN_ID,
    TRACE_ID,
    PROFILE_ID,
    SPAN,
    TRACE,
    BYTES,
    KILOBYTES,
    USER,
    A_COMMENT,
    URL,
    RUNTIME,
    KEEP_TEXT,
    SHORT,
    NOT_HEX
};

static inline struct message *all_strings(void)
{
    return strings(texts, BR_COUNT(texts));
}

static inline struct message *type(uint64_t name, uint64_t unit)
{
    return nest(TYPE, number(1, name), number(2, unit), END);
}

static inline struct message *label(uint64_t key, uint64_t str, uint64_t num, uint64_t unit)
{
    return nest(3, number(1, key), number(2, str), number(3, num), number(4, unit), END);
}

/* Writes a sample of location 1 with two values and the given fields. */
static inline struct message *sample(struct message *more)
{
    return nest(SAMPLE, number(1, 1), bytes(2, "\1\2", 2), more ? more : new_message(0), END);
}

/* Returns a profile that contains these samples, one function, one mapping, one location, the
 * strings and two types. */
static inline struct message *around(struct message *samples)
{
    struct message *m = join(type(SAMPLES, COUNT), type(CPU, NANOSECONDS));
    m = join(m, nest(PMAPPING, number(1, 1), number(2, 4096), number(5, APP), END));
    m = join(m, nest(PLOCATION, number(1, 1), number(2, 1), number(3, 4100),
                     nest(4, number(1, 1), number(2, 9), END), END));
    m = join(m, nest(PFUNCTION, number(1, 1), number(2, MAIN), number(4, MAIN_GO), END));
    return join(join(m, samples), all_strings());
}
