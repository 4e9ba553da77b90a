/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "profile/pprof/internal.h"

#define LINES_MIN 8u

#undef br_pprof_no_memory
int br_pprof_no_memory(struct br_pprof *pprof)
{
    int rc = br_build_rc(pprof->build);
    if (!rc)
        rc = pprof->full ? BR_EFULL : BR_ENOMEM;
    if (rc == BR_EFULL)
        return br_err_set(pprof->err, rc,
                          "pprof: reading %zu bytes takes more than %zu bytes of memory",
                          pprof->source->len, pprof->max_bytes);
    return br_err_set(pprof->err, rc, "pprof: %s", br_strerror(rc));
}

void br_pprof_keep_error(struct br_pprof *pprof)
{
    if (!pprof->lost.first.text[0])
        pprof->lost.first = *pprof->err;
    *pprof->err = (struct br_err){0};
}

int br_pprof_compose(struct br_pprof *pprof, size_t len)
{
    if (len <= pprof->compose) {
        pprof->compose -= len;
        return 0;
    }
    return br_err_set(
        pprof->err, BR_EFULL,
        "pprof: its strings, repeated for each reference, take more than %u times its %zu bytes",
        BR_PPROF_GROWTH, pprof->source->len);
}

static int pprof_tables_no_string(struct br_pprof *pprof, uint64_t index, const char *what,
                                  struct br_err *err)
{
    return br_err_set(err, BR_EINVAL, "pprof: %s: string %lld is not in the table of %u strings",
                      what, (long long)index, pprof->n_strings);
}

#undef br_pprof_no_string
int br_pprof_no_string(struct br_pprof *pprof, uint64_t index, const char *what)
{
    return pprof_tables_no_string(pprof, index, what, pprof->err);
}

/* Counts an invalid reference. Returns the place for its error message. Returns NULL if a
 * message exists already. Only the first message is kept, because a body may contain millions of
 * invalid references. */
static struct br_err *pprof_tables_count_stray(struct br_pprof *pprof)
{
    return pprof->lost.strays++ ? NULL : &pprof->lost.first_stray;
}

bool br_pprof_scalars(const uint8_t *p, const uint8_t *end, uint64_t *values, uint32_t count)
{
    struct br_field field;
    while (p < end) {
        if (__builtin_expect(br_pprof_short(&p, end, values, count), 1))
            continue;
        p = br_scan(p, end, &field);
        if (!p)
            return false;
        if (field.number > count)
            continue;
        if (field.wire != BR_WIRE_VARINT)
            return false;
        values[field.number] = field.value;
    }
    return true;
}

void *br_pprof_alloc(struct br_pprof *pprof, size_t count, size_t size)
{
    size_t bytes;
    if (!br_size_mul(count, size, &bytes) || !br_pprof_fits(pprof, bytes))
        return NULL;
    /* The arena may allocate a block larger than `bytes`. The size of the allocated block must
     * not exceed the available memory either. */
    size_t max = pprof->arena->max, available = br_pprof_available(pprof);
    if (max > pprof->arena->used && available < max - pprof->arena->used)
        pprof->arena->max = pprof->arena->used + available;
    void *array = br_arena_alloc(pprof->arena, bytes);
    pprof->arena->max = max;
    br_pprof_limit_builder(pprof);
    return array;
}

bool br_pprof_grow(struct br_pprof *pprof, void *items, uint32_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return true;
    size_t want = *cap ? (size_t)*cap * 2 : LINES_MIN;
    if (want < need)
        want = need;
    void *old, *fresh = want <= UINT32_MAX ? br_pprof_alloc(pprof, want, size) : NULL;
    if (!fresh)
        return false;
    memcpy(&old, items, sizeof old);
    br_put_bytes(fresh, old, *cap * size);
    memcpy(items, &fresh, sizeof fresh);
    *cap = (uint32_t)want;
    return true;
}

/* --- Strings ---------------------------------------------------------------------------------- */

