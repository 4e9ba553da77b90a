/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of reading a pprof, and the functions that the reader's files share. For
 * src/profile/pprof only. Source: github.com/google/pprof/proto/profile.proto.
 *
 * Fields may come in any order, so that everything but the top level is read only when it is known
 * how many of each there are and where they lie.
 *
 * Much may refer to one long text, so what is made of texts is made once and looked up by the
 * strings' indices; and what has to be composed of them, and the memory that all of it takes, are
 * bounded by the size of the body.
 */
#pragma once

#include "otlp/dictionary/intern.h"
#include "otlp/scan.h"
#include "profile/pprof/fields.h"
#include "profile/profile.h"

/* What no profiler comes near: sample types, bytes of one's name, labels of a sample, lines of a
 * location. */
#define BR_PPROF_MOST_TYPES 64u
#define BR_PPROF_MOST_NAME 1024u
#define BR_PPROF_MOST_LABELS 1024u
#define BR_PPROF_MOST_LINES 1024u
/* Reading may take so many times the body, and BR_PPROF_SPARE more: a MiB, but for what nobody
 * counts here (heads of blocks, the item). */
#define BR_PPROF_GROWTH 4
#define BR_PPROF_SPARE (((size_t)1 << 20) - (16u << 10))

/* Where the fields of one number lie: others may be in between. */
struct br_pprof_range {
    uint32_t count;
    const uint8_t *start, *end;
};

/* From ids, which are any numbers, to indices of the builder's. Ids that are about as large as
 * there are entries are looked up in an array, others in a hash table. */
struct br_pprof_ids {
    uint32_t *dense; /* index + 1; 0: there is none */
    uint32_t n_dense;
    uint64_t *sparse; /* the ids, at most two thirds full, 0: empty; NULL until there are any */
    uint32_t *places; /* index + 1 of each of these */
    uint32_t n_entries, n_sparse;
    uint64_t factor;
};

struct br_pprof_string {
    uint32_t at, len; /* from the beginning of the data */
    uint32_t index;   /* + 1 in the builder; 0: not there yet */
};

struct br_pprof_label {
    uint64_t key, str, num, unit; /* as they came */
};

struct br_pprof_memo; /* profile/pprof/labels.c */

/* Attributes of long texts and of lists, by the strings that they are made of. */
struct br_pprof_made {
    struct br_intern keys;
    struct br_budget budget;
    uint32_t *attributes; /* the builder's, of each of `keys` */
    uint32_t cap;
};

/* Samples as they will be written for each type. */
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
    uint32_t
        moved; /* the first string once more, where it is not empty as it has to be: what refers to
                  it means it, and a label that does is none of a number; 0: it is empty */
    struct br_pprof_ids mappings, functions, locations;
    uint32_t n_same;    /* locations' ids from 1 to this - 1 are their indices; 0: they are not */
    bool dotnet;        /* what Pyroscope's .NET agent sends needs repairs */
    bool datadog;       /* the types are Datadog's */
    uint64_t nonzero;   /* of these: a bit for each type of which a sample has something */
    uint32_t is_folded; /* the attribute; 0: not needed yet */
    struct br_build_line *lines;
    uint32_t cap_lines;

    size_t max_bytes;   /* that reading may take, in all */
    size_t built;       /* bytes that the builder held before */
    size_t build_limit; /* and what it was allowed */
    size_t arena_taken; /* likewise, of the arena */
    size_t compose;     /* bytes that may still be composed of texts */
    bool full;          /* one of these two was reached */

    bool sample_is_bad;          /* what `err` says costs the sample that is being read, not more */
    struct br_profile_lost lost; /* by that; `first` may be a location's fault before `n` counts */

    struct br_pprof_records records;
    uint32_t *attributes; /* of the sample that is being read; so are the next two */
    uint32_t n_attributes, cap_attributes;
    uint32_t *stack;
    uint32_t cap_stack;
    struct br_pprof_label *labels;
    uint32_t cap_labels;
    struct br_pprof_ordered *ordered; /* the same, by key */
    uint32_t cap_ordered;
    struct br_pprof_memo *memo; /* NULL before the first label */
    struct br_pprof_made made;
    struct br_addition *texts; /* of which an attribute is being made */
    uint32_t cap_texts;
    uint8_t *composed; /* a text that is being put together */
    uint32_t cap_composed;
};

/* Gives the next field of this tag, of length-delimited ones, in the range; false at the end. What
 * is there is well-formed: mostly it is that field, with a length of one byte. */
