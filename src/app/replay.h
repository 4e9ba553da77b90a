/* SPDX-License-Identifier: Apache-2.0 */
/* Saves what a store keeps as one file (`braid save`), and shows such a file (`braid open`). */
#pragma once

#include "base/arena.h"
#include "config/sources.h"

extern const char br_replay_help[];

/* Runs `braid save`; `argv[0]` is the word after it. Returns the process's exit code: 0, 1, or 2
 * for arguments that make no sense. */
int br_replay_save(int argc, char **argv);

/* Unpacks `file` into a new folder of the system's for temporary files, and sets the sources' only
 * URI, in `*uri`, to a config that shows it. Texts are in the arena, `*ret_folder`, too. Returns 0
 * or a negative code with a sentence; then there is no folder. */
int br_replay_open(struct br_config_sources *sources, const char *file, const char **uri,
                   struct br_arena *arena, const char **ret_folder, struct br_err *err);

/* Removes the folder and the files in it. */
void br_replay_close(const char *folder);
