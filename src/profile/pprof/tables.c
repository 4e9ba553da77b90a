/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "profile/pprof/internal.h"

#define LINES_MIN 8u

int br_pprof_no_memory(struct br_pprof *p)
{
    int rc = br_build_rc(p->b);
    if (!rc)
        rc = p->full ? BR_EFULL : BR_ENOMEM;
    if (rc == BR_EFULL)
        return br_err_set(p->err, rc,
                          "pprof: it takes more than %zu bytes of memory, for %zu bytes",
                          p->max_bytes, p->source->len);
    return br_err_set(p->err, rc, "pprof: %s", br_strerror(rc));
}

void br_pprof_blame(struct br_pprof *p)
{
    if (!p->lost.first.text[0])
        p->lost.first = *p->err;
    *p->err = (struct br_err){0};
}

int br_pprof_compose(struct br_pprof *p, size_t len)
{
    if (len <= p->compose) {
        p->compose -= len;
        return 0;
    }
    return br_err_set(p->err, BR_EFULL,
                      "pprof: written out wherever they are referred to, its texts take more than "
                      "%u times its %zu bytes",
                      BR_PPROF_GROWTH, p->source->len);
}

int br_pprof_no_string(struct br_pprof *p, uint64_t i, const char *what)
{
    return br_err_set(p->err, BR_EINVAL, "pprof: %s: string %lld is not in the table of %u strings",
                      what, (long long)i, p->n_strings);
}

bool br_pprof_scalars(const uint8_t *p, const uint8_t *end, uint64_t *v, uint32_t n)
{
    struct br_field f;
    while (p < end) {
        p = br_scan(p, end, &f);
        if (!p)
            return false;
        if (f.number > n)
            continue;
        if (f.wire != BR_WIRE_VARINT)
            return false;
        v[f.number] = f.value;
    }
    return true;
}

void *br_pprof_alloc(struct br_pprof *p, size_t n, size_t size)
{
    size_t bytes;
    if (!br_size_mul(n, size, &bytes) || !br_pprof_fits(p, bytes))
        return NULL;
    /* A block of the arena, which is larger, must not be more than the rest. */
    size_t max = p->arena->max, rest = br_pprof_rest(p);
    if (max > p->arena->used && rest < max - p->arena->used)
        p->arena->max = p->arena->used + rest;
    void *array = br_arena_alloc(p->arena, bytes);
    p->arena->max = max;
    br_pprof_share(p);
    return array;
}

bool br_pprof_grow(struct br_pprof *p, void *items, uint32_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return true;
    size_t want = *cap ? (size_t)*cap * 2 : LINES_MIN;
    if (want < need)
        want = need;
    void *old, *fresh = want <= UINT32_MAX ? br_pprof_alloc(p, want, size) : NULL;
    if (!fresh)
        return false;
    memcpy(&old, items, sizeof old);
    br_put_bytes(fresh, old, *cap * size);
    memcpy(items, &fresh, sizeof fresh);
    *cap = (uint32_t)want;
    return true;
}

/* --- Strings ---------------------------------------------------------------------------------- */

int br_pprof_read_strings(struct br_pprof *p)
{
    const struct br_pprof_range *r = &p->ranges[BR_PPROF_STRING];
    const uint8_t *at = r->start;
    struct br_field f;
    p->strings = br_pprof_alloc(p, (size_t)r->n + 1, sizeof *p->strings);
    if (!p->strings)
        return br_pprof_no_memory(p);
    while (br_pprof_next(&at, r->end, BR_SCAN_LEN(BR_PPROF_STRING), &f))
        p->strings[p->n_strings++] =
            (struct br_pprof_string){(uint32_t)(f.data - p->source->data), (uint32_t)f.value, 0};
    if (p->n_strings && p->strings[0].len) {
        p->moved = p->n_strings;
        p->strings[p->n_strings++] = p->strings[0];
    }
    return 0;
}

const uint8_t *br_pprof_text(const struct br_pprof *p, uint64_t i, size_t *ret_len)
{
    static const uint8_t empty[1];
    *ret_len = 0;
    if (i == 0 && !p->n_strings)
        return empty;
    if (i >= p->n_strings)
        return NULL;
    *ret_len = p->strings[i].len;
    return p->source->data + p->strings[i].at;
}

bool br_pprof_string_slow(struct br_pprof *p, uint64_t i, const char *what, uint32_t *ret)
{
    size_t len;
    const uint8_t *text = br_pprof_text(p, i, &len);
    if (!text) {
        (void)br_pprof_no_string(p, i, what);
        return false;
    }
    *ret = br_build_string(p->b, text, len);
    if (i < p->n_strings)
        p->strings[i].index = *ret + 1;
    return true;
}

/* --- Ids -------------------------------------------------------------------------------------- */

