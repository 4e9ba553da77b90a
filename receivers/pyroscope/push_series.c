/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the content of a PushRequest. Source: grafana/pyroscope pkg/distributor, pkg/validation. */
#include <string.h>

#include "push/v1/push.pb-c.h"
#include "receivers/pyroscope/pyroscope.h"

/* Allocator that records failures, because protobuf-c does not distinguish malformed messages
 * from missing memory. */
struct memory {
    ProtobufCAllocator pb;
    struct br_arena *arena;
    bool failed;
};

static void *push_series_allocate(void *data, size_t size)
{
    struct memory *memory = data;
    void *p = br_arena_alloc(memory->arena, size);
    memory->failed = memory->failed || !p;
    return p;
}

static void push_series_release(void *data, void *memory)
{
    (void)data;
    (void)memory; /* nothing is freed here: the memory is freed with the arena */
}

static int push_series_invalid(struct pyroscope_upload *upload, size_t series, const char *why,
                               const char *what)
{
    return br_err_set(&upload->reading->err, BR_EINVAL, "series[%zu]: %s%s", series, why, what);
}

/* --- Labels ----------------------------------------------------------------------------------- */

static const char *push_series_value_of(const Push__V1__RawProfileSeries *series, const char *name)
{
    for (size_t i = 0; i < series->n_labels; i++)
        if (strcmp(series->labels[i]->name, name) == 0)
            return series->labels[i]->value;
    return "";
}

/* Returns true if the total size of a series' labels is within the limit. The limit exists
 * because the labels of a series are written again for each of its profiles. */
static bool push_series_are_short(const Push__V1__RawProfileSeries *series)
{
    size_t available = BR_APP_NAME_MAX;
    for (size_t i = 0; i < series->n_labels; i++) {
        size_t len = strlen(series->labels[i]->name) + strlen(series->labels[i]->value);
        if (len > available)
            return false;
        available -= len;
    }
    return true;
}

static int push_series_check_labels(struct pyroscope_upload *upload,
                                    const Push__V1__RawProfileSeries *series, size_t at)
{
    if (series->n_labels == 0)
        return push_series_invalid(upload, at,
                                   "error at least one label pair is required per profile", "");
    if (series->n_labels > BR_LABELS_MAX || !push_series_are_short(series))
        return push_series_invalid(upload, at, "too many labels, or a label is too long", "");
    if (!push_series_value_of(series, "__name__")[0])
        return push_series_invalid(upload, at, "invalid metric name: a label __name__ is required",
                                   "");
    for (size_t i = 0; i < series->n_labels; i++) {
        if (!series->labels[i]->name[0])
            return push_series_invalid(upload, at, "a label has no name", "");
        for (size_t k = 0; k < i; k++)
            if (strcmp(series->labels[k]->name, series->labels[i]->name) == 0)
                return push_series_invalid(upload, at,
                                           "duplicate label name: ", series->labels[i]->name);
    }
    return 0;
}

static int push_series_make_labels(struct pyroscope_upload *upload,
                                   const Push__V1__RawProfileSeries *series, size_t at,
                                   struct br_addition *ret)
{
    struct br_label *labels =
        br_arena_calloc(&upload->scratch, series->n_labels + 1, sizeof *labels);
    size_t n = 0;
    if (!labels)
        return br_err_set(&upload->reading->err, BR_ENOMEM, "out of memory");
    if (!push_series_value_of(series, "service_name")[0])
        labels[n++] = (struct br_label){"service_name", 12, "unknown_service", 15};
    for (size_t i = 0; i < series->n_labels; i++) {
        const char *name = series->labels[i]->name, *value = series->labels[i]->value;
        if (strcmp(name, "__name__") != 0 && (value[0] || strcmp(name, "service_name") != 0))
            labels[n++] = (struct br_label){name, strlen(name), value, strlen(value)};
    }
    int rc = br_labels_resource(&upload->scratch, labels, n, ret);
    return rc == BR_EINVAL
               ? push_series_invalid(upload, at, "too many labels, or a label is too long", "")
               : rc;
}

