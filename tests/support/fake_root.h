/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A temporary directory that replaces / in tests of code that reads files of proc(5) and
 * cgroups(7). Any error fails the test.
 */
#pragma once

struct fake_root {
    char path[32];
};

struct fake_root fake_root_new(void);

/* Writes a file at an absolute path below the root, and creates its parent directories. */
void fake_root_put(const struct fake_root *root, const char *path, const char *text);

/* Removes the directory and its content. */
void fake_root_free(struct fake_root *root);
