/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes OTLP profiles as pprofs (proto/pprof/profile.proto), one at a time.
 *
 * Profiles of one scope that follow each other and whose samples line up (the same stacks,
 * attributes and links in the same order) were one pprof once and become one again, each a sample
 * type; any other Profile becomes a pprof of its own. Only what samples lead to is written. What
 * the way in (profile.h) kept as attributes goes back where it was; a link becomes the labels
 * span_id and trace_id, in place of labels of these names that say something else.
 *
 * What a scope with BR_SCOPE_PYROSCOPE_NAME holds is given back as it came. Anything else is made
 * to look as if its SDK had sent pprof: names by br_pyroscope_name; "samples/count" with a CPU
 * period as "cpu/nanoseconds"; a missing period type by the sample types; types in letters that a
 * query can hold. A sample that has time stamps and no value counts once for each of them (times
 * the period, where that is of the sample's own type); several values are added up.
 */
#pragma once

#include "otlp/dictionary/dictionary.h"
#include "profile/profile.h"

#define BR_PPROF_TYPES_MAX 16

/* What is handed out. Lives until the callback returns, but for `buf`, of which the callee may take
 * a reference. */
struct br_pprof_out {
    struct br_buf *buf;                    /* the pprof, plain, and nothing else */
    struct br_entry resource;              /* the Resource message */
    struct br_entry scope;                 /* the InstrumentationScope message */
    bool from_pyroscope;                   /* the scope says what __name__ is */
    bool cumulative;                       /* values are since the process began */
    const char *name;                      /* what __name__ is to be */
    const char *types[BR_PPROF_TYPES_MAX]; /* sample types, cut at 63 bytes */
    uint32_t n_types;
    uint32_t n_samples;  /* pprof's */
    uint32_t n_items;    /* OTLP's that are in them */
    uint64_t time_ns;    /* unix; 0: the profile does not say */
    uint64_t written_ns; /* the time in the pprof itself, which is later in a piece; 0: none */
    uint32_t time_at;    /* where it is in `buf` */
    uint32_t n_left_out; /* labels of samples that `keep_label` did not want */
    uint32_t n_labels; /* the most that one of its samples adds to its series: texts, but for ids */
    bool too_large;    /* one sample, and still over max_bytes */
};

typedef int br_pprof_fn(const struct br_pprof_out *result, void *arg);

struct br_pprof_options {
    uint32_t max_samples; /* in one pprof; 0: no limit */
    size_t max_bytes;     /* of one; 0: BR_BUF_MAX / 2 */
    size_t max_work; /* bytes of all pprofs, and of dictionary entries that are read for them, of
                        which each piece needs its own; 0: no limit */
    /* Which sample attributes become labels, asked once for each in an item; about what came from a
     * Pyroscope client only where `asks_clients`. NULL: all. */
    bool (*keep_label)(void *arg, const char *key, size_t len);
    bool asks_clients;
    void *arg;
};

/* Sets another time in the pprof, before anybody else has a reference to its buffer. False, and
 * nothing is changed, where it has none, or one that takes another number of bytes. */
bool br_pprof_set_time(const struct br_pprof_out *result, uint64_t time_ns);

/* A writer keeps its memory between items. NULL when there is none. */
struct br_pprof_writer;
struct br_pprof_writer *br_pprof_writer_new(struct br_host *host);
void br_pprof_writer_free(struct br_pprof_writer *writer);

/* Hands out every pprof of a profiles item that br_walk has accepted and that has no references
 * (br_item_inline_references). What would be over a limit
 * comes in several: the first with the profile's time, the next each a millisecond later, since two
 * profiles of one series and time are one for Pyroscope. Profiles without samples give none.
 * Returns 0, BR_ETOOBIG (a dictionary of more than BR_PPROF_ENTRIES_MAX entries, or whose index
 * would take more than four times the item and a MiB; more than max_work; or a sample of more than
 * BR_PPROF_LABELS_MAX attributes), BR_ENOMEM, or what `fn` returned, which ends it. */
#define BR_PPROF_ENTRIES_MAX (2u << 20)
#define BR_PPROF_LABELS_MAX 4096u
int br_pprof_write(struct br_pprof_writer *writer, const struct br_item *item,
                   const struct br_pprof_options *options, br_pprof_fn *fn, void *arg);

/* One sample type of a group: the Profile that it is, and what its values are counted in. */
struct br_pprof_group_type {
    struct br_entry type, unit;
    const uint8_t *body, *end; /* the Profile message */
    bool times_period;         /* a value is a number of periods */
    bool counts_period;        /* a sample without a value counts one period */
};

/* Profiles that are one pprof for br_pprof_write, before it is written: `out` without its buffer.
 */
struct br_pprof_group {
    const struct br_pprof_out *out;
    const struct br_dictionary_view *view; /* of the item */
    struct br_entry period_type, period_unit;
    int64_t period;
    const struct br_pprof_group_type *types; /* out->n_types */
};

typedef int br_pprof_group_fn(const struct br_pprof_group *group, void *arg);

/* Hands out the groups of an item as br_pprof_write would make pprofs of them, for who stores
 * samples under the names that Pyroscope has. Returns as br_pprof_write. */
int br_pprof_groups(struct br_pprof_writer *writer, const struct br_item *item,
                    br_pprof_group_fn *fn, void *arg);
