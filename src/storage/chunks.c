/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/chunks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/steps.h"
#include "base/str.h"
#include "base/sum.h"
#include "otlp/scan.h"
#include "profile/pair.h"
#include "profile/series.h"
#include "storage/blocks.h"
#include "storage/samples.h"
#include "storage/stacks.h"

#define LEVEL 1          /* zstd compression level */
#define MEMO_GROWTH 16u  /* maximum number of bytes of `memo` for each byte of an item */
#define LABELS_LEN 65536 /* maximum number of bytes of all labels of a series */
/* number of bytes that are charged to the budget for each line of a location after the first,
 * because reading a line takes CPU time */
#define LINE_BYTES 16u
#define FILE_LEN 400u /* maximum number of bytes of the path of a mapped file */
#define NAME_LEN 64u  /* maximum number of bytes of a function name when the budget is used up */
#define LISTS_MAX                                                                                  \
    4096u /* maximum number of lists of sample labels for which the series is cached */
#define TYPE_TEXT_LEN 96
#define PROFILE_TYPE_LEN (4 * TYPE_TEXT_LEN + 160)

/* Kinds of sample attributes: not classified yet, not a label, and a label of the series. */
enum { UNKNOWN, NO_LABEL, LABEL };

/* Results of reading the item's dictionary, so that each entry is read only once. An array has
 * the same indexes as the dictionary table to which it belongs. */
struct memo {
    struct br_arena arena;
    const struct br_dictionary_view *view;
    uint32_t *functions; /* number of each function in the partition, plus 1; 0: not read yet */
    uint32_t *stacks;    /* number of each stack's node, plus 1; 0: not read yet */
    struct link {
        bool read;
        const uint8_t *trace_id; /* trace id of the link; NULL: the link has no trace id */
        uint64_t span_id;
    } * links;
    struct location {
        uint32_t *frames; /* function numbers of the location's lines, the innermost line first */
        uint32_t count;
        bool read;
    } * locations;
    struct mapping {
        bool read;
        struct br_entry file;
    } * mappings;
    /* kinds of attributes, by attribute; the second list is used for profiles from Pyroscope */
    uint8_t *attributes[2];
    struct label_series {
        uint64_t type; /* profile type for which `series` is valid, as a value of `n_types` */
        uint32_t series;
        /* for each attribute, the series of samples that have only this attribute as a label */
    } * label_series;
};

struct br_chunks {
    /* number of items that lost data since the last br_chunks_take_shortened */
    uint64_t n_shortened;
    struct br_sql *sql;
    struct br_store_totals *totals;
    struct br_pack_codec *codec;
    /* State of the partition. */
    struct br_stack_tree stacks;
    struct br_map *series; /* map from the encoded labels of a series to its id */
    int64_t last_chunk;
    struct br_sums *sums;
    /* State of the current item. */
    struct br_pprof_writer *reader;
    struct br_series *labels;
    struct memo memo;
    /* State of the current group and profile type. */
    const struct br_pprof_group *group;
    const struct br_pprof_group_type *type;
    const struct br_label *base;
    uint32_t n_base;
    char profile_type[PROFILE_TYPE_LEN];
    /* texts of the profile type: type, unit, period type, period unit */
    char texts[4][TYPE_TEXT_LEN];
    uint64_t n_types;          /* number of profile types begun so far, in all items */
    struct label_series plain; /* the series of samples without labels */
    struct br_str encoded, list;
    /* map from a list of several sample labels to the series with these labels */
    struct br_map *lists;
    /* number of bytes to which the labels, names and lines of locations of the item may still
     * expand */
    size_t budget;
    /* number of bytes of the budget that may be used for data kept in memory */
    size_t memory_budget;
    /* true: the item lost labels, parts of names, or frames because the budgets were used up */
    bool shortened;
    /* State of the current sample. */
    int64_t *values;
    uint64_t *times;
    uint32_t *sample_labels; /* indexes of those attributes of the sample that are labels */
    uint32_t n_values, cap_values, n_times, cap_times, n_sample_labels, cap_sample_labels;
    uint64_t stack, link;
    /* Outermost locations of the stack. Location i of the stack is at index i modulo
     * BR_CHUNKS_DEPTH_MAX */
    uint32_t locations[BR_CHUNKS_DEPTH_MAX];
    size_t n_locations;
    /* State of the chunks under construction. */
    struct br_sample_row *rows;
    uint32_t n_rows, cap_rows;
    struct br_sample_packer packer;
    struct br_pack compressed[2];
    struct br_err *err;
};

static int chunks_no_memory(struct br_chunks *chunks)
{
    return br_err_set(chunks->err, BR_ENOMEM, "out of memory");
}

/* Charges `count` bytes to the budget of the current item. Returns false if the budget is used
 * up. */
static bool chunks_spend(struct br_chunks *chunks, size_t count)
{
    if (count > chunks->budget) {
        chunks->shortened = true;
        return false;
    }
    chunks->budget -= count;
    return true;
}

static bool chunks_spend_memory(struct br_chunks *chunks, size_t count)
{
    if (count > chunks->memory_budget) {
        chunks->shortened = true;
        return false;
    }
    chunks->memory_budget -= count;
    return true;
}

/* --- Stacks ---------------------------------------------------------------------------------- */

static int chunks_stacks_failed(struct br_chunks *chunks, int rc)
{
    return rc == BR_EFULL ? br_err_set(chunks->err, BR_EINVAL, "too many distinct stacks")
                          : chunks_no_memory(chunks);
}

static struct br_entry chunks_entry(const struct memo *memo, enum br_table table, uint64_t index)
{
    return index < memo->view->count[table] ? memo->view->tables[table][index]
                                            : (struct br_entry){NULL, 0};
}

static struct br_entry chunks_string(const struct memo *memo, uint64_t index)
{
    return chunks_entry(memo, BR_TABLE_STRING, index);
}