int br_pprof_read_strings(struct br_pprof *pprof)
{
    const struct br_pprof_range *range = &pprof->ranges[BR_PPROF_STRING];
    const uint8_t *at = range->start;
    struct br_field field;
    pprof->strings = br_pprof_alloc(pprof, (size_t)range->count + 1, sizeof *pprof->strings);
    if (!pprof->strings)
        return br_pprof_no_memory(pprof);
    while (br_pprof_next(&at, range->end, BR_SCAN_LEN(BR_PPROF_STRING), &field))
        pprof->strings[pprof->n_strings++] = (struct br_pprof_string){
            (uint32_t)(field.data - pprof->source->data), (uint32_t)field.value, 0};
    if (pprof->n_strings && pprof->strings[0].len) {
        pprof->first_string = pprof->n_strings;
        pprof->strings[pprof->n_strings++] = pprof->strings[0];
    }
    return 0;
}

const uint8_t *br_pprof_text(const struct br_pprof *pprof, uint64_t index, size_t *ret_len)
{
    static const uint8_t empty[1];
    *ret_len = 0;
    if (index == 0 && !pprof->n_strings)
        return empty;
    if (index >= pprof->n_strings)
        return NULL;
    *ret_len = pprof->strings[index].len;
    return pprof->source->data + pprof->strings[index].at;
}

bool br_pprof_string_slow(struct br_pprof *pprof, uint64_t index, const char *what, uint32_t *ret)
{
    size_t len;
    const uint8_t *text = br_pprof_text(pprof, index, &len);
    if (!text) {
        (void)br_pprof_no_string(pprof, index, what);
        return false;
    }
    *ret = br_build_string(pprof->build, text, len);
    if (index < pprof->n_strings)
        pprof->strings[index].index = *ret + 1;
    return true;
}

const uint8_t *br_pprof_text_or_empty(struct br_pprof *pprof, uint64_t index, const char *what,
                                      size_t *ret_len)
{
    const uint8_t *text = br_pprof_text(pprof, index, ret_len);
    if (text)
        return text;
    (void)pprof_tables_no_string(pprof, index, what, pprof_tables_count_stray(pprof));
    return (const uint8_t *)"";
}

uint32_t br_pprof_string_or_empty(struct br_pprof *pprof, uint64_t index, const char *what)
{
    uint32_t string = 0;
    size_t len;
    if (!br_pprof_text(pprof, index, &len))
        (void)br_pprof_text_or_empty(pprof, index, what, &len);
    else
        (void)br_pprof_string(pprof, index, what, &string);
    return string;
}

/* --- IDs -------------------------------------------------------------------------------------- */

static bool pprof_tables_ids_init(struct br_pprof *pprof, struct br_pprof_ids *ids, uint32_t count)
{
    uint64_t n_dense = (uint64_t)count + count / 4 + 64;
    if (n_dense > UINT32_MAX)
        return false;
    ids->n_entries = count;
    ids->dense = br_pprof_alloc(pprof, (size_t)n_dense, sizeof *ids->dense);
    if (!ids->dense)
        return false;
    memset(ids->dense, 0, (size_t)n_dense * sizeof *ids->dense);
    ids->n_dense = (uint32_t)n_dense;
    return true;
}

static uint32_t pprof_tables_slot_of(const struct br_pprof_ids *ids, uint64_t id)
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
    return ids->places[pprof_tables_slot_of(ids, id)];
}

/* Creates the hash table `ids->sparse`, large enough for all entries. Called for the first ID
 * that is too large for the array `ids->dense`. */
static bool pprof_tables_make_sparse(struct br_pprof *pprof, struct br_pprof_ids *ids)
{
    size_t n = (size_t)ids->n_entries + ids->n_entries / 2 + 2;
    br_random_bytes(&ids->factor, sizeof ids->factor);
    ids->factor |= 1;
    ids->places = br_pprof_alloc(pprof, n, sizeof *ids->places);
    ids->sparse = ids->places ? br_pprof_alloc(pprof, n, sizeof *ids->sparse) : NULL;
    if (!ids->sparse)
        return false;
    memset(ids->places, 0, n * sizeof *ids->places);
    memset(ids->sparse, 0, n * sizeof *ids->sparse);
    ids->n_sparse = (uint32_t)n;
    return true;
}

/* Records the index of the entry with this ID. ID 0 means "no entry" and is not recorded. If
 * several entries have the same ID the last one counts, as in Pyroscope. */