/* --- Profiles --------------------------------------------------------------------------------- */

/* Parses a UUID with or without hyphens. Returns false if the text is not a UUID. */
static bool push_series_read_uuid(const char *text, uint8_t ret[16])
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

static int push_series_read_sample(struct pyroscope_upload *upload,
                                   const Push__V1__RawSample *sample,
                                   struct br_profile_source *source)
{
    struct pyroscope_upload_bytes bytes = {sample->raw_profile.data, sample->raw_profile.len};
    uint8_t id[16];
    int rc = pyroscope_upload_gunzip(upload, &bytes);
    pyroscope_upload_limit(upload);
    source->profile_id = push_series_read_uuid(sample->id, id) ? id : NULL;
    source->data = bytes.data;
    source->len = bytes.len;
    if (!rc && source->len)
        rc = pyroscope_upload_read(upload, BR_FORMAT_PPROF, source);
    source->profile_id = NULL;
    pyroscope_upload_drop(upload);
    return rc;
}

static int push_series_read_samples(struct pyroscope_upload *upload,
                                    const Push__V1__RawProfileSeries *series, size_t at,
                                    struct br_profile_source *source)
{
    int rc = 0;
    for (size_t i = 0; i < series->n_samples && !rc; i++) {
        br_build_mark(upload->build);
        rc = push_series_read_sample(upload, series->samples[i], source);
        if (rc)
            br_err_prefix(&upload->reading->err, "series[%zu].samples[%zu]: ", at, i);
        if (rc == BR_EINVAL) {
            br_build_undo(upload->build);
            pyroscope_upload_leave_out(upload, 1);
            rc = 0;
        }
    }
    return rc;
}

static int push_series_read(struct pyroscope_upload *upload,
                            const Push__V1__RawProfileSeries *series, size_t at, uint64_t now_ns)
{
    struct br_addition resource = {0};
    int rc = push_series_check_labels(upload, series, at);
    if (!rc)
        rc = push_series_make_labels(upload, series, at, &resource);
    if (rc == BR_EINVAL) {
        pyroscope_upload_leave_out(upload, (uint32_t)series->n_samples);
        return 0;
    }
    struct br_profile_source source = {
        .resource = &resource,
        .pyroscope_name = push_series_value_of(series, "__name__"),
        .from_pyroscope = true,
        .go_totals = strcmp(push_series_value_of(series, "__delta__"), "false") != 0,
        .start_ns = now_ns,
        .end_ns = now_ns};
    return rc ? rc : push_series_read_samples(upload, series, at, &source);
}

/* Returns 0 if at least one profile of the request was read. If no profile was read, returns
 * BR_EINVAL with the message of the first profile that was left out. */
static int push_series_check_any(struct pyroscope_upload *upload, size_t count)
{
    if (count == 0)
        return br_err_set(&upload->reading->err, BR_EINVAL, "no profiles received");
    if (count > upload->n_bad)
        return 0;
    upload->reading->err = upload->first;
    return BR_EINVAL;
}

int pyroscope_read_push(struct pyroscope_upload *upload, const uint8_t *data, size_t len)
{
    struct memory memory = {.pb = {push_series_allocate, push_series_release, &memory},
                            .arena = &upload->scratch};
    uint64_t now_ns = upload->reading->now_ns;
    upload->body_len = len;
    upload->unpacked = upload->reading->plain;
    pyroscope_upload_limit(upload);
    Push__V1__PushRequest *request = push__v1__push_request__unpack(&memory.pb, len, data);
    size_t n = 0;
    int rc = 0;
    if (!request && memory.failed)
        return br_err_set(&upload->reading->err, BR_ENOMEM, "out of memory");
    if (!request)
        return br_err_set(&upload->reading->err, BR_EINVAL,
                          "the body is not a push.v1.PushRequest");
    for (size_t i = 0; i < request->n_series && !rc; i++) {
        n += request->series[i]->n_samples;
        if (request->series[i]->n_samples)
            rc = push_series_read(upload, request->series[i], i, now_ns);
    }
    return rc ? rc : push_series_check_any(upload, n);
}
