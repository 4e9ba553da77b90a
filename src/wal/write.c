/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "wal/internal.h"

#define GROUP_PIECES 256u
#define GROUP_MARKS 64u
#define COPY_BYTES (64u << 10)

struct mark {
    struct br_wal_queue *queue;
    struct br_range range;
    uint8_t header[BR_FRAME_HEADER];
};

/* The jobs that one thread writes together, with one sync. */
struct group {
    struct br_wal *wal;
    struct br_list jobs; /* list of wal_job */
    bool sync;
    uint64_t begin; /* offset in bytes of the group in the current segment */
    bool direct;    /* the frames are collected in wal->direct instead of `pieces` */
    struct mark marks[GROUP_MARKS];
    unsigned n_marks;
    /* Position in the file `marks`. All marks before this position are in the field `marks`, or are
     * already in a segment. 0: no such position is known. */
    uint64_t marks_end;
    /* buffers that the next write call writes, and their total length in bytes */
    struct iovec pieces[GROUP_PIECES];
    size_t n_pieces;
    uint64_t pieces_len;
    bool failed;      /* the group was not stored */
    int error;        /* errno of the last failed call; 0: no call has failed */
    const char *call; /* action of the failed call, for messages: "write", "sync", … */
};

static struct wal_job *group_job(struct br_list *link)
{
    return br_container_of(link, struct wal_job, link);
}

typedef bool group_record_fn(struct group *group, struct br_wal_record *record, void *arg);

/* Calls `fn` in order for each record of the group that was not refused. Stops and returns false if
 * `fn` returns false. */
static bool group_each(struct group *group, group_record_fn *fn, void *arg)
{
    for (struct br_list *l = group->jobs.next; l != &group->jobs; l = l->next) {
        struct wal_job *job = group_job(l);
        for (size_t i = 0; i < job->count; i++)
            if (job->records[i].rc == 0 && !fn(group, &job->records[i], arg))
                return false;
    }
    return true;
}

static uint64_t group_frame_len(const struct br_wal_record *record)
{
    uint64_t len = 0;
    for (size_t i = 0; i < record->n_pieces; i++)
        len += record->pieces[i].iov_len;
    return len;
}

static size_t group_data_len(const struct br_wal_record *record)
{
    return group_frame_len(record) - BR_FRAME_HEADER - record->queue->name_len;
}

/* --- Writing frames -------------------------------------------------------------------------- */

static bool group_fail(struct group *group, const char *call, int error)
{
    group->call = call;
    group->error = error;
    return false;
}

/* Writes the contents of wal->direct, which are a whole number of blocks. If the direct write fails
 * with EINVAL, this write and all later writes to the segment go to the page cache. */
static int group_write_direct(struct group *group)
{
    struct br_wal *wal = group->wal;
    struct iovec piece = {wal->direct, group->pieces_len};
    int error = wal->direct_fd >= 0 ? br_wal_write(wal->direct_fd, &piece, 1, wal->at) : EINVAL;
    if (error != EINVAL)
        return error;
    if (wal->direct_fd >= 0)
        (void)close(wal->direct_fd);
    wal->direct_fd = -1;
    piece = (struct iovec){wal->direct, group->pieces_len};
    return br_wal_write(wal->fd, &piece, 1, wal->at);
}

static bool group_flush(struct group *group)
{
    struct br_wal *wal = group->wal;
    int error = group->direct ? group_write_direct(group)
                              : br_wal_write(wal->fd, group->pieces, group->n_pieces, wal->at);
    if (error)
        return group_fail(group, "write", error);
    wal->at += group->pieces_len;
    group->n_pieces = 0;
    group->pieces_len = 0;
    return true;
}

/* Appends data to the buffer wal->direct, and writes the buffer whenever it is full. */
static bool group_put_direct(struct group *group, const uint8_t *data, size_t len)
{
    while (len) {
        size_t room = WAL_DIRECT_BYTES - group->pieces_len, n = len < room ? len : room;
        memcpy(group->wal->direct + group->pieces_len, data, n);
        group->pieces_len += n;
        data += n;
        len -= n;
        if (group->pieces_len == WAL_DIRECT_BYTES && !group_flush(group))
            return false;
    }
    return true;
}

