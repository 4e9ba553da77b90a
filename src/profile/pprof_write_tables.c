/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/pprof_write_tables.h"

#include "base/mem.h"
#include "pipeline/value_text.h"
#include "profile/pair.h"

#define SECTION_MAX BR_BUF_MAX
#define KEEP_MAX (1u << 20) /* bytes of a buffer that stay for the next item */
#define LEN_MAX 5           /* bytes of a length below BR_BUF_MAX */

/* --- Buffers --------------------------------------------------------------------------------- */

uint8_t *pprof_room_slow(struct pprof_tables *t, unsigned buffer, size_t len)
{
    struct pprof_buffer *b = &t->buffers[buffer];
    if (t->rc)
        return NULL;
    if (len > SECTION_MAX || b->len > SECTION_MAX - len) {
        t->rc = BR_EFULL;
        return NULL;
    }
    size_t want = b->len + len > 2 * b->cap ? b->len + len : 2 * b->cap;
    if (want < 4096)
        want = 4096;
    uint8_t *data = br_realloc(b->data, want);
    if (!data) {
        t->rc = BR_ENOMEM;
        return NULL;
    }
    b->data = data;
    b->cap = want;
    return data + b->len;
}

size_t pprof_tables_size(const struct pprof_tables *t)
{
    size_t size = 0;
    for (int i = 0; i < PPROF_SECTIONS; i++)
        size += t->buffers[i].len;
    return size;
}

void pprof_tables_state(const struct pprof_tables *t, struct pprof_state *ret)
{
    for (int i = 0; i < PPROF_SECTIONS; i++)
        ret->len[i] = t->buffers[i].len;
}

void pprof_tables_restore(struct pprof_tables *t, const struct pprof_state *state)
{
    for (int i = 0; i < PPROF_SECTIONS; i++)
        t->buffers[i].len = state->len[i];
}

/* --- Life ------------------------------------------------------------------------------------ */

static bool make_marks(struct pprof_tables *t)
{
    static const enum br_table marked[] = {BR_TABLE_STRING, BR_TABLE_FUNCTION, BR_TABLE_LOCATION,
                                           BR_TABLE_MAPPING};
    struct br_arena *a = &t->arena;
    for (size_t i = 0; i < BR_COUNT(marked); i++) {
        enum br_table which = marked[i];
        t->marks[which] = br_arena_calloc(a, t->view.n[which], sizeof *t->marks[which]);
        if (!t->marks[which])
            return false;
    }
    t->stacks = br_arena_calloc(a, t->view.n[BR_TABLE_STACK], sizeof *t->stacks);
    t->labels = br_arena_calloc(a, t->view.n[BR_TABLE_ATTRIBUTE], sizeof *t->labels);
    t->links = br_arena_calloc(a, t->view.n[BR_TABLE_LINK], sizeof *t->links);
    return t->stacks && t->labels && t->links;
}

/* Every entry takes two bytes at least, so that a small dictionary need not be counted before. */
static bool may_be_too_many(const struct br_item *item)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < item->n_parts; i++)
        if (item->parts[i].kind == BR_PART_DICTIONARY)
            bytes += item->parts[i].raw_len - item->parts[i].body_at;
    return bytes / 2 > BR_PPROF_ENTRIES_MAX;
}

static bool too_many(const struct br_item *item)
{
    size_t n = 0;
    for (uint32_t i = 0; i < item->n_parts; i++) {
        const struct br_part *part = &item->parts[i];
        const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
        struct br_field f;
        while (part->kind == BR_PART_DICTIONARY && p < end && (p = br_scan(p, end, &f)))
            n++;
    }
    return n > BR_PPROF_ENTRIES_MAX;
}

int pprof_tables_load(struct pprof_tables *t, const struct br_item *item,
                      const struct br_pprof_options *options)
{
    /* An entry costs 16 bytes of the index and 32 at the most of a mark. */
    br_arena_init(&t->arena, (size_t)BR_PPROF_ENTRIES_MAX * 64 + (1u << 20));
    t->options = options;
    t->round = 0;
    t->rc = 0;
    if (may_be_too_many(item) && too_many(item))
        return BR_ETOOBIG;
    int rc = br_dictionary_index(item, &t->arena, &t->view);
    if (!rc && !make_marks(t))
        rc = BR_ENOMEM;
    if (rc)
        pprof_tables_unload(t);
    return rc;
}