static inline bool br_pprof_next(const uint8_t **p, const uint8_t *end, uint32_t tag,
                                 struct br_field *field)
{
    while (*p < end) {
        const uint8_t *at = *p;
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

/* Reads a field of a byte of tag and a byte of value, as most are, into `values`, as below; false
 * where the next is another. */
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

/* A message of varints: reads fields 1 to `count` into v[1] to v[n], the last one of each. Others
 * are passed over. False when it is malformed. */
bool br_pprof_scalars(const uint8_t *p, const uint8_t *end, uint64_t *values, uint32_t count);

/* Room for `need` in an array of the arena. False when there is none. */
bool br_pprof_grow(struct br_pprof *pprof, void *items, uint32_t *cap, size_t need, size_t size);

/* An array of the arena, not cleared; NULL when there is no room. */
void *br_pprof_alloc(struct br_pprof *pprof, size_t count, size_t size);

/* Returns the bytes of all that reading took but for the builder's. */
static inline size_t br_pprof_own(const struct br_pprof *pprof)
{
    return pprof->arena->used - pprof->arena_taken + pprof->made.budget.used;
}

/* Returns the bytes that reading may still take. */
static inline size_t br_pprof_rest(const struct br_pprof *pprof)
{
    size_t built = br_build_memory(pprof->build);
    size_t used = (built > pprof->built ? built - pprof->built : 0) + br_pprof_own(pprof);
    return used < pprof->max_bytes ? pprof->max_bytes - used : 0;
}

/* Returns true while `more` bytes more are among them. */
static inline bool br_pprof_fits(struct br_pprof *pprof, size_t more)
{
    if (__builtin_expect(more < br_pprof_rest(pprof), 1))
        return true;
    pprof->full = true;
    return false;
}

/* After anything else grew: the builder gets the rest. */
static inline void br_pprof_share(struct br_pprof *pprof)
{
    size_t own = br_pprof_own(pprof);
    size_t limit = pprof->built + (own < pprof->max_bytes ? pprof->max_bytes - own : 0);
    (void)br_build_limit(pprof->build, limit < pprof->build_limit ? limit : pprof->build_limit);
}

/* Counts `len` bytes that are about to be composed of texts. 0, or BR_EFULL with the error set:
 * what refers to them makes too much of them. */
int br_pprof_compose(struct br_pprof *pprof, size_t len);

/* Returns the length and bytes of a string; NULL when there is no such string. */
const uint8_t *br_pprof_text(const struct br_pprof *pprof, uint64_t index, size_t *ret_len);

/* Its index in the builder, put there when it is used first. False with the error set; `what` is
 * for the sentence. */
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

/* The same of texts that a profile can do without: a stray reference is counted and means the empty
 * text. */
uint32_t br_pprof_string_or_empty(struct br_pprof *pprof, uint64_t index, const char *what);
const uint8_t *br_pprof_text_or_empty(struct br_pprof *pprof, uint64_t index, const char *what,
                                      size_t *ret_len);

/* Index + 1, or 0 when there is no such id. */
uint32_t br_pprof_ids_find(const struct br_pprof_ids *ids, uint64_t id);
static inline uint32_t br_pprof_ids_get(const struct br_pprof_ids *ids, uint64_t id)
{
    if (__builtin_expect(id < ids->n_dense, 1))
        return ids->dense[id];
    return br_pprof_ids_find(ids, id);
}

/* Strings, mappings, functions, locations. Each returns 0 or a code with the error set. */
int br_pprof_read_strings(struct br_pprof *pprof);
int br_pprof_read_tables(struct br_pprof *pprof);

/* Samples; their values are to be `n_types`. */
int br_pprof_read_samples(struct br_pprof *pprof, uint32_t n_types);

/* Writes them into the open Profile, with the values of one type. */
void br_pprof_put_samples(struct br_pprof *pprof, uint32_t type);

/* Makes the attributes of the labels that are being read, `count` of them, and the link that they
 * name; 0 or a code with the error set. */
int br_pprof_read_labels(struct br_pprof *pprof, uint32_t count, uint32_t *ret_link);

/* Makes the attribute of one text; `key` is the builder's. 0, or a code with the error set. */
int br_pprof_text_attribute(struct br_pprof *pprof, uint32_t key, uint64_t string, uint32_t *ret);

/* Gives back what is not the arena's. */
void br_pprof_release_labels(struct br_pprof *pprof);

/* Takes the error away, and keeps it where it is the first that costs samples. */
void br_pprof_blame(struct br_pprof *pprof);

/* Set the error and return its code: that there is no memory, or not so much for a body of this
 * size, or what the builder failed with; that there is no such string. */
int br_pprof_no_memory(struct br_pprof *pprof);
int br_pprof_no_string(struct br_pprof *pprof, uint64_t index, const char *what);
