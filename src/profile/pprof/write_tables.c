/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/pprof/write_internal.h"

#include <assert.h>

#include "base/mem.h"

#define SECTION_MAX BR_BUF_MAX
/* Buffers of less than DOUBLED_MAX bytes double when they grow. Larger buffers grow by half. */
#define DOUBLED_MAX (8u << 20)
/* Memory limit of the dictionary's index: ITEM_GROWTH times the size of the item, plus 1 MiB. */
#define ITEM_GROWTH 4
/* Memory limit of a pprof's strings and their hash table: STRINGS_GROWTH times the size of the
 * item, plus 1 MiB. */
#define STRINGS_GROWTH 8
#define KEEP_MAX (1u << 20) /* largest buffer, in bytes, that is kept for the next item */

/* --- Buffers --------------------------------------------------------------------------------- */

uint8_t *br_pprof_tables_room_slow(struct br_pprof_tables *tables, unsigned buffer, size_t len)
{
    struct br_pprof_buffer *section = &tables->buffers[buffer];
    if (tables->rc)
        return NULL;
    if (len > SECTION_MAX || section->len > SECTION_MAX - len) {
        tables->rc = BR_EFULL;
        return NULL;
    }
    size_t more = section->cap < DOUBLED_MAX ? section->cap : section->cap / 2;
    size_t want =
        section->len + len > section->cap + more ? section->len + len : section->cap + more;
    if (want < 4096)
        want = 4096;
    uint8_t *data = br_realloc(section->data, want);
    if (!data) {
        tables->rc = BR_ENOMEM;
        return NULL;
    }
    section->data = data;
    section->cap = want;
    return data + section->len;
}

size_t br_pprof_tables_size(const struct br_pprof_tables *tables)
{
    size_t size = tables->strings.len;
    for (int i = 0; i < PPROF_SECTIONS; i++)
        size += tables->buffers[i].len;
    return size;
}

void br_pprof_tables_state(const struct br_pprof_tables *tables, struct br_pprof_state *ret)
{
    for (int i = 0; i < PPROF_SECTIONS; i++)
        ret->len[i] = tables->buffers[i].len;
    ret->strings_len = tables->strings.len;
}

void br_pprof_tables_restore(struct br_pprof_tables *tables, const struct br_pprof_state *state)
{
    for (int i = 0; i < PPROF_SECTIONS; i++)
        tables->buffers[i].len = state->len[i];
    tables->strings.len = state->strings_len;
}

/* --- Life cycle ------------------------------------------------------------------------------- */

static bool pprof_write_tables_make_marks(struct br_pprof_tables *tables)
{
    static const enum br_table marked[] = {BR_TABLE_STRING, BR_TABLE_FUNCTION, BR_TABLE_LOCATION,
                                           BR_TABLE_MAPPING};
    struct br_arena *arena = &tables->arena;
    for (size_t i = 0; i < BR_COUNT(marked); i++) {
        enum br_table which = marked[i];
        tables->marks[which] =
            br_arena_calloc(arena, tables->view.count[which], sizeof *tables->marks[which]);
        if (!tables->marks[which])
            return false;
    }
    tables->stacks =
        br_arena_calloc(arena, tables->view.count[BR_TABLE_STACK], sizeof *tables->stacks);
    tables->labels =
        br_arena_calloc(arena, tables->view.count[BR_TABLE_ATTRIBUTE], sizeof *tables->labels);
    tables->links =
        br_arena_calloc(arena, tables->view.count[BR_TABLE_LINK], sizeof *tables->links);
    return tables->stacks && tables->labels && tables->links;
}

/* Returns true if the entries of the dictionary must be counted to know whether there are too
 * many. A small dictionary need not be counted: every entry takes at least two bytes. */
static bool pprof_write_tables_may_be_too_many(const struct br_item *item)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < item->n_parts; i++)
        if (item->parts[i].kind == BR_PART_DICTIONARY)
            bytes += item->parts[i].raw_len - item->parts[i].body_at;
    return bytes / 2 > BR_PPROF_ENTRIES_MAX;
}

