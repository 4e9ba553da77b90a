/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "wal/internal.h"

static struct br_wal_queue *queue_of(struct br_list *link)
{
    return br_container_of(link, struct br_wal_queue, link);
}

struct br_wal_queue *br_wal_queue_find(struct br_wal *wal, const char *name, size_t len)
{
    size_t n = 0;
    for (struct br_list *l = wal->queues.next; l != &wal->queues; l = l->next, n++) {
        struct br_wal_queue *queue = queue_of(l);
        if (queue->name_len == len && memcmp(queue->name, name, len) == 0)
            return queue;
    }
    struct br_wal_queue *queue = n < WAL_QUEUES_MAX ? br_calloc(1, sizeof *queue) : NULL;
    if (!queue)
        return NULL;
    queue->name = br_strndup(name, len);
    if (!queue->name) {
        br_free(queue);
        return NULL;
    }
    queue->name_len = (uint16_t)len;
    queue->wal = wal;
    queue->next = queue->recovered = 1;
    queue->read_fd = -1;
    br_list_append(&wal->queues, &queue->link);
    return queue;
}

struct br_wal_queue *br_wal_queue(struct br_wal *wal, const char *name)
{
    size_t len = strlen(name);
    if (len > BR_FRAME_NAME_MAX)
        return NULL;
    (void)pthread_mutex_lock(&wal->lock);
    struct br_wal_queue *queue = br_wal_queue_find(wal, name, len);
    (void)pthread_mutex_unlock(&wal->lock);
    return queue;
}

bool br_wal_queue_has_unread(struct br_wal_queue *queue)
{
    (void)pthread_mutex_lock(&queue->wal->lock);
    bool has = queue->n_unread > 0;
    (void)pthread_mutex_unlock(&queue->wal->lock);
    return has;
}

bool br_wal_queue_skips(const struct br_wal_queue *queue, uint64_t number)
{
    return br_ranges_contain(&queue->done, number) || br_ranges_contain(&queue->held, number);
}

void br_wal_queue_use(struct br_wal_queue *queue)
{
    (void)pthread_mutex_lock(&queue->wal->lock);
    queue->used = true;
    (void)pthread_mutex_unlock(&queue->wal->lock);
}

void br_wal_queue_reread(struct br_wal_queue *queue)
{
    struct br_wal *wal = queue->wal;
    (void)pthread_mutex_lock(&wal->lock);
    uint64_t count = queue->total.n_requests[0] + queue->total.n_requests[1];
    if (count && wal->n_segments) {
        queue->n_unread = count;
        br_ranges_clear(&queue->held);
        queue->first_unread = 1;
        queue->unread = (struct wal_place){wal->segments[0].number, WAL_SEGMENT_HEADER};
    }
    (void)pthread_mutex_unlock(&wal->lock);
}

void br_wal_warn_unused(struct br_wal *wal)
{
    (void)pthread_mutex_lock(&wal->lock);
    for (struct br_list *l = wal->queues.next; l != &wal->queues; l = l->next) {
        const struct br_wal_queue *queue = queue_of(l);
        if (!queue->used && queue->n_unread)
            br_warn(&wal->config.log,
                    "%llu requests are stored for exporter %s, which is not in a pipeline or does "
                    "not use this storage; they remain stored until it does",
                    (unsigned long long)queue->n_unread, queue->name);
    }
    (void)pthread_mutex_unlock(&wal->lock);
}

struct br_wal_total br_wal_queue_total(struct br_wal_queue *queue)
{
    (void)pthread_mutex_lock(&queue->wal->lock);
    struct br_wal_total total = queue->total;
    (void)pthread_mutex_unlock(&queue->wal->lock);
    return total;
}

void br_wal_total_count(struct br_wal_total *total, bool add, unsigned signal, uint32_t n_records,
                        uint64_t bytes)
{
    unsigned s = signal & 1;
    total->n_requests[s] += add ? 1 : (uint64_t)-1;
    total->n_records[s] += add ? n_records : 0 - (uint64_t)n_records;
    total->bytes[s] += add ? bytes : 0 - bytes;
}

void br_wal_queue_mark(struct br_wal_queue *queue, uint64_t first, uint64_t last)
{
    if (br_ranges_add(&queue->done, first, last) == 0)
        (void)br_ranges_add(&queue->unwritten, first, last);
}

void br_wal_done(struct br_wal_queue *queue, uint64_t number, unsigned signal, uint32_t n_records,
                 size_t len)
{
    struct br_wal *wal = queue->wal;
    (void)pthread_mutex_lock(&wal->lock);
    if (!br_ranges_contain(&queue->done, number)) {
        br_wal_total_count(&queue->total, false, signal, n_records, len);
        br_wal_queue_mark(queue, number, number);
        br_wal_marks_add(queue, number);
    }
    (void)pthread_mutex_unlock(&wal->lock);
}

void br_wal_mark_delivered(struct br_wal_queue *queue, uint64_t number)
{
    /* if memory is short, the record may be delivered again after a restart */
    (void)br_ranges_add(&queue->unwritten, number, number);
    br_wal_marks_add(queue, number);
}

void br_wal_delivered(struct br_wal_record *record)
{
    struct br_wal *wal = record->queue->wal;
    (void)pthread_mutex_lock(&wal->lock);
    record->delivered = true;
    if (record->number)
        br_wal_mark_delivered(record->queue, record->number);
    (void)pthread_mutex_unlock(&wal->lock);
}

bool br_wal_has_unwritten(struct br_wal *wal)
{
    bool has = false;
    (void)pthread_mutex_lock(&wal->lock);
    for (struct br_list *l = wal->queues.next; l != &wal->queues && !has; l = l->next)
        has = queue_of(l)->unwritten.count > 0;
    (void)pthread_mutex_unlock(&wal->lock);
    return has;
}

void br_wal_queues_free(struct br_wal *wal)
{
    struct br_list *link;
    while ((link = br_list_shift(&wal->queues))) {
        struct br_wal_queue *queue = queue_of(link);
        br_ranges_release(&queue->done);
        br_ranges_release(&queue->damaged);
        br_ranges_release(&queue->held);
        br_ranges_release(&queue->unwritten);
        if (queue->read_fd >= 0)
            (void)close(queue->read_fd);
        br_free(queue->name);
        br_free(queue);
    }
}
