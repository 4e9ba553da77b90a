/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the limits of the control groups (cgroups(7)) that contain the process. Each group limits
 * the process, and so does every group above it.
 */
#pragma once

#include <stdbool.h>

#define BR_CGROUP_TEXT_MAX 5120

/* A control file: its name in version 2 of control groups (`v2`), and its controller and name in
 * version 1. If `v1` is NULL, groups of version 1 are not read. */
struct br_cgroup_file {
    const char *v2, *v1_controller, *v1;
};

typedef void br_cgroup_fn(const char *text, void *arg);

/* Calls `fn` with the content of the file `file` of each group, from the group of the process
 * upwards. Groups without the file are skipped. `root` is put before "/proc" and "/sys" in tests,
 * and is otherwise "". */
void br_cgroup_each(const char *root, const struct br_cgroup_file *file, br_cgroup_fn *fn,
                    void *arg);

/* Reads the beginning of a file as a NUL-terminated text. Returns false if it cannot be read or
 * is empty. */
bool br_file_head(const char *path, char out[BR_CGROUP_TEXT_MAX]);