static bool pprof_write_tables_too_many(const struct br_item *item)
{
    size_t n = 0;
    for (uint32_t i = 0; i < item->n_parts; i++) {
        const struct br_part *part = &item->parts[i];
        const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
        struct br_field field;
        while (part->kind == BR_PART_DICTIONARY && p < end && (p = br_scan(p, end, &field)))
            n++;
    }
    return n > BR_PPROF_ENTRIES_MAX;
}

int br_pprof_tables_load(struct br_pprof_tables *tables, const struct br_item *item,
                         const struct br_pprof_options *options)
{
    br_arena_init(&tables->arena, ITEM_GROWTH * item->size + (1u << 20));
    tables->options = options;
    tables->work = 0;
    tables->max_work = options->max_work ? options->max_work : SIZE_MAX;
    tables->round = 0;
    tables->rc = 0;
    if (pprof_write_tables_may_be_too_many(item) && pprof_write_tables_too_many(item))
        return BR_ETOOBIG;
    int rc = br_dictionary_index(item, &tables->arena, &tables->view);
    if (!rc && !pprof_write_tables_make_marks(tables))
        rc = BR_ENOMEM;
    tables->strings_budget.max = STRINGS_GROWTH * item->size + (1u << 20);
    if (rc && tables->arena.full)
        rc = BR_ETOOBIG;
    if (rc)
        br_pprof_tables_unload(tables);
    return rc;
}

void br_pprof_tables_unload(struct br_pprof_tables *tables)
{
    br_arena_release(&tables->arena);
    for (int i = 0; i < PPROF_BUFFERS; i++) {
        struct br_pprof_buffer *buffer = &tables->buffers[i];
        if (buffer->cap <= KEEP_MAX)
            continue;
        br_free(buffer->data);
        *buffer = (struct br_pprof_buffer){0};
    }
    if (tables->strings_budget.used > KEEP_MAX)
        br_intern_release(&tables->strings, &tables->strings_budget);
}

void br_pprof_tables_release(struct br_pprof_tables *tables)
{
    br_arena_release(&tables->arena);
    for (int i = 0; i < PPROF_BUFFERS; i++)
        br_free(tables->buffers[i].data);
    br_intern_release(&tables->strings, &tables->strings_budget);
}

void br_pprof_tables_finish(struct br_pprof_tables *tables)
{
    if (tables->strings_budget.used > KEEP_MAX)
        br_intern_strip(&tables->strings, &tables->strings_budget);
}

/* Empties the strings. Takes time in proportion to the size of the previous pprof. */
static void pprof_write_tables_begin_strings(struct br_pprof_tables *tables)
{
    struct br_intern *strings = &tables->strings;
    if (!strings->n_slots) {
        br_intern_release(strings, &tables->strings_budget);
        tables->rc = tables->rc ? tables->rc
                                : br_intern_init(strings, &tables->strings_budget, BR_PPROF_STRING);
    } else if (strings->count > strings->n_slots / 8) {
        br_intern_clear(strings);
    } else {
        br_intern_truncate(strings, 1, BR_INTERN_HEAD);
    }
}

void br_pprof_tables_begin(struct br_pprof_tables *tables)
{
    tables->round++;
    for (int i = 0; i < PPROF_BUFFERS; i++)
        tables->buffers[i].len = 0;
    memset(tables->n_ids, 0, sizeof tables->n_ids);
    memset(tables->id_keys, 0, sizeof tables->id_keys);
    tables->last_trace_string = 0;
    pprof_write_tables_begin_strings(tables);
}

/* --- Strings --------------------------------------------------------------------------------- */

