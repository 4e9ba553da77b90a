/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes read in place: KeyValue and AnyValue, with references into the string table followed.
 * Source: opentelemetry/proto/common/v1/common.proto at 1.10 and later. What is read was accepted by
 * br_walk; what is malformed all the same reads as nothing.
 */
#pragma once

#include "base/str.h"
#include "otlp/dictionary.h"

enum br_value_kind {
    BR_VALUE_NONE,
    BR_VALUE_TEXT,
    BR_VALUE_BOOL,
    BR_VALUE_INT,
    BR_VALUE_DOUBLE,
    BR_VALUE_LIST,
    BR_VALUE_MAP,
    BR_VALUE_BYTES,
};

struct br_value {
    enum br_value_kind kind;
    int64_t number;      /* BOOL, INT */
    double real;         /* DOUBLE */
    const uint8_t *data; /* TEXT, BYTES; LIST, MAP: the message */
    size_t len;
};

struct br_key_value {
    struct br_entry key;
    struct br_value value;
};

/* An AnyValue. `view` resolves references; NULL: they are empty. */
void br_value_read(const struct br_dictionary_view *view, const uint8_t *data, size_t len,
                   struct br_value *ret);

/* Entry `i` of the attribute table; `*ret_unit`, unless NULL, is its unit's string index. False
 * when there is none. */
bool br_value_of_attribute(const struct br_dictionary_view *view, uint32_t i,
                           struct br_key_value *ret, uint32_t *ret_key, uint32_t *ret_unit);

/* The next KeyValue that is field `field` of the message between `p` and `end`. Returns where to go on,
 * or NULL when there is none. */
const uint8_t *br_key_value_next(const struct br_dictionary_view *view, const uint8_t *p,
                                 const uint8_t *end, uint32_t field, struct br_key_value *ret);

/* The next element of a list's message; as above. */
const uint8_t *br_value_next(const struct br_dictionary_view *view, const uint8_t *p,
                             const uint8_t *end, struct br_value *ret);

/* Appends the value as text: strings as they are, numbers and truth values as JSON has them, bytes in
 * base64, lists and maps as JSON. */
void br_value_text(const struct br_dictionary_view *view, const struct br_value *v,
                   struct br_str *out);

/* True when the bytes are this text. */
bool br_text_is(const void *data, size_t len, const char *text);
