/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the join share. */
#pragma once

#include "otlp/dictionary.h"
#include "pipeline/component.h"
#include "pipeline/keep.h"
#include "processors/join/table.h"

#define JOIN_ATTRIBUTES_MAX 16

struct join_labels {
    struct br_strings span_id, trace_id;
};

struct join_config {
    uint64_t window; /* ns */
    int64_t max_bytes, max_values, hold_max_bytes;
    struct br_strings sample_attributes;
    struct join_labels labels;
    uint64_t hold, profile_hold; /* ns */
    int mark;                    /* enum join_mark */
};

enum join_mark { JOIN_MARK_NEVER, JOIN_MARK_LIKELY };

enum join_outcome {
    JOIN_COUNT_JOINED,
    JOIN_COUNT_LATE,
    JOIN_COUNT_UNKNOWN,
    JOIN_COUNT_TOO_LATE,
    JOIN_COUNT_UNLINKED,
    JOIN_COUNTS,
};

struct join {
    struct br_node *node;
    const struct join_config *config;
    struct join_table *table;
    struct br_consumer output[BR_SIGNALS]; /* what held items go to: the next of that signal */
    struct br_keeper *keepers[BR_SIGNALS];
    struct br_list held[BR_SIGNALS]; /* of held, oldest first */
    size_t held_bytes;
    struct br_timer release, housekeeping;
    double *counts[JOIN_TYPES][JOIN_COUNTS];
    double *other_values, *evicted, *marked, *spans_entered, *hold_full;
    double *table_bytes, *table_spans, *table_pending, *table_age;
};

/* Adds to a counter of samples by profile type. */
void join_count(struct join *j, uint16_t type, enum join_outcome outcome, double n);

/* Counts what the table says became of samples that had waited, and of spans. */
void join_count_tally(struct join *j, const struct join_tally *tally);

/* The identity of the service that a Resource describes: hashes with and without its instance (0: the
 * resource names none). References are resolved by `view`, which may be NULL. `*ret_name` is service.name. */
struct join_service {
    uint64_t service, instance;
    const uint8_t *name;
    size_t name_len;
};
struct join_service join_service_of(const struct br_part *part,
                                    const struct br_dictionary_view *view);

/* Enters the item's spans into the table; marks them, where the config asks for it. Returns true when
 * spans of a profiled service are among them. Without memory, what could not be entered is not. */
bool join_enter_spans(struct join *j, struct br_item *item);

/* Writes onto the item's spans what their samples add up to so far, and marks. */
void join_mark_spans(struct join *j, struct br_item *item, bool figures);

/* Looks every sample up. With `first`, figures are added and outcomes counted. With `write`, what was found
 * is written onto the samples. Returns the number of samples whose span has not come. */
uint32_t join_samples(struct join *j, struct br_item *item, bool first, bool write);
