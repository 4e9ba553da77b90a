/* SPDX-License-Identifier: Apache-2.0 */
/* Names that the table stores once for all workers, and hashes of texts. */
#include "base/decimal.h"
#include "base/mem.h"
#include "base/str.h"
#include "otlp/keyvalue.h"
#include "processors/join/table/internal.h"

uint16_t join_table_type(struct join_table *table, const char *name, size_t len)
{
    len = strnlen(name, len);
    pthread_mutex_lock(&table->names_lock);
    unsigned i = 0;
    while (i < table->n_types &&
           (table->type_lens[i] != len || memcmp(table->types[i], name, len) != 0))
        i++;
    if (i == table->n_types && i < JOIN_TYPES - 1) {
        table->types[i] = len <= UINT8_MAX ? br_strndup(name, len) : NULL;
        table->type_lens[i] = (uint8_t)len;
        if (table->types[i])
            table->n_types++;
        else
            i = JOIN_TYPES - 1;
    }
    pthread_mutex_unlock(&table->names_lock);
    return (uint16_t)i;
}

const char *join_table_type_name(struct join_table *table, uint16_t type)
{
    pthread_mutex_lock(&table->names_lock);
    const char *name = type < table->n_types ? table->types[type] : "other";
    pthread_mutex_unlock(&table->names_lock);
    return name;
}

bool join_table_value(struct join_table *table, unsigned key, const void *value, size_t len,
                      size_t max)
{
    static char there;
    if (key >= KEYS_MAX)
        return false;
    pthread_mutex_lock(&table->names_lock);
    if (!table->values[key])
        table->values[key] = br_map_new(max);
    bool ok = table->values[key] && (br_map_get(table->values[key], value, len) ||
                                     br_map_put(table->values[key], value, len, &there, NULL) == 0);
    pthread_mutex_unlock(&table->names_lock);
    return ok;
}

/* The number of a function is its position in the map, beginning with 1. The number does not
 * change, because nothing is removed from the map. */
uint32_t join_table_function(struct join_table *table, const uint8_t *name, size_t len)
{
    uint32_t number = 0;
    len = len <= JOIN_VALUE_MAX ? len : br_utf8_valid(name, JOIN_VALUE_MAX);
    pthread_mutex_lock(&table->names_lock);
    if (!table->functions)
        table->functions = br_map_new(JOIN_FUNCTIONS_MAX);
    if (table->functions) {
        number = (uint32_t)(uintptr_t)br_map_get(table->functions, name, len);
        uint32_t next = (uint32_t)br_map_count(table->functions) + 1;
        if (!number && br_map_put(table->functions, name, len, (void *)(uintptr_t)next, NULL) == 0)
            number = next;
    }
    pthread_mutex_unlock(&table->names_lock);
    return number ? number : JOIN_FUNCTION_OTHER;
}

const char *join_table_function_name(struct join_table *table, uint32_t number, size_t *ret_len)
{
    const void *name = NULL;
    pthread_mutex_lock(&table->names_lock);
    if (table->functions && number && number != JOIN_FUNCTION_OTHER)
        (void)br_map_at(table->functions, number - 1, &name, ret_len);
    pthread_mutex_unlock(&table->names_lock);
    if (!name)
        *ret_len = strlen("_other");
    return name ? name : "_other";
}

bool join_table_series(struct join_table *table, const void *key, size_t len, size_t max)
{
    static char there;
    pthread_mutex_lock(&table->names_lock);
    if (!table->series)
        table->series = br_map_new(max);
    bool ok = table->series && (br_map_get(table->series, key, len) ||
                                br_map_put(table->series, key, len, &there, NULL) == 0);
    pthread_mutex_unlock(&table->names_lock);
    return ok;
}

uint32_t join_table_hash_int(const struct join_table *table, int64_t value)
{
    return join_table_hash_number(table, (uint64_t)value);
}

/* Returns true if the text is the canonical decimal form of an integer: no sign except a minus,
 * no leading zeros. */
static bool names_is_integer(const char *text, size_t len, int64_t *ret)
{
    size_t first = len && text[0] == '-';
    if (len == first || !br_is_digit(text[first]) || (text[first] == '0' && len > 1))
        return false;
    return br_decimal_parse_signed(text, len, ret);
}

uint32_t join_table_hash(const struct join_table *table, const void *data, size_t len)
{
    uint8_t secret[16];
    int64_t number;
    if (names_is_integer(data, len, &number))
        return join_table_hash_int(table, number);
    memcpy(secret, table->secret, sizeof secret);
    return (uint32_t)br_siphash(secret, data, len) | 1;
}

uint32_t join_table_hash_value(const struct join_table *table, const uint8_t *any, size_t len)
{
    if (!any)
        return 0; /* `len` may be uninitialized if `any` is NULL */
    struct br_any value = br_any_read((struct br_value){any, len});
    if (value.type == BR_VALUE_INT)
        return join_table_hash_number(table, (uint64_t)value.number);
    return value.type == BR_VALUE_STRING && value.len
               ? join_table_hash(table, value.data, value.len)
               : 0;
}

void join_names_init(struct join_table *table)
{
    pthread_mutex_init(&table->names_lock, NULL);
}

void join_names_release(struct join_table *table)
{
    for (unsigned i = 0; i < table->n_types; i++)
        br_free(table->types[i]);
    for (unsigned i = 0; i < KEYS_MAX; i++)
        br_map_free(table->values[i], NULL);
    br_map_free(table->functions, NULL);
    br_map_free(table->series, NULL);
    pthread_mutex_destroy(&table->names_lock);
}
