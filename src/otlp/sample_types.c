/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/sample_types.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "otlp/fields.h"
#include "otlp/scan.h"

/* Calls `fn` for each length-delimited field `number` of a message. */
static void sample_types_each(const uint8_t *p, const uint8_t *end, uint32_t number,
                              void (*fn)(struct br_sample_pairs *pairs, const uint8_t *p,
                                         const uint8_t *end),
                              struct br_sample_pairs *pairs)
{
    struct br_field field;
    while (p && p < end) {
        p = br_scan(p, end, &field);
        if (p && field.number == number && field.wire == BR_WIRE_LEN)
            fn(pairs, field.data, p);
    }
}

static void sample_types_add_pair(struct br_sample_pairs *pairs, const uint64_t index[2],
                                  uint32_t n_samples)
{
    for (unsigned i = 0; i < pairs->count; i++) {
        struct br_sample_pair *pair = &pairs->items[i];
        if (pair->index[0] == index[0] && pair->index[1] == index[1]) {
            pair->n_samples += n_samples;
            return;
        }
    }
    if (pairs->count == BR_SAMPLE_PAIRS_MAX)
        pairs->n_others += n_samples;
    else
        pairs->items[pairs->count++] =
            (struct br_sample_pair){.index = {index[0], index[1]}, .n_samples = n_samples};
}

void br_sample_pairs_add(struct br_sample_pairs *pairs, const uint8_t *value_type,
                         const uint8_t *end, uint32_t n_samples)
{
    uint64_t index[2] = {0, 0};
    struct br_field field;
    for (const uint8_t *p = value_type; p && p < end;) {
        p = br_scan(p, end, &field);
        if (p && field.number == BR_VALUE_TYPE_TYPE)
            index[0] = field.value;
        else if (p && field.number == BR_VALUE_TYPE_UNIT)
            index[1] = field.value;
    }
    sample_types_add_pair(pairs, index, n_samples);
}

static void sample_types_on_profile(struct br_sample_pairs *pairs, const uint8_t *p,
                                    const uint8_t *end)
{
    const uint8_t *type = NULL, *type_end = NULL;
    uint32_t n_samples = 0;
    struct br_field field;
    while (p && p < end) {
        p = br_scan(p, end, &field);
        if (p && field.number == BR_PROFILE_SAMPLES) {
            n_samples++;
        } else if (p && field.number == BR_PROFILE_SAMPLE_TYPE) {
            type = field.data;
            type_end = p;
        }
    }
    br_sample_pairs_add(pairs, type, type_end, n_samples);
}

static void sample_types_on_scope(struct br_sample_pairs *pairs, const uint8_t *p,
                                  const uint8_t *end)
{
    sample_types_each(p, end, BR_SCOPES_RECORDS, sample_types_on_profile, pairs);
}

static uint64_t sample_types_last_index(const struct br_sample_pairs *pairs)
{
    uint64_t last = 0;
    for (unsigned i = 0; i < pairs->count; i++)
        for (unsigned k = 0; k < 2; k++)
            last = pairs->items[i].index[k] > last ? pairs->items[i].index[k] : last;
    return last;
}

/* Finds the strings that the pairs (type and unit) refer to in one part of a dictionary. `*index`
 * is the string index of the part's first string, and is advanced past the part's strings. */
static void sample_types_find(struct br_sample_pairs *pairs, const uint8_t *p, const uint8_t *end,
                              uint64_t *index, uint64_t last)
{
    struct br_field field;
    while (p && p < end && *index <= last) {
        p = br_scan(p, end, &field);
        if (!p || field.number != BR_DICTIONARY_STRINGS)
            continue;
        for (unsigned i = 0; i < pairs->count; i++) {
            for (unsigned k = 0; k < 2; k++) {
                if (pairs->items[i].index[k] != *index)
                    continue;
                pairs->items[i].text[k] = field.data;
                pairs->items[i].len[k] = field.value;
            }
        }
        ++*index;
    }
}

/* Returns the index of the row with the name, or the number of rows if no row has that name. */
static unsigned sample_types_row(const struct br_sample_types *types, const char *name)
{
    unsigned i = 0;
    while (i < types->count && strcmp(types->rows[i].name, name) != 0)
        i++;
    return i;
}

static void sample_types_count(struct br_sample_types *types, const char *name, uint32_t n_samples)
{
    unsigned i = sample_types_row(types, name);
    if (i == types->count && types->count >= BR_SAMPLE_TYPES_MAX - 1) {
        name = BR_SAMPLE_TYPE_OTHER;
        i = sample_types_row(types, name);
    }
    if (i == types->count) {
        types->count++;
        types->rows[i].n_samples = 0;
        (void)snprintf(types->rows[i].name, BR_SAMPLE_TYPE_SIZE, "%s", name);
    }
    types->rows[i].n_samples += n_samples;
}

static void sample_types_count_pair(struct br_sample_types *types,
                                    const struct br_sample_pair *pair)
{
    static const char unset[] = "<unset>";
    char name[BR_SAMPLE_TYPE_SIZE];
    const char *text[2];
    int len[2];
    for (unsigned k = 0; k < 2; k++) {
        bool is_unset = pair->index[k] == 0;
        if (pair->len[k] >= BR_SAMPLE_TYPE_SIZE) {
            sample_types_count(types, BR_SAMPLE_TYPE_OTHER, pair->n_samples);
            return;
        }
        text[k] = is_unset || !pair->text[k] ? unset : (const char *)pair->text[k];
        len[k] = is_unset || !pair->text[k] ? (int)sizeof unset - 1 : (int)pair->len[k];
    }
    int n = snprintf(name, sizeof name, "%.*s:%.*s", len[0], text[0], len[1], text[1]);
    bool fits = n < BR_SAMPLE_TYPE_SIZE &&
                br_utf8_valid((const uint8_t *)name, strlen(name)) == strlen(name);
    sample_types_count(types, fits ? name : BR_SAMPLE_TYPE_OTHER, pair->n_samples);
}

void br_sample_types_resolve(struct br_sample_types *types, struct br_sample_pairs *pairs,
                             const struct br_item *item, const uint8_t *strings)
{
    uint64_t index = 0, last = sample_types_last_index(pairs);
    for (uint32_t i = 0; i < item->n_parts && index <= last; i++) {
        const struct br_part *part = &item->parts[i];
        const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
        if (part->kind != BR_PART_DICTIONARY)
            continue;
        bool here = strings && strings >= p && strings < end;
        sample_types_find(pairs, here ? strings : p, end, &index, last);
    }
    for (unsigned i = 0; i < pairs->count; i++)
        if (pairs->items[i].n_samples)
            sample_types_count_pair(types, &pairs->items[i]);
    if (pairs->n_others)
        sample_types_count(types, BR_SAMPLE_TYPE_OTHER, pairs->n_others);
}

void br_sample_types_add(struct br_sample_types *types, const struct br_item *item)
{
    struct br_sample_pairs pairs;
    pairs.count = 0;
    pairs.n_others = 0;
    for (uint32_t i = 0; i < item->n_parts; i++) {
        const struct br_part *part = &item->parts[i];
        if (part->kind == BR_PART_RESOURCE)
            sample_types_each(part->raw + part->body_at, part->raw + part->raw_len,
                              BR_RESOURCES_SCOPES, sample_types_on_scope, &pairs);
    }
    br_sample_types_resolve(types, &pairs, item, NULL);
}
