/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Implements br_merge_add and the split functions. A merger consists of a dictionary under
 * construction, the source whose entries are copied into it, and the output that refers to it. This
 * header is private to src/otlp.
 *
 * The first error is kept in `rc`. After an error the merger's functions may still be called but
 * have no useful effect. The caller checks `rc` at the end and restores the previous state with
 * br_merger_restore.
 */
#pragma once

#include "core/item.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/dictionary/intern.h"

/* --- The source (source.c) -------------------------------------------------------------------- */

/*
 * The dictionary of the request being merged, and the merged index of each of its entries: the
 * index of the equal entry in the merged dictionary.
 *
 * Senders often repeat their tables unchanged or with more entries at the end. A new dictionary is
 * therefore first compared with the previous one. Leading entries with equal bytes need not be
 * indexed again. Unchanged entries also keep their merged index if all entries to which they refer
 * are unchanged.
 */

struct br_source_entry {
    uint32_t at; /* offset of the entry's body from the table's `base` */
    uint32_t len;
};

struct br_source_table {
    const uint8_t *base; /* points to the tag of the table's first entry */
    struct br_source_entry *entries;
    /* for each entry: its merged index, plus 1; 0: not looked up yet, or not found */
    uint32_t *map;
    uint32_t count, cap_entries, cap_map;
    uint32_t
        /* number of leading entries whose merged index, if one was recorded, is kept from the
         * previous dictionary */
        n_kept;
    /* number of leading entries that are contiguous from `base` on, and their total length in
     * bytes */
    uint32_t run_n, run_len;
};

/* An entry that has a merged index. */
struct br_source_used {
    enum br_table table;
    uint32_t index;
};

struct br_source {
    struct br_buf *buf; /* buffer that contains the tables; NULL: nothing is loaded */
    struct br_budget budget;
    struct br_source_table tables[BR_TABLES];
    /* entries that were looked up since br_source_reset_used; listed only if `lists_used` */
    struct br_source_used *used;
    uint32_t n_used, cap_used;
    bool lists_used;
};

/* Loads the dictionary of `item`. If the request has several ProfilesDictionary fields, they are
 * treated as one dictionary. Returns 0, BR_EINVAL, BR_EFULL or BR_ENOMEM. On failure nothing is
 * loaded. */
int br_source_load(struct br_source *source, const struct br_item *item);

/* Discards the merged indices, after the merged dictionary was emptied or truncated. */
void br_source_reset_maps(struct br_source *source);

/* Adds an entry to the list `source->used`. Returns 0, BR_EFULL or BR_ENOMEM. */
int br_source_note_used(struct br_source *source, enum br_table table, uint32_t index);

/* Discards the merged indices of the listed entries, like br_source_reset_maps. The time depends
 * on the number of listed entries, not on the size of the dictionary. */
void br_source_reset_used(struct br_source *source);

/* Discards the dictionary and the reference to its buffer. Keeps the memory of the index for
 * reuse. */
void br_source_forget(struct br_source *source);
void br_source_release(struct br_source *source);

/* Returns the body of entry `index`, which must exist, and stores its length in bytes. */
static inline const uint8_t *br_source_body(const struct br_source *source, enum br_table kind,
                                            uint32_t index, uint32_t *ret_len)
{
    const struct br_source_table *table = &source->tables[kind];
    *ret_len = table->entries[index].len;
    return table->base + table->entries[index].at;
}

/* --- The merger (merge.c) --------------------------------------------------------------------- */

struct br_merged_part {
    enum br_part_kind kind;
    uint32_t n_records;
    uint32_t at, len; /* offset and length of the part in `out` */
    /* offset of the part's body from `at`; res_at and res_body_at are offsets from `at` too */
    uint32_t body_at;
    uint32_t res_at, res_len, res_body_at;
};

struct br_merge {
    struct br_host *host;
    size_t max_bytes;
    struct br_budget budget; /* memory limit for the tables, the parts and the output */
    struct br_intern tables[BR_TABLES];
    struct br_source source;
    struct br_buf *out; /* buffer with the bytes of the parts; NULL before the first part */
    uint32_t out_cap;   /* number of bytes of `out` that count against the budget */
    /* expected size of the output in bytes, estimated from the previous output */
    uint32_t out_hint;
    struct br_buf *scratch; /* buffer for messages whose references are replaced by strings */
    /* end of the current part of the source; bytes before this address may be read in blocks */
    const uint8_t *readable;
    struct br_merged_part *parts;
    uint32_t n_parts, cap_parts;
    uint32_t n_records;
    int rc;
    bool recalling; /* true: entries are looked up but not added; see br_merger_recall */
    /* while recalling: the current entry refers to an entry that the merged dictionary does not
     * contain */
    bool unknown;
};

