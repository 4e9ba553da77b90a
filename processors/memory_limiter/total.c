/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/memory_limiter/total.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX 16384
#define PATH_SIZE 1024

/* The beginning of a file, terminated. */
static bool read_file(const char *path, char out[FILE_MAX])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;
    size_t len = 0;
    if (fd < 0)
        return false;
    while (len < FILE_MAX - 1 &&
           ((n = read(fd, out + len, FILE_MAX - 1 - len)) > 0 || (n < 0 && errno == EINTR)))
        len += n > 0 ? (size_t)n : 0;
    (void)close(fd);
    out[len] = '\0';
    return len > 0;
}

/* "max", and what is not a number, set no limit. */
static void lower(const char *path, uint64_t *total)
{
    char text[FILE_MAX], *end;
    if (!read_file(path, text))
        return;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (end != text && errno == 0 && v && v < *total)
        *total = v;
}

/* The limit of the group at `path`, and of every one above it up to `mount`. */
static void lower_by_group(const char *mount, const char *group, const char *file, uint64_t *total)
{
    char path[PATH_SIZE], whole[PATH_SIZE + 64];
    int n = snprintf(path, sizeof path, "%s%s", mount, strcmp(group, "/") == 0 ? "" : group);
    if (n < 0 || (size_t)n >= sizeof path)
        return;
    for (;;) {
        (void)snprintf(whole, sizeof whole, "%s/%s", path, file);
        lower(whole, total);
        char *slash = strrchr(path, '/');
        if (!slash || (size_t)(slash - path) < strlen(mount))
            return;
        *slash = '\0';
    }
}

/* Lines of /proc/self/cgroup: "0::/group" of v2, "7:memory:/group" of v1 (cgroups(7)). */
static void lower_by_groups(const char *root, uint64_t *total)
{
    char text[FILE_MAX], path[PATH_SIZE], mount[PATH_SIZE];
    (void)snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (!read_file(path, text))
        return;
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        bool v2 = strcmp(line, "0:") == 0;
        if (!v2 && strcmp(controllers, ":memory") != 0)
            continue;
        (void)snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s", root, v2 ? "" : "/memory");
        lower_by_group(mount, group, v2 ? "memory.max" : "memory.limit_in_bytes", total);
    }
}

bool memory_total(const char *root, uint64_t *ret)
{
    char text[FILE_MAX], path[PATH_SIZE];
    uint64_t total = UINT64_MAX;
    (void)snprintf(path, sizeof path, "%s/proc/meminfo", root);
    const char *line = read_file(path, text) ? strstr(text, "MemTotal:") : NULL;
    if (line)
        total = strtoull(line + strlen("MemTotal:"), NULL, 10) * 1024;
    lower_by_groups(root, &total);
    if (total == UINT64_MAX || total == 0)
        return false;
    *ret = total;
    return true;
}
