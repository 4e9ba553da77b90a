/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/text/gecko.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/decimal.h"
#include "base/mem.h"
#include "base/steps.h"

#define ROWS_MAX (1u << 28)
#define RESOURCE_LIBRARY 1.0
/* HAS_RESOURCE and HAS_SOURCE are bits of a function's `flags`, which exist since version 75 */
#define HAS_RESOURCE 4u
#define HAS_SOURCE 8u
#define LINE_MAX_KNOWN 1e9

struct br_gecko_string {
    uint32_t at;       /* offset of the string in the JSON text */
    uint32_t interned; /* index of the string in the builder + 1; 0: not added yet */
    /* Index of the function for a location string + 1; 0: the string has no function. Used only
     * for the Gecko format, which has no table of functions. */
    uint32_t function;
};

/* A function, or an address in a library if `address` is not 0. */
struct br_gecko_function {
    uint32_t function, mapping; /* index of the function and index of the mapping in the builder */
    uint64_t address;
};

struct br_gecko_stack {
    /* index of the prefix (the stack of the caller) + 1; 0: the stack has no prefix */
    uint32_t parent;
    uint32_t location;
    uint32_t made; /* index of the stack in the builder + 1; 0: not added yet */
};

int br_gecko_fail(struct br_gecko_reading *reading, const char *what)
{
    return br_err_set(reading->err, BR_EINVAL, "not a Firefox profile: %s", what);
}

int br_gecko_no_memory(struct br_gecko_reading *reading)
{
    return br_err_set(reading->err, BR_ENOMEM, "no memory for a Firefox profile");
}

/* Parses a non-negative integer below `count`. */
static bool gecko_stacks_index(const struct br_json_token *token, uint32_t count, uint32_t *ret)
{
    double v;
    if (!br_json_part_number(token, &v) || v < 0 || v >= count || v != floor(v))
        return false;
    *ret = (uint32_t)v;
    return true;
}

static int64_t gecko_stacks_position(const struct br_json_token *token)
{
    double v;
    return br_json_part_number(token, &v) && v > 0 && v < LINE_MAX_KNOWN ? (int64_t)v : 0;
}

/* Makes room for one more element in an array. */
static int gecko_stacks_grow(struct br_gecko_stacks *stacks, void *items, uint32_t *cap,
                             uint32_t count, size_t size)
{
    int rc = br_grow(items, cap, (size_t)count + 1, size, ROWS_MAX);
    if (rc == BR_EFULL)
        return br_gecko_fail(stacks->reading, "a table is too large");
    return rc ? br_gecko_no_memory(stacks->reading) : 0;
}

/* --- Strings ---------------------------------------------------------------------------------- */

static int gecko_stacks_read_strings(struct br_gecko_stacks *stacks, struct br_json_part part)
{
    struct br_gecko_strings *strings = &stacks->strings;
    struct br_json_token value;
    struct br_json_list list;
    bool more;
    int rc = br_json_list_open(&list, &stacks->reading->scan, part);
    while (!rc && (rc = br_json_list_more(&list, &more)) == 0 && more) {
        rc = gecko_stacks_grow(stacks, &strings->all, &strings->cap, strings->count,
                               sizeof *strings->all);
        if (rc)
            return rc;
        strings->all[strings->count++] =
            (struct br_gecko_string){.at = (uint32_t)(list.scan.at - list.scan.text)};
        rc = br_json_scan_value(&list.scan, &value);
        if (!rc)
            rc = br_json_scan_skip(&list.scan, &value);
    }
    return rc;
}

bool br_gecko_text(struct br_gecko_reading *reading, const struct br_json_token *token,
                   const char **ret, size_t *ret_len)
{
    *ret = "";
    *ret_len = 0;
    if (token->type != BR_JSON_STRING || token->len == 0)
        return true;
    *ret = token->text;
    *ret_len = token->len;
    if (!token->escaped)
        return true;
    if (br_grow(&reading->text, &reading->cap_text, token->len, 1, UINT32_MAX))
        return false;
    *ret_len = br_json_plain(token->text, token->len, reading->text);
    *ret = reading->text;
    return true;
}

