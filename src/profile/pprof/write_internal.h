/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of the pprof that is being written. Entries of the OTLP dictionary are added to the
 * pprof at their first use. A pprof consists of sections, which are concatenated at the end. A mark
 * records the ID that a dictionary entry has in a pprof, and the number of that pprof. Marks of
 * earlier pprofs are thus ignored and need not be cleared.
 *
 * After the first failure (BR_ENOMEM, BR_EFULL) nothing more is written. This header is private to
 * src/profile/pprof/write*.c.
 */
#pragma once

#include "base/steps.h"
#include "otlp/dictionary/intern.h"
#include "otlp/scan.h"
#include "profile/pair.h"
#include "profile/pprof/fields.h"
#include "profile/pprof/write.h"

enum br_pprof_section {
    PPROF_HEAD,
    PPROF_SAMPLES,
    PPROF_MAPPINGS,
    PPROF_LOCATIONS,
    PPROF_FUNCTIONS,
    /* number of sections that are part of the pprof, without the string table */
    PPROF_SECTIONS,
    PPROF_CACHE = PPROF_SECTIONS, /* buffer of encoded Sample fields, which many samples share */
    PPROF_BUFFERS,
};

struct br_pprof_buffer {
    uint8_t *data;
    size_t len, cap;
};

struct br_pprof_mark {
    /* the mark is valid only while this number equals br_pprof_tables.round, the number of the
     * pprof that is being written */
    uint32_t round;
    uint32_t id;
};

/* Position in PPROF_CACHE of encoded fields of a Sample. */
struct br_pprof_piece {
    uint32_t round;
    uint32_t at, len;
};

enum br_pprof_role { PPROF_LABEL, PPROF_SPAN_ID, PPROF_TRACE_ID };

struct br_pprof_label_fields {
    struct br_pprof_piece piece;
    uint8_t role;  /* an enum br_pprof_role */
    int8_t wanted; /* result of keep_label: 1: true, -1: false, 0: not called yet */
    /* whether the attribute marks a location as folded: 1: yes, -1: no, 0: not checked yet */
    int8_t folded;
    /* The attribute must be equal in all Profiles of a pprof. This field is set when the attribute
     * is read. */
    bool compared;
    /* The value is a string that is not an ID, so Pyroscope makes it a label of the series. */
    bool makes_series;
    uint8_t id[16]; /* bytes of the ID in the value; zeros if the value is not a valid ID */
    /* string index of the value if it is not used as a label; the string is written at its first
     * use */
    struct br_pprof_mark text;
};

struct br_pprof_link_fields {
    struct br_pprof_piece span, trace;
    /* IDs of the span and the trace; NULL: the link has no such ID */
    const uint8_t *span_id, *trace_id;
};

struct br_pprof_tables {
    struct br_dictionary_view view;
    struct br_arena arena;    /* memory that is freed with the item */
    struct br_intern strings; /* string table of the pprof */
    struct br_budget strings_budget;
    const struct br_pprof_options *options;
    bool all_labels;
    uint32_t round;
    /* for each table: number of IDs that have been assigned in this pprof */
    uint32_t n_ids[BR_TABLES];
    /* marks for the entries of the string, function, location and mapping tables */
    struct br_pprof_mark *marks[BR_TABLES];
    struct br_pprof_piece *stacks;
    struct br_pprof_label_fields *labels;
    struct br_pprof_link_fields *links;
    struct br_pprof_buffer buffers[PPROF_BUFFERS];
    uint32_t last_trace; /* index of the link whose trace ID was written last */
    /* string index of the trace ID of `last_trace`; 0: no trace ID was written yet */
    uint32_t last_trace_string;
    uint32_t id_keys[2]; /* string indices of "span_id" and "trace_id"; 0: not written yet */
    /* number of bytes written and read for all pprofs of the item, and the limit for this number */
    size_t work, max_work;
    int rc;
};

/* A saved state of a pprof: the sizes of its sections, to which br_pprof_tables_restore truncates
 * the sections. */
struct br_pprof_state {
    size_t len[PPROF_SECTIONS];
    uint32_t strings_len;
};

/* Indexes the dictionary of an item. Returns 0, BR_ENOMEM or BR_ETOOBIG. */
int br_pprof_tables_load(struct br_pprof_tables *tables, const struct br_item *item,
                         const struct br_pprof_options *options);

/* Releases the item, and frees buffers that are larger than KEEP_MAX. */
void br_pprof_tables_unload(struct br_pprof_tables *tables);
void br_pprof_tables_release(struct br_pprof_tables *tables);

/* Begins a pprof whose string table contains only the empty string. */
void br_pprof_tables_begin(struct br_pprof_tables *tables);

/* Ends the pprof: nothing may be added until the next pprof begins. Frees the hash table of the
 * strings if it is large. */
void br_pprof_tables_finish(struct br_pprof_tables *tables);

/* Returns the number of bytes written so far. */
size_t br_pprof_tables_size(const struct br_pprof_tables *tables);