static bool group_put(struct group *group, const void *data, size_t len)
{
    if (group->direct)
        return group_put_direct(group, data, len);
    if (group->n_pieces == GROUP_PIECES && !group_flush(group))
        return false;
    group->pieces[group->n_pieces++] = (struct iovec){(void *)(uintptr_t)data, len};
    group->pieces_len += len;
    return true;
}

static bool group_put_record(struct group *group, struct br_wal_record *record, void *arg)
{
    (void)arg;
    for (size_t i = 0; i < record->n_pieces; i++)
        if (!group_put(group, record->pieces[i].iov_base, record->pieces[i].iov_len))
            return false;
    return true;
}

static bool group_is_record(struct group *group, struct br_wal_record *record, void *arg)
{
    (void)group;
    (void)record;
    (void)arg;
    return false;
}

static bool group_has_records(struct group *group)
{
    return !group_each(group, group_is_record, NULL);
}

/* Appends padding, so that the next group begins at an aligned offset and can be written with
 * O_DIRECT. */
static bool group_put_padding(struct group *group)
{
    struct br_wal *wal = group->wal;
    if (wal->direct_fd < 0 && !group->direct)
        return true;
    size_t len = br_wal_pad(wal->at + group->pieces_len, wal->padding);
    return len == 0 || group_put(group, wal->padding, len);
}

static bool group_write_frames(struct group *group)
{
    const struct br_wal *wal = group->wal;
    bool aligned = wal->direct_fd >= 0 && wal->at % WAL_BLOCK == 0;
    group->begin = wal->at;
    group->direct = aligned && group->sync && group_has_records(group);
    group->n_pieces = 0;
    group->pieces_len = 0;
    for (unsigned i = 0; i < group->n_marks; i++) {
        const struct mark *mark = &group->marks[i];
        if (!group_put(group, mark->header, sizeof mark->header) ||
            !group_put(group, mark->queue->name, mark->queue->name_len))
            return false;
    }
    if (!group_each(group, group_put_record, NULL) || !group_put_padding(group))
        return false;
    return group->pieces_len == 0 || group_flush(group);
}

static bool group_sync(struct group *group)
{
    struct br_wal *wal = group->wal;
    if (fdatasync(wal->fd))
        return group_fail(group, "sync", errno);
    wal->synced_at = wal->at;
    (void)pthread_mutex_lock(&wal->lock);
    wal->stats.n_syncs++;
    (void)pthread_mutex_unlock(&wal->lock);
    return true;
}

/* --- Marks ------------------------------------------------------------------------------------ */

static void mark_encode(struct mark *mark)
{
    struct br_frame frame = {.kind = BR_FRAME_DONE,
                             .name_len = mark->queue->name_len,
                             .number = mark->range.first,
                             .time_ns = mark->range.last,
                             .payload_len = mark->queue->name_len};
    struct iovec piece = {mark->queue->name, mark->queue->name_len};
    frame.payload_crc = br_frame_checksum(&piece, 1);
    br_frame_encode(&frame, mark->header);
}

/* Moves unwritten done marks from the queues to the group. */
static void group_take_marks(struct group *group)
{
    struct br_wal *wal = group->wal;
    bool all = true;
    (void)pthread_mutex_lock(&wal->lock);
    for (struct br_list *l = wal->queues.next; l != &wal->queues; l = l->next) {
        struct br_wal_queue *queue = br_container_of(l, struct br_wal_queue, link);
        while (queue->unwritten.count && group->n_marks < GROUP_MARKS) {
            struct mark *mark = &group->marks[group->n_marks++];
            mark->queue = queue;
            mark->range = br_ranges_shift(&queue->unwritten);
        }
        all = all && !queue->unwritten.count;
    }
    group->marks_end = all ? br_wal_marks_end(wal) : 0;
    (void)pthread_mutex_unlock(&wal->lock);
    for (unsigned i = 0; i < group->n_marks; i++)
        mark_encode(&group->marks[i]);
}

