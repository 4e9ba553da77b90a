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
/* oldest version that is read; it has no padding */
#define WAL_VERSION_LEAST 1u
/* alignment, in bytes, of the memory, offset and length of a direct write; a multiple of that which
 * any file system requires */
#define WAL_BLOCK 4096u
/* largest padding in bytes: a gap that is too small for a frame takes a further block */
#define WAL_PADDING_MAX (WAL_BLOCK + BR_FRAME_HEADER)
#define WAL_DIRECT_BYTES (1u << 20) /* size of the buffer for direct writes in bytes */
#define WAL_SEGMENTS_MAX 100000u
#define WAL_QUEUES_MAX 10000u

/* The largest number of a queue's records in a segment. */
struct wal_share {
    struct br_wal_queue *queue;
    uint64_t last;
};

struct wal_segment {
    uint64_t number;
    uint64_t size; /* number of valid bytes */
    struct wal_share *shares;
    uint32_t n_shares, cap_shares;
};

/* A place in the log. */
struct wal_place {
    uint64_t segment; /* number of the segment */
    uint64_t at;      /* offset in bytes */
};

struct br_wal_queue {
    struct br_list link; /* link in wal->queues */
    struct br_wal *wal;
    char *name;
    uint16_t name_len;
    uint64_t next; /* number of the next record; the first is 1 */
    /* numbers below `next` that need no delivery */
    struct br_ranges done;
    struct br_ranges damaged;   /* used by br_wal_recover: numbers with a damaged payload */
    struct br_ranges unwritten; /* numbers of delivered records: no segment has the mark yet */
    /* number of records that br_wal_read has to return, and the place where they begin; the place
     * is valid if the number is not 0 */
    uint64_t n_unread;
    struct wal_place unread;
    /* numbers after `unread` that br_wal_read does not return, because the caller of br_wal_append
     * has their data */
    struct br_ranges held;
    /* 1 more than the largest number that br_wal_recover has added */
    uint64_t recovered;
    uint64_t first_unread; /* records with a smaller number are not returned by br_wal_read */
    bool reading;          /* a thread has the right of br_wal_read_begin */
    int read_fd;           /* segment number read_segment, used by that thread; -1: not open */
    uint64_t read_segment;
    bool used; /* br_wal_queue_use was called */
    struct br_wal_total total;
};

/* A call of br_wal_append or br_wal_sync that waits for its turn, or is being written. */
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

    pthread_mutex_t lock; /* protects the fields of this block; never held while the disk works */
    pthread_cond_t finished;
    struct br_list jobs; /* list of wal_job that nobody writes yet */
    bool busy;           /* a thread is writing: it alone uses the fields of the next block */
    struct br_list queues;
    struct wal_segment *segments; /* from the oldest to the current one */
    uint32_t n_segments, cap_segments;
    struct br_ranges deleted; /* numbers of removed segments whose files still exist */
    struct br_wal_stats stats;

    struct wal_processing *processing; /* mapped file; NULL: it could not be opened */
    struct wal_marks *marks;           /* the same; protected by `lock` */

    int fd; /* the current segment; -1: the next write makes a new one */
    /* the same file for writes that bypass the page cache; -1: they are not possible, or no group
     * is synced before its answer */
    int direct_fd;
    uint8_t *direct;    /* WAL_DIRECT_BYTES bytes for such writes; NULL: they are not done */
    uint8_t *padding;   /* WAL_PADDING_MAX bytes for a padding frame; NULL as `direct` */
    void *direct_room;  /* owned memory that contains `direct` and `padding` */
    uint64_t at;        /* end of the current segment */
    uint64_t synced_at; /* end of the part of the current segment that was synced */
    /* a sync has failed, and what follows `synced_at` was not written elsewhere yet */
    bool unsafe;
    uint64_t next_segment;
    struct br_log_limit log_limit;
};

static inline struct wal_segment *br_wal_current(struct br_wal *wal)
{
    return &wal->segments[wal->n_segments - 1];
}

/* --- Queues (queue.c). All need wal->lock. --------------------------------------------------- */

/* Returns the queue of that name, which is made if it does not exist, or NULL without memory. */
struct br_wal_queue *br_wal_queue_find(struct br_wal *wal, const char *name, size_t len);

/* Adds a record to the totals, or removes it. */
void br_wal_total_count(struct br_wal_total *total, bool add, unsigned signal, uint32_t n_records,
                        uint64_t bytes);

/* Marks records as done. Without memory they are delivered again after a restart. */
void br_wal_queue_mark(struct br_wal_queue *queue, uint64_t first, uint64_t last);

/* Saves the mark of a record that was delivered while br_wal_append was writing it. */
void br_wal_mark_delivered(struct br_wal_queue *queue, uint64_t number);

/* Returns true if the record is done, or if the caller of br_wal_append has its data. */
bool br_wal_queue_skips(const struct br_wal_queue *queue, uint64_t number);

/* Notes that a segment contains a record of the queue. Returns 0, BR_ENOMEM or BR_EFULL. */
int br_wal_segment_note(struct wal_segment *segment, struct br_wal_queue *queue, uint64_t number);

/* Returns the entry of a segment; NULL: it was deleted. */
struct wal_segment *br_wal_segment_find(struct br_wal *wal, uint64_t number);

/* Returns true if the records of all segments are done. */
bool br_wal_is_done(const struct br_wal *wal);

