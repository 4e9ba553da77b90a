/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the tables for the stacks of a Firefox profile: strings, resources, functions, frames, and
 * stacks. Each stack refers to its prefix, the stack of its caller. In the Gecko format and the
 * processed format up to version 55 each thread has its own tables. In later versions of the
 * processed format, all threads share the strings. Since version 60, all threads share the other
 * tables, too. Source: docs-developer/CHANGELOG-formats.md and src/types/{profile,gecko-profile}.ts
 * of firefox-devtools/profiler. This header is private to src/profile.
 */
#pragma once

#include "otlp/json/parts.h"
#include "profile/profile.h"

/* State shared by all tables of a file. */
struct br_gecko_reading {
    struct br_json_scan scan; /* scan at the start of the JSON text, whose syntax was checked */
    struct br_build *build;
    struct br_err *err;
    uint32_t *path; /* locations of the stack that is being built */
    uint32_t cap_path;
    size_t
        path_left; /* maximum number of frames that the stacks added later may contain in total */
    char *text;    /* buffer for an unescaped string */
    uint32_t cap_text;
};

struct br_gecko_strings {
    struct br_gecko_string *all;
    uint32_t count, cap;
};

struct br_gecko_stacks {
    struct br_gecko_reading *reading;
    /* strings of this set of tables; empty if the strings are shared */
    struct br_gecko_strings strings;
    /* tables whose strings and sources are used: this set of tables or the shared tables */
    const struct br_gecko_stacks *string_source;
    uint32_t *sources; /* for each source: index of the string with its name */
    /* for each resource: index of the mapping in the builder; 0: the resource is not a library */
    uint32_t *resources;
    struct br_gecko_function *functions;
    uint32_t *frames; /* for each frame: index of the location in the builder */
    struct br_gecko_stack *all;
    uint32_t n_sources, cap_sources, n_resources, cap_resources, n_functions, cap_functions;
    uint32_t n_frames, cap_frames, count, cap;
};

/* Positions of the tables of a thread, or of the shared tables. */
struct br_gecko_parts {
    struct br_json_part strings, sources, resources, functions, frames, stacks;
};

/* Records the position of a member of a thread or of `shared`, if the member is one of the
 * tables. */
void br_gecko_on_part(struct br_gecko_parts *parts, const struct br_json_scan *scan,
                      const struct br_json_token *name, const struct br_json_token *value);

/* Reads the tables. If `parts` has no strings, the strings and sources of `shared` are used;
 * `shared` may be NULL and must outlive `stacks`. Returns 0, or BR_EINVAL or BR_ENOMEM with a
 * message. `stacks` may be released even after a failure. */
int br_gecko_stacks_read(struct br_gecko_stacks *stacks, struct br_gecko_reading *reading,
                         const struct br_gecko_parts *parts, struct br_gecko_stacks *shared);
void br_gecko_stacks_release(struct br_gecko_stacks *stacks);
void br_gecko_reading_release(struct br_gecko_reading *reading);

/* Returns in `ret` the builder's index of a stack. Returns 0, or BR_EINVAL or BR_ENOMEM with a
 * message. */
int br_gecko_stack(struct br_gecko_stacks *stacks, const struct br_json_token *number,
                   uint32_t *ret);

/* Returns the text of a string without a terminating NUL. The text is valid until the next call of
 * br_gecko_text. Returns false if there is not enough memory. */
bool br_gecko_text(struct br_gecko_reading *reading, const struct br_json_token *token,
                   const char **ret, size_t *ret_len);

/* br_gecko_fail sets the message "not a Firefox profile: <what>", and br_gecko_no_memory sets the
 * message of BR_ENOMEM. Both functions return the error code. */
int br_gecko_fail(struct br_gecko_reading *reading, const char *what);
int br_gecko_no_memory(struct br_gecko_reading *reading);

/* --- Tables (gecko_table.c) ------------------------------------------------------------------- */

/*
 * Reads a table of a Firefox profile row by row. The processed format has an array for each column.
 * The Gecko format has an array for each row, and a `schema` with the position of each column in a
 * row.
 */

#define BR_GECKO_COLUMNS_MAX 6u

struct br_gecko_table {
    unsigned n_columns;
    bool by_rows;
    struct br_json_list columns[BR_GECKO_COLUMNS_MAX];
    struct br_json_list rows;
    /* for each wanted column: position in a row, plus 1; 0: the table has no such column */
    uint32_t places[BR_GECKO_COLUMNS_MAX];
};

/* Opens the table `part` before its first row. `names` are the wanted columns, at most
 * BR_GECKO_COLUMNS_MAX. A missing table has no rows. `whole` is a scan of the text. Returns 0 or
 * an error of the scan. */
int br_gecko_table_open(struct br_gecko_table *table, const struct br_json_scan *whole,
                        struct br_json_part part, const char *const *names, unsigned n_names);

/* Reads the next row into `ret`, one token for each name. The token is a JSON null if the column is
 * missing or has no more values. `*ret_more` is false after the last row. Returns 0 or an error of
 * the scan. */
int br_gecko_table_next(struct br_gecko_table *table, struct br_json_token *ret, bool *ret_more);