uint32_t br_pprof_tables_text(struct br_pprof_tables *tables, const void *data, size_t len)
{
    uint32_t hash, id;
    if (tables->rc)
        return 0;
    id = br_intern_find(&tables->strings, data, len, BR_INTERN_NONE, &hash);
    if (id != BR_INTERN_NONE)
        return br_pprof_tables_work(tables, len) ? id : 0;
    tables->rc = br_intern_reserve(&tables->strings, &tables->strings_budget, len);
    if (tables->rc)
        return 0;
    memcpy(br_intern_body(&tables->strings), data, len);
    return br_intern_append(&tables->strings, len, hash);
}

uint32_t br_pprof_tables_string_slow(struct br_pprof_tables *tables, uint32_t index)
{
    const struct br_entry *entry = &tables->view.tables[BR_TABLE_STRING][index];
    uint32_t id =
        index == 0 || entry->len == 0 ? 0 : br_pprof_tables_text(tables, entry->data, entry->len);
    tables->marks[BR_TABLE_STRING][index] = (struct br_pprof_mark){tables->round, id};
    return id;
}

/* --- Attributes ------------------------------------------------------------------------------ */

bool br_pprof_tables_pair(struct br_pprof_tables *tables, uint32_t index, struct br_pair *ret,
                          uint32_t *ret_key, uint32_t *ret_unit)
{
    return index < tables->view.count[BR_TABLE_ATTRIBUTE] &&
           br_pprof_tables_work(
               tables, PPROF_AGAIN * (size_t)tables->view.tables[BR_TABLE_ATTRIBUTE][index].len) &&
           br_pair_of(&tables->view, index, ret, ret_key, ret_unit);
}

uint32_t br_pprof_tables_attribute_text(struct br_pprof_tables *tables, uint32_t index,
                                        const struct br_any *text)
{
    struct br_pprof_mark *mark = &tables->labels[index].text;
    if (mark->round != tables->round)
        *mark = (struct br_pprof_mark){tables->round,
                                       br_pprof_tables_text(tables, text->data, text->len)};
    return mark->id;
}

/* --- Indices --------------------------------------------------------------------------------- */

bool br_pprof_index_field(struct br_pprof_indices *indices, uint32_t field, uint32_t *ret)
{
    struct br_field found;
    while (indices->p && indices->p < indices->end &&
           (indices->p = br_scan(indices->p, indices->end, &found))) {
        if (found.number != field)
            continue;
        if (found.wire == BR_WIRE_VARINT) {
            *ret = found.value > UINT32_MAX ? UINT32_MAX : (uint32_t)found.value;
            return true;
        }
        if (found.wire == BR_WIRE_LEN && found.value > 0) {
            indices->packed = found.data;
            indices->packed_end = found.data + found.value;
            return br_pprof_index_next(indices, field, ret);
        }
    }
    return false;
}

/* --- Functions, mappings, locations ---------------------------------------------------------- */

static uint32_t pprof_write_tables_write_function(struct br_pprof_tables *tables, uint32_t index)
{
    const struct br_entry *entry = &tables->view.tables[BR_TABLE_FUNCTION][index];
    const uint8_t *p = entry->data, *end = p + entry->len;
    struct br_field field;
    uint64_t number[BR_FUNCTION_START_LINE + 1] = {0};
    if (!br_pprof_tables_work(tables, entry->len))
        return 0;
    while (p < end && (p = br_scan(p, end, &field)))
        if (field.number < BR_COUNT(number) && field.wire == BR_WIRE_VARINT)
            number[field.number] = field.value;
    uint32_t name = br_pprof_tables_string(tables, number[BR_FUNCTION_NAME]),
             system_name = br_pprof_tables_string(tables, number[BR_FUNCTION_SYSTEM_NAME]);
    uint32_t file = br_pprof_tables_string(tables, number[BR_FUNCTION_FILENAME]);
    uint8_t *body =
        br_pprof_tables_open(tables, PPROF_FUNCTIONS, BR_PPROF_FUNCTION, 5 * (1 + BR_VARINT_MAX));
    if (!body)
        return 0;
    uint32_t id = ++tables->n_ids[BR_TABLE_FUNCTION];
    uint8_t *o = br_pprof_put_number(body, BR_PPROF_FUNCTION_ID, id);
    o = br_pprof_put_number(o, BR_PPROF_FUNCTION_NAME, name);
    o = br_pprof_put_number(o, BR_PPROF_FUNCTION_SYSTEM_NAME, system_name);
    o = br_pprof_put_number(o, BR_PPROF_FUNCTION_FILENAME, file);
    o = br_pprof_put_number(o, BR_PPROF_FUNCTION_START_LINE, number[BR_FUNCTION_START_LINE]);
    br_pprof_tables_wrote(tables, PPROF_FUNCTIONS, br_put_length_before(body, o));
    tables->marks[BR_TABLE_FUNCTION][index] = (struct br_pprof_mark){tables->round, id};
    return id;
}

