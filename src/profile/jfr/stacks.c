/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "base/steps.h"
#include "profile/jfr/convert.h"

/* Values of br_jfr_entry.note for entries that become stacks, functions or symbols. An entry has
 * not been resolved yet (NOT_YET), cannot be resolved (NEVER), or has the value RESOLVED + its
 * index. */
enum { NOT_YET, NEVER, RESOLVED };

#define FRAMES_MAX (1u << 20)

void br_jfr_stacks_begin(struct br_jfr_stacks *stacks)
{
    br_str_clear(&stacks->converted);
    stacks->n_symbols = 0;
}

/* Reads the string at `at` as a symbol. A string in UTF-8 that br_jfr_merge_name leaves
 * unchanged is used in place. */
static int jfr_stacks_read_symbol(struct br_jfr_stacks *stacks, const struct br_jfr_chunk *chunk,
                                  uint64_t at, struct br_jfr_symbol *ret)
{
    struct br_str *out = &stacks->converted;
    size_t from = out->len;
    br_jfr_text(chunk, at, out);
    size_t len = out->len - from;
    br_str_putc(out, '\0'); /* reserves one more byte, which br_jfr_merge_name may add */
    if (out->failed || out->len > UINT32_MAX)
        return BR_ENOMEM;
    out->len = from;
    size_t merged = len ? br_jfr_merge_name(out->data + from, len) : 0;
    br_steps_add(len);
    struct br_jfr_in in = br_jfr_at(chunk, at);
    bool plain = br_jfr_fixed(&in, 1) == 3 && merged == len && br_jfr_int(&in) == len &&
                 memcmp(in.p, out->data + from, len) == 0;
    if (!plain)
        out->len += merged;
    *ret = (struct br_jfr_symbol){.at = plain ? (uint32_t)(in.p - chunk->data) : (uint32_t)from,
                                  .len = (uint32_t)merged,
                                  .converted = !plain};
    return 0;
}

static int jfr_stacks_add_symbol(struct br_jfr_stacks *stacks, const struct br_jfr_symbol *symbol,
                                 uint32_t *ret)
{
    int rc = br_grow(&stacks->symbols, &stacks->symbols_cap, (size_t)stacks->n_symbols + 1,
                     sizeof *stacks->symbols, UINT32_MAX);
    if (rc)
        return rc;
    stacks->symbols[stacks->n_symbols] = *symbol;
    *ret = stacks->n_symbols++;
    return 0;
}

/* Returns in `ret` the symbol for the string at an offset. Several symbols may refer to the same
 * pooled string. */
static int jfr_stacks_text_of(struct br_jfr_stacks *stacks, const struct br_jfr_chunk *chunk,
                              uint64_t at, uint32_t *ret)
{
    struct br_jfr_symbol symbol;
    struct br_jfr_entry *pooled = br_jfr_pooled(chunk, at);
    if (pooled && pooled->note) {
        *ret = pooled->note - RESOLVED;
        return 0;
    }
    int rc = jfr_stacks_read_symbol(stacks, chunk, pooled ? pooled->at : at, &symbol);
    if (!rc)
        rc = jfr_stacks_add_symbol(stacks, &symbol, ret);
    if (!rc && pooled)
        pooled->note = *ret + RESOLVED;
    return rc;
}

/* Returns in `ret` the index of a symbol; 0 if the symbol is missing. */
static int jfr_stacks_symbol_of(struct br_jfr_stacks *stacks, const struct br_jfr_chunk *chunk,
                                uint64_t id, uint32_t *ret)
{
    static const struct br_jfr_symbol none;
    uint64_t v[BR_JFR_N_SLOTS];
    int rc = stacks->n_symbols ? 0 : jfr_stacks_add_symbol(stacks, &none, ret);
    struct br_jfr_entry *entry = br_jfr_ids_find(&chunk->pools[BR_JFR_SYMBOL], id);
    *ret = 0;
    if (rc || !entry)
        return rc;
    if (entry->note == NOT_YET) {
        (void)br_jfr_constant(chunk, BR_JFR_SYMBOL, id, v);
        rc = v[BR_JFR_TEXT] ? jfr_stacks_text_of(stacks, chunk, v[BR_JFR_TEXT], ret) : 0;
        if (rc)
            return rc;
        entry->note = *ret + RESOLVED;
    }
    *ret = entry->note - RESOLVED;
    return 0;
}

