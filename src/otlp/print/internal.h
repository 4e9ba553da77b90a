/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that print what both signals have in common. Output goes line by line: a line that does
 * not fit is taken back, the cut is announced, and from then on nothing is printed; loops stop at
 * `full`.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/str.h"
#include "core/item.h"
#include "opentelemetry/proto/common/v1/common.pb-c.h"
#include "opentelemetry/proto/resource/v1/resource.pb-c.h"
#include "otlp/dictionary/dictionary.h"

/* Generated types, by their last name. */
#define BR_PB(name) Opentelemetry__Proto__Common__V1__##name
#define BR_PB_RESOURCE Opentelemetry__Proto__Resource__V1__Resource

struct br_printer {
    struct br_str *out;
    const struct br_dictionary_view *dictionary; /* NULL: traces */
    struct br_arena scratch;                     /* of the span or sample at hand */
    size_t line;                                 /* where the line at hand starts in `out` */
    bool full;
};

/* Prints a line of one piece (br_print_line), or of several: begin, appends to p->out, end. False
 * when nothing is printed any more. */
bool br_print_begin(struct br_printer *printer);
void br_print_end(struct br_printer *printer);
void br_print_line(struct br_printer *printer, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Print `label` and a text, an id in hex, a time, on a line. */
void br_print_named_text(struct br_printer *printer, const char *label, const void *text,
                         size_t len);
void br_print_named_id(struct br_printer *printer, const char *label, ProtobufCBinaryData id);
void br_print_named_time(struct br_printer *printer, const char *label, uint64_t unix_ns);

/* Pieces of a line. */
void br_print_text(struct br_str *out, const void *text, size_t len);
void br_print_time(struct br_str *out, uint64_t unix_ns);

/* Returns a string of the dictionary; empty in traces. */
struct br_entry br_print_string(const struct br_printer *printer, int32_t index);

/* Prints `indent`-> key: Str(value). */
void br_print_attribute(struct br_printer *printer, const char *indent, const void *key,
                        size_t key_len, const BR_PB(AnyValue) * value, struct br_entry unit);

/* Prints ` key=value`, as a piece of a line. */
void br_print_pair(struct br_printer *printer, const void *key, size_t key_len,
                   const BR_PB(AnyValue) * value);
void br_print_pairs(struct br_printer *printer, BR_PB(KeyValue) *const *attributes, size_t count);

/* Prints a heading and the attributes below it; nothing when there are none. */
void br_print_attributes(struct br_printer *printer, const char *heading, const char *indent,
                         BR_PB(KeyValue) *const *attributes, size_t count);

void br_print_resource(struct br_printer *printer, const BR_PB_RESOURCE *resource,
                       const char *schema_url);
void br_print_scope(struct br_printer *printer, const BR_PB(InstrumentationScope) * scope,
                    const char *schema_url);

/* Unpacks into the scratch arena; NULL when it does not fit or is damaged (and a line says so). */
void *br_print_unpack(struct br_printer *printer, const ProtobufCMessageDescriptor *desc,
                      const uint8_t *data, size_t len);

/* Unpacks a message without the fields number `left` and `right`, which are the bulk of the
 * message. */
void *br_print_unpack_head(struct br_printer *printer, const ProtobufCMessageDescriptor *desc,
                           const uint8_t *data, size_t len, uint32_t left, uint32_t right);

/* Unpacks the Resource of a part: its replacement where there is one. NULL: none. */
const BR_PB_RESOURCE *br_print_part_resource(struct br_printer *printer,
                                             const struct br_part *part);

/* Calls `fn` for each field `number` of a message until the output is full. */
typedef void br_print_fn(struct br_printer *printer, unsigned index, const uint8_t *data,
                         size_t len);
void br_print_each(struct br_printer *printer, const uint8_t *data, size_t len, uint32_t number,
                   br_print_fn *fn);

/* Calls `fn` for each ResourceSpans or ResourceProfiles with its body. Returns 0, or BR_ENOMEM when
 * not even the cut could be announced. */
typedef void br_print_part_fn(struct br_printer *printer, unsigned index,
                              const struct br_part *part, const uint8_t *body, size_t len);
int br_print_parts(struct br_printer *printer, const struct br_item *item, br_print_part_fn *fn);
