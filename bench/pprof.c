/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the conversion of a pprof to OTLP and back. Reads a file (plain, not gzip) repeatedly,
 * then repeatedly writes the result. Prints samples of the pprof per CPU second, one row a line:
 * name, a tab, the figure.
 *
 *     pprof FILE [SECONDS]
 */
#include "base/mem.h"
#include "bench/bench.h"
#include "core/host.h"
#include "profile/pprof/write.h"
#include "profile/profile.h"
#include "wire/protobuf.h"

/* Largest number of conversions between two clock reads. */
#define LOOK_EACH 64

struct bench {
    struct br_host host;
    struct br_arena arena;
    struct br_buf *file;
    struct br_build *build;
    struct br_pprof_writer *writer;
    struct br_item *item; /* the file, converted to OTLP; input of the conversion back to pprof */
    uint32_t n_types;
};

static struct br_item *read_pprof(struct bench *b)
{
    const struct br_profile_source source = {.data = b->file->data, .len = b->file->len};
    struct br_item *item = br_item_new(&b->host, BR_PROFILES);
    struct br_err err = {0};
    if (!item || br_profile_read(b->build, BR_FORMAT_PPROF, &source, &b->arena, &err))
        die(item ? err.text : "no memory", "br_profile_read");
    if (br_build_take(b->build, item))
        die("no memory", "br_build_take");
    br_arena_release(&b->arena);
    return item;
}

/* Converts the file once. Returns the number of samples of the pprof. */
static uint32_t parse_pprof(struct bench *b)
{
    struct br_item *item = read_pprof(b);
    uint32_t n = item->n_records;
    br_item_free(item);
    return n / b->n_types;
}

static int on_pprof(const struct br_pprof_out *p, void *arg)
{
    uint32_t *n = arg;
    *n += p->n_samples;
    return 0;
}

static uint32_t write_pprof(struct bench *b)
{
    uint32_t n = 0;
    if (br_pprof_write(b->writer, b->item, NULL, on_pprof, &n))
        die("no memory", "br_pprof_write");
    return n;
}

static void measure(struct bench *b, const char *name, uint32_t (*work)(struct bench *),
                    double seconds)
{
    uint64_t samples = 0;
    (void)work(b);
    double start = cpu_seconds(), end = start;
    /* Reading the clock is a system call, which is expensive compared with a profile of a dozen
     * samples. */
    for (uint64_t some = 1; end - start < seconds;) {
        for (uint64_t i = 0; i < some; i++)
            samples += work(b);
        double now = cpu_seconds();
        if (some < LOOK_EACH && now - end < seconds / 100)
            some *= 2;
        end = now;
    }
    printf("%s\t%.0f\n", name, (double)samples / (end - start));
}

/* Returns the number of sample types of the file, read from its first fields. */
static uint32_t count_types(const struct bench *b)
{
    const uint8_t *p = b->file->data, *end = p + b->file->len;
    uint32_t n = 0;
    struct br_field f;
    while (p && p < end && (p = br_field_next(p, end, &f)))
        n += f.number == 1;
    return n;
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
    b.writer = br_pprof_writer_new(&b.host);
    if (!b.build || !b.writer)
        die("no memory", argv[0]);
    b.file = read_file(b.host.pool, argv[1]);
    b.n_types = count_types(&b);
    if (!b.n_types)
        die("no samples", argv[1]);
    measure(&b, "parse", parse_pprof, seconds);
    b.item = read_pprof(&b);
    measure(&b, "write", write_pprof, seconds);
    br_item_free(b.item);
    br_pprof_writer_free(b.writer);
    br_build_free(b.build);
    br_buf_unref(b.file);
    br_pool_free(b.host.pool);
    return 0;
}