void pprof_tables_unload(struct pprof_tables *t)
{
    br_arena_release(&t->arena);
    for (int i = 0; i < PPROF_BUFFERS; i++) {
        struct pprof_buffer *b = &t->buffers[i];
        if (b->cap <= KEEP_MAX)
            continue;
        br_free(b->data);
        *b = (struct pprof_buffer){0};
    }
}

void pprof_tables_release(struct pprof_tables *t)
{
    br_arena_release(&t->arena);
    for (int i = 0; i < PPROF_BUFFERS; i++)
        br_free(t->buffers[i].data);
}

void pprof_tables_begin(struct pprof_tables *t)
{
    t->round++;
    for (int i = 0; i < PPROF_BUFFERS; i++)
        t->buffers[i].len = 0;
    memset(t->n_ids, 0, sizeof t->n_ids);
    memset(t->id_keys, 0, sizeof t->id_keys);
    t->last_trace_string = 0;
    (void)pprof_text(t, "", 0);
}

/* --- Strings --------------------------------------------------------------------------------- */

uint32_t pprof_text(struct pprof_tables *t, const void *data, size_t len)
{
    uint8_t *o = pprof_room(t, PPROF_STRINGS, len + 1 + LEN_MAX);
    if (!o)
        return 0;
    pprof_wrote(t, PPROF_STRINGS, br_put_len(o, 6, data, len));
    return t->n_ids[BR_TABLE_STRING]++;
}

uint32_t pprof_string_slow(struct pprof_tables *t, uint32_t i)
{
    const struct br_entry *e = &t->view.tables[BR_TABLE_STRING][i];
    uint32_t id = i == 0 || e->len == 0 ? 0 : pprof_text(t, e->data, e->len);
    t->marks[BR_TABLE_STRING][i] = (struct pprof_mark){t->round, id};
    return id;
}

/* --- Indices --------------------------------------------------------------------------------- */

bool pprof_index_next(struct pprof_indices *x, uint32_t field, uint32_t *ret)
{
    uint64_t value;
    for (;;) {
        if (x->packed < x->packed_end) {
            x->packed = br_scan_index(x->packed, x->packed_end, &value);
            if (!x->packed)
                return false;
            *ret = value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
            return true;
        }
        struct br_field f;
        if (!x->p || x->p >= x->end || !(x->p = br_scan(x->p, x->end, &f)))
            return false;
        if (f.number != field)
            continue;
        if (f.wire == BR_WIRE_VARINT) {
            *ret = f.value > UINT32_MAX ? UINT32_MAX : (uint32_t)f.value;
            return true;
        }
        if (f.wire == BR_WIRE_LEN) {
            x->packed = f.data;
            x->packed_end = f.data + f.value;
        }
    }
}

/* --- Functions, mappings, locations ---------------------------------------------------------- */

static uint8_t *put_number(uint8_t *o, uint32_t field, uint64_t value)
{
    if (!value)
        return o;
    *o++ = (uint8_t)BR_TAG(field, BR_WIRE_VARINT);
    return br_put_varint(o, value);
}

/* Starts a message of up to 127 bytes or so: br_put_length_before ends it. */
static uint8_t *open_message(struct pprof_tables *t, unsigned buffer, uint32_t field, size_t most)
{
    uint8_t *o = pprof_room(t, buffer, most + 1 + LEN_MAX + 1);
    if (!o)
        return NULL;
    *o = (uint8_t)BR_TAG(field, BR_WIRE_LEN);
    return o + 2;
}

