/* SPDX-License-Identifier: Apache-2.0 */
#include "core/masked.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "core/shared.h"

#define KEY_MAX (5 * (BR_MASKED_TEXT_MAX + 1))

struct masked_entry {
    uint64_t count, last_ns;
    char node[BR_MASKED_TEXT_MAX + 1], rule[BR_MASKED_TEXT_MAX + 1], key[BR_MASKED_TEXT_MAX + 1];
    char became[BR_MASKED_TEXT_MAX + 1];
    const char *place;
};

struct br_masked {
    pthread_mutex_t lock;
    atomic_bool watched;
    struct br_map *rows; /* rows of the table; each row is a struct masked_entry */
    uint64_t left_out;
    char *nodes[BR_MASKED_NODES_MAX];
    size_t n_nodes;
};

static void masked_free(void *thing)
{
    struct br_masked *masked = thing;
    br_map_free(masked->rows, br_free);
    for (size_t i = 0; i < masked->n_nodes; i++)
        br_free(masked->nodes[i]);
    (void)pthread_mutex_destroy(&masked->lock);
    br_free(masked);
}

static void *masked_new(const void *arg)
{
    struct br_masked *masked = br_calloc(1, sizeof *masked);
    (void)arg;
    if (!masked)
        return NULL;
    (void)pthread_mutex_init(&masked->lock, NULL);
    atomic_init(&masked->watched, false);
    masked->rows = br_map_new(BR_MASKED_MAX);
    if (masked->rows)
        return masked;
    masked_free(masked);
    return NULL;
}

struct br_masked *br_masked_get(struct br_host *host)
{
    return br_shared_get(host, "masked", masked_new, NULL);
}

void br_masked_put(struct br_host *host, struct br_masked *masked)
{
    br_shared_put(host, masked, masked_free);
}

void br_masked_watch(struct br_masked *masked)
{
    atomic_store(&masked->watched, true);
}

bool br_masked_is_watched(const struct br_masked *masked)
{
    return atomic_load_explicit(&masked->watched, memory_order_relaxed);
}

void br_masked_add_node(struct br_masked *masked, const char *node)
{
    (void)pthread_mutex_lock(&masked->lock);
    size_t i = 0;
    while (i < masked->n_nodes && strcmp(masked->nodes[i], node) != 0)
        i++;
    if (i == masked->n_nodes && i < BR_MASKED_NODES_MAX && (masked->nodes[i] = br_strdup(node)))
        masked->n_nodes++;
    (void)pthread_mutex_unlock(&masked->lock);
}

/* Copies as many whole UTF-8 characters as fit, so that a truncated text is still valid UTF-8. */
static void masked_copy(char out[BR_MASKED_TEXT_MAX + 1], struct br_masked_text text)
{
    const unsigned char *data = text.data;
    size_t n = text.len < BR_MASKED_TEXT_MAX ? text.len : BR_MASKED_TEXT_MAX;
    while (n && n < text.len && (data[n] & 0xC0) == 0x80)
        n--;
    if (n)
        memcpy(out, data, n);
    out[n] = '\0';
}

static struct br_masked_text masked_text(const char *text)
{
    return (struct br_masked_text){text, strlen(text)};
}

static struct masked_entry *masked_find(struct br_masked *masked, const struct masked_entry *wanted,
                                        bool by_result)
{
    const char *const texts[] = {wanted->node, wanted->rule, wanted->place, wanted->key,
                                 by_result ? wanted->became : ""};
    char name[KEY_MAX];
    size_t len = 0;
    for (size_t i = 0; i < BR_COUNT(texts); i++) {
        size_t n = strlen(texts[i]) + 1;
        memcpy(name + len, texts[i], n);
        len += n;
    }
    struct masked_entry *entry = br_map_get(masked->rows, name, len);
    if (entry)
        return entry;
    entry = br_malloc(sizeof *entry);
    if (!entry)
        return NULL;
    *entry = *wanted;
    if (!br_map_put(masked->rows, name, len, entry, NULL))
        return entry;
    br_free(entry);
    return NULL;
}

void br_masked_note(struct br_masked *masked, const char *node, const char *rule, const char *place,
                    struct br_masked_text key, struct br_masked_text became, uint64_t now_ns)
{
    struct masked_entry wanted = {.place = place};
    if (!br_masked_is_watched(masked))
        return;
    masked_copy(wanted.node, masked_text(node));
    masked_copy(wanted.rule, masked_text(rule));
    masked_copy(wanted.key, key);
    masked_copy(wanted.became, became);
    (void)pthread_mutex_lock(&masked->lock);
    struct masked_entry *entry = masked_find(masked, &wanted, key.len == 0);
    if (entry) {
        memcpy(entry->became, wanted.became, sizeof entry->became);
        entry->count++;
        entry->last_ns = now_ns;
    } else {
        masked->left_out++;
    }
    (void)pthread_mutex_unlock(&masked->lock);
}

uint64_t br_masked_each(struct br_masked *masked,
                        bool (*fn)(const struct br_masked_row *row, void *arg),
                        void (*on_node)(const char *node, void *arg), void *arg)
{
    const void *key;
    size_t len;
    bool more = true;
    (void)pthread_mutex_lock(&masked->lock);
    for (size_t i = 0; i < masked->n_nodes; i++)
        on_node(masked->nodes[i], arg);
    for (size_t i = 0; more && i < br_map_count(masked->rows); i++) {
        const struct masked_entry *entry = br_map_at(masked->rows, i, &key, &len);
        more = fn(&(struct br_masked_row){entry->node, entry->rule, entry->place, entry->key,
                                          entry->became, entry->count, entry->last_ns},
                  arg);
    }
    uint64_t left_out = masked->left_out;
    (void)pthread_mutex_unlock(&masked->lock);
    return left_out;
}