static int pprof_tables_ids_put(struct br_pprof *pprof, struct br_pprof_ids *ids, uint64_t id,
                                uint32_t index, const char *what)
{
    if (br_pprof_ids_get(ids, id))
        (void)br_err_set(pprof_tables_count_stray(pprof), BR_EINVAL,
                         "pprof: two %ss have the id %llu", what, (unsigned long long)id);
    if (id == 0)
        return 0;
    if (id < ids->n_dense) {
        ids->dense[id] = index + 1;
        return 0;
    }
    if (!ids->sparse && !pprof_tables_make_sparse(pprof, ids))
        return br_pprof_no_memory(pprof);
    uint32_t at = pprof_tables_slot_of(ids, id);
    ids->sparse[at] = id;
    ids->places[at] = index + 1;
    return 0;
}

/* Returns true while the builder has not failed and memory is available. */
static bool pprof_tables_may_continue(struct br_pprof *pprof)
{
    return !br_build_rc(pprof->build) && br_pprof_fits(pprof, 0);
}

static int pprof_tables_malformed(struct br_pprof *pprof, const char *what)
{
    return br_err_set(pprof->err, BR_EINVAL, "pprof: a %s is malformed", what);
}

/* --- Mappings --------------------------------------------------------------------------------- */

static uint32_t pprof_tables_flag(struct br_pprof *pprof, const char *name)
{
    return br_build_attribute_bool(pprof->build, br_build_string(pprof->build, name, strlen(name)),
                                   true);
}

static int pprof_tables_read_mapping(struct br_pprof *pprof, const struct br_field *field)
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
    uint32_t attributes[1 + BR_COUNT(flags)];
    size_t n = 0, len;
    if (!br_pprof_scalars(field->data, field->data + field->value, v, FIELDS - 1))
        return pprof_tables_malformed(pprof, "mapping");
    uint32_t filename = br_pprof_string_or_empty(pprof, v[FILENAME], "mapping");
    (void)br_pprof_text_or_empty(pprof, v[BUILD_ID], "build id", &len);
    if (len) {
        uint32_t key =
            br_build_string(pprof->build, BR_MAPPING_BUILD_ID, strlen(BR_MAPPING_BUILD_ID));
        int rc = br_pprof_text_attribute(pprof, key, v[BUILD_ID], &attributes[n++]);
        if (rc)
            return rc;
    }
    for (size_t i = 0; i < BR_COUNT(flags); i++)
        if (v[FLAGS + i])
            attributes[n++] = pprof_tables_flag(pprof, flags[i]);
    const struct br_build_mapping mapping = {.memory_start = v[START],
                                             .memory_limit = v[LIMIT],
                                             .file_offset = v[OFFSET],
                                             .filename = filename,
                                             .attributes = attributes,
                                             .n_attributes = n};
    return pprof_tables_ids_put(pprof, &pprof->mappings, v[ID],
                                br_build_mapping(pprof->build, &mapping), "mapping");
}

/* --- Functions -------------------------------------------------------------------------------- */

static bool pprof_tables_spy_is(const struct br_pprof *pprof, const char *name)
{
    return pprof->source->spy_name && !strcmp(pprof->source->spy_name, name);
}

/* Prefixes function names of scripting languages with the file name, as Pyroscope does: "app.py
 * main". */
static int pprof_tables_scripting_name(struct br_pprof *pprof, uint64_t name, uint64_t filename,
                                       uint32_t *ret)
{
    size_t name_len, file_len;
    const uint8_t *n = br_pprof_text(pprof, name, &name_len);
    const uint8_t *f = br_pprof_text(pprof, filename, &file_len);
    if (!n || !f || (pprof_tables_spy_is(pprof, "pyspy") && file_len && *f == '/'))
        return 0;
    size_t len = file_len + 1 + name_len;
    int rc = br_pprof_compose(pprof, len);
    if (rc)
        return rc;
    if (!br_pprof_grow(pprof, &pprof->composed, &pprof->cap_composed, len, 1))
        return br_pprof_no_memory(pprof);
    uint8_t *o = br_put_bytes(pprof->composed, f, file_len);
    *o++ = ' ';
    br_put_bytes(o, n, name_len);
    *ret = br_build_string(pprof->build, pprof->composed, len);
    return 0;
}