static uint32_t write_function(struct pprof_tables *t, uint32_t i)
{
    const struct br_entry *e = &t->view.tables[BR_TABLE_FUNCTION][i];
    const uint8_t *p = e->data, *end = p + e->len;
    struct br_field f;
    uint64_t number[5] = {0};
    while (p < end && (p = br_scan(p, end, &f)))
        if (f.number < BR_COUNT(number) && f.wire == BR_WIRE_VARINT)
            number[f.number] = f.value;
    uint32_t name = pprof_string(t, number[1]), system_name = pprof_string(t, number[2]);
    uint32_t file = pprof_string(t, number[3]);
    uint8_t *body = open_message(t, PPROF_FUNCTIONS, 5, 5 * (1 + BR_VARINT_MAX));
    if (!body)
        return 0;
    uint32_t id = ++t->n_ids[BR_TABLE_FUNCTION];
    uint8_t *o = put_number(body, 1, id);
    o = put_number(o, 2, name);
    o = put_number(o, 3, system_name);
    o = put_number(o, 4, file);
    o = put_number(o, 5, number[4]);
    pprof_wrote(t, PPROF_FUNCTIONS, br_put_length_before(body, o));
    t->marks[BR_TABLE_FUNCTION][i] = (struct pprof_mark){t->round, id};
    return id;
}

static uint32_t function(struct pprof_tables *t, uint64_t i)
{
    if (i == 0 || i >= t->view.n[BR_TABLE_FUNCTION])
        return 0;
    const struct pprof_mark *m = &t->marks[BR_TABLE_FUNCTION][i];
    return m->round == t->round ? m->id : write_function(t, (uint32_t)i);
}

/* What a mapping's attributes say. */
struct mapping_notes {
    uint32_t build_id; /* string */
    bool gnu;
    bool has[4]; /* functions, filenames, line numbers, inline frames */
};

static void note_mapping(struct pprof_tables *t, uint32_t attribute, struct mapping_notes *n)
{
    static const char *const has[] = {"pprof.mapping.has_functions", "pprof.mapping.has_filenames",
                                      "pprof.mapping.has_line_numbers",
                                      "pprof.mapping.has_inline_frames"};
    static const char *const ids[] = {"process.executable.build_id.gnu",
                                      "process.executable.build_id.go",
                                      "process.executable.build_id.htlhash"};
    struct br_pair a;
    if (!br_pair_of(&t->view, attribute, &a, NULL, NULL))
        return;
    for (size_t i = 0; i < BR_COUNT(has); i++)
        if (a.value.type == BR_VALUE_BOOL && br_text_is(a.key, has[i]))
            n->has[i] = a.value.number != 0;
    for (size_t i = 0; i < BR_COUNT(ids) && a.value.type == BR_VALUE_STRING && a.value.len; i++) {
        if (!br_text_is(a.key, ids[i]) || (n->build_id && (n->gnu || i > 0)))
            continue;
        n->build_id = pprof_text(t, a.value.data, a.value.len);
        n->gnu = i == 0;
    }
}

static uint32_t write_mapping(struct pprof_tables *t, uint32_t i)
{
    const struct br_entry *e = &t->view.tables[BR_TABLE_MAPPING][i];
    const uint8_t *p = e->data, *end = p + e->len;
    struct br_field f;
    uint64_t number[5] = {0};
    struct mapping_notes notes = {0};
    struct pprof_indices x = {.p = p, .end = end};
    uint32_t attribute;
    while (p < end && (p = br_scan(p, end, &f)))
        if (f.number < BR_COUNT(number) && f.wire == BR_WIRE_VARINT)
            number[f.number] = f.value;
    while (pprof_index_next(&x, 5, &attribute))
        note_mapping(t, attribute, &notes);
    uint32_t file = pprof_string(t, number[4]);
    uint8_t *body = open_message(t, PPROF_MAPPINGS, 3, 10 * (1 + BR_VARINT_MAX));
    if (!body)
        return 0;
    uint32_t id = ++t->n_ids[BR_TABLE_MAPPING];
    uint8_t *o = put_number(body, 1, id);
    for (uint32_t k = 1; k <= 3; k++)
        o = put_number(o, 1 + k, number[k]);
    o = put_number(o, 5, file);
    o = put_number(o, 6, notes.build_id);
    for (uint32_t k = 0; k < BR_COUNT(notes.has); k++)
        o = put_number(o, 7 + k, notes.has[k]);
    pprof_wrote(t, PPROF_MAPPINGS, br_put_length_before(body, o));
    t->marks[BR_TABLE_MAPPING][i] = (struct pprof_mark){t->round, id};
    return id;
}

