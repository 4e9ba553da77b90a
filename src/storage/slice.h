/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves partitions of a store to one file, and unpacks such a file elsewhere. The file is a tar
 * archive (POSIX ustar) that contains the databases of the partitions.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Name of the archive member that lists, as text, the partitions that could not be read. The list
 * is the last member, and is present only if at least one partition could not be read. */
#define BR_SLICE_LIST "left-out.txt"

struct br_slice_reader;
struct br_store;

/* Begins to read a store as a tar archive. The archive contains every partition that has spans or
 * samples in [from, until), each partition as a whole. The store may be in use meanwhile. Each
 * partition is copied to an unlinked temporary file in the directory of the store, which needs free
 * space for the copy. The caller frees `*ret` with br_slice_end. Returns 0, BR_EIO or BR_ENOMEM,
 * with a message. */
int br_slice_begin_store(const struct br_store *store, uint64_t from_ns, uint64_t until_ns,
                         struct br_slice_reader **ret, struct br_err *err);

/* Sets the function `is_stopped`, which the reading thread calls repeatedly while it copies a
 * partition. When the function returns true, br_slice_read fails with BR_ETIMEOUT. */
void br_slice_stop_when(struct br_slice_reader *slice, bool (*is_stopped)(void *arg), void *arg);

/* Reads the next bytes of the archive. `*ret_len` is less than `len` only at the end of the
 * archive, and 0 after the end. May be called in any thread. Returns 0; BR_ENOTFOUND if no
 * partition contains data of the time range; BR_EIO, BR_EFULL, BR_ETIMEOUT or BR_ENOMEM, with a
 * message. After an error, br_slice_read returns no more data. */
int br_slice_read(struct br_slice_reader *slice, void *data, size_t len, size_t *ret_len,
                  struct br_err *err);

/* Returns how many partitions have been left out so far because they could not be read. */
unsigned br_slice_unread(const struct br_slice_reader *slice);

/* Frees the reader. Accepts NULL. */
void br_slice_end(struct br_slice_reader *slice);

struct br_slice_saved {
    unsigned n_partitions;
    unsigned n_unread; /* number of partitions that were left out because they could not be read */
};

/* Writes to `file`, which must not exist, every readable partition of the directory that has spans
 * or samples in [from, until), each partition as a whole. The directory may be in use by a running
 * process. Returns 0; BR_ENOTFOUND if no partition has spans or samples in the range; BR_EIO,
 * BR_EFULL or BR_ENOMEM, with a message. */
int br_slice_save(const char *directory, uint64_t from_ns, uint64_t until_ns, const char *file,
                  struct br_slice_saved *ret, struct br_err *err);

/* Unpacks a file that br_slice_save has written. The partitions are written into `directory`.
 * Rejects a file that contains members other than partitions and the list BR_SLICE_LIST, or more
 * than 10,000 members. The unpacked files together are never larger than `file`. Returns 0;
 * BR_EPROTO if the file is incomplete or was not written by br_slice_save; BR_EIO, BR_EFULL or
 * BR_ENOMEM, with a message. */
int br_slice_open(const char *file, const char *directory, struct br_err *err);
