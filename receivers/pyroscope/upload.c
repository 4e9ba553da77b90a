/* SPDX-License-Identifier: Apache-2.0 */
#include "receivers/pyroscope/pyroscope.h"

#include <stdio.h>

#include "base/mem.h"
#include "ingest/reading.h"

/* Largest builder, in bytes of memory, that is kept for the next request. */
#define KEPT_BYTES (8u << 20)
/* Memory limit of an upload, as a multiple of its size. Profiles grow when converted to OTLP,
 * because each sample type has its own samples. */
#define GROWTH 4
/* Smallest memory limit for reading, in bytes, which applies if the limit of the body is small. */
#define SCRATCH_MIN (16u << 20)
#define SPARE ((size_t)1 << 20)

static size_t pyroscope_upload_scratch_max(const struct pyroscope_upload *upload)
{
    size_t max = upload->reading->max_body;
    max = max > BR_BUF_MAX / GROWTH ? BR_BUF_MAX : max * GROWTH;
    return max > SCRATCH_MIN ? max : SCRATCH_MIN;
}

int pyroscope_upload_begin(struct pyroscope_upload *upload, struct br_reading *reading)
{
    struct br_workbench *bench = reading->bench;
    *upload = (struct pyroscope_upload){.reading = reading};
    br_arena_init(&upload->scratch, pyroscope_upload_scratch_max(upload));
    if (!bench->build)
        bench->build = br_build_new(reading->host, pyroscope_upload_scratch_max(upload));
    upload->build = bench->build;
    upload->built = upload->build ? br_build_memory(upload->build) : 0;
    return upload->build ? 0 : br_err_set(&reading->err, BR_ENOMEM, "out of memory");
}

int pyroscope_upload_gunzip(struct pyroscope_upload *upload, struct pyroscope_upload_bytes *bytes)
{
    struct br_err *err = &upload->reading->err;
    struct pyroscope_upload_bytes current = *bytes;
    struct br_buf *plain = NULL;
    for (int i = 0; current.len >= 2 && current.data[0] == 0x1f && current.data[1] == 0x8b; i++) {
        struct br_buf *next = NULL;
        int rc = i == UPLOAD_LAYERS
                     ? br_err_set(err, BR_EINVAL, "more than %d layers of gzip", UPLOAD_LAYERS)
                     : br_reading_decompress(upload->reading, BR_ENCODING_GZIP, current.data,
                                             current.len, &next);
        br_buf_unref(plain);
        if (rc)
            return rc;
        plain = next;
        current = (struct pyroscope_upload_bytes){plain->data, plain->len};
    }
    if (plain && upload->n_plain == BR_COUNT(upload->plain)) {
        br_buf_unref(plain);
        return br_err_set(err, BR_EINVAL, "too many compressed pieces");
    }
    if (plain)
        upload->plain[upload->n_plain++] = plain;
    *bytes = current;
    return 0;
}

void pyroscope_upload_drop(struct pyroscope_upload *upload)
{
    while (upload->n_plain)
        br_buf_unref(upload->plain[--upload->n_plain]);
}

/* Sets the error for the arena `full`, which has reached its limit, and returns its code. The
 * code is not BR_ENOMEM, because a retry would fail in the same way. */
static int pyroscope_upload_too_large(struct pyroscope_upload *upload, const struct br_arena *full)
{
    return br_err_set(&upload->reading->err, BR_ETOOBIG,
                      "the request takes more than %zu bytes of memory", full->max);
}

void pyroscope_upload_limit(struct pyroscope_upload *upload)
{
    size_t max = pyroscope_upload_scratch_max(upload),
           unpacked = upload->reading->plain - upload->unpacked;
    size_t limit = GROWTH * (upload->body_len + unpacked) + SPARE;
    upload->scratch.max = limit < max ? limit : max;
    (void)br_build_limit(upload->build, upload->built + limit - upload->scratch.used);
}

int pyroscope_upload_read(struct pyroscope_upload *upload, enum br_profile_format format,
                          const struct br_profile_source *profile_source)
{
    struct br_arena scratch;
    struct br_profile_source source = *profile_source;
    source.lost = &upload->lost;
    br_arena_init(&scratch, pyroscope_upload_scratch_max(upload));
    int rc = br_profile_reading(upload->reading, format, &source, &scratch);
    if (rc == BR_ENOMEM && scratch.full)
        rc = pyroscope_upload_too_large(upload, &scratch);
    br_arena_release(&scratch);
    return rc;
}

void pyroscope_upload_leave_out(struct pyroscope_upload *upload, uint32_t count)
{
    if (!upload->n_bad)
        upload->first = upload->reading->err;
    upload->n_bad += count;
    upload->reading->err = (struct br_err){0};
}

/* Stores how many profiles and samples were left out, and the first error, in upload->reading. */
static void pyroscope_upload_report_lost(struct pyroscope_upload *upload)
{
    struct br_reading *reading = upload->reading;
    reading->n_left_out = upload->n_bad;
    if (upload->n_bad)
        (void)snprintf(reading->left_out, sizeof reading->left_out,
                       "%u of the profiles were rejected, the others accepted: %.300s",
                       upload->n_bad, upload->first.text);
    reading->n_lost = upload->lost.count;
    (void)snprintf(reading->lost, sizeof reading->lost, "%.199s", upload->lost.first.text);
    reading->n_strays = upload->lost.strays;
    (void)snprintf(reading->stray, sizeof reading->stray, "%.199s", upload->lost.first_stray.text);
}

void pyroscope_upload_on_read(struct br_upload *upload, const struct br_reading *reading)
{
    struct pyroscope *p = upload->arg;
    char flaws[BR_FLAWS_SIZE];
    if (br_meter_flaws(upload->meter, reading, flaws))
        br_node_warn(p->ingest.node, &p->lost_limit, "profile: %s", flaws);
}

static int pyroscope_upload_make_item(struct pyroscope_upload *upload)
{
    struct br_reading *reading = upload->reading;
    int rc = 0;
    if (!reading->item) {
        reading->item = br_item_new(reading->host, BR_PROFILES);
        rc = reading->item ? br_build_take(upload->build, reading->item) : BR_ENOMEM;
    }
    if (!rc)
        pyroscope_upload_report_lost(upload);
    return rc;
}

int pyroscope_upload_end(struct pyroscope_upload *upload, int rc)
{
    struct br_workbench *bench = upload->reading->bench;
    if (rc == BR_ENOMEM && upload->scratch.full)
        rc = pyroscope_upload_too_large(upload, &upload->scratch);
    if (!rc)
        rc = pyroscope_upload_make_item(upload);
    pyroscope_upload_drop(upload);
    br_arena_release(&upload->scratch);
    if (upload->build) {
        (void)br_build_limit(upload->build, BR_BUF_MAX);
        br_build_clear(upload->build);
    }
    if (upload->build && br_build_memory(upload->build) > KEPT_BYTES) {
        br_build_free(upload->build);
        bench->build = NULL;
    }
    return rc ? rc : br_profile_reading_cut(upload->reading);
}
