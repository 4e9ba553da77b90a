/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "base/steps.h"
#include "profile/jfr/convert.h"

/* What an entry's note says: 0 not resolved yet, 1 it cannot be, else the builder's index + 2. */
enum { NOT_YET, NEVER, RESOLVED };

#define FRAMES_MAX (1u << 20)

void br_jfr_stacks_begin(struct br_jfr_stacks *s)
{
    br_str_clear(&s->converted);
    s->n_symbols = 0;
}

/* The text at `at` of the chunk as a symbol. One that is UTF-8 and stays as it is need not be kept
 * beside the chunk. */
static int read_symbol(struct br_jfr_stacks *s, const struct br_jfr_chunk *c, uint64_t at,
                       struct br_jfr_symbol *ret)
{
    struct br_str *out = &s->converted;
    size_t from = out->len;
    br_jfr_text(c, at, out);
    size_t len = out->len - from;
    br_str_putc(out, '\0'); /* room for what merging may add */
    if (out->failed || out->len > UINT32_MAX)
        return BR_ENOMEM;
    out->len = from;
    size_t merged = len ? br_jfr_merge_name(out->data + from, len) : 0;
    br_steps_add(len);
    struct br_jfr_in in = br_jfr_at(c, at);
    bool plain = br_jfr_fixed(&in, 1) == 3 && merged == len && br_jfr_int(&in) == len &&
                 memcmp(in.p, out->data + from, len) == 0;
    if (!plain)
        out->len += merged;
    *ret = (struct br_jfr_symbol){.at = plain ? (uint32_t)(in.p - c->data) : (uint32_t)from,
                                  .len = (uint32_t)merged,
                                  .converted = !plain};
    return 0;
}

static int add_symbol(struct br_jfr_stacks *s, const struct br_jfr_symbol *symbol, uint32_t *ret)
{
    int rc = br_grow(&s->symbols, &s->symbols_cap, (size_t)s->n_symbols + 1, sizeof *s->symbols,
                     UINT32_MAX);
    if (rc)
        return rc;
    s->symbols[s->n_symbols] = *symbol;
    *ret = s->n_symbols++;
    return 0;
}

/* The text of a symbol, which may be a string of the pool that other symbols are, too. */
static int text_of(struct br_jfr_stacks *s, const struct br_jfr_chunk *c, uint64_t at,
                   uint32_t *ret)
{
    struct br_jfr_symbol symbol;
    struct br_jfr_entry *pooled = br_jfr_pooled(c, at);
    if (pooled && pooled->note) {
        *ret = pooled->note - RESOLVED;
        return 0;
    }
    int rc = read_symbol(s, c, pooled ? pooled->at : at, &symbol);
    if (!rc)
        rc = add_symbol(s, &symbol, ret);
    if (!rc && pooled)
        pooled->note = *ret + RESOLVED;
    return rc;
}

/* The index of a symbol, 0 where there is none. */
static int symbol_of(struct br_jfr_stacks *s, const struct br_jfr_chunk *c, uint64_t id,
                     uint32_t *ret)
{
    static const struct br_jfr_symbol none;
    uint64_t v[BR_JFR_N_SLOTS];
    int rc = s->n_symbols ? 0 : add_symbol(s, &none, ret);
    struct br_jfr_entry *e = br_jfr_ids_find(&c->pools[BR_JFR_SYMBOL], id);
    *ret = 0;
    if (rc || !e)
        return rc;
    if (e->note == NOT_YET) {
        (void)br_jfr_constant(c, BR_JFR_SYMBOL, id, v);
        rc = v[BR_JFR_TEXT] ? text_of(s, c, v[BR_JFR_TEXT], ret) : 0;
        if (rc)
            return rc;
        e->note = *ret + RESOLVED;
    }
    *ret = e->note - RESOLVED;
    return 0;
}

/* The symbol of a class's name. 1, 0 when the class is not in the chunk, or an error. */
static int class_of(struct br_jfr_stacks *s, const struct br_jfr_chunk *c, uint64_t id,
                    uint32_t *ret)
{
    uint64_t v[BR_JFR_N_SLOTS];
    struct br_jfr_entry *e = br_jfr_ids_find(&c->pools[BR_JFR_CLASS], id);
    if (!e)
        return 0;
    if (e->note == NOT_YET) {
        (void)br_jfr_constant(c, BR_JFR_CLASS, id, v);
        int rc = symbol_of(s, c, v[BR_JFR_SYMBOL_NAME], ret);
        if (rc)
            return rc;
        e->note = *ret + RESOLVED;
    }
    *ret = e->note - RESOLVED;
    return 1;
}

static void put_symbol(struct br_jfr_stacks *s, const struct br_jfr_chunk *c, uint32_t symbol)
{
    const struct br_jfr_symbol *y = &s->symbols[symbol];
    const void *from = y->converted ? (const void *)(s->converted.data + y->at) : c->data + y->at;
    if (y->len)
        br_str_add(&s->name, from, y->len);
}

