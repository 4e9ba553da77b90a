/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves partitions of a store as one file, and opens it somewhere else. The file is a tar archive
 * (POSIX ustar) of their databases.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* The member that lists, in text, which partitions could not be read and are left out. It comes
 * last, and only if there are any. */
#define BR_SLICE_LIST "left-out.txt"

struct br_slice_reader;
struct br_store;

/* Begins to read, as such a file, every partition of a store that has spans or samples in
 * [from, until): the whole partition. The store may be in use. What is read is a snapshot of one
 * partition at a time, in a file in its folder that loses its name at once: so much room is taken
 * there. `*ret` is to be ended. Returns 0, BR_EIO or BR_ENOMEM, with a sentence. */
int br_slice_begin_store(const struct br_store *store, uint64_t from_ns, uint64_t until_ns,
                         struct br_slice_reader **ret, struct br_err *err);

/* Has `is_stopped` asked again and again while a snapshot is made, in the thread that reads: true
 * ends br_slice_read with BR_ETIMEOUT. */
void br_slice_stop_when(struct br_slice_reader *slice, bool (*is_stopped)(void *arg), void *arg);

/* Reads the next bytes of it, fewer than `len` only before the end: 0 bytes are the end. In any
 * thread. Returns as br_slice_save; then no more can be read. */
int br_slice_read(struct br_slice_reader *slice, void *data, size_t len, size_t *ret_len,
                  struct br_err *err);

/* Returns how many partitions could not be read, and are left out, so far. */
unsigned br_slice_unread(const struct br_slice_reader *slice);

/* Accepts NULL. */
void br_slice_end(struct br_slice_reader *slice);

struct br_slice_saved {
    unsigned n_partitions;
    unsigned n_unread; /* that could not be read, and are left out */
};

/* Writes to `file`, which must not be there, every partition of the folder that has spans or
 * samples in [from, until) and can be read: the whole partition. The folder may be in use. Returns
 * 0; BR_ENOTFOUND when no partition has any; BR_EIO, BR_EFULL or BR_ENOMEM, with a sentence.
 */
int br_slice_save(const char *directory, uint64_t from_ns, uint64_t until_ns, const char *file,
                  struct br_slice_saved *ret, struct br_err *err);

/* Unpacks a saved file into a folder. Refuses members that are neither partitions nor the
 * list, and more than 10,000. The unpacked files are never larger than the saved file. Returns 0;
 * BR_EPROTO when it is no such file or not whole; BR_EIO or BR_ENOMEM, with a sentence. */
int br_slice_open(const char *file, const char *directory, struct br_err *err);
