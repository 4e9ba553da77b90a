/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads requests of Datadog's profilers (POST /profiling/v1/input): a form with event.json, whose
 * tags describe the source, and files. Only pprofs and JFR recordings are read. Each file may be
 * compressed with gzip or zstd. Source: requests of dd-trace-py 4, dd-trace-go 2 and libdatadog.
 */
#include <string.h>

#include "base/bytes.h"
#include "ingest/reading.h"
#include "otlp/json/scan.h"
#include "receivers/pprof/pprof.h"
#include "wire/multipart.h"

#define FILES_MAX 16
#define DEPTH_MAX 32
#define TAGS_MAX (64u << 10) /* largest size of the tags in a request, in bytes */
/* largest amount of memory for converting the tags to a resource, as a multiple of TAGS_MAX */
#define TAGS_GROWTH 16u

/* --- Event ------------------------------------------------------------------------------------ */

/* Datadog's tags and the corresponding attributes of OpenTelemetry. */
static const struct {
    const char *tag, *label;
} datadog_labels[] = {
    {"service", "service_name"},
    {"env", "deployment.environment.name"},
    {"version", "service.version"},
    {"runtime-id", "service.instance.id"},
    {"host", "host.name"},
    {"process_id", "process.pid"},
    {"runtime", "process.runtime.name"},
    {"runtime_version", "process.runtime.version"},
    {"language", "telemetry.sdk.language"},
};

static const char *datadog_label(const char *tag, size_t len)
{
    for (size_t i = 0; i < BR_COUNT(datadog_labels); i++)
        if (br_bytes_are(tag, len, datadog_labels[i].tag))
            return datadog_labels[i].label;
    return NULL;
}

/* Parses tags such as "env:prod,service:shop". Tags that are not in the table are for Datadog's
 * backend and are left out, because each would become a label of the series. */
static int datadog_resource(struct br_reading *reading, const char *text, size_t len,
                            struct br_arena *arena, struct br_addition *ret)
{
    struct br_label labels[BR_COUNT(datadog_labels)];
    const char *end = br_mem_end(text, len);
    size_t n = 0;
    while (text < end && n < BR_COUNT(labels)) {
        const char *comma = memchr(text, ',', (size_t)(end - text)), *stop = comma ? comma : end;
        const char *colon = memchr(text, ':', (size_t)(stop - text));
        const char *label = colon ? datadog_label(text, (size_t)(colon - text)) : NULL;
        if (label && colon + 1 < stop)
            labels[n++] =
                (struct br_label){label, strlen(label), colon + 1, (size_t)(stop - colon - 1)};
        text = comma ? comma + 1 : end;
    }
    int rc = br_labels_resource(arena, labels, n, ret);
    rc = rc == BR_ENOMEM && arena->full ? BR_EINVAL : rc;
    return rc ? br_err_set(&reading->err, rc,
                           "event.json: the tags are too long, or memory is short")
              : 0;
}

/* Returns in `ret` the value of the member `tags_profiler` of the event. If the member is
 * repeated, the last one is used. */
static int datadog_tags(struct br_reading *reading, const struct br_form_field *event,
                        struct br_json_token *ret)
{
    static const char wanted[] = "tags_profiler";
    struct br_json_scan scan;
    struct br_json_token name, value;
    bool more = true;
    *ret = (struct br_json_token){.type = BR_JSON_NULL};
    int rc =
        br_json_scan_init(&scan, (const char *)event->data, event->len, DEPTH_MAX, &reading->err);
    if (!rc)
        rc = br_json_scan_value(&scan, &value);
    if (!rc && value.type != BR_JSON_OBJECT)
        rc = br_json_scan_fail(&scan, "not an object");
    if (!rc)
        rc = br_json_scan_enter(&scan);
    for (bool first = true; !rc; first = false) {
        rc = br_json_scan_more(&scan, '}', first, &more);
        if (rc || !more)
            break;
        rc = br_json_scan_name(&scan, &name);
        if (!rc)
            rc = br_json_scan_value(&scan, &value);
        if (rc)
            break;
        if (!name.escaped && br_bytes_are(name.text, name.len, wanted))
            *ret = value;
        rc = br_json_scan_skip(&scan, &value);
    }
    return rc ? rc : br_json_scan_end(&scan);
}