static int gecko_stacks_text(struct br_gecko_stacks *stacks, uint32_t string, const char **ret,
                             size_t *ret_len)
{
    struct br_json_scan scan = stacks->reading->scan;
    struct br_json_token token;
    scan.at = scan.text + stacks->string_source->strings.all[string].at;
    int rc = br_json_scan_value(&scan, &token);
    if (rc)
        return rc;
    return br_gecko_text(stacks->reading, &token, ret, ret_len)
               ? 0
               : br_gecko_no_memory(stacks->reading);
}

/* Returns in `ret` the builder's index of a string. Each string is read only once. */
static int gecko_stacks_intern(struct br_gecko_stacks *stacks, uint32_t string, uint32_t *ret)
{
    struct br_gecko_string *entry = &stacks->string_source->strings.all[string];
    const char *text = NULL;
    size_t len = 0;
    int rc = entry->interned ? 0 : gecko_stacks_text(stacks, string, &text, &len);
    if (rc)
        return rc;
    if (!entry->interned)
        entry->interned = br_build_string(stacks->reading->build, text, len) + 1;
    *ret = entry->interned - 1;
    return 0;
}

/* --- Functions -------------------------------------------------------------------------------- */

/* Parses an address such as "0x1a2b". */
static bool gecko_stacks_address(const char *text, size_t len, uint64_t *ret)
{
    uint64_t v = 0;
    if (len < 3 || len > 18 || text[0] != '0' || text[1] != 'x')
        return false;
    for (size_t i = 2; i < len; i++) {
        int digit = br_hex_value(text[i]);
        if (digit < 0)
            return false;
        v = v << 4 | (uint64_t)digit;
    }
    *ret = v;
    return v != 0;
}

/* Adds a function whose name is a string of the profile. If the name is an address, the function
 * has this address and no name. */
static int gecko_stacks_name_function(struct br_gecko_stacks *stacks, uint32_t string,
                                      uint32_t file, int64_t line, struct br_gecko_function *made)
{
    const char *text = "";
    size_t len = 0;
    uint32_t name;
    /* Do not read a string again that was added to the builder: an address is not added as a
     * name. */
    int rc = stacks->string_source->strings.all[string].interned
                 ? 0
                 : gecko_stacks_text(stacks, string, &text, &len);
    if (rc || gecko_stacks_address(text, len, &made->address))
        return rc;
    rc = gecko_stacks_intern(stacks, string, &name);
    if (!rc)
        made->function = br_build_function(stacks->reading->build, name, 0, file, line);
    return rc ? rc : br_build_rc(stacks->reading->build);
}

enum function_column { NAME, RESOURCE, FILE_NAME, SOURCE, LINE, FLAGS, N_FUNCTION_COLUMNS };

/* Returns in `ret` the file of a function. `fileName` is a string; `source`, which replaced
 * `fileName` in version 58, is the index of a source. */
static int gecko_stacks_file(struct br_gecko_stacks *stacks, const struct br_json_token *row,
                             uint32_t flags, uint32_t *ret)
{
    uint32_t string, source;
    *ret = 0;
    if (gecko_stacks_index(&row[FILE_NAME], stacks->string_source->strings.count, &string))
        return gecko_stacks_intern(stacks, string, ret);
    if (!(flags & HAS_SOURCE) ||
        !gecko_stacks_index(&row[SOURCE], stacks->string_source->n_sources, &source))
        return 0;
    string = stacks->string_source->sources[source];
    return string < stacks->string_source->strings.count ? gecko_stacks_intern(stacks, string, ret)
                                                         : 0;
}

static int gecko_stacks_add_function(struct br_gecko_stacks *stacks,
                                     const struct br_json_token *row)
{
    struct br_gecko_function function = {0};
    uint32_t name, file, resource, flags = HAS_RESOURCE | HAS_SOURCE;
    if (!gecko_stacks_index(&row[NAME], stacks->string_source->strings.count, &name))
        return br_gecko_fail(stacks->reading, "a function has no name");
    (void)gecko_stacks_index(&row[FLAGS], UINT32_MAX, &flags);
    int rc = gecko_stacks_file(stacks, row, flags, &file);
    if (!rc)
        rc = gecko_stacks_name_function(stacks, name, file, gecko_stacks_position(&row[LINE]),
                                        &function);
    if (!rc)
        rc = gecko_stacks_grow(stacks, &stacks->functions, &stacks->cap_functions,
                               stacks->n_functions, sizeof function);
    if (rc)
        return rc;
    if (flags & HAS_RESOURCE && gecko_stacks_index(&row[RESOURCE], stacks->n_resources, &resource))
        function.mapping = stacks->resources[resource];
    stacks->functions[stacks->n_functions++] = function;
    return 0;
}