static int add_function(struct br_jfr_stacks *s, const struct br_jfr_chunk *c, uint32_t class,
                        uint32_t method, uint32_t *ret, struct br_err *err)
{
    size_t len = (size_t)s->symbols[class].len + 1 + s->symbols[method].len;
    if (len > s->name_bytes_max)
        return br_err_set(err, BR_EINVAL, "the names of methods are too large for their recording");
    s->name_bytes_max -= len;
    br_str_clear(&s->name);
    put_symbol(s, c, class);
    br_str_putc(&s->name, '.');
    put_symbol(s, c, method);
    if (s->name.failed)
        return BR_ENOMEM;
    uint32_t name = br_build_string(s->build, s->name.data, s->name.len);
    *ret = br_build_function(s->build, name, 0, 0, 0);
    return 1;
}

/* 1 with the function, 0 when the method or its class is not in the chunk, or an error. */
static int function_of(struct br_jfr_stacks *s, const struct br_jfr_chunk *c, uint64_t id,
                       uint32_t *ret, struct br_err *err)
{
    uint64_t v[BR_JFR_N_SLOTS];
    uint32_t class, method;
    struct br_jfr_entry *e = br_jfr_ids_find(&c->pools[BR_JFR_METHOD], id);
    if (!e || e->note == NEVER)
        return 0;
    if (e->note >= RESOLVED) {
        *ret = e->note - RESOLVED;
        return 1;
    }
    (void)br_jfr_constant(c, BR_JFR_METHOD, id, v);
    int rc = class_of(s, c, v[BR_JFR_HOLDER], &class);
    if (rc == 0)
        e->note = NEVER;
    if (rc > 0)
        rc = symbol_of(s, c, v[BR_JFR_SYMBOL_NAME], &method);
    else
        return rc;
    if (!rc)
        rc = add_function(s, c, class, method, ret, err);
    if (rc > 0)
        e->note = *ret + RESOLVED;
    return rc;
}

static uint32_t mapping_of(struct br_jfr_stacks *s)
{
    static const char key[] = BR_MAPPING_HAS_FUNCTIONS;
    if (!s->mapping) {
        uint32_t name = br_build_string(s->build, key, sizeof key - 1);
        uint32_t attribute = br_build_attribute_bool(s->build, name, true);
        const struct br_build_mapping m = {.attributes = &attribute, .n_attributes = 1};
        s->mapping = br_build_mapping(s->build, &m);
    }
    return s->mapping;
}

static uint32_t location_of(struct br_jfr_stacks *s, uint32_t function, uint32_t number)
{
    struct br_build_line line = {.function = function, .line = number};
    if (s->lines_signed && number > INT32_MAX)
        line.line = 0;
    const struct br_build_location l = {.mapping = mapping_of(s), .lines = &line, .n_lines = 1};
    return br_build_location(s->build, &l);
}

/* The frames that stand at `at`. A frame whose method is not known is left out. */
static int read_frames(struct br_jfr_stacks *s, const struct br_jfr_chunk *c, uint64_t at,
                       uint32_t *ret, struct br_err *err)
{
    struct br_jfr_in in = br_jfr_at(c, at);
    uint32_t n = 0;
    const struct br_jfr_class *k = &c->classes[c->class_of[BR_JFR_STACK_FRAME]];
    for (uint32_t left = br_jfr_int(&in); left && !in.bad; left--) {
        uint64_t v[BR_JFR_N_SLOTS];
        uint32_t function = 0;
        v[BR_JFR_FRAME_METHOD] = v[BR_JFR_LINE] = 0;
        br_jfr_value(&in, c, k, k->n_fields, v);
        int rc = function_of(s, c, v[BR_JFR_FRAME_METHOD], &function, err);
        if (rc > 0) {
            rc = br_grow(&s->locations, &s->locations_cap, (size_t)n + 1, sizeof *s->locations,
                         FRAMES_MAX);
            if (rc == BR_EFULL)
                return br_err_set(err, BR_EINVAL, "a stack trace has more than %u frames",
                                  FRAMES_MAX);
            if (!rc)
                s->locations[n++] = location_of(s, function, (uint32_t)v[BR_JFR_LINE]);
        }
        if (rc)
            return rc;
    }
    *ret = br_build_stack(s->build, s->locations, n);
    return 1;
}

int br_jfr_stack(struct br_jfr_stacks *s, const struct br_jfr_chunk *c, uint64_t id, uint32_t *ret,
                 struct br_err *err)
{
    uint64_t v[BR_JFR_N_SLOTS];
    struct br_jfr_entry *e = br_jfr_ids_find(&c->pools[BR_JFR_STACK_TRACE], id);
    if (!e)
        return 0;
    if (e->note >= RESOLVED) {
        *ret = e->note - RESOLVED;
        return 1;
    }
    (void)br_jfr_constant(c, BR_JFR_STACK_TRACE, id, v);
    int rc = 1;
    if (v[BR_JFR_FRAMES])
        rc = read_frames(s, c, v[BR_JFR_FRAMES], ret, err);
    else
        *ret = 0;
    if (rc > 0)
        e->note = *ret + RESOLVED;
    return rc;
}

void br_jfr_stacks_release(struct br_jfr_stacks *s)
{
    br_str_release(&s->name);
    br_str_release(&s->converted);
    br_free(s->symbols);
    br_free(s->locations);
    *s = (struct br_jfr_stacks){0};
}
