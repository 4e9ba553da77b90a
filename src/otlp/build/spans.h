/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds a traces request (opentelemetry/proto/trace/v1/trace.proto). Receivers convert other
 * formats of spans to OTLP with this builder.
 *
 * Spans are written one after the other, directly as protobuf. Each span belongs to a group, which
 * is a Resource with a scope. Groups are interned: the request contains each Resource once, and in
 * it each scope once.
 *
 *     br_spans_resource(s, &resource_tags);    attributes of the Resource
 *     br_spans_begin(s);                       a span; its fields follow in any order
 *     br_spans_open(s, BR_SPAN_EVENTS); ...    a nested message
 *     br_spans_close(s);
 *     br_spans_end(s, resource, name, ...);    or br_spans_undo, which removes the span
 *
 * The first error is kept: BR_EFULL if the maximum would be exceeded, or BR_ENOMEM. After an error
 * nothing more is written, and br_spans_take returns the error. Strings are copied as they are: the
 * walk over the request repairs invalid UTF-8.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/index.h"
#include "otlp/build/tags.h"

/* largest number of open messages: the span and the messages nested in the span */
#define BR_SPANS_DEPTH 3

struct br_spans_resource;
struct br_spans_group;
struct br_spans_record;

struct br_spans {
    struct br_pool *pool;
    size_t max;           /* largest size of each buffer, in bytes */
    struct br_buf *heads; /* buffer with the Resource and InstrumentationScope messages */
    struct br_buf *spans; /* the spans, each as a field of ScopeSpans */
    struct br_spans_resource *resources;
    struct br_spans_group *groups;
    struct br_spans_record *records; /* the spans in the order in which they were added */
    uint32_t n_resources, cap_resources, n_groups, cap_groups, n_records, cap_records;
    struct br_index resource_index, group_index;
    size_t open[BR_SPANS_DEPTH]; /* offsets in `spans` of the open messages' contents */
    unsigned depth;
    size_t begun; /* length of `spans` before the current span */
    int rc;
};

/* Prepares an empty builder, whose buffers are from `pool` and have at most `max` bytes each. */
void br_spans_init(struct br_spans *spans, struct br_pool *pool, size_t max);

/* Frees the memory of the builder. */
void br_spans_release(struct br_spans *spans);

/* Returns the number of a Resource with these tags as attributes. `tags` must be sorted
 * (br_tags_sort). */
uint32_t br_spans_resource(struct br_spans *spans, const struct br_tags *tags);

/* Begins a span. */
void br_spans_begin(struct br_spans *spans);

/* Ends the span and adds it to a Resource. `name` and `version` of the scope may be empty. */
void br_spans_end(struct br_spans *spans, uint32_t resource, const void *name, size_t name_len,
                  const void *version, size_t version_len);

/* Removes the span that was begun last and has not ended. */
void br_spans_undo(struct br_spans *spans);

/* Opens a message that is field `field` of the current message. At most BR_SPANS_DEPTH messages
 * are open, including the span. */
void br_spans_open(struct br_spans *spans, uint32_t field);

/* Closes the message that was opened last. */
void br_spans_close(struct br_spans *spans);

/* Write a field of the current message. */
void br_spans_bytes(struct br_spans *spans, uint32_t field, const void *data, size_t len);
void br_spans_varint(struct br_spans *spans, uint32_t field, uint64_t value);
void br_spans_fixed32(struct br_spans *spans, uint32_t field, uint32_t value);
void br_spans_fixed64(struct br_spans *spans, uint32_t field, uint64_t value);

/* Write an id in the order of the wire, which is big-endian. A trace id has two halves. */
void br_spans_trace_id(struct br_spans *spans, uint32_t field, uint64_t high, uint64_t low);
void br_spans_span_id(struct br_spans *spans, uint32_t field, uint64_t id);

/* Writes the Status of a span. `message` may be empty. */
void br_spans_status(struct br_spans *spans, unsigned code, const void *message, size_t len);

/* Writes a tag as a KeyValue that is field `field` of the current message. */
void br_spans_attribute(struct br_spans *spans, uint32_t field, const struct br_tag *tag);

/* Writes all tags that were not dropped as KeyValues. */
void br_spans_attributes(struct br_spans *spans, uint32_t field, const struct br_tags *tags);

/* Sets `*ret` to a new buffer with the request, which the caller owns, and empties the builder.
 * Returns 0, or the first error. */
int br_spans_take(struct br_spans *spans, struct br_buf **ret);
