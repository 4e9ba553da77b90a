/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "wal/internal.h"

bool br_wal_read_begin(struct br_wal_queue *queue)
{
    (void)pthread_mutex_lock(&queue->wal->lock);
    bool begins = !queue->reading && queue->n_unread > 0;
    queue->reading = queue->reading || begins;
    (void)pthread_mutex_unlock(&queue->wal->lock);
    return begins;
}

void br_wal_read_end(struct br_wal_queue *queue)
{
    (void)pthread_mutex_lock(&queue->wal->lock);
    queue->reading = false;
    (void)pthread_mutex_unlock(&queue->wal->lock);
}

/* A snapshot of the queue's read state, taken under the lock. */
struct reader {
    struct br_wal_queue *queue;
    struct wal_place place;
    uint64_t end; /* end of the segment in bytes; 0: the segment does not exist */
    uint64_t first_unread;
};

/* Fills the snapshot. Returns false if the queue has no unread records. */
static bool reader_look(struct reader *reader)
{
    struct br_wal_queue *queue = reader->queue;
    struct br_wal *wal = queue->wal;
    (void)pthread_mutex_lock(&wal->lock);
    bool more = queue->n_unread > 0;
    reader->place = queue->unread;
    reader->first_unread = queue->first_unread;
    const struct wal_segment *segment = br_wal_segment_find(wal, reader->place.segment);
    reader->end = segment ? segment->size : 0;
    (void)pthread_mutex_unlock(&wal->lock);
    return more;
}

static bool reader_is_here(const struct reader *reader)
{
    const struct wal_place *place = &reader->queue->unread;
    return place->segment == reader->place.segment && place->at == reader->place.at;
}

/* Moves the queue's read position to offset `at` in the same segment, unless another thread has
 * moved the position since reader_look. */
static void reader_move(struct reader *reader, uint64_t at)
{
    struct br_wal *wal = reader->queue->wal;
    (void)pthread_mutex_lock(&wal->lock);
    if (reader_is_here(reader))
        reader->queue->unread.at = at;
    (void)pthread_mutex_unlock(&wal->lock);
}

/* Marks all unread records with a smaller number than `number` as done. The reader did not find
 * these records, because their frames are damaged. The totals still include the damaged records,
 * because the size and signal of these records are unknown. Needs the lock. */
static void reader_forget(struct br_wal_queue *queue, uint64_t number)
{
    for (uint64_t n = queue->first_unread; n < number && queue->n_unread; n++) {
        if (br_wal_queue_skips(queue, n))
            continue;
        queue->n_unread--;
        br_wal_queue_mark(queue, n, n);
    }
}

/* Moves the read position to the start of the next segment. */
static void reader_next_segment(struct reader *reader)
{
    struct br_wal_queue *queue = reader->queue;
    struct br_wal *wal = queue->wal;
    (void)pthread_mutex_lock(&wal->lock);
    const struct wal_segment *segment = br_wal_segment_find(wal, reader->place.segment);
    bool grown = segment && segment->size > reader->end; /* data was appended since reader_look */
    uint32_t i = 0;
    while (i < wal->n_segments && wal->segments[i].number <= reader->place.segment)
        i++;
    if (reader_is_here(reader) && !grown) {
        if (i < wal->n_segments)
            queue->unread = (struct wal_place){wal->segments[i].number, WAL_SEGMENT_HEADER};
        else
            reader_forget(queue, queue->next);
    }
    (void)pthread_mutex_unlock(&wal->lock);
}

static int reader_open(struct reader *reader)
{
    struct br_wal_queue *queue = reader->queue;
    char path[WAL_PATH_MAX];
    if (queue->read_fd >= 0 && queue->read_segment == reader->place.segment)
        return 0;
    if (queue->read_fd >= 0)
        (void)close(queue->read_fd);
    br_wal_segment_path(queue->wal, reader->place.segment, path);
    queue->read_fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    queue->read_segment = reader->place.segment;
    return queue->read_fd >= 0 ? 0 : errno;
}

static int reader_fail(struct br_err *err, int error)
{
    char text[128];
    return br_err_set(err, BR_EIO, "cannot read the storage: %s",
                      strerror_r(error, text, sizeof text));
}

/* Returns true if the frame is a record that the queue still has to deliver. */
static bool reader_wants(const struct reader *reader, const struct wal_scan *scan)
{
    struct br_wal_queue *queue = reader->queue;
    const struct br_frame *frame = &scan->frame;
    if (frame->kind != BR_FRAME_RECORD || frame->number < reader->first_unread ||
        !br_bytes_equal(scan->name, frame->name_len, queue->name, queue->name_len))
        return false;
    (void)pthread_mutex_lock(&queue->wal->lock);
    bool wanted = !br_wal_queue_skips(queue, frame->number);
    (void)pthread_mutex_unlock(&queue->wal->lock);
    return wanted;
}

