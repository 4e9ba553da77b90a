/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "wal/internal.h"

#define CHECK_BYTES (64u << 10)
#define STATE_MAX (64u << 20) /* maximum size in bytes of the ranges in a state frame */
#define DIGITS_MAX 18u

struct recovery {
    struct br_wal *wal;
    struct br_err *err;
    struct wal_segment *segment;
    struct wal_scan scan;
    uint8_t *room; /* CHECK_BYTES bytes */
    bool last;     /* `segment` is the newest segment */
};

static int recover_fail(struct recovery *recovery, const char *what, int error)
{
    char text[128];
    return br_err_set(recovery->err, BR_EIO, "cannot %s in %s: %s", what,
                      recovery->wal->config.directory, strerror_r(error, text, sizeof text));
}

static int recover_no_memory(struct recovery *recovery)
{
    return br_err_set(recovery->err, BR_ENOMEM, "out of memory");
}

/* --- The list of segments --------------------------------------------------------------------- */

/* Parses the number of a segment from its file name. Returns 0 if the name is not that of a
 * segment. */
static uint64_t recover_segment_number(const char *name)
{
    size_t digits = strspn(name, "0123456789");
    bool valid = digits && digits <= DIGITS_MAX && strcmp(name + digits, ".wal") == 0;
    return valid ? strtoull(name, NULL, 10) : 0;
}

static int recover_compare(const void *one, const void *other)
{
    const struct wal_segment *first = one, *second = other;
    if (first->number == second->number)
        return 0;
    return first->number < second->number ? -1 : 1;
}

static int recover_list(struct recovery *recovery)
{
    struct br_wal *wal = recovery->wal;
    DIR *directory = opendir(wal->config.directory);
    if (!directory)
        return recover_fail(recovery, "list the files", errno);
    int rc = 0;
    const struct dirent *entry;
    while (!rc && (entry = readdir(directory))) {
        uint64_t number = recover_segment_number(entry->d_name);
        if (number && !br_wal_segment_add(wal, number, 0))
            rc = recover_no_memory(recovery);
        wal->next_segment = number >= wal->next_segment ? number + 1 : wal->next_segment;
    }
    (void)closedir(directory);
    if (wal->n_segments)
        qsort(wal->segments, wal->n_segments, sizeof *wal->segments, recover_compare);
    return rc;
}

/* --- Reading segments ------------------------------------------------------------------------- */

static int recover_open(struct recovery *recovery, struct wal_segment *segment)
{
    char path[WAL_PATH_MAX];
    br_wal_segment_path(recovery->wal, segment->number, path);
    recovery->segment = segment;
    recovery->scan = (struct wal_scan){.fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW),
                                       .at = WAL_SEGMENT_HEADER};
    if (recovery->scan.fd < 0)
        return recover_fail(recovery, "open a segment", errno);
    off_t end = lseek(recovery->scan.fd, 0, SEEK_END);
    if (end < 0)
        return recover_fail(recovery, "read a segment", errno);
    recovery->scan.end = segment->size ? segment->size : (uint64_t)end;
    return 0;
}

/* Verifies the checksum of the current frame's payload. Returns 0, BR_EINVAL if it is wrong, or
 * BR_EIO. */
static int recover_verify(struct recovery *recovery)
{
    const struct wal_scan *scan = &recovery->scan;
    uint64_t at = scan->at + BR_FRAME_HEADER, end = at + scan->frame.payload_len;
    uint32_t crc = 0;
    while (at < end) {
        size_t len = end - at < CHECK_BYTES ? (size_t)(end - at) : CHECK_BYTES;
        if (br_wal_pread(scan->fd, recovery->room, len, at) != (long)len)
            return recover_fail(recovery, "read a segment", errno);
        crc = br_frame_checksum_more(crc, recovery->room, len);
        at += len;
    }
    return crc == scan->frame.payload_crc ? 0 : BR_EINVAL;
}

