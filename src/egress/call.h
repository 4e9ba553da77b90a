/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call is one attempt of an exporter to send an item, from the request to the outcome. A call
 * ends with the response, at its timeout, or when the exporter stops. Over HTTP, a 2xx status means
 * delivery even if the body of the response is too long, incomplete or late.
 */
#pragma once

#include "config/option.h"
#include "core/host.h"
#include "core/item.h"
#include "net/client.h"
#include "pipeline/component.h"
#include "wire/compression.h"

/* --- Packing (packing.c) ---------------------------------------------------------------------- */

/*
 * Converts and compresses request bodies for a backend. Bodies of up to BR_PACKING_NOW bytes are
 * packed at once. Packing larger bodies takes many milliseconds, so they are packed in a thread of
 * the pool.
 *
 * A job has a codec and a memory pool for its thread. The job keeps the original body alive, but
 * the thread only reads the body's bytes: the reference counts of the body's buffers belong to the
 * worker.
 */

#define BR_PACKING_NOW (128u << 10)

/* Describes how an exporter packs (converts and compresses) its request bodies. */
struct br_packing {
    /* Converts `plain`, before compression, into a new buffer that the caller owns. NULL: bodies
     * are not converted. Called in any thread: it may use only its arguments and must not change
     * reference counts of the rope's buffers (br_rope_bytes). Returns 0 or an error code. */
    int (*translate)(const struct br_rope *plain, enum br_signal signal, struct br_pool *pool,
                     struct br_buf **ret);
    enum br_encoding encoding;
    int level; /* compression level, as in br_compress */
};

/* Converts an OTLP request in protobuf to OTLP/JSON. A br_packing.translate: returns 0, BR_ENOMEM,
 * or an error code of br_json_encode. */
int br_packing_to_json(const struct br_rope *plain, enum br_signal signal, struct br_pool *pool,
                       struct br_buf **ret);

/* Returns true if `packing` converts or compresses bodies. */
bool br_packing_any(const struct br_packing *packing);

/* Packs a body at once and replaces `*body` with the result. On failure, `*body` is unchanged or
 * empty. Returns 0, or an error code of `translate`, br_compress or br_rope_add. */
int br_packing_write(const struct br_packing *packing, enum br_signal signal,
                     struct br_codec *codec, struct br_pool *pool, struct br_rope *body);

struct br_packing_job;

/* Called once in the worker when a job has ended. `rc` is the result of br_packing_write. The
 * callback takes ownership of `body`, which is empty if `rc` is not 0. */
typedef void br_packing_fn(void *arg, int rc, struct br_rope *body);

/* Returns a job that takes ownership of the slices of `*body` and leaves `*body` empty. Returns
 * NULL if memory is short; then `*body` is unchanged. */
struct br_packing_job *br_packing_job_new(struct br_host *host, const struct br_packing *packing,
                                          enum br_signal signal, struct br_rope *body,
                                          br_packing_fn *packed, void *arg);

/* Starts the job, which frees itself when it ends. `packed` is called after this function has
 * returned, or before if the host has no threads. */
void br_packing_job_start(struct br_packing_job *job);

/* Cancels the job. The callback `packed` is not called. If a thread has already begun the job,
 * the thread finishes it and keeps the original body until then. This function does not wait. */
void br_packing_job_cancel(struct br_packing_job *job);

/* --- Calls (call.c) --------------------------------------------------------------------------- */

/* maximum size, in bytes, of a response after decompression */
#define BR_CALL_MESSAGE_MAX (1u << 20)

struct br_call;

/* The pending calls of one exporter. */
struct br_calls {
    struct br_node *node;
    uint64_t timeout_ms; /* timeout of each call in milliseconds; 0: no timeout */
    /* returns the outcome of a complete response */
    struct br_outcome (*read)(const struct br_call *call);
    struct br_list list;
};

struct br_call {
    struct br_list link;
    struct br_calls *calls;
    struct br_item *item;
    struct br_client *client;
    /* the request and its response; the exporter sets all fields except on_done, user and
     * timeout_ms */
    struct br_exchange exchange;
    /* the job of the thread that packs the body; NULL: no thread is packing the body */
    struct br_packing_job *job;
    struct br_timer timer;
    /* end of the timeout, in milliseconds of the host's monotonic clock; 0: the call has not
     * been started, or has no timeout */
    uint64_t until_ms;
};

void br_calls_init(struct br_calls *calls, struct br_node *node, uint64_t timeout_ms,
                   struct br_outcome (*read)(const struct br_call *call));

/* Finishes all pending calls with BR_RETRY. Accepts `calls` that are all zero. */
void br_calls_release(struct br_calls *calls);

/* Makes a call that takes ownership of the item, and returns the call. If memory is short,
 * finishes the item with BR_RETRY and returns NULL. */
struct br_call *br_call_new(struct br_calls *calls, struct br_item *item, struct br_client *client);

/* Packs the body of the exchange, then sends the exchange. A large body is packed in a thread, a
 * small one at once with `codec`. The timeout of the call includes packing. `packing` is copied. */
void br_call_pack(struct br_call *call, const struct br_packing *packing, struct br_codec *codec);

/* Finishes a call whose body could not be made. The item can be retried if `rc` is BR_ENOMEM,
 * and cannot be retried after other codes. */
void br_call_fail(struct br_call *call, int rc);

/* Returns the decompressed body of the response, which the caller owns. Returns NULL if the
 * response has no body, the encoding is unknown, the body is damaged or larger than
 * BR_CALL_MESSAGE_MAX, or memory is short. */
struct br_buf *br_call_message(const struct br_call *call, struct br_codec *codec);

/* Returns true if an error message reports that the request has too many bytes, in the wording
 * of gRPC and HTTP servers and OTLP backends. Returns false for messages about a rate, a quota
 * or memory. */
bool br_call_is_too_large(const char *sentence);

/* Returns the outcome for an HTTP status other than 2xx (OTLP specification, "Failures").
 *
 * - Statuses 429, 502, 503 and 504 can be retried, after the delay in Retry-After if it is set. 429
 * is reported to the client as RESOURCE_EXHAUSTED.
 * - A status of 413, or of 400 with a message about the size, means that the request is too large;
 * the outcome is a rejection with RESOURCE_EXHAUSTED.
 * - A redirect that was not followed is rejected, with its Location in the text. */
struct br_outcome br_call_refusal(const struct br_exchange *exchange, const char *message);

/* Returns the delay of the response's Retry-After header in milliseconds, or -1 if the header is
 * not set. */
int64_t br_call_retry_after_ms(const struct br_exchange *exchange);

/* Converts a delay in milliseconds to the type of br_outcome.delay_ms; negative values become 0. */
uint32_t br_call_delay(int64_t delay_ms);

/* Headers from the config, with names in lower case as HTTP/2 requires. The values of the
 * headers are borrowed. */
struct br_call_headers {
    struct br_header headers[BR_HEADERS_MAX];
    size_t count;
    char *names; /* the names of all headers, each terminated by a zero byte */
};

/* Returns true if the config has a header of this name (lower case). A header in the config
 * replaces the header that the exporter would send. */
bool br_call_headers_have(const struct br_call_headers *call_headers, const char *name);

/* Copies the names of the headers in `from`. Returns false if memory is short. */
bool br_call_headers_init(struct br_call_headers *call_headers, const struct br_headers *from);
void br_call_headers_release(struct br_call_headers *call_headers);
