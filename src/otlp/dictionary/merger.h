/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine behind br_merge_add and the splits: a dictionary under construction, the source whose
 * entries it takes over, and the output that refers to it. For src/otlp/ only.
 *
 * Failure is sticky: the first code stays in `rc`, everything after it does nothing of consequence,
 * and whoever started the work looks at it at the end. Then br_merger_restore brings back what was.
 */
#pragma once

#include "otlp/dictionary/dictionary.h"
#include "otlp/dictionary/intern.h"
#include "otlp/dictionary/resolve.h"
#include "otlp/dictionary/source.h"

struct br_merged_part {
    enum br_part_kind kind;
    uint32_t n_items;
    uint32_t at, len; /* in `out` */
    uint32_t body_at; /* from `at`; so are the next three: see br_part */
    uint32_t res_at, res_len, res_body_at;
};

struct br_merge {
    struct br_host *host;
    size_t max_bytes;
    struct br_budget budget; /* tables, parts and output */
    struct br_intern tables[BR_TABLES];
    struct br_source source;
    struct br_buf *out;      /* the parts' bytes; NULL before the first */
    uint32_t out_cap;        /* of it, what the budget knows about */
    uint32_t out_hint;       /* bytes that the output took the last time */
    struct br_buf *scratch;  /* where references are resolved */
    const uint8_t *readable; /* bytes of the part being read may be read up to here */
    struct br_merged_part *parts;
    uint32_t n_parts, cap_parts;
    uint32_t n_items;
    int rc;
    bool recalling; /* entries are only looked up; see br_merger_recall */
    bool unknown;   /* what was looked up refers to an entry that is not there */
};

/* What br_merger_restore goes back to. */
struct br_merger_mark {
    uint32_t count[BR_TABLES], len[BR_TABLES];
    uint32_t out_len, n_parts, n_items;
};

/* A length-delimited field whose body is being written. */
struct br_open {
    uint32_t at;       /* its tag, in `out` */
    uint32_t reserved; /* bytes for the length */
};

/* Prepares a zeroed merger; allocates nothing. */
void br_merger_init(struct br_merge *merge, struct br_host *host, size_t max_bytes);
void br_merger_release(struct br_merge *merge);

/* Before anything is added: makes the tables where there are none. Returns 0, BR_EFULL, BR_ENOMEM.
 */
int br_merger_begin(struct br_merge *merge);

void br_merger_mark(const struct br_merge *merge, struct br_merger_mark *ret);

/* Back to the mark, `rc` too. Afterwards the source's maps are void: br_source_reset_maps or
 * forget. */
void br_merger_restore(struct br_merge *merge, const struct br_merger_mark *mark);

/* Empties the merger, also after a failure; keeps the memory, unless it is much. */
void br_merger_clear(struct br_merge *merge);

/* As br_merge_take, but leaves the source alone. Without `dictionary`, writes none. */
int br_merger_take(struct br_merge *merge, struct br_item *into, bool dictionary);

/* First failure wins. */
static inline void br_merger_fail(struct br_merge *merge, int code)
{
    if (!merge->rc)
        merge->rc = code;
}

/* --- Entries (entries.c) ------------------------------------------------------------------- */

/* Tags and lengths of the fields of an entry that are written once. */
#define BR_ENTRY_FIXED 64

/* Starts an entry of at most `len` bytes and the fixed ones: where to write its body, or NULL with
 * `rc` set. */
static inline uint8_t *br_merger_entry(struct br_merge *merge, enum br_table table, size_t len)
{
    int rc = br_intern_reserve(&merge->tables[table], &merge->budget, len + BR_ENTRY_FIXED);
    if (__builtin_expect(rc != 0, 0)) {
        br_merger_fail(merge, rc);
        return NULL;
    }
    return br_intern_body(&merge->tables[table]);
}

/* Ends it where its body ends; the index of the entry that it is, or BR_INTERN_NONE where it was
 * only looked up. `guess`: see br_intern_find. */
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

/* Writes a scalar field (number below 16), unless it is zero. */
static inline uint8_t *br_merger_put_scalar(uint8_t *out, uint32_t field, uint64_t value)
{
    if (value == 0)
        return out;
    *out++ = (uint8_t)BR_TAG(field, BR_WIRE_VARINT);
    return br_put_varint(out, value);
}