/* Returns the last component of a path. */
static struct br_entry chunks_base_name(struct br_entry path)
{
    uint32_t at = path.len;
    while (at > 0 && path.data[at - 1] != '/')
        at--;
    return path.len ? (struct br_entry){path.data + at, path.len - at} : path;
}

/* Returns the file of a mapping. The file name is cut to FILE_LEN, because the name of each
 * address contains it. */
static struct br_entry chunks_mapped_file(struct br_chunks *chunks, uint64_t index)
{
    struct memo *memo = &chunks->memo;
    struct br_entry body = chunks_entry(memo, BR_TABLE_MAPPING, index), file = {NULL, 0};
    const uint8_t *p = body.data, *end = body.len ? p + body.len : p;
    struct br_field field;
    bool known = index < memo->view->count[BR_TABLE_MAPPING];
    if (known && memo->mappings[index].read)
        return memo->mappings[index].file;
    br_steps_add(body.len);
    while (p < end && (p = br_scan(p, end, &field)))
        if (br_scan_tag(&field) == BR_SCAN_VARINT(BR_MAPPING_FILENAME))
            file = chunks_string(memo, field.value);
    if (file.len > FILE_LEN)
        file.len = (uint32_t)br_utf8_valid(file.data, FILE_LEN);
    if (known)
        memo->mappings[index] = (struct mapping){true, file};
    return file;
}

/* Names a location without lines by its mapped file and its address. */
static int chunks_name_address(struct br_chunks *chunks, uint64_t mapping, uint64_t address,
                               uint32_t *ret)
{
    struct br_entry file = chunks_mapped_file(chunks, mapping), base = chunks_base_name(file);
    char name[FILE_LEN + 32];
    size_t text_len = (size_t)file.len + base.len;
    if (!chunks_spend(chunks, text_len) || !chunks_spend_memory(chunks, text_len))
        file.len = base.len = 0;
    int len = snprintf(name, sizeof name, "%.*s%s0x%" PRIx64, (int)base.len,
                       base.len ? (const char *)base.data : "", base.len ? " " : "", address);
    return br_stack_tree_function(&chunks->stacks, name, (size_t)len, file.data, file.len, ret);
}

static size_t chunks_name_len(const struct br_entry *name)
{
    return name->len < BR_FUNCTION_NAME_MAX ? name->len : BR_FUNCTION_NAME_MAX;
}

/* Charges the name and file of a function to the budgets. Shortens the name and removes the file
 * if a budget is used up, because very many functions may share one long name. */
static void chunks_cut_names(struct br_chunks *chunks, struct br_entry *name, struct br_entry *file)
{
    size_t len = chunks_name_len(name) + chunks_name_len(file);
    if (chunks_spend(chunks, len) && chunks_spend_memory(chunks, len))
        return;
    if (name->len > NAME_LEN)
        name->len = (uint32_t)br_utf8_valid(name->data, NAME_LEN);
    file->len = 0;
}

static int chunks_function(struct br_chunks *chunks, uint64_t index, uint32_t *ret)
{
    struct memo *memo = &chunks->memo;
    struct br_entry body = chunks_entry(memo, BR_TABLE_FUNCTION, index);
    const uint8_t *p = body.data, *end = body.len ? p + body.len : p;
    struct br_entry name = {NULL, 0}, system = {NULL, 0}, file = {NULL, 0};
    struct br_field field;
    if (index < memo->view->count[BR_TABLE_FUNCTION] && memo->functions[index]) {
        *ret = memo->functions[index] - 1;
        return 0;
    }
    while (p < end && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) == BR_SCAN_VARINT(BR_FUNCTION_NAME))
            name = chunks_string(memo, field.value);
        else if (br_scan_tag(&field) == BR_SCAN_VARINT(BR_FUNCTION_SYSTEM_NAME))
            system = chunks_string(memo, field.value);
        else if (br_scan_tag(&field) == BR_SCAN_VARINT(BR_FUNCTION_FILENAME))
            file = chunks_string(memo, field.value);
    }
    if (!name.len)
        name = system.len ? system : (struct br_entry){(const uint8_t *)"unknown", 7};
    chunks_cut_names(chunks, &name, &file);
    int rc = br_stack_tree_function(&chunks->stacks, name.data, name.len, file.data, file.len, ret);
    if (!rc && index < memo->view->count[BR_TABLE_FUNCTION])
        memo->functions[index] = *ret + 1;
    return rc;
}

static int chunks_read_line(struct br_chunks *chunks, const struct br_field *line, uint32_t *ret)
{
    const uint8_t *p = line->data, *end = p + line->value;
    struct br_field field;
    uint64_t function = 0;
    while (p < end && (p = br_scan(p, end, &field)))
        if (br_scan_tag(&field) == BR_SCAN_VARINT(BR_LINE_FUNCTION))
            function = field.value;
    return chunks_function(chunks, function, ret);
}

static int chunks_read_location(struct br_chunks *chunks, uint64_t index, struct location *location)
{
    struct br_entry body = chunks_entry(&chunks->memo, BR_TABLE_LOCATION, index);
    const uint8_t *p = body.data, *end = body.len ? p + body.len : p;
    struct br_field field;
    uint64_t mapping = 0, address = 0;
    uint32_t n_lines = 0;
    int rc = 0;
    br_steps_add(body.len);
    while (p < end && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) == BR_SCAN_VARINT(BR_LOCATION_MAPPING))
            mapping = field.value;
        else if (br_scan_tag(&field) == BR_SCAN_VARINT(BR_LOCATION_ADDRESS))
            address = field.value;
        n_lines += br_scan_tag(&field) == BR_SCAN_LEN(BR_LOCATION_LINES);
    }
    location->frames =
        br_arena_alloc(&chunks->memo.arena, (n_lines ? n_lines : 1) * sizeof *location->frames);
    if (!location->frames)
        return br_arena_why(&chunks->memo.arena);
    location->count = 0;
    if (!n_lines)
        rc = chunks_name_address(chunks, mapping, address, &location->frames[location->count++]);
    for (p = body.data; n_lines && !rc && p < end && (p = br_scan(p, end, &field));)
        if (br_scan_tag(&field) == BR_SCAN_LEN(BR_LOCATION_LINES))
            rc = chunks_read_line(chunks, &field, &location->frames[location->count++]);
    location->read = rc == 0;
    return rc;
}

