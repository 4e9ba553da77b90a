/* SPDX-License-Identifier: Apache-2.0 */
/* State and functions that the files of the write-ahead log share. Only for src/wal. */
#pragma once

#include <pthread.h>

#include "base/list.h"
#include "wal/ranges.h"
#include "wal/wal.h"

#define WAL_PATH_MAX 4096
#define WAL_SEGMENT_HEADER 16u
#define WAL_VERSION_AT 8u /* offset of the version in the header of a segment */
/* oldest format version that recovery can read; this version has no padding frames */
#define WAL_VERSION_LEAST 1u
/* Alignment in bytes of the buffer, offset and length of a direct write. The value meets the
 * requirements of all common file systems. */
#define WAL_BLOCK 4096u
/* Largest padding frame in bytes. If the gap to the next block is smaller than a frame header, the
 * padding also fills one more block. */
#define WAL_PADDING_MAX (WAL_BLOCK + BR_FRAME_HEADER)
#define WAL_DIRECT_BYTES (1u << 20) /* size in bytes of the buffer for direct writes */
#define WAL_SEGMENTS_MAX 100000u
#define WAL_QUEUES_MAX 10000u

/* The largest record number that a segment contains for one queue. */
struct wal_share {
    struct br_wal_queue *queue;
    uint64_t last;
};

struct wal_segment {
    uint64_t number;
    uint64_t size; /* number of valid bytes in the file */
    struct wal_share *shares;
    uint32_t n_shares, cap_shares;
};

/* A position in the log. */
struct wal_place {
    uint64_t segment; /* number of the segment file */
    uint64_t at;      /* offset in the segment file in bytes */
};

struct br_wal_queue {
    struct br_list link; /* link in wal->queues */
    struct br_wal *wal;
    char *name;
    uint16_t name_len;
    uint64_t next; /* number of the next record to append; the first record has number 1 */
    /* numbers of records that are finished and need no delivery; all of them are less than
     * `next` */
    struct br_ranges done;
    /* numbers of records with a damaged payload; used only by br_wal_recover */
    struct br_ranges damaged;
    /* numbers of records that are done, or were delivered during the write, and whose marks are not
     * in a segment yet */
    struct br_ranges unwritten;
    /* number of records that br_wal_read still has to return, and the position of the first one;
     * the position is valid only if the number is not 0 */
    uint64_t n_unread;
    struct wal_place unread;
    /* Numbers of records after `unread` that br_wal_read skips, because the caller of br_wal_append
     * keeps their data in memory. */
    struct br_ranges held;
    /* largest record number that br_wal_recover has added, plus 1 */
    uint64_t recovered;
    uint64_t first_unread; /* smallest number of a record that br_wal_read may return */
    bool reading;          /* a thread has called br_wal_read_begin and not yet br_wal_read_end */
    /* descriptor of segment `read_segment`, used only by the reading thread; -1: not open */
    int read_fd;
    uint64_t read_segment;
    bool used; /* br_wal_queue_use was called for this queue */
    struct br_wal_total total;
};

/* A pending call of br_wal_append or br_wal_sync. The calling thread either waits until the job is
 * finished, or writes the job. */
struct wal_job {
    struct br_list link;
    struct br_wal_record *records;
    size_t count;
    bool sync;
    bool finished;
    int rc;
    struct br_err err;
};

struct br_wal {
    struct br_wal_config config; /* `directory` is owned */
    int lock_fd;
    int directory_fd; /* descriptor of the directory, for fsync */

    pthread_mutex_t lock; /* protects the fields of this block; never held during disk I/O */
    pthread_cond_t finished;
    struct br_list jobs; /* list of wal_job that no thread has begun to write */
    bool busy;           /* a thread is writing; only this thread uses the fields from `fd` on */
    struct br_list queues;
    struct wal_segment *segments; /* sorted from the oldest to the current segment */
    uint32_t n_segments, cap_segments;
    struct br_ranges deleted; /* numbers of removed segments whose files still exist */
    struct br_wal_stats stats;

    /* mapped file `processing`; NULL: the file could not be opened */
    struct wal_processing *processing;
    /* mapped file `marks`, protected by `lock`; NULL: the file could not be opened */
    struct wal_marks *marks;