void br_pprof_tables_state(const struct br_pprof_tables *tables, struct br_pprof_state *ret);

/* Removes everything written since `state`. After br_pprof_tables_restore nothing may be added
 * to the pprof. */
void br_pprof_tables_restore(struct br_pprof_tables *tables, const struct br_pprof_state *state);

/* Makes room for `len` bytes at the end of a buffer. Returns a pointer to this space, or NULL with
 * `tables->rc` set. */
uint8_t *br_pprof_tables_room_slow(struct br_pprof_tables *tables, unsigned buffer, size_t len);

static inline uint8_t *br_pprof_tables_room(struct br_pprof_tables *tables, unsigned buffer,
                                            size_t len)
{
    struct br_pprof_buffer *section = &tables->buffers[buffer];
    if (__builtin_expect(section->cap - section->len >= len && !tables->rc, 1))
        return section->data + section->len;
    return br_pprof_tables_room_slow(tables, buffer, len);
}

/* Sets the length of the buffer so that it ends at `end`, after the caller has written up to
 * `end`. */
static inline void br_pprof_tables_wrote(struct br_pprof_tables *tables, unsigned buffer,
                                         const uint8_t *end)
{
    tables->buffers[buffer].len = (size_t)(end - tables->buffers[buffer].data);
}

/* maximum number of bytes of an encoded length below BR_BUF_MAX */
#define PPROF_LEN_MAX 5

/* Writes a varint field unless its value is 0. The caller must have made room for the field. */
static inline uint8_t *br_pprof_put_number(uint8_t *out, uint32_t field, uint64_t value)
{
    if (!value)
        return out;
    *out++ = (uint8_t)BR_TAG(field, BR_WIRE_VARINT);
    return br_put_varint(out, value);
}

/* Begins a message of up to `most` bytes; br_put_length_before ends the message. Returns the
 * position of the message's body, or NULL with `tables->rc` set. */
static inline uint8_t *br_pprof_tables_open(struct br_pprof_tables *tables, unsigned buffer,
                                            uint32_t field, size_t most)
{
    uint8_t *o = br_pprof_tables_room(tables, buffer, most + 1 + PPROF_LEN_MAX + 1);
    if (!o)
        return NULL;
    *o = (uint8_t)BR_TAG(field, BR_WIRE_LEN);
    return o + 2;
}

/* Counts `len` bytes of work for reading an entry. Returns false if max_work would be exceeded,
 * after setting BR_EFULL in `tables->rc`. Also returns false after an earlier failure. */
static inline bool br_pprof_tables_work(struct br_pprof_tables *tables, size_t len)
{
    if (__builtin_expect(tables->rc != 0, 0))
        return false;
    if (__builtin_expect(len > tables->max_work - tables->work, 0)) {
        tables->rc = BR_EFULL;
        return false;
    }
    br_steps_add(len);
    tables->work += len;
    return true;
}

/* Sets BR_EFULL in `tables->rc` if the work, after adding a pprof of `size` bytes, would exceed
 * max_work. The bytes of the pprof are counted later, when the pprof is passed to the callback. */
static inline void br_pprof_tables_check(struct br_pprof_tables *tables, size_t size)
{
    if (__builtin_expect(size > tables->max_work - tables->work && !tables->rc, 0))
        tables->rc = BR_EFULL;
}

/* Reads attribute `index` for a message that refers to it, like br_pair_of. Also returns false
 * after an earlier failure. Each read adds PPROF_AGAIN times the size of the entry to the work that
 * max_work limits. */
#define PPROF_AGAIN 8
bool br_pprof_tables_pair(struct br_pprof_tables *tables, uint32_t index, struct br_pair *ret,
                          uint32_t *ret_key, uint32_t *ret_unit);

/* Returns the string index for the value of attribute `index`. The string is written at its
 * first use. */
uint32_t br_pprof_tables_attribute_text(struct br_pprof_tables *tables, uint32_t index,
                                        const struct br_any *text);

/* Returns the string index of a text. A string is added at its first use and never twice:
 * Pyroscope compares keys and names by index, and would not find the second copy. */
uint32_t br_pprof_tables_text(struct br_pprof_tables *tables, const void *data, size_t len);

/* Returns the index in the pprof of string `index` of the dictionary. The string is added at its
 * first use. */
uint32_t br_pprof_tables_string_slow(struct br_pprof_tables *tables, uint32_t index);

static inline uint32_t br_pprof_tables_string(struct br_pprof_tables *tables, uint64_t index)
{
    if (index >= tables->view.count[BR_TABLE_STRING])
        return 0;
    const struct br_pprof_mark *mark = &tables->marks[BR_TABLE_STRING][index];
    return mark->round == tables->round ? mark->id
                                        : br_pprof_tables_string_slow(tables, (uint32_t)index);
}

/* Returns the encoded location_id field of a stack, which is in PPROF_CACHE. */
const struct br_pprof_piece *br_pprof_tables_stack(struct br_pprof_tables *tables, uint64_t index);

