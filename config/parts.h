/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declares the functions that only the files of config/ use. The functions make and change tree
 * nodes, describe nodes in messages, and perform the steps of loading and merging.
 */
#pragma once

#include "config/option.h"
#include "config/sources.h"

#define BR_CONFIG_ARENA_MAX (64u << 20)
#define BR_YAML_SIZE_MAX (1u << 20) /* largest size of a config file, in bytes */
#define BR_YAML_DEPTH_MAX 100       /* largest number of nested levels of maps and lists */
/* size in bytes of the buffers of br_yaml_show and br_text_show */
#define BR_SHOWN_SIZE 112

/* Returns a zeroed node with the file position of `at` (may be NULL), or NULL if memory runs
 * out. */
struct br_yaml *br_yaml_new(struct br_arena *arena, enum br_yaml_type type,
                            const struct br_yaml *at);

/* Returns a SCALAR node whose text is a copy of the `len` bytes at `text`, or NULL if memory
 * runs out. */
struct br_yaml *br_yaml_scalar(struct br_arena *arena, const char *text, size_t len,
                               const struct br_yaml *at);

/* Appends a child to a list or map. If `node` is a MAP, `key` is the key of the child, which the
 * map must not contain yet. Returns 0 or BR_ENOMEM. */
int br_yaml_append(struct br_arena *arena, struct br_yaml *node, struct br_yaml *key,
                   struct br_yaml *value);

/* Returns the index of `key` in a MAP, or `map->count` if the key is absent. */
size_t br_yaml_index(const struct br_yaml *map, const char *key);

/* Describes a node for a message: its text in quotes, shortened and on one line, or "a map", "a
 * list" or "nothing". Returns `out`, which has BR_SHOWN_SIZE bytes. */
const char *br_yaml_show(const struct br_yaml *node, char *out);
const char *br_text_show(const char *text, char *out);

/* If `node` is a text although a map is expected, writes the likely mistake to `out`, such as "; a
 * colon is missing after it". Writes "" if no mistake is recognised. Returns `out`. */
const char *br_yaml_slip(const struct br_yaml *node, char out[BR_SHOWN_SIZE + 80]);

/* Writes `path::name` (only `name` if `path` is empty), truncated to the size of br_err.path. */
const char *br_path_join(char out[192], const char *path, const char *name);

/* If `errs` has no room for another error, sets errs->more and returns true. The caller then need
 * not format a message. */
bool br_errs_full(struct br_errs *errs);

/* Adds an error for memory that has run out, and returns BR_ENOMEM. */
int br_errs_no_memory(struct br_errs *errs);
/* clang's static analyzer must know that the function does not return 0. */
#ifdef __clang_analyzer__
#define br_errs_no_memory(errs) (br_errs_no_memory(errs), BR_ENOMEM)
#endif

/* Sorts errors and warnings by file, in the order of `files`, then by line and column. */
void br_errs_sort(struct br_errs *errs, const char *const *files, size_t n_files);

/* Reads a file of at most BR_YAML_SIZE_MAX bytes into the arena, and appends a NUL terminator.
 * On failure `*ret_why` is the reason. Returns 0, BR_EIO, BR_ETOOBIG or BR_ENOMEM. */
int br_file_read(const char *path, struct br_arena *arena, const char **ret, size_t *ret_len,
                 const char **ret_why);

/* Returns the value of an environment variable: the result of `sources->getenv` if this function
 * is set, otherwise the value in the process's environment. Returns NULL if the variable is not
 * set. */
const char *br_sources_getenv(const struct br_config_sources *sources, const char *name);

/* Expands every ${...} and $$ in the values below `*node`. Returns 0, or a negative code with
 * errors in `errs`; the tree is then partly expanded. */
int br_yaml_expand(struct br_yaml **node, const struct br_config_sources *sources,
                   struct br_arena *arena, struct br_errs *errs);

/* Removes the pair or the item at `index` from a map or a list. */
void br_yaml_remove(struct br_yaml *node, size_t index);

/* Removes white space from both ends of a text. */
void br_text_strip(const char **text, size_t *len);

/* Returns the component id `text`, of the form "type/name", without the blanks that the
 * Collector ignores. Returns NULL if memory runs out. */
char *br_id_trim(struct br_arena *arena, const char *text);
