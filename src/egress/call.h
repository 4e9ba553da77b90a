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
 * A job has a separate codec and memory pool, because those of the worker cannot be used in a
 * thread. The job keeps the original body alive. The thread reads the body's bytes, but must not
 * change the reference counts of the body's buffers, because these are not atomic.
 */

#define BR_PACKING_NOW (128u << 10)

/* Describes how an exporter packs (converts and compresses) its request bodies. */
struct br_packing {
    /* Converts the uncompressed body `plain` into a new buffer that the caller owns. NULL: bodies
     * are not converted. The function can be called in any thread, so it may use only its
     * arguments, and must not change reference counts of the rope's buffers (br_rope_bytes).
     * Returns 0 or an error code. */
    int (*translate)(const struct br_rope *plain, enum br_signal signal, struct br_pool *pool,
                     struct br_buf **ret);
    enum br_encoding encoding;
    int level; /* compression level, as in br_compress */
};

/* Converts an OTLP request in protobuf to OTLP/JSON. This is a function for br_packing.translate.
 * Returns 0, BR_ENOMEM, or an error code of br_json_encode. */
int br_packing_to_json(const struct br_rope *plain, enum br_signal signal, struct br_pool *pool,
                       struct br_buf **ret);

/* Returns true if `packing` converts or compresses bodies. */
bool br_packing_any(const struct br_packing *packing);

/* Packs a body in the calling thread and replaces `*body` with the result. On failure, `*body` is
 * unchanged or empty. Returns 0, or an error code of `translate`, br_compress or br_rope_add. */
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

/* Starts the job, which frees itself when it ends. `packed` is called later, or before this
 * function returns if the host has no threads. */
void br_packing_job_start(struct br_packing_job *job);

/* Cancels the job without waiting. The callback `packed` is not called. If a thread has already
 * begun the job, the thread completes it, and the original body is freed only then. */
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
    /* the HTTP request and its response; the exporter sets all fields except on_done, user and
     * timeout_ms */
    struct br_exchange exchange;
    /* job of the thread that packs the request body; NULL: no thread is packing the body */
    struct br_packing_job *job;
    struct br_timer timer;
    /* time at which the call times out, in milliseconds of the host's monotonic clock; 0: the call
     * has not been started, or has no timeout */
    uint64_t until_ms;
};

void br_calls_init(struct br_calls *calls, struct br_node *node, uint64_t timeout_ms,
                   struct br_outcome (*read)(const struct br_call *call));

/* Finishes all pending calls with BR_RETRY. Accepts a zeroed struct. */
void br_calls_release(struct br_calls *calls);

/* Makes a call that takes ownership of the item, and returns the call. If memory is short,
 * finishes the item with BR_RETRY and returns NULL. */
struct br_call *br_call_new(struct br_calls *calls, struct br_item *item, struct br_client *client);

/* Packs the request body of the exchange, and then sends the request. A large body is packed in a
 * thread. A small body is packed at once with `codec`. The timeout of the call includes packing.
 * `packing` is copied. */
void br_call_pack(struct br_call *call, const struct br_packing *packing, struct br_codec *codec);

/* Finishes a call whose request body could not be made, because of the error `rc`. The item is
 * finished with BR_RETRY if `rc` is BR_ENOMEM, and with BR_REJECT otherwise. */
void br_call_fail(struct br_call *call, int rc);

/* Returns the decompressed body of the response, which the caller owns. Returns NULL if the
 * response has no body, the encoding is unknown, the body is damaged or larger than
 * BR_CALL_MESSAGE_MAX, or memory is short. */
struct br_buf *br_call_message(const struct br_call *call, struct br_codec *codec);

/* Returns true if an error message reports that the request has too many bytes. The function
 * recognises the usual messages of gRPC servers, HTTP servers and OTLP backends. It returns false
 * for messages about a rate, a quota or memory. */
bool br_call_is_too_large(const char *sentence);

/* Returns the outcome for an HTTP status other than 2xx (OTLP specification, "Failures").
 *
 * - After status 429, 502, 503 or 504, the outcome is BR_RETRY, with the delay from Retry-After if
 *   this header is set. For 429, the status of the outcome is RESOURCE_EXHAUSTED.
 * - Status 413, or status 400 with a message about the size, means that the request is too large.
 *   The outcome is BR_REJECT with RESOURCE_EXHAUSTED.
 * - After a redirect that was not followed, the outcome is BR_REJECT, with the Location header in
 *   the text. */
struct br_outcome br_call_refusal(const struct br_exchange *exchange, const char *message);

/* Returns the delay of the response's Retry-After header in milliseconds, or -1 if the header is
 * not set. */
int64_t br_call_retry_after_ms(const struct br_exchange *exchange);

/* Converts a delay in milliseconds to the type of br_outcome.delay_ms; negative values become 0. */
uint32_t br_call_delay(int64_t delay_ms);

/* The headers from an exporter's config, with names in lower case as HTTP/2 requires. The values
 * are borrowed from the config. */
struct br_call_headers {
    struct br_header headers[BR_HEADERS_MAX];
    size_t count;
    char *names; /* memory for the names of all headers, each terminated by a NUL byte */
};

/* Returns true if the config sets the header `name`, which must be in lower case. The exporter must
 * not add a header that the config sets. */
bool br_call_headers_have(const struct br_call_headers *call_headers, const char *name);

/* Copies the headers in `from`, with their names in lower case. Returns false if memory is
 * short. */
bool br_call_headers_init(struct br_call_headers *call_headers, const struct br_headers *from);
void br_call_headers_release(struct br_call_headers *call_headers);
