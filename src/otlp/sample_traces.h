/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the trace that each sample of a profiles item belongs to: the trace id of the sample's link
 * or, without a valid link, of one of its attributes. Links and attributes with a trace id are
 * numbered, so that a caller can store one result for each number. Several numbers can have the
 * same trace id.
 */
#pragma once

#include "base/arena.h"
#include "config/option.h"
#include "otlp/dictionary/dictionary.h"

struct br_sample_traces {
    struct br_dictionary_view view; /* index of the item's dictionary */
    /* trace ids by number, 16 bytes each; number 0 is not used */
    uint8_t (*ids)[16];
    uint32_t count; /* number of elements of `ids` */
    /* number of the trace id of each link and of each attribute, by index; 0: no trace id */
    uint32_t *links, *attributes;
    /* position of each attribute's name in the list of names; among the attributes of a sample,
     * the one with the smallest position is used */
    uint8_t *rank;
};

/* Reads the trace ids in the item's dictionary. `names` are the names of attributes that contain a
 * trace id as 16 bytes or as a hexadecimal text; names after the first 255 are ignored. All memory
 * is allocated in `arena`. The struct borrows the item's bytes. Returns 0 or BR_ENOMEM. */
int br_sample_traces_read(struct br_sample_traces *ret, const struct br_item *item,
                          const struct br_strings *names, struct br_arena *arena);

/* Returns the number of the trace that a sample belongs to, or 0 if it does not belong to a trace.
 * `body` is the Sample message. */
uint32_t br_sample_traces_of(const struct br_sample_traces *traces, const uint8_t *body,
                             size_t len);
