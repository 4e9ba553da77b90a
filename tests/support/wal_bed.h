/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A write-ahead log in a new directory, on a disk that can fail. The calls of the C library that
 * change files are replaced in the binary of these tests. Any failure of the log that a test does
 * not expect fails the test.
 */
#pragma once

#include "tests/support/fake_root.h"
#include "tests/support/test.h"
#include "wal/internal.h"
#include "wal/wal.h"

/* Simulates a disk that fails. Counts the calls by which the log changes files. `count` calls fail,
 * beginning with the call number `first`. */
struct wal_disk {
    unsigned n_calls;
    /* number of the first call that fails (numbers start at 1), and number of calls that fail */
    unsigned first, count;
    int error; /* the errno of calls that fail; 0: instead of failing, writes are short */
    bool torn; /* true: the first write that fails has written half of its data */
    /* true: direct writes (O_DIRECT) fail, or opening a file for direct writes fails, as on some
     * file systems */
    bool refuses_direct, refuses_direct_open;
};

extern struct wal_disk disk;

struct bed {
    struct fake_root root;
    char directory[300];
    struct br_wal_config config;
    struct br_wal *wal;
    struct br_wal_queue *queue;
};

/* Opens the log, with a new directory or with the files of an earlier log. bed_end closes the log
 * and removes the directory. */
void bed_begin(struct bed *bed, enum br_wal_sync_mode sync);
void bed_open(struct bed *bed);
void bed_end(struct bed *bed);

/* Closes the log. All calls that change files fail, as if the process were killed. */
void bed_kill(struct bed *bed);

/* Kills the process and opens the log again. */
void bed_restart(struct bed *bed);

/* Appends a record whose data is `text`. Returns its rc. */
int bed_append_to(struct bed *bed, struct br_wal_queue *queue, const char *text, size_t len,
                  bool keep, uint64_t *ret_number);
int bed_append(struct bed *bed, const char *text, bool keep);

/* When the caller of br_wal_append delivers the record itself: never, before the call, or after the
 * call. */
enum delivery { NOT_DELIVERED, DELIVERED_BEFORE, DELIVERED_AFTER };

/* Appends a record that the caller is delivering itself. The log reads it only after a restart.
 * Returns the number of the record. */
uint64_t bed_append_held(struct bed *bed, const char *text, enum delivery delivery);

/* Reads the next record. Returns false if there is none. Damaged records are skipped. */
bool bed_read_from(struct br_wal_queue *queue, struct br_wal_found *found, char *ret_text,
                   size_t size);

/* Reads the next record, whose data must be `text`. */
void bed_expect(struct bed *bed, const char *text);

/* Fails if there is a record to read. */
void bed_expect_none(struct bed *bed);
