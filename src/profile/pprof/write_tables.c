/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/pprof/write_tables.h"

#include <assert.h>

#include "base/mem.h"

#define SECTION_MAX BR_BUF_MAX
#define DOUBLED_MAX (8u << 20) /* bytes of a buffer that still doubles */
#define ITEM_GROWTH 4 /* the index of a dictionary takes so many times the item, and a MiB */
#define STRINGS_GROWTH 8 /* the strings of a pprof likewise, with what finds them */
#define KEEP_MAX (1u << 20) /* bytes of a buffer that stay for the next item */

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
    size_t more = b->cap < DOUBLED_MAX ? b->cap : b->cap / 2;
    size_t want = b->len + len > b->cap + more ? b->len + len : b->cap + more;
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
    size_t size = t->strings.len;
    for (int i = 0; i < PPROF_SECTIONS; i++)
        size += t->buffers[i].len;
    return size;
}

void pprof_tables_state(const struct pprof_tables *t, struct pprof_state *ret)
{
    for (int i = 0; i < PPROF_SECTIONS; i++)
        ret->len[i] = t->buffers[i].len;
    ret->strings_len = t->strings.len;
}

void pprof_tables_restore(struct pprof_tables *t, const struct pprof_state *state)
{
    for (int i = 0; i < PPROF_SECTIONS; i++)
        t->buffers[i].len = state->len[i];
    t->strings.len = state->strings_len;
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
    br_arena_init(&t->arena, ITEM_GROWTH * item->size + (1u << 20));
    t->options = options;
    t->work = 0;
    t->max_work = options->max_work ? options->max_work : SIZE_MAX;
    t->round = 0;
    t->rc = 0;
    if (may_be_too_many(item) && too_many(item))
        return BR_ETOOBIG;
    int rc = br_dictionary_index(item, &t->arena, &t->view);
    if (!rc && !make_marks(t))
        rc = BR_ENOMEM;
    t->strings_budget.max = STRINGS_GROWTH * item->size + (1u << 20);
    if (rc && t->arena.full)
        rc = BR_ETOOBIG;
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
    if (t->strings_budget.used > KEEP_MAX)
        br_intern_release(&t->strings, &t->strings_budget);
}

void pprof_tables_release(struct pprof_tables *t)
{
    br_arena_release(&t->arena);
    for (int i = 0; i < PPROF_BUFFERS; i++)
        br_free(t->buffers[i].data);
    br_intern_release(&t->strings, &t->strings_budget);
}

void pprof_tables_finish(struct pprof_tables *t)
{
    if (t->strings_budget.used > KEEP_MAX)
        br_intern_strip(&t->strings, &t->strings_budget);
}

/* What it costs is in proportion to what the last pprof had. */
static void begin_strings(struct pprof_tables *t)
{
    struct br_intern *strings = &t->strings;
    if (!strings->n_slots) {
        br_intern_release(strings, &t->strings_budget);
        t->rc = t->rc ? t->rc : br_intern_init(strings, &t->strings_budget, BR_PPROF_STRING);
    } else if (strings->n > strings->n_slots / 8) {
        br_intern_clear(strings);
    } else {
        br_intern_truncate(strings, 1, BR_INTERN_HEAD);
    }
}

void pprof_tables_begin(struct pprof_tables *t)
{
    t->round++;
    for (int i = 0; i < PPROF_BUFFERS; i++)
        t->buffers[i].len = 0;
    memset(t->n_ids, 0, sizeof t->n_ids);
    memset(t->id_keys, 0, sizeof t->id_keys);
    t->last_trace_string = 0;
    begin_strings(t);
}

/* --- Strings --------------------------------------------------------------------------------- */

