/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command that runs the dictionary on files: `dictionary_tool OUT MODE [N] FILE...` reads export
 * requests, one per file, and writes results as OUT/<file number>-<result number>.pb:
 *
 *     roundtrip           each request, merged without the other requests
 *     merge               all requests merged into one
 *     split N             each request in pieces of at most N samples
 *     split-bytes N       each request in pieces of at most N bytes
 *     merge-split N       all requests merged into one, which is then split
 *     inline              each request with its references resolved
 *     divide N            each request divided by trace into N groups. The result number is the
 *                         number of the group: the first byte of the trace id, or the sum of the
 *                         bytes of another key, modulo N
 *     traces-split N, traces-split-bytes N, traces-divide N
 *                         the same for requests of traces
 *
 * Every result goes through the walk again, which must find the parts as they were announced.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/host.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/divide/divide.h"
#include "otlp/walk/walk.h"

#define FILE_MAX (64u << 20)

struct tool {
    struct br_host host;
    struct br_merge *merge;
    const char *out;
    int file, result;
    uint32_t max_items;
    size_t max_bytes;
};

static _Noreturn void die(const char *what, const char *name)
{
    (void)fprintf(stderr, "dictionary_tool: %s: %s\n", name, what);
    exit(1);
}

static struct br_item *walk(struct tool *t, enum br_signal signal, struct br_buf *buf,
                            const uint8_t *data, size_t len)
{
    struct br_item *item = br_item_new(&t->host, signal);
    const struct br_walk_options options = {.utf8 = BR_UTF8_REJECT};
    struct br_err err = {0};
    uint32_t repaired;
    if (!item || br_walk(item, buf, data, len, &options, &repaired, &err))
        die(err.text, "walk");
    return item;
}

static struct br_item *read_item(struct tool *t, enum br_signal signal, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END))
        die("cannot be read", path);
    long len = ftell(f);
    rewind(f);
    struct br_buf *buf =
        len >= 0 && len < (long)FILE_MAX ? br_buf_new(t->host.pool, (size_t)len) : NULL;
    if (!buf || fread(buf->data, 1, (size_t)len, f) != (size_t)len)
        die("cannot be read", path);
    (void)fclose(f);
    buf->len = (uint32_t)len;
    struct br_item *item = walk(t, signal, buf, buf->data, buf->len);
    br_buf_unref(buf);
    return item;
}

static void same_parts(const struct br_item *a, const struct br_item *b)
{
    if (a->n_records != b->n_records || a->n_parts != b->n_parts || a->size != b->size)
        die("what is announced is not what is there", "item");
    for (uint32_t i = 0; i < a->n_parts; i++) {
        const struct br_part *p = &a->parts[i], *q = &b->parts[i];
        if (p->kind != q->kind || p->n_records != q->n_records || p->raw_len != q->raw_len ||
            p->body_at != q->body_at)
            die("what is announced is not what is there", "part");
        if (p->kind == BR_PART_RESOURCE && !p->new_resource &&
            (p->res_at != q->res_at || p->res_len != q->res_len ||
             p->res_body_at != q->res_body_at))
            die("the Resource is not where it is announced", "part");
    }
}

/* Takes ownership of the item. */
static int write_item(struct br_item *item, void *arg)
{
    struct tool *t = arg;
    struct br_rope rope = {0};
    const uint8_t *data;
    char path[4096];
    if (br_item_write(item, &rope))
        die("no memory", "write");
    struct br_buf *flat = br_rope_flat(&rope, t->host.pool, &data);
    (void)snprintf(path, sizeof path, "%s/%04d-%06d.pb", t->out, t->file, t->result++);
    FILE *f = fopen(path, "wb");
    if (!flat || !f || fwrite(data, 1, rope.len, f) != rope.len || fclose(f))
        die("cannot be written", path);
    if (rope.len != item->size)
        die("has another size than announced", path);
    struct br_item *again = walk(t, item->signal, flat, data, rope.len);
    bool edited = false;
    for (uint32_t i = 0; i < item->n_parts; i++)
        edited = edited || item->parts[i].new_resource;
    if (!edited)
        same_parts(item, again);
    br_item_free(again);
    br_item_free(item);
    br_buf_unref(flat);
    br_rope_release(&rope);
    return 0;
}

