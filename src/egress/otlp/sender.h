/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sender that all OTLP exporters use, over gRPC and HTTP. The sender makes one attempt to send
 * an item: it encodes the item, sends the request, and derives the item's outcome from the
 * response. Source: opentelemetry-proto docs/specification.md 1.11, "Failures" and "Partial
 * Success".
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/item.h"
#include "core/outcome.h"
#include "net/client.h"
#include "pipeline/exporter.h"
#include "wire/compression.h"

enum br_otlp_encoding { BR_OTLP_PROTO, BR_OTLP_JSON };

/* The settings of the sender, which each exporter derives from its config. */
struct br_otlp_target {
    bool grpc;
    enum br_otlp_encoding encoding;
    enum br_encoding compression;
    int level;
    const char *path[BR_SIGNALS];
    /* client that sends each signal; both signals may use the same client */
    struct br_client *client[BR_SIGNALS];
    const struct br_headers *headers;
    const char *user_agent, *authority;
    uint64_t timeout_ms;
};

struct br_otlp_sender;

/* Creates a sender. Borrows `target` until br_otlp_sender_free. Returns NULL if memory is short. */
struct br_otlp_sender *br_otlp_sender_new(struct br_node *node,
                                          const struct br_otlp_target *target);

/* Makes one attempt to send the item, and finishes the item with the outcome. */
void br_otlp_sender_send(struct br_otlp_sender *sender, struct br_item *item);

/* Finishes all pending items with BR_RETRY, and frees the sender. Accepts NULL. */
void br_otlp_sender_free(struct br_otlp_sender *sender);

/* Parses "gzip", "zstd", "deflate", "zlib", "none" or "". Returns false for other names. */
bool br_otlp_read_compression(const char *name, enum br_encoding *ret);

/* Adds an error for the compression `name`, which Braid does not support. `known` is a text that
 * lists the supported compressions. If the Collector supports the compression, the error code is
 * BR_EUNSUPPORTED. */
void br_otlp_refuse_compression(struct br_errs *errs, const struct br_yaml *node, const char *path,
                                const char *known, const char *name);

/* --- Partial success -------------------------------------------------------------------------- */

/*
 * The following functions read the partial_success of an Export...ServiceResponse. The fields of
 * partial_success are rejected_spans or rejected_profiles = 1, and error_message = 2. Source:
 * opentelemetry-proto 1.11, collector/{trace,profiles}/, and protobuf's "ProtoJSON Format".
 */

/* Reads a protobuf response, and sets `n_rejected` and the text of the outcome if the response
 * contains them. */
void br_otlp_partial_read(const uint8_t *data, size_t len, struct br_outcome *outcome);

/* Reads a response in JSON, and sets `n_rejected` and the text of the outcome if the response
 * contains them. Each field may have its JSON name or its protobuf name. Numbers may be strings,
 * and may have an exponent or a fraction that consists of zeros. Invalid characters in strings
 * (bytes that are not UTF-8, unpaired surrogates, control characters) are replaced. Returns
 * false if the JSON is invalid in another way. */
bool br_otlp_partial_read_json(const uint8_t *text, size_t len, enum br_signal signal,
                               struct br_outcome *outcome);

/* Converts outcome->n_rejected from a number of profiles
 * (ExportProfilesPartialSuccess.rejected_profiles) to a number of samples. Assumes that all
 * profiles of the item contain the same number of samples. */
void br_otlp_partial_to_samples(const struct br_item *item, struct br_outcome *outcome);