static int gecko_stacks_add_source(struct br_gecko_stacks *stacks, const struct br_json_token *row)
{
    uint32_t string = UINT32_MAX;
    (void)gecko_stacks_index(&row[0], UINT32_MAX, &string);
    int rc = gecko_stacks_grow(stacks, &stacks->sources, &stacks->cap_sources, stacks->n_sources,
                               sizeof *stacks->sources);
    if (!rc)
        stacks->sources[stacks->n_sources++] = string;
    return rc;
}

static int gecko_stacks_add_resource(struct br_gecko_stacks *stacks,
                                     const struct br_json_token *row)
{
    struct br_build_mapping mapping = {0};
    uint32_t string;
    double type;
    int rc = gecko_stacks_grow(stacks, &stacks->resources, &stacks->cap_resources,
                               stacks->n_resources, sizeof *stacks->resources);
    bool library = br_json_part_number(&row[1], &type) && type == RESOURCE_LIBRARY &&
                   gecko_stacks_index(&row[0], stacks->string_source->strings.count, &string);
    if (!rc && library)
        rc = gecko_stacks_intern(stacks, string, &mapping.filename);
    if (!rc)
        stacks->resources[stacks->n_resources++] =
            library ? br_build_mapping(stacks->reading->build, &mapping) : 0;
    return rc;
}

/* --- Locations in the Gecko format ------------------------------------------------------------ */

/* Removes a colon and digits from the end of a text. Returns false if the text ends differently. */
static bool gecko_stacks_cut_number(const char *text, size_t *len, int64_t *ret)
{
    const char *colon = *len ? memrchr(text, ':', *len) : NULL;
    uint64_t v;
    if (!colon || !br_decimal_parse(colon + 1, (size_t)(text + *len - colon) - 1, 999999999, &v))
        return false;
    *ret = (int64_t)v;
    *len = (size_t)(colon - text);
    return true;
}

/* Parses "name (in library)", "name (file:line)", "name (file:line:column)", "0x1a2b", or a
 * name. */
static int gecko_stacks_read_location(struct br_gecko_stacks *stacks, const char *text, size_t len,
                                      struct br_gecko_function *ret)
{
    struct br_build *build = stacks->reading->build;
    const char *open = len && text[len - 1] == ')' ? memrchr(text, '(', len) : NULL;
    size_t name_len = open && open > text && open[-1] == ' ' ? (size_t)(open - text) - 1 : len;
    const char *inside = open ? open + 1 : text;
    size_t inside_len = name_len < len ? (size_t)(text + len - inside) - 1 : 0;
    uint32_t file = 0;
    int64_t line = 0, further = 0;
    if (gecko_stacks_address(text, len, &ret->address))
        return 0;
    if (inside_len > 3 && memcmp(inside, "in ", 3) == 0) {
        const struct br_build_mapping mapping = {
            .filename = br_build_string(build, inside + 3, inside_len - 3)};
        ret->mapping = br_build_mapping(build, &mapping);
    } else if (inside_len && gecko_stacks_cut_number(inside, &inside_len, &line)) {
        if (gecko_stacks_cut_number(inside, &inside_len, &further))
            line = further;
        file = br_build_string(build, inside, inside_len);
    } else {
        name_len = len;
    }
    uint32_t name = br_build_string(build, text, name_len);
    ret->function = br_build_function(build, name, 0, file, line);
    return br_build_rc(build);
}

/* Returns in `ret` the function for a location string, which is added at its first use. */
static int gecko_stacks_location_function(struct br_gecko_stacks *stacks, uint32_t string,
                                          struct br_gecko_function *ret)
{
    struct br_gecko_string *entry = &stacks->string_source->strings.all[string];
    struct br_gecko_function function = {0};
    const char *text;
    size_t len;
    int rc = 0;
    if (!entry->function) {
        rc = gecko_stacks_text(stacks, string, &text, &len);
        if (!rc)
            rc = gecko_stacks_read_location(stacks, text, len, &function);
        if (!rc)
            rc = gecko_stacks_grow(stacks, &stacks->functions, &stacks->cap_functions,
                                   stacks->n_functions, sizeof function);
        if (rc)
            return rc;
        stacks->functions[stacks->n_functions++] = function;
        entry->function = stacks->n_functions;
    }
    *ret = stacks->functions[entry->function - 1];
    return 0;
}

