/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/dictionary/merger.h"
#include "otlp/plain.h"

/* The lookups in a source table end when the missing entries exceed half of the entries looked
 * up plus this number. */
#define MISSES_MAX 32u

/* --- Entries in their usual encoding -------------------------------------------------------- */

/* State of comparing an existing entry with the bytes that would be written for a new entry. The
 * new entry is not written to memory, because bytes that are stored one by one are slow to load
 * as words. */
struct recall_expect {
    const uint8_t *p, *end;
    uint64_t differs;
};

/* Compares the next bytes of the existing entry with the output of br_merger_put_scalar. May
 * read up to seven bytes after the entry's end; a table always has that much space. */
static inline void recall_expect_scalar(struct recall_expect *expect, uint32_t field,
                                        uint64_t value)
{
    uint64_t want;
    unsigned n;
    if (value == 0)
        return;
    if (__builtin_expect(expect->p >= expect->end, 0)) {
        expect->differs = 1;
        return;
    }
    if (__builtin_expect(value < 0x4000, 1)) {
        n = 2 + (value >= 0x80);
        want = br_varint_short((uint32_t)value);
    } else {
        n = 1 + (unsigned)br_varint_size(value);
        if (__builtin_expect(n > 8, 0)) {
            expect->differs = 1;
            return;
        }
        want = br_varint_bytes(value);
    }
    want = want << 8 | BR_TAG(field, BR_WIRE_VARINT);
    expect->differs |= (br_load64(expect->p) ^ want) << (64 - 8 * n);
    expect->p += n;
}

/* Replaces `*index`, an index of the source, by the index of the same entry in the merged
 * dictionary. Returns false if the entry has not been merged. */
static inline bool recall_index(const struct br_merge *merge, enum br_table kind, uint64_t *index)
{
    const struct br_source_table *table = &merge->source.tables[kind];
    uint32_t mapped = *index < table->count ? table->map[*index] : 1;
    *index = mapped - 1;
    return mapped != 0;
}

/* Returns the entry of table `kind` that last referred to entry `used` of table `used_kind`, or
 * BR_INTERN_NONE. The result is a good guess, because most functions have a distinct name, and
 * most locations a distinct function. */
static inline uint32_t recall_user(const struct br_merge *merge, enum br_table kind,
                                   enum br_table used_kind, uint64_t used)
{
    uint32_t user = merge->tables[used_kind].entries[used].user;
    return user < merge->tables[kind].count ? user : BR_INTERN_NONE;
}

static inline uint32_t recall_function(const struct br_merge *merge, const uint8_t *p, uint32_t len)
{
    const struct br_intern *table = &merge->tables[BR_TABLE_FUNCTION];
    struct br_plain_function function;
    if (!br_plain_function(p, p + len, &function))
        return BR_INTERN_NONE;
    uint64_t *values = function.values;
    for (uint32_t k = 0; k < 3; k++)
        if (values[k] && !recall_index(merge, BR_TABLE_STRING, &values[k]))
            return BR_INTERN_NONE;
    uint32_t user = recall_user(merge, BR_TABLE_FUNCTION, BR_TABLE_STRING, values[0]);
    if (user == BR_INTERN_NONE)
        return user;
    const struct br_interned *entry = &table->entries[user];
    const uint8_t *at = table->bytes + entry->at;
    struct recall_expect expect = {at, at + entry->len, 0};
    for (uint32_t k = 0; k < 4; k++)
        recall_expect_scalar(&expect, BR_FUNCTION_NAME + k, values[k]);
    bool same = !expect.differs && expect.p == expect.end;
    return same ? user : BR_INTERN_NONE;
}

static inline uint32_t recall_location(const struct br_merge *merge, const uint8_t *p, uint32_t len)
{
    const struct br_intern *table = &merge->tables[BR_TABLE_LOCATION];
    struct br_plain_location location;
    if (!br_plain_location(p, p + len, &location) ||
        !recall_index(merge, BR_TABLE_FUNCTION, &location.line[0]) ||
        !recall_index(merge, BR_TABLE_MAPPING, &location.mapping))
        return BR_INTERN_NONE;
    uint32_t user = recall_user(merge, BR_TABLE_LOCATION, BR_TABLE_FUNCTION, location.line[0]);
    if (user == BR_INTERN_NONE)
        return user;
    const uint8_t *at = table->bytes + table->entries[user].at;
    struct recall_expect expect = {at + 2, at + table->entries[user].len,
                                   at[0] ^ BR_SCAN_LEN(BR_LOCATION_LINES)};
    for (uint32_t k = 0; k < 3; k++)
        recall_expect_scalar(&expect, BR_LINE_FUNCTION + k, location.line[k]);
    expect.differs |= (uint64_t)(expect.p - at - 2) ^ at[1];
    recall_expect_scalar(&expect, BR_LOCATION_MAPPING, location.mapping);
    recall_expect_scalar(&expect, BR_LOCATION_ADDRESS, location.address);
    bool same = !expect.differs && expect.p == expect.end;
    return same ? user : BR_INTERN_NONE;
}

