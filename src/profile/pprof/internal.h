/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State of the pprof reader and functions shared by its files. This header is private to
 * src/profile/pprof. Source: github.com/google/pprof/proto/profile.proto.
 *
 * The fields of a pprof may be in any order. The reader of a pprof therefore first scans the top
 * level to count and locate all fields, and reads their contents afterwards.
 *
 * Many references may point to one long string. Attributes whose values are strings are therefore
 * built only once, and looked up by the indices of the strings. The text composed from several
 * strings, and the memory of all tables, are limited in proportion to the size of the body.
 */
#pragma once

#include "otlp/dictionary/intern.h"
#include "otlp/scan.h"
#include "profile/pprof/fields.h"
#include "profile/profile.h"

/* Limits far above real profiles, in this order: number of sample types, bytes of a sample
 * type's name, labels of one sample, lines of one location. */
#define BR_PPROF_READ_TYPES_MAX 64u
#define BR_PPROF_NAME_MAX 1024u
#define BR_PPROF_READ_LABELS_MAX 1024u
#define BR_PPROF_LINES_MAX 1024u
/* Memory that reading a pprof may take: BR_PPROF_GROWTH times the size of the body, plus
 * BR_PPROF_SPARE. BR_PPROF_SPARE is 1 MiB minus memory that is not counted here (block headers,
 * the item). */
#define BR_PPROF_GROWTH 4
#define BR_PPROF_SPARE (((size_t)1 << 20) - (16u << 10))

/* Range of bytes from the first to the last field with the same number. Fields with other
 * numbers may be in between. */
struct br_pprof_range {
    uint32_t count;
    const uint8_t *start, *end;
};

/* Maps the IDs of pprof entries, which are arbitrary numbers, to indices in the builder. An
 * array contains the IDs up to about the number of entries, and a hash table the larger IDs. */
struct br_pprof_ids {
    uint32_t *dense; /* for each ID: index, plus 1, of the entry; 0: no entry has the ID */
    uint32_t n_dense;
    /* hash table of the larger IDs, at most two thirds full; 0 marks an empty slot; NULL: there
     * are no larger IDs */
    uint64_t *sparse;
    uint32_t *places; /* for each slot of `sparse`: the index, plus 1, of the entry with that ID */
    uint32_t n_entries, n_sparse;
    uint64_t factor;
};

struct br_pprof_string {
    /* offset of the string from the beginning of the pprof, and its length, in bytes */
    uint32_t at, len;
    uint32_t index; /* index, plus 1, of the string in the builder; 0: not added yet */
};

struct br_pprof_label {
    uint64_t key, str, num, unit; /* fields of a Label message */
};

struct br_pprof_memo; /* defined in profile/pprof/labels.c */

/* Attributes whose value is a long string or a list of strings. An attribute is looked up by its
 * key and its strings, and is built only once. */
struct br_pprof_text_attributes {
    struct br_intern keys;
    struct br_budget budget;
    uint32_t *attributes; /* builder's attribute index for each entry of `keys` */
    uint32_t cap;
};

/* Encoded samples. Each sample is written once for each sample type. */
struct br_pprof_records {
    struct br_pprof_record_block *first, *last;
    /* number of bytes of OTLP that the samples take when they are written for all sample types */
    size_t size;
};

struct br_pprof {
    struct br_build *build;
    const struct br_profile_source *source;
    struct br_arena *arena;
    struct br_err *err;
    struct br_pprof_range ranges[BR_PPROF_FIELDS];
    uint64_t scalars[BR_PPROF_FIELDS];
    struct br_pprof_string *strings;
    uint32_t n_strings;
    /* Index in `strings` of a copy of string 0, if string 0 is not empty although the format
     * requires it to be empty; else 0. A label without any value refers to this copy. */
    uint32_t first_string;
    struct br_pprof_ids mappings, functions, locations;
    /* If not 0, the ID of every location equals the location's index in the builder, and all IDs
     * are below n_same. 0: some ID differs from its index. */
    uint32_t n_same;
    bool dotnet;  /* the profile is from Pyroscope's .NET agent and needs corrections */
    bool datadog; /* the sample types are those of a Datadog profiler */
    /* Datadog: bit k is set if at least one sample has a value other than 0 for sample type k */
    uint64_t nonzero;
    /* index of the builder's attribute that marks a location as folded; 0: not built yet */
    uint32_t is_folded;
    struct br_build_line *lines;
    uint32_t cap_lines;