/* Examines one frame. Returns 0 if br_wal_read must return this record, BR_EAGAIN if the reader
 * must examine the next frame, or BR_EIO. */
static int reader_step(struct reader *reader, struct wal_scan *scan, struct br_err *err)
{
    int error = reader_open(reader);
    if (error == ENOENT)
        reader->end = 0; /* another thread has deleted the segment */
    else if (error)
        return reader_fail(err, error);
    *scan =
        (struct wal_scan){.fd = reader->queue->read_fd, .at = reader->place.at, .end = reader->end};
    int rc = br_wal_scan(scan);
    if (rc == BR_EIO)
        return reader_fail(err, errno);
    if (rc == BR_ENOTFOUND) {
        reader_next_segment(reader);
        return BR_EAGAIN;
    }
    if (rc == 0 && reader_wants(reader, scan))
        return 0;
    if (rc == 0) {
        br_wal_scan_next(scan);
    } else if (br_wal_scan_search(scan) == BR_EIO) {
        return reader_fail(err, errno);
    } else {
        br_wal_quarantine(reader->queue->wal, scan->fd, reader->place.segment, reader->place.at,
                          scan->at, "damaged data");
    }
    reader_move(reader, scan->at);
    return BR_EAGAIN;
}

int br_wal_read(struct br_wal_queue *queue, struct br_wal_found *ret, struct br_err *err)
{
    struct reader reader = {.queue = queue};
    struct wal_scan scan;
    int rc = BR_EAGAIN;
    while (rc == BR_EAGAIN) {
        if (!reader_look(&reader))
            return BR_ENOTFOUND;
        rc = reader_step(&reader, &scan, err);
    }
    if (rc)
        return rc;
    *ret = (struct br_wal_found){.number = scan.frame.number,
                                 .time_ns = scan.frame.time_ns,
                                 .signal = scan.frame.signal,
                                 .n_records = scan.frame.n_records,
                                 .metadata_len = scan.frame.metadata_len,
                                 .data_len = scan.frame.payload_len - scan.frame.name_len -
                                             scan.frame.metadata_len};
    return 0;
}

/* Moves the read position behind the record that was read. If `lost` is true, the record is damaged
 * and is marked as done. */
static int reader_take(struct reader *reader, const struct br_wal_found *found,
                       const struct wal_scan *scan, bool lost)
{
    struct br_wal_queue *queue = reader->queue;
    struct br_wal *wal = queue->wal;
    size_t len = found->metadata_len + found->data_len;
    (void)pthread_mutex_lock(&wal->lock);
    /* The option drop_oldest may have deleted the record since br_wal_read found it. */
    bool here =
        reader_is_here(reader) && queue->n_unread > 0 && found->number >= queue->first_unread;
    if (here) {
        reader_forget(queue, found->number);
        queue->n_unread -= queue->n_unread > 0;
        queue->first_unread = found->number + 1;
        queue->unread.at += BR_FRAME_HEADER + scan->frame.payload_len;
    }
    if (here && lost) {
        br_wal_total_count(&queue->total, false, found->signal, found->n_records, len);
        br_wal_queue_mark(queue, found->number, found->number);
    }
    (void)pthread_mutex_unlock(&wal->lock);
    return here ? 0 : BR_EAGAIN;
}

int br_wal_read_take(struct br_wal_queue *queue, const struct br_wal_found *found, uint8_t *out,
                     struct br_err *err)
{
    struct reader reader = {.queue = queue};
    size_t len = found->metadata_len + found->data_len;
    if (!reader_look(&reader))
        return BR_EAGAIN;
    struct wal_scan scan = {.fd = queue->read_fd, .at = reader.place.at, .end = reader.end};
    if (queue->read_segment != reader.place.segment || br_wal_scan(&scan) ||
        scan.frame.number != found->number || scan.frame.payload_len != len + scan.frame.name_len)
        return BR_EAGAIN;
    long n = br_wal_pread(scan.fd, out, len, scan.at + BR_FRAME_HEADER + scan.frame.name_len);
    if (n < 0)
        return reader_fail(err, errno);
    struct iovec pieces[] = {{scan.name, scan.frame.name_len}, {out, len}};
    if (n == (long)len && br_frame_checksum(pieces, 2) == scan.frame.payload_crc)
        return reader_take(&reader, found, &scan, false);
    int rc = reader_take(&reader, found, &scan, true);
    if (rc == 0)
        br_wal_quarantine(queue->wal, scan.fd, reader.place.segment, scan.at,
                          scan.at + BR_FRAME_HEADER + scan.frame.payload_len,
                          "a record with a wrong checksum");
    return rc ? rc : BR_EINVAL;
}