/* A mark: the state to which br_merger_restore returns. */
struct br_merger_mark {
    uint32_t count[BR_TABLES], len[BR_TABLES];
    uint32_t out_len, n_parts, n_records;
};

/* A length-delimited field whose body is being written. */
struct br_open {
    uint32_t at;       /* offset of the field's tag in `out` */
    uint32_t reserved; /* number of bytes reserved for the field's length */
};

/* Initialises a zeroed merger; allocates nothing. */
void br_merger_init(struct br_merge *merge, struct br_host *host, size_t max_bytes);
void br_merger_release(struct br_merge *merge);

/* Creates the tables if necessary. Must be called before anything is added to the merger.
 * Returns 0, BR_EFULL or BR_ENOMEM. */
int br_merger_begin(struct br_merge *merge);

void br_merger_mark(const struct br_merge *merge, struct br_merger_mark *ret);

/* Restores the state at the mark and clears `rc`. After br_merger_restore, the maps of the source
 * are invalid: the caller must call br_source_reset_maps or br_source_forget. */
void br_merger_restore(struct br_merge *merge, const struct br_merger_mark *mark);

/* Empties the merger, also after an error. Keeps the memory for reuse, unless it is large. */
void br_merger_clear(struct br_merge *merge);

/* Writes the merged request like br_merge_take, but leaves the source unchanged. Writes no
 * dictionary if `dictionary` is false. */
int br_merger_take(struct br_merge *merge, struct br_item *into, bool dictionary);

/* Records an error, unless an earlier error is recorded. */
static inline void br_merger_fail(struct br_merge *merge, int code)
{
    if (!merge->rc)
        merge->rc = code;
}

/* --- Entries (entries.c) ------------------------------------------------------------------- */

/* Maximum size, in bytes, of all fields of an entry together, except repeated fields. */
#define BR_ENTRY_FIXED 64

/* Begins an entry of at most `len` + BR_ENTRY_FIXED bytes. Returns the position where the caller
 * writes the entry's body. Returns NULL and sets `rc` on failure. */
static inline uint8_t *br_merger_entry(struct br_merge *merge, enum br_table table, size_t len)
{
    int rc = br_intern_reserve(&merge->tables[table], &merge->budget, len + BR_ENTRY_FIXED);
    if (__builtin_expect(rc != 0, 0)) {
        br_merger_fail(merge, rc);
        return NULL;
    }
    return br_intern_body(&merge->tables[table]);
}

/* Completes the entry whose body ends at `end`. Returns the index of the entry, or of an existing
 * equal entry. While `recalling` is set, adds nothing and returns BR_INTERN_NONE if there is no
 * equal entry. `guess`: see br_intern_find. */
static inline uint32_t br_merger_enter(struct br_merge *merge, enum br_table kind,
                                       const uint8_t *end, uint32_t guess)
{
    struct br_intern *table = &merge->tables[kind];
    const uint8_t *body = br_intern_body(table);
    size_t len = (size_t)(end - body);
    if (__builtin_expect(!merge->recalling, 1))
        return br_intern_enter(table, len, guess);
    uint32_t hash;
    return merge->unknown ? BR_INTERN_NONE : br_intern_find(table, body, len, guess, &hash);
}

/* Writes a scalar field (number below 16), unless it is zero. Returns the position after the
 * field. */
static inline uint8_t *br_merger_put_scalar(uint8_t *out, uint32_t field, uint64_t value)
{
    if (value == 0)
        return out;
    *out++ = (uint8_t)BR_TAG(field, BR_WIRE_VARINT);
    return br_put_varint(out, value);
}

/* Copies entry `index` of the source into the merged dictionary, unless that dictionary contains
 * an equal entry. Returns the merged index of the entry. */
uint32_t br_merger_intern(struct br_merge *merge, enum br_table table, uint32_t index);

/* Looks up the source's entries table by table, and records the merged index of each entry that the
 * merged dictionary contains. Entries that the merged dictionary does not contain, or that refer to
 * such entries, are looked up later by br_merger_index.
 *
 * br_merger_index alone would be correct, but it follows the references of the samples, and each
 * lookup depends on the previous one. br_merger_recall reads a table from start to end, with
 * several lookups in parallel. */
void br_merger_recall(struct br_merge *merge);

/* Looks up entry `index` of `table` of the source for br_merger_recall. Returns the merged index of
 * the entry, or BR_INTERN_NONE. */
uint32_t br_merger_recall_entry(struct br_merge *merge, enum br_table table, uint32_t index);

/* Returns the merged index of entry `index` of the source. Copies the entry into the merged
 * dictionary at its first use. */
static inline uint32_t br_merger_index(struct br_merge *merge, enum br_table kind, uint64_t index)
{
    const struct br_source_table *table = &merge->source.tables[kind];
    if (__builtin_expect(index >= table->count, 0))
        return 0;
    uint32_t mapped = table->map[index];
    return __builtin_expect(mapped != 0, 1) ? mapped - 1
                                            : br_merger_intern(merge, kind, (uint32_t)index);
}