/* Moves the marks back to the queues after a failed write. */
static void group_return_marks(struct group *group)
{
    struct br_wal *wal = group->wal;
    (void)pthread_mutex_lock(&wal->lock);
    for (unsigned i = 0; i < group->n_marks; i++) {
        const struct mark *mark = &group->marks[i];
        (void)br_ranges_add(&mark->queue->unwritten, mark->range.first, mark->range.last);
    }
    (void)pthread_mutex_unlock(&wal->lock);
    group->n_marks = 0;
}

/* --- Records ---------------------------------------------------------------------------------- */

static bool group_refuse(struct group *group, struct br_wal_record *record, int code,
                         const char *why)
{
    (void)group;
    record->rc = code;
    record->why = why;
    return true;
}

/* Drops a record of the oldest segment unless the record was already read. */
static void group_drop_record(struct br_wal *wal, const struct wal_scan *scan)
{
    const struct br_frame *frame = &scan->frame;
    (void)pthread_mutex_lock(&wal->lock);
    struct br_wal_queue *queue = br_wal_queue_find(wal, scan->name, frame->name_len);
    bool unread = queue && queue->n_unread && frame->number >= queue->first_unread &&
                  !br_wal_queue_skips(queue, frame->number);
    if (unread) {
        br_wal_total_count(&queue->total, false, frame->signal, frame->n_records,
                           frame->payload_len - frame->name_len);
        wal->stats.n_dropped[frame->signal & 1] += frame->n_records;
        queue->n_unread--;
        queue->first_unread = frame->number + 1;
        br_wal_queue_mark(queue, frame->number, frame->number);
    }
    (void)pthread_mutex_unlock(&wal->lock);
}

/* Moves read positions in the oldest segment to the start of the next segment, and removes the
 * oldest segment from the list. */
static void group_leave_oldest(struct br_wal *wal)
{
    (void)pthread_mutex_lock(&wal->lock);
    for (struct br_list *l = wal->queues.next; l != &wal->queues; l = l->next) {
        struct wal_place *unread = &br_container_of(l, struct br_wal_queue, link)->unread;
        if (unread->segment <= wal->segments[0].number)
            *unread = (struct wal_place){wal->segments[1].number, WAL_SEGMENT_HEADER};
    }
    br_wal_drop_first(wal);
    (void)pthread_mutex_unlock(&wal->lock);
}

/* Drops the oldest segment and its unread records. Reads wal->segments without the lock, because
 * only the writing thread changes this list. */
static void group_drop_oldest(struct br_wal *wal)
{
    char path[WAL_PATH_MAX];
    br_wal_segment_path(wal, wal->segments[0].number, path);
    struct wal_scan scan = {.fd = open(path, O_RDONLY | O_CLOEXEC),
                            .at = WAL_SEGMENT_HEADER,
                            .end = wal->segments[0].size};
    for (; scan.fd >= 0 && br_wal_scan(&scan) == 0; br_wal_scan_next(&scan))
        if (scan.frame.kind == BR_FRAME_RECORD)
            group_drop_record(wal, &scan);
    group_leave_oldest(wal);
    if (scan.fd >= 0)
        (void)close(scan.fd);
}

/* Removes the oldest segments whose records are all done. Returns the remaining size of the log in
 * bytes. */
static uint64_t group_log_size(struct br_wal *wal)
{
    (void)pthread_mutex_lock(&wal->lock);
    br_wal_drop_done(wal);
    uint64_t size = wal->stats.bytes;
    (void)pthread_mutex_unlock(&wal->lock);
    return size;
}

/* Refuses the record if the log has no room for it. `arg` points to the total size in bytes of the
 * admitted records of the group. */
static bool group_admit_record(struct group *group, struct br_wal_record *record, void *arg)
{
    struct br_wal *wal = group->wal;
    uint64_t *bytes = arg, len = group_frame_len(record), max = wal->config.max_size;
    if (len > max)
        return group_refuse(group, record, BR_ETOOBIG, "the request is larger than max_size");
    uint64_t padding = wal->direct ? WAL_PADDING_MAX : 0;
    bool full = group_log_size(wal) + *bytes + len + padding > max;
    while (full && wal->config.drop_oldest && wal->n_segments > 1) {
        group_drop_oldest(wal);
        full = group_log_size(wal) + *bytes + len + padding > max;
    }
    if (full)
        return group_refuse(group, record, BR_EFULL, "the storage has reached max_size");
    *bytes += len;
    return true;
}