/* Deletes the oldest segments whose records are all done. The current one stays. */
void br_wal_drop_done(struct br_wal *wal);

/* Removes the entry of the oldest segment. br_wal_delete_files deletes its file; without memory
 * the file stays until the next start, which finds that all of its records are done. */
void br_wal_drop_first(struct br_wal *wal);

/* Deletes the files of removed segments. Only this function of the group takes the lock itself,
 * because the disk must not make the workers wait. */
void br_wal_delete_files(struct br_wal *wal);

void br_wal_queues_free(struct br_wal *wal);

/* --- Marks that are not in a segment yet (marks.c) -------------------------------------------- */

/* Opens the file `marks`. Without it, a record whose mark is not in a segment when the process dies
 * is delivered again. */
void br_wal_marks_open(struct br_wal *wal);

void br_wal_marks_close(struct br_wal *wal);

/* Adds the marks of the file to the queues, which exist, as marks that are not in a segment yet.
 * Returns 0 or BR_ENOMEM. */
int br_wal_marks_recover(struct br_wal *wal);

/* Saves a mark if there is room. Needs wal->lock. */
void br_wal_marks_add(const struct br_wal_queue *queue, uint64_t number);

/* Returns the position after the newest mark, for br_wal_marks_remove. Needs wal->lock. */
uint64_t br_wal_marks_end(const struct br_wal *wal);

/* Removes the marks before the position `end`, because a segment contains them. Needs wal->lock. */
void br_wal_marks_remove(struct br_wal *wal, uint64_t end);

/* --- Segments (segment.c) -------------------------------------------------------------------- */

/* The header of a segment. */
extern const uint8_t br_wal_header[WAL_SEGMENT_HEADER];

/* Writes the path of a segment to `out`. */
void br_wal_segment_path(const struct br_wal *wal, uint64_t number, char out[WAL_PATH_MAX]);

/* Appends an entry for a segment. Needs wal->lock. Returns it, or NULL without memory. */
struct wal_segment *br_wal_segment_add(struct br_wal *wal, uint64_t number, uint64_t size);

/* Makes the file of a new segment with a header and the state of all queues, syncs its entry in
 * the directory, and makes it the current one. The previous one must be synced. Returns 0, or an
 * errno value; the log then has no current segment. */
int br_wal_segment_begin(struct br_wal *wal);

/* Ends the current segment at `end`; the next write makes a new one. */
void br_wal_segment_end(struct br_wal *wal, uint64_t end);

/* Makes the file `reserve`, if it does not exist: its bytes are free space for a new segment when
 * the disk is full. Without space or memory there is no such file. */
void br_wal_reserve_make(struct br_wal *wal);

/* Deletes the file `reserve`. */
void br_wal_reserve_free(struct br_wal *wal);

/* Writes a padding frame to `out`, after which a group that begins at `at` would be aligned.
 * Returns its length, which is 0 if `at` is aligned. */
size_t br_wal_pad(uint64_t at, uint8_t out[WAL_PADDING_MAX]);

/* Closes the descriptors of the current segment. */
void br_wal_close_segment(struct br_wal *wal);

/* Writes all bytes of the pieces at `at`, which change `pieces`. Returns 0 or an errno value. */
int br_wal_write(int fd, struct iovec *pieces, size_t count, uint64_t at);

/* Reads `len` bytes at `at`. Returns the number of bytes read, which is less than `len` only at the
 * end of the file, or -1 with errno. */
long br_wal_pread(int fd, void *out, size_t len, uint64_t at);

/* A position in the file of a segment, and the frame there. */
struct wal_scan {
    int fd;
    uint64_t at, end; /* the next frame, and the end of the valid part */
    struct br_frame frame;
    char name[BR_FRAME_NAME_MAX]; /* the queue's name, frame.name_len bytes */
};

/* Reads the header and name of the frame at scan->at, which stays there. Returns 0, BR_ENOTFOUND at
 * the end, BR_EINVAL if there is no valid frame, or BR_EIO with errno. */
int br_wal_scan(struct wal_scan *scan);

/* Moves to the next frame. */
void br_wal_scan_next(struct wal_scan *scan);

/* Moves to the next position after scan->at that has a valid header. Returns 0, BR_ENOTFOUND if
 * there is none (scan->at is then the end), or BR_EIO with errno. */
int br_wal_scan_search(struct wal_scan *scan);

/* Copies the bytes from `at` to `end` of a segment to a file in `quarantine`, counts the damage and
 * logs it with `what`, which names the damage. */
void br_wal_quarantine(struct br_wal *wal, int fd, uint64_t segment, uint64_t at, uint64_t end,
                       const char *what);

/* --- Records that end the process (processing.c) -----------------------------------------------
 */

/* Opens the file `processing`, and counts the records that were being processed when the process
 * died. Without the file, none are counted. */
void br_wal_processing_open(struct br_wal *wal);
void br_wal_processing_close(struct br_wal *wal);

/* Returns true if the process has died three times while it processed the record. */
bool br_wal_processing_is_fatal(const struct br_wal_queue *queue, uint64_t number);

/* Forgets the records that are done. */
void br_wal_processing_forget_done(struct br_wal *wal);

/* --- Recovery (recover.c) -------------------------------------------------------------------- */

/* Reads all segments of the directory. Returns 0, or a negative code and a sentence in `err`. */
int br_wal_recover(struct br_wal *wal, struct br_err *err);