/* --- Tables --------------------------------------------------------------------------------- */

/* Returns true if reading the whole source table is worthwhile: it is at most about twice as
 * large as the merged table in which its entries are looked up. */
static bool recall_is_worth_it(const struct br_merge *merge, enum br_table kind)
{
    return merge->source.tables[kind].count / 2 <= merge->tables[kind].count;
}

/* Returns the index of the first source entry to look up. Entries kept from the previous
 * dictionary have a merged index already, or were not used. */
static uint32_t recall_start(const struct br_source_table *table)
{
    return table->n_kept > 1 ? table->n_kept : 1;
}

static bool recall_goes_on(const struct br_source_table *table, uint32_t index, uint32_t missing)
{
    return index < table->count && missing <= (index - table->n_kept) / 2 + MISSES_MAX;
}

/* Looks up the next strings from `*index` on, and advances `*index` past them. Returns the
 * number of strings that the merged table does not contain. */
static uint32_t recall_group(struct br_merge *merge, uint32_t *index)
{
    struct br_source_table *table = &merge->source.tables[BR_TABLE_STRING];
    struct br_intern_text texts[BR_INTERN_MANY];
    uint32_t merged[BR_INTERN_MANY], first = *index, n = 0, missing = 0;
    for (; n < BR_INTERN_MANY && first + n < table->count && !table->map[first + n]; n++) {
        const struct br_source_entry *entry = &table->entries[first + n];
        texts[n] = (struct br_intern_text){table->base + entry->at, entry->len};
    }
    br_intern_find_many(&merge->tables[BR_TABLE_STRING], texts, n, merged);
    for (uint32_t i = 0; i < n; i++) {
        missing += merged[i] == BR_INTERN_NONE;
        /* 0 if the string was not found, because BR_INTERN_NONE + 1 is 0 */
        table->map[first + i] = merged[i] + 1;
    }
    *index += n;
    return missing;
}

/* Looks up all strings of the source. Strings that follow each other in the source mostly follow
 * each other in the merged table, too. A string at the expected place is found without hashing. */
static void recall_strings(struct br_merge *merge)
{
    struct br_source_table *table = &merge->source.tables[BR_TABLE_STRING];
    uint32_t missing = 0;
    for (uint32_t i = recall_start(table); recall_goes_on(table, i, missing);) {
        const struct br_source_entry *entry = &table->entries[i];
        uint32_t guess = table->map[i - 1];
        if (table->map[i]) {
            i++;
        } else if (guess && br_intern_is(&merge->tables[BR_TABLE_STRING], guess,
                                         table->base + entry->at, entry->len)) {
            table->map[i++] = guess + 1;
        } else {
            missing += recall_group(merge, &i);
        }
    }
}

static inline uint32_t recall_plain(const struct br_merge *merge, enum br_table kind,
                                    const uint8_t *body, uint32_t len)
{
    switch (kind) {
    case BR_TABLE_FUNCTION:
        return recall_function(merge, body, len);
    case BR_TABLE_LOCATION:
        return recall_location(merge, body, len);
    default:
        return BR_INTERN_NONE;
    }
}

static inline __attribute__((always_inline)) void recall_table(struct br_merge *merge,
                                                               enum br_table kind)
{
    struct br_source_table *table = &merge->source.tables[kind];
    uint32_t missing = 0;
    if (!recall_is_worth_it(merge, kind))
        return;
    for (uint32_t i = recall_start(table); recall_goes_on(table, i, missing) && !merge->rc; i++) {
        const struct br_source_entry *entry = &table->entries[i];
        if (table->map[i])
            continue;
        uint32_t merged = recall_plain(merge, kind, table->base + entry->at, entry->len);
        if (merged == BR_INTERN_NONE)
            merged = br_merger_recall_entry(merge, kind, i);
        missing += merged == BR_INTERN_NONE;
        table->map[i] = merged + 1;
    }
}

void br_merger_recall(struct br_merge *merge)
{
    if (merge->rc)
        return;
    if (recall_is_worth_it(merge, BR_TABLE_STRING))
        recall_strings(merge);
    merge->recalling = true;
    recall_table(merge, BR_TABLE_ATTRIBUTE);
    recall_table(merge, BR_TABLE_MAPPING);
    recall_table(merge, BR_TABLE_FUNCTION);
    recall_table(merge, BR_TABLE_LOCATION);
    /* Ignore errors of the lookups: the entries may be unused. If an entry is used,
     * br_merger_index reports the error. */
    merge->recalling = merge->unknown = false;
    merge->rc = 0;
}
