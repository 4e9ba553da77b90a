/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worst bodies of uploads that contain packed profiles, at 1, 2, 4 and 8 MiB: forms of
 * Datadog's profilers, and Pyroscope's push as JSON. test_pprof_worst tests the profiles
 * themselves; this suite tests the formats around them. The number of steps (base/steps.h) must be
 * proportional to the body, also for a rejected request, and no answer may ask for a retry.
 */
#include "base/steps.h"
#include "tests/support/pyroscope_rig.h"
#include "tests/support/receiver_rig.h"
#include "tests/support/test.h"
#include "tests/support/worst.h"

extern const struct br_component br_pprof_receiver;

#define MIB ((size_t)1 << 20)
#define STEPS_MAX 64 /* per byte */
#define BODY_MAX "max_request_body_size: 67108864"

struct body {
    struct wire w;
    size_t size;
};

static void text(struct body *b, const char *text)
{
    wire_raw(&b->w, text, strlen(text));
}

/* Repeats the text until the body only has room for its end. */
static void fill(struct body *b, const char *unit)
{
    while (b->w.len + 1024 < b->size)
        text(b, unit);
}

/* --- Forms ------------------------------------------------------------------------------------ */

static void field(struct body *b, const char *name)
{
    text(b, "\r\n--x\r\nContent-Disposition: form-data; name=\"");
    text(b, name);
    text(b, "\"\r\n\r\n");
}

/* Writes a profile with a sample type and the empty string. */
static void put_profile(struct body *b)
{
    field(b, "profile.pprof");
    wire_raw(&b->w,
             "\x0a\x04\x08\x01\x10\x02\x32\x00\x32\x03"
             "cpu\x32\x05"
             "count",
             20);
}

static void event(struct body *b, const char *before, const char *unit, const char *after)
{
    field(b, "event");
    text(b, before);
    fill(b, unit);
    text(b, after);
    put_profile(b);
}

static void members(struct body *b)
{
    event(b, "{", "\"x\":0,", "\"x\":0}");
}

static void wanted_members(struct body *b)
{
    event(b, "{", "\"tags_profiler\":\"service:shop\",", "\"x\":0}");
}

static void long_name(struct body *b)
{
    event(b, "{\"", "tags_profiler", "\":0}");
}

static void long_tags(struct body *b)
{
    event(b, "{\"tags_profiler\":\"", "service:shop,", "\"}");
}

static void escaped_tags(struct body *b)
{
    event(b, "{\"tags_profiler\":\"", "\\u0061", "\"}");
}

static void nested(struct body *b)
{
    event(b, "{\"x\":[", "[[[[[[[[[[[[]]]]]]]]]]]],", "0]}");
}

static void not_closed(struct body *b)
{
    event(b, "{\"x\":", "[", "");
}

/* Writes texts that look almost like the boundary. */
static void nearly_boundaries(struct body *b)
{
    field(b, "event");
    text(b, "{}");
    put_profile(b);
    field(b, "metrics.json");
    fill(b, "\r\n--\r\n-");
}

static void many_fields(struct body *b)
{
    field(b, "event");
    text(b, "{}");
    while (b->w.len + 1024 < b->size)
        field(b, "profile.pprof");
}

static void long_header(struct body *b)
{
    field(b, "event");
    text(b, "{}");
    text(b, "\r\n--x\r\nContent-Disposition: form-data; name=\"");
    fill(b, "\\\"profile.pprof");
    text(b, "\"\r\n\r\n");
}

/* Writes fifteen files. Each file gets the labels of the event. */
static void many_files(struct body *b)
{
    field(b, "event");
    text(b, "{\"tags_profiler\":\"service:shop,env:");
    size_t until = b->w.len + 50000;
    while (b->w.len < until)
        text(b, "prod");
    text(b, "\"}");
    for (int i = 0; i < 15; i++) {
        put_profile(b);
        until = b->size / 15 * (size_t)(i + 1);
        while (b->w.len < until) /* samples with one value */
            wire_raw(&b->w, "\x12\x02\x10\x01", 4);
    }
}

static const struct shape {
    const char *name;
    void (*make)(struct body *b);
} forms[] = {
    {"members nobody knows", members}, {"tags again and again", wanted_members},
    {"a long name", long_name},        {"long tags", long_tags},
    {"escaped tags", escaped_tags},    {"lists in lists", nested},
    {"lists without end", not_closed}, {"nearly boundaries", nearly_boundaries},
    {"many fields", many_fields},      {"a long header", long_header},
    {"many files", many_files},
};

/* --- Push ------------------------------------------------------------------------------------- */

#define SERIES "{\"series\":["
#define LABELS "{\"labels\":[{\"name\":\"__name__\",\"value\":\"process_cpu\"}"
#define PACKED "CgQIARACMgAyA2NwdTIFY291bnQ=" /* the profile of put_profile in base64 */

static void push(struct body *b, const char *before, const char *unit, const char *after)
{
    text(b, before);
    fill(b, unit);
    text(b, after);
}

static void push_members(struct body *b)
{
    push(b, "{", "\"x\":{\"y\":[0]},", "\"series\":[]}");
}

static void push_empty_series(struct body *b)
{
    push(b, SERIES, "{},", "{}]}");
}

