/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH_SIZE 1024

struct walk {
    const struct br_cgroup_file *file;
    br_cgroup_fn *fn;
    void *arg;
};

bool br_file_head(const char *path, char out[BR_CGROUP_TEXT_MAX])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;
    size_t len = 0;
    if (fd < 0)
        return false;
    while (
        len < BR_CGROUP_TEXT_MAX - 1 &&
        ((n = read(fd, out + len, BR_CGROUP_TEXT_MAX - 1 - len)) > 0 || (n < 0 && errno == EINTR)))
        len += n > 0 ? (size_t)n : 0;
    (void)close(fd);
    out[len] = '\0';
    return len > 0;
}

/* Calls walk->fn with the content of the file `name` in the group `group`, and in every group
 * above it up to `mount`. */
static void cgroup_climb(const struct walk *walk, const char *mount, const char *group,
                         const char *name)
{
    char path[PATH_SIZE], whole[PATH_SIZE + 64], text[BR_CGROUP_TEXT_MAX];
    int n = snprintf(path, sizeof path, "%s%s", mount, strcmp(group, "/") == 0 ? "" : group);
    if (n < 0 || (size_t)n >= sizeof path)
        return;
    for (;;) {
        (void)snprintf(whole, sizeof whole, "%s/%s", path, name);
        if (br_file_head(whole, text))
            walk->fn(text, walk->arg);
        char *slash = strrchr(path, '/');
        if (!slash || (size_t)(slash - path) < strlen(mount))
            return;
        *slash = '\0';
    }
}

/* Parses a line of /proc/self/cgroup: "0::/group" in version 2, "7:memory:/group" in version 1. */
static void cgroup_read_line(const struct walk *walk, const char *root, char *line)
{
    char mount[PATH_SIZE];
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group)
        return;
    *group++ = '\0';
    bool v2 = strcmp(line, "0:") == 0;
    if (!v2 && (!walk->file->v1 || strcmp(controllers + 1, walk->file->v1_controller) != 0))
        return;
    (void)snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s%s", root, v2 ? "" : "/",
                   v2 ? "" : walk->file->v1_controller);
    cgroup_climb(walk, mount, group, v2 ? walk->file->v2 : walk->file->v1);
}

void br_cgroup_each(const char *root, const struct br_cgroup_file *file, br_cgroup_fn *fn,
                    void *arg)
{
    const struct walk walk = {file, fn, arg};
    char text[BR_CGROUP_TEXT_MAX], path[PATH_SIZE];
    (void)snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (!br_file_head(path, text))
        return;
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        cgroup_read_line(&walk, root, line);
    }
}
