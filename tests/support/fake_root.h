/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder that stands for /, for what reads the files of proc(5) and cgroups(7). Everything
 * asserts.
 */
#pragma once

struct fake_root {
    char path[32];
};

struct fake_root fake_root_new(void);

/* Writes a file at an absolute path below the root, and the folders on the way. */
void fake_root_put(const struct fake_root *root, const char *path, const char *text);

/* Removes it and all that is in it. */
void fake_root_free(struct fake_root *root);
