/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of `braid`. Commands with more than one source file have their own headers:
 * migrate.h, query_command.h and service.h. */
#pragma once

#include "base/arena.h"
#include "base/str.h"
#include "config/sources.h"
#include "pipeline/component.h"

/* --- `braid components` (components.c) -------------------------------------------------------- */

/* Appends a table of the components in `registry`, which ends with NULL. */
void br_components_table(struct br_str *out, const struct br_component *const *registry);

/* Appends a JSON array with one object per component of `registry`: {kind, name, alias, signals,
 * stability, help, options}. An option is {name, alias, type, default, choices, required, help,
 * options}. Keys without a value are omitted. */
void br_components_json(struct br_str *out, const struct br_component *const *registry);

/* --- `braid` without arguments (quickstart.c) ------------------------------------------------- */

/* The built-in configuration is config/examples/quickstart.yaml. Data is also forwarded to the
 * backends whose addresses are in the environment variables TEMPO_ENDPOINT and
 * PYROSCOPE_ENDPOINT. */

#define BR_QUICKSTART_URIS 3

/* Sets the URIs of `sources` to the built-in configuration. Adds one URI for TEMPO_ENDPOINT and one
 * for PYROSCOPE_ENDPOINT if these variables are set. The URIs are stored in `uris`, an array that
 * the caller owns. The texts of the URIs remain valid as long as the arena exists. Returns 0 or
 * BR_ENOMEM. */
int br_quickstart_sources(struct br_config_sources *sources, const char *uris[BR_QUICKSTART_URIS],
                          struct br_arena *arena);

/* Prints the addresses of the web page and of the receivers, which are read from `sources`. Called
 * when all servers listen. */
void br_quickstart_welcome(const struct br_config_sources *sources);

/* --- `braid save` and `braid open` (replay.c) ------------------------------------------------- */

/* `braid save` writes the data of a store exporter to one file. `braid open` shows the data in such
 * a file. */

extern const char br_replay_help[];

/* Runs `braid save`; `argv[0]` is the argument after "save". Returns the exit code: 0 on
 * success, 1 on failure, or 2 for invalid arguments. */
int br_replay_save(int argc, char **argv);

/* Creates a temporary directory. Returns its path, which is allocated in the arena, or NULL with
 * `err` set. */
char *br_replay_make_directory(struct br_arena *arena, struct br_err *err);

/* Forks the process. Returns true in the child. In the parent, waits until the child has ended,
 * removes the directory, and returns false with the exit code of the child in `*ret_code`. */
bool br_replay_fork(const char *directory, int *ret_code);

/* Unpacks `file` into `directory`. Sets `*uri` to a configuration that shows the file, and makes it
 * the only URI of `sources`. The text of `*uri` is allocated in the arena. Returns 0, or a negative
 * code with `err` set. */
int br_replay_open(struct br_config_sources *sources, const char *file, const char *directory,
                   const char **uri, struct br_arena *arena, struct br_err *err);