    size_t max_bytes;    /* limit of the memory that reading the pprof may take, in bytes */
    size_t built;        /* number of bytes of memory that the builder used before reading */
    size_t build_limit;  /* memory limit that the builder had before reading, in bytes */
    size_t arena_before; /* number of bytes of the arena that were used before reading */
    size_t compose;      /* maximum number of bytes of text that may still be composed */
    bool full;           /* A limit was reached: `max_bytes` or `compose`. */

    bool sample_is_bad; /* the error in `err` affects only the current sample */
    /* Samples left out. A bad location may set `lost.first` while `lost.count` is still 0. */
    struct br_profile_lost lost;

    struct br_pprof_records records;
    /* Attributes of the sample being read. `stack` and `labels` belong to the same sample. */
    uint32_t *attributes;
    uint32_t n_attributes, cap_attributes;
    uint32_t *stack;
    uint32_t cap_stack;
    struct br_pprof_label *labels;
    uint32_t cap_labels;
    struct br_pprof_ordered *ordered; /* `labels` sorted by key */
    uint32_t cap_ordered;
    struct br_pprof_memo *memo; /* cache of labels and links; NULL before the first label is read */
    struct br_pprof_text_attributes made;
    struct br_addition *texts; /* elements of the list attribute being built */
    uint32_t cap_texts;
    uint8_t *composed; /* buffer for a string composed from several strings */
    uint32_t cap_composed;
};

/* Finds the next length-delimited field with this tag and moves `*p` past it. Returns false at the
 * end of the range. The bounds of the field have already been checked by the scan of the pprof's
 * top level. The fast path handles a field whose length takes one byte. */
static inline bool br_pprof_next(const uint8_t **p, const uint8_t *end, uint32_t tag,
                                 struct br_field *field)
{
    while (*p < end) {
        const uint8_t *at = *p;
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the range is not empty. */
        if (__builtin_expect(at[0] == tag && at[1] < 0x80, 1)) {
            *field = (struct br_field){tag >> 3, BR_WIRE_LEN, at[1], at + 2, at};
            *p = at + 2 + at[1];
            return true;
        }
        *p = br_scan(at, end, field);
        if (br_scan_tag(field) == tag)
            return true;
    }
    return false;
}

/* Reads the next field into `values` (see br_pprof_scalars) if its tag and its value take one
 * byte each, the common case. Returns false for any other field and at the end. */
static inline bool br_pprof_short(const uint8_t **p, const uint8_t *end, uint64_t *values,
                                  uint32_t count)
{
    if (__builtin_expect(end - *p < 2, 0))
        return false;
    uint32_t tag = (*p)[0], value = (*p)[1];
    if (((tag & 0x87) | (value & 0x80)) != 0 || (tag >> 3) - 1 >= count)
        return false;
    values[tag >> 3] = value;
    *p += 2;
    return true;
}

/* Reads a message of varints: stores fields 1 to `count` in values[1] to values[count]. If a field
 * is repeated, its last value counts. Fields with larger numbers are skipped. Returns false if the
 * message is malformed. */
bool br_pprof_scalars(const uint8_t *p, const uint8_t *end, uint64_t *values, uint32_t count);

/* Grows an array in the arena to at least `need` elements. Returns false if there is not enough
 * memory. */
bool br_pprof_grow(struct br_pprof *pprof, void *items, uint32_t *cap, size_t need, size_t size);

/* Allocates an uninitialised array in the arena. Returns NULL if there is not enough memory. */
void *br_pprof_alloc(struct br_pprof *pprof, size_t count, size_t size);

/* Returns the number of bytes of memory that reading the pprof has used, except those of the
 * builder. */
static inline size_t br_pprof_used(const struct br_pprof *pprof)
{
    return pprof->arena->used - pprof->arena_before + pprof->made.budget.used;
}

/* Returns the number of bytes of memory that reading the pprof may still use. */
static inline size_t br_pprof_available(const struct br_pprof *pprof)
{
    size_t built = br_build_memory(pprof->build);
    size_t used = (built > pprof->built ? built - pprof->built : 0) + br_pprof_used(pprof);
    return used < pprof->max_bytes ? pprof->max_bytes - used : 0;
}

/* Returns true if more than `more` bytes of memory are available. If fewer are available, sets
 * `pprof->full` and returns false. */
static inline bool br_pprof_fits(struct br_pprof *pprof, size_t more)
{
    if (__builtin_expect(more < br_pprof_available(pprof), 1))
        return true;
    pprof->full = true;
    return false;
}

/* Sets the memory limit of the builder to the memory that is still available. Must be called
 * whenever memory outside the builder has grown. */
static inline void br_pprof_limit_builder(struct br_pprof *pprof)
{
    size_t own = br_pprof_used(pprof);
    size_t limit = pprof->built + (own < pprof->max_bytes ? pprof->max_bytes - own : 0);
    (void)br_build_limit(pprof->build, limit < pprof->build_limit ? limit : pprof->build_limit);
}