static void push_series(struct body *b)
{
    push(b, SERIES, LABELS "],\"samples\":[{\"rawProfile\":\"" PACKED "\"}]},", "{}]}");
}

static void push_labels(struct body *b)
{
    push(b, SERIES LABELS, ",{\"name\":\"a\",\"value\":\"b\"}",
         "],\"samples\":[{\"rawProfile\":\"" PACKED "\"}]}]}");
}

static void push_escaped_label(struct body *b)
{
    push(b, SERIES LABELS ",{\"name\":\"a\",\"value\":\"", "\\u00e9",
         "\"}],\"samples\":[{\"rawProfile\":\"" PACKED "\"}]}]}");
}

static void push_samples(struct body *b)
{
    push(b, SERIES LABELS "],\"samples\":[", "{\"rawProfile\":\"" PACKED "\"},", "{}]}]}");
}

static void push_empty_samples(struct body *b)
{
    push(b, SERIES LABELS "],\"samples\":[", "{},", "{}]}]}");
}

/* Repeats a key of an object. Only the last value counts. */
static void push_profile_again(struct body *b)
{
    push(b, SERIES LABELS "],\"samples\":[{", "\"rawProfile\":\"" PACKED "\",",
         "\"ID\":\"a\"}]}]}");
}

static void push_id(struct body *b)
{
    push(b, SERIES LABELS "],\"samples\":[{\"rawProfile\":\"" PACKED "\",\"ID\":\"", "0-",
         "\"}]}]}");
}

static void push_base64(struct body *b)
{
    push(b, SERIES LABELS "],\"samples\":[{\"rawProfile\":\"", "EgIQ", "\"}]}]}");
}

static void push_annotations(struct body *b)
{
    push(b, SERIES LABELS "],\"annotations\":[", "{\"key\":\"a\",\"value\":\"b\"},",
         "{}],\"samples\":[{\"rawProfile\":\"" PACKED "\"}]}]}");
}

static const struct shape pushes[] = {
    {"members nobody knows", push_members},
    {"empty series", push_empty_series},
    {"many series", push_series},
    {"many labels", push_labels},
    {"an escaped label", push_escaped_label},
    {"many samples", push_samples},
    {"empty samples", push_empty_samples},
    {"a profile again and again", push_profile_again},
    {"a long id", push_id},
    {"long base64", push_base64},
    {"annotations", push_annotations},
};

/* --- Sending ---------------------------------------------------------------------------------- */

static void check(const struct shape *shape, unsigned status, size_t len, uint64_t steps)
{
    if (getenv("BOUNDS_PRINT"))
        print_message("%s: %zu bytes, %u, %llu steps\n", shape->name, len, status,
                      (unsigned long long)steps);
    if (status != 200 && status != 400 && status != 413)
        fail_msg("%s of %zu bytes: %u", shape->name, len, status);
    if (steps > STEPS_MAX * len)
        fail_msg("%s of %zu bytes takes %llu steps", shape->name, len, (unsigned long long)steps);
}

static void send_form(const struct shape *shape, size_t size)
{
    struct receiver_rig r = {.quiet = true};
    struct body b = {.size = size};
    receiver_rig_start(&r, &br_pprof_receiver, "http: {" BODY_MAX "}");
    r.quiet = true;
    shape->make(&b);
    text(&b, "\r\n--x--\r\n");
    struct fake_request *request = fake_request_new(r.h, "pprof http", "/profiling/v1/input");
    assert_non_null(request);
    fake_request_header(request, "content-type", "multipart/form-data; boundary=x");
    uint64_t before = br_steps();
    fake_request_send(request, b.w.data + 2, b.w.len - 2); /* without the first line break */
    /* large items are sent in pieces, one per loop iteration */
    fake_host_advance(r.h, 1000);
    uint64_t steps = br_steps() - before;
    assert_true(fake_request_reply(request)->came);
    check(shape, fake_request_reply(request)->status, b.w.len, steps);
    fake_request_free(request);
    wire_free(&b.w);
    receiver_rig_drain(&r);
    receiver_rig_end(&r);
}

static void send_push(const struct shape *shape, size_t size)
{
    struct fixture f;
    struct body b = {.size = size};
    pyroscope_start(&f, "{protocols: {http: {" BODY_MAX "}}}");
    f.quiet = true;
    f.outcome.verdict = BR_DONE;
    shape->make(&b);
    uint64_t before = br_steps();
    unsigned status =
        pyroscope_ask_wire(&f, (struct ask){.path = PUSH, .type = "application/json"}, &b.w);
    check(shape, status, b.w.len, br_steps() - before);
    wire_free(&b.w);
    free(pyroscope_last.body);
    pyroscope_last.body = NULL;
    pyroscope_end(&f);
}

static void forms_of_datadog(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(forms); i++)
        for (size_t size = MIB; size <= worst_mib_max() * MIB; size *= 2)
            send_form(&forms[i], size);
}

static void push_as_json(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(pushes); i++)
        for (size_t size = MIB; size <= worst_mib_max() * MIB; size *= 2)
            send_push(&pushes[i], size);
}

SUITE(uploads_worst)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(forms_of_datadog),
                                       cmocka_unit_test(push_as_json)};
    return RUN(tests, NULL, NULL);
}
