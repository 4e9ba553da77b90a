/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/dictionary/additions.h"

#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/steps.h"
#include "core/host.h"
#include "otlp/fields.h"
#include "wire/protobuf.h"

#define BYTES_MAX (256u << 20)
#define ENTRIES_MAX (1u << 24)

/* Position of an added entry's body in `bytes` of the additions. */
struct br_added {
    uint32_t at, len;
    uint32_t index; /* index of the added entry in its table */
    enum br_table table;
};

/* An entry to look up among the additions. */
struct wanted {
    enum br_table table;
    const void *entry;
    size_t len;
};

void br_additions_init(struct br_additions *additions, const struct br_dictionary_view *view)
{
    *additions = (struct br_additions){0};
    memcpy(additions->count, view->count, sizeof additions->count);
}

void br_additions_release(struct br_additions *additions)
{
    br_index_release(&additions->index);
    br_free(additions->bytes);
    br_free(additions->added);
    additions->bytes = NULL;
    additions->added = NULL;
    additions->fields = (struct br_addition){0};
}

static bool additions_is_wanted(const void *entries, uint32_t place, const void *key)
{
    const struct br_additions *additions = entries;
    const struct br_added *added = &additions->added[place];
    const struct wanted *wanted = key;
    return added->table == wanted->table &&
           br_bytes_equal(additions->bytes + added->at, added->len, wanted->entry, wanted->len);
}

static uint64_t additions_hash(const struct br_additions *additions, enum br_table table,
                               const void *entry, size_t len)
{
    const uint64_t secret[2] = {additions->index.secret[0] + (uint64_t)table,
                                additions->index.secret[1]};
    return br_hash_keyed(secret, entry, len);
}

static uint64_t additions_rehash(const void *entries, uint32_t place)
{
    const struct br_additions *additions = entries;
    const struct br_added *added = &additions->added[place];
    return additions_hash(additions, added->table, additions->bytes + added->at, added->len);
}

/* Appends the entry as a field and describes it in additions->added[n_added]. The caller
 * increments `n_added`. */
static int additions_append(struct br_additions *additions, const struct wanted *wanted)
{
    uint32_t field = (uint32_t)wanted->table + 1, *n = &additions->count[wanted->table];
    size_t len = additions->fields.len,
           most = len + br_len_size(field, wanted->len) + br_len_size(field, 0);
    int rc = br_grow(&additions->bytes, &additions->cap, most, 1, BYTES_MAX);
    if (!rc)
        rc = br_grow(&additions->added, &additions->cap_added, (size_t)additions->n_added + 1,
                     sizeof *additions->added, ENTRIES_MAX);
    if (rc)
        return rc;
    uint8_t *p = additions->bytes + len;
    /* If the table is empty, first add entry 0, which is the empty entry of every table. */
    if (*n == 0) {
        p = br_put_len(p, field, NULL, 0);
        ++*n;
    }
    p = br_put_len(p, field, wanted->entry, wanted->len);
    additions->fields = (struct br_addition){additions->bytes, (size_t)(p - additions->bytes)};
    additions->added[additions->n_added] =
        (struct br_added){.at = (uint32_t)(additions->fields.len - wanted->len),
                          .len = (uint32_t)wanted->len,
                          .index = (*n)++,
                          .table = wanted->table};
    return 0;
}

uint32_t br_additions_add(struct br_additions *additions, enum br_table table, const void *entry,
                          size_t len)
{
    const struct wanted wanted = {table, entry, len};
    /* the index is initialised at the first entry: it needs random bytes, which are expensive, and
     * most items get no additions */
    if (!additions->index.max)
        br_index_init(&additions->index, ENTRIES_MAX, BR_HOLDER_PROCESS);
    uint64_t hash = additions_hash(additions, table, entry, len);
    br_steps_add(len);
    uint32_t place =
        br_index_find(&additions->index, hash, additions_is_wanted, additions, &wanted);
    if (place != BR_INDEX_NONE)
        return additions->added[place].index;
    int rc = additions->rc ? additions->rc : additions_append(additions, &wanted);
    if (!rc)
        rc = br_index_add(&additions->index, hash, additions->n_added, additions_rehash, additions);
    additions->rc = rc;
    return rc ? 0 : additions->added[additions->n_added++].index;
}

struct br_entry br_additions_entry(const struct br_additions *additions, enum br_table table,
                                   uint32_t index)
{
    br_steps_add(additions->n_added);
    for (uint32_t i = additions->n_added; i-- > 0;) {
        const struct br_added *added = &additions->added[i];
        if (added->table == table && added->index == index)
            return (struct br_entry){additions->bytes + added->at, added->len};
    }
    return (struct br_entry){NULL, 0};
}

int br_additions_write(const struct br_additions *additions, struct br_item *item)
{
    if (additions->rc)
        return additions->rc;
    if (!additions->fields.len)
        return 0;
    struct br_buf *buf =
        br_buf_new(item->host->pool, br_len_size(BR_REQUEST_DICTIONARY, additions->fields.len));
    if (!buf)
        return BR_ENOMEM;
    uint8_t *p = br_put_varint(buf->data, BR_TAG(BR_REQUEST_DICTIONARY, BR_WIRE_LEN));
    p = br_put_varint(p, additions->fields.len);
    struct br_part part = {.kind = BR_PART_DICTIONARY,
                           .buf = buf,
                           .raw = buf->data,
                           .body_at = (uint32_t)(p - buf->data),
                           .additions = true};
    p = br_put_bytes(p, additions->fields.data, additions->fields.len);
    buf->len = part.raw_len = (uint32_t)(p - buf->data);
    int rc = br_item_add_part(item, &part);
    br_buf_unref(buf);
    return rc;
}
