/* SPDX-License-Identifier: Apache-2.0 */
/* The content of a PushRequest. Source: grafana/pyroscope pkg/distributor, pkg/validation. */
#include <string.h>

#include "push/v1/push.pb-c.h"
#include "receivers/pyroscope/pyroscope.h"

/* protobuf-c does not say whether a message was bad or the memory short. */
struct memory {
    ProtobufCAllocator pb;
    struct br_arena *arena;
    bool failed;
};

static void *allocate(void *data, size_t size)
{
    struct memory *m = data;
    void *p = br_arena_alloc(m->arena, size);
    m->failed = m->failed || !p;
    return p;
}

static void release(void *data, void *p)
{
    (void)data;
    (void)p; /* dies with the arena */
}

static int invalid(struct upload *u, size_t series, const char *why, const char *what)
{
    return br_err_set(&u->r->err, BR_EINVAL, "series[%zu]: %s%s", series, why, what);
}

/* --- Labels ----------------------------------------------------------------------------------- */

static const char *value_of(const Push__V1__RawProfileSeries *s, const char *name)
{
    for (size_t i = 0; i < s->n_labels; i++)
        if (strcmp(s->labels[i]->name, name) == 0)
            return s->labels[i]->value;
    return "";
}

/* The name of the series is written for each of its profiles, as the others are. */
static bool are_short(const Push__V1__RawProfileSeries *s)
{
    size_t left = BR_APP_NAME_MAX;
    for (size_t i = 0; i < s->n_labels; i++) {
        size_t len = strlen(s->labels[i]->name) + strlen(s->labels[i]->value);
        if (len > left)
            return false;
        left -= len;
    }
    return true;
}

static int check_labels(struct upload *u, const Push__V1__RawProfileSeries *s, size_t at)
{
    if (s->n_labels == 0)
        return invalid(u, at, "error at least one label pair is required per profile", "");
    if (s->n_labels > BR_LABELS_MAX || !are_short(s))
        return invalid(u, at, "labels are too many, or too long", "");
    if (!value_of(s, "__name__")[0])
        return invalid(u, at, "invalid metric name: a label __name__ is required", "");
    for (size_t i = 0; i < s->n_labels; i++) {
        if (!s->labels[i]->name[0])
            return invalid(u, at, "a label has no name", "");
        for (size_t k = 0; k < i; k++)
            if (strcmp(s->labels[k]->name, s->labels[i]->name) == 0)
                return invalid(u, at, "duplicate label name: ", s->labels[i]->name);
    }
    return 0;
}

static int make_labels(struct upload *u, const Push__V1__RawProfileSeries *s, size_t at,
                       struct br_addition *ret)
{
    struct br_label *labels = br_arena_calloc(&u->scratch, s->n_labels + 1, sizeof *labels);
    size_t n = 0;
    if (!labels)
        return br_err_set(&u->r->err, BR_ENOMEM, "out of memory");
    if (!value_of(s, "service_name")[0])
        labels[n++] = (struct br_label){"service_name", 12, "unknown_service", 15};
    for (size_t i = 0; i < s->n_labels; i++) {
        const char *name = s->labels[i]->name, *value = s->labels[i]->value;
        if (strcmp(name, "__name__") != 0 && (value[0] || strcmp(name, "service_name") != 0))
            labels[n++] = (struct br_label){name, strlen(name), value, strlen(value)};
    }
    int rc = br_labels_resource(&u->scratch, labels, n, ret);
    return rc == BR_EINVAL ? invalid(u, at, "labels are too many, or too long", "") : rc;
}

/* --- Profiles --------------------------------------------------------------------------------- */

/* The 16 bytes of a UUID, with or without hyphens; false when it is none. */
static bool read_uuid(const char *text, uint8_t ret[16])
{
    char digits[32];
    size_t n = 0;
    for (; *text; text++) {
        if (*text == '-')
            continue;
        if (n == sizeof digits)
            return false;
        digits[n++] = *text;
    }
    return n == sizeof digits && br_hex_decode(digits, n, ret, 16) == 16;
}

static int read_sample(struct upload *u, const Push__V1__RawSample *sample,
                       struct br_profile_source *s)
{
    struct upload_bytes bytes = {sample->raw_profile.data, sample->raw_profile.len};
    uint8_t id[16];
    int rc = upload_gunzip(u, &bytes);
    upload_limit(u);
    s->profile_id = read_uuid(sample->id, id) ? id : NULL;
    s->data = bytes.data;
    s->len = bytes.len;
    if (!rc && s->len)
        rc = upload_read(u, BR_FORMAT_PPROF, s);
    s->profile_id = NULL;
    upload_drop(u);
    return rc;
}

static int read_samples(struct upload *u, const Push__V1__RawProfileSeries *series, size_t at,
                        struct br_profile_source *s)
{
    int rc = 0;
    for (size_t i = 0; i < series->n_samples && !rc; i++) {
        br_build_mark(u->build);
        rc = read_sample(u, series->samples[i], s);
        if (rc)
            br_err_prefix(&u->r->err, "series[%zu].samples[%zu]: ", at, i);
        if (rc == BR_EINVAL) {
            br_build_undo(u->build);
            upload_leave_out(u, 1);
            rc = 0;
        }
    }
    return rc;
}

static int read_series(struct upload *u, const Push__V1__RawProfileSeries *series, size_t at,
                       uint64_t now_ns)
{
    struct br_addition resource = {0};
    int rc = check_labels(u, series, at);
    if (!rc)
        rc = make_labels(u, series, at, &resource);
    if (rc == BR_EINVAL) {
        upload_leave_out(u, (uint32_t)series->n_samples);
        return 0;
    }
    struct br_profile_source s = {.resource = &resource,
                                  .pyroscope_name = value_of(series, "__name__"),
                                  .from_pyroscope = true,
                                  .counts_on = strcmp(value_of(series, "__delta__"), "false") != 0,
                                  .start_ns = now_ns,
                                  .end_ns = now_ns};
    return rc ? rc : read_samples(u, series, at, &s);
}

/* Where nothing is good, the first reason is that of the whole. */
static int check_any(struct upload *u, size_t n)
{
    if (n == 0)
        return br_err_set(&u->r->err, BR_EINVAL, "no profiles received");
    if (n > u->n_bad)
        return 0;
    u->r->err = u->first;
    return BR_EINVAL;
}

int pyroscope_read_push(struct upload *u, const uint8_t *data, size_t len)
{
    struct memory memory = {.pb = {allocate, release, &memory}, .arena = &u->scratch};
    uint64_t now_ns = u->r->now_ns;
    u->body_len = len;
    u->unpacked = u->r->plain;
    upload_limit(u);
    Push__V1__PushRequest *request = push__v1__push_request__unpack(&memory.pb, len, data);
    size_t n = 0;
    int rc = 0;
    if (!request && memory.failed)
        return br_err_set(&u->r->err, BR_ENOMEM, "out of memory");
    if (!request)
        return br_err_set(&u->r->err, BR_EINVAL, "the body is no push.v1.PushRequest");
    for (size_t i = 0; i < request->n_series && !rc; i++) {
        n += request->series[i]->n_samples;
        if (request->series[i]->n_samples)
            rc = read_series(u, request->series[i], i, now_ns);
    }
    return rc ? rc : check_any(u, n);
}
