/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the bodies of requests for a peer: it translates and compresses them. Bodies of up to
 * BR_PACKING_NOW bytes are written at once; larger ones take many milliseconds, and are written in
 * a thread of the pool, while the worker goes on with others (call.h has both).
 *
 * A job has a codec and a pool of its own. It keeps the plain body alive, but only the worker
 * touches the counts of its buffers: the thread reads bytes.
 */
#pragma once

#include "core/host.h"
#include "core/item.h"
#include "wire/compression.h"

#define BR_PACKING_NOW (128u << 10)

/* How the bodies of an exporter are written. */
struct br_packing {
    /* Translates what is then compressed, into a new buffer that the caller owns; NULL: nothing is
     * translated. Any thread calls it: it touches nothing but its arguments, and no reference of
     * the rope's (br_rope_bytes). Returns 0 or a code. */
    int (*translate)(const struct br_rope *plain, enum br_signal signal, struct br_pool *pool,
                     struct br_buf **ret);
    enum br_encoding encoding;
    int level; /* as in br_compress */
};

/* Returns true when there is anything to do. */
bool br_packing_any(const struct br_packing *packing);

/* Writes a body at once: puts what it makes in the place of `*body`, which on failure is as it was,
 * or empty. Returns 0, a code of `translate` or of br_compress. */
int br_packing_write(const struct br_packing *packing, enum br_signal signal,
                     struct br_codec *codec, struct br_pool *pool, struct br_rope *body);

struct br_packing_job;

/* Called in the worker, once: `rc` is as br_packing_write returns it, and `body`, which it takes,
 * is empty unless that is 0. */
typedef void br_packing_fn(void *arg, int rc, struct br_rope *body);

/* Returns a job for a thread, which takes the slices of `*body` and leaves it empty. NULL, and the
 * body as it was, without memory. */
struct br_packing_job *br_packing_job_new(struct br_host *host, const struct br_packing *packing,
                                          enum br_signal signal, struct br_rope *body,
                                          br_packing_fn *packed, void *arg);

/* Begins it; `packed` is called later, or at once where there is no thread. The job frees itself.
 */
void br_packing_job_start(struct br_packing_job *job);

/* Gives it up: `packed` is not called. What has not begun is not done any more; nothing waits for
 * what has, and the plain body is kept until then. */
void br_packing_job_cancel(struct br_packing_job *job);
