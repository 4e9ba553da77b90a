/* SPDX-License-Identifier: Apache-2.0 */
/* The types and functions that the files of the join share. */
#pragma once

#include "otlp/dictionary/dictionary.h"
#include "pipeline/component.h"
#include "pipeline/hold.h"
#include "processors/join/annotations.h"
#include "processors/join/policy.h"
#include "processors/join/sample_view.h"
#include "processors/join/span_metrics.h"
#include "processors/join/table/table.h"

#define JOIN_ATTRIBUTES_MAX (JOIN_KEYS_MAX - 2)
#define JOIN_HOW_KEY (JOIN_KEYS_MAX - 1) /* number of profile.join */

struct join_labels {
    struct br_strings span_id, trace_id;
};

struct join_local_root {
    int link; /* enum join_root_link */
    int64_t max_spans;
};

struct join_config {
    uint64_t window; /* ns */
    int64_t max_bytes, max_values, hold_max_bytes, top_functions;
    struct br_strings sample_attributes;
    struct join_labels labels;
    struct join_local_root local_root;
    uint64_t hold, profile_hold; /* ns */
    int mark;                    /* enum join_mark */
    bool infer;
    struct join_keep *keep; /* NULL: every link survives */
    struct join_span_metrics_config span_metrics;
};

enum join_root_link { JOIN_LINK_ROOT, JOIN_LINK_SPAN };

enum join_mark { JOIN_MARK_NEVER, JOIN_MARK_LIKELY, JOIN_MARK_EXACT };

enum join_outcome {
    JOIN_COUNT_JOINED,
    JOIN_COUNT_LATE,
    JOIN_COUNT_UNKNOWN,
    JOIN_COUNT_TOO_LATE,
    JOIN_COUNT_UNLINKED,
    JOIN_COUNT_INFERRED,
    JOIN_COUNT_AMBIGUOUS,
    JOIN_COUNTS,
};

struct join_paging;

struct join {
    struct br_node *node;
    const struct join_config *config;
    /* What joined samples get: span.name, then sample_attributes; and, by itself at the end,
     * profile.join. */
    const char *keys[JOIN_KEYS_MAX];
    size_t key_lens[JOIN_KEYS_MAX];
    uint64_t wanted_lens; /* a bit for each length below 64 that attributes among them have */
    unsigned n_keys;
    unsigned kind_key, status_key; /* numbers of span.kind and span.status, or 0 */
    struct join_table *table;
    struct join_policy policy;
    struct join_span_metrics span_metrics;
    struct br_consumer output[BR_SIGNALS]; /* what held items go to: the next of that signal */
    struct br_hold sent[BR_SIGNALS];
    struct br_list held[BR_SIGNALS]; /* of held, oldest first */
    size_t held_bytes;
    struct br_timer release, housekeeping;
    struct join_paging *paging; /* NULL: none is under way here */
    uint64_t both_ms; /* when both signals had come first; 0: not yet. Of the first worker */
    bool told;        /* why nothing is joined */
    double *counts[JOIN_TYPES][JOIN_COUNTS];
    double *folded[JOIN_TYPES], *folded_values[JOIN_TYPES];
    double *other_values, *evicted, *marked, *spans_entered, *hold_full, *trace_spans_cut,
        *steps_cut, *splits_cut, *services_cut;
    double *table_bytes, *table_spans, *table_pending, *table_age;
};

/* Adds to a counter of samples by profile type. */
void join_count(struct join *join, uint16_t type, enum join_outcome outcome, double count);

/* Counts samples of a profile type that lost their links, and the sum of their values. */
void join_count_folded(struct join *join, uint16_t type, double count, double value);

/* Counts what the table says became of samples that had waited, and of spans. */
void join_count_tally(struct join *join, const struct join_tally *tally);

/* Returns true when the service, or this instance of it, is being profiled (join_table_profiled).
 */
bool join_service_profiled(const struct join *join, const struct join_service *service,
                           uint64_t now_ms);

/* Returns the item's spans, found by a walk of their own where nobody left them; NULL when there
 * are none, or no memory. They stay valid until the item's parts change. */
const struct br_span *join_spans_of(struct br_item *item);

/* Makes pages of the table ahead of the spans, in a thread, where it has too few. */
void join_paging_start(struct join *join);

/* Waits for what is being made. */
void join_paging_stop(struct join *join);

/* Enters the item's spans into the table. Without memory, what could not be entered is not. */
struct join_entered {
    bool profiled; /* spans of a profiled service are among them */
    bool waits;    /* or of one of which it is too early to say that it is not */
    bool sampled;  /* for some of them samples came before */
};
struct join_entered join_enter_spans(struct join *join, struct br_item *item);

/* Writes onto the item's spans what their samples add up to so far (`totals`), and marks. Of spans
 * that `waited` it takes marks away that lead nowhere, where the config says so. */
void join_mark_spans(struct join *join, struct br_item *item, bool totals, bool waited);

/* A profiles item passes once, or, when it may be held, twice. */
enum join_pass {
    JOIN_PASS_ONLY,  /* adds totals to the spans, counts the samples, writes onto them */
    JOIN_PASS_FIRST, /* adds totals, and notes in `memo` what it found */
    JOIN_PASS_LAST,  /* counts and writes, by what is known now */
};

/* Looks every sample's span up. `memo` has a byte for each (NULL with JOIN_PASS_ONLY); `came_ms` is
 * when the item came. Returns the number of samples whose span has not come. Without memory the
 * samples pass as they came. */
uint32_t join_samples(struct join *join, struct br_item *item, enum join_pass pass, uint8_t *memo,
                      uint64_t came_ms);