static uint32_t pprof_write_tables_function(struct br_pprof_tables *tables, uint64_t index)
{
    if (index >= tables->view.count[BR_TABLE_FUNCTION])
        return 0;
    const struct br_pprof_mark *mark = &tables->marks[BR_TABLE_FUNCTION][index];
    return mark->round == tables->round
               ? mark->id
               : pprof_write_tables_write_function(tables, (uint32_t)index);
}

/* Properties of a mapping that are attributes in OTLP. */
struct mapping_notes {
    uint32_t build_id; /* index of the string with the build ID */
    bool gnu;
    bool has[4]; /* whether the mapping has functions, filenames, line numbers, and inline frames */
};

static void pprof_write_tables_note_mapping(struct br_pprof_tables *tables, uint32_t attribute,
                                            struct mapping_notes *notes)
{
    static const char *const has[] = {"pprof.mapping.has_functions", "pprof.mapping.has_filenames",
                                      "pprof.mapping.has_line_numbers",
                                      "pprof.mapping.has_inline_frames"};
    static const char *const ids[] = {"process.executable.build_id.gnu",
                                      "process.executable.build_id.go",
                                      "process.executable.build_id.htlhash"};
    struct br_pair pair;
    if (!br_pprof_tables_pair(tables, attribute, &pair, NULL, NULL))
        return;
    for (size_t i = 0; i < BR_COUNT(has); i++)
        if (pair.value.type == BR_VALUE_BOOL && br_text_is(pair.key, has[i]))
            notes->has[i] = pair.value.number != 0;
    for (size_t i = 0; i < BR_COUNT(ids) && pair.value.type == BR_VALUE_STRING && pair.value.len;
         i++) {
        if (!br_text_is(pair.key, ids[i]) || (notes->build_id && (notes->gnu || i > 0)))
            continue;
        notes->build_id = br_pprof_tables_attribute_text(tables, attribute, &pair.value);
        notes->gnu = i == 0;
    }
}

static uint32_t pprof_write_tables_write_mapping(struct br_pprof_tables *tables, uint32_t index)
{
    const struct br_entry *entry = &tables->view.tables[BR_TABLE_MAPPING][index];
    const uint8_t *p = entry->data, *end = p + entry->len;
    struct br_field field;
    uint64_t number[BR_MAPPING_FILENAME + 1] = {0};
    struct mapping_notes notes = {0};
    struct br_pprof_indices indices = {.p = p, .end = end};
    uint32_t attribute;
    if (!br_pprof_tables_work(tables, entry->len))
        return 0;
    while (p < end && (p = br_scan(p, end, &field)))
        if (field.number < BR_COUNT(number) && field.wire == BR_WIRE_VARINT)
            number[field.number] = field.value;
    while (br_pprof_index_next(&indices, BR_MAPPING_ATTRIBUTES, &attribute))
        pprof_write_tables_note_mapping(tables, attribute, &notes);
    uint32_t file = br_pprof_tables_string(tables, number[BR_MAPPING_FILENAME]);
    uint8_t *body =
        br_pprof_tables_open(tables, PPROF_MAPPINGS, BR_PPROF_MAPPING, 10 * (1 + BR_VARINT_MAX));
    if (!body)
        return 0;
    uint32_t id = ++tables->n_ids[BR_TABLE_MAPPING];
    uint8_t *o = br_pprof_put_number(body, BR_PPROF_MAPPING_ID, id);
    o = br_pprof_put_number(o, BR_PPROF_MAPPING_START, number[BR_MAPPING_START]);
    o = br_pprof_put_number(o, BR_PPROF_MAPPING_LIMIT, number[BR_MAPPING_LIMIT]);
    o = br_pprof_put_number(o, BR_PPROF_MAPPING_OFFSET, number[BR_MAPPING_FILE_OFFSET]);
    o = br_pprof_put_number(o, BR_PPROF_MAPPING_FILENAME, file);
    o = br_pprof_put_number(o, BR_PPROF_MAPPING_BUILD_ID, notes.build_id);
    for (uint32_t k = 0; k < BR_COUNT(notes.has); k++)
        o = br_pprof_put_number(o, BR_PPROF_MAPPING_HAS_FUNCTIONS + k, notes.has[k]);
    br_pprof_tables_wrote(tables, PPROF_MAPPINGS, br_put_length_before(body, o));
    tables->marks[BR_TABLE_MAPPING][index] = (struct br_pprof_mark){tables->round, id};
    return id;
}

