/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the conversion of a recording to OTLP. Reads a file (plain, not gzip) repeatedly, as if
 * a Pyroscope client had sent it. Prints events (those that are samples) per CPU second, one row a
 * line: name, a tab, the figure. The row `upload` reads the same file as an upload, without
 * aggregation.
 *
 *     jfr FILE [SECONDS]
 */
#include "profile/jfr/jfr.h"
#include "base/mem.h"
#include "bench/bench.h"
#include "core/host.h"
#include "profile/profile.h"

struct bench {
    struct br_host host;
    struct br_arena arena;
    struct br_buf *file;
    struct br_build *build;
    struct br_profile_source source;
    uint32_t n_events;
};

/* Returns the number of events that are samples. */
static uint32_t count_events(const struct bench *b)
{
    struct br_jfr_chunk c = {0};
    struct br_jfr_events events;
    struct br_err err = {0};
    uint64_t v[BR_JFR_N_SLOTS];
    uint32_t n = 0;
    for (size_t at = 0; at < b->file->len; at += c.size) {
        int type, rc = br_jfr_chunk_open(&c, b->file->data + at, b->file->len - at, &err);
        br_jfr_events_begin(&events, &c);
        while (!rc && (type = br_jfr_event(&c, &events, v, &err)) != 0) {
            n += type > 0 && type != BR_JFR_ACTIVE_SETTING;
            rc = type < 0 ? type : 0;
        }
        if (rc)
            die(err.text, "the recording");
    }
    br_jfr_chunk_release(&c);
    return n;
}

static void convert(struct bench *b)
{
    struct br_item *item = br_item_new(&b->host, BR_PROFILES);
    struct br_err err = {0};
    if (!item || br_profile_read(b->build, BR_FORMAT_JFR, &b->source, &b->arena, &err))
        die(item ? err.text : "no memory", "br_profile_read");
    if (br_build_take(b->build, item))
        die("no memory", "br_build_take");
    br_item_free(item);
    br_arena_release(&b->arena);
}

static void measure(struct bench *b, const char *name, double seconds)
{
    uint64_t events = 0;
    convert(b);
    double start = cpu_seconds(), end = start;
    while (end - start < seconds) {
        convert(b);
        events += b->n_events;
        end = cpu_seconds();
    }
    printf("%s\t%.0f\n", name, (double)events / (end - start));
}

int main(int argc, char **argv)
{
    static const struct br_host_ops ops = {0};
    if (argc < 2)
        die("FILE [SECONDS]", "usage");
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 3;
    struct bench b = {.host = {.ops = &ops, .pool = br_pool_new(BR_BUF_MAX)},
                      .arena = {.max = BR_BUF_MAX}};
    b.build = b.host.pool ? br_build_new(&b.host, BR_BUF_MAX) : NULL;
    if (!b.build)
        die("no memory", argv[0]);
    b.file = read_file(b.host.pool, argv[1]);
    b.n_events = count_events(&b);
    if (!b.n_events)
        die("no samples", argv[1]);
    b.source = (struct br_profile_source){
        .data = b.file->data, .len = b.file->len, .from_pyroscope = true, .sample_rate = 100};
    measure(&b, "jfr", seconds);
    b.source.from_pyroscope = false;
    measure(&b, "upload", seconds);
    br_build_free(b.build);
    br_buf_unref(b.file);
    br_pool_free(b.host.pool);
    return 0;
}
