/* SPDX-License-Identifier: Apache-2.0 */
/* What a profile's values mean, by its type, unit and period: times, periods, or things. */
#pragma once

#include "otlp/dictionary.h"
#include "processors/join/table.h"

struct join_meaning {
    uint16_t type; /* join_table_type of "type:unit" */
    enum join_measure measure;
    uint64_t unit_ns;   /* of the values; 0: they are no time */
    uint64_t period_ns; /* between two samples; 0: not known */
    bool counts;        /* the values are numbers of things */
    bool allocates;     /* the values are bytes that were allocated */
    bool has_profile_id;
    uint8_t profile_id[16];
};

/* Reads the head of a Profile message. */
void join_meaning_read(struct join_table *t, const struct br_dictionary_view *view,
                       const uint8_t *p, const uint8_t *end, struct join_meaning *ret);

/* What a sample of the profile adds up to: `value` is the sum of its values (`has_value`: there are
 * any), `n_times` the number of its timestamps. Sets measure, time, count, type, value,
 * allocated bytes and profile id. */
void join_meaning_apply(const struct join_meaning *m, uint64_t value, bool has_value,
                        uint64_t n_times, struct join_sample *ret);
