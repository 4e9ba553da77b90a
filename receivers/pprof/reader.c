/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/mem.h"
#include "ingest/reading.h"
#include "receivers/pprof/pprof.h"

/* Memory limit of a conversion, as a multiple of the largest body. Profiles grow when converted
 * to OTLP, because each sample type has its own samples. */
#define GROWTH 4
/* Smallest memory limit of a conversion, in bytes. Small profiles can consist mainly of tables and
 * names, so the result may be larger than GROWTH times the body. */
#define GROWN_MIN (1u << 20)
/* largest number of samples of an item after which the builder is kept for the next profile */
#define KEPT_ITEMS 16384
/* largest number of gzip layers; some clients compress a .pb.gz file again */
#define GZIPS_MAX 2

/* --- Conversion to items ---------------------------------------------------------------------- */

static size_t reader_grown(size_t max)
{
    if (max > BR_BUF_MAX / GROWTH)
        return BR_BUF_MAX;
    return max * GROWTH > GROWN_MIN ? max * GROWTH : GROWN_MIN;
}

bool pprof_is_gzip(const uint8_t *data, size_t len)
{
    return len >= 2 && data[0] == 0x1f && data[1] == 0x8b;
}

int pprof_unpack(struct br_reading *reading)
{
    int rc = br_reading_unpack(reading);
    const struct br_buf *bytes = br_reading_bytes(reading);
    for (unsigned i = 0; i < GZIPS_MAX && !rc && bytes; i++) {
        struct br_buf *plain = NULL;
        if (!pprof_is_gzip(bytes->data, bytes->len))
            break;
        rc = br_reading_decompress(reading, BR_ENCODING_GZIP, bytes->data, bytes->len, &plain);
        if (rc == 0)
            br_reading_replace(reading, plain);
        bytes = br_reading_bytes(reading);
    }
    return rc;
}

int pprof_guess(const uint8_t *data, size_t len, enum br_profile_format *ret, struct br_err *err)
{
    *ret = BR_FORMAT_FOLDED;
    if (len == 0 || br_profile_guess(data, len, ret))
        return 0;
    const char *mistake = br_profile_known_mistake(data, len);
    return br_err_set(err, BR_EINVAL, "%s",
                      mistake
                          ? mistake
                          : "unknown format: not pprof, JFR, speedscope, .cpuprofile, a Firefox "
                            "profile, perf script or folded text");
}

/* Adds a profile to the builder. Temporary memory is freed before the item is created. */
int pprof_build(struct br_reading *reading, enum br_profile_format format,
                const struct br_profile_source *profile_source)
{
    struct br_arena scratch;
    if (!reading->bench->build)
        reading->bench->build = br_build_new(reading->host, reader_grown(reading->max_body));
    if (!reading->bench->build)
        return br_err_set(&reading->err, BR_ENOMEM, "out of memory");
    struct br_profile_lost lost = {0};
    struct br_profile_source source = *profile_source;
    source.lost = &lost;
    br_arena_init(&scratch, reader_grown(reading->max_body));
    int rc = br_profile_reading(reading, format, &source, &scratch);
    br_arena_release(&scratch);
    if (lost.count && !reading->n_lost)
        (void)snprintf(reading->lost, sizeof reading->lost, "%.199s", lost.first.text);
    reading->n_lost += lost.count;
    if (lost.strays && !reading->n_strays)
        (void)snprintf(reading->stray, sizeof reading->stray, "%.199s", lost.first_stray.text);
    reading->n_strays += lost.strays;
    return rc;
}

static int reader_make_item(struct br_reading *reading)
{
    struct br_item *item = br_item_new(reading->host, BR_PROFILES);
    int rc = item ? br_build_take(reading->bench->build, item) : BR_ENOMEM;
    if (rc) {
        br_item_free(item);
        return br_err_set(&reading->err, rc, "the profile cannot be converted: %s",
                          br_strerror(rc));
    }
    reading->item = item;
    return 0;
}

int pprof_read(struct br_reading *reading, enum br_profile_format format,
               const struct br_profile_source *source)
{
    int rc = source->len ? pprof_build(reading, format, source) : 0;
    if (!rc && source->len && format != BR_FORMAT_PPROF && !reading->item &&
        !br_build_records(reading->bench->build))
        rc = br_err_set(&reading->err, BR_EINVAL, "no sample of the profile could be read%s",
                        format == BR_FORMAT_JFR ? ": it contains no supported events" : "");
    return pprof_built(reading, rc);
}

int pprof_built(struct br_reading *reading, int rc)
{
    if (!rc && !reading->item && reading->bench->build && br_build_records(reading->bench->build))
        rc = reader_make_item(reading);
    bool large = reading->item && reading->item->n_records > KEPT_ITEMS;
    if (large || rc == BR_ENOMEM) {
        br_build_free(reading->bench->build);
        reading->bench->build = NULL;
    } else if (reading->bench->build) {
        br_build_clear(reading->bench->build);
    }
    return rc;
}

/* --- Conversion immediately or in a thread ---------------------------------------------------- */

int pprof_reader_init(struct pprof_reader *reader, struct br_host *host, size_t max)
{
    *reader = (struct pprof_reader){.host = host, .max = max};
    return br_workbench_init(&reader->bench);
}

void pprof_reader_release(struct pprof_reader *reader)
{
    br_workbench_release(&reader->bench);
}

static const struct br_request no_request = {.query = ""};

static struct br_reading reader_settings(struct pprof_reader *reader, const void *arg)
{
    return (struct br_reading){.arg = arg,
                               .request = &no_request,
                               .signal = BR_PROFILES,
                               .format = BR_UPLOAD_OTHER,
                               .max_body = reader->max,
                               .now_ns = br_host_unix_ns(reader->host),
                               .max_now = PPROF_READ_NOW,
                               .host = reader->host,
                               .bench = &reader->bench};
}

void pprof_reader_start(struct pprof_reader *reader, struct br_buf *body, br_read_fn *read,
                        const void *arg, br_reading_end_fn *end, void *user,
                        struct br_reading_task **ret)
{
    struct br_reading settings = reader_settings(reader, arg);
    settings.body = body ? br_buf_ref(body) : NULL;
    br_reading_start(&settings, read, end, user, NULL, ret);
}

void pprof_reader_start_in_thread(struct pprof_reader *reader, br_read_fn *read, const void *arg,
                                  br_reading_end_fn *end, void *user, struct br_reading_task **ret)
{
    struct br_reading settings = reader_settings(reader, arg);
    settings.kind = BR_WORK_DISK;
    br_reading_start(&settings, read, end, user, NULL, ret);
}