/* Converts a packed list of indices of the source's `table` to a packed list of merged indices.
 * `out` has space for five bytes per index. Returns the position after the last written index. */
uint8_t *br_merger_put_packed(struct br_merge *merge, enum br_table table, const uint8_t *p,
                              const uint8_t *end, uint8_t *out);

/* Prepares an inliner that replaces references by strings of the source. The inliner's output is
 * the scratch buffer, which is emptied. Returns 0 or BR_ENOMEM. */
int br_merger_inliner(struct br_merge *merge, struct br_inliner *ret);

/* --- Output (output.c) --------------------------------------------------------------------- */

uint8_t *br_merger_room_slow(struct br_merge *merge, size_t len);

/* Makes room for `len` more bytes of output. Returns the position where the caller writes the `len`
 * bytes. Returns NULL and sets `rc` on failure. */
static inline uint8_t *br_merger_room(struct br_merge *merge, size_t len)
{
    if (__builtin_expect(merge->out && merge->out_cap - merge->out->len >= len && !merge->rc, 1))
        return merge->out->data + merge->out->len;
    return br_merger_room_slow(merge, len);
}

/* Sets the end of the output, after the caller wrote bytes directly into it. */
static inline void br_merger_wrote(struct br_merge *merge, const uint8_t *end)
{
    merge->out->len = (uint32_t)(end - merge->out->data);
}

void br_merger_put(struct br_merge *merge, const void *data, size_t len);

/* Appends a length-delimited field to the output. */
void br_merger_put_field(struct br_merge *merge, uint32_t field, const uint8_t *data, size_t len);

/* Appends a Resource or InstrumentationScope as field `field`. References in the attributes of this
 * message, which are its fields with the number `attributes`, are replaced by strings. */
void br_merger_put_attributes(struct br_merge *merge, uint32_t field, const uint8_t *body,
                              size_t len, uint32_t attributes);

/* br_merger_open begins a field (number below 16), and br_merger_close ends it. `len` is the
 * expected length of the body in bytes. If the actual length needs a length prefix of another size,
 * br_merger_close moves the body. */
struct br_open br_merger_open(struct br_merge *merge, uint32_t field, size_t len);
void br_merger_close(struct br_merge *merge, struct br_open open);

/* Begins a part: a ResourceSpans or ResourceProfiles with an expected body of `len` bytes. The
 * Resource of `from` is written first, with references replaced by strings if `inlined`. */
struct br_open br_merger_open_part(struct br_merge *merge, const struct br_part *from, size_t len,
                                   bool inlined);
void br_merger_close_part(struct br_merge *merge, struct br_open open);

/* Appends an unknown top-level field verbatim. */
void br_merger_put_other(struct br_merge *merge, const struct br_part *from);

/* --- Profiles (profiles.c) ----------------------------------------------------------------- */

/* Appends one Sample to the open Profile, with merged indices. */
void br_merger_put_sample(struct br_merge *merge, const uint8_t *body, size_t len);

/* The messages above a span or a sample. A request of traces has no PROFILE. */
enum br_level { BR_LEVEL_RESOURCE, BR_LEVEL_SCOPE, BR_LEVEL_PROFILE, BR_LEVELS };

/* Appends one field, other than a child, of a message at `level`. Fields of profiles get merged
 * indices. Appends no Resource, because br_merger_open_part has appended it. Appends
 * original_payload only if `payload` is true. The original payload describes the whole profile, so
 * only the first message made from a profile contains it. */
void br_merger_put_head(struct br_merge *merge, enum br_signal signal, unsigned level, bool payload,
                        const struct br_field *field, const uint8_t *next);

/* Appends a ResourceProfiles as a part, with merged indices. */
void br_merger_put_resource_profiles(struct br_merge *merge, const struct br_part *part);

/* --- Outlines of written dictionaries --------------------------------------------------------- */

/*
 * The outline of a dictionary that Braid has written: position and size of each table. The outline
 * is stored after the dictionary's bytes, in the same buffer, but not sent. Code that needs only
 * one table uses the outline to skip the other tables.
 */

struct br_outline {
    /* offset of each table's first entry from the part's `raw`; the last element is the offset
     * of the end */
    uint32_t at[BR_TABLES + 1];
    uint32_t count[BR_TABLES]; /* number of entries of each table */
};

/* Returns the outline of a dictionary part. The result points into the part's bytes. Returns NULL
 * if the part has no outline. */
static inline const struct br_outline *br_outline_of(const struct br_part *part)
{
    return part->outline_at
               ? (const struct br_outline *)(const void *)(part->raw + part->outline_at)
               : NULL;
}
