/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sender of the otlp (gRPC) and otlphttp exporters makes one attempt at sending an item, from
 * its bytes to the outcome. Source: opentelemetry-proto docs/specification.md 1.11, "Failures",
 * "Partial Success".
 */
#pragma once

#include "net/client.h"
#include "pipeline/exporter.h"
#include "wire/compression.h"

enum otlp_encoding { OTLP_PROTO, OTLP_AS_JSON };

/* Everything that the two configs boil down to. */
struct otlp_target {
    bool grpc;
    enum otlp_encoding encoding;
    enum br_encoding compression;
    int level;
    const char *path[BR_SIGNALS];
    struct br_client *client[BR_SIGNALS]; /* may be one and the same */
    const struct br_headers *headers;
    const char *user_agent, *authority;
    uint64_t timeout_ms;
};

struct otlp_sender;

/* Returns NULL when there is no memory. `target` is borrowed for the sender's life. */
struct otlp_sender *otlp_sender_new(struct br_node *node, const struct otlp_target *target);

/* Sends the item once and finishes it. */
void otlp_sender_send(struct otlp_sender *sender, struct br_item *item);

/* Finishes what is under way with BR_RETRY. Accepts NULL. */
void otlp_sender_free(struct otlp_sender *sender);

/* Reads "gzip", "zstd", "deflate", "zlib", "none", "" as a compression; false when it is none of
 * these. */
bool otlp_read_compression(const char *name, enum br_encoding *ret);

/* Tells of a compression that is none of `known`; of one that the Collector has, as of something
 * that Braid lacks. */
void otlp_refuse_compression(struct br_errs *errs, const struct br_yaml *node, const char *path,
                             const char *known, const char *name);