static void add(struct tool *t, const struct br_item *item)
{
    size_t before = br_merge_size(t->merge);
    int rc = br_merge_add(t->merge, item);
    if (rc || br_merge_size(t->merge) < before)
        die(br_strerror(rc), "br_merge_add");
}

static struct br_item *take(struct tool *t)
{
    struct br_item *item = br_item_new(&t->host, BR_PROFILES);
    size_t size = br_merge_size(t->merge);
    uint32_t n = br_merge_records(t->merge);
    if (!item || br_merge_take(t->merge, item) || item->n_records != n || item->size > size)
        die("failed", "br_merge_take");
    if (br_merge_records(t->merge) || br_merge_size(t->merge))
        die("not empty afterwards", "br_merge_take");
    return item;
}

static void split(struct tool *t, const struct br_item *item)
{
    int rc = item->signal == BR_PROFILES
                 ? br_profiles_split(item, t->max_items, t->max_bytes, write_item, t)
                 : br_traces_split(item, t->max_items, t->max_bytes, write_item, t);
    if (rc)
        die(br_strerror(rc), "split");
}

static uint32_t bucket_of_trace(void *arg, const uint8_t trace_id[16])
{
    const struct tool *t = arg;
    return trace_id[0] % t->max_items;
}

static uint32_t bucket_of_key(void *arg, const uint8_t *key, size_t len)
{
    const struct tool *t = arg;
    uint32_t sum = 0;
    for (size_t i = 0; i < len; i++)
        sum += key[i];
    return sum % t->max_items;
}

static int write_group(struct br_item *group, uint32_t bucket, void *arg)
{
    struct tool *t = arg;
    t->result = (int)bucket;
    return write_item(group, t);
}

static void divide(struct tool *t, const struct br_item *item)
{
    const struct br_routing routing = {.max_buckets = t->max_items,
                                       .of_trace = bucket_of_trace,
                                       .of_key = bucket_of_key,
                                       .arg = t};
    int rc = br_item_divide(item, &routing, write_group, t);
    if (rc)
        die(br_strerror(rc), "br_item_divide");
}

/* Processes one request. Returns true if the mode combines all requests, so that no result was
 * written yet. */
static bool one_request(struct tool *t, const char *mode, struct br_item *item)
{
    bool merge = !strncmp(mode, "merge", 5);
    t->result = 0;
    if (merge || !strcmp(mode, "roundtrip"))
        add(t, item);
    if (!strcmp(mode, "roundtrip"))
        write_item(take(t), t);
    if (strstr(mode, "split") && !merge)
        split(t, item);
    if (strstr(mode, "divide"))
        divide(t, item);
    if (!strcmp(mode, "inline")) {
        if (br_item_inline_references(item) || br_item_has_references(item))
            die("failed", "br_item_inline_references");
        write_item(item, t);
        return false;
    }
    br_item_free(item);
    return merge;
}

int main(int argc, char **argv)
{
    static const struct br_host_ops ops = {0};
    struct tool t = {.out = argv[1]};
    struct br_pool *pool = br_pool_new(1u << 20);
    int at = 3;
    if (argc < 4 || !pool || br_host_init(&t.host, &ops, pool))
        die("OUT MODE [N] FILE...", "usage");
    const char *mode = argv[2];
    if (strstr(mode, "split") || strstr(mode, "divide")) {
        unsigned long n = strtoul(argv[at++], NULL, 10);
        if (strstr(mode, "bytes"))
            t.max_bytes = n;
        else
            t.max_items = (uint32_t)n;
    }
    t.merge = br_merge_new(&t.host, 256u << 20);
    enum br_signal signal = strncmp(mode, "traces", 6) ? BR_PROFILES : BR_TRACES;
    bool merge = false;
    for (; at < argc; at++, t.file++)
        merge = one_request(&t, mode, read_item(&t, signal, argv[at]));
    t.file = 0;
    if (merge) {
        struct br_item *item = take(&t);
        if (strcmp(mode, "merge-split")) {
            write_item(item, &t);
        } else {
            split(&t, item);
            br_item_free(item);
        }
    }
    br_merge_free(t.merge);
    br_host_release(&t.host);
    br_pool_free(pool);
    return 0;
}
