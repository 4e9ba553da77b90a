/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/store_rig.h"

#include <dirent.h>
#include <unistd.h>

#include "otlp/walk/walk.h"
#include "tests/support/items.h"
#include "tests/support/test.h"

static void open_it(struct store_rig *rig)
{
    rig->store = br_store_get(&rig->host, "store");
    assert_non_null(rig->store);
}

void store_rig_init(struct store_rig *rig, uint64_t rows)
{
    static const struct br_host_ops ops = {0};
    *rig = (struct store_rig){.directory = "/tmp/braid-store-XXXXXX"};
    assert_int_equal(br_host_init(&rig->host, &ops, br_pool_new(1 << 20)), 0);
    assert_non_null(mkdtemp(rig->directory));
    rig->config = (struct br_store_config){.directory = rig->directory, .partition_rows = rows};
    open_it(rig);
    if (br_store_open(rig->store, &rig->config, &rig->log, &rig->err))
        fail_msg("%s", rig->err.text);
}

void store_rig_close(struct store_rig *rig)
{
    br_store_put(&rig->host, rig->store);
    rig->store = NULL;
}

int store_rig_reopen(struct store_rig *rig)
{
    store_rig_close(rig);
    open_it(rig);
    return br_store_open(rig->store, &rig->config, &rig->log, &rig->err);
}

void store_rig_release(struct store_rig *rig)
{
    char path[512];
    br_store_put(&rig->host, rig->store);
    DIR *folder = opendir(rig->directory);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        (void)snprintf(path, sizeof path, "%s/%s", rig->directory, entry->d_name);
        (void)unlink(path);
    }
    (void)closedir(folder);
    assert_int_equal(rmdir(rig->directory), 0);
    br_host_release(&rig->host);
    br_pool_free(rig->host.pool);
}

struct br_item *store_rig_item(struct store_rig *rig, enum br_signal signal, struct wire *request)
{
    struct br_walk_options options = {0};
    struct br_err err = {0};
    uint32_t repaired;
    struct br_buf *buf = br_buf_new(rig->host.pool, request->len);
    struct br_item *item = br_item_new(&rig->host, signal);
    assert_non_null(buf);
    assert_non_null(item);
    if (request->len)
        memcpy(buf->data, request->data, request->len);
    buf->len = (uint32_t)request->len;
    if (br_walk(item, buf, buf->data, buf->len, &options, &repaired, &err))
        fail_msg("%s", err.text);
    br_buf_unref(buf);
    wire_clear(request);
    return item;
}

int store_rig_write(struct store_rig *rig, enum br_signal signal, struct wire *request)
{
    const struct br_item *item = store_rig_item(rig, signal, request);
    rig->err = (struct br_err){.code = 0};
    int rc = br_store_write(rig->store, &item, 1, &rig->err);
    br_item_free((struct br_item *)(uintptr_t)item);
    return rc;
}

struct br_store_query *store_rig_ask(struct store_rig *rig)
{
    br_arena_init(&rig->arena, 1u << 30);
    rig->query = (struct br_store_query){.store = rig->store, .arena = &rig->arena};
    rig->err = (struct br_err){.code = 0};
    if (br_store_query_begin(&rig->query, &rig->err))
        fail_msg("%s", rig->err.text);
    return &rig->query;
}

void store_rig_answered(struct store_rig *rig)
{
    br_store_query_end(&rig->query);
    br_arena_release(&rig->arena);
}

unsigned store_rig_files(const struct store_rig *rig, const char *suffix)
{
    DIR *folder = opendir(rig->directory);
    unsigned count = 0;
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        size_t len = strlen(entry->d_name), wanted = strlen(suffix);
        count += len >= wanted && strcmp(entry->d_name + len - wanted, suffix) == 0;
    }
    (void)closedir(folder);
    return count;
}

int store_rig_items(struct store_rig *rig, enum br_signal signal, uint64_t first, uint32_t count)
{
    struct wire w = {0};
    items_request(&w, signal, first, count, 1);
    int rc = store_rig_write(rig, signal, &w);
    wire_free(&w);
    return rc;
}

bool store_rig_count(const struct br_stored_span *span, void *arg)
{
    uint8_t *seen = arg;
    seen[__builtin_bswap64(span->span_id)]++;
    return true;
}

void store_rig_read(struct store_rig *rig, uint8_t *seen)
{
    struct br_span_filter all = {.order = BR_SPANS_NEWEST};
    struct br_store_query *query = store_rig_ask(rig);
    assert_int_equal(br_store_spans(query, &all, store_rig_count, seen, &rig->err), 0);
    assert_null(query->cut);
    (void)snprintf(rig->note, sizeof rig->note, "%s", query->note ? query->note : "");
    store_rig_answered(rig);
}

struct br_store_usage store_rig_usage(struct store_rig *rig)
{
    struct br_store_usage usage;
    br_store_usage(rig->store, &usage);
    return usage;
}

void store_rig_path(const struct store_rig *rig, const char *name, char ret[256])
{
    (void)snprintf(ret, 256, "%s/%s", rig->directory, name);
}