    int fd; /* descriptor of the current segment; -1: the next write creates a new segment */
    /* Descriptor of the same file, opened with O_DIRECT for writes that bypass the page cache. -1:
     * the file system does not support O_DIRECT, or the sync mode is not BR_WAL_ALWAYS. */
    int direct_fd;
    /* buffer of WAL_DIRECT_BYTES bytes for direct writes; NULL: direct writes are not used */
    uint8_t *direct;
    /* buffer of WAL_PADDING_MAX bytes for a padding frame; NULL if `direct` is NULL */
    uint8_t *padding;
    void *direct_room;  /* allocated memory that contains `direct` and `padding` */
    uint64_t at;        /* end of the current segment: the offset in bytes of the next write */
    uint64_t synced_at; /* offset in the current segment up to which all bytes were synced */
    /* a sync has failed, and the data after `synced_at` was not copied to a new segment yet */
    bool unsafe;
    uint64_t next_segment;
    struct br_log_limit log_limit;
};

static inline struct wal_segment *br_wal_current(struct br_wal *wal)
{
    return &wal->segments[wal->n_segments - 1];
}

/* --- Queues (queue.c). All need wal->lock. --------------------------------------------------- */

/* Returns the queue with that name, and creates it if it does not exist. Returns NULL if memory is
 * short, or if there are already WAL_QUEUES_MAX queues. */
struct br_wal_queue *br_wal_queue_find(struct br_wal *wal, const char *name, size_t len);

/* Adds a record to the totals, or subtracts it if `add` is false. */
void br_wal_total_count(struct br_wal_total *total, bool add, unsigned signal, uint32_t n_records,
                        uint64_t bytes);

/* Marks the records `first` to `last` as done. If memory is short, the mark is lost, and the
 * records are delivered again after a restart. */
void br_wal_queue_mark(struct br_wal_queue *queue, uint64_t first, uint64_t last);

/* Saves the mark of a record that was delivered while br_wal_append was writing the record. */
void br_wal_mark_delivered(struct br_wal_queue *queue, uint64_t number);

/* Returns true if br_wal_read must skip the record: it is done, or the caller of br_wal_append
 * keeps its data in memory. */
bool br_wal_queue_skips(const struct br_wal_queue *queue, uint64_t number);

/* Registers that a segment contains record `number` of the queue. Returns 0, BR_ENOMEM, or BR_EFULL
 * if the segment already has WAL_QUEUES_MAX queues. */
int br_wal_segment_note(struct wal_segment *segment, struct br_wal_queue *queue, uint64_t number);

/* Returns the entry of a segment, or NULL if the segment was deleted. */
struct wal_segment *br_wal_segment_find(struct br_wal *wal, uint64_t number);

/* Returns true if the records of all segments are done. Needs wal->lock. */
bool br_wal_is_done(const struct br_wal *wal);

/* Removes the entries of the oldest segments, up to the first one with a record that is not done.
 * Never removes the current segment. */
void br_wal_drop_done(struct br_wal *wal);

/* Removes the entry of the oldest segment. br_wal_delete_files deletes the file later. If memory is
 * short, the file remains until the next start, which deletes it because all of its records are
 * done. */
void br_wal_drop_first(struct br_wal *wal);

/* Deletes the files of removed segments. The caller must not hold wal->lock: unlike the other
 * functions in this section, this function takes the lock itself, and releases the lock during disk
 * I/O. */
void br_wal_delete_files(struct br_wal *wal);

void br_wal_queues_free(struct br_wal *wal);

/* --- Marks that are not in a segment yet (marks.c) -------------------------------------------- */

/* Opens the file `marks`. If the file cannot be opened, records whose marks are not in a segment
 * when the process dies are delivered again. */
void br_wal_marks_open(struct br_wal *wal);

void br_wal_marks_close(struct br_wal *wal);

/* Adds the marks in the file to `done` and `unwritten` of their queues. Ignores marks of queues
 * that do not exist. Returns 0 or BR_ENOMEM. */
int br_wal_marks_recover(struct br_wal *wal);

/* Adds a mark to the file, unless the file is full. Needs wal->lock. */
void br_wal_marks_add(const struct br_wal_queue *queue, uint64_t number);

/* Returns the position after the newest mark, for br_wal_marks_remove. Needs wal->lock. */
uint64_t br_wal_marks_end(const struct br_wal *wal);

/* Removes the marks before the position `end` from the file, because a segment contains them. Needs
 * wal->lock. */