static int recover_state(struct recovery *recovery, struct br_wal_queue *queue)
{
    const struct wal_scan *scan = &recovery->scan;
    size_t len = scan->frame.payload_len - scan->frame.name_len;
    struct br_range *ranges = len <= STATE_MAX ? br_malloc(len + 1) : NULL;
    if (!ranges)
        return recover_no_memory(recovery);
    int rc = 0;
    if (br_wal_pread(scan->fd, ranges, len, scan->at + BR_FRAME_HEADER + scan->frame.name_len) !=
        (long)len)
        rc = recover_fail(recovery, "read a segment", errno);
    for (size_t i = 0; i < len / sizeof *ranges && !rc; i++)
        if (ranges[i].first <= ranges[i].last)
            rc = br_ranges_add(&queue->done, ranges[i].first, ranges[i].last);
    br_free(ranges);
    return rc;
}

/* Updates the queue from a valid frame: the numbers that are done, and the number of the next
 * record. */
static int recover_marks(struct recovery *recovery)
{
    const struct br_frame *frame = &recovery->scan.frame;
    if (frame->kind == BR_FRAME_PADDING)
        return 0;
    struct br_wal_queue *queue =
        br_wal_queue_find(recovery->wal, recovery->scan.name, frame->name_len);
    if (!queue)
        return recover_no_memory(recovery);
    if (frame->kind == BR_FRAME_STATE) {
        queue->next = frame->number > queue->next ? frame->number : queue->next;
        return recover_state(recovery, queue);
    }
    if (frame->kind == BR_FRAME_DONE)
        return frame->number <= frame->time_ns
                   ? br_ranges_add(&queue->done, frame->number, frame->time_ns)
                   : 0;
    queue->next = frame->number >= queue->next ? frame->number + 1 : queue->next;
    return 0;
}

/* Returns true if the rest of the file after scan->at looks like an interrupted write: an
 * incomplete frame, or zeros. */
static bool recover_is_torn(struct recovery *recovery)
{
    const struct wal_scan *scan = &recovery->scan;
    struct br_frame frame;
    uint64_t left = scan->end - scan->at;
    size_t len = left < CHECK_BYTES ? (size_t)left : CHECK_BYTES;
    const uint8_t *room = recovery->room;
    if (br_wal_pread(scan->fd, recovery->room, len, scan->at) != (long)len)
        return false;
    if (left >= BR_FRAME_HEADER && br_frame_decode(room, &frame))
        return left - BR_FRAME_HEADER < frame.payload_len;
    size_t zeros = 0;
    while (zeros < len && room[zeros] == 0)
        zeros++;
    bool starts = left < BR_FRAME_HEADER && br_frame_search(room, len) == 0;
    bool too_short = left < 4;
    return zeros == len || starts || too_short;
}

/* Skips damaged bytes at scan->at: truncates an interrupted write at the end of the segment, and
 * copies other damage to quarantine. */
static int recover_skip(struct recovery *recovery)
{
    struct br_wal *wal = recovery->wal;
    struct wal_scan *scan = &recovery->scan;
    uint64_t from = scan->at;
    bool torn = recover_is_torn(recovery);
    int rc = br_wal_scan_search(scan);
    if (rc == BR_EIO)
        return recover_fail(recovery, "read a segment", errno);
    if (rc != BR_ENOTFOUND || !torn) {
        br_wal_quarantine(wal, scan->fd, recovery->segment->number, from, scan->at, "damaged data");
        return 0;
    }
    if (recovery->last)
        br_info(&wal->config.log,
                "removed %" PRIu64 " bytes of an interrupted write from segment %08" PRIu64,
                scan->end - from, recovery->segment->number);
    scan->end = from;
    scan->at = from;
    return ftruncate(scan->fd, (off_t)from) ? recover_fail(recovery, "cut a segment", errno) : 0;
}

/* Handles a frame with a valid header and a damaged payload: copies the frame to quarantine, and
 * adds a damaged record to queue->damaged. */
