/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "wal/internal.h"

#define SEARCH_BYTES 8192u
#define MAGIC_LEN 4u
#define RESERVE_BYTES (64u << 10)

const uint8_t br_wal_header[WAL_SEGMENT_HEADER] = "BRAIDWAL\2";

void br_wal_segment_path(const struct br_wal *wal, uint64_t number, char out[WAL_PATH_MAX])
{
    (void)snprintf(out, WAL_PATH_MAX, "%s/%08" PRIu64 ".wal", wal->config.directory, number);
}

struct wal_segment *br_wal_segment_add(struct br_wal *wal, uint64_t number, uint64_t size)
{
    if (br_grow(&wal->segments, &wal->cap_segments, wal->n_segments + 1, sizeof *wal->segments,
                WAL_SEGMENTS_MAX))
        return NULL;
    struct wal_segment *segment = &wal->segments[wal->n_segments++];
    *segment = (struct wal_segment){.number = number, .size = size};
    wal->stats.bytes += size;
    wal->stats.n_segments = wal->n_segments;
    return segment;
}

struct wal_segment *br_wal_segment_find(struct br_wal *wal, uint64_t number)
{
    for (uint32_t i = 0; i < wal->n_segments; i++)
        if (wal->segments[i].number == number)
            return &wal->segments[i];
    return NULL;
}

int br_wal_segment_note(struct wal_segment *segment, struct br_wal_queue *queue, uint64_t number)
{
    for (uint32_t i = 0; i < segment->n_shares; i++) {
        struct wal_share *share = &segment->shares[i];
        if (share->queue == queue) {
            share->last = number > share->last ? number : share->last;
            return 0;
        }
    }
    int rc = br_grow(&segment->shares, &segment->cap_shares, segment->n_shares + 1,
                     sizeof *segment->shares, WAL_QUEUES_MAX);
    if (rc == 0)
        segment->shares[segment->n_shares++] = (struct wal_share){queue, number};
    return rc;
}

static bool segment_is_done(const struct wal_segment *segment)
{
    for (uint32_t i = 0; i < segment->n_shares; i++) {
        const struct wal_share *share = &segment->shares[i];
        if (!br_ranges_cover(&share->queue->done, 1, share->last))
            return false;
    }
    return true;
}

void br_wal_drop_first(struct br_wal *wal)
{
    struct wal_segment *first = &wal->segments[0];
    (void)br_ranges_add(&wal->deleted, first->number, first->number);
    wal->stats.bytes -= first->size;
    br_free(first->shares);
    wal->n_segments--;
    wal->stats.n_segments = wal->n_segments;
    memmove(wal->segments, wal->segments + 1, wal->n_segments * sizeof *wal->segments);
}

void br_wal_delete_files(struct br_wal *wal)
{
    (void)pthread_mutex_lock(&wal->lock);
    while (wal->deleted.count) {
        struct br_range range = br_ranges_shift(&wal->deleted);
        (void)pthread_mutex_unlock(&wal->lock);
        for (uint64_t number = range.first; number <= range.last; number++) {
            char path[WAL_PATH_MAX];
            br_wal_segment_path(wal, number, path);
            (void)unlink(path);
        }
        (void)pthread_mutex_lock(&wal->lock);
    }
    (void)pthread_mutex_unlock(&wal->lock);
}

bool br_wal_is_done(const struct br_wal *wal)
{
    for (uint32_t i = 0; i < wal->n_segments; i++)
        if (!segment_is_done(&wal->segments[i]))
            return false;
    return wal->n_segments > 0;
}

void br_wal_drop_done(struct br_wal *wal)
{
    while (wal->n_segments > 1 && segment_is_done(&wal->segments[0]))
        br_wal_drop_first(wal);
}

/* --- Reading and writing ---------------------------------------------------------------------- */