static uint32_t mapping(struct pprof_tables *t, uint64_t i)
{
    if (i == 0 || i >= t->view.n[BR_TABLE_MAPPING])
        return 0;
    const struct pprof_mark *m = &t->marks[BR_TABLE_MAPPING][i];
    return m->round == t->round ? m->id : write_mapping(t, (uint32_t)i);
}

/* A Line; one without a function is none in pprof. */
static uint8_t *put_line(struct pprof_tables *t, uint8_t *o, const uint8_t *p, const uint8_t *end)
{
    struct br_field f;
    uint64_t number[4] = {0};
    while (p < end && (p = br_scan(p, end, &f)))
        if (f.number < BR_COUNT(number) && f.wire == BR_WIRE_VARINT)
            number[f.number] = f.value;
    uint32_t id = function(t, number[1]);
    if (!id)
        return o;
    *o = (uint8_t)BR_TAG(4, BR_WIRE_LEN);
    uint8_t *body = o + 2;
    o = put_number(body, 1, id);
    o = put_number(o, 2, number[2]);
    o = put_number(o, 3, number[3]);
    return br_put_length_before(body, o);
}

static bool is_folded(struct pprof_tables *t, const struct br_entry *e)
{
    struct pprof_indices x = {.p = e->data, .end = e->data + e->len};
    struct br_pair a;
    uint32_t i;
    while (pprof_index_next(&x, 4, &i))
        if (br_pair_of(&t->view, i, &a, NULL, NULL) && a.value.type == BR_VALUE_BOOL &&
            a.value.number && br_text_is(a.key, "pprof.location.is_folded"))
            return true;
    return false;
}

static uint32_t write_location(struct pprof_tables *t, uint32_t i)
{
    const struct br_entry *e = &t->view.tables[BR_TABLE_LOCATION][i];
    const uint8_t *p = e->data, *end = p + e->len;
    struct br_field f;
    uint64_t in_mapping = 0, address = 0;
    bool attributes = false;
    while (p < end && (p = br_scan(p, end, &f))) {
        if (f.number == 1 && f.wire == BR_WIRE_VARINT)
            in_mapping = f.value;
        else if (f.number == 2 && f.wire == BR_WIRE_VARINT)
            address = f.value;
        attributes = attributes || f.number == 4;
    }
    uint32_t mapping_id = mapping(t, in_mapping);
    /* A line with a function takes four bytes or more, and four more when its id is longer here. */
    uint8_t *body = open_message(t, PPROF_LOCATIONS, 4, 2 * (size_t)e->len + 64);
    if (!body)
        return 0;
    uint32_t id = ++t->n_ids[BR_TABLE_LOCATION];
    uint8_t *o = put_number(body, 1, id);
    o = put_number(o, 2, mapping_id);
    o = put_number(o, 3, address);
    for (p = e->data; p < end && (p = br_scan(p, end, &f));)
        if (f.number == 3 && f.wire == BR_WIRE_LEN)
            o = put_line(t, o, f.data, f.data + f.value);
    if (attributes && is_folded(t, e))
        o = put_number(o, 5, 1);
    pprof_wrote(t, PPROF_LOCATIONS, br_put_length_before(body, o));
    t->marks[BR_TABLE_LOCATION][i] = (struct pprof_mark){t->round, id};
    return id;
}

static uint32_t location(struct pprof_tables *t, uint32_t i)
{
    if (i == 0 || i >= t->view.n[BR_TABLE_LOCATION])
        return 0;
    const struct pprof_mark *m = &t->marks[BR_TABLE_LOCATION][i];
    return m->round == t->round ? m->id : write_location(t, i);
}

/* --- Stacks ---------------------------------------------------------------------------------- */

static const struct pprof_piece no_piece;