static int datadog_event(struct br_reading *reading, const struct br_form_field *event,
                         struct br_arena *arena, struct br_addition *ret)
{
    struct br_json_token tags;
    int rc = datadog_tags(reading, event, &tags);
    if (rc) {
        br_err_prefix(&reading->err, "event.json: ");
        return rc;
    }
    if (tags.type != BR_JSON_STRING)
        return 0;
    if (tags.len > TAGS_MAX)
        return br_err_set(&reading->err, BR_EINVAL, "event.json: more than %u bytes of tags",
                          TAGS_MAX);
    char *plain = br_arena_alloc(arena, tags.len + 1);
    if (!plain)
        return br_err_set(&reading->err, BR_ENOMEM, "out of memory");
    size_t len = br_json_plain(tags.text, tags.len, plain);
    return datadog_resource(reading, plain, len, arena, ret);
}

/* --- Files ------------------------------------------------------------------------------------ */

static enum br_encoding datadog_encoding(const struct br_form_field *file)
{
    static const uint8_t zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
    if (pprof_is_gzip(file->data, file->len))
        return BR_ENCODING_GZIP;
    return file->len >= sizeof zstd && memcmp(file->data, zstd, sizeof zstd) == 0
               ? BR_ENCODING_ZSTD
               : BR_ENCODING_NONE;
}

/* Returns true if a file of the form is a profile. Forms also contain lists of libraries,
 * metrics, and Go execution traces. */
static bool datadog_is_profile(const struct br_form_field *file)
{
    return br_text_ends(file->name, ".pprof") || br_text_ends(file->name, ".jfr") ||
           strcmp(file->name, "main") == 0;
}

static int datadog_plain(struct br_reading *reading, struct br_profile_source *source)
{
    enum br_profile_format format;
    if (source->len == 0)
        return 0;
    if (!br_profile_guess(source->data, source->len, &format) ||
        (format != BR_FORMAT_PPROF && format != BR_FORMAT_JFR))
        return br_err_set(&reading->err, BR_EINVAL, "neither a pprof nor a JFR recording");
    source->datadog = format == BR_FORMAT_PPROF;
    return pprof_build(reading, format, source);
}

static int datadog_file(struct br_reading *reading, const struct br_form_field *file,
                        const struct br_addition *resource)
{
    struct br_profile_source source = {.data = file->data,
                                       .len = file->len,
                                       .resource = resource,
                                       .start_ns = reading->now_ns,
                                       .end_ns = reading->now_ns};
    enum br_encoding encoding = datadog_encoding(file);
    struct br_buf *plain = NULL;
    int rc = 0;
    if (encoding != BR_ENCODING_NONE) {
        rc = br_reading_decompress(reading, encoding, file->data, file->len, &plain);
        source.data = plain ? plain->data : NULL;
        source.len = plain ? plain->len : 0;
    }
    if (!rc)
        rc = datadog_plain(reading, &source);
    if (rc)
        br_err_prefix(&reading->err, "file %s: ", file->name);
    br_buf_unref(plain);
    return rc;
}

/* --- Form ------------------------------------------------------------------------------------- */

static int datadog_form(struct br_reading *reading, struct br_form_field *fields, size_t *ret_n)
{
    char boundary[BR_BOUNDARY_MAX + 1];
    const struct br_buf *body = br_reading_bytes(reading);
    int rc = br_multipart_boundary(br_request_header(reading->request, "content-type"), boundary,
                                   &reading->err);
    return rc ? rc
              : br_multipart_parse(boundary, body->data, body->len, fields, FILES_MAX, ret_n,
                                   &reading->err);
}

static int datadog_read(struct br_reading *reading, struct br_arena *arena)
{
    struct br_form_field fields[FILES_MAX];
    struct br_addition resource = {0};
    size_t n = 0, n_read = 0;
    int rc = br_reading_unpack(reading);
    if (!rc)
        rc = datadog_form(reading, fields, &n);
    const struct br_form_field *event = rc ? NULL : br_form_find(fields, n, "event");
    if (!rc && !event)
        return br_err_set(&reading->err, BR_EINVAL, "the form has no field \"event\"");
    if (!rc)
        rc = datadog_event(reading, event, arena, &resource);
    for (size_t i = 0; i < n && !rc; i++) {
        if (!datadog_is_profile(&fields[i]))
            continue;
        n_read++;
        rc = datadog_file(reading, &fields[i], &resource);
    }
    return rc || n_read ? rc : br_err_set(&reading->err, BR_EINVAL, "the form has no profile");
}

int pprof_datadog_read(struct br_reading *reading)
{
    struct br_arena arena;
    br_arena_init(&arena, TAGS_GROWTH * TAGS_MAX);
    int rc = pprof_built(reading, datadog_read(reading, &arena));
    br_arena_release(&arena);
    if (!rc && !reading->item)
        rc = (reading->item = br_item_new(reading->host, BR_PROFILES)) ? 0 : BR_ENOMEM;
    return rc ? rc : br_profile_reading_cut(reading);
}