static int chunks_add_frames(struct br_chunks *chunks, uint64_t index, uint32_t *node)
{
    struct location outside = {.count = 0}, *location = &outside;
    int rc = 0;
    if (index < chunks->memo.view->count[BR_TABLE_LOCATION])
        location = &chunks->memo.locations[index];
    if (!location->read)
        rc = chunks_read_location(chunks, index, location);
    /* Keep only the innermost line when the budget is used up: very many stacks may share a
     * location with many lines. */
    uint32_t n_more = location->count ? location->count - 1 : 0;
    uint32_t count = chunks_spend(chunks, (size_t)n_more * LINE_BYTES) ? location->count : 1;
    for (uint32_t i = rc ? 0 : count; i > 0 && !rc; i--)
        rc = br_stack_tree_node(&chunks->stacks, *node, location->frames[i - 1], node);
    return rc;
}

static void chunks_add_location(struct br_chunks *chunks, uint64_t index)
{
    chunks->locations[chunks->n_locations++ % BR_CHUNKS_DEPTH_MAX] =
        index < UINT32_MAX ? (uint32_t)index : UINT32_MAX;
}

/* Lists the locations of a stack, the leaf first. The field may be packed or repeated. Only the
 * last BR_CHUNKS_DEPTH_MAX locations, which are the outermost, are kept. */
static void chunks_list_locations(struct br_chunks *chunks, struct br_entry body)
{
    const uint8_t *p = body.data, *end = body.len ? p + body.len : p;
    struct br_field field;
    chunks->n_locations = 0;
    br_steps_add(body.len);
    while (p < end && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) == BR_SCAN_VARINT(BR_STACK_LOCATIONS)) {
            chunks_add_location(chunks, field.value);
        } else if (br_scan_tag(&field) == BR_SCAN_LEN(BR_STACK_LOCATIONS)) {
            const uint8_t *at = field.data, *last = at + field.value;
            uint64_t index;
            while (at < last && (at = br_scan_varint(at, last, &index)))
                chunks_add_location(chunks, index);
        }
    }
}

/* Returns true if the current item has reached its limit on nodes although the partition has
 * room for more. */
static bool chunks_at_node_limit(const struct br_chunks *chunks)
{
    return chunks->stacks.max_nodes < BR_STACK_NODES_MAX &&
           chunks->stacks.n_nodes >= chunks->stacks.max_nodes;
}

static int chunks_node(struct br_chunks *chunks, uint64_t stack, uint32_t *ret)
{
    struct memo *memo = &chunks->memo;
    uint32_t node = 0;
    bool known = stack < memo->view->count[BR_TABLE_STACK];
    if (known && memo->stacks[stack]) {
        *ret = memo->stacks[stack] - 1;
        return 0;
    }
    int rc = 0;
    chunks_list_locations(chunks, chunks_entry(memo, BR_TABLE_STACK, stack));
    size_t count = chunks->n_locations, cut = 0;
    if (count > BR_CHUNKS_DEPTH_MAX)
        cut = count - BR_CHUNKS_DEPTH_MAX;
    if (cut)
        chunks->shortened = true;
    for (size_t i = count; !rc && i > cut; i--)
        rc = chunks_add_frames(chunks, chunks->locations[(i - 1) % BR_CHUNKS_DEPTH_MAX], &node);
    if (rc == BR_EFULL && chunks_at_node_limit(chunks)) {
        chunks->shortened = true;
        rc = 0;
    }
    if (rc)
        return chunks_stacks_failed(chunks, rc);
    if (known)
        memo->stacks[stack] = node + 1;
    *ret = node;
    return 0;
}

static const struct link *chunks_link(struct br_chunks *chunks, uint64_t index)
{
    static const struct link none;
    static const uint8_t zeros[16];
    if (index >= chunks->memo.view->count[BR_TABLE_LINK])
        return &none;
    struct link *link = &chunks->memo.links[index];
    if (link->read)
        return link;
    struct br_entry body = chunks_entry(&chunks->memo, BR_TABLE_LINK, index);
    const uint8_t *p = body.data, *end = body.len ? p + body.len : p;
    struct br_field field;
    while (p < end && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) == BR_SCAN_LEN(BR_LINK_TRACE_ID) && field.value == 16)
            link->trace_id = memcmp(field.data, zeros, 16) ? field.data : NULL;
        else if (br_scan_tag(&field) == BR_SCAN_LEN(BR_LINK_SPAN_ID) && field.value == 8)
            link->span_id = br_load64(field.data);
    }
    link->read = true;
    return link;
}

/* --- Series ---------------------------------------------------------------------------------- */

static int chunks_compare_labels(const void *left, const void *right)
{
    const struct br_label *first = left, *second = right;
    size_t len = first->name_len < second->name_len ? first->name_len : second->name_len;
    int order = memcmp(first->name, second->name, len);
    return order ? order
                 : (first->name_len > second->name_len) - (first->name_len < second->name_len);
}

static void chunks_encode_text(struct br_str *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        br_str_putc(out, text[i] ? text[i] : ' ');
    br_str_putc(out, '\0');
}

/* Sorts labels by name, and encodes them as name\0value\0. If several labels have the same name,
 * the first is kept. */
static void chunks_encode_labels(struct br_chunks *chunks, struct br_label *labels, uint32_t count)
{
    br_str_clear(&chunks->encoded);
    qsort(labels, count, sizeof *labels, chunks_compare_labels);
    for (uint32_t i = 0; i < count; i++) {
        if (i && chunks_compare_labels(&labels[i - 1], &labels[i]) == 0)
            continue;
        chunks_encode_text(&chunks->encoded, labels[i].name, labels[i].name_len);
        chunks_encode_text(&chunks->encoded, labels[i].value, labels[i].value_len);
    }
}