const struct pprof_piece *pprof_stack(struct pprof_tables *t, uint32_t i)
{
    if (i == 0 || i >= t->view.n[BR_TABLE_STACK])
        return &no_piece;
    struct pprof_piece *piece = &t->stacks[i];
    if (piece->round == t->round)
        return piece;
    const struct br_entry *e = &t->view.tables[BR_TABLE_STACK][i];
    struct pprof_indices x = {.p = e->data, .end = e->data + e->len};
    uint32_t index;
    /* An index takes a byte or more, an id five at the most. */
    uint8_t *body = open_message(t, PPROF_CACHE, 1, 5 * (size_t)e->len);
    if (!body)
        return &no_piece;
    uint8_t *o = body;
    while (pprof_index_next(&x, 1, &index)) {
        uint32_t id = location(t, index);
        if (id)
            o = br_put_index(o, id);
    }
    uint32_t at = (uint32_t)t->buffers[PPROF_CACHE].len;
    *piece = (struct pprof_piece){t->round, at, 0};
    if (o == body || t->rc)
        return piece;
    o = br_put_length_before(body, o);
    piece->len = (uint32_t)(o - (body - 2));
    pprof_wrote(t, PPROF_CACHE, o);
    return piece;
}

/* --- Labels ---------------------------------------------------------------------------------- */

static void put_label(struct pprof_tables *t, uint32_t key, uint32_t text, int64_t number,
                      uint32_t unit)
{
    uint8_t *body = open_message(t, PPROF_CACHE, 3, 4 * (1 + BR_VARINT_MAX));
    if (!body)
        return;
    uint8_t *o = put_number(body, 1, key);
    o = put_number(o, 2, text);
    o = put_number(o, 3, (uint64_t)number);
    o = put_number(o, 4, unit);
    pprof_wrote(t, PPROF_CACHE, br_put_length_before(body, o));
}

static void put_value(struct pprof_tables *t, uint32_t key, const struct br_any *v, uint32_t unit)
{
    struct br_str text = {0};
    if (v->type == BR_VALUE_INT) {
        put_label(t, key, 0, (int64_t)v->number, pprof_string(t, unit));
        return;
    }
    if (v->type == BR_VALUE_STRING) {
        put_label(t, key, v->len ? pprof_text(t, v->data, v->len) : 0, 0, 0);
        return;
    }
    br_value_text(&text, v, &t->arena);
    if (text.failed)
        t->rc = t->rc ? t->rc : BR_ENOMEM;
    else if (text.len)
        put_label(t, key, pprof_text(t, text.data, text.len), 0, 0);
    br_str_release(&text);
}

/* A list of texts or integers is several labels of one name, as pprof has it. */
static bool put_list(struct pprof_tables *t, uint32_t key, const struct br_any *list, uint32_t unit)
{
    const uint8_t *p = list->data, *end = p + list->len;
    struct br_any each;
    while ((p = br_list_next(p, end, &each)))
        if (each.type != BR_VALUE_STRING && each.type != BR_VALUE_INT)
            return false;
    for (p = list->data; (p = br_list_next(p, end, &each));)
        put_value(t, key, &each, unit);
    return true;
}

/* Ids are padded with zeros on the left; what is no hex is no id. */
static void read_id(struct pprof_label *label, const struct br_any *v, size_t size)
{
    char text[32];
    memset(label->id, 0, sizeof label->id);
    if (v->type != BR_VALUE_STRING || v->len == 0 || v->len > 2 * size)
        return;
    memset(text, '0', sizeof text);
    memcpy(text + 2 * size - v->len, v->data, v->len);
    if (br_hex_decode(text, 2 * size, label->id, size) < 0)
        memset(label->id, 0, sizeof label->id);
}

static void find_role(struct pprof_label *label, const struct br_pair *a)
{
    if (br_text_is(a->key, "span_id") || br_text_is(a->key, "profile_id")) {
        label->role = PPROF_SPAN_ID;
        read_id(label, &a->value, 8);
    } else if (br_text_is(a->key, "trace_id")) {
        label->role = PPROF_TRACE_ID;
        read_id(label, &a->value, 16);
    }
}

