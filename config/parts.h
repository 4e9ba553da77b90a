/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that only the files of config/ share: they make and change tree nodes, say in a message
 * what a node is, and are the steps of loading and merging.
 */
#pragma once

#include "config/option.h"
#include "config/sources.h"

#define BR_CONFIG_ARENA_MAX (64u << 20)
#define BR_YAML_SIZE_MAX (1u << 20) /* bytes of one file */
#define BR_YAML_DEPTH_MAX 100       /* maps and lists inside each other */
#define BR_SHOWN_SIZE 112           /* what br_yaml_show and br_text_show need */

/* Returns a zeroed node at the place of `at` (may be NULL). NULL when there is no memory. */
struct br_yaml *br_yaml_new(struct br_arena *arena, enum br_yaml_type type,
                            const struct br_yaml *at);

/* Returns a SCALAR with a copy of `len` bytes; NULL as br_yaml_new. */
struct br_yaml *br_yaml_scalar(struct br_arena *arena, const char *text, size_t len,
                               const struct br_yaml *at);

/* Appends a child; `key` only for a MAP, which must not have it yet. Returns 0 or BR_ENOMEM. */
int br_yaml_append(struct br_arena *arena, struct br_yaml *node, struct br_yaml *key,
                   struct br_yaml *value);

/* Returns the index of `key` in a MAP, or `map->count`. */
size_t br_yaml_index(const struct br_yaml *map, const char *key);

/* Writes `"text"`, short and on one line, or "a map", "a list", "nothing" for a message. Returns
 * `out`, which holds BR_SHOWN_SIZE bytes. */
const char *br_yaml_show(const struct br_yaml *node, char *out);
const char *br_text_show(const char *text, char *out);

/* What a person may have meant who wrote text where a map belongs: "; a colon is missing behind
 * it", and such;
 * "" where nothing is known. Returns `out`. */
const char *br_yaml_slip(const struct br_yaml *node, char out[BR_SHOWN_SIZE + 80]);

/* Writes `path::name` (only `name` where `path` is empty), cut to the size of an error's path. */
const char *br_path_join(char out[192], const char *path, const char *name);

/* Returns true when no further error fits (and then says so in `errs`), so that nobody looks for
 * the words. */
bool br_errs_full(struct br_errs *errs);

/* Adds the error that stands for BR_ENOMEM, and returns that. */
int br_errs_no_memory(struct br_errs *errs);

/* Puts errors and warnings in the order of their place: by `files`, then line and column. */
void br_errs_sort(struct br_errs *errs, const char *const *files, size_t n_files);

/* Reads a whole file of at most BR_YAML_SIZE_MAX bytes into the arena, terminated. `*ret_why` is
 * the reason on failure. Returns 0, BR_EIO, BR_ETOOBIG or BR_ENOMEM. */
int br_file_read(const char *path, struct br_arena *arena, const char **ret, size_t *ret_len,
                 const char **ret_why);

/* Returns a variable's value, or NULL, by `sources->getenv` or from the process. */
const char *br_sources_getenv(const struct br_config_sources *sources, const char *name);

/* Returns true for what can be an environment variable's name: letters, digits and _, no digit
 * first. */
bool br_env_name_valid(const char *name, size_t len);

/* Replaces every ${...} and $$ in the values under `*node`. Returns 0, or a negative code with
 * errors in `errs`; the tree is then partly expanded. */
int br_yaml_expand(struct br_yaml **node, const struct br_config_sources *sources,
                   struct br_arena *arena, struct br_errs *errs);

/* Takes the pair or the item at `index` out of a map or a list. */
void br_yaml_remove(struct br_yaml *node, size_t index);

/* Takes white space off both ends of a text. */
void br_text_strip(const char **text, size_t *len);

/* "type/name" without the blanks that the Collector passes over; NULL when there is no memory. */
char *br_id_trim(struct br_arena *arena, const char *text);
