/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OTLP to pprof: samples per CPU second of a core, in pprof's samples (one for each line of values).
 * The input is a folder of profiles requests in protobuf, as for bench/merge.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "otlp/walk.h"
#include "pipeline/host.h"
#include "profile/pprof_write.h"

#define REQUESTS_MAX 4096u

struct totals {
    uint64_t samples, bytes, pprofs;
    const char *out; /* where the pprofs go, once; NULL: nowhere */
};

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static _Noreturn void die(const char *what, const char *name)
{
    (void)fprintf(stderr, "pprof_write: %s: %s\n", name, what);
    exit(1);
}

static struct br_item *read_item(struct br_host *host, const char *path)
{
    FILE *f = fopen(path, "rb");
    struct br_buf *buf = f ? br_buf_new(host->pool, 64u << 20) : NULL;
    if (!buf)
        die("cannot be read", path);
    size_t len = fread(buf->data, 1, buf->cap, f);
    (void)fclose(f);
    buf->len = (uint32_t)len;
    struct br_item *item = br_item_new(host, BR_PROFILES);
    struct br_walk_options options = {0};
    struct br_err err = {0};
    uint32_t repaired;
    if (!item || br_walk(item, buf, buf->data, len, &options, &repaired, &err))
        die(err.text, path);
    br_buf_unref(buf);
    return item;
}

static uint32_t read_folder(struct br_host *host, const char *folder, struct br_item **items)
{
    struct dirent **names;
    int found = scandir(folder, &names, NULL, alphasort);
    uint32_t n = 0;
    if (found < 0)
        die("cannot be read", folder);
    for (int i = 0; i < found; i++) {
        char path[4096];
        if (names[i]->d_name[0] != '.' && n < REQUESTS_MAX) {
            (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
            items[n++] = read_item(host, path);
        }
        free(names[i]);
    }
    free(names);
    if (n == 0)
        die("holds no requests", folder);
    return n;
}

static int on_pprof(const struct br_pprof_out *p, void *arg)
{
    struct totals *t = arg;
    char path[4096];
    t->samples += p->n_samples;
    t->bytes += p->buf->len;
    t->pprofs++;
    if (!t->out)
        return 0;
    (void)snprintf(path, sizeof path, "%s/%05llu.pprof", t->out, (unsigned long long)t->pprofs);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(p->buf->data, 1, p->buf->len, f) != p->buf->len || fclose(f))
        die("cannot be written", path);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct br_host_ops ops = {0};
    if (argc < 2)
        die("FOLDER [SECONDS [FOLDER FOR THE PPROFS]]", "usage");
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 3;
    struct br_host host = {.ops = &ops, .pool = br_pool_new(256u << 20)};
    struct br_item **items = br_calloc(REQUESTS_MAX, sizeof(struct br_item *));
    struct br_pprof_writer *w = br_pprof_writer_new(&host);
    if (!host.pool || !items || !w)
        die("no memory", argv[0]);
    uint32_t n = read_folder(&host, argv[1], items);
    struct totals t = {.out = argc > 3 ? argv[3] : NULL};
    for (uint32_t i = 0; i < n; i++)
        if (br_pprof_write(w, items[i], NULL, on_pprof, &t))
            die("no memory", "br_pprof_write");
    t = (struct totals){0};
    double start = cpu_seconds(), end = start;
    while (end - start < seconds) {
        for (uint32_t i = 0; i < n; i++)
            if (br_pprof_write(w, items[i], NULL, on_pprof, &t))
                die("no memory", "br_pprof_write");
        end = cpu_seconds();
    }
    printf("%.0f samples/CPU-s, %.2f us/pprof, %.1f MB/s out\n", (double)t.samples / (end - start),
           (end - start) * 1e6 / (double)t.pprofs, (double)t.bytes / (end - start) / 1e6);
    br_pprof_writer_free(w);
    for (uint32_t i = 0; i < n; i++)
        br_item_free(items[i]);
    br_free(items);
    br_pool_free(host.pool);
    return 0;
}
