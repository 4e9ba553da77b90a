/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the walk over export requests. Reads a directory of them (one per file), walks all
 * repeatedly, and prints the best round's nanoseconds per record (span or sample). Each request is
 * copied first, so that it is in the cache like one that a receiver has just read.
 *
 *     walk traces|profiles DIRECTORY [ROUNDS]
 */
#include <dirent.h>
#include <string.h>

#include "bench/bench.h"
#include "core/host.h"
#include "otlp/walk/walk.h"

#define REQUESTS_MAX 4096u

static uint64_t mono_ms(struct br_host *h)
{
    (void)h;
    return 0;
}

int main(int argc, char **argv)
{
    static const struct br_host_ops ops = {.mono_ms = mono_ms};
    struct br_pool *pool = br_pool_new(64u << 20);
    struct br_host host;
    struct dirent **names;
    struct br_buf *requests[REQUESTS_MAX];
    unsigned n = 0, rounds = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 50;
    int found = argc > 2 ? scandir(argv[2], &names, NULL, alphasort) : -1;
    if (found < 0 || !pool || br_host_init(&host, &ops, pool)) {
        (void)fprintf(stderr, "usage: walk traces|profiles FOLDER [ROUNDS]\n");
        return 2;
    }
    for (int i = 0; i < found; i++) {
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/%s", argv[2], names[i]->d_name);
        if (names[i]->d_name[0] != '.' && n < REQUESTS_MAX)
            requests[n++] = read_file(pool, path);
        free(names[i]);
    }
    free(names);
    enum br_signal signal = strcmp(argv[1], "traces") == 0 ? BR_TRACES : BR_PROFILES;
    for (int variant = 0; variant < 2; variant++) {
        struct br_walk_memo memo = {0};
        double best = 1e30, copying = 1e30;
        uint64_t items = 0;
        for (unsigned r = 0; r < 2 * rounds; r++) {
            double start = cpu_ns();
            items = 0;
            for (unsigned i = 0; i < n; i++) {
                struct br_buf *copy = br_buf_new(pool, requests[i]->len);
                struct br_err err = {0};
                const struct br_walk_options options = {.spans = variant,
                                                        .memo = variant ? &memo : NULL};
                uint32_t repaired;
                (void)br_buf_append(&copy, requests[i]->data, requests[i]->len, requests[i]->len);
                struct br_item *item = br_item_new(&host, signal);
                if (r % 2 &&
                    br_walk(item, copy, copy->data, copy->len, &options, &repaired, &err)) {
                    (void)fprintf(stderr, "walk: %s\n", err.text);
                    return 1;
                }
                items += item->n_records;
                br_item_free(item);
                br_buf_unref(copy);
            }
            double took = cpu_ns() - start;
            if (r % 2)
                best = took < best ? took : best;
            else
                copying = took < copying ? took : copying;
        }
        (void)printf("%s%s: %.1f ns an item walked, %.1f ns copied\n", argv[1],
                     variant ? " with spans noted, dictionaries remembered" : "",
                     (best - copying) / (double)items, copying / (double)items);
        br_walk_memo_release(&memo);
    }
    for (unsigned i = 0; i < n; i++)
        br_buf_unref(requests[i]);
    br_host_release(&host);
    br_pool_free(pool);
    return 0;
}
