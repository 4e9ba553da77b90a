/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the data of a store to one file (`braid save`), and shows such a file (`braid open`). */
#pragma once

#include "base/arena.h"
#include "config/sources.h"

extern const char br_replay_help[];

/* Runs `braid save`; `argv[0]` is the argument after "save". Returns the exit code: 0 on
 * success, 1 on failure, or 2 for invalid arguments. */
int br_replay_save(int argc, char **argv);

/* Creates a temporary directory. Returns its path, in the arena, or NULL with `err` set. */
char *br_replay_make_directory(struct br_arena *arena, struct br_err *err);

/* Forks the process. Returns true in the child. In the parent, waits until the child has ended,
 * removes the directory, and returns false with the exit code of the child in `*ret_code`. */
bool br_replay_fork(const char *directory, int *ret_code);

/* Unpacks `file` into the directory. Sets `*uri`, the only URI of `sources`, to a configuration
 * that shows the file. Texts are in the arena. Returns 0, or a negative code with `err` set. */
int br_replay_open(struct br_config_sources *sources, const char *file, const char *directory,
                   const char **uri, struct br_arena *arena, struct br_err *err);
