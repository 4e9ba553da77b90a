/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/dictionary/merger.h"

#include "base/mem.h"
#include "core/host.h"
#include "otlp/scan.h"

#define COMPARE_STEP 512u

/* Describes the part of a table that is unchanged since the previous dictionary. */
struct kept {
    uint32_t count; /* number of leading entries whose bytes are unchanged */
    bool seen;      /* the table occurs in the new dictionary */
    bool extends;   /* the new table begins with all old entries */
};

static size_t source_common_prefix(const uint8_t *before, const uint8_t *now, size_t len)
{
    size_t i = 0;
    while (len - i >= COMPARE_STEP && memcmp(before + i, now + i, COMPARE_STEP) == 0)
        i += COMPARE_STEP;
    while (len - i >= 8 && br_load64(before + i) == br_load64(now + i))
        i += 8;
    while (i < len && before[i] == now[i])
        i++;
    return i;
}

/* Returns the number of leading entries of a table that end within its first `len` bytes. */
static uint32_t source_whole_entries(const struct br_source_table *table, size_t len)
{
    uint32_t low = 0, high = table->run_n;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if ((size_t)table->entries[mid].at + table->entries[mid].len <= len)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Compares a table that starts at `p` with the table of the previous dictionary, and keeps the
 * leading entries that are equal. Returns the position where the tables differ. */
static const uint8_t *source_keep_entries(struct br_source_table *table, struct kept *kept,
                                          const uint8_t *p, const uint8_t *end)
{
    size_t len = (size_t)(end - p) < table->run_len ? (size_t)(end - p) : table->run_len;
    if (len)
        len = source_common_prefix(table->base, p, len);
    kept->seen = true;
    kept->count = len == table->run_len ? table->run_n : source_whole_entries(table, len);
    kept->extends = kept->count == table->count;
    table->base = p;
    table->count = table->run_n = kept->count;
    table->run_len =
        kept->count ? table->entries[kept->count - 1].at + table->entries[kept->count - 1].len : 0;
    return p + table->run_len;
}

static int source_add_entry(struct br_source *source, struct br_source_table *table,
                            const struct br_field *field, const uint8_t *next)
{
    if (table->count == table->cap_entries) {
        int rc = br_budget_grow(&source->budget, &table->entries, &table->cap_entries,
                                (size_t)table->count + 1, sizeof *table->entries);
        if (rc)
            return rc;
    }
    if (table->run_n == table->count && field->at == table->base + table->run_len) {
        table->run_n++;
        table->run_len = (uint32_t)(next - table->base);
    }
    table->entries[table->count++] =
        (struct br_source_entry){(uint32_t)(field->data - table->base), (uint32_t)field->value};
    return 0;
}

static int source_index_tables(struct br_source *source, struct kept *kept, const uint8_t *p,
                               const uint8_t *end)
{
    while (p < end) {
        struct br_field field;
        const uint8_t *next = br_scan(p, end, &field);
        if (!next)
            return BR_EINVAL;
        if (field.number > BR_TABLES || field.wire != BR_WIRE_LEN) {
            p = next;
            continue;
        }
        uint32_t i = field.number - 1;
        if (!kept[i].seen) {
            const uint8_t *differs = source_keep_entries(&source->tables[i], &kept[i], p, end);
            if (differs != p) {
                p = differs;
                continue;
            }
        }
        int rc = source_add_entry(source, &source->tables[i], &field, next);
        if (rc)
            return rc;
        p = next;
    }
    return 0;
}

/* Keeps the merged indices of a table's leading entries if all entries that they refer to keep
 * their indices. Clears the merged indices of the other entries. */
static int source_update_maps(struct br_source *source, const struct kept *kept)
{
    static const enum br_table order[] = {BR_TABLE_STRING,    BR_TABLE_LINK,    BR_TABLE_FUNCTION,
                                          BR_TABLE_ATTRIBUTE, BR_TABLE_MAPPING, BR_TABLE_LOCATION,
                                          BR_TABLE_STACK};
    static const unsigned refers[BR_TABLES] = {
        [BR_TABLE_FUNCTION] = 1u << BR_TABLE_STRING,
        [BR_TABLE_ATTRIBUTE] = 1u << BR_TABLE_STRING,
        [BR_TABLE_MAPPING] = 1u << BR_TABLE_STRING | 1u << BR_TABLE_ATTRIBUTE,
        [BR_TABLE_LOCATION] =
            1u << BR_TABLE_MAPPING | 1u << BR_TABLE_FUNCTION | 1u << BR_TABLE_ATTRIBUTE,
        [BR_TABLE_STACK] = 1u << BR_TABLE_LOCATION,
    };
    unsigned stable = 0;
    for (size_t i = 0; i < BR_TABLES; i++) {
        enum br_table which = order[i];
        struct br_source_table *table = &source->tables[which];
        bool stays = (refers[which] & ~stable) == 0;
        if (stays && kept[which].extends)
            stable |= 1u << which;
        int rc = br_budget_grow(&source->budget, &table->map, &table->cap_map, table->count,
                                sizeof *table->map);
        if (rc)
            return rc;
        uint32_t n = table->n_kept = stays ? kept[which].count : 0;
        if (table->count > n)
            memset(table->map + n, 0, (table->count - n) * sizeof *table->map);
        if (table->count)
            table->map[0] = 1;
    }
    return 0;
}

/* Finds the bytes of the dictionary and makes them contiguous. Stores a reference to the buffer
 * of the dictionary's bytes in `*ret`; the caller owns the reference. Stores NULL if the item
 * has no dictionary. Returns 0 or BR_ENOMEM. */
static int source_find_dictionary(const struct br_item *item, struct br_buf **ret,
                                  const uint8_t **data, size_t *len)
{
    const struct br_part *only = NULL;
    size_t total = 0, n = 0;
    for (uint32_t i = 0; i < item->n_parts; i++) {
        const struct br_part *part = &item->parts[i];
        if (part->kind != BR_PART_DICTIONARY)
            continue;
        only = part;
        n++;
        total += part->raw_len - part->body_at;
    }
    *ret = NULL;
    *len = 0;
    if (n == 0)
        return 0;
    if (n == 1 && only->buf) {
        *ret = br_buf_ref(only->buf);
        *data = only->raw + only->body_at;
        *len = total;
        return 0;
    }
    struct br_buf *buf = br_buf_new(item->host->pool, total);
    if (!buf)
        return BR_ENOMEM;
    for (uint32_t i = 0; i < item->n_parts; i++) {
        const struct br_part *part = &item->parts[i];
        if (part->kind != BR_PART_DICTIONARY)
            continue;
        br_put_bytes(buf->data + buf->len, part->raw + part->body_at,
                     part->raw_len - part->body_at);
        buf->len += part->raw_len - part->body_at;
    }
    *ret = buf;
    *data = buf->data;
    *len = total;
    return 0;
}

int br_source_load(struct br_source *source, const struct br_item *item)
{
    struct kept kept[BR_TABLES] = {0};
    struct br_buf *buf;
    const uint8_t *data = NULL;
    size_t len;
    int rc = source_find_dictionary(item, &buf, &data, &len);
    if (rc) {
        br_source_forget(source);
        return rc;
    }
    if (len)
        rc = source_index_tables(source, kept, data, data + len);
    for (size_t i = 0; i < BR_TABLES && !rc; i++) {
        struct br_source_table *table = &source->tables[i];
        if (kept[i].seen)
            continue;
        kept[i].extends = table->count == 0;
        table->count = table->run_n = table->run_len = 0;
    }
    if (!rc)
        rc = source_update_maps(source, kept);
    br_buf_unref(source->buf);
    source->buf = buf;
    if (rc)
        br_source_forget(source);
    return rc;
}

void br_source_reset_maps(struct br_source *source)
{
    for (size_t i = 0; i < BR_TABLES; i++) {
        struct br_source_table *table = &source->tables[i];
        if (table->count == 0)
            continue;
        memset(table->map, 0, table->count * sizeof *table->map);
        table->map[0] = 1;
    }
}

int br_source_note_used(struct br_source *source, enum br_table table, uint32_t index)
{
    int rc = br_budget_grow(&source->budget, &source->used, &source->cap_used,
                            (size_t)source->n_used + 1, sizeof *source->used);
    if (!rc)
        source->used[source->n_used++] = (struct br_source_used){table, index};
    return rc;
}

void br_source_reset_used(struct br_source *source)
{
    for (uint32_t i = 0; i < source->n_used; i++)
        source->tables[source->used[i].table].map[source->used[i].index] = 0;
    source->n_used = 0;
}

void br_source_forget(struct br_source *source)
{
    for (size_t i = 0; i < BR_TABLES; i++) {
        struct br_source_table *table = &source->tables[i];
        table->count = table->run_n = table->run_len = 0;
        table->base = NULL;
    }
    source->buf = br_buf_unref(source->buf);
}

void br_source_release(struct br_source *source)
{
    br_source_forget(source);
    for (size_t i = 0; i < BR_TABLES; i++) {
        struct br_source_table *table = &source->tables[i];
        br_budget_free(&source->budget, &table->entries, &table->cap_entries,
                       sizeof *table->entries);
        br_budget_free(&source->budget, &table->map, &table->cap_map, sizeof *table->map);
    }
    br_budget_free(&source->budget, &source->used, &source->cap_used, sizeof *source->used);
    source->n_used = 0;
}