static bool ids_init(struct br_pprof *p, struct br_pprof_ids *ids, uint32_t n)
{
    uint64_t n_dense = (uint64_t)n + n / 4 + 64;
    if (n_dense > UINT32_MAX)
        return false;
    ids->n_entries = n;
    ids->dense = br_pprof_alloc(p, (size_t)n_dense, sizeof *ids->dense);
    if (!ids->dense)
        return false;
    memset(ids->dense, 0, (size_t)n_dense * sizeof *ids->dense);
    ids->n_dense = (uint32_t)n_dense;
    return true;
}

static uint32_t slot_of(const struct br_pprof_ids *ids, uint64_t id)
{
    uint32_t at = (uint32_t)((id * ids->factor >> 32) * ids->n_sparse >> 32);
    while (ids->sparse[at] && ids->sparse[at] != id)
        at = at + 1 < ids->n_sparse ? at + 1 : 0;
    return at;
}

uint32_t br_pprof_ids_find(const struct br_pprof_ids *ids, uint64_t id)
{
    if (!ids->sparse || id == 0)
        return 0;
    return ids->places[slot_of(ids, id)];
}

/* The first id that is larger than the array: makes the table for all that may follow. */
static bool make_sparse(struct br_pprof *p, struct br_pprof_ids *ids)
{
    size_t n = (size_t)ids->n_entries + ids->n_entries / 2 + 2;
    br_random_bytes(&ids->factor, sizeof ids->factor);
    ids->factor |= 1;
    ids->places = br_pprof_alloc(p, n, sizeof *ids->places);
    ids->sparse = ids->places ? br_pprof_alloc(p, n, sizeof *ids->sparse) : NULL;
    if (!ids->sparse)
        return false;
    memset(ids->places, 0, n * sizeof *ids->places);
    memset(ids->sparse, 0, n * sizeof *ids->sparse);
    ids->n_sparse = (uint32_t)n;
    return true;
}

/* Notes where `id` went; 0 is no id and is not noted. */
static int ids_put(struct br_pprof *p, struct br_pprof_ids *ids, uint64_t id, uint32_t index,
                   const char *what)
{
    if (br_pprof_ids_get(ids, id))
        return br_err_set(p->err, BR_EINVAL, "pprof: two %ss have the id %llu", what,
                          (unsigned long long)id);
    if (id == 0)
        return 0;
    if (id < ids->n_dense) {
        ids->dense[id] = index + 1;
        return 0;
    }
    if (!ids->sparse && !make_sparse(p, ids))
        return br_pprof_no_memory(p);
    uint32_t at = slot_of(ids, id);
    ids->sparse[at] = id;
    ids->places[at] = index + 1;
    return 0;
}

/* The builder has not failed, and there is room for more. */
static bool goes_on(struct br_pprof *p)
{
    return !br_build_rc(p->b) && br_pprof_fits(p, 0);
}

static int malformed(struct br_pprof *p, const char *what)
{
    return br_err_set(p->err, BR_EINVAL, "pprof: a %s is malformed", what);
}

/* --- Mappings --------------------------------------------------------------------------------- */

static uint32_t flag(struct br_pprof *p, const char *name)
{
    return br_build_attribute_bool(p->b, br_build_string(p->b, name, strlen(name)), true);
}

static int read_mapping(struct br_pprof *p, const struct br_field *f)
{
    static const char *const flags[] = {BR_MAPPING_HAS_FUNCTIONS, BR_MAPPING_HAS_FILENAMES,
                                        BR_MAPPING_HAS_LINE_NUMBERS, BR_MAPPING_HAS_INLINE_FRAMES};
    enum {
        ID = 1,
        START,
        LIMIT,
        OFFSET,
        FILENAME,
        BUILD_ID,
        FLAGS,
        FIELDS = FLAGS + BR_COUNT(flags)
    };
    uint64_t v[FIELDS] = {0};
    uint32_t attributes[1 + BR_COUNT(flags)], filename;
    size_t n = 0, len;
    if (!br_pprof_scalars(f->data, f->data + f->value, v, FIELDS - 1))
        return malformed(p, "mapping");
    if (!br_pprof_text(p, v[BUILD_ID], &len))
        return br_pprof_no_string(p, v[BUILD_ID], "build id");
    if (!br_pprof_string(p, v[FILENAME], "mapping", &filename))
        return BR_EINVAL;
    if (len) {
        uint32_t key = br_build_string(p->b, BR_MAPPING_BUILD_ID, strlen(BR_MAPPING_BUILD_ID));
        int rc = br_pprof_text_attribute(p, key, v[BUILD_ID], &attributes[n++]);
        if (rc)
            return rc;
    }
    for (size_t i = 0; i < BR_COUNT(flags); i++)
        if (v[FLAGS + i])
            attributes[n++] = flag(p, flags[i]);
    const struct br_build_mapping m = {.memory_start = v[START],
                                       .memory_limit = v[LIMIT],
                                       .file_offset = v[OFFSET],
                                       .filename = filename,
                                       .attributes = attributes,
                                       .n_attributes = n};
    return ids_put(p, &p->mappings, v[ID], br_build_mapping(p->b, &m), "mapping");
}