void br_wal_marks_remove(struct br_wal *wal, uint64_t end);

/* --- Segments (segment.c) -------------------------------------------------------------------- */

/* The header of every new segment: the magic bytes and the format version. */
extern const uint8_t br_wal_header[WAL_SEGMENT_HEADER];

/* Writes the path of a segment file to `out`. */
void br_wal_segment_path(const struct br_wal *wal, uint64_t number, char out[WAL_PATH_MAX]);

/* Appends an entry to the list of segments. Needs wal->lock. Returns the entry, or NULL if memory
 * is short. */
struct wal_segment *br_wal_segment_add(struct br_wal *wal, uint64_t number, uint64_t size);

/* Creates a segment file, writes the header and the state of all queues, syncs the file and the
 * directory unless the sync mode is BR_WAL_OFF, and makes the segment current. Returns 0, or an
 * errno value; after an error the log has no current segment. */
int br_wal_segment_begin(struct br_wal *wal);

/* Truncates the current segment to `end` bytes and closes it. The next write creates a new
 * segment. */
void br_wal_segment_end(struct br_wal *wal, uint64_t end);

/* Creates the file `reserve` if it does not exist. The file keeps disk space for a new segment, for
 * when the disk is full. If the disk is full or memory is short, no file is created. */
void br_wal_reserve_make(struct br_wal *wal);

/* Deletes the file `reserve`. */
void br_wal_reserve_free(struct br_wal *wal);

/* Writes a padding frame for offset `at` to `out`. The frame ends at a multiple of WAL_BLOCK.
 * Returns the length of the frame in bytes, or 0 if `at` is already aligned. */
size_t br_wal_pad(uint64_t at, uint8_t out[WAL_PADDING_MAX]);

/* Closes the descriptors of the current segment. */
void br_wal_close_segment(struct br_wal *wal);

/* Writes all bytes of `pieces` at the file offset `at`, and modifies `pieces` to track partial
 * writes. Returns 0 or an errno value. */
int br_wal_write(int fd, struct iovec *pieces, size_t count, uint64_t at);

/* Reads `len` bytes at the file offset `at`. Returns the number of bytes read, which is less than
 * `len` only at the end of the file. Returns -1 and sets errno after an error. */
long br_wal_pread(int fd, void *out, size_t len, uint64_t at);

/* A position in a segment file, and the frame that begins there. */
struct wal_scan {
    int fd;
    uint64_t at, end; /* offset of the current frame, and end of the valid data, in bytes */
    struct br_frame frame;
    char name[BR_FRAME_NAME_MAX]; /* name of the queue, `frame.name_len` bytes without a NUL */
};

/* Reads the header and the queue's name of the frame at scan->at, without moving the position.
 * Returns 0, BR_ENOTFOUND at the end, BR_EINVAL if the frame is invalid, or BR_EIO with errno
 * set. */
int br_wal_scan(struct wal_scan *scan);

/* Moves the position behind the current frame. */
void br_wal_scan_next(struct wal_scan *scan);

/* Searches for the next frame with a valid header after scan->at, and moves there. Returns 0, or
 * BR_EIO with errno set. Returns BR_ENOTFOUND if there is no further frame; scan->at is then
 * scan->end. */
int br_wal_scan_search(struct wal_scan *scan);

/* Copies the bytes from `at` to `end` of a segment to a file in the directory `quarantine`, counts
 * the damage, and logs it. `what` describes the damage. */
void br_wal_quarantine(struct br_wal *wal, int fd, uint64_t segment, uint64_t at, uint64_t end,
                       const char *what);

/* --- Records that end the process (processing.c) -----------------------------------------------
 */

/* Opens the file `processing`, and adds one death to each record that was being processed when the
 * process died. If the file cannot be opened, no deaths are counted. */
void br_wal_processing_open(struct br_wal *wal);
void br_wal_processing_close(struct br_wal *wal);

/* Returns true if the process has died at least three times while processing the record. */
bool br_wal_processing_is_fatal(const struct br_wal_queue *queue, uint64_t number);

/* Removes records that are done from the file `processing`. */
void br_wal_processing_forget_done(struct br_wal *wal);

/* --- Recovery (recover.c) -------------------------------------------------------------------- */

/* Reads all segments in the directory. Returns 0, or a negative error code and a message in
 * `err`. */
int br_wal_recover(struct br_wal *wal, struct br_err *err);
