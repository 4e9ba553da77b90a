/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes OTLP profiles as pprofs (proto/pprof/profile.proto), one at a time.
 *
 * Consecutive Profiles of a scope whose samples have the same stacks, attributes and links in the
 * same order form one pprof, with one sample type for each Profile. A Profile whose samples differ
 * from those of its neighbours becomes a separate pprof. Table entries are written only if a sample
 * refers to them. Attributes that br_profile_read created for pprof fields become those fields
 * again. A link becomes the labels span_id and trace_id, which replace other labels with these
 * names.
 *
 * Profiles in a scope with BR_SCOPE_PYROSCOPE_NAME are restored unchanged. Profiles that did not
 * come from a Pyroscope client are written as if a Pyroscope SDK had sent them as pprof:
 * - The name of the profile type (`__name__`) is determined by br_pyroscope_name.
 * - The sample type "samples/count" with a CPU period becomes "cpu/nanoseconds".
 * - A missing period type is derived from the sample types.
 * - In sample types, characters that a query cannot contain are replaced.
 *
 * A sample with timestamps and no value counts once per timestamp, multiplied by the period if the
 * period has the type of the sample. If a sample has several values, their sum is written.
 */
#pragma once

#include "otlp/dictionary/dictionary.h"
#include "profile/profile.h"

#define BR_PPROF_TYPES_MAX 16

/* A finished pprof. The struct is valid until the callback returns; the callback may keep a
 * reference to `buf`. */
struct br_pprof_out {
    struct br_buf *buf;       /* the encoded pprof, uncompressed */
    struct br_entry resource; /* encoded Resource message */
    struct br_entry scope;    /* encoded InstrumentationScope message */
    /* a Pyroscope client has sent the profile: the scope contains the value of `__name__` */
    bool from_pyroscope;
    bool cumulative;                       /* the values are totals since the process began */
    const char *name;                      /* value of `__name__` */
    const char *types[BR_PPROF_TYPES_MAX]; /* sample types, truncated to 63 bytes */
    uint32_t n_types;
    uint32_t n_samples; /* number of samples in the pprof */
    uint32_t n_records; /* number of OTLP samples from which the samples of the pprof were made */
    uint64_t time_ns;   /* time of the profile, in ns since 1970; 0: unknown */
    /* time written in the pprof, in ns since 1970; 0: no time was written. If a profile is divided
     * into several pprofs, this time is later than time_ns in all of them except the first */
    uint64_t written_ns;
    uint32_t time_at;    /* offset in `buf`, in bytes, at which written_ns is encoded */
    uint32_t n_left_out; /* number of sample labels that `keep_label` rejected */
    /* largest number of labels that a sample adds to the series: string labels that are not IDs */
    uint32_t n_labels;
    bool too_large; /* The pprof contains only one sample and is still larger than max_bytes. */
};

typedef int br_pprof_fn(const struct br_pprof_out *result, void *arg);

struct br_pprof_options {
    uint32_t max_samples; /* largest number of samples of a pprof; 0: no limit */
    size_t max_bytes;     /* largest size of a pprof in bytes; 0: BR_BUF_MAX / 2 */
    /* Maximum work for one item, in bytes: the sizes of all its pprofs plus the sizes of the
     * dictionary entries that are read. An entry counts again for each pprof that uses it. 0: no
     * limit. */
    size_t max_work;
    /* Returns true if a sample attribute becomes a label. Called once per attribute in an item.
     * Not called for profiles of Pyroscope clients unless `filters_clients` is set. NULL: all
     * attributes become labels. */
    bool (*keep_label)(void *arg, const char *key, size_t len);
    bool filters_clients;
    void *arg;
};

/* Replaces the time in a pprof by `time_ns`. Must be called before there are other references to
 * the buffer. Returns false and changes nothing if the pprof has no time, or if the encoded
 * lengths of the two times differ. */
bool br_pprof_set_time(const struct br_pprof_out *result, uint64_t time_ns);

/* Creates a writer, which keeps its memory between items. Returns NULL if there is not enough
 * memory. */
struct br_pprof_writer;
struct br_pprof_writer *br_pprof_writer_new(struct br_host *host);
void br_pprof_writer_free(struct br_pprof_writer *writer);

/* Calls `fn` with every pprof of an item. br_walk must have accepted the item, and the item must
 * not contain references to the string table (br_item_inline_references). Profiles without samples
 * are skipped.
 *
 * A profile that exceeds max_samples or max_bytes is divided into several pprofs. The first pprof
 * has the time of the profile, and the time of each further pprof is a millisecond later. If the
 * times were equal, Pyroscope would treat these pprofs of a series as one profile.
 *
 * Returns 0, BR_ENOMEM, or the error of `fn`, which ends the writing. Returns BR_ETOOBIG in these
 * cases:
 * - The dictionary has more than BR_PPROF_ENTRIES_MAX entries.
 * - The index of the dictionary would take more than four times the size of the item plus 1 MiB.
 * - The work exceeds max_work.
 * - A sample has more than BR_PPROF_LABELS_MAX attributes. */
#define BR_PPROF_ENTRIES_MAX (2u << 20)
#define BR_PPROF_LABELS_MAX 4096u
int br_pprof_write(struct br_pprof_writer *writer, const struct br_item *item,
                   const struct br_pprof_options *options, br_pprof_fn *fn, void *arg);

/* One sample type of a group: its Profile and the meaning of its values. */
struct br_pprof_group_type {
    struct br_entry type, unit;
    const uint8_t *body, *end; /* encoded Profile message */
    /* each value is a number of sampling periods, so it must be multiplied by the period */
    bool times_period;
    bool counts_period; /* a sample without a value counts as one sampling period */
};

/* Profiles that br_pprof_write would write as one pprof. No pprof is encoded: `out->buf` is
 * NULL. */
struct br_pprof_group {
    const struct br_pprof_out *out;
    const struct br_dictionary_view *view; /* index of the item's dictionary entries */
    struct br_entry period_type, period_unit;
    int64_t period;
    /* array of out->n_types elements, one for each sample type */
    const struct br_pprof_group_type *types;
};

typedef int br_pprof_group_fn(const struct br_pprof_group *group, void *arg);

/* Calls `fn` with the groups of an item, for callers that store samples under Pyroscope's names.
 * Returns the same codes as br_pprof_write. */
int br_pprof_groups(struct br_pprof_writer *writer, const struct br_item *item,
                    br_pprof_group_fn *fn, void *arg);