static uint32_t pprof_write_tables_mapping(struct br_pprof_tables *tables, uint64_t index)
{
    if (index == 0 || index >= tables->view.count[BR_TABLE_MAPPING])
        return 0;
    const struct br_pprof_mark *mark = &tables->marks[BR_TABLE_MAPPING][index];
    return mark->round == tables->round ? mark->id
                                        : pprof_write_tables_write_mapping(tables, (uint32_t)index);
}

/* Writes a Line. A function without a name, as in some stacks of the Go runtime, is written as
 * the empty entry. Otherwise the line's value would be attributed to its caller. */
static uint8_t *pprof_write_tables_put_line(struct br_pprof_tables *tables, uint8_t *out,
                                            const uint8_t *p, const uint8_t *end)
{
    struct br_field field;
    uint64_t number[BR_LINE_COLUMN + 1] = {0};
    while (p < end && (p = br_scan(p, end, &field)))
        if (field.number < BR_COUNT(number) && field.wire == BR_WIRE_VARINT)
            number[field.number] = field.value;
    uint32_t id = pprof_write_tables_function(tables, number[BR_LINE_FUNCTION]);
    if (!id)
        return out;
    *out = (uint8_t)BR_TAG(BR_PPROF_LOCATION_LINES, BR_WIRE_LEN);
    uint8_t *body = out + 2;
    out = br_pprof_put_number(body, BR_PPROF_LINE_FUNCTION, id);
    out = br_pprof_put_number(out, BR_PPROF_LINE_LINE, number[BR_LINE_LINE]);
    out = br_pprof_put_number(out, BR_PPROF_LINE_COLUMN, number[BR_LINE_COLUMN]);
    return br_put_length_before(body, out);
}

/* Returns true if attribute `index` marks a location as folded. The result is cached. */
static bool pprof_write_tables_marks_folded(struct br_pprof_tables *tables, uint32_t index)
{
    struct br_pair pair;
    if (index >= tables->view.count[BR_TABLE_ATTRIBUTE])
        return false;
    struct br_pprof_label_fields *label = &tables->labels[index];
    if (!label->folded) {
        bool folded = br_pprof_tables_pair(tables, index, &pair, NULL, NULL) &&
                      pair.value.type == BR_VALUE_BOOL && pair.value.number &&
                      br_text_is(pair.key, "pprof.location.is_folded");
        label->folded = folded ? 1 : -1;
    }
    return label->folded > 0;
}

static bool pprof_write_tables_is_folded(struct br_pprof_tables *tables,
                                         const struct br_entry *entry)
{
    struct br_pprof_indices indices = {.p = entry->data, .end = entry->data + entry->len};
    uint32_t i;
    while (br_pprof_index_next(&indices, BR_LOCATION_ATTRIBUTES, &i))
        if (pprof_write_tables_marks_folded(tables, i))
            return true;
    return false;
}