static bool wanted(struct pprof_tables *t, struct pprof_label *label, struct br_entry key)
{
    const struct br_pprof_options *o = t->options;
    if (t->all_labels || !o->keep_label)
        return true;
    if (!label->wanted)
        label->wanted = o->keep_label(o->arg, (const char *)key.data, key.len) ? 1 : -1;
    return label->wanted > 0;
}

static const struct pprof_label no_label;

const struct pprof_label *pprof_label(struct pprof_tables *t, uint32_t i)
{
    if (i == 0 || i >= t->view.n[BR_TABLE_ATTRIBUTE])
        return &no_label;
    struct pprof_label *label = &t->labels[i];
    if (label->piece.round == t->round)
        return label;
    struct br_pair a;
    uint32_t key_index, unit;
    size_t at = t->buffers[PPROF_CACHE].len;
    label->piece = (struct pprof_piece){t->round, (uint32_t)at, 0};
    if (!br_pair_of(&t->view, i, &a, &key_index, &unit) || a.value.type == BR_VALUE_EMPTY ||
        !wanted(t, label, a.key))
        return label;
    find_role(label, &a);
    uint32_t key = pprof_string(t, key_index);
    if (a.value.type != BR_VALUE_LIST || !put_list(t, key, &a.value, unit))
        put_value(t, key, &a.value, unit);
    label->piece.len = (uint32_t)(t->buffers[PPROF_CACHE].len - at);
    return label;
}

/* --- Links ----------------------------------------------------------------------------------- */

static bool is_zero(const uint8_t *p, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (p[i])
            return false;
    return true;
}

static uint32_t hex_text(struct pprof_tables *t, const uint8_t *id, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    char text[32];
    for (size_t i = 0; i < len; i++) {
        text[2 * i] = digits[id[i] >> 4];
        text[2 * i + 1] = digits[id[i] & 15];
    }
    return pprof_text(t, text, 2 * len);
}

static void put_id(struct pprof_tables *t, struct pprof_piece *piece, unsigned key, uint32_t text)
{
    static const char *const keys[] = {"span_id", "trace_id"};
    size_t at = t->buffers[PPROF_CACHE].len;
    if (!t->id_keys[key])
        t->id_keys[key] = pprof_text(t, keys[key], strlen(keys[key]));
    put_label(t, t->id_keys[key], text, 0, 0);
    *piece =
        (struct pprof_piece){t->round, (uint32_t)at, (uint32_t)(t->buffers[PPROF_CACHE].len - at)};
}

/* Neighbours in the link table are mostly of one trace. */
static uint32_t trace_text(struct pprof_tables *t, uint32_t i, const uint8_t *trace_id)
{
    const struct pprof_link *last = &t->links[t->last_trace];
    if (!t->last_trace_string || memcmp(last->trace_id, trace_id, 16) != 0) {
        t->last_trace_string = hex_text(t, trace_id, 16);
        t->last_trace = i;
    }
    return t->last_trace_string;
}

const struct pprof_link *pprof_link(struct pprof_tables *t, uint32_t i)
{
    if (i == 0 || i >= t->view.n[BR_TABLE_LINK])
        return NULL;
    struct pprof_link *link = &t->links[i];
    if (link->span.round == t->round)
        return link;
    const struct br_entry *e = &t->view.tables[BR_TABLE_LINK][i];
    const uint8_t *p = e->data, *end = p + e->len;
    struct br_field f;
    link->span_id = link->trace_id = NULL;
    link->span = link->trace = (struct pprof_piece){t->round, 0, 0};
    while (p < end && (p = br_scan(p, end, &f))) {
        if (f.number == 1 && f.wire == BR_WIRE_LEN)
            link->trace_id = f.value == 16 && !is_zero(f.data, 16) ? f.data : NULL;
        else if (f.number == 2 && f.wire == BR_WIRE_LEN)
            link->span_id = f.value == 8 && !is_zero(f.data, 8) ? f.data : NULL;
    }
    if (link->span_id)
        put_id(t, &link->span, 0, hex_text(t, link->span_id, 8));
    if (link->trace_id)
        put_id(t, &link->trace, 1, trace_text(t, i, link->trace_id));
    return link;
}