static int pprof_tables_read_function(struct br_pprof *pprof, const struct br_field *field,
                                      bool scripting, uint64_t id)
{
    enum { ID = 1, NAME, SYSTEM_NAME, FILENAME, START_LINE, FIELDS };
    uint64_t v[FIELDS] = {0};
    if (!br_pprof_scalars(field->data, field->data + field->value, v, FIELDS - 1))
        return pprof_tables_malformed(pprof, "function");
    uint32_t name = br_pprof_string_or_empty(pprof, v[NAME], "function");
    uint32_t system_name = br_pprof_string_or_empty(pprof, v[SYSTEM_NAME], "function");
    uint32_t filename = br_pprof_string_or_empty(pprof, v[FILENAME], "function");
    int rc = scripting ? pprof_tables_scripting_name(pprof, v[NAME], v[FILENAME], &name) : 0;
    if (rc)
        return rc;
    uint32_t index =
        br_build_function(pprof->build, name, system_name, filename, (int64_t)v[START_LINE]);
    return pprof_tables_ids_put(pprof, &pprof->functions, id ? id : v[ID], index, "function");
}

/* Returns the ID of the function or location that `field` contains. The ID has the same field
 * number in functions and locations. */
static uint64_t pprof_tables_id_of(const struct br_field *field)
{
    uint64_t id = 0;
    struct br_field inner;
    for (const uint8_t *p = field->data, *end = p + field->value; p && p < end;) {
        p = br_scan(p, end, &inner);
        if (p && br_scan_tag(&inner) == BR_SCAN_VARINT(BR_PPROF_FUNCTION_ID))
            id = inner.value;
    }
    return id;
}

/* Returns true if the functions lack IDs: some versions of Pyroscope's .NET agent send no IDs.
 * The agent sends one function for each location, in the same order. Each function should have
 * the ID of its location. */
static bool pprof_tables_functions_lack_ids(const struct br_pprof *pprof)
{
    const struct br_pprof_range *range = &pprof->ranges[BR_PPROF_FUNCTION];
    const uint8_t *at = range->start;
    struct br_field field;
    if (!pprof->dotnet || range->count != pprof->ranges[BR_PPROF_LOCATION].count)
        return false;
    while (br_pprof_next(&at, range->end, BR_SCAN_LEN(BR_PPROF_FUNCTION), &field))
        if (pprof_tables_id_of(&field))
            return false;
    return true;
}

static int pprof_tables_read_functions(struct br_pprof *pprof)
{
    const struct br_pprof_range *range = &pprof->ranges[BR_PPROF_FUNCTION];
    bool scripting = pprof_tables_spy_is(pprof, "pyspy") || pprof_tables_spy_is(pprof, "rbspy") ||
                     pprof_tables_spy_is(pprof, "scripting");
    bool borrow = pprof_tables_functions_lack_ids(pprof);
    const uint8_t *at = range->start, *at_location = pprof->ranges[BR_PPROF_LOCATION].start;
    struct br_field field, location;
    int rc = pprof_tables_ids_init(pprof, &pprof->functions, range->count)
                 ? 0
                 : br_pprof_no_memory(pprof);
    while (!rc && pprof_tables_may_continue(pprof) &&
           br_pprof_next(&at, range->end, BR_SCAN_LEN(BR_PPROF_FUNCTION), &field)) {
        uint64_t id = 0;
        if (borrow && br_pprof_next(&at_location, pprof->ranges[BR_PPROF_LOCATION].end,
                                    BR_SCAN_LEN(BR_PPROF_LOCATION), &location))
            id = pprof_tables_id_of(&location);
        rc = pprof_tables_read_function(pprof, &field, scripting, id);
    }
    return rc;
}

/* --- Locations -------------------------------------------------------------------------------- */

static int pprof_tables_read_line(struct br_pprof *pprof, const struct br_field *field,
                                  struct br_build_line *ret)
{
    enum { FUNCTION = 1, LINE, COLUMN, FIELDS };
    uint64_t v[FIELDS] = {0};
    if (!br_pprof_scalars(field->data, field->data + field->value, v, FIELDS - 1))
        return pprof_tables_malformed(pprof, "line");
    uint32_t function = br_pprof_ids_get(&pprof->functions, v[FUNCTION]);
    if (!function && v[FUNCTION]) {
        (void)br_err_set(pprof->err, BR_EINVAL,
                         "pprof: a line's function %llu is not in the profile",
                         (unsigned long long)v[FUNCTION]);
        return BR_ENOTFOUND;
    }
    *ret =
        (struct br_build_line){function ? function - 1 : 0, (int64_t)v[LINE], (int64_t)v[COLUMN]};
    return 0;
}

/* Reads a location. Returns BR_ENOTFOUND with a message if the location contains an invalid
 * reference; the location is then left out. */