uint32_t pprof_text(struct pprof_tables *t, const void *data, size_t len)
{
    uint32_t hash, id;
    if (t->rc)
        return 0;
    id = br_intern_find(&t->strings, data, len, BR_INTERN_NONE, &hash);
    if (id != BR_INTERN_NONE)
        return pprof_work(t, len) ? id : 0;
    t->rc = br_intern_reserve(&t->strings, &t->strings_budget, len);
    if (t->rc)
        return 0;
    memcpy(br_intern_body(&t->strings), data, len);
    return br_intern_append(&t->strings, len, hash);
}

uint32_t pprof_string_slow(struct pprof_tables *t, uint32_t i)
{
    const struct br_entry *e = &t->view.tables[BR_TABLE_STRING][i];
    uint32_t id = i == 0 || e->len == 0 ? 0 : pprof_text(t, e->data, e->len);
    t->marks[BR_TABLE_STRING][i] = (struct pprof_mark){t->round, id};
    return id;
}

/* --- Attributes ------------------------------------------------------------------------------ */

bool pprof_pair(struct pprof_tables *t, uint32_t i, struct br_pair *ret, uint32_t *ret_key,
                uint32_t *ret_unit)
{
    return i < t->view.n[BR_TABLE_ATTRIBUTE] &&
           pprof_work(t, PPROF_AGAIN * (size_t)t->view.tables[BR_TABLE_ATTRIBUTE][i].len) &&
           br_pair_of(&t->view, i, ret, ret_key, ret_unit);
}

uint32_t pprof_attribute_text(struct pprof_tables *t, uint32_t i, const struct br_any *text)
{
    struct pprof_mark *mark = &t->labels[i].text;
    if (mark->round != t->round)
        *mark = (struct pprof_mark){t->round, pprof_text(t, text->data, text->len)};
    return mark->id;
}

/* --- Indices --------------------------------------------------------------------------------- */

bool pprof_index_field(struct pprof_indices *x, uint32_t field, uint32_t *ret)
{
    struct br_field f;
    while (x->p && x->p < x->end && (x->p = br_scan(x->p, x->end, &f))) {
        if (f.number != field)
            continue;
        if (f.wire == BR_WIRE_VARINT) {
            *ret = f.value > UINT32_MAX ? UINT32_MAX : (uint32_t)f.value;
            return true;
        }
        if (f.wire == BR_WIRE_LEN && f.value > 0) {
            x->packed = f.data;
            x->packed_end = f.data + f.value;
            return pprof_index_next(x, field, ret);
        }
    }
    return false;
}

/* --- Functions, mappings, locations ---------------------------------------------------------- */

static uint32_t write_function(struct pprof_tables *t, uint32_t i)
{
    const struct br_entry *e = &t->view.tables[BR_TABLE_FUNCTION][i];
    const uint8_t *p = e->data, *end = p + e->len;
    struct br_field f;
    uint64_t number[BR_FUNCTION_START_LINE + 1] = {0};
    if (!pprof_work(t, e->len))
        return 0;
    while (p < end && (p = br_scan(p, end, &f)))
        if (f.number < BR_COUNT(number) && f.wire == BR_WIRE_VARINT)
            number[f.number] = f.value;
    uint32_t name = pprof_string(t, number[BR_FUNCTION_NAME]),
             system_name = pprof_string(t, number[BR_FUNCTION_SYSTEM_NAME]);
    uint32_t file = pprof_string(t, number[BR_FUNCTION_FILENAME]);
    uint8_t *body = pprof_open(t, PPROF_FUNCTIONS, BR_PPROF_FUNCTION, 5 * (1 + BR_VARINT_MAX));
    if (!body)
        return 0;
    uint32_t id = ++t->n_ids[BR_TABLE_FUNCTION];
    uint8_t *o = pprof_put_number(body, BR_PPROF_FUNCTION_ID, id);
    o = pprof_put_number(o, BR_PPROF_FUNCTION_NAME, name);
    o = pprof_put_number(o, BR_PPROF_FUNCTION_SYSTEM_NAME, system_name);
    o = pprof_put_number(o, BR_PPROF_FUNCTION_FILENAME, file);
    o = pprof_put_number(o, BR_PPROF_FUNCTION_START_LINE, number[BR_FUNCTION_START_LINE]);
    pprof_wrote(t, PPROF_FUNCTIONS, br_put_length_before(body, o));
    t->marks[BR_TABLE_FUNCTION][i] = (struct pprof_mark){t->round, id};
    return id;
}

