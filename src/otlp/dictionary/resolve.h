/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resolves references to the string table inside attributes: KeyValue.key_strindex and
 * AnyValue.string_value_strindex, at any depth. Source: opentelemetry/proto/common/v1/common.proto,
 * 1.10 and later. For src/otlp/ and for processors that rewrite a Resource.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/fields.h"

/* Returns true if one of the attributes of a message uses a reference. The attributes are its
 * repeated KeyValues with number `field`. */
bool br_attributes_have_references(const uint8_t *body, size_t len, uint32_t field);

/* Returns true if an AnyValue uses a reference. */
bool br_value_has_references(const uint8_t *body, size_t len);

/* Replaces references by strings. The output is appended to `*out`, up to `max` bytes. `string`
 * is called with `arg` and returns string number `i`. */
struct br_inliner {
    struct br_buf **out;
    size_t max;
    struct br_entry (*string)(const void *arg, uint64_t i);
    const void *arg;
};

/* Appends a message with references in its attributes replaced by strings, and everything else
 * unchanged. The attributes are field `field` of the message. A key as text has priority over a
 * reference, unless the text is empty. Returns 0, BR_EINVAL if the message is malformed,
 * BR_EFULL or BR_ENOMEM. */
int br_attributes_inline(const struct br_inliner *in, const uint8_t *body, size_t len,
                         uint32_t field);

/* Appends an AnyValue with references replaced by strings, and everything else unchanged. Returns
 * the same errors as br_attributes_inline. */
int br_value_inline(const struct br_inliner *in, const uint8_t *body, size_t len);
