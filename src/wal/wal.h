/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A write-ahead log: one directory of segment files that holds the records of several queues until
 * they are delivered. docs/decisions/durable-queue.md describes the format and the rules.
 *
 * A record is one OTLP request for one exporter. It has a number in its queue. It is stored once
 * br_wal_append has returned 0 for it, and until br_wal_done was called for its number.
 *
 * Threads: br_wal_append, br_wal_sync and br_wal_read wait for the disk, and are called in threads
 * of the pool. All other functions return at once and may be called by any thread.
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
    uint64_t max_size;     /* largest sum of all segments in bytes */
    uint64_t segment_size; /* a segment of at least this size in bytes is followed by a new one */
    enum br_wal_sync_mode sync;
    bool drop_oldest; /* delete the oldest segment instead of refusing a record */
    struct br_log log;
};

struct br_wal;
struct br_wal_queue;

/* Opens the log: makes the directory, locks it, and reads all segments. Returns 0, or a negative
 * code and a sentence in `err`. */
int br_wal_open(const struct br_wal_config *config, struct br_wal **ret, struct br_err *err);

/* Checks, without changing anything, whether br_wal_open would succeed. Returns 0, or a negative
 * code and a sentence in `err`. */
int br_wal_check(const struct br_wal_config *config, struct br_err *err);

/* Writes what is not written yet, syncs, and frees the log. No thread may be using it. Accepts
 * NULL. */
void br_wal_close(struct br_wal *wal);

/* --- Queues ---------------------------------------------------------------------------------- */

/* Number and size of the records of a queue that are not done, by enum br_signal. */
struct br_wal_total {
    uint64_t n_requests[2];
    uint64_t n_records[2]; /* spans and samples */
    uint64_t bytes[2];     /* bytes of the data and metadata */
};

/* Returns the queue of that name, which is at most BR_FRAME_NAME_MAX bytes long. Makes it if it
 * does not exist. It lives as long as the log. Returns NULL without memory. */
struct br_wal_queue *br_wal_queue(struct br_wal *wal, const char *name);

/* Returns the totals of a queue. */
struct br_wal_total br_wal_queue_total(struct br_wal_queue *queue);

/* Returns true if br_wal_read has records of the queue to return. */
bool br_wal_queue_has_unread(struct br_wal_queue *queue);

/* Marks the queue as one that is read. */
void br_wal_queue_use(struct br_wal_queue *queue);

/* Makes all requests that are not done readable again, because those who had them in memory have
 * ended. No one may be reading. */
void br_wal_queue_reread(struct br_wal_queue *queue);

/* Logs a warning for each queue that has records and that nobody reads. */
void br_wal_warn_unused(struct br_wal *wal);

/* Marks a record as done: it was delivered, rejected or given up. `n_records`, `signal` and `len`
 * are those of the record. The mark survives the death of the process at once. It survives a
 * power failure when the next call of br_wal_append or br_wal_sync has written it to a segment. */
void br_wal_done(struct br_wal_queue *queue, uint64_t number, unsigned signal, uint32_t n_records,
                 size_t len);

/* Returns true if a mark of br_wal_done was not written yet. */
bool br_wal_has_unwritten(struct br_wal *wal);

/* --- Writing --------------------------------------------------------------------------------- */

/* A record to append. Zero the fields that are not listed as input. */
struct br_wal_record {
    /* input */
    struct br_wal_queue *queue;
    unsigned signal;
    uint32_t n_records;
    uint64_t time_ns; /* Unix nanoseconds when the request was received */
    /* pieces of the payload: the first two are set by br_wal_append; then the metadata, which may
     * be empty, and the data */
    struct iovec *pieces;
    size_t n_pieces;
    size_t metadata_len;
    /* input: the caller wants to keep the data in memory; result: it has to keep the data, because
     * br_wal_read does not return the record */
    bool keep;
    /* input: the caller already delivers the record: `keep` remains true, and br_wal_read does not
     * return the record */
    bool held;
    bool delivered; /* br_wal_delivered was called */
    /* result */
    uint64_t number;
    int rc;          /* 0: the record is stored */
    const char *why; /* reason of an rc that concerns this record alone, a constant; else NULL */
    /* used by the log */
    struct br_frame frame;
    uint8_t header[BR_FRAME_HEADER];
};

#define BR_WAL_PIECES_BEFORE 2u /* number of pieces that br_wal_append sets */

/* Appends records, in order, together with those that other threads append at the same time, and
 * syncs unless the config says otherwise. Sets the results of each record. A record has the rc:
 * - 0: it is stored;
 * - BR_EFULL: the log has max_size, or the disk is full; `err` contains the reason;
 * - BR_EIO: it could not be written or synced; `err` contains the reason;
 * - BR_ENOMEM, BR_ETOOBIG.
 * Returns the first of these codes that is not 0. */
int br_wal_append(struct br_wal *wal, struct br_wal_record *records, size_t count,
                  struct br_err *err);

/* Notes that a record was delivered, before br_wal_append has returned for it. If the process dies,
 * the record is not delivered again. The caller must call br_wal_done as well if the record is
 * stored. */
void br_wal_delivered(struct br_wal_record *record);

/* Writes the marks of br_wal_done. With `sync`, syncs what was written before. Returns 0, or
 * BR_EIO and a sentence in `err`. */
int br_wal_sync(struct br_wal *wal, bool sync, struct br_err *err);

/* --- Reading --------------------------------------------------------------------------------- */

/* A record as br_wal_read returns it. */
struct br_wal_found {
    uint64_t number, time_ns;
    unsigned signal;
    uint32_t n_records;
    size_t metadata_len, data_len;
};

/* Takes the right to read a queue. Returns false if another thread has it, or if there is nothing
 * to read. br_wal_read_end returns it. */
bool br_wal_read_begin(struct br_wal_queue *queue);
void br_wal_read_end(struct br_wal_queue *queue);

/* Finds the next record to read. Returns 0, BR_ENOTFOUND if there is none, or BR_EIO and a sentence
 * in `err`; the next call then tries again. */
int br_wal_read(struct br_wal_queue *queue, struct br_wal_found *ret, struct br_err *err);

/* Reads the metadata and data of the record that br_wal_read has found to `out`, which has room for
 * both. From then on the caller owns the record, as if br_wal_append had kept it. Returns 0;
 * BR_EAGAIN if it has to be found again; or BR_EIO, and the record remains the next one. Returns
 * BR_EINVAL if the record is damaged: it is then in quarantine and done. */
int br_wal_read_take(struct br_wal_queue *queue, const struct br_wal_found *found, uint8_t *out,
                     struct br_err *err);

/* --- Records that end the process ------------------------------------------------------------ */

#define BR_WAL_SLOTS 64u

/* Notes that the thread with this slot, less than BR_WAL_SLOTS, begins to process a record of the
 * queue; 0: that it has ended. If the process dies three times meanwhile, the record is moved to
 * quarantine at the next start. */
void br_wal_process(struct br_wal_queue *queue, unsigned slot, uint64_t number);

/* --- Metrics --------------------------------------------------------------------------------- */

struct br_wal_stats {
    uint64_t bytes, n_segments;
    uint64_t n_syncs, n_errors; /* successful syncs; failed calls that write or sync */
    uint64_t n_corrupt;         /* damaged places that were skipped */
    uint64_t n_restored;        /* records that were in the log when it was opened */
    uint64_t n_dropped[2];      /* spans and samples that drop_oldest has deleted */
    bool failing;               /* the last write or sync has failed */
};

struct br_wal_stats br_wal_stats(struct br_wal *wal);
