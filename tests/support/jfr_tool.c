/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `jfr_tool [-u] RECORDING [LABELS]`: what the recording becomes, as text (profile_view.h), as if a
 * Pyroscope client had sent it with times 1 s and 11 s and 100 Hz; -u: as an upload without any of that.
 * tests/data/jfr/expect writes the same with Pyroscope's reader.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/host.h"
#include "profile/profile.h"
#include "tests/support/profile_view.h"

#define FILE_MAX (256u << 20)

static _Noreturn void die(const char *what)
{
    (void)fprintf(stderr, "jfr_tool: %s\n", what);
    exit(1);
}

static uint8_t *read_file(const char *path, size_t *ret_len)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END))
        die(path);
    long len = ftell(f);
    rewind(f);
    uint8_t *data = len >= 0 && len < (long)FILE_MAX ? malloc((size_t)len + 1) : NULL;
    if (!data || fread(data, 1, (size_t)len, f) != (size_t)len)
        die(path);
    (void)fclose(f);
    *ret_len = (size_t)len;
    return data;
}

static void print(struct br_host *host, struct br_build *b)
{
    struct br_item *item = br_item_new(host, BR_PROFILES);
    struct br_rope rope = {0};
    struct br_str out = {.max = 1u << 30};
    const uint8_t *data;
    if (!item || br_build_take(b, item) || br_item_write(item, &rope))
        die("cannot be written");
    struct br_buf *flat = br_rope_flat(&rope, host->pool, &data);
    if (!flat)
        die("no memory");
    profile_view(data, rope.len, &out);
    if (out.data)
        (void)fputs(out.data, stdout);
    br_str_release(&out);
    br_buf_unref(flat);
    br_rope_release(&rope);
    br_item_free(item);
}

int main(int argc, char **argv)
{
    static const struct br_host_ops ops = {0};
    struct br_host host;
    struct br_arena scratch = {0};
    struct br_err err = {0};
    struct br_profile_source s = {0};
    bool upload = argc > 1 && strcmp(argv[1], "-u") == 0;
    argv += upload;
    argc -= upload;
    if (argc < 2 || br_host_init(&host, &ops, br_pool_new(1 << 20)))
        die("[-u] RECORDING [LABELS]");
    uint8_t *data = read_file(argv[1], &s.len), *labels = NULL;
    s.data = data;
    if (argc > 2)
        s.labels = labels = read_file(argv[2], &s.labels_len);
    if (!upload) {
        s.from_pyroscope = true;
        s.start_ns = 1000000000;
        s.end_ns = 11000000000;
        s.sample_rate = 100;
    }
    struct br_build *b = br_build_new(&host, 256u << 20);
    if (!b)
        die("no memory");
    if (br_jfr_read(b, &s, &scratch, &err))
        die(err.text);
    if (br_build_items(b))
        print(&host, b);
    br_build_free(b);
    br_arena_release(&scratch);
    free(labels);
    free(data);
    br_host_release(&host);
    br_pool_free(host.pool);
    return 0;
}
