/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State of the pprof reader and functions shared by its files. Only for src/profile/pprof. Source:
 * github.com/google/pprof/proto/profile.proto.
 *
 * Fields may be in any order. So the reader first scans the top level for the number and the
 * position of each field, and reads their contents afterwards.
 *
 * Many references may point to one long string. So attributes of strings are built once and looked
 * up by the indices of the strings. The composed text and the memory of all tables are limited in
 * proportion to the size of the body.
 */
#pragma once

#include "otlp/dictionary/intern.h"
#include "otlp/scan.h"
#include "profile/pprof/fields.h"
#include "profile/profile.h"

/* Limits far above real profiles: sample types, bytes of a type's name, labels of a sample,
 * lines of a location. */
#define BR_PPROF_READ_TYPES_MAX 64u
#define BR_PPROF_NAME_MAX 1024u
#define BR_PPROF_READ_LABELS_MAX 1024u
#define BR_PPROF_LINES_MAX 1024u
/* Memory that reading may take: BR_PPROF_GROWTH times the body, plus BR_PPROF_SPARE. The latter
 * is 1 MiB minus memory that is not counted here (block headers, the item). */
#define BR_PPROF_GROWTH 4
#define BR_PPROF_SPARE (((size_t)1 << 20) - (16u << 10))

/* Position of the first to the last field with one number. Other fields may be in between. */
struct br_pprof_range {
    uint32_t count;
    const uint8_t *start, *end;
};

/* Maps the IDs of pprof entries, which are arbitrary numbers, to indices in the builder. IDs up
 * to about the number of entries are looked up in an array, others in a hash table. */
struct br_pprof_ids {
    uint32_t *dense; /* index + 1; 0: no such ID */
    uint32_t n_dense;
    /* hash table of IDs, at most two thirds full, 0: empty; NULL until the first such ID */
    uint64_t *sparse;
    uint32_t *places; /* index + 1 of each ID in `sparse` */
    uint32_t n_entries, n_sparse;
    uint64_t factor;
};

struct br_pprof_string {
    uint32_t at, len; /* offset from the beginning of the data, and length, in bytes */
    uint32_t index;   /* index in the builder + 1; 0: not added yet */
};

struct br_pprof_label {
    uint64_t key, str, num, unit; /* fields of a Label message */
};

struct br_pprof_memo; /* defined in profile/pprof/labels.c */

/* Attributes of long strings and of lists, found by the strings they are built from. */
struct br_pprof_text_attributes {
    struct br_intern keys;
    struct br_budget budget;
    uint32_t *attributes; /* attribute in the builder for each of `keys` */
    uint32_t cap;
};

/* Encoded samples, to be written once for each type. */
struct br_pprof_records {
    struct br_pprof_record_block *first, *last;
    size_t size; /* bytes that the samples of all types will take */
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
    /* Copy of string 0, which the format requires to be empty, if it is not empty; else 0.
     * References to string 0 mean this one, and a label that refers to it has no number. */
    uint32_t first_string;
    struct br_pprof_ids mappings, functions, locations;
    uint32_t n_same; /* location IDs from 1 to n_same - 1 equal their indices; 0: they do not */
    bool dotnet;     /* the profile is from Pyroscope's .NET agent and needs corrections */
    bool datadog;    /* the sample types are Datadog's */
    /* Datadog: a bit for each type for which a sample has a value other than 0 */
    uint64_t nonzero;
    uint32_t is_folded; /* index of the attribute; 0: not used yet */
    struct br_build_line *lines;
    uint32_t cap_lines;

    size_t max_bytes;    /* limit of the memory for reading, in bytes */
    size_t built;        /* bytes that the builder held before reading */
    size_t build_limit;  /* limit that the builder had before */
    size_t arena_before; /* bytes used in the arena before reading */
    size_t compose;      /* bytes of text that may still be composed */
    bool full;           /* a limit was reached: memory or composed text */

    bool sample_is_bad; /* the error in `err` affects only the current sample */
    /* samples left out; `first` may be set by a location while `count` is still 0 */
    struct br_profile_lost lost;

    struct br_pprof_records records;
    uint32_t *attributes; /* of the current sample; so are `stack` and `labels` */
    uint32_t n_attributes, cap_attributes;
    uint32_t *stack;
    uint32_t cap_stack;
    struct br_pprof_label *labels;
    uint32_t cap_labels;
    struct br_pprof_ordered *ordered; /* `labels` sorted by key */
    uint32_t cap_ordered;
    struct br_pprof_memo *memo; /* NULL before the first label */
    struct br_pprof_text_attributes made;
    struct br_addition *texts; /* elements of the list attribute being built */
    uint32_t cap_texts;
    uint8_t *composed; /* buffer for a composed string */
    uint32_t cap_composed;
};

/* Finds the next length-delimited field with this tag and moves `*p` past it. Returns false at
 * the end of the range. The data was checked by the scan of the top level. The fast path handles
 * a field with a length of one byte. */