static int chunks_insert_series(struct br_chunks *chunks, int64_t id)
{
    /* key of the hash: a constant, so that a series has the same hash in every partition */
    static const uint8_t secret[16] = "series of labels";
    uint64_t hash = br_siphash(secret, chunks->encoded.data, chunks->encoded.len);
    sqlite3_stmt *statement = br_sql_statement(chunks->sql, BR_SQL_SERIES_ADD);
    if (statement) {
        (void)sqlite3_bind_int64(statement, 1, id);
        (void)sqlite3_bind_int64(statement, 2, (int64_t)hash);
        (void)sqlite3_bind_text(statement, 3, chunks->profile_type, -1, SQLITE_STATIC);
        (void)sqlite3_bind_blob64(statement, 4, chunks->encoded.data, chunks->encoded.len,
                                  SQLITE_STATIC);
    }
    return br_sql_run(chunks->sql, statement, chunks->err);
}

/* Finds or inserts the series whose labels are in `encoded`, and stores its id in `*ret`. */
static int chunks_series_of_labels(struct br_chunks *chunks, uint32_t *ret)
{
    struct br_str *encoded = &chunks->encoded;
    uintptr_t id = (uintptr_t)br_map_get(chunks->series, encoded->data, encoded->len);
    if (!id) {
        if (!chunks_spend_memory(chunks, encoded->len) && chunks->n_sample_labels)
            return BR_EFULL;
        id = br_map_count(chunks->series) + 1;
        int rc = br_map_put(chunks->series, encoded->data, encoded->len, (void *)id, NULL);
        if (rc == BR_EFULL)
            return br_err_set(chunks->err, BR_EINVAL, "more than %u series", BR_SERIES_MAX);
        rc = rc ? chunks_no_memory(chunks) : chunks_insert_series(chunks, (int64_t)id);
        if (rc)
            return rc;
    }
    *ret = (uint32_t)id;
    return 0;
}

static struct br_label chunks_label(const char *name, const char *value)
{
    return (struct br_label){name, strlen(name), value, strlen(value)};
}

static size_t chunks_labels_len(const struct br_label *labels, uint32_t count)
{
    size_t len = 0;
    for (uint32_t i = 0; i < count; i++)
        len += labels[i].name_len + labels[i].value_len;
    return len;
}

static bool chunks_is_count(const char *type, const char *unit)
{
    return !strcmp(unit, "count") && (!strcmp(type, "samples") || !strcmp(type, "sample"));
}

/* Writes the value of the label BR_SERIES_HIDDEN for the current profile type. The profile's
 * period is the value of one sample only if the period has the same type and unit as the
 * samples. */
static void chunks_write_hidden(const struct br_chunks *chunks, char *ret, size_t size)
{
    static const uint8_t secret[16] = "source of series";
    const char(*texts)[TYPE_TEXT_LEN] = chunks->texts;
    uint64_t per_sample = 0, source = 0;
    if (!strcmp(texts[0], texts[2]) && !strcmp(texts[1], texts[3]) && chunks->group->period > 0)
        per_sample = (uint64_t)chunks->group->period;
    else if (chunks_is_count(texts[0], texts[1]))
        per_sample = 1;
    /* the hashes of the labels are added up, so their order does not matter */
    for (uint32_t i = 0; i < chunks->n_base; i++) {
        const struct br_label *label = &chunks->base[i];
        source += br_siphash(secret, label->name, label->name_len) ^
                  (br_siphash(secret, label->value, label->value_len) * 31);
    }
    (void)snprintf(ret, size, "%" PRIx64 " %" PRIx64, per_sample, source);
}

/* Finds or inserts the series of the current profile type with the labels of the current sample,
 * and stores its id in `*ret`. */
static int chunks_make_series(struct br_chunks *chunks, uint32_t *ret)
{
    static const char *const names[] = {"__type__", "__unit__", "__period_type__",
                                        "__period_unit__"};
    struct br_label labels[2 * BR_SERIES_LABELS_MAX];
    char hidden[2 * (16 + 1)];
    uint32_t count = 0;
    chunks_write_hidden(chunks, hidden, sizeof hidden);
    labels[count++] = chunks_label(BR_SERIES_HIDDEN, hidden);
    labels[count++] = chunks_label("__profile_type__", chunks->profile_type);
    for (size_t i = 0; i < BR_COUNT(names); i++)
        labels[count++] = chunks_label(names[i], chunks->texts[i]);
    for (uint32_t i = 0; i < chunks->n_base && i < BR_SERIES_LABELS_MAX; i++) {
        struct br_label label = chunks->base[i];
        /* The label __delta__ is an instruction to a server that computes differences, and does
         * not describe the stored values. */
        if (br_bytes_are(label.name, label.name_len, "__delta__"))
            continue;
        labels[count++] = label;
    }
    for (uint32_t i = 0; i < chunks->n_sample_labels && count < BR_COUNT(labels); i++) {
        struct br_pair pair;
        if (br_pair_of(chunks->memo.view, chunks->sample_labels[i], &pair, NULL, NULL))
            labels[count++] = (struct br_label){(const char *)pair.key.data, pair.key.len,
                                                (const char *)pair.value.data, pair.value.len};
    }
    /* Charge the labels to the budget, because very many samples may share a long label and
     * still belong to different series. */
    if (chunks->n_sample_labels && !chunks_spend(chunks, chunks_labels_len(labels, count)))
        return BR_EFULL;
    chunks_encode_labels(chunks, labels, count);
    if (chunks->encoded.failed)
        return br_err_set(chunks->err, BR_EINVAL, "the labels of a series exceed %d bytes",
                          LABELS_LEN);
    return chunks_series_of_labels(chunks, ret);
}