static int pprof_tables_read_location(struct br_pprof *pprof, const struct br_field *location)
{
    enum { ID = 1, MAPPING, ADDRESS, LINE, IS_FOLDED, FIELDS };
    uint64_t v[FIELDS] = {0};
    uint32_t n_lines = 0;
    const uint8_t *at = location->data, *end = at + location->value;
    struct br_field field;
    while (at < end) {
        if (br_pprof_short(&at, end, v, ADDRESS))
            continue;
        at = br_scan(at, end, &field);
        if (!at)
            return pprof_tables_malformed(pprof, "location");
        if (field.number >= FIELDS)
            continue;
        if (field.wire != (field.number == LINE ? BR_WIRE_LEN : BR_WIRE_VARINT))
            return pprof_tables_malformed(pprof, "location");
        if (field.number != LINE) {
            v[field.number] = field.value;
            continue;
        }
        if (n_lines == BR_PPROF_LINES_MAX)
            return br_err_set(pprof->err, BR_EINVAL, "pprof: a location has more than %u lines",
                              BR_PPROF_LINES_MAX);
        if (!br_pprof_grow(pprof, &pprof->lines, &pprof->cap_lines, n_lines + 1,
                           sizeof *pprof->lines))
            return br_pprof_no_memory(pprof);
        int rc = pprof_tables_read_line(pprof, &field, &pprof->lines[n_lines++]);
        if (rc)
            return rc;
    }
    uint32_t mapping = br_pprof_ids_get(&pprof->mappings, v[MAPPING]);
    if (!mapping && v[MAPPING]) {
        (void)br_err_set(pprof->err, BR_EINVAL,
                         "pprof: location %llu: mapping %llu is not in the profile",
                         (unsigned long long)v[ID], (unsigned long long)v[MAPPING]);
        return BR_ENOTFOUND;
    }
    if (v[IS_FOLDED] && !pprof->is_folded)
        pprof->is_folded = pprof_tables_flag(pprof, BR_LOCATION_IS_FOLDED);
    const struct br_build_location build_location = {.mapping = mapping ? mapping - 1 : 0,
                                                     .address = v[ADDRESS],
                                                     .lines = pprof->lines,
                                                     .n_lines = n_lines,
                                                     .attributes = &pprof->is_folded,
                                                     .n_attributes = v[IS_FOLDED] ? 1 : 0};
    return pprof_tables_ids_put(pprof, &pprof->locations, v[ID],
                                br_build_location(pprof->build, &build_location), "location");
}

/* Returns the number of locations + 1 if the IDs of all locations equal the builder's indices,
 * else 0. Most writers number locations from 1, and so does an empty builder. */
static uint32_t pprof_tables_count_same(const struct br_pprof *pprof)
{
    uint32_t n = pprof->locations.n_entries + 1;
    for (uint32_t id = 1; id < n; id++)
        if (pprof->locations.dense[id] != id + 1)
            return 0;
    return n;
}

int br_pprof_read_tables(struct br_pprof *pprof)
{
    const struct br_pprof_range *mappings = &pprof->ranges[BR_PPROF_MAPPING];
    const struct br_pprof_range *locations = &pprof->ranges[BR_PPROF_LOCATION];
    struct br_field field;
    if (!pprof_tables_ids_init(pprof, &pprof->mappings, mappings->count) ||
        !pprof_tables_ids_init(pprof, &pprof->locations, locations->count))
        return br_pprof_no_memory(pprof);
    int rc = 0;
    const uint8_t *at = mappings->start;
    while (!rc && pprof_tables_may_continue(pprof) &&
           br_pprof_next(&at, mappings->end, BR_SCAN_LEN(BR_PPROF_MAPPING), &field))
        rc = pprof_tables_read_mapping(pprof, &field);
    if (!rc)
        rc = pprof_tables_read_functions(pprof);
    at = locations->start;
    while (!rc && pprof_tables_may_continue(pprof) &&
           br_pprof_next(&at, locations->end, BR_SCAN_LEN(BR_PPROF_LOCATION), &field)) {
        rc = pprof_tables_read_location(pprof, &field);
        if (rc == BR_ENOTFOUND) {
            br_pprof_keep_error(pprof);
            rc = 0;
        }
    }
    if (!rc && !pprof_tables_may_continue(pprof))
        rc = br_pprof_no_memory(pprof);
    pprof->n_same = rc ? 0 : pprof_tables_count_same(pprof);
    return rc;
}
