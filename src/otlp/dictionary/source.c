/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/dictionary/source.h"

#include "base/mem.h"
#include "core/host.h"
#include "otlp/scan.h"

#define COMPARE_STEP 512u

/* What survives of a table from the dictionary before. */
struct kept {
    uint32_t n;   /* entries that begin with the same bytes */
    bool seen;    /* the table has been met in the new dictionary */
    bool extends; /* all old entries are there, in front */
};

static size_t common_prefix(const uint8_t *a, const uint8_t *b, size_t len)
{
    size_t i = 0;
    while (len - i >= COMPARE_STEP && memcmp(a + i, b + i, COMPARE_STEP) == 0)
        i += COMPARE_STEP;
    while (len - i >= 8 && br_load64(a + i) == br_load64(b + i))
        i += 8;
    while (i < len && a[i] == b[i])
        i++;
    return i;
}

/* Number of entries in front that end within `len` bytes. */
static uint32_t whole_entries(const struct br_source_table *t, size_t len)
{
    uint32_t low = 0, high = t->run_n;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if ((size_t)t->entries[mid].at + t->entries[mid].len <= len)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* `p` is where a table starts. Takes over what is as before; returns where it differs. */
static const uint8_t *keep_entries(struct br_source_table *t, struct kept *k, const uint8_t *p,
                                   const uint8_t *end)
{
    size_t len = (size_t)(end - p) < t->run_len ? (size_t)(end - p) : t->run_len;
    if (len)
        len = common_prefix(t->base, p, len);
    k->seen = true;
    k->n = len == t->run_len ? t->run_n : whole_entries(t, len);
    k->extends = k->n == t->n;
    t->base = p;
    t->n = t->run_n = k->n;
    t->run_len = k->n ? t->entries[k->n - 1].at + t->entries[k->n - 1].len : 0;
    return p + t->run_len;
}

static int add_entry(struct br_source *s, struct br_source_table *t, const struct br_field *f,
                     const uint8_t *next)
{
    if (t->n == t->cap_entries) {
        int rc = br_budget_grow(&s->budget, &t->entries, &t->cap_entries, (size_t)t->n + 1,
                                sizeof *t->entries);
        if (rc)
            return rc;
    }
    if (t->run_n == t->n && f->at == t->base + t->run_len) {
        t->run_n++;
        t->run_len = (uint32_t)(next - t->base);
    }
    t->entries[t->n++] =
        (struct br_source_entry){(uint32_t)(f->data - t->base), (uint32_t)f->value};
    return 0;
}

static int index_tables(struct br_source *s, struct kept *kept, const uint8_t *p,
                        const uint8_t *end)
{
    while (p < end) {
        struct br_field f;
        const uint8_t *next = br_scan(p, end, &f);
        if (!next)
            return BR_EINVAL;
        if (f.number > BR_TABLES || f.wire != BR_WIRE_LEN) {
            p = next;
            continue;
        }
        uint32_t i = f.number - 1;
        if (!kept[i].seen) {
            const uint8_t *differs = keep_entries(&s->tables[i], &kept[i], p, end);
            if (differs != p) {
                p = differs;
                continue;
            }
        }
        int rc = add_entry(s, &s->tables[i], &f, next);
        if (rc)
            return rc;
        p = next;
    }
    return 0;
}

/* Entries that stay may keep their place only where all that they refer to keeps its own. */
static int settle_maps(struct br_source *s, const struct kept *kept)
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
        struct br_source_table *t = &s->tables[which];
        bool holds = (refers[which] & ~stable) == 0;
        if (holds && kept[which].extends)
            stable |= 1u << which;
        int rc = br_budget_grow(&s->budget, &t->map, &t->cap_map, t->n, sizeof *t->map);
        if (rc)
            return rc;
        uint32_t n = holds ? kept[which].n : 0;
        if (t->n > n)
            memset(t->map + n, 0, (t->n - n) * sizeof *t->map);
        if (t->n)
            t->map[0] = 1;
    }
    return 0;
}

/* The dictionary's bytes in one piece, in a buffer of which the caller owns a reference; NULL for
 * none. */
static int find_dictionary(const struct br_item *item, struct br_buf **ret, const uint8_t **data,
                           size_t *len)
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

int br_source_load(struct br_source *s, const struct br_item *item)
{
    struct kept kept[BR_TABLES] = {0};
    struct br_buf *buf;
    const uint8_t *data = NULL;
    size_t len;
    int rc = find_dictionary(item, &buf, &data, &len);
    if (rc) {
        br_source_forget(s);
        return rc;
    }
    if (len)
        rc = index_tables(s, kept, data, data + len);
    for (size_t i = 0; i < BR_TABLES && !rc; i++) {
        struct br_source_table *t = &s->tables[i];
        if (kept[i].seen)
            continue;
        kept[i].extends = t->n == 0;
        t->n = t->run_n = t->run_len = 0;
    }
    if (!rc)
        rc = settle_maps(s, kept);
    br_buf_unref(s->buf);
    s->buf = buf;
    if (rc)
        br_source_forget(s);
    return rc;
}

void br_source_reset_maps(struct br_source *s)
{
    for (size_t i = 0; i < BR_TABLES; i++) {
        struct br_source_table *t = &s->tables[i];
        if (t->n == 0)
            continue;
        memset(t->map, 0, t->n * sizeof *t->map);
        t->map[0] = 1;
    }
}

void br_source_forget(struct br_source *s)
{
    for (size_t i = 0; i < BR_TABLES; i++) {
        struct br_source_table *t = &s->tables[i];
        t->n = t->run_n = t->run_len = 0;
        t->base = NULL;
    }
    s->buf = br_buf_unref(s->buf);
}

void br_source_release(struct br_source *s)
{
    br_source_forget(s);
    for (size_t i = 0; i < BR_TABLES; i++) {
        struct br_source_table *t = &s->tables[i];
        br_budget_free(&s->budget, &t->entries, &t->cap_entries, sizeof *t->entries);
        br_budget_free(&s->budget, &t->map, &t->cap_map, sizeof *t->map);
    }
}
