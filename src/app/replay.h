/* SPDX-License-Identifier: Apache-2.0 */
/* Saves what a store keeps as one file (`braid save`), and shows such a file (`braid open`). */
#pragma once

#include "base/arena.h"
#include "config/sources.h"

extern const char br_replay_help[];

/* Runs `braid save`; `argv[0]` is the word after it. Returns the process's exit code: 0, 1, or 2
 * for arguments that make no sense. */
int br_replay_save(int argc, char **argv);

/* Makes a folder of the system's for temporary files. Returns its path, in the arena; NULL with a
 * sentence. */
char *br_replay_folder(struct br_arena *arena, struct br_err *err);

/* Goes on in a child, where it returns true. In the parent, which removes the folder once the child
 * has ended, however that was, it returns false, and the exit code in `*ret_code`. */
bool br_replay_fork(const char *folder, int *ret_code);

/* Unpacks `file` into the folder, and sets the sources' only URI, in `*uri`, to a config that shows
 * it. Texts are in the arena. Returns 0 or a negative code with a sentence. */
int br_replay_open(struct br_config_sources *sources, const char *file, const char *folder,
                   const char **uri, struct br_arena *arena, struct br_err *err);