/* Finds the symbol for the name of a class. Returns 1 if the symbol was found, 0 if the chunk
 * does not contain the class, or an error code. */
static int jfr_stacks_class_of(struct br_jfr_stacks *stacks, const struct br_jfr_chunk *chunk,
                               uint64_t id, uint32_t *ret)
{
    uint64_t v[BR_JFR_N_SLOTS];
    struct br_jfr_entry *entry = br_jfr_ids_find(&chunk->pools[BR_JFR_CLASS], id);
    if (!entry)
        return 0;
    if (entry->note == NOT_YET) {
        (void)br_jfr_constant(chunk, BR_JFR_CLASS, id, v);
        int rc = jfr_stacks_symbol_of(stacks, chunk, v[BR_JFR_SYMBOL_NAME], ret);
        if (rc)
            return rc;
        entry->note = *ret + RESOLVED;
    }
    *ret = entry->note - RESOLVED;
    return 1;
}

static void jfr_stacks_put_symbol(struct br_jfr_stacks *stacks, const struct br_jfr_chunk *chunk,
                                  uint32_t symbol)
{
    const struct br_jfr_symbol *jfr_symbol = &stacks->symbols[symbol];
    const void *from = jfr_symbol->converted
                           ? (const void *)(stacks->converted.data + jfr_symbol->at)
                           : chunk->data + jfr_symbol->at;
    if (jfr_symbol->len)
        br_str_add(&stacks->name, from, jfr_symbol->len);
}

static int jfr_stacks_add_function(struct br_jfr_stacks *stacks, const struct br_jfr_chunk *chunk,
                                   uint32_t class, uint32_t method, uint32_t *ret,
                                   struct br_err *err)
{
    size_t len = (size_t)stacks->symbols[class].len + 1 + stacks->symbols[method].len;
    if (len > stacks->name_bytes_max)
        return br_err_set(err, BR_EINVAL,
                          "the names of methods are too large for the size of the recording");
    stacks->name_bytes_max -= len;
    br_str_clear(&stacks->name);
    jfr_stacks_put_symbol(stacks, chunk, class);
    br_str_putc(&stacks->name, '.');
    jfr_stacks_put_symbol(stacks, chunk, method);
    if (stacks->name.failed)
        return BR_ENOMEM;
    uint32_t name = br_build_string(stacks->build, stacks->name.data, stacks->name.len);
    *ret = br_build_function(stacks->build, name, 0, 0, 0);
    return 1;
}

/* Finds the builder's function for a method. Returns 1 if the function was found, 0 if the chunk
 * does not contain the method or its class, or an error code. */
static int jfr_stacks_function_of(struct br_jfr_stacks *stacks, const struct br_jfr_chunk *chunk,
                                  uint64_t id, uint32_t *ret, struct br_err *err)
{
    uint64_t v[BR_JFR_N_SLOTS];
    uint32_t class, method;
    struct br_jfr_entry *entry = br_jfr_ids_find(&chunk->pools[BR_JFR_METHOD], id);
    if (!entry || entry->note == NEVER)
        return 0;
    if (entry->note >= RESOLVED) {
        *ret = entry->note - RESOLVED;
        return 1;
    }
    (void)br_jfr_constant(chunk, BR_JFR_METHOD, id, v);
    int rc = jfr_stacks_class_of(stacks, chunk, v[BR_JFR_HOLDER], &class);
    if (rc == 0)
        entry->note = NEVER;
    if (rc > 0)
        rc = jfr_stacks_symbol_of(stacks, chunk, v[BR_JFR_SYMBOL_NAME], &method);
    else
        return rc;
    if (!rc)
        rc = jfr_stacks_add_function(stacks, chunk, class, method, ret, err);
    if (rc > 0)
        entry->note = *ret + RESOLVED;
    return rc;
}