static int recover_damaged(struct recovery *recovery)
{
    struct br_wal *wal = recovery->wal;
    const struct wal_scan *scan = &recovery->scan;
    const struct br_frame *frame = &scan->frame;
    br_wal_quarantine(wal, scan->fd, recovery->segment->number, scan->at,
                      scan->at + BR_FRAME_HEADER + frame->payload_len, "a wrong checksum");
    struct br_wal_queue *queue =
        frame->kind == BR_FRAME_RECORD ? br_wal_queue_find(wal, scan->name, frame->name_len) : NULL;
    if (!queue)
        return 0;
    queue->next = frame->number >= queue->next ? frame->number + 1 : queue->next;
    return br_ranges_add(&queue->damaged, frame->number, frame->number);
}

static int recover_frame(struct recovery *recovery)
{
    struct wal_scan *scan = &recovery->scan;
    int rc = br_wal_scan(scan);
    if (rc == BR_EIO)
        return recover_fail(recovery, "read a segment", errno);
    if (rc == BR_ENOTFOUND)
        return rc;
    if (rc == BR_EINVAL)
        return recover_skip(recovery);
    rc = recover_verify(recovery);
    if (rc == BR_EINVAL)
        rc = recover_damaged(recovery);
    else if (rc == 0)
        rc = recover_marks(recovery);
    br_wal_scan_next(scan);
    return rc;
}

/* Checks the header of a segment. A damaged header does not prevent reading the records, because
 * each frame has its own checksum. */
static int recover_header(struct recovery *recovery)
{
    struct br_wal *wal = recovery->wal;
    uint8_t header[WAL_SEGMENT_HEADER];
    long n = br_wal_pread(recovery->scan.fd, header, sizeof header, 0);
    if (n < 0)
        return recover_fail(recovery, "read a segment", errno);
    bool older = header[WAL_VERSION_AT] >= WAL_VERSION_LEAST &&
                 header[WAL_VERSION_AT] < br_wal_header[WAL_VERSION_AT];
    uint8_t version = header[WAL_VERSION_AT];
    if (older)
        header[WAL_VERSION_AT] = br_wal_header[WAL_VERSION_AT];
    if (n < (long)sizeof header || memcmp(header, br_wal_header, sizeof header) == 0)
        return 0;
    header[WAL_VERSION_AT] = version;
    if (memcmp(header, br_wal_header, WAL_VERSION_AT) == 0)
        return br_err_set(recovery->err, BR_EUNSUPPORTED,
                          "segment %08" PRIu64 " in %s has version %u of the format, and this "
                          "program reads version %u; use a newer program, or another directory",
                          recovery->segment->number, wal->config.directory, header[WAL_VERSION_AT],
                          br_wal_header[WAL_VERSION_AT]);
    br_wal_quarantine(wal, recovery->scan.fd, recovery->segment->number, 0, sizeof header,
                      "a damaged header");
    return 0;
}

/* First pass over a segment: verifies all frames, and collects the numbers of the records that are
 * done. */
static int recover_first_pass(struct recovery *recovery)
{
    int rc = recover_header(recovery);
    while (rc == 0)
        rc = recover_frame(recovery);
    recovery->segment->size = recovery->scan.end;
    recovery->wal->stats.bytes += recovery->scan.end;
    return rc == BR_ENOTFOUND ? 0 : rc;
}

/* --- Records that are not done ---------------------------------------------------------------- */

/* Adds a record to its queue unless the record is done. A record can be in the log twice, because
 * records are written again after a failed sync. */