/* Takes entry `index` of the source over, unless an equal one is there. Returns its place. */
uint32_t br_merger_intern(struct br_merge *merge, enum br_table table, uint32_t index);

/* Looks the source's entries up, table by table, and notes the place of those that are there. What
 * is not there, or refers to what is not, is left to br_merger_index. That would find all the same:
 * but in the order in which samples refer to them, each after the last, where a table is read from
 * its beginning to its end, several look-ups at a time. */
void br_merger_recall(struct br_merge *merge);

/* Looks entry `index` up while the merger recalls. Returns its place or BR_INTERN_NONE. */
uint32_t br_merger_recall_entry(struct br_merge *merge, enum br_table table, uint32_t index);

/* Returns where entry `index` of the source is in the merged table; takes it over when it is used
 * first. */
static inline uint32_t br_merger_index(struct br_merge *merge, enum br_table kind, uint64_t index)
{
    const struct br_source_table *table = &merge->source.tables[kind];
    if (__builtin_expect(index >= table->count, 0))
        return 0;
    uint32_t place = table->map[index];
    return __builtin_expect(place != 0, 1) ? place - 1
                                           : br_merger_intern(merge, kind, (uint32_t)index);
}

/* Rewrites packed indices into table `table`; `out` has room for five bytes each. */
uint8_t *br_merger_put_packed(struct br_merge *merge, enum br_table table, const uint8_t *p,
                              const uint8_t *end, uint8_t *out);

/* Prepares resolving references of the source into the emptied scratch buffer. Returns 0 or
 * BR_ENOMEM. */
int br_merger_inliner(struct br_merge *merge, struct br_inliner *ret);

/* --- Output (output.c) --------------------------------------------------------------------- */

uint8_t *br_merger_room_slow(struct br_merge *merge, size_t len);

/* Room for `len` more bytes; where to write them, or NULL with `rc` set. */
static inline uint8_t *br_merger_room(struct br_merge *merge, size_t len)
{
    if (__builtin_expect(merge->out && merge->out_cap - merge->out->len >= len && !merge->rc, 1))
        return merge->out->data + merge->out->len;
    return br_merger_room_slow(merge, len);
}

/* Ends what was written at `end`. */
static inline void br_merger_wrote(struct br_merge *merge, const uint8_t *end)
{
    merge->out->len = (uint32_t)(end - merge->out->data);
}

void br_merger_put(struct br_merge *merge, const void *data, size_t len);

/* A field with this body. */
void br_merger_put_field(struct br_merge *merge, uint32_t field, const uint8_t *data, size_t len);

/* Writes a Resource or InstrumentationScope as this field, with the references in its attributes
 * (of the number `attributes`) resolved. */
void br_merger_put_attributes(struct br_merge *merge, uint32_t field, const uint8_t *body,
                              size_t len, uint32_t attributes);

/* Starts a field of this number (below 16), whose body is likely to be `len` bytes long, and ends
 * it. What lies inside moves when the guess was wrong. */
struct br_open br_merger_open(struct br_merge *merge, uint32_t field, size_t len);
void br_merger_close(struct br_merge *merge, struct br_open open);

/* Starts a part: a ResourceSpans or ResourceProfiles whose body is likely to be `len` bytes long.
 * Its Resource (`from`'s) is written first, with references resolved when `inlined`. */
struct br_open br_merger_open_part(struct br_merge *merge, const struct br_part *from, size_t len,
                                   bool inlined);
void br_merger_close_part(struct br_merge *merge, struct br_open open);

/* A top-level field that nobody knows, verbatim. */
void br_merger_put_other(struct br_merge *merge, const struct br_part *from);

/* --- Profiles (profiles.c) ----------------------------------------------------------------- */

/* One field of ScopeProfiles or Profile other than its children. */
void br_merger_put_scope_field(struct br_merge *merge, const struct br_field *field,
                               const uint8_t *next);
void br_merger_put_profile_field(struct br_merge *merge, const struct br_field *field,
                                 const uint8_t *next);

/* One Sample, as the field of a Profile. */
void br_merger_put_sample(struct br_merge *merge, const uint8_t *body, size_t len);

/* A whole part. */
void br_merger_put_resource_profiles(struct br_merge *merge, const struct br_part *part);