static uint32_t function(struct pprof_tables *t, uint64_t i)
{
    if (i >= t->view.n[BR_TABLE_FUNCTION])
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
    if (!pprof_pair(t, attribute, &a, NULL, NULL))
        return;
    for (size_t i = 0; i < BR_COUNT(has); i++)
        if (a.value.type == BR_VALUE_BOOL && br_text_is(a.key, has[i]))
            n->has[i] = a.value.number != 0;
    for (size_t i = 0; i < BR_COUNT(ids) && a.value.type == BR_VALUE_STRING && a.value.len; i++) {
        if (!br_text_is(a.key, ids[i]) || (n->build_id && (n->gnu || i > 0)))
            continue;
        n->build_id = pprof_attribute_text(t, attribute, &a.value);
        n->gnu = i == 0;
    }
}

static uint32_t write_mapping(struct pprof_tables *t, uint32_t i)
{
    const struct br_entry *e = &t->view.tables[BR_TABLE_MAPPING][i];
    const uint8_t *p = e->data, *end = p + e->len;
    struct br_field f;
    uint64_t number[BR_MAPPING_FILENAME + 1] = {0};
    struct mapping_notes notes = {0};
    struct pprof_indices x = {.p = p, .end = end};
    uint32_t attribute;
    if (!pprof_work(t, e->len))
        return 0;
    while (p < end && (p = br_scan(p, end, &f)))
        if (f.number < BR_COUNT(number) && f.wire == BR_WIRE_VARINT)
            number[f.number] = f.value;
    while (pprof_index_next(&x, BR_MAPPING_ATTRIBUTES, &attribute))
        note_mapping(t, attribute, &notes);
    uint32_t file = pprof_string(t, number[BR_MAPPING_FILENAME]);
    uint8_t *body = pprof_open(t, PPROF_MAPPINGS, BR_PPROF_MAPPING, 10 * (1 + BR_VARINT_MAX));
    if (!body)
        return 0;
    uint32_t id = ++t->n_ids[BR_TABLE_MAPPING];
    uint8_t *o = pprof_put_number(body, BR_PPROF_MAPPING_ID, id);
    o = pprof_put_number(o, BR_PPROF_MAPPING_START, number[BR_MAPPING_START]);
    o = pprof_put_number(o, BR_PPROF_MAPPING_LIMIT, number[BR_MAPPING_LIMIT]);
    o = pprof_put_number(o, BR_PPROF_MAPPING_OFFSET, number[BR_MAPPING_FILE_OFFSET]);
    o = pprof_put_number(o, BR_PPROF_MAPPING_FILENAME, file);
    o = pprof_put_number(o, BR_PPROF_MAPPING_BUILD_ID, notes.build_id);
    for (uint32_t k = 0; k < BR_COUNT(notes.has); k++)
        o = pprof_put_number(o, BR_PPROF_MAPPING_HAS_FUNCTIONS + k, notes.has[k]);
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

/* A Line. One whose function has no name, as in stacks of Go's runtime, is the empty entry's: it keeps its
 * value, which would be its caller's otherwise. */
static uint8_t *put_line(struct pprof_tables *t, uint8_t *o, const uint8_t *p, const uint8_t *end)
{
    struct br_field f;
    uint64_t number[BR_LINE_COLUMN + 1] = {0};
    while (p < end && (p = br_scan(p, end, &f)))
        if (f.number < BR_COUNT(number) && f.wire == BR_WIRE_VARINT)
            number[f.number] = f.value;
    uint32_t id = function(t, number[BR_LINE_FUNCTION]);
    if (!id)
        return o;
    *o = (uint8_t)BR_TAG(BR_PPROF_LOCATION_LINES, BR_WIRE_LEN);
    uint8_t *body = o + 2;
    o = pprof_put_number(body, BR_PPROF_LINE_FUNCTION, id);
    o = pprof_put_number(o, BR_PPROF_LINE_LINE, number[BR_LINE_LINE]);
    o = pprof_put_number(o, BR_PPROF_LINE_COLUMN, number[BR_LINE_COLUMN]);
    return br_put_length_before(body, o);
}

/* True when attribute `i` says so; each is read once. */
static bool says_folded(struct pprof_tables *t, uint32_t i)
{
    struct br_pair a;
    if (i >= t->view.n[BR_TABLE_ATTRIBUTE])
        return false;
    struct pprof_label *label = &t->labels[i];
    if (!label->folded) {
        bool folded = pprof_pair(t, i, &a, NULL, NULL) && a.value.type == BR_VALUE_BOOL &&
                      a.value.number && br_text_is(a.key, "pprof.location.is_folded");
        label->folded = folded ? 1 : -1;
    }
    return label->folded > 0;
}

static bool is_folded(struct pprof_tables *t, const struct br_entry *e)
{
    struct pprof_indices x = {.p = e->data, .end = e->data + e->len};
    uint32_t i;
    while (pprof_index_next(&x, BR_LOCATION_ATTRIBUTES, &i))
        if (says_folded(t, i))
            return true;
    return false;
}

/* Of locations, a mark holds the id as it is written: a varint of at most three bytes, and its
 * length in the fourth. */
static uint32_t encoded(uint32_t id)
{
    uint8_t bytes[BR_VARINT_MAX] = {0};
    uint32_t len = (uint32_t)(br_put_varint(bytes, id) - bytes);
    static_assert(BR_PPROF_ENTRIES_MAX <= 1u << 21, "an id takes three bytes at the most");
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | len << 24;
}

static inline uint8_t *put_encoded(uint8_t *o, uint32_t code)
{
    memcpy(o, &code, sizeof code);
    return o + (code >> 24);
}

/* Returns its id as `encoded`, or 0. */
static uint32_t write_location(struct pprof_tables *t, uint32_t i)
{
    const struct br_entry *e = &t->view.tables[BR_TABLE_LOCATION][i];
    const uint8_t *p = e->data, *end = p + e->len;
    struct br_field f;
    uint64_t in_mapping = 0, address = 0;
    bool attributes = false;
    if (!pprof_work(t, e->len))
        return 0;
    while (p < end && (p = br_scan(p, end, &f))) {
        if (f.number == BR_LOCATION_MAPPING && f.wire == BR_WIRE_VARINT)
            in_mapping = f.value;
        else if (f.number == BR_LOCATION_ADDRESS && f.wire == BR_WIRE_VARINT)
            address = f.value;
        attributes = attributes || f.number == BR_LOCATION_ATTRIBUTES;
    }
    uint32_t mapping_id = mapping(t, in_mapping);
    /* A line takes two bytes or more, and six with an id that it did not say. */
    uint8_t *body = pprof_open(t, PPROF_LOCATIONS, BR_PPROF_LOCATION, 3 * (size_t)e->len + 64);
    if (!body)
        return 0;
    uint32_t id = ++t->n_ids[BR_TABLE_LOCATION];
    uint8_t *o = pprof_put_number(body, BR_PPROF_LOCATION_ID, id);
    o = pprof_put_number(o, BR_PPROF_LOCATION_MAPPING, mapping_id);
    o = pprof_put_number(o, BR_PPROF_LOCATION_ADDRESS, address);
    for (p = e->data; p < end && (p = br_scan(p, end, &f));)
        if (f.number == BR_LOCATION_LINES && f.wire == BR_WIRE_LEN)
            o = put_line(t, o, f.data, f.data + f.value);
    if (attributes && is_folded(t, e))
        o = pprof_put_number(o, BR_PPROF_LOCATION_IS_FOLDED, 1);
    pprof_wrote(t, PPROF_LOCATIONS, br_put_length_before(body, o));
    t->marks[BR_TABLE_LOCATION][i] = (struct pprof_mark){t->round, encoded(id)};
    return t->marks[BR_TABLE_LOCATION][i].id;
}

static uint8_t *put_location(struct pprof_tables *t, uint8_t *o, uint64_t i)
{
    if (i == 0 || i >= t->view.n[BR_TABLE_LOCATION])
        return o;
    const struct pprof_mark *m = &t->marks[BR_TABLE_LOCATION][i];
    return put_encoded(o, m->round == t->round ? m->id : write_location(t, (uint32_t)i));
}

/* What the tables know of locations, out of reach of what is written to the buffers. */
struct known {
    struct pprof_tables *t;
    const struct pprof_mark *marks;
    uint32_t n, round;
};

static inline uint8_t *put_known(struct known k, uint8_t *o, uint64_t i)
{
    if (__builtin_expect(i < k.n && k.marks[i].round == k.round, 1))
        return put_encoded(o, k.marks[i].id);
    return put_location(k.t, o, i);
}

static inline uint64_t two_bytes(uint64_t pair)
{
    return (pair & 0x7f) | (pair >> 1 & 0x3f80);
}

/* Half of all time is spent here. Most indices of a large table have two bytes, which are read four
 * at a time. */
static uint8_t *put_locations(struct pprof_tables *t, uint8_t *o, const uint8_t *p,
                              const uint8_t *end)
{
    const uint64_t tops = 0x8080808080808080, low_tops = 0x0080008000800080;
    struct known k = {t, t->marks[BR_TABLE_LOCATION], t->view.n[BR_TABLE_LOCATION], t->round};
    uint64_t i, four;
    while (p < end && (p = br_scan_index(p, end, &i))) {
        o = put_known(k, o, i);
        for (; end - p >= (ptrdiff_t)sizeof four; p += sizeof four) {
            memcpy(&four, p, sizeof four);
            if ((four & tops) != low_tops)
                break;
            o = put_known(k, o, two_bytes(four));
            o = put_known(k, o, two_bytes(four >> 16));
            o = put_known(k, o, two_bytes(four >> 32));
            o = put_known(k, o, two_bytes(four >> 48));
        }
    }
    return o;
}

/* --- Stacks ---------------------------------------------------------------------------------- */

static const struct pprof_piece no_piece;

const struct pprof_piece *pprof_stack(struct pprof_tables *t, uint64_t i)
{
    if (i == 0 || i >= t->view.n[BR_TABLE_STACK])
        return &no_piece;
    struct pprof_piece *piece = &t->stacks[i];
    if (piece->round == t->round)
        return piece;
    const struct br_entry *e = &t->view.tables[BR_TABLE_STACK][i];
    const uint8_t *p = e->data, *end = p + e->len;
    struct br_field f;
    if (!pprof_work(t, e->len))
        return &no_piece;
    /* An index takes a byte or more, an id three at the most and is written as four. */
    uint8_t *body = pprof_open(t, PPROF_CACHE, BR_PPROF_SAMPLE_LOCATIONS, 3 * (size_t)e->len + 1);
    if (!body)
        return &no_piece;
    uint8_t *o = body;
    while (p < end && (p = br_scan(p, end, &f))) {
        if (f.number == BR_STACK_LOCATIONS && f.wire == BR_WIRE_LEN)
            o = put_locations(t, o, f.data, f.data + f.value);
        else if (f.number == BR_STACK_LOCATIONS && f.wire == BR_WIRE_VARINT)
            o = put_location(t, o, f.value);
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