static inline bool br_pprof_next(const uint8_t **p, const uint8_t *end, uint32_t tag,
                                 struct br_field *field)
{
    while (*p < end) {
        const uint8_t *at = *p;
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a range with bytes. */
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

/* Reads a message of varints: stores fields 1 to `count` in values[1] to values[count]. The last
 * of repeated fields counts. Other fields are skipped. Returns false if the message is
 * malformed. */
bool br_pprof_scalars(const uint8_t *p, const uint8_t *end, uint64_t *values, uint32_t count);

/* Grows an array in the arena to at least `need` elements. Returns false if there is not enough
 * memory. */
bool br_pprof_grow(struct br_pprof *pprof, void *items, uint32_t *cap, size_t need, size_t size);

/* Allocates an uninitialised array in the arena. Returns NULL if there is not enough memory. */
void *br_pprof_alloc(struct br_pprof *pprof, size_t count, size_t size);

/* Returns the bytes of memory used for reading, except those of the builder. */
static inline size_t br_pprof_used(const struct br_pprof *pprof)
{
    return pprof->arena->used - pprof->arena_before + pprof->made.budget.used;
}

/* Returns the bytes of memory that are still available for reading. */
static inline size_t br_pprof_available(const struct br_pprof *pprof)
{
    size_t built = br_build_memory(pprof->build);
    size_t used = (built > pprof->built ? built - pprof->built : 0) + br_pprof_used(pprof);
    return used < pprof->max_bytes ? pprof->max_bytes - used : 0;
}

/* Returns true if more than `more` bytes of memory are available; otherwise sets `full`. */
static inline bool br_pprof_fits(struct br_pprof *pprof, size_t more)
{
    if (__builtin_expect(more < br_pprof_available(pprof), 1))
        return true;
    pprof->full = true;
    return false;
}

/* Sets the limit of the builder to the available memory. To be called after other memory has
 * grown. */
static inline void br_pprof_limit_builder(struct br_pprof *pprof)
{
    size_t own = br_pprof_used(pprof);
    size_t limit = pprof->built + (own < pprof->max_bytes ? pprof->max_bytes - own : 0);
    (void)br_build_limit(pprof->build, limit < pprof->build_limit ? limit : pprof->build_limit);
}

/* Counts `len` bytes of text that the caller is about to compose. Returns 0, or BR_EFULL with a
 * message if references make the text too large. */
int br_pprof_compose(struct br_pprof *pprof, size_t len);

/* Returns the bytes of a string and their length; NULL if the index is not in the table. */
const uint8_t *br_pprof_text(const struct br_pprof *pprof, uint64_t index, size_t *ret_len);

/* Returns the builder's index of a string, which is added at its first use. Returns false with a
 * message if the string is not in the table; `what` names the place in the message. */
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

/* Return an optional string. An index that is not in the table is counted and treated as the
 * empty string. */
uint32_t br_pprof_string_or_empty(struct br_pprof *pprof, uint64_t index, const char *what);
const uint8_t *br_pprof_text_or_empty(struct br_pprof *pprof, uint64_t index, const char *what,
                                      size_t *ret_len);

/* Returns the index of an ID + 1, or 0 if the ID is unknown. */
uint32_t br_pprof_ids_find(const struct br_pprof_ids *ids, uint64_t id);
static inline uint32_t br_pprof_ids_get(const struct br_pprof_ids *ids, uint64_t id)
{
    if (__builtin_expect(id < ids->n_dense, 1))
        return ids->dense[id];
    return br_pprof_ids_find(ids, id);
}

/* Read the strings, and then the mappings, functions and locations. Return 0 or a code with a
 * message. */
int br_pprof_read_strings(struct br_pprof *pprof);
int br_pprof_read_tables(struct br_pprof *pprof);

/* Reads the samples, which must have `n_types` values each. Returns 0 or a code with a message. */
int br_pprof_read_samples(struct br_pprof *pprof, uint32_t n_types);

/* Writes the samples into the open Profile, with the values of one type. */
void br_pprof_put_samples(struct br_pprof *pprof, uint32_t type);

/* Builds the attributes of the first `count` labels, and the link to the span that the labels
 * name. Returns 0 or a code with a message. */
int br_pprof_read_labels(struct br_pprof *pprof, uint32_t count, uint32_t *ret_link);

/* Builds an attribute with a string value; `key` is a string of the builder. Returns 0 or a code
 * with a message. */
int br_pprof_text_attribute(struct br_pprof *pprof, uint32_t key, uint64_t string, uint32_t *ret);

/* Frees the memory that is not in the arena. */
void br_pprof_release_labels(struct br_pprof *pprof);

/* Clears the error, and keeps the message if it is the first that affects samples. */
void br_pprof_keep_error(struct br_pprof *pprof);

/* Set a message and return its code. br_pprof_no_memory: the builder's error, the limit for a
 * body of this size, or BR_ENOMEM. br_pprof_no_string: the index is not in the table. */
int br_pprof_no_memory(struct br_pprof *pprof);
int br_pprof_no_string(struct br_pprof *pprof, uint64_t index, const char *what);
