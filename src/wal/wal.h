/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A write-ahead log: a directory of segment files that contain the records of several queues until
 * the records are delivered. docs/decisions/durable-queue.md describes the format and the rules.
 *
 * A record is one OTLP request for one exporter. The records of a queue are numbered from 1. A
 * record is stored from the time br_wal_append sets its rc to 0 until br_wal_done is called with
 * its number.
 *
 * Threads: br_wal_append, br_wal_sync, br_wal_read and br_wal_read_take wait for the disk, so they
 * are called only in pool threads. br_wal_open, br_wal_check and br_wal_close access the disk too,
 * but only when a service starts or stops. All other functions return without disk I/O, and any
 * thread may call them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/err.h"
#include "base/log.h"
#include "wal/frame.h"

enum br_wal_sync_mode { BR_WAL_ALWAYS, BR_WAL_INTERVAL, BR_WAL_OFF };

struct br_wal_config {
    const char *directory; /* copied */
    bool create_directory;
    mode_t directory_mode;
    uint64_t max_size;     /* maximum total size of all segments in bytes */
    uint64_t segment_size; /* size in bytes at which a new segment is started */
    enum br_wal_sync_mode sync;
    /* when the log is full, delete the oldest segment instead of rejecting new records */
    bool drop_oldest;
    struct br_log log;
};

struct br_wal;
struct br_wal_queue;

/* Opens the log: creates the directory if config->create_directory is true, locks the directory,
 * and reads all segments. Returns 0, or a negative error code and a message in `err`. */
int br_wal_open(const struct br_wal_config *config, struct br_wal **ret, struct br_err *err);

/* Checks whether br_wal_open could open the directory, without changing anything. Returns 0, or a
 * negative error code and a message in `err`. */
int br_wal_check(const struct br_wal_config *config, struct br_err *err);

/* Writes the pending marks of br_wal_done, syncs unless the sync mode is BR_WAL_OFF, and frees the
 * log. No other thread may use the log. Accepts NULL. */
void br_wal_close(struct br_wal *wal);

/* --- Queues ---------------------------------------------------------------------------------- */

/* Number and size of the records in a queue that are not done. Each array is indexed by enum
 * br_signal. */
struct br_wal_total {
    uint64_t n_requests[2];
    uint64_t n_records[2]; /* spans and samples */
    uint64_t bytes[2];     /* total size of data and metadata in bytes */
};

/* Returns the queue with that name, and creates the queue if it does not exist. The log owns the
 * queue and frees it in br_wal_close. Returns NULL if the name is longer than BR_FRAME_NAME_MAX
 * bytes, if memory is short, or if the log has too many queues. */
struct br_wal_queue *br_wal_queue(struct br_wal *wal, const char *name);

/* Returns the totals of a queue. */
struct br_wal_total br_wal_queue_total(struct br_wal_queue *queue);

/* Returns true if the queue has records that br_wal_read has not returned yet. */
bool br_wal_queue_has_unread(struct br_wal_queue *queue);

/* Marks the queue as used by an exporter, so that br_wal_warn_unused does not report the queue. */
void br_wal_queue_use(struct br_wal_queue *queue);

/* Makes br_wal_read return all records that are not done, including records that it has already
 * returned. Call this after the previous user of the queue, which kept records in memory, has
 * ended. No thread may be reading the queue. */
void br_wal_queue_reread(struct br_wal_queue *queue);

/* Logs a warning for each queue that contains records but is not used by an exporter. */
void br_wal_warn_unused(struct br_wal *wal);

/* Marks a record as done, after it was delivered, rejected or dropped. `n_records` is the number of
 * spans or samples in the record. `len` is the size of its metadata and data in bytes. The mark is
 * not lost if the process dies afterwards. After a power failure, the mark remains only if a call
 * of br_wal_append or br_wal_sync has written it to a segment. */
void br_wal_done(struct br_wal_queue *queue, uint64_t number, unsigned signal, uint32_t n_records,
                 size_t len);

/* Returns true if a mark that br_wal_done has set was not written yet. */
bool br_wal_has_unwritten(struct br_wal *wal);

/* --- Writing --------------------------------------------------------------------------------- */

