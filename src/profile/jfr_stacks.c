/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "profile/jfr_convert.h"

/* What an entry's note says: 0 not resolved yet, 1 it cannot be, else the builder's index + 2. */
enum { NOT_YET, NEVER, RESOLVED };

#define FRAMES_MAX (1u << 20)

static void add_symbol(struct br_jfr_stacks *s, const struct br_jfr_chunk *c, uint64_t id)
{
    uint64_t v[BR_JFR_N_SLOTS];
    size_t from = s->name.len;
    if (!br_jfr_constant(c, BR_JFR_SYMBOL, id, v) || !v[BR_JFR_TEXT])
        return;
    br_jfr_text(c, v[BR_JFR_TEXT], &s->name);
    if (s->name.len == from)
        return;
    br_str_putc(&s->name, '\0'); /* room for what merging may add */
    if (!s->name.failed)
        s->name.len = from + br_jfr_merge_name(s->name.data + from, s->name.len - 1 - from);
}

static int add_function(struct br_jfr_stacks *s, const struct br_jfr_chunk *c, uint64_t class,
                        uint64_t method, uint32_t *ret, struct br_err *err)
{
    br_str_clear(&s->name);
    add_symbol(s, c, class);
    br_str_putc(&s->name, '.');
    add_symbol(s, c, method);
    if (s->name.failed)
        return BR_ENOMEM;
    if (s->name.len > s->name_bytes_max)
        return br_err_set(err, BR_EINVAL, "the names of methods are too large for their recording");
    s->name_bytes_max -= s->name.len;
    uint32_t name = br_build_string(s->build, s->name.data, s->name.len);
    *ret = br_build_function(s->build, name, 0, 0, 0);
    return 1;
}

/* 1 with the function, 0 when the method or its class is not in the chunk, or an error. */
static int function_of(struct br_jfr_stacks *s, const struct br_jfr_chunk *c, uint64_t id,
                       uint32_t *ret, struct br_err *err)
{
    uint64_t method[BR_JFR_N_SLOTS], class[BR_JFR_N_SLOTS];
    struct br_jfr_entry *e = br_jfr_ids_find(&c->pools[BR_JFR_METHOD], id);
    if (!e || e->note == NEVER)
        return 0;
    if (e->note >= RESOLVED) {
        *ret = e->note - RESOLVED;
        return 1;
    }
    (void)br_jfr_constant(c, BR_JFR_METHOD, id, method);
    if (!br_jfr_constant(c, BR_JFR_CLASS, method[BR_JFR_HOLDER], class)) {
        e->note = NEVER;
        return 0;
    }
    int rc = add_function(s, c, class[BR_JFR_SYMBOL_NAME], method[BR_JFR_SYMBOL_NAME], ret, err);
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
    br_free(s->locations);
    *s = (struct br_jfr_stacks){0};
}
