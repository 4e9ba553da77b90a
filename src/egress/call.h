/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call is one attempt of an exporter to send an item, from the request to the outcome. It ends
 * with the response, at its timeout, or when the exporter stops. Over HTTP, a 2xx status means
 * delivery even if the body of the response is too long, incomplete or late.
 */
#pragma once

#include "config/option.h"
#include "egress/packing.h"
#include "net/client.h"
#include "pipeline/component.h"

#define BR_CALL_MESSAGE_MAX (1u << 20) /* bytes that a response may decompress to */

struct br_call;

/* The pending calls of one exporter. */
struct br_calls {
    struct br_node *node;
    uint64_t timeout_ms; /* of one call; 0: none */
    /* returns the outcome of a complete response */
    struct br_outcome (*read)(const struct br_call *call);
    struct br_list list;
};

struct br_call {
    struct br_list link;
    struct br_calls *calls;
    struct br_item *item;
    struct br_client *client;
    struct br_exchange exchange; /* the exporter sets all fields but on_done, user and timeout_ms */
    struct br_packing_job *job;  /* NULL unless a thread packs the body */
    struct br_timer timer;
    /* when the timeout ends, on the host's clock; 0: not started, or no timeout */
    uint64_t until_ms;
};

void br_calls_init(struct br_calls *calls, struct br_node *node, uint64_t timeout_ms,
                   struct br_outcome (*read)(const struct br_call *call));

/* Finishes all pending calls with BR_RETRY. Accepts a zeroed one. */
void br_calls_release(struct br_calls *calls);

/* Returns a call that takes the item. If memory is short, finishes the item with BR_RETRY and
 * returns NULL. */
struct br_call *br_call_new(struct br_calls *calls, struct br_item *item, struct br_client *client);

/* Packs the body of the exchange, then sends it. Large bodies are packed in a thread, others at
 * once with `codec`. The timeout of the call includes packing. `packing` is copied. */
void br_call_pack(struct br_call *call, const struct br_packing *packing, struct br_codec *codec);

/* Finishes a call whose body could not be made. BR_ENOMEM can be retried, other codes cannot. */
void br_call_fail(struct br_call *call, int rc);

/* Returns the decompressed body of the response, which the caller owns. Returns NULL if there is
 * none, its encoding is unknown, it is damaged or larger than BR_CALL_MESSAGE_MAX, or memory is
 * short. */
struct br_buf *br_call_message(const struct br_call *call, struct br_codec *codec);

/* Returns true if an error message reports that the request has too many bytes, in the wording
 * of gRPC and HTTP servers and OTLP backends. Returns false for messages about a rate, a quota
 * or memory. */
bool br_call_is_too_large(const char *sentence);

/* Returns the outcome of an HTTP status other than 2xx (OTLP specification, "Failures").
 *
 * - 429, 502, 503 and 504 can be retried, after Retry-After if it is set. 429 is reported to the
 * client as RESOURCE_EXHAUSTED.
 * - 413, and 400 with a message about the size, are rejected with RESOURCE_EXHAUSTED: the request
 * is too large.
 * - A redirect that was not followed is rejected, with its Location in the text. */
struct br_outcome br_call_refusal(const struct br_exchange *exchange, const char *message);

/* Returns the response's Retry-After in milliseconds; -1: not set. */
int64_t br_call_retry_after_ms(const struct br_exchange *exchange);

/* Converts milliseconds for an outcome; negative values become 0. */
uint32_t br_call_delay(int64_t delay_ms);

/* Headers from the config, with names in lower case as HTTP/2 requires. The values are borrowed. */
struct br_call_headers {
    struct br_header headers[BR_HEADERS_MAX];
    size_t count;
    char *names; /* zero-terminated, one after another */
};

/* Returns true if there is a header of this name (lower case). It replaces the exporter's
 * header. */
bool br_call_headers_have(const struct br_call_headers *call_headers, const char *name);

/* Copies the names of `from`. Returns false if memory is short. */
bool br_call_headers_init(struct br_call_headers *call_headers, const struct br_headers *from);
void br_call_headers_release(struct br_call_headers *call_headers);