static int recover_record(struct recovery *recovery)
{
    const struct wal_scan *scan = &recovery->scan;
    const struct br_frame *frame = &scan->frame;
    struct br_wal *wal = recovery->wal;
    struct br_wal_queue *queue = br_wal_queue_find(wal, scan->name, frame->name_len);
    if (!queue)
        return recover_no_memory(recovery);
    bool again = queue->n_unread && frame->number < queue->recovered;
    if (again || br_ranges_contain(&queue->done, frame->number))
        return 0;
    if (br_ranges_contain(&queue->damaged, frame->number)) {
        /* an earlier copy was damaged, but this one can be intact */
        int intact = recover_verify(recovery);
        if (intact)
            return intact == BR_EINVAL ? 0 : intact;
    }
    if (br_wal_processing_is_fatal(queue, frame->number)) {
        br_wal_quarantine(wal, scan->fd, recovery->segment->number, scan->at,
                          scan->at + BR_FRAME_HEADER + frame->payload_len,
                          "the process died three times while it processed a request");
        return 0;
    }
    /* If numbers are missing between two records, the missing records are done. */
    int rc = frame->number > queue->recovered
                 ? br_ranges_add(&queue->done, queue->recovered, frame->number - 1)
                 : 0;
    if (!rc)
        rc = br_wal_segment_note(recovery->segment, queue, frame->number);
    if (rc)
        return recover_no_memory(recovery);
    if (queue->n_unread++ == 0) {
        queue->unread = (struct wal_place){recovery->segment->number, scan->at};
        queue->first_unread = frame->number;
    }
    queue->recovered = frame->number + 1;
    br_wal_total_count(&queue->total, true, frame->signal, frame->n_records,
                       frame->payload_len - frame->name_len);
    wal->stats.n_restored++;
    return 0;
}

/* Second pass over a segment: counts the records that are not done. */
static int recover_second_pass(struct recovery *recovery)
{
    struct wal_scan *scan = &recovery->scan;
    int rc;
    while ((rc = br_wal_scan(scan)) != BR_ENOTFOUND) {
        if (rc == BR_EINVAL && br_wal_scan_search(scan) == 0)
            continue;
        if (rc == BR_EIO)
            return recover_fail(recovery, "read a segment", errno);
        if (rc)
            continue;
        if (scan->frame.kind == BR_FRAME_RECORD)
            rc = recover_record(recovery);
        if (rc)
            return rc;
        br_wal_scan_next(scan);
    }
    return 0;
}

/* Reads every segment with `pass`. */
static int recover_each(struct recovery *recovery, int (*pass)(struct recovery *recovery))
{
    struct br_wal *wal = recovery->wal;
    int rc = 0;
    for (uint32_t i = 0; i < wal->n_segments && !rc; i++) {
        recovery->last = i + 1 == wal->n_segments;
        rc = recover_open(recovery, &wal->segments[i]);
        if (!rc)
            rc = pass(recovery);
        if (recovery->scan.fd >= 0)
            (void)close(recovery->scan.fd);
    }
    return rc;
}

/* Marks the numbers after the last record of each queue as done, and deletes the segments whose
 * records are all done. */
static int recover_end(struct recovery *recovery)
{
    struct br_wal *wal = recovery->wal;
    for (struct br_list *l = wal->queues.next; l != &wal->queues; l = l->next) {
        struct br_wal_queue *queue = br_container_of(l, struct br_wal_queue, link);
        if (queue->next > queue->recovered &&
            br_ranges_add(&queue->done, queue->recovered, queue->next - 1))
            return recover_no_memory(recovery);
        br_ranges_release(&queue->damaged);
        if (queue->n_unread)
            br_info(&wal->config.log, "%" PRIu64 " requests for exporter %s are in the storage",
                    queue->n_unread, queue->name);
    }
    br_wal_processing_forget_done(wal);
    br_wal_drop_done(wal);
    br_wal_delete_files(wal);
    return 0;
}

int br_wal_recover(struct br_wal *wal, struct br_err *err)
{
    struct recovery recovery = {.wal = wal, .err = err, .room = br_malloc(CHECK_BYTES)};
    int rc = recovery.room ? recover_list(&recovery) : recover_no_memory(&recovery);
    if (!rc)
        rc = recover_each(&recovery, recover_first_pass);
    if (!rc && br_wal_marks_recover(wal))
        rc = recover_no_memory(&recovery);
    if (!rc)
        rc = recover_each(&recovery, recover_second_pass);
    if (!rc)
        rc = recover_end(&recovery);
    br_free(recovery.room);
    return rc;
}
