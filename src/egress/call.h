/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call is one attempt of an exporter at sending an item, from its exchange to its outcome. The
 * answer, the time limit or the exporter's end finishes it, whichever comes first. Over HTTP an
 * item is delivered with a 2xx, although its body is too long, breaks off or does not end in time.
 */
#pragma once

#include "config/option.h"
#include "egress/packing.h"
#include "net/client.h"
#include "pipeline/component.h"

#define BR_CALL_MESSAGE_MAX (1u << 20) /* bytes that an answer may decompress to */

struct br_call;

/* The attempts of one exporter that are under way. */
struct br_calls {
    struct br_node *node;
    uint64_t timeout_ms;                                   /* of one attempt; 0: none */
    struct br_outcome (*read)(const struct br_call *call); /* what a complete answer means */
    struct br_list list;
};

struct br_call {
    struct br_list link;
    struct br_calls *calls;
    struct br_item *item;
    struct br_client *client;
    struct br_exchange exchange; /* filled by the exporter but for on_done, user and timeout_ms */
    struct br_packing_job *job;  /* NULL unless the body is being written in a thread */
    struct br_timer timer;
    uint64_t until_ms; /* of the host's clock; 0: it has not begun, or has no time limit */
};

void br_calls_init(struct br_calls *calls, struct br_node *node, uint64_t timeout_ms,
                   struct br_outcome (*read)(const struct br_call *call));

/* Finishes what is under way with BR_RETRY. Accepts a zeroed one. */
void br_calls_release(struct br_calls *calls);

/* Returns a call that takes the item. NULL when there is no memory: then the item was finished with
 * BR_RETRY. */
struct br_call *br_call_new(struct br_calls *calls, struct br_item *item, struct br_client *client);

/* Writes the exchange's body first, with `codec` or in a thread by the body's size, in the time
 * that the attempt has. `packing` is copied. */
void br_call_pack(struct br_call *call, const struct br_packing *packing, struct br_codec *codec);

/* Fails a call for a body that could not be made: BR_ENOMEM can be tried again, other codes not. */
void br_call_fail(struct br_call *call, int rc);

/* Returns owned what the peer's answer says, decompressed. NULL when it says nothing, or nothing
 * that can be read: in an unknown encoding, damaged, of more than BR_CALL_MESSAGE_MAX bytes when
 * decompressed, or more than there is memory for. */
struct br_buf *br_call_message(const struct br_call *call, struct br_codec *codec);

/* Returns true when the sentence of a refusal says that the request has too many bytes, as the
 * servers of gRPC and HTTP, and OTLP backends, say it; false for one about a rate, a quota or
 * memory. */
bool br_call_says_too_large(const char *sentence);

/* Returns what a status that is no success means, by the OTLP specification ("Failures"): 429, 502,
 * 503 and 504 can be tried again, after Retry-After where it came; 429 with RESOURCE_EXHAUSTED,
 * which the client hears, too. A rejection with RESOURCE_EXHAUSTED says that the request is too
 * large: 413, and 400 with such a message. A redirect that was not followed is rejected with its
 * Location. */
struct br_outcome br_call_refusal(const struct br_exchange *exchange, const char *message);

/* Returns the answer's Retry-After in milliseconds; -1: none. */
int64_t br_call_retry_after_ms(const struct br_exchange *exchange);

/* Milliseconds as an outcome has them; 0 for what is negative. */
uint32_t br_call_delay(int64_t delay_ms);

/* Header names in lower case, as HTTP/2 wants them; values are borrowed for the life of it. */
struct br_call_headers {
    struct br_header headers[BR_HEADERS_MAX];
    size_t count;
    char *names; /* terminated, one after the other */
};

/* Returns true when one has that name, which is in lower case: it replaces the exporter's own. */
bool br_call_headers_have(const struct br_call_headers *call_headers, const char *name);

/* Returns false when there is no memory. */
bool br_call_headers_init(struct br_call_headers *call_headers, const struct br_headers *from);
void br_call_headers_release(struct br_call_headers *call_headers);