/* A record to append. Zero the fields that are not listed as input. */
struct br_wal_record {
    /* input */
    struct br_wal_queue *queue;
    unsigned signal;
    uint32_t n_records;
    uint64_t time_ns; /* time when the request was received, in Unix nanoseconds */
    /* Buffers with the encoded record. br_wal_append sets the first BR_WAL_PIECES_BEFORE buffers.
     * The caller sets the others: the client metadata, which may be empty, and then the data. */
    struct iovec *pieces;
    size_t n_pieces;
    size_t metadata_len;
    /* Input: the caller wants to keep the data in memory. Result: true if the caller must keep the
     * data, because br_wal_read does not return the record. */
    bool keep;
    /* Input: the caller is already delivering the record. `keep` is then true after the call, and
     * br_wal_read does not return the record. */
    bool held;
    bool delivered; /* set by br_wal_delivered */
    /* result */
    uint64_t number;
    int rc; /* 0: the record is stored */
    /* static string with the reason if `rc` concerns only this record; otherwise NULL */
    const char *why;
    /* used internally by the log */
    struct br_frame frame;
    uint8_t header[BR_FRAME_HEADER];
};

#define BR_WAL_PIECES_BEFORE 2u /* number of entries in `pieces` that br_wal_append sets */

/* Appends records in order, in one group with the records that other threads append at the same
 * time. Syncs the group if the sync mode is BR_WAL_ALWAYS. Sets the result fields of each record.
 * The `rc` of a record is:
 * - 0: the record is stored;
 * - BR_EFULL: the log has reached max_size, or the disk is full;
 * - BR_EIO: the record could not be written or synced;
 * - BR_ENOMEM: memory is short;
 * - BR_ETOOBIG: the record is larger than max_size or than the largest frame.
 * Returns the first `rc` that is not 0, or 0. If a write or sync has failed, `err` contains a
 * message. */
int br_wal_append(struct br_wal *wal, struct br_wal_record *records, size_t count,
                  struct br_err *err);

/* Reports that a record was delivered before br_wal_append has returned for it. If the process dies
 * afterwards, the record is not delivered again. If the record is stored, the caller must call
 * br_wal_done as well. */
void br_wal_delivered(struct br_wal_record *record);

/* Writes the pending marks of br_wal_done. If `sync` is true, also syncs all data written so far.
 * Returns 0, or BR_EIO and a message in `err`. */
int br_wal_sync(struct br_wal *wal, bool sync, struct br_err *err);

/* --- Reading --------------------------------------------------------------------------------- */

/* The properties of a record that br_wal_read has found. */
struct br_wal_found {
    uint64_t number, time_ns;
    unsigned signal;
    uint32_t n_records;
    size_t metadata_len, data_len;
};

/* Reserves the queue for reading by the calling thread. Returns false if another thread is reading
 * the queue, or if the queue has no unread records. br_wal_read_end ends the reservation. */
bool br_wal_read_begin(struct br_wal_queue *queue);
void br_wal_read_end(struct br_wal_queue *queue);

/* Finds the next unread record. Returns 0, or BR_ENOTFOUND if there is none. Returns BR_EIO and a
 * message in `err` if reading has failed; the next call tries again. */
int br_wal_read(struct br_wal_queue *queue, struct br_wal_found *ret, struct br_err *err);

/* Reads the metadata and data of the record that br_wal_read has found into `out`, which must have
 * room for both. After success, br_wal_read does not return the record again, and the caller must
 * deliver the record and call br_wal_done. Returns:
 * - 0;
 * - BR_EAGAIN: the log has changed, so the caller must call br_wal_read again;
 * - BR_EIO: reading has failed, and br_wal_read returns the same record again;
 * - BR_EINVAL: the record is damaged; it was copied to quarantine and marked as done. */
int br_wal_read_take(struct br_wal_queue *queue, const struct br_wal_found *found, uint8_t *out,
                     struct br_err *err);

/* --- Records that end the process ------------------------------------------------------------ */

#define BR_WAL_SLOTS 64u

/* Registers which record of the queue a thread is processing. `slot` identifies the thread and is
 * less than BR_WAL_SLOTS. `number` is the number of the record, or 0 if the thread has finished. If
 * the process dies three times while processing the same record, the next start copies the record
 * to quarantine and drops it. */
void br_wal_process(struct br_wal_queue *queue, unsigned slot, uint64_t number);

/* --- Metrics --------------------------------------------------------------------------------- */

struct br_wal_stats {
    uint64_t bytes, n_segments;
    uint64_t n_syncs, n_errors; /* successful syncs; groups that failed to be written or synced */
    uint64_t n_corrupt;         /* damaged areas of segments that were skipped */
    uint64_t n_restored;        /* records that were not done when the log was opened */
    /* spans and samples deleted by drop_oldest, indexed by enum br_signal */
    uint64_t n_dropped[2];
    bool failing; /* the last attempt to write or sync has failed */
};

struct br_wal_stats br_wal_stats(struct br_wal *wal);
