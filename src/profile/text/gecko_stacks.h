/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables that say what the stacks of a Firefox profile are: strings, resources, functions,
 * frames, and stacks that refer to the one they continue. Up to version 55 of the processed format
 * and in Gecko's own each thread has all of them, then strings are shared by all threads, from
 * version 60 on the others are, too. Source: docs-developer/CHANGELOG-formats.md and
 * src/types/{profile,gecko-profile}.ts of firefox-devtools/profiler. For src/profile/ only.
 */
#pragma once

#include "profile/json_parts.h"
#include "profile/profile.h"

/* What all tables of a file have in common. */
struct br_gecko_reading {
    struct br_json_scan scan; /* at the beginning of the text, which has been checked */
    struct br_build *build;
    struct br_err *err;
    uint32_t *path; /* of the stack that is made */
    uint32_t cap_path;
    size_t path_left; /* frames that all stacks together may still have */
    char *text;       /* a string without its escapes */
    uint32_t cap_text;
};

struct br_gecko_strings {
    struct br_gecko_string *all;
    uint32_t count, cap;
};

struct br_gecko_stacks {
    struct br_gecko_reading *reading;
    struct br_gecko_strings own;         /* empty where they are shared */
    const struct br_gecko_stacks *named; /* whose strings and sources are referred to */
    uint32_t *sources;                   /* strings: their names */
    uint32_t *resources;                 /* mappings of the builder; 0: no library */
    struct br_gecko_function *functions;
    uint32_t *frames; /* locations of the builder */
    struct br_gecko_stack *all;
    uint32_t n_sources, cap_sources, n_resources, cap_resources, n_functions, cap_functions;
    uint32_t n_frames, cap_frames, count, cap;
};

/* Where the tables of a thread, or those of all threads, are. */
struct br_gecko_parts {
    struct br_json_part strings, sources, resources, functions, frames, stacks;
};

/* Sets the part that a member of a thread, or of `shared`, is. */
void br_gecko_note_part(struct br_gecko_parts *parts, const struct br_json_scan *scan,
                        const struct br_json_token *name, const struct br_json_token *value);

/* Reads the tables. Of what `parts` lacks, strings and sources are those of `shared`, which is NULL
 * or stays as it is until release. Returns 0, BR_EINVAL or BR_ENOMEM with a sentence; afterwards
 * `stacks` may be released in each case. */
int br_gecko_stacks_read(struct br_gecko_stacks *stacks, struct br_gecko_reading *reading,
                         const struct br_gecko_parts *parts, struct br_gecko_stacks *shared);
void br_gecko_stacks_release(struct br_gecko_stacks *stacks);
void br_gecko_reading_release(struct br_gecko_reading *reading);

/* Gives the builder's index of a stack. Returns as br_gecko_stacks_read. */
int br_gecko_stack(struct br_gecko_stacks *stacks, const struct br_json_token *number,
                   uint32_t *ret);

/* Gives the text of a string, terminated nowhere, which stays until the next one is wanted. False
 * without memory. */
bool br_gecko_text(struct br_gecko_reading *reading, const struct br_json_token *token,
                   const char **ret, size_t *ret_len);

/* Fails: "not a Firefox profile: <what>". */
int br_gecko_fail(struct br_gecko_reading *reading, const char *what);
int br_gecko_no_memory(struct br_gecko_reading *reading);