/* --- Frames ----------------------------------------------------------------------------------- */

enum frame_column { FUNCTION, LOCATION, FRAME_LINE, FRAME_COLUMN, N_FRAME_COLUMNS };

static int gecko_stacks_add_frame(struct br_gecko_stacks *stacks, const struct br_json_token *row)
{
    struct br_gecko_function function;
    uint32_t number;
    int rc = 0;
    if (gecko_stacks_index(&row[FUNCTION], stacks->n_functions, &number))
        function = stacks->functions[number];
    else if (gecko_stacks_index(&row[LOCATION], stacks->string_source->strings.count, &number))
        rc = gecko_stacks_location_function(stacks, number, &function);
    else
        return br_gecko_fail(stacks->reading, "a frame refers to an unknown function");
    if (!rc)
        rc = gecko_stacks_grow(stacks, &stacks->frames, &stacks->cap_frames, stacks->n_frames,
                               sizeof *stacks->frames);
    if (rc)
        return rc;
    const struct br_build_line line = {.function = function.function,
                                       .line = gecko_stacks_position(&row[FRAME_LINE]),
                                       .column = gecko_stacks_position(&row[FRAME_COLUMN])};
    const struct br_build_location location = {.mapping = function.mapping,
                                               .address = function.address,
                                               .lines = &line,
                                               .n_lines = function.address == 0};
    stacks->frames[stacks->n_frames++] = br_build_location(stacks->reading->build, &location);
    return br_build_rc(stacks->reading->build);
}

/* --- Stacks ----------------------------------------------------------------------------------- */

enum stack_column { FRAME, PREFIX, PREFIX_OFFSET, N_STACK_COLUMNS };

/* Adds a stack, whose prefix must be an earlier stack. `prefixOffset`, since version 66, is the
 * distance to the prefix; 0 means that the stack has no prefix. */
static int gecko_stacks_add_stack(struct br_gecko_stacks *stacks, const struct br_json_token *row)
{
    struct br_gecko_stack stack = {0};
    uint32_t frame, n;
    if (!gecko_stacks_index(&row[FRAME], stacks->n_frames, &frame))
        return br_gecko_fail(stacks->reading, "a stack refers to an unknown frame");
    stack.location = stacks->frames[frame];
    if (gecko_stacks_index(&row[PREFIX_OFFSET], stacks->count + 1, &n))
        stack.parent = n ? stacks->count - n + 1 : 0;
    else if (gecko_stacks_index(&row[PREFIX], stacks->count, &n))
        stack.parent = n + 1;
    else if (row[PREFIX].type != BR_JSON_NULL || row[PREFIX_OFFSET].type != BR_JSON_NULL)
        return br_gecko_fail(stacks->reading, "a stack whose prefix is not an earlier stack");
    int rc = gecko_stacks_grow(stacks, &stacks->all, &stacks->cap, stacks->count, sizeof stack);
    if (!rc)
        stacks->all[stacks->count++] = stack;
    return rc;
}

static int gecko_stacks_make(struct br_gecko_stacks *stacks, uint32_t number)
{
    struct br_gecko_reading *reading = stacks->reading;
    uint32_t depth = 0;
    for (uint32_t i = number + 1; i; i = stacks->all[i - 1].parent) {
        if (depth >= reading->path_left)
            return br_gecko_fail(reading, "stacks are too large for the size of the upload");
        if (br_grow(&reading->path, &reading->cap_path, (size_t)depth + 1, sizeof *reading->path,
                    ROWS_MAX))
            return br_gecko_no_memory(reading);
        reading->path[depth++] = stacks->all[i - 1].location;
    }
    reading->path_left -= depth;
    br_steps_add(depth);
    stacks->all[number].made = br_build_stack(reading->build, reading->path, depth) + 1;
    return br_build_rc(reading->build);
}

int br_gecko_stack(struct br_gecko_stacks *stacks, const struct br_json_token *number,
                   uint32_t *ret)
{
    uint32_t i;
    if (!gecko_stacks_index(number, stacks->count, &i))
        return br_gecko_fail(stacks->reading, "a sample refers to an unknown stack");
    int rc = stacks->all[i].made ? 0 : gecko_stacks_make(stacks, i);
    *ret = stacks->all[i].made - 1;
    return rc;
}