/* --- Functions -------------------------------------------------------------------------------- */

static bool spy_is(const struct br_pprof *p, const char *name)
{
    return p->source->spy_name && !strcmp(p->source->spy_name, name);
}

/* Pyroscope shows functions of scripting languages with their files: "app.py main". */
static int scripting_name(struct br_pprof *p, uint64_t name, uint64_t filename, uint32_t *ret)
{
    size_t name_len, file_len;
    const uint8_t *n = br_pprof_text(p, name, &name_len);
    const uint8_t *f = br_pprof_text(p, filename, &file_len);
    if (!n || !f || (spy_is(p, "pyspy") && file_len && *f == '/'))
        return 0;
    size_t len = file_len + 1 + name_len;
    int rc = br_pprof_compose(p, len);
    if (rc)
        return rc;
    if (!br_pprof_grow(p, &p->composed, &p->cap_composed, len, 1))
        return br_pprof_no_memory(p);
    uint8_t *o = br_put_bytes(p->composed, f, file_len);
    *o++ = ' ';
    br_put_bytes(o, n, name_len);
    *ret = br_build_string(p->b, p->composed, len);
    return 0;
}

static int read_function(struct br_pprof *p, const struct br_field *f, bool scripting, uint64_t id)
{
    enum { ID = 1, NAME, SYSTEM_NAME, FILENAME, START_LINE, FIELDS };
    uint64_t v[FIELDS] = {0};
    uint32_t name, system_name, filename;
    if (!br_pprof_scalars(f->data, f->data + f->value, v, FIELDS - 1))
        return malformed(p, "function");
    if (!br_pprof_string(p, v[NAME], "function", &name) ||
        !br_pprof_string(p, v[SYSTEM_NAME], "function", &system_name) ||
        !br_pprof_string(p, v[FILENAME], "function", &filename))
        return BR_EINVAL;
    int rc = scripting ? scripting_name(p, v[NAME], v[FILENAME], &name) : 0;
    if (rc)
        return rc;
    uint32_t index = br_build_function(p->b, name, system_name, filename, (int64_t)v[START_LINE]);
    return ids_put(p, &p->functions, id ? id : v[ID], index, "function");
}

/* The id of a function or location, which is in the same field of both. */
static uint64_t id_of(const struct br_field *f)
{
    uint64_t id = 0;
    struct br_field inner;
    for (const uint8_t *p = f->data, *end = p + f->value; p && p < end;) {
        p = br_scan(p, end, &inner);
        if (p && br_scan_tag(&inner) == BR_SCAN_VARINT(BR_PPROF_FUNCTION_ID))
            id = inner.value;
    }
    return id;
}

/* Pyroscope's .NET agent has sent functions without ids, one for each location in the same order,
 * and meant the locations' ids. */
static bool functions_lack_ids(const struct br_pprof *p)
{
    const struct br_pprof_range *r = &p->ranges[BR_PPROF_FUNCTION];
    const uint8_t *at = r->start;
    struct br_field f;
    if (!p->dotnet || r->n != p->ranges[BR_PPROF_LOCATION].n)
        return false;
    while (br_pprof_next(&at, r->end, BR_SCAN_LEN(BR_PPROF_FUNCTION), &f))
        if (id_of(&f))
            return false;
    return true;
}

static int read_functions(struct br_pprof *p)
{
    const struct br_pprof_range *r = &p->ranges[BR_PPROF_FUNCTION];
    bool scripting = spy_is(p, "pyspy") || spy_is(p, "rbspy") || spy_is(p, "scripting");
    bool borrow = functions_lack_ids(p);
    const uint8_t *at = r->start, *at_location = p->ranges[BR_PPROF_LOCATION].start;
    struct br_field f, location;
    int rc = ids_init(p, &p->functions, r->n) ? 0 : br_pprof_no_memory(p);
    while (!rc && goes_on(p) &&
           br_pprof_next(&at, r->end, BR_SCAN_LEN(BR_PPROF_FUNCTION), &f)) {
        uint64_t id = 0;
        if (borrow && br_pprof_next(&at_location, p->ranges[BR_PPROF_LOCATION].end,
                                    BR_SCAN_LEN(BR_PPROF_LOCATION), &location))
            id = id_of(&location);
        rc = read_function(p, &f, scripting, id);
    }
    return rc;
}