/* Encodes the ID of a location for br_pprof_mark.id: the lower three bytes are the ID as a
 * varint, and the fourth byte is the length of the varint. */
static uint32_t pprof_write_tables_encoded(uint32_t id)
{
    uint8_t bytes[BR_VARINT_MAX] = {0};
    uint32_t len = (uint32_t)(br_put_varint(bytes, id) - bytes);
    static_assert(BR_PPROF_ENTRIES_MAX <= 1u << 21, "an id takes three bytes at the most");
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | len << 24;
}

static inline uint8_t *pprof_write_tables_put_encoded(uint8_t *out, uint32_t code)
{
    memcpy(out, &code, sizeof code);
    return out + (code >> 24);
}

/* Writes a location. Returns the location's ID as encoded by pprof_write_tables_encoded, or 0 on
 * failure. */
static uint32_t pprof_write_tables_write_location(struct br_pprof_tables *tables, uint32_t index)
{
    const struct br_entry *entry = &tables->view.tables[BR_TABLE_LOCATION][index];
    const uint8_t *p = entry->data, *end = p + entry->len;
    struct br_field field;
    uint64_t in_mapping = 0, address = 0;
    bool attributes = false;
    if (!br_pprof_tables_work(tables, entry->len))
        return 0;
    while (p < end && (p = br_scan(p, end, &field))) {
        if (field.number == BR_LOCATION_MAPPING && field.wire == BR_WIRE_VARINT)
            in_mapping = field.value;
        else if (field.number == BR_LOCATION_ADDRESS && field.wire == BR_WIRE_VARINT)
            address = field.value;
        attributes = attributes || field.number == BR_LOCATION_ATTRIBUTES;
    }
    uint32_t mapping_id = pprof_write_tables_mapping(tables, in_mapping);
    /* Lines may become three times as long: a line of two bytes in OTLP takes at most six bytes
     * with the ID of its function. */
    uint8_t *body = br_pprof_tables_open(tables, PPROF_LOCATIONS, BR_PPROF_LOCATION,
                                         3 * (size_t)entry->len + 64);
    if (!body)
        return 0;
    uint32_t id = ++tables->n_ids[BR_TABLE_LOCATION];
    uint8_t *o = br_pprof_put_number(body, BR_PPROF_LOCATION_ID, id);
    o = br_pprof_put_number(o, BR_PPROF_LOCATION_MAPPING, mapping_id);
    o = br_pprof_put_number(o, BR_PPROF_LOCATION_ADDRESS, address);
    for (p = entry->data; p < end && (p = br_scan(p, end, &field));)
        if (field.number == BR_LOCATION_LINES && field.wire == BR_WIRE_LEN)
            o = pprof_write_tables_put_line(tables, o, field.data, field.data + field.value);
    if (attributes && pprof_write_tables_is_folded(tables, entry))
        o = br_pprof_put_number(o, BR_PPROF_LOCATION_IS_FOLDED, 1);
    br_pprof_tables_wrote(tables, PPROF_LOCATIONS, br_put_length_before(body, o));
    tables->marks[BR_TABLE_LOCATION][index] =
        (struct br_pprof_mark){tables->round, pprof_write_tables_encoded(id)};
    return tables->marks[BR_TABLE_LOCATION][index].id;
}

static uint8_t *pprof_write_tables_put_location(struct br_pprof_tables *tables, uint8_t *out,
                                                uint64_t index)
{
    if (index == 0 || index >= tables->view.count[BR_TABLE_LOCATION])
        return out;
    const struct br_pprof_mark *mark = &tables->marks[BR_TABLE_LOCATION][index];
    return pprof_write_tables_put_encoded(
        out, mark->round == tables->round
                 ? mark->id
                 : pprof_write_tables_write_location(tables, (uint32_t)index));
}

/* Copy of the fields used for each location, so that the compiler can keep them in registers
 * while bytes are written to the buffers. */
