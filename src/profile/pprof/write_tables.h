/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of one pprof under construction, filled with the entries of an OTLP dictionary when
 * they are first used. A pprof consists of sections, which are put one after the other at its end.
 * Marks that carry a number of an earlier pprof are void, so that beginning the next costs nothing.
 *
 * Failure is sticky: after the first (BR_ENOMEM, BR_EFULL) nothing more is written. For
 * src/profile/pprof/write.c only.
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
    PPROF_SECTIONS,               /* so many are written, and the strings; what follows is not */
    PPROF_CACHE = PPROF_SECTIONS, /* fields of samples that will be needed again */
    PPROF_BUFFERS,
};

struct br_pprof_buffer {
    uint8_t *data;
    size_t len, cap;
};

struct br_pprof_mark {
    uint32_t round; /* valid if it is the tables' */
    uint32_t id;
};

/* Encoded fields of Sample in the cache. */
struct br_pprof_piece {
    uint32_t round;
    uint32_t at, len;
};

enum br_pprof_role { PPROF_LABEL, PPROF_SPAN_ID, PPROF_TRACE_ID };

struct br_pprof_label_fields {
    struct br_pprof_piece piece;
    uint8_t role;      /* enum br_pprof_role */
    int8_t wanted;     /* 0: not asked yet, -1: no, 1: yes */
    int8_t folded;     /* likewise: says of a location that it is folded */
    bool compared;     /* profiles of one pprof have it in common; set when one was read */
    bool makes_series; /* a text that is no id: Pyroscope makes it a label of the series */
    uint8_t id[16];    /* of roles that are ids: the bytes, zeros when it is none */
    struct br_pprof_mark
        text; /* its text outside of labels, written once for all that refer to it */
};

struct br_pprof_link_fields {
    struct br_pprof_piece span, trace;
    const uint8_t *span_id, *trace_id; /* NULL: none */
};

struct br_pprof_tables {
    struct br_dictionary_view view;
    struct br_arena arena;    /* of what lives as long as the item */
    struct br_intern strings; /* of the pprof, each once */
    struct br_budget strings_budget;
    const struct br_pprof_options *options;
    bool all_labels;
    uint32_t round;
    uint32_t n_ids[BR_TABLES];              /* ids given out in this pprof */
    struct br_pprof_mark *marks[BR_TABLES]; /* strings, functions, locations, mappings */
    struct br_pprof_piece *stacks;
    struct br_pprof_label_fields *labels;
    struct br_pprof_link_fields *links;
    struct br_pprof_buffer buffers[PPROF_BUFFERS];
    uint32_t last_trace;        /* link whose trace id was written last, and its string ... */
    uint32_t last_trace_string; /* ... 0: none */
    uint32_t id_keys[2];        /* strings "span_id" and "trace_id"; 0: not written yet */
    size_t work, max_work; /* bytes written and read for all pprofs of the item, and the most */
    int rc;
};

/* What br_pprof_tables_restore goes back to. */
struct br_pprof_state {
    size_t len[PPROF_SECTIONS];
    uint32_t strings_len;
};

/* Reads the item's dictionary into the tables. Returns 0, BR_ENOMEM or BR_ETOOBIG. */
int br_pprof_tables_load(struct br_pprof_tables *tables, const struct br_item *item,
                         const struct br_pprof_options *options);

/* Forgets the item. */
void br_pprof_tables_unload(struct br_pprof_tables *tables);
void br_pprof_tables_release(struct br_pprof_tables *tables);

/* Begins a pprof, which is empty but for the empty string. */
void br_pprof_tables_begin(struct br_pprof_tables *tables);

/* Ends the pprof: nothing is added until the next one begins. Gives back the index of strings where
 * it is large. */
void br_pprof_tables_finish(struct br_pprof_tables *tables);

/* Returns the bytes written so far. */
size_t br_pprof_tables_size(const struct br_pprof_tables *tables);

void br_pprof_tables_state(const struct br_pprof_tables *tables, struct br_pprof_state *ret);

/* Cuts off what was written since `state`. After that the pprof can only be ended. */
void br_pprof_tables_restore(struct br_pprof_tables *tables, const struct br_pprof_state *state);

/* Makes room for `len` bytes at the end of a buffer. Returns it, or NULL with `rc` set. */
uint8_t *br_pprof_tables_room_slow(struct br_pprof_tables *tables, unsigned buffer, size_t len);