static int chunks_plain_series(struct br_chunks *chunks, uint32_t *ret)
{
    struct label_series *plain = &chunks->plain;
    int rc = 0;
    chunks->n_sample_labels = 0;
    if (plain->type != chunks->n_types)
        rc = chunks_make_series(chunks, &plain->series);
    plain->type = rc ? 0 : chunks->n_types;
    *ret = plain->series;
    return rc;
}

/* Finds or inserts the series for a sample with one label. If the budget is used up, returns the
 * series of samples without labels. */
static int chunks_one_label_series(struct br_chunks *chunks, uint32_t *ret)
{
    struct label_series *memo = &chunks->memo.label_series[chunks->sample_labels[0]];
    int rc = 0;
    if (memo->type != chunks->n_types)
        rc = chunks_make_series(chunks, &memo->series);
    if (rc == BR_EFULL)
        rc = chunks_plain_series(chunks, &memo->series);
    memo->type = rc ? 0 : chunks->n_types;
    *ret = memo->series;
    return rc;
}

/* Finds or inserts the series for a sample with several labels. Caches the series of up to
 * LISTS_MAX lists of labels. */
static int chunks_labels_series(struct br_chunks *chunks, uint32_t *ret)
{
    struct br_str *list = &chunks->list;
    br_str_clear(list);
    br_str_add(list, (const char *)&chunks->n_types, sizeof chunks->n_types);
    br_str_add(list, (const char *)chunks->sample_labels,
               chunks->n_sample_labels * sizeof *chunks->sample_labels);
    uintptr_t known =
        list->failed ? 0 : (uintptr_t)br_map_get(chunks->lists, list->data, list->len);
    if (known) {
        *ret = (uint32_t)known;
        return 0;
    }
    int rc = chunks_make_series(chunks, ret);
    if (rc == BR_EFULL)
        rc = chunks_plain_series(chunks, ret);
    if (!rc && !list->failed)
        (void)br_map_put(chunks->lists, list->data, list->len, (void *)(uintptr_t)*ret, NULL);
    return rc;
}

static int chunks_series(struct br_chunks *chunks, uint32_t *ret)
{
    if (chunks->n_sample_labels == 0)
        return chunks_plain_series(chunks, ret);
    if (chunks->n_sample_labels == 1)
        return chunks_one_label_series(chunks, ret);
    return chunks_labels_series(chunks, ret);
}

/* Returns true if an attribute is a label of the samples in the current group. */
static bool chunks_is_label(struct br_chunks *chunks, uint32_t index)
{
    static const struct br_series_config defaults;
    struct memo *memo = &chunks->memo;
    uint8_t *attributes = memo->attributes[chunks->group->out->from_pyroscope];
    struct br_pair pair;
    if (index >= memo->view->count[BR_TABLE_ATTRIBUTE])
        return false;
    if (attributes[index] == UNKNOWN) {
        const char *key;
        attributes[index] = NO_LABEL;
        if (br_pair_of(memo->view, index, &pair, NULL, NULL) &&
            pair.value.type == BR_VALUE_STRING && pair.value.len && pair.key.len) {
            key = (const char *)pair.key.data;
            if (!br_series_is_id(key, pair.key.len) &&
                (chunks->group->out->from_pyroscope || br_text_is(pair.key, BR_SAMPLE_JOIN) ||
                 br_series_keeps(&defaults, key, pair.key.len)))
                attributes[index] = LABEL;
        }
    }
    return attributes[index] == LABEL;
}

/* --- Samples --------------------------------------------------------------------------------- */

static int chunks_add_number(uint64_t **list, uint32_t *count, uint32_t *cap, uint64_t number)
{
    if (*count == *cap && br_grow(list, cap, (size_t)*count + 1, sizeof **list, 1u << 26))
        return BR_ENOMEM;
    (*list)[(*count)++] = number;
    return 0;
}

static int chunks_add_value(struct br_chunks *chunks, uint64_t value)
{
    return chunks_add_number((uint64_t **)(void *)&chunks->values, &chunks->n_values,
                             &chunks->cap_values, value);
}

static int chunks_add_attribute(struct br_chunks *chunks, uint64_t index)
{
    if (index > UINT32_MAX || !chunks_is_label(chunks, (uint32_t)index))
        return 0;
    if (br_grow(&chunks->sample_labels, &chunks->cap_sample_labels,
                (size_t)chunks->n_sample_labels + 1, sizeof *chunks->sample_labels, 1u << 20))
        return BR_ENOMEM;
    chunks->sample_labels[chunks->n_sample_labels++] = (uint32_t)index;
    return 0;
}

static int chunks_read_packed(struct br_chunks *chunks, const struct br_field *field)
{
    const uint8_t *p = field->data, *end = p + field->value;
    uint64_t value;
    int rc = 0;
    if (field->number == BR_SAMPLE_TIMES) {
        for (; !rc && end - p >= 8; p += 8)
            rc = chunks_add_number(&chunks->times, &chunks->n_times, &chunks->cap_times,
                                   br_load64(p));
        return rc;
    }
    while (!rc && p < end && (p = br_scan_varint(p, end, &value)))
        rc = field->number == BR_SAMPLE_VALUES ? chunks_add_value(chunks, value)
                                               : chunks_add_attribute(chunks, value);
    return rc;
}

static int chunks_read_sample(struct br_chunks *chunks, const uint8_t *p, const uint8_t *end)
{
    struct br_field field;
    int rc = 0;
    chunks->n_values = chunks->n_times = chunks->n_sample_labels = 0;
    chunks->stack = chunks->link = 0;
    while (!rc && p < end && (p = br_scan(p, end, &field))) {
        switch (br_scan_tag(&field)) {
        case BR_SCAN_VARINT(BR_SAMPLE_STACK):
            chunks->stack = field.value;
            break;
        case BR_SCAN_VARINT(BR_SAMPLE_LINK):
            chunks->link = field.value;
            break;
        case BR_SCAN_LEN(BR_SAMPLE_ATTRIBUTES):
        case BR_SCAN_LEN(BR_SAMPLE_VALUES):
        case BR_SCAN_LEN(BR_SAMPLE_TIMES):
            rc = chunks_read_packed(chunks, &field);
            break;
        case BR_SCAN_VARINT(BR_SAMPLE_ATTRIBUTES):
            rc = chunks_add_attribute(chunks, field.value);
            break;
        case BR_SCAN_VARINT(BR_SAMPLE_VALUES):
            rc = chunks_add_value(chunks, field.value);
            break;
        case BR_TAG(BR_SAMPLE_TIMES, BR_WIRE_I64):
            rc = chunks_add_number(&chunks->times, &chunks->n_times, &chunks->cap_times,
                                   field.value);
            break;
        default:
            break;
        }
    }
    return rc ? chunks_no_memory(chunks) : 0;
}