/* Returns the encoded label of an attribute. Its length is 0 if the attribute does not become a
 * label or `keep_label` rejects it. */
const struct br_pprof_label_fields *br_pprof_tables_label(struct br_pprof_tables *tables,
                                                          uint32_t index);

/* Returns the encoded labels of a link, or NULL if `index` is invalid. */
const struct br_pprof_link_fields *br_pprof_tables_link(struct br_pprof_tables *tables,
                                                        uint64_t index);

/* Iterates over the packed or unpacked indices in field `field` of a message, such as
 * attribute_indices. The caller initially sets only `p` and `end`. If the field is known to occur
 * once and packed, the caller sets only `packed` and `packed_end`. After br_pprof_index_next has
 * returned false, it must not be called again. */
struct br_pprof_indices {
    const uint8_t *p, *end; /* the encoded message */
    const uint8_t *packed, *packed_end;
};
bool br_pprof_index_field(struct br_pprof_indices *indices, uint32_t field, uint32_t *ret);

static inline bool br_pprof_index_next(struct br_pprof_indices *indices, uint32_t field,
                                       uint32_t *ret)
{
    uint64_t value;
    if (indices->packed >= indices->packed_end)
        return indices->p && br_pprof_index_field(indices, field, ret);
    indices->packed = br_scan_index(indices->packed, indices->packed_end, &value);
    *ret = value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
    return indices->packed != NULL;
}

/* --- The head (write_head.c) ------------------------------------------------------------------ */

/* The fields of a pprof that precede its samples: types, period, times, comments. */

#define PPROF_TYPE_LEN 64

/* A Profile of the current scope. */
struct br_pprof_profile {
    const uint8_t *body, *end;
    uint32_t n_samples;
    /* string indices of the dictionary: type and unit of the samples, type and unit of the
     * period */
    uint32_t type, unit, period_type, period_unit;
    int64_t period;
    uint64_t time_ns, duration_ns;
    bool cumulative;
};

struct br_pprof_scope {
    bool from_pyroscope;
    /* The scope was converted from a pprof and contains the original order of its Profiles. */
    bool ordered;
    bool has_cpu;         /* some Profile of the scope has the type cpu/nanoseconds */
    struct br_entry name; /* value of `__name__` if from_pyroscope is true */
    /* value of `__name__` if from_pyroscope is false; if its length is 0, the name is derived from
     * the types */
    struct br_entry metric;
    /* name of the default sample type; if its length is 0, the scope has no default */
    struct br_entry preferred;
};

struct br_pprof_type {
    struct br_entry type, unit; /* type and unit as written to the pprof */
    char text[PPROF_TYPE_LEN];  /* NUL-terminated copy of the type */
    char clean_unit[PPROF_TYPE_LEN];
    bool is_period;    /* values have the type and unit of the period */
    bool times_period; /* each value is a number of sampling periods */
};

struct br_pprof_head {
    const struct br_pprof_profile *profile; /* first of n_profiles Profiles */
    const struct br_pprof_scope *scope;
    struct br_pprof_type types[BR_PPROF_TYPES_MAX];
    uint32_t n_profiles;
    struct br_entry period_type, period_unit;
    int64_t period;
    bool cumulative;
    char name[128];
};

void br_pprof_profile_read(struct br_pprof_profile *profile, struct br_pprof_tables *tables,
                           const uint8_t *body, const uint8_t *end);

/* Returns true if two Profiles refer to the same attributes in the same order. Ignores invalid
 * indices and the attribute BR_PROFILE_CUMULATIVE. */
bool br_pprof_profile_same_attributes(const struct br_pprof_profile *profile,
                                      const struct br_pprof_profile *other,
                                      const struct br_pprof_tables *tables);

/* Returns true if the profile's type is cpu/nanoseconds. */
bool br_pprof_profile_is_cpu(const struct br_pprof_profile *profile,
                             const struct br_pprof_tables *tables);

/* Sets all fields of `scope` except has_cpu from the attributes of the InstrumentationScope `body`.
 * Sorts the Profiles of the scope (at most BR_PPROF_TYPES_MAX) into their original order. */
void br_pprof_scope_read(struct br_pprof_scope *scope, struct br_entry body,
                         struct br_pprof_profile *profiles, uint32_t count);

/* Prepares the head of a pprof made of `count` Profiles. The Profiles, the scope and the
 * dictionary are borrowed and must outlive `head`. */
void br_pprof_head_make(struct br_pprof_head *head, const struct br_pprof_tables *tables,
                        const struct br_pprof_scope *scope, const struct br_pprof_profile *profile,
                        uint32_t count);

/* Writes the head of a pprof, with the time moved by `later_ns` nanoseconds. Stores the time and
 * its offset in `out`. */
void br_pprof_head_write(const struct br_pprof_head *head, struct br_pprof_tables *tables,
                         uint64_t later_ns, struct br_pprof_out *out);