/* Assigns the next number of the record's queue to the record. Needs wal->lock. */
static bool group_number_record(struct group *group, struct br_wal_record *record, void *arg)
{
    struct br_wal_queue *queue = record->queue;
    (void)arg;
    if (br_wal_segment_note(br_wal_current(group->wal), queue, queue->next))
        return group_refuse(group, record, BR_ENOMEM, "out of memory");
    record->number = queue->next++;
    if (record->delivered)
        br_wal_mark_delivered(queue, record->number);
    return true;
}

static bool group_encode_record(struct group *group, struct br_wal_record *record, void *arg)
{
    (void)group;
    (void)arg;
    record->frame.number = record->number;
    br_frame_encode(&record->frame, record->header);
    return true;
}

static void group_number(struct group *group)
{
    (void)pthread_mutex_lock(&group->wal->lock);
    (void)group_each(group, group_number_record, NULL);
    (void)pthread_mutex_unlock(&group->wal->lock);
    (void)group_each(group, group_encode_record, NULL);
}

/* Registers that the current segment contains the record. Needs wal->lock. */
static bool group_note_record(struct group *group, struct br_wal_record *record, void *arg)
{
    (void)arg;
    return br_wal_segment_note(br_wal_current(group->wal), record->queue, record->number) == 0 ||
           group_fail(group, "allocate memory", ENOMEM);
}

/* Counts a record as stored, and sets record->keep. `arg` points to the offset of the record in the
 * current segment, and is advanced to the next record. Needs wal->lock. */
static bool group_store_record(struct group *group, struct br_wal_record *record, void *arg)
{
    uint64_t *at = arg;
    struct br_wal_queue *queue = record->queue;
    br_wal_total_count(&queue->total, true, record->signal, record->n_records,
                       group_data_len(record));
    if (record->held && queue->n_unread)
        /* If this fails because memory is short, br_wal_read also returns the record. The
         * record is then delivered twice, but not lost. */
        (void)br_ranges_add(&queue->held, record->number, record->number);
    record->keep = record->held || (record->keep && queue->n_unread == 0);
    if (!record->keep && queue->n_unread++ == 0) {
        br_ranges_clear(&queue->held);
        queue->unread = (struct wal_place){br_wal_current(group->wal)->number, *at};
        queue->first_unread = record->number;
    }
    *at += group_frame_len(record);
    return true;
}

static bool group_disk_is_full(const struct group *group)
{
    return group->error == ENOSPC || group->error == EDQUOT;
}

/* Sets the error code of a record that could not be stored, and marks its number as done so that
 * the number is not used again. Needs wal->lock. */
static bool group_fail_record(struct group *group, struct br_wal_record *record, void *arg)
{
    (void)arg;
    if (record->number)
        br_wal_queue_mark(record->queue, record->number, record->number);
    return group_refuse(group, record, group_disk_is_full(group) ? BR_EFULL : BR_EIO, NULL);
}

/* --- Segments -------------------------------------------------------------------------------- */

/* Ensures that there is a current segment, and starts a new segment if the current one has reached
 * segment_size. */
static bool group_open_segment(struct group *group)
{
    struct br_wal *wal = group->wal;
    if (wal->fd >= 0 && wal->at >= wal->config.segment_size) {
        if (wal->config.sync != BR_WAL_OFF && wal->synced_at < wal->at && !group_sync(group))
            return false;
        br_wal_segment_end(wal, wal->at);
    }
    int error = wal->fd < 0 ? br_wal_segment_begin(wal) : 0;
    return error == 0 || group_fail(group, "create a segment", error);
}

