/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts and compresses request bodies for a backend. Bodies of up to BR_PACKING_NOW bytes are
 * packed at once. Larger ones take many milliseconds and are packed in a thread of the pool (call.h
 * decides).
 *
 * A job has a codec and a memory pool for its thread. It keeps the original body alive, but the
 * thread only reads its bytes: the reference counts of its buffers belong to the worker.
 */
#pragma once

#include "core/host.h"
#include "core/item.h"
#include "wire/compression.h"

#define BR_PACKING_NOW (128u << 10)

/* How an exporter packs its bodies. */
struct br_packing {
    /* Converts `plain`, before compression, into a new buffer that the caller owns. NULL: no
     * conversion. Called in any thread: it may use only its arguments and must not change
     * reference counts of the rope's buffers (br_rope_bytes). Returns 0 or an error code. */
    int (*translate)(const struct br_rope *plain, enum br_signal signal, struct br_pool *pool,
                     struct br_buf **ret);
    enum br_encoding encoding;
    int level; /* compression level, as in br_compress */
};

/* Returns true if `packing` converts or compresses bodies. */
bool br_packing_any(const struct br_packing *packing);

/* Packs a body at once and replaces `*body` with the result. On failure, `*body` is unchanged or
 * empty. Returns 0, or a code of `translate`, br_compress or br_rope_add. */
int br_packing_write(const struct br_packing *packing, enum br_signal signal,
                     struct br_codec *codec, struct br_pool *pool, struct br_rope *body);

struct br_packing_job;

/* Called once in the worker when a job has ended. `rc` is the result of br_packing_write. The
 * callback takes `body`, which is empty if `rc` is not 0. */
typedef void br_packing_fn(void *arg, int rc, struct br_rope *body);

/* Returns a job that takes the slices of `*body` and leaves it empty. Returns NULL if memory is
 * short; then the body is unchanged. */
struct br_packing_job *br_packing_job_new(struct br_host *host, const struct br_packing *packing,
                                          enum br_signal signal, struct br_rope *body,
                                          br_packing_fn *packed, void *arg);

/* Starts the job, which frees itself. `packed` is called later, or before this returns if the host
 * has no threads. */
void br_packing_job_start(struct br_packing_job *job);

/* Cancels the job; `packed` is not called. If a thread has already begun it, the thread goes on
 * and keeps the original body until it ends. This function does not wait. */
void br_packing_job_cancel(struct br_packing_job *job);