/* --- All tables ------------------------------------------------------------------------------- */

void br_gecko_on_part(struct br_gecko_parts *parts, const struct br_json_scan *scan,
                      const struct br_json_token *name, const struct br_json_token *value)
{
    if (br_json_part_is(name, "stringArray") || br_json_part_is(name, "stringTable"))
        parts->strings = br_json_part_of(scan, value, BR_JSON_ARRAY);
    else if (br_json_part_is(name, "sources"))
        parts->sources = br_json_part_of(scan, value, BR_JSON_OBJECT);
    else if (br_json_part_is(name, "resourceTable"))
        parts->resources = br_json_part_of(scan, value, BR_JSON_OBJECT);
    else if (br_json_part_is(name, "funcTable"))
        parts->functions = br_json_part_of(scan, value, BR_JSON_OBJECT);
    else if (br_json_part_is(name, "frameTable"))
        parts->frames = br_json_part_of(scan, value, BR_JSON_OBJECT);
    else if (br_json_part_is(name, "stackTable"))
        parts->stacks = br_json_part_of(scan, value, BR_JSON_OBJECT);
}

typedef int gecko_stacks_row_fn(struct br_gecko_stacks *stacks, const struct br_json_token *row);

static int gecko_stacks_read_table(struct br_gecko_stacks *stacks, struct br_json_part part,
                                   const char *const *names, unsigned n_names,
                                   gecko_stacks_row_fn *fn)
{
    struct br_json_token row[BR_GECKO_COLUMNS_MAX];
    struct br_gecko_table table;
    bool more = true;
    int rc = br_gecko_table_open(&table, &stacks->reading->scan, part, names, n_names);
    while (!rc && (rc = br_gecko_table_next(&table, row, &more)) == 0 && more)
        rc = fn(stacks, row);
    return rc;
}

int br_gecko_stacks_read(struct br_gecko_stacks *stacks, struct br_gecko_reading *reading,
                         const struct br_gecko_parts *parts, struct br_gecko_stacks *shared)
{
    static const char *const sources[] = {"filename"}, *const resources[] = {"name", "type"};
    static const char *const functions[N_FUNCTION_COLUMNS] = {
        [NAME] = "name",     [RESOURCE] = "resource", [FILE_NAME] = "fileName",
        [SOURCE] = "source", [LINE] = "lineNumber",   [FLAGS] = "flags"};
    static const char *const frames[N_FRAME_COLUMNS] = {[FUNCTION] = "func",
                                                        [LOCATION] = "location",
                                                        [FRAME_LINE] = "line",
                                                        [FRAME_COLUMN] = "column"};
    static const char *const table[N_STACK_COLUMNS] = {
        [FRAME] = "frame", [PREFIX] = "prefix", [PREFIX_OFFSET] = "prefixOffset"};
    *stacks = (struct br_gecko_stacks){
        .reading = reading, .string_source = !parts->strings.at && shared ? shared : stacks};
    int rc = gecko_stacks_read_strings(stacks, parts->strings);
    if (!rc)
        rc = gecko_stacks_read_table(stacks, parts->sources, sources, 1, gecko_stacks_add_source);
    if (!rc)
        rc = gecko_stacks_read_table(stacks, parts->resources, resources, 2,
                                     gecko_stacks_add_resource);
    if (!rc)
        rc = gecko_stacks_read_table(stacks, parts->functions, functions, N_FUNCTION_COLUMNS,
                                     gecko_stacks_add_function);
    if (!rc)
        rc = gecko_stacks_read_table(stacks, parts->frames, frames, N_FRAME_COLUMNS,
                                     gecko_stacks_add_frame);
    return rc ? rc
              : gecko_stacks_read_table(stacks, parts->stacks, table, N_STACK_COLUMNS,
                                        gecko_stacks_add_stack);
}

void br_gecko_stacks_release(struct br_gecko_stacks *stacks)
{
    br_free(stacks->strings.all);
    br_free(stacks->sources);
    br_free(stacks->resources);
    br_free(stacks->functions);
    br_free(stacks->frames);
    br_free(stacks->all);
    *stacks = (struct br_gecko_stacks){0};
}

void br_gecko_reading_release(struct br_gecko_reading *reading)
{
    br_free(reading->path);
    br_free(reading->text);
}
