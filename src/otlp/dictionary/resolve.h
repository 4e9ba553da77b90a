/* SPDX-License-Identifier: Apache-2.0 */
/*
 * References into the string table inside attributes: KeyValue.key_strindex and
 * AnyValue.string_value_strindex, at any depth. Source: opentelemetry/proto/common/v1/common.proto
 * at 1.10 and later. For src/otlp/ and for processors that write a Resource anew.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/fields.h"

/* Returns true when one of the attributes (repeated KeyValue, of this field number) of a message
 * uses a reference. */
bool br_attributes_have_references(const uint8_t *body, size_t len, uint32_t field);

/* The same for an AnyValue. */
bool br_value_has_references(const uint8_t *body, size_t len);

/* Appends what it writes to `*out`, which holds at most `max` bytes. */
struct br_inliner {
    struct br_buf **out;
    size_t max;
    struct br_entry (*string)(const void *arg, uint64_t i);
    const void *arg;
};

/* Appends the message with its attributes' references resolved, all else as it is. An inline key
 * beats a reference beside it. Returns 0, BR_EINVAL (malformed), BR_EFULL or BR_ENOMEM. */
int br_attributes_inline(const struct br_inliner *in, const uint8_t *body, size_t len,
                         uint32_t field);
int br_value_inline(const struct br_inliner *in, const uint8_t *body, size_t len);