/* Appends the bytes from offset `at` to `end` of the file `from` to the current segment. */
static bool group_copy(struct group *group, int from, uint64_t at, uint64_t end)
{
    struct br_wal *wal = group->wal;
    uint8_t *room = br_malloc(COPY_BYTES);
    int error = room ? 0 : ENOMEM;
    while (at < end && !error) {
        long n = br_wal_pread(from, room, end - at < COPY_BYTES ? end - at : COPY_BYTES, at);
        struct iovec piece = {room, n > 0 ? (size_t)n : 0};
        error = n < 0 ? errno : EIO;
        if (n > 0)
            error = br_wal_write(wal->fd, &piece, 1, wal->at);
        wal->at += error ? 0 : (uint64_t)n;
        at += error ? 0 : (uint64_t)n;
    }
    br_free(room);
    return error == 0 || group_fail(group, "copy a segment", error);
}

/* Updates the read positions after a copy: the bytes of segment `from` after offset `at` are now in
 * the current segment at offset `to`. Needs wal->lock. */
static void group_move_places(struct br_wal *wal, uint64_t from, uint64_t at, uint64_t to)
{
    for (struct br_list *l = wal->queues.next; l != &wal->queues; l = l->next) {
        struct wal_place *unread = &br_container_of(l, struct br_wal_queue, link)->unread;
        if (unread->segment == from && unread->at >= at)
            *unread = (struct wal_place){br_wal_current(wal)->number, to + unread->at - at};
    }
}

/* Registers the queues of the segment `from` in the current segment, which now contains the part of
 * `from` that was not synced. Needs wal->lock. */
static bool group_note_shares(struct group *group, const struct wal_segment *from)
{
    for (uint32_t i = 0; i < from->n_shares; i++)
        if (br_wal_segment_note(br_wal_current(group->wal), from->shares[i].queue,
                                from->shares[i].last))
            return group_fail(group, "allocate memory", ENOMEM);
    return true;
}

/* Deletes the segment that was just created, and makes the previous segment, with descriptor `fd`,
 * the current one again. */
static void group_undo_segment(struct br_wal *wal, int fd, uint64_t synced_at, uint64_t at)
{
    char path[WAL_PATH_MAX];
    br_wal_close_segment(wal);
    (void)pthread_mutex_lock(&wal->lock);
    struct wal_segment *last = br_wal_current(wal);
    br_wal_segment_path(wal, last->number, path);
    wal->stats.bytes -= last->size;
    br_free(last->shares);
    wal->stats.n_segments = --wal->n_segments;
    (void)pthread_mutex_unlock(&wal->lock);
    (void)unlink(path);
    wal->fd = fd;
    wal->synced_at = synced_at;
    wal->at = at;
}

/* Creates a new segment after a failed sync. Copies the unsynced data of the old segment to the new
 * one, writes the group there, and syncs it. If that succeeds, truncates the old segment to its
 * synced part. */
static bool group_write_elsewhere(struct group *group)
{
    struct br_wal *wal = group->wal;
    int fd = wal->fd;
    if (wal->direct_fd >= 0)
        (void)close(wal->direct_fd);
    wal->direct_fd =
        -1; /* if this function fails, later writes to the old segment go through the page cache */
    uint64_t from = br_wal_current(wal)->number, at = wal->synced_at, end = group->begin;
    int error = br_wal_segment_begin(wal);
    uint64_t to = wal->at;
    if (error) {
        wal->fd = fd;
        wal->synced_at = at;
        wal->at = end;
        return group_fail(group, "create a segment", error);
    }
    group->n_marks = 0; /* the state frames at the start of the new segment contain the marks */
    bool ok = group_copy(group, fd, at, end) && group_write_frames(group) && group_sync(group);
    (void)pthread_mutex_lock(&wal->lock);
    struct wal_segment *old = br_wal_segment_find(wal, from);
    ok =
        ok && group_each(group, group_note_record, NULL) && (!old || group_note_shares(group, old));
    if (ok && old) {
        group_move_places(wal, from, at, to);
        wal->stats.bytes -= old->size - at;
        old->size = at;
    }
    (void)pthread_mutex_unlock(&wal->lock);
    if (!ok) {
        group_undo_segment(wal, fd, at, end);
        return false;
    }
    (void)ftruncate(fd, (off_t)at);
    (void)close(fd);
    return true;
}

/* Truncates the current segment to the start of the failed group. If the truncation fails, closes
 * the segment, so that the next group begins a new one. */