/* --- Locations -------------------------------------------------------------------------------- */

static int read_line(struct br_pprof *p, const struct br_field *f, struct br_build_line *ret)
{
    enum { FUNCTION = 1, LINE, COLUMN, FIELDS };
    uint64_t v[FIELDS] = {0};
    if (!br_pprof_scalars(f->data, f->data + f->value, v, FIELDS - 1))
        return malformed(p, "line");
    uint32_t function = br_pprof_ids_get(&p->functions, v[FUNCTION]);
    if (!function && v[FUNCTION]) {
        (void)br_err_set(p->err, BR_EINVAL, "pprof: a line's function %llu is not in the profile",
                         (unsigned long long)v[FUNCTION]);
        return BR_ENOTFOUND;
    }
    *ret =
        (struct br_build_line){function ? function - 1 : 0, (int64_t)v[LINE], (int64_t)v[COLUMN]};
    return 0;
}

/* BR_ENOTFOUND with the error set when it refers to what is not there: then there is no such location. */
static int read_location(struct br_pprof *p, const struct br_field *location)
{
    enum { ID = 1, MAPPING, ADDRESS, LINE, IS_FOLDED, FIELDS };
    uint64_t v[FIELDS] = {0};
    uint32_t n_lines = 0;
    const uint8_t *at = location->data, *end = at + location->value;
    struct br_field f;
    while (at < end) {
        at = br_scan(at, end, &f);
        if (!at)
            return malformed(p, "location");
        if (f.number >= FIELDS)
            continue;
        if (f.wire != (f.number == LINE ? BR_WIRE_LEN : BR_WIRE_VARINT))
            return malformed(p, "location");
        if (f.number != LINE) {
            v[f.number] = f.value;
            continue;
        }
        if (n_lines == BR_PPROF_MOST_LINES)
            return br_err_set(p->err, BR_EINVAL, "pprof: a location has more than %u lines",
                              BR_PPROF_MOST_LINES);
        if (!br_pprof_grow(p, &p->lines, &p->cap_lines, n_lines + 1, sizeof *p->lines))
            return br_pprof_no_memory(p);
        int rc = read_line(p, &f, &p->lines[n_lines++]);
        if (rc)
            return rc;
    }
    uint32_t mapping = br_pprof_ids_get(&p->mappings, v[MAPPING]);
    if (!mapping && v[MAPPING]) {
        (void)br_err_set(p->err, BR_EINVAL,
                         "pprof: location %llu: mapping %llu is not in the profile",
                         (unsigned long long)v[ID], (unsigned long long)v[MAPPING]);
        return BR_ENOTFOUND;
    }
    if (v[IS_FOLDED] && !p->is_folded)
        p->is_folded = flag(p, BR_LOCATION_IS_FOLDED);
    const struct br_build_location l = {.mapping = mapping ? mapping - 1 : 0,
                                        .address = v[ADDRESS],
                                        .lines = p->lines,
                                        .n_lines = n_lines,
                                        .attributes = &p->is_folded,
                                        .n_attributes = v[IS_FOLDED] ? 1 : 0};
    return ids_put(p, &p->locations, v[ID], br_build_location(p->b, &l), "location");
}

/* Nearly all writers count locations from 1, and so do we where nothing was built before. */
static uint32_t count_same(const struct br_pprof *p)
{
    uint32_t n = p->locations.n_entries + 1;
    for (uint32_t id = 1; id < n; id++)
        if (p->locations.dense[id] != id + 1)
            return 0;
    return n;
}

int br_pprof_read_tables(struct br_pprof *p)
{
    const struct br_pprof_range *mappings = &p->ranges[BR_PPROF_MAPPING];
    const struct br_pprof_range *locations = &p->ranges[BR_PPROF_LOCATION];
    struct br_field f;
    if (!ids_init(p, &p->mappings, mappings->n) || !ids_init(p, &p->locations, locations->n))
        return br_pprof_no_memory(p);
    int rc = 0;
    const uint8_t *at = mappings->start;
    while (!rc && goes_on(p) &&
           br_pprof_next(&at, mappings->end, BR_SCAN_LEN(BR_PPROF_MAPPING), &f))
        rc = read_mapping(p, &f);
    if (!rc)
        rc = read_functions(p);
    at = locations->start;
    while (!rc && goes_on(p) &&
           br_pprof_next(&at, locations->end, BR_SCAN_LEN(BR_PPROF_LOCATION), &f)) {
        rc = read_location(p, &f);
        if (rc == BR_ENOTFOUND) {
            br_pprof_blame(p);
            rc = 0;
        }
    }
    if (!rc && !goes_on(p))
        rc = br_pprof_no_memory(p);
    p->n_same = rc ? 0 : count_same(p);
    return rc;
}