static int chunks_add_row(struct br_chunks *chunks, const struct br_sample_row *sample,
                          uint64_t time_ns, int64_t value)
{
    struct br_store_totals *totals = chunks->totals;
    if (chunks->n_rows == chunks->cap_rows &&
        br_grow(&chunks->rows, &chunks->cap_rows, (size_t)chunks->n_rows + 1, sizeof *chunks->rows,
                BR_SAMPLES_WAITING))
        return chunks_no_memory(chunks);
    struct br_sample_row *row = &chunks->rows[chunks->n_rows++];
    *row = *sample;
    row->time_ns = br_sql_time(time_ns);
    row->value = value;
    totals->sample_from = row->time_ns < totals->sample_from ? row->time_ns : totals->sample_from;
    totals->sample_until =
        row->time_ns > totals->sample_until ? row->time_ns : totals->sample_until;
    totals->n_samples++;
    return chunks->n_rows < BR_SAMPLES_WAITING ? 0 : br_chunks_flush(chunks, chunks->err);
}

/* Adds the rows of a sample, depending on its values and times:
 *
 * - as many values as times: one row for each value
 * - times without values: one row with the value 1 for each time
 * - otherwise: one row for the sum of the values
 *
 * All values may be multiplied by the period of the profile. */
static int chunks_add_rows(struct br_chunks *chunks, const struct br_sample_row *sample)
{
    const struct br_pprof_group_type *type = chunks->type;
    uint64_t time_ns = chunks->group->out->time_ns;
    bool periods = type->times_period || (!chunks->n_values && type->counts_period);
    int64_t factor = periods ? chunks->group->period : 1, sum = 0;
    int rc = 0;
    if (chunks->n_times && (chunks->n_values == chunks->n_times || !chunks->n_values)) {
        for (uint32_t i = 0; i < chunks->n_times && !rc; i++)
            rc = chunks_add_row(chunks, sample, chunks->times[i],
                                br_product(chunks->n_values ? chunks->values[i] : 1, factor));
        return rc;
    }
    for (uint32_t i = 0; i < chunks->n_values; i++)
        sum = br_sum(sum, chunks->values[i]);
    return chunks_add_row(chunks, sample, chunks->n_times ? chunks->times[0] : time_ns,
                          br_product(sum, factor));
}

static int chunks_add_sample(struct br_chunks *chunks, const struct br_field *field)
{
    struct br_sample_row row = {.series = 0};
    int rc = chunks_read_sample(chunks, field->data, field->data + field->value);
    if (!rc)
        rc = chunks_node(chunks, chunks->stack, &row.node);
    if (!rc)
        rc = chunks_series(chunks, &row.series);
    if (rc)
        return rc;
    const struct link *link = chunks_link(chunks, chunks->link);
    row.span_id = link->span_id;
    row.trace_id = link->trace_id;
    return chunks_add_rows(chunks, &row);
}

/* --- Groups and items ------------------------------------------------------------------------ */

static int chunks_begin_item(struct br_chunks *chunks, const struct br_dictionary_view *view)
{
    struct memo *memo = &chunks->memo;
    const uint32_t *count = view->count;
    struct br_arena *arena = &memo->arena;
    memo->view = view;
    memo->functions = br_arena_calloc(arena, count[BR_TABLE_FUNCTION], sizeof *memo->functions);
    memo->stacks = br_arena_calloc(arena, count[BR_TABLE_STACK], sizeof *memo->stacks);
    memo->links = br_arena_calloc(arena, count[BR_TABLE_LINK], sizeof *memo->links);
    memo->locations = br_arena_calloc(arena, count[BR_TABLE_LOCATION], sizeof *memo->locations);
    memo->mappings = br_arena_calloc(arena, count[BR_TABLE_MAPPING], sizeof *memo->mappings);
    memo->attributes[0] = br_arena_calloc(arena, count[BR_TABLE_ATTRIBUTE], 1);
    memo->attributes[1] = br_arena_calloc(arena, count[BR_TABLE_ATTRIBUTE], 1);
    memo->label_series =
        br_arena_calloc(arena, count[BR_TABLE_ATTRIBUTE], sizeof *memo->label_series);
    if (!memo->functions || !memo->stacks || !memo->links || !memo->locations)
        return chunks_no_memory(chunks);
    if (!memo->mappings || !memo->attributes[0] || !memo->attributes[1] || !memo->label_series)
        return chunks_no_memory(chunks);
    return 0;
}

static void chunks_copy_text(char *out, size_t size, struct br_entry entry)
{
    size_t len = entry.len < size - 1 ? entry.len : size - 1;
    len = len ? br_utf8_valid(entry.data, len) : 0;
    for (size_t i = 0; i < len; i++)
        out[i] = entry.data[i] ? (char)entry.data[i] : ' ';
    out[len] = '\0';
}

static void chunks_begin_type(struct br_chunks *chunks, const struct br_pprof_group_type *type)
{
    const struct br_pprof_group *group = chunks->group;
    struct br_entry entries[] = {type->type, type->unit, group->period_type, group->period_unit};
    chunks->type = type;
    for (size_t i = 0; i < BR_COUNT(entries); i++)
        chunks_copy_text(chunks->texts[i], sizeof chunks->texts[i], entries[i]);
    (void)snprintf(chunks->profile_type, sizeof chunks->profile_type, "%.128s:%s:%s:%s:%s",
                   group->out->name, chunks->texts[0], chunks->texts[1], chunks->texts[2],
                   chunks->texts[3]);
    chunks->n_types++;
}