static uint32_t jfr_stacks_mapping_of(struct br_jfr_stacks *stacks)
{
    static const char key[] = BR_MAPPING_HAS_FUNCTIONS;
    if (!stacks->mapping) {
        uint32_t name = br_build_string(stacks->build, key, sizeof key - 1);
        uint32_t attribute = br_build_attribute_bool(stacks->build, name, true);
        const struct br_build_mapping mapping = {.attributes = &attribute, .n_attributes = 1};
        stacks->mapping = br_build_mapping(stacks->build, &mapping);
    }
    return stacks->mapping;
}

static uint32_t jfr_stacks_location_of(struct br_jfr_stacks *stacks, uint32_t function,
                                       uint32_t number)
{
    struct br_build_line line = {.function = function, .line = number};
    if (stacks->lines_signed && number > INT32_MAX)
        line.line = 0;
    const struct br_build_location location = {
        .mapping = jfr_stacks_mapping_of(stacks), .lines = &line, .n_lines = 1};
    return br_build_location(stacks->build, &location);
}

/* Reads the stack frames at an offset and adds their stack to the builder. A frame with an
 * unknown method is left out. */
static int jfr_stacks_read_frames(struct br_jfr_stacks *stacks, const struct br_jfr_chunk *chunk,
                                  uint64_t at, uint32_t *ret, struct br_err *err)
{
    struct br_jfr_in in = br_jfr_at(chunk, at);
    uint32_t n = 0;
    const struct br_jfr_class *k = &chunk->classes[chunk->class_of[BR_JFR_STACK_FRAME]];
    for (uint32_t left = br_jfr_int(&in); left && !in.bad; left--) {
        uint64_t v[BR_JFR_N_SLOTS];
        uint32_t function = 0;
        v[BR_JFR_FRAME_METHOD] = v[BR_JFR_LINE] = 0;
        br_jfr_value(&in, chunk, k, k->n_fields, v);
        int rc = jfr_stacks_function_of(stacks, chunk, v[BR_JFR_FRAME_METHOD], &function, err);
        if (rc > 0) {
            rc = br_grow(&stacks->locations, &stacks->locations_cap, (size_t)n + 1,
                         sizeof *stacks->locations, FRAMES_MAX);
            if (rc == BR_EFULL)
                return br_err_set(err, BR_EINVAL, "a stack trace has more than %u frames",
                                  FRAMES_MAX);
            if (!rc)
                stacks->locations[n++] =
                    jfr_stacks_location_of(stacks, function, (uint32_t)v[BR_JFR_LINE]);
        }
        if (rc)
            return rc;
    }
    *ret = br_build_stack(stacks->build, stacks->locations, n);
    return 1;
}

int br_jfr_stack(struct br_jfr_stacks *stacks, const struct br_jfr_chunk *chunk, uint64_t id,
                 uint32_t *ret, struct br_err *err)
{
    uint64_t v[BR_JFR_N_SLOTS];
    struct br_jfr_entry *entry = br_jfr_ids_find(&chunk->pools[BR_JFR_STACK_TRACE], id);
    if (!entry)
        return 0;
    if (entry->note >= RESOLVED) {
        *ret = entry->note - RESOLVED;
        return 1;
    }
    (void)br_jfr_constant(chunk, BR_JFR_STACK_TRACE, id, v);
    int rc = 1;
    if (v[BR_JFR_FRAMES])
        rc = jfr_stacks_read_frames(stacks, chunk, v[BR_JFR_FRAMES], ret, err);
    else
        *ret = 0;
    if (rc > 0)
        entry->note = *ret + RESOLVED;
    return rc;
}

void br_jfr_stacks_release(struct br_jfr_stacks *stacks)
{
    br_str_release(&stacks->name);
    br_str_release(&stacks->converted);
    br_free(stacks->symbols);
    br_free(stacks->locations);
    *stacks = (struct br_jfr_stacks){0};
}