/* Counts `len` bytes of text that the caller is about to compose. Returns 0, or BR_EFULL with a
 * message if the composed text would become too large. */
int br_pprof_compose(struct br_pprof *pprof, size_t len);

/* Returns the bytes of string `index`, and its length in `ret_len`. Returns NULL if the index is
 * not in the string table. */
const uint8_t *br_pprof_text(const struct br_pprof *pprof, uint64_t index, size_t *ret_len);

/* Returns in `ret` the builder's index of string `index` of the pprof. Adds the string to the
 * builder at its first use. Returns false with a message if the index is not in the string
 * table; `what` names the field in the error message. */
bool br_pprof_string_slow(struct br_pprof *pprof, uint64_t index, const char *what, uint32_t *ret);
static inline bool br_pprof_string(struct br_pprof *pprof, uint64_t index, const char *what,
                                   uint32_t *ret)
{
    if (__builtin_expect(index < pprof->n_strings && pprof->strings[index].index, 1)) {
        *ret = pprof->strings[index].index - 1;
        return true;
    }
    return br_pprof_string_slow(pprof, index, what, ret);
}

/* Returns the builder's index of string `index` of the pprof. An index that is not in the string
 * table is counted as invalid and treated as the empty string; `what` names the field in the
 * message. */
uint32_t br_pprof_string_or_empty(struct br_pprof *pprof, uint64_t index, const char *what);

/* Returns the bytes of string `index` of the pprof, and its length in `ret_len`. An index that is
 * not in the string table is treated as in br_pprof_string_or_empty. */
const uint8_t *br_pprof_text_or_empty(struct br_pprof *pprof, uint64_t index, const char *what,
                                      size_t *ret_len);

/* Returns the index, plus 1, of the entry with this ID, or 0 if the ID is unknown. */
uint32_t br_pprof_ids_find(const struct br_pprof_ids *ids, uint64_t id);
static inline uint32_t br_pprof_ids_get(const struct br_pprof_ids *ids, uint64_t id)
{
    if (__builtin_expect(id < ids->n_dense, 1))
        return ids->dense[id];
    return br_pprof_ids_find(ids, id);
}

/* Reads the string table. Returns 0, or an error code with a message in `pprof->err`. */
int br_pprof_read_strings(struct br_pprof *pprof);

/* Reads the mappings, functions and locations. Must be called after br_pprof_read_strings.
 * Returns 0, or an error code with a message in `pprof->err`. */
int br_pprof_read_tables(struct br_pprof *pprof);

/* Reads the samples, which must have `n_types` values each. Returns 0, or an error code with a
 * message in `pprof->err`. */
int br_pprof_read_samples(struct br_pprof *pprof, uint32_t n_types);

/* Writes the samples into the builder's open Profile, with their values of sample type `type`. */
void br_pprof_put_samples(struct br_pprof *pprof, uint32_t type);

/* Builds the attributes of the first `count` labels, and the link to the span that the labels
 * name. Returns 0, or an error code with a message in `pprof->err`. */
int br_pprof_read_labels(struct br_pprof *pprof, uint32_t count, uint32_t *ret_link);

/* Builds an attribute whose key is the string `key` of the builder, and whose value is string
 * number `string` of the pprof. Returns 0, or an error code with a message in `pprof->err`. */
int br_pprof_text_attribute(struct br_pprof *pprof, uint32_t key, uint64_t string, uint32_t *ret);

/* Frees the memory of the labels that is not in the arena. */
void br_pprof_release_labels(struct br_pprof *pprof);

/* Clears `pprof->err`. The message of the first error that affects samples is kept in
 * `pprof->lost`. */
void br_pprof_keep_error(struct br_pprof *pprof);

/* Sets the message of a failed allocation and returns its code: the builder's error, BR_EFULL if
 * the memory limit for a body of this size was reached, or BR_ENOMEM. */
int br_pprof_no_memory(struct br_pprof *pprof);

/* Sets the message that string `index` is not in the string table, and returns BR_EINVAL. `what`
 * names the field in the error message. */
int br_pprof_no_string(struct br_pprof *pprof, uint64_t index, const char *what);
#ifdef __clang_analyzer__ /* Clang's analyzer must know that these functions never return 0. */
#define br_pprof_no_memory(pprof) (br_pprof_no_memory(pprof), BR_ENOMEM)
#define br_pprof_no_string(pprof, index, what) (br_pprof_no_string(pprof, index, what), BR_EINVAL)
#endif
