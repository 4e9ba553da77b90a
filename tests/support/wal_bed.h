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

/* A disk that can fail: counts the calls of the log that change files. `count` calls fail, from
 * number `first` on. */
struct wal_disk {
    unsigned n_calls;
    /* number of the first call that fails, starting at 1; number of calls that fail */
    unsigned first, count;
    int error; /* errno; 0: writes are short instead */
    bool torn; /* the first write that fails has written half of its data */
    /* direct writes fail, or opening for direct writes fails, as on some file systems */
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

/* Closes without writing anything, as when the process is killed: all calls fail. */
void bed_kill(struct bed *bed);

/* Kills the process and opens the log again. */
void bed_restart(struct bed *bed);

/* Appends a record whose data is `text`. Returns its rc. */
int bed_append_to(struct bed *bed, struct br_wal_queue *queue, const char *text, size_t len,
                  bool keep, uint64_t *ret_number);
int bed_append(struct bed *bed, const char *text, bool keep);

/* When the caller of br_wal_append delivers the record, if at all. */
enum delivery { NOT_DELIVERED, DELIVERED_BEFORE, DELIVERED_AFTER };

/* Appends a record that the caller is already delivering. Returns the record's number. */
uint64_t bed_append_held(struct bed *bed, const char *text, enum delivery delivery);

/* Reads the next record. Returns false if there is none. Damaged records are skipped. */
bool bed_read_from(struct br_wal_queue *queue, struct br_wal_found *found, char *ret_text,
                   size_t size);

/* Reads the next record, whose data must be `text`. */
void bed_expect(struct bed *bed, const char *text);

/* Fails if there is a record to read. */
void bed_expect_none(struct bed *bed);