struct known {
    struct br_pprof_tables *tables;
    const struct br_pprof_mark *marks;
    uint32_t count, round;
};

static inline uint8_t *pprof_write_tables_put_known(struct known known, uint8_t *out,
                                                    uint64_t index)
{
    if (__builtin_expect(index < known.count && known.marks[index].round == known.round, 1))
        return pprof_write_tables_put_encoded(out, known.marks[index].id);
    return pprof_write_tables_put_location(known.tables, out, index);
}

static inline uint64_t pprof_write_tables_two_bytes(uint64_t pair)
{
    return (pair & 0x7f) | (pair >> 1 & 0x3f80);
}

/* Half of the time for writing a pprof is spent in this function. Most indices of a large table
 * take two bytes, so four of them are decoded at a time. */
static uint8_t *pprof_write_tables_put_locations(struct br_pprof_tables *tables, uint8_t *out,
                                                 const uint8_t *p, const uint8_t *end)
{
    const uint64_t tops = 0x8080808080808080, low_tops = 0x0080008000800080;
    struct known k = {tables, tables->marks[BR_TABLE_LOCATION],
                      tables->view.count[BR_TABLE_LOCATION], tables->round};
    uint64_t i, four;
    while (p < end && (p = br_scan_index(p, end, &i))) {
        out = pprof_write_tables_put_known(k, out, i);
        for (; end - p >= (ptrdiff_t)sizeof four; p += sizeof four) {
            memcpy(&four, p, sizeof four);
            if ((four & tops) != low_tops)
                break;
            out = pprof_write_tables_put_known(k, out, pprof_write_tables_two_bytes(four));
            out = pprof_write_tables_put_known(k, out, pprof_write_tables_two_bytes(four >> 16));
            out = pprof_write_tables_put_known(k, out, pprof_write_tables_two_bytes(four >> 32));
            out = pprof_write_tables_put_known(k, out, pprof_write_tables_two_bytes(four >> 48));
        }
    }
    return out;
}

/* --- Stacks ---------------------------------------------------------------------------------- */

static const struct br_pprof_piece no_piece;

const struct br_pprof_piece *br_pprof_tables_stack(struct br_pprof_tables *tables, uint64_t index)
{
    if (index == 0 || index >= tables->view.count[BR_TABLE_STACK])
        return &no_piece;
    struct br_pprof_piece *piece = &tables->stacks[index];
    if (piece->round == tables->round)
        return piece;
    const struct br_entry *entry = &tables->view.tables[BR_TABLE_STACK][index];
    const uint8_t *p = entry->data, *end = p + entry->len;
    struct br_field field;
    if (!br_pprof_tables_work(tables, entry->len))
        return &no_piece;
    /* A stack may become three times as long: an index takes at least one byte, and an ID at
     * most three. One more byte is needed because four bytes are copied for each ID. */
    uint8_t *body = br_pprof_tables_open(tables, PPROF_CACHE, BR_PPROF_SAMPLE_LOCATIONS,
                                         3 * (size_t)entry->len + 1);
    if (!body)
        return &no_piece;
    uint8_t *o = body;
    while (p < end && (p = br_scan(p, end, &field))) {
        if (field.number == BR_STACK_LOCATIONS && field.wire == BR_WIRE_LEN)
            o = pprof_write_tables_put_locations(tables, o, field.data, field.data + field.value);
        else if (field.number == BR_STACK_LOCATIONS && field.wire == BR_WIRE_VARINT)
            o = pprof_write_tables_put_location(tables, o, field.value);
    }
    uint32_t at = (uint32_t)tables->buffers[PPROF_CACHE].len;
    *piece = (struct br_pprof_piece){tables->round, at, 0};
    if (o == body || tables->rc)
        return piece;
    o = br_put_length_before(body, o);
    piece->len = (uint32_t)(o - (body - 2));
    br_pprof_tables_wrote(tables, PPROF_CACHE, o);
    return piece;
}
