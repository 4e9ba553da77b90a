/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves partitions of a store as one file, and opens it somewhere else. The file is a tar archive
 * (POSIX ustar) of their databases.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

/* Writes to `file`, which must not be there, every partition of the folder that has spans or
 * samples in [from, until): the whole partition. The folder may be in use. `*ret_count` is the
 * number of partitions. Returns 0; BR_ENOTFOUND when there is no such partition; BR_EIO, BR_EFULL,
 * BR_EPROTO (a damaged partition), BR_EUNSUPPORTED (a newer version) or BR_ENOMEM, with a sentence.
 */
int br_slice_save(const char *directory, uint64_t from_ns, uint64_t until_ns, const char *file,
                  unsigned *ret_count, struct br_err *err);

/* Unpacks a saved file into a folder. Members that are no partitions are refused. Returns 0;
 * BR_EPROTO when it is no such file or not whole; BR_EIO or BR_ENOMEM, with a sentence. */
int br_slice_open(const char *file, const char *directory, struct br_err *err);