static int chunks_on_group(const struct br_pprof_group *group, void *arg)
{
    struct br_chunks *chunks = arg;
    struct br_series_made made;
    struct br_pprof_out out = *group->out;
    int rc = chunks->memo.view ? 0 : chunks_begin_item(chunks, group->view);
    if (rc)
        return rc;
    if (!out.time_ns)
        out.time_ns = br_store_now_ns();
    struct br_pprof_group timed = *group;
    timed.out = &out;
    if (!br_series_make(chunks->labels, &out, &made))
        return chunks_no_memory(chunks);
    chunks->base = made.labels;
    chunks->n_base = made.count;
    chunks->group = &timed;
    for (uint32_t i = 0; i < out.n_types && !rc; i++) {
        const uint8_t *p = group->types[i].body, *end = group->types[i].end;
        struct br_field field;
        chunks_begin_type(chunks, &group->types[i]);
        while (!rc && p < end && (p = br_scan(p, end, &field)))
            if (br_scan_tag(&field) == BR_SCAN_LEN(BR_PROFILE_SAMPLES))
                rc = chunks_add_sample(chunks, &field);
    }
    return rc;
}

int br_chunks_add(struct br_chunks *chunks, const struct br_item *item, struct br_err *err)
{
    struct br_err why = {.code = 0};
    chunks->lists = br_map_new(LISTS_MAX);
    if (!chunks->lists)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    chunks->err = &why;
    br_arena_init(&chunks->memo.arena, MEMO_GROWTH * item->size + (1u << 20));
    chunks->budget = BR_CHUNKS_GROWTH * item->size + BR_CHUNKS_ROOM;
    chunks->shortened = false;
    chunks->memory_budget = BR_CHUNKS_HELD * item->size + BR_CHUNKS_HELD_FREE;
    br_stack_tree_allow(&chunks->stacks, item->size / BR_CHUNKS_NODE_BYTES + BR_CHUNKS_NODES_FREE);
    int rc = br_pprof_groups(chunks->reader, item, chunks_on_group, chunks);
    /* The rows keep pointers to trace ids in the item, which is valid until the transaction
     * ends. */
    br_series_forget(chunks->labels);
    br_arena_release(&chunks->memo.arena);
    chunks->memo.view = NULL;
    br_map_free(chunks->lists, NULL);
    chunks->lists = NULL;
    chunks->err = NULL;
    chunks->n_shortened += chunks->shortened;
    if (!rc)
        return 0;
    return br_err_set(err, rc == BR_ETOOBIG ? BR_EINVAL : rc, "%s",
                      *why.text ? why.text : br_strerror(rc));
}

uint64_t br_chunks_take_shortened(struct br_chunks *chunks)
{
    uint64_t count = chunks->n_shortened;
    chunks->n_shortened = 0;
    return count;
}

/* --- Chunks ---------------------------------------------------------------------------------- */

/* Adds a chunk to the totals of its series. */
static int chunks_add_total(struct br_chunks *chunks, const struct br_sums_part *chunk)
{
    sqlite3_stmt *statement = br_sql_statement(chunks->sql, BR_SQL_SERIES_TOTAL_ADD);
    if (statement) {
        (void)sqlite3_bind_int64(statement, 1, chunk->series);
        (void)sqlite3_bind_int64(statement, 2, chunk->min_time);
        (void)sqlite3_bind_int64(statement, 3, chunk->max_time);
        (void)sqlite3_bind_int64(statement, 4, (int64_t)chunk->n_samples);
        (void)sqlite3_bind_int64(statement, 5, chunk->value);
    }
    return br_sql_run(chunks->sql, statement, chunks->err);
}

static int chunks_insert(struct br_chunks *chunks, const struct br_sample_row *rows, uint32_t count)
{
    int64_t min = rows[0].time_ns, max = min, value = 0;
    for (uint32_t i = 0; i < count; i++) {
        min = rows[i].time_ns < min ? rows[i].time_ns : min;
        max = rows[i].time_ns > max ? rows[i].time_ns : max;
        value = br_sum(value, rows[i].value);
    }
    br_pack_clear(&chunks->compressed[0]);
    br_pack_clear(&chunks->compressed[1]);
    if (!br_pack_compress(chunks->codec, LEVEL, &chunks->packer.totals, &chunks->compressed[0]) ||
        !br_pack_compress(chunks->codec, LEVEL, &chunks->packer.samples, &chunks->compressed[1]))
        return chunks_no_memory(chunks);
    sqlite3_stmt *statement = br_sql_statement(chunks->sql, BR_SQL_CHUNK_ADD);
    if (statement) {
        (void)sqlite3_bind_int64(statement, 1, ++chunks->last_chunk);
        (void)sqlite3_bind_int64(statement, 2, rows[0].series);
        (void)sqlite3_bind_int64(statement, 3, min);
        (void)sqlite3_bind_int64(statement, 4, max);
        (void)sqlite3_bind_int64(statement, 5, count);
        (void)sqlite3_bind_int64(statement, 6, value);
        for (int i = 0; i < 2; i++)
            (void)sqlite3_bind_blob64(statement, 7 + i, chunks->compressed[i].data,
                                      chunks->compressed[i].len, SQLITE_STATIC);
    }
    int rc = br_sql_run(chunks->sql, statement, chunks->err);
    struct br_sums_part part = {.series = rows[0].series,
                                .id = chunks->last_chunk,
                                .first = chunks->last_chunk,
                                .last = chunks->last_chunk,
                                .min_time = min,
                                .max_time = max,
                                .n_samples = count,
                                .value = value};
    if (!rc)
        rc = chunks_add_total(chunks, &part);
    return rc ? rc : br_sums_add(chunks->sums, &part, &chunks->packer, chunks->err);
}

