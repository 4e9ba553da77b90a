/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/durable_internal.h"

#include <string.h>

#include "base/mem.h"
#include "otlp/walk/walk.h"

/* limits of one read task, in requests and in bytes */
#define READ_REQUESTS 256u
#define READ_BYTES (4u << 20)

/* --- Reading ---------------------------------------------------------------------------------- */

/* Creates an item from the bytes of a record. If the data is malformed, the item has no parts and
 * `*ret_rc` is the error code. Returns NULL if memory is short. */
static struct br_item *reading_decode(struct reading *reading, const struct br_wal_found *found,
                                      struct br_buf *buf, int *ret_rc)
{
    struct br_item *item = br_item_new(&reading->task.host, (enum br_signal)(found->signal & 1));
    const struct br_walk_options options = {.utf8 = BR_UTF8_PASS, .max_depth = BR_WALK_DEPTH_MAX};
    uint32_t repaired;
    if (!item)
        return NULL;
    *ret_rc = br_walk(item, buf, buf->data + found->metadata_len, found->data_len, &options,
                      &repaired, &reading->err);
    if (*ret_rc == 0 && found->metadata_len) {
        char *metadata = br_arena_alloc(&item->arena, found->metadata_len);
        if (!metadata) {
            br_item_free(item);
            return NULL;
        }
        memcpy(metadata, buf->data, found->metadata_len);
        item->metadata = metadata;
    }
    if (*ret_rc == BR_ENOMEM) {
        br_item_free(item);
        return NULL;
    }
    return item;
}

/* Reads one record. Returns 0, BR_EAGAIN if the caller must try again, or another error code. */
static int reading_step(struct reading *reading, size_t *bytes)
{
    struct br_wal_found found;
    int rc = br_wal_read(reading->queue, &found, &reading->err), decoded = 0;
    if (rc)
        return rc;
    size_t len = found.metadata_len + found.data_len;
    struct br_buf *buf = br_pool_fits(reading->task.host.pool, len)
                             ? br_buf_new_exact(reading->task.host.pool, len)
                             : NULL;
    if (!buf)
        return BR_ENOMEM;
    rc = br_wal_read_take(reading->queue, &found, buf->data, &reading->err);
    if (rc) {
        br_buf_unref(buf);
        return rc == BR_EINVAL ? 0 : rc;
    }
    buf->len = (uint32_t)len;
    unsigned slot = br_durable_slot(reading->task.home, true);
    br_wal_process(reading->queue, slot, found.number);
    struct br_item *item = reading_decode(reading, &found, buf, &decoded);
    br_wal_process(reading->queue, slot, 0);
    br_buf_unref(buf);
    if (!item)
        return BR_ENOMEM;
    /* Unix time; durable_restore converts it to monotonic time in the worker */
    item->received_ms = found.time_ns / 1000000;
    item->weight = len;
    br_durable_set_number(item, found.number);
    br_list_append(decoded ? &reading->invalid : &reading->items, &item->link);
    *bytes += len;
    return 0;
}

void br_durable_run_read(struct br_task *task)
{
    struct reading *reading = br_container_of(task, struct reading, task);
    size_t bytes = 0;
    reading->err = (struct br_err){0};
    reading->rc = 0;
    for (unsigned n = 0; n < READ_REQUESTS && bytes < READ_BYTES; n++) {
        int rc = reading_step(reading, &bytes);
        reading->rc = rc == BR_EAGAIN ? 0 : rc;
        if (reading->rc)
            break;
    }
    br_wal_read_end(reading->queue);
}

/* Converts a receive time from Unix milliseconds to monotonic milliseconds. */
static uint64_t durable_received_ms(struct br_durable *durable, uint64_t unix_ms)
{
    struct br_host *host = durable->node->host;
    uint64_t now_ms = br_host_unix_ns(host) / 1000000, mono_ms = br_host_mono_ms(host);
    uint64_t age_ms = now_ms > unix_ms ? now_ms - unix_ms : 0;
    return mono_ms > age_ms ? mono_ms - age_ms : 0;
}

static void durable_restore(struct br_durable *durable, struct br_item *item)
{
    br_item_move(item, durable->node->host);
    item->received_ms = durable_received_ms(durable, item->received_ms);
    br_item_restored(item, durable->node->ledger);
    br_durable_hold(durable, item);
}

static void durable_drop_invalid(struct br_durable *durable, struct br_item *item)
{
    struct br_outcome why =
        br_outcome_reject(BR_STATUS_DATA_LOSS, "%s", durable->reading->err.text);
    br_item_move(item, durable->node->host);
    br_item_restored(item, durable->node->ledger);
    br_node_drop(durable->node, item, "invalid", &why, &durable->log_limit);
    br_durable_end(durable, item);
}

void br_durable_restore_all(struct br_durable *durable)
{
    struct reading *reading = durable->reading;
    struct br_list *link;
    reading->running = false;
    if (!reading->task.ran)
        br_wal_read_end(reading->queue);
    while ((link = br_list_shift(&reading->items)))
        durable_restore(durable, br_container_of(link, struct br_item, link));
    while ((link = br_list_shift(&reading->invalid)))
        durable_drop_invalid(durable, br_container_of(link, struct br_item, link));
    br_hold_start(&durable->hold);
}

void br_durable_reading_free(struct reading *reading)
{
    if (reading)
        br_task_release(&reading->task);
    br_free(reading);
}

void br_durable_on_read(struct br_task *task)
{
    struct reading *reading = br_container_of(task, struct reading, task);
    struct br_durable *durable = reading->durable;
    if (!durable) {
        br_durable_reading_free(reading);
        return;
    }
    br_durable_restore_all(durable);
    if (!task->ran || !reading->rc || reading->rc == BR_ENOTFOUND) {
        br_durable_go_on(durable);
        return;
    }
    if (reading->rc != BR_ENOMEM)
        br_node_warn(durable->node, &durable->log_limit, "%s", reading->err.text);
    (void)br_host_timer(durable->node->host, &durable->again, DURABLE_AGAIN_MS, durable->again.fn);
}

void br_durable_read(struct br_durable *durable)
{
    struct reading *reading = durable->reading;
    bool room = durable->hold.bytes + durable->offered_bytes < DURABLE_MEMORY_LOW &&
                !br_host_over_limit(durable->node->host);
    if (!durable->queue || reading->running || durable->draining || !room ||
        !br_wal_read_begin(durable->queue))
        return;
    reading->running = true;
    br_task_start(&reading->task);
}