static inline uint8_t *br_pprof_tables_room(struct br_pprof_tables *tables, unsigned buffer,
                                            size_t len)
{
    struct br_pprof_buffer *section = &tables->buffers[buffer];
    if (__builtin_expect(section->cap - section->len >= len && !tables->rc, 1))
        return section->data + section->len;
    return br_pprof_tables_room_slow(tables, buffer, len);
}

/* Says that what was written to the room ends at `end`. */
static inline void br_pprof_tables_wrote(struct br_pprof_tables *tables, unsigned buffer,
                                         const uint8_t *end)
{
    tables->buffers[buffer].len = (size_t)(end - tables->buffers[buffer].data);
}

/* Bytes of a length below BR_BUF_MAX. */
#define PPROF_LEN_MAX 5

/* Writes a varint field unless it is 0; there must be room. */
static inline uint8_t *br_pprof_put_number(uint8_t *out, uint32_t field, uint64_t value)
{
    if (!value)
        return out;
    *out++ = (uint8_t)BR_TAG(field, BR_WIRE_VARINT);
    return br_put_varint(out, value);
}

/* Begins a message of up to `most` bytes, mostly less than 128: br_put_length_before ends it.
 * Returns where its body goes, or NULL with `rc` set. */
static inline uint8_t *br_pprof_tables_open(struct br_pprof_tables *tables, unsigned buffer,
                                            uint32_t field, size_t most)
{
    uint8_t *o = br_pprof_tables_room(tables, buffer, most + 1 + PPROF_LEN_MAX + 1);
    if (!o)
        return NULL;
    *o = (uint8_t)BR_TAG(field, BR_WIRE_LEN);
    return o + 2;
}

/* Counts `len` bytes that are about to be read because something refers to them. False when that is
 * more than may be, which is BR_EFULL, and after any failure. */
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

/* Fails with BR_EFULL when a pprof of `size` bytes so far, which are counted when it is handed out,
 * is more than may be. */
static inline void br_pprof_tables_check(struct br_pprof_tables *tables, size_t size)
{
    if (__builtin_expect(size > tables->max_work - tables->work && !tables->rc, 0))
        tables->rc = BR_EFULL;
}

/* Reads attribute `index`, as br_pair_of, for one that refers to it; false after a failure, too.
 * Reading again what others refer to counts PPROF_AGAIN times. */
#define PPROF_AGAIN 8
bool br_pprof_tables_pair(struct br_pprof_tables *tables, uint32_t index, struct br_pair *ret,
                          uint32_t *ret_key, uint32_t *ret_unit);

/* Returns the string of the text that attribute `index` has. It is written when it is first wanted.
 */
uint32_t br_pprof_tables_attribute_text(struct br_pprof_tables *tables, uint32_t index,
                                        const struct br_any *text);

/* The string of a text, new where the pprof has not got it yet; and of entry `index` of the
 * dictionary's strings. Pyroscope takes a name to be the first string that is equal to it, and sees
 * no label whose key is another: so there is never a second. */
uint32_t br_pprof_tables_text(struct br_pprof_tables *tables, const void *data, size_t len);
uint32_t br_pprof_tables_string_slow(struct br_pprof_tables *tables, uint32_t index);

static inline uint32_t br_pprof_tables_string(struct br_pprof_tables *tables, uint64_t index)
{
    if (index >= tables->view.count[BR_TABLE_STRING])
        return 0;
    const struct br_pprof_mark *mark = &tables->marks[BR_TABLE_STRING][index];
    return mark->round == tables->round ? mark->id
                                        : br_pprof_tables_string_slow(tables, (uint32_t)index);
}

/* Returns the location_id field of a stack, which is in the cache. */
const struct br_pprof_piece *br_pprof_tables_stack(struct br_pprof_tables *tables, uint64_t index);

/* Returns the label fields of an attribute. Their length is 0 when it is no label or not wanted. */
const struct br_pprof_label_fields *br_pprof_tables_label(struct br_pprof_tables *tables,
                                                          uint32_t index);

/* Returns the labels of a link, or NULL when it is none. */
const struct br_pprof_link_fields *br_pprof_tables_link(struct br_pprof_tables *tables,
                                                        uint64_t index);

/* The next index of packed or single ones, of field `field`, in a message: for attribute_indices
 * and the like. Zeroed at first but for p and end, or, where the field is known to be there once
 * and packed, for `packed` and packed_end. Not to be called again once it was false. */
struct br_pprof_indices {
    const uint8_t *p, *end; /* the message */
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