static void group_cut(struct group *group)
{
    struct br_wal *wal = group->wal;
    if (wal->fd < 0)
        return;
    bool cut = ftruncate(wal->fd, (off_t)group->begin) == 0;
    wal->at = group->begin;
    if (!cut && !wal->unsafe)
        br_wal_segment_end(wal, group->begin);
}

/* --- Groups ----------------------------------------------------------------------------------- */

static bool group_needs_sync(const struct group *group)
{
    return group->sync && group->wal->synced_at < group->wal->at;
}

/* Writes the group to the current segment, and syncs it if a job requires that. Returns false after
 * a failure. */
static bool group_write_here(struct group *group)
{
    struct br_wal *wal = group->wal;
    if (!group_write_frames(group))
        return false;
    bool synced = !group_needs_sync(group) || group_sync(group);
    wal->unsafe = !synced;
    return synced;
}

/* Writes the group to the current segment, or to a new one after a failed sync. Returns false after
 * a failure, and then removes the written part of the group. */
static bool group_store(struct group *group)
{
    struct br_wal *wal = group->wal;
    bool ok = wal->unsafe || group_open_segment(group);
    wal->unsafe =
        /* group_open_segment failed to sync the full segment */
        wal->unsafe || (!ok && wal->fd >= 0);
    group->begin = wal->at;
    if (wal->fd < 0)
        return false;
    uint64_t bytes = 0;
    (void)group_each(group, group_admit_record, &bytes);
    group_number(group);
    ok = !wal->unsafe && group_write_here(group);
    if (wal->unsafe) {
        ok = group_write_elsewhere(group);
        wal->unsafe = !ok;
    }
    if (!ok)
        group_cut(group);
    return ok;
}

/* Counts a failure. Logs the first failure of a series, and the first success after it. */
static void group_report(struct group *group, bool ok)
{
    struct br_wal *wal = group->wal;
    char text[128];
    (void)pthread_mutex_lock(&wal->lock);
    bool failed_before = wal->stats.failing;
    wal->stats.failing = !ok;
    wal->stats.n_errors += group->error ? 1 : 0;
    (void)pthread_mutex_unlock(&wal->lock);
    if (!ok && !failed_before)
        br_error(&wal->config.log, "cannot %s: %s; requests are refused until a write succeeds",
                 group->call, strerror_r(group->error, text, sizeof text));
    if (ok && failed_before)
        br_info(&wal->config.log, "storing requests again");
}

/* Counts the records of a group that was stored, and updates the size of the segment. */
static void group_succeed(struct group *group)
{
    struct br_wal *wal = group->wal;
    uint64_t at = group->begin;
    for (unsigned i = 0; i < group->n_marks; i++)
        at += BR_FRAME_HEADER + group->marks[i].queue->name_len;
    (void)pthread_mutex_lock(&wal->lock);
    struct wal_segment *segment = br_wal_current(wal);
    wal->stats.bytes += wal->at - segment->size;
    segment->size = wal->at;
    (void)group_each(group, group_store_record, &at);
    br_wal_marks_remove(wal, group->marks_end);
    br_wal_drop_done(wal);
    (void)pthread_mutex_unlock(&wal->lock);
}

/* If the disk is full and all records are done, begins a new segment in the space of the file
 * `reserve`, so that the other segments can be deleted. */
static void group_make_room(struct group *group)
{
    struct br_wal *wal = group->wal;
    (void)pthread_mutex_lock(&wal->lock);
    bool done = br_wal_is_done(wal);
    (void)pthread_mutex_unlock(&wal->lock);
    if (!done || wal->unsafe || !group_disk_is_full(group))
        return;
    br_wal_reserve_free(wal);
    br_wal_segment_end(wal, wal->at);
    if (br_wal_segment_begin(wal) == 0) {
        (void)pthread_mutex_lock(&wal->lock);
        br_wal_drop_done(wal);
        (void)pthread_mutex_unlock(&wal->lock);
        br_wal_delete_files(wal);
    }
    br_wal_reserve_make(wal);
}