static int chunks_insert_id(struct br_chunks *chunks, int64_t id)
{
    sqlite3_stmt *statement = br_sql_statement(chunks->sql, BR_SQL_SAMPLE_ID_ADD);
    if (statement) {
        (void)sqlite3_bind_int64(statement, 1, id);
        (void)sqlite3_bind_int64(statement, 2, chunks->last_chunk);
    }
    return br_sql_run(chunks->sql, statement, chunks->err);
}

/* Inserts the ids under which queries find the chunk: the ids of its spans, and hashes of its
 * trace ids. */
static int chunks_insert_ids(struct br_chunks *chunks, const struct br_sample_row *rows,
                             uint32_t count)
{
    const uint8_t *trace_id = NULL;
    int rc = 0;
    for (uint32_t i = 0; i < count && !rc; i++) {
        if (rows[i].span_id && (!i || rows[i].span_id != rows[i - 1].span_id))
            rc = chunks_insert_id(chunks, (int64_t)rows[i].span_id);
        if (rc || !rows[i].trace_id || rows[i].trace_id == trace_id ||
            (trace_id && !memcmp(trace_id, rows[i].trace_id, 16)))
            continue;
        trace_id = rows[i].trace_id;
        rc = chunks_insert_id(chunks, br_blocks_trace_hash(chunks->totals->secret, trace_id));
    }
    return rc;
}

int br_chunks_flush(struct br_chunks *chunks, struct br_err *err)
{
    struct br_err *before = chunks->err;
    struct br_sample_row *rows = chunks->rows;
    int rc = 0;
    chunks->err = err;
    br_sample_rows_sort(rows, chunks->n_rows);
    for (uint32_t i = 0, next; i < chunks->n_rows && !rc; i = next) {
        for (next = i + 1; next < chunks->n_rows && next - i < BR_CHUNK_SAMPLES &&
                           rows[next].series == rows[i].series;
             next++) {
        }
        if (!br_sample_rows_pack(&chunks->packer, rows + i, next - i))
            rc = chunks_no_memory(chunks);
        if (!rc)
            rc = chunks_insert(chunks, rows + i, next - i);
        if (!rc)
            rc = chunks_insert_ids(chunks, rows + i, next - i);
    }
    chunks->n_rows = 0;
    if (!rc)
        rc = br_stack_tree_save(&chunks->stacks, chunks->sql, chunks->codec, err);
    chunks->err = before;
    return rc;
}

bool br_chunks_full(const struct br_chunks *chunks)
{
    return br_stack_tree_full(&chunks->stacks) || br_map_count(chunks->series) >= BR_SERIES_MAX / 2;
}

/* --- Loading and freeing --------------------------------------------------------------------- */

static int chunks_load_series(struct br_chunks *chunks, struct br_err *err)
{
    sqlite3_stmt *statement = br_sql_statement(chunks->sql, BR_SQL_SERIES);
    int rc = 0;
    while (br_sql_row(chunks->sql, statement, &rc, err)) {
        uintptr_t id = (uintptr_t)sqlite3_column_int64(statement, 0);
        if (br_map_put(chunks->series, sqlite3_column_blob(statement, 3),
                       (size_t)sqlite3_column_bytes(statement, 3), (void *)id, NULL))
            return br_err_set(err, BR_ENOMEM, "out of memory");
    }
    return rc;
}

int br_chunks_load(struct br_chunks *chunks, struct br_err *err)
{
    int rc = 0;
    br_stack_tree_release(&chunks->stacks);
    br_stack_tree_init(&chunks->stacks);
    br_map_free(chunks->series, NULL);
    chunks->series = br_map_new(BR_SERIES_MAX);
    chunks->n_rows = 0;
    if (!chunks->series)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    sqlite3_stmt *statement = br_sql_statement(chunks->sql, BR_SQL_CHUNK_LAST);
    if (br_sql_row(chunks->sql, statement, &rc, err)) {
        chunks->last_chunk = sqlite3_column_int64(statement, 0);
        (void)sqlite3_reset(statement);
    }
    if (!rc)
        rc = br_sums_load(chunks->sums, err);
    if (!rc)
        rc = chunks_load_series(chunks, err);
    return rc ? rc : br_stack_tree_load(&chunks->stacks, chunks->sql, chunks->codec, err);
}

struct br_chunks *br_chunks_new(struct br_sql *sql, struct br_store_totals *totals,
                                struct br_pack_codec *codec)
{
    static const struct br_series_config config = {.max = BR_SERIES_LABELS_MAX};
    struct br_chunks *chunks = br_calloc(1, sizeof *chunks);
    if (!chunks)
        return NULL;
    chunks->sql = sql;
    chunks->totals = totals;
    chunks->codec = codec;
    chunks->encoded.max = LABELS_LEN;
    chunks->list.max = LABELS_LEN;
    chunks->reader = br_pprof_writer_new(NULL);
    chunks->labels = br_series_new(&config);
    chunks->sums = br_sums_new(sql, codec);
    br_stack_tree_init(&chunks->stacks);
    if (chunks->reader && chunks->labels && chunks->sums)
        return chunks;
    br_chunks_free(chunks);
    return NULL;
}

void br_chunks_free(struct br_chunks *chunks)
{
    if (!chunks)
        return;
    br_stack_tree_release(&chunks->stacks);
    br_map_free(chunks->series, NULL);
    br_pprof_writer_free(chunks->reader);
    br_series_free(chunks->labels);
    br_sums_free(chunks->sums);
    br_arena_release(&chunks->memo.arena);
    br_str_release(&chunks->encoded);
    br_str_release(&chunks->list);
    br_free(chunks->values);
    br_free(chunks->times);
    br_free(chunks->sample_labels);
    br_free(chunks->rows);
    br_sample_packer_release(&chunks->packer);
    br_pack_release(&chunks->compressed[0]);
    br_pack_release(&chunks->compressed[1]);
    br_free(chunks);
}