int br_wal_write(int fd, struct iovec *pieces, size_t count, uint64_t at)
{
    enum { AT_ONCE = 256 };
    while (count) {
        ssize_t n = pwritev(fd, pieces, (int)(count < AT_ONCE ? count : AT_ONCE), (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        at += (uint64_t)n;
        for (; count && (size_t)n >= pieces->iov_len; pieces++, count--)
            n -= (ssize_t)pieces->iov_len;
        if (count && n == 0)
            continue;
        if (count) {
            pieces->iov_base = (char *)pieces->iov_base + n;
            pieces->iov_len -= (size_t)n;
        }
    }
    return 0;
}

long br_wal_pread(int fd, void *out, size_t len, uint64_t at)
{
    size_t got = 0;
    while (got < len) {
        ssize_t n = pread(fd, (char *)out + got, len - got, (off_t)(at + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return (long)got;
}

size_t br_wal_pad(uint64_t at, uint8_t out[WAL_PADDING_MAX])
{
    size_t len = (size_t)(0 - at % WAL_BLOCK) % WAL_BLOCK;
    if (len == 0)
        return 0;
    len += len < BR_FRAME_HEADER ? WAL_BLOCK : 0;
    memset(out, 0, len);
    struct br_frame frame = {
        .kind = BR_FRAME_PADDING, .number = 1, .payload_len = (uint32_t)(len - BR_FRAME_HEADER)};
    struct iovec piece = {out + BR_FRAME_HEADER, frame.payload_len};
    frame.payload_crc = br_frame_checksum(&piece, 1);
    br_frame_encode(&frame, out);
    return len;
}

/* --- The current segment ---------------------------------------------------------------------- */

/* Writes the state frame of a queue to `out`. Returns the address after the frame. */
static uint8_t *segment_put_state(const struct br_wal_queue *queue, uint8_t *out)
{
    size_t ranges_len = queue->done.count * sizeof(struct br_range);
    struct br_frame frame = {.kind = BR_FRAME_STATE,
                             .name_len = queue->name_len,
                             .number = queue->next,
                             .payload_len = (uint32_t)(queue->name_len + ranges_len)};
    uint8_t *payload = out + BR_FRAME_HEADER;
    memcpy(payload, queue->name, queue->name_len);
    if (ranges_len)
        memcpy(payload + queue->name_len, queue->done.items, ranges_len);
    struct iovec piece = {payload, frame.payload_len};
    frame.payload_crc = br_frame_checksum(&piece, 1);
    br_frame_encode(&frame, out);
    return payload + frame.payload_len;
}

/* Returns a buffer with the state frames of all queues, or NULL if memory is short. The caller
 * frees the buffer with br_free. Also clears `unwritten` of each queue, because the state contains
 * all numbers that are done. */
static uint8_t *segment_states(struct br_wal *wal, size_t *ret_len)
{
    size_t len = 0;
    (void)pthread_mutex_lock(&wal->lock);
    for (struct br_list *l = wal->queues.next; l != &wal->queues; l = l->next) {
        const struct br_wal_queue *queue = br_container_of(l, struct br_wal_queue, link);
        len += BR_FRAME_HEADER + queue->name_len + queue->done.count * sizeof(struct br_range);
    }
    uint8_t *states = br_malloc(len ? len : 1), *end = states;
    for (struct br_list *l = wal->queues.next; states && l != &wal->queues; l = l->next) {
        struct br_wal_queue *queue = br_container_of(l, struct br_wal_queue, link);
        end = segment_put_state(queue, end);
        br_ranges_clear(&queue->unwritten);
    }
    (void)pthread_mutex_unlock(&wal->lock);
    *ret_len = len;
    return states;
}

static int segment_fill(struct br_wal *wal)
{
    size_t len;
    uint8_t *states = segment_states(wal, &len);
    if (!states)
        return ENOMEM;
    size_t padding_len =
        wal->direct_fd >= 0 ? br_wal_pad(WAL_SEGMENT_HEADER + len, wal->padding) : 0;
    struct iovec pieces[] = {{(void *)(uintptr_t)br_wal_header, sizeof br_wal_header},
                             {states, len},
                             {wal->padding, padding_len}};
    int error = br_wal_write(wal->fd, pieces, BR_COUNT(pieces), 0);
    br_free(states);
    wal->at = wal->synced_at = WAL_SEGMENT_HEADER + len + padding_len;
    if (!error && wal->config.sync != BR_WAL_OFF)
        error = fdatasync(wal->fd) || fsync(wal->directory_fd) ? errno : 0;
    return error;
}

int br_wal_segment_begin(struct br_wal *wal)
{
    char path[WAL_PATH_MAX];
    uint64_t number = wal->next_segment++;
    br_wal_segment_path(wal, number, path);
    wal->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (wal->fd < 0)
        return errno;
    /* open fails with this flag if the file system does not support direct writes */
    wal->direct_fd = wal->direct ? open(path, O_WRONLY | O_DIRECT | O_CLOEXEC | O_NOFOLLOW) : -1;
    int error = segment_fill(wal);
    (void)pthread_mutex_lock(&wal->lock);
    if (!error && !br_wal_segment_add(wal, number, wal->at))
        error = ENOMEM;
    (void)pthread_mutex_unlock(&wal->lock);
    if (error) {
        br_wal_close_segment(wal);
        (void)unlink(path);
    }
    return error;
}

void br_wal_close_segment(struct br_wal *wal)
{
    if (wal->fd >= 0)
        (void)close(wal->fd);
    if (wal->direct_fd >= 0)
        (void)close(wal->direct_fd);
    wal->fd = wal->direct_fd = -1;
}

void br_wal_segment_end(struct br_wal *wal, uint64_t end)
{
    if (wal->fd < 0)
        return;
    /* If ftruncate fails, recovery handles the bytes after `end` as damaged data. The records in
     * these bytes are already done. */
    (void)ftruncate(wal->fd, (off_t)end);
    br_wal_close_segment(wal);
    (void)pthread_mutex_lock(&wal->lock);
    wal->stats.bytes -= br_wal_current(wal)->size - end;
    br_wal_current(wal)->size = end;
    (void)pthread_mutex_unlock(&wal->lock);
}

/* --- The reserve ------------------------------------------------------------------------------ */

static void segment_reserve_path(const struct br_wal *wal, char out[WAL_PATH_MAX])
{
    (void)snprintf(out, WAL_PATH_MAX, "%s/reserve", wal->config.directory);
}

void br_wal_reserve_make(struct br_wal *wal)
{
    char path[WAL_PATH_MAX];
    struct stat st;
    segment_reserve_path(wal, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return;
    bool made = fstat(fd, &st) == 0 && st.st_size == RESERVE_BYTES;
    uint8_t *zeros = made ? NULL : br_calloc(1, RESERVE_BYTES);
    struct iovec piece = {zeros, RESERVE_BYTES};
    made = made || (zeros && br_wal_write(fd, &piece, 1, 0) == 0);
    br_free(zeros);
    (void)close(fd);
    if (!made)
        (void)unlink(path);
}

void br_wal_reserve_free(struct br_wal *wal)
{
    char path[WAL_PATH_MAX];
    segment_reserve_path(wal, path);
    (void)unlink(path);
}

/* --- Scanning -------------------------------------------------------------------------------- */

int br_wal_scan(struct wal_scan *scan)
{
    uint8_t header[BR_FRAME_HEADER];
    if (scan->at >= scan->end)
        return BR_ENOTFOUND;
    uint64_t left = scan->end - scan->at;
    if (left < sizeof header)
        return BR_EINVAL;
    long n = br_wal_pread(scan->fd, header, sizeof header, scan->at);
    if (n < 0)
        return BR_EIO;
    if (n < (long)sizeof header || !br_frame_decode(header, &scan->frame) ||
        left - sizeof header < scan->frame.payload_len)
        return BR_EINVAL;
    n = br_wal_pread(scan->fd, scan->name, scan->frame.name_len, scan->at + sizeof header);
    if (n < 0)
        return BR_EIO;
    return n == scan->frame.name_len ? 0 : BR_EINVAL;
}

void br_wal_scan_next(struct wal_scan *scan)
{
    scan->at += BR_FRAME_HEADER + scan->frame.payload_len;
}

int br_wal_scan_search(struct wal_scan *scan)
{
    uint8_t room[SEARCH_BYTES];
    uint64_t at = scan->at + 1;
    while (at + BR_FRAME_HEADER <= scan->end) {
        uint64_t left = scan->end - at;
        long n = br_wal_pread(scan->fd, room, left < sizeof room ? left : sizeof room, at);
        if (n < 0)
            return BR_EIO;
        size_t skip = br_frame_search(room, (size_t)n);
        scan->at = at + skip;
        int rc = skip < (size_t)n ? br_wal_scan(scan) : BR_EINVAL;
        if (rc != BR_EINVAL)
            return rc;
        /* The magic number may begin in the last bytes of `room`, so the next read overlaps
         * them. */
        size_t step = (size_t)n > MAGIC_LEN ? (size_t)n - (MAGIC_LEN - 1) : (size_t)n;
        at += skip < (size_t)n ? skip + 1 : step;
        if (n == 0)
            break;
    }
    scan->at = scan->end;
    return BR_ENOTFOUND;
}

/* --- Quarantine ------------------------------------------------------------------------------ */

/* Returns 0 or an errno value. */
static int segment_copy_out(const struct br_wal *wal, int from, uint64_t segment, uint64_t at,
                            uint64_t end)
{
    char path[WAL_PATH_MAX];
    uint8_t room[SEARCH_BYTES];
    (void)snprintf(path, sizeof path, "%s/quarantine", wal->config.directory);
    if (mkdir(path, 0700) && errno != EEXIST)
        return errno;
    (void)snprintf(path, sizeof path, "%s/quarantine/%08" PRIu64 "-%" PRIu64 ".bin",
                   wal->config.directory, segment, at);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int error = fd < 0 ? errno : 0;
    for (uint64_t to = 0; at < end && !error;) {
        long n = br_wal_pread(from, room, end - at < sizeof room ? end - at : sizeof room, at);
        struct iovec piece = {room, n > 0 ? (size_t)n : 0};
        error = n < 0 ? errno : br_wal_write(fd, &piece, 1, to);
        if (n <= 0)
            break;
        at += (uint64_t)n;
        to += (uint64_t)n;
    }
    if (!error && wal->config.sync != BR_WAL_OFF && fsync(fd))
        error = errno;
    if (fd >= 0)
        (void)close(fd);
    if (fd >= 0 && error)
        (void)unlink(path);
    return error;
}

void br_wal_quarantine(struct br_wal *wal, int fd, uint64_t segment, uint64_t at, uint64_t end,
                       const char *what)
{
    char text[128];
    int error = segment_copy_out(wal, fd, segment, at, end);
    if (error == EEXIST)
        return; /* the same damage was already copied and counted */
    (void)pthread_mutex_lock(&wal->lock);
    wal->stats.n_corrupt++;
    (void)pthread_mutex_unlock(&wal->lock);
    br_error(&wal->config.log,
             "%s: segment %08" PRIu64 ", %" PRIu64 " bytes at %" PRIu64 " were skipped; %s%s", what,
             segment, end - at, at,
             error ? "they could not be copied to quarantine: " : "a copy is in quarantine",
             error ? strerror_r(error, text, sizeof text) : "");
}