static void group_run(struct group *group)
{
    struct br_wal *wal = group->wal;
    group_take_marks(group);
    bool has_records = group_has_records(group);
    bool to_sync = wal->fd >= 0 && (wal->unsafe || group_needs_sync(group));
    if (!has_records && !group->n_marks && !to_sync)
        return;
    bool ok = group_store(group);
    group->failed = !ok;
    group_report(group, ok);
    if (ok)
        group_succeed(group);
    br_wal_delete_files(wal);
    if (ok)
        return;
    group_return_marks(group);
    (void)pthread_mutex_lock(&wal->lock);
    (void)group_each(group, group_fail_record, NULL);
    (void)pthread_mutex_unlock(&wal->lock);
    group_make_room(group);
}

static void group_finish_job(struct wal_job *job, const struct group *group)
{
    char text[128];
    job->finished = true;
    if (group->failed)
        job->rc = br_err_set(&job->err, BR_EIO, "cannot %s: %s", group->call,
                             strerror_r(group->error, text, sizeof text));
}

/* Writes all waiting jobs as one group. Needs wal->lock, and releases the lock while writing. */
static void wal_lead(struct br_wal *wal)
{
    struct group group = {.wal = wal};
    struct br_list *link;
    br_list_init(&group.jobs);
    while ((link = br_list_shift(&wal->jobs))) {
        br_list_append(&group.jobs, link);
        group.sync = group.sync || group_job(link)->sync;
    }
    wal->busy = true;
    (void)pthread_mutex_unlock(&wal->lock);
    group_run(&group);
    (void)pthread_mutex_lock(&wal->lock);
    wal->busy = false;
    while ((link = br_list_shift(&group.jobs)))
        group_finish_job(group_job(link), &group);
    (void)pthread_cond_broadcast(&wal->finished);
}

/* Adds the job to the list and returns when it is finished. One waiting thread writes all jobs of
 * the list together, on behalf of the others. */
static void wal_do(struct br_wal *wal, struct wal_job *job)
{
    (void)pthread_mutex_lock(&wal->lock);
    br_list_append(&wal->jobs, &job->link);
    while (!job->finished) {
        if (wal->busy)
            (void)pthread_cond_wait(&wal->finished, &wal->lock);
        else
            wal_lead(wal);
    }
    (void)pthread_mutex_unlock(&wal->lock);
}

static void wal_prepare(struct br_wal_record *record)
{
    struct br_wal_queue *queue = record->queue;
    uint64_t len = queue->name_len;
    for (size_t i = BR_WAL_PIECES_BEFORE; i < record->n_pieces; i++)
        len += record->pieces[i].iov_len;
    record->pieces[0] = (struct iovec){record->header, sizeof record->header};
    record->pieces[1] = (struct iovec){queue->name, queue->name_len};
    record->rc = len > BR_FRAME_PAYLOAD_MAX ? BR_ETOOBIG : 0;
    record->why = record->rc ? "the request is too large for a record" : NULL;
    record->frame = (struct br_frame){
        .kind = BR_FRAME_RECORD,
        .signal = (uint8_t)record->signal,
        .name_len = queue->name_len,
        .time_ns = record->time_ns,
        .payload_len = (uint32_t)len,
        .metadata_len = (uint32_t)record->metadata_len,
        .n_records = record->n_records,
        .payload_crc = br_frame_checksum(record->pieces + 1, record->n_pieces - 1),
    };
}

int br_wal_append(struct br_wal *wal, struct br_wal_record *records, size_t count,
                  struct br_err *err)
{
    struct wal_job job = {
        .records = records, .count = count, .sync = wal->config.sync == BR_WAL_ALWAYS};
    for (size_t i = 0; i < count; i++)
        wal_prepare(&records[i]);
    wal_do(wal, &job);
    if (job.rc && err)
        *err = job.err;
    int rc = 0;
    for (size_t i = 0; i < count && !rc; i++)
        rc = records[i].rc;
    return rc;
}

int br_wal_sync(struct br_wal *wal, bool sync, struct br_err *err)
{
    struct wal_job job = {.sync = sync};
    wal_do(wal, &job);
    if (job.rc && err)
        *err = job.err;
    return job.rc;
}
