/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the merging of profiles requests. Reads a directory of export requests (one per file),
 * repeatedly merges 40 of them into a batch, and prints samples per CPU second.
 *
 *     merge DIRECTORY [SECONDS [REQUESTS_PER_BATCH]]
 */
#include <dirent.h>
#include <string.h>

#include "base/mem.h"
#include "bench/bench.h"
#include "core/host.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/walk/walk.h"

#define REQUESTS_MAX 4096u
#define BATCH_BYTES (256u << 20)

static struct br_item *read_item(struct br_host *host, const char *path)
{
    struct br_buf *buf = read_file(host->pool, path);
    struct br_item *item = br_item_new(host, BR_PROFILES);
    struct br_walk_options options = {0};
    struct br_err err = {0};
    uint32_t repaired;
    if (!item || br_walk(item, buf, buf->data, buf->len, &options, &repaired, &err))
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

int main(int argc, char **argv)
{
    static const struct br_host_ops ops = {0};
    if (argc < 2)
        die("FOLDER [SECONDS [REQUESTS_PER_BATCH]]", "usage");
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 3;
    unsigned long batch = argc > 3 ? strtoul(argv[3], NULL, 10) : 40;
    struct br_host host = {.ops = &ops, .pool = br_pool_new(256u << 20)};
    struct br_item **items = br_calloc(REQUESTS_MAX, sizeof(struct br_item *));
    struct br_merge *m = br_merge_new(&host, BATCH_BYTES);
    if (!host.pool || !items || !m || batch == 0)
        die("no memory", argv[0]);
    uint32_t n = read_folder(&host, argv[1], items), next = 0;
    size_t in = 0, out = 0, samples = 0, requests = 0;
    double start = cpu_seconds(), end = start;
    while (end - start < seconds) {
        for (unsigned long i = 0; i < batch; i++, next = (next + 1) % n) {
            int rc = br_merge_add(m, items[next]);
            if (rc)
                die(br_strerror(rc), "br_merge_add");
            in += items[next]->size;
        }
        struct br_item *merged = br_item_new(&host, BR_PROFILES);
        if (!merged || br_merge_take(m, merged))
            die("no memory", "br_merge_take");
        out += merged->size;
        samples += merged->n_records;
        requests += batch;
        br_item_free(merged);
        end = cpu_seconds();
    }
    printf("%.0f samples/CPU-s, %.2f us/request, %.1f MB/s in, out/in %.3f\n",
           (double)samples / (end - start), (end - start) * 1e6 / (double)requests,
           (double)in / (end - start) / 1e6, (double)out / (double)in);
    br_merge_free(m);
    for (uint32_t i = 0; i < n; i++)
        br_item_free(items[i]);
    br_free(items);
    br_pool_free(host.pool);
    return 0;
}
