/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/file/writer.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

#define BACKUPS_MAX 100000 /* largest number of rotated files that are listed in one directory */
#define STAMP "dddd-dd-ddTdd-dd-dd.ddd"
#define STAMP_LEN (sizeof STAMP - 1)
#define DAY_MS (86400 * 1000ll)

/* Pointers into a path: to its start, to the file name, and to the extension, which begins with
 * ".". */
struct parts {
    const char *path, *name, *ext;
};

static struct parts backups_take_apart(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    return (struct parts){path, name, dot ? dot : name + strlen(name)};
}

bool file_backup_name(const char *path, uint64_t unix_ns, bool local_time, char out[PATH_MAX])
{
    struct parts p = backups_take_apart(path);
    time_t seconds = (time_t)(unix_ns / 1000000000);
    struct tm tm;
    char stamp[64];
    if (!(local_time ? localtime_r(&seconds, &tm) : gmtime_r(&seconds, &tm)) ||
        !strftime(stamp, sizeof stamp, "%Y-%m-%dT%H-%M-%S", &tm))
        return false;
    int n = snprintf(out, PATH_MAX, "%.*s-%s.%03u%s", (int)(p.ext - path), path, stamp,
                     (unsigned)(unix_ns / 1000000 % 1000), p.ext);
    return n > 0 && n < PATH_MAX;
}

static bool backups_is_stamp(const char *text)
{
    for (size_t i = 0; i < STAMP_LEN; i++)
        if (STAMP[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != STAMP[i])
            return false;
    return true;
}

/* Returns the time in the name of a rotated file, in Unix milliseconds; -1 if `name` is not the
 * name of a rotated file. Newer releases of the Collector append "-size" or another reason to
 * the time. */
static int64_t backups_time_of(const struct parts *parts, const char *name, bool local_time)
{
    size_t prefix = (size_t)(parts->ext - parts->name), ext = strlen(parts->ext),
           len = strlen(name);
    if (len < prefix + 1 + STAMP_LEN + ext || strncmp(name, parts->name, prefix) != 0 ||
        name[prefix] != '-' || strcmp(name + len - ext, parts->ext) != 0)
        return -1;
    const char *stamp = name + prefix + 1, *after = stamp + STAMP_LEN;
    if (!backups_is_stamp(stamp) || (after != name + len - ext && *after != '-'))
        return -1;
    struct tm tm = {.tm_isdst = -1};
    if (!strptime(stamp, "%Y-%m-%dT%H-%M-%S", &tm))
        return -1;
    int64_t seconds = local_time ? mktime(&tm) : timegm(&tm);
    return seconds < 0 ? -1 : seconds * 1000 + strtol(stamp + STAMP_LEN - 3, NULL, 10);
}

struct backup {
    int64_t ms;
    char *name;
};

struct backups {
    struct backup *backups;
    uint32_t count, cap;
};

static int backups_newest_first(const void *first, const void *second)
{
    const struct backup *one = first, *other = second;
    if (one->ms == other->ms)
        return strcmp(other->name, one->name);
    return one->ms < other->ms ? 1 : -1;
}

static void backups_list(const struct parts *parts, bool local_time, struct backups *ret)
{
    char folder[PATH_MAX];
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(parts->name - parts->path), parts->path);
    DIR *d = opendir(folder[0] ? folder : ".");
    const struct dirent *dirent;
    while (d && (dirent = readdir(d))) {
        int64_t ms = backups_time_of(parts, dirent->d_name, local_time);
        if (ms < 0)
            continue;
        char *name = br_strdup(dirent->d_name);
        if (!name || br_grow(&ret->backups, &ret->cap, (size_t)ret->count + 1, sizeof *ret->backups,
                             BACKUPS_MAX)) {
            br_free(name);
            break;
        }
        ret->backups[ret->count++] = (struct backup){ms, name};
    }
    if (d)
        (void)closedir(d);
}

void file_backups_prune(const char *path, uint64_t unix_ns, bool local_time, int64_t max_backups,
                        int64_t max_days)
{
    struct parts p = backups_take_apart(path);
    struct backups all = {0};
    int64_t now = (int64_t)(unix_ns / 1000000);
    if (!max_backups && !max_days)
        return;
    backups_list(&p, local_time, &all);
    if (all.count)
        qsort(all.backups, all.count, sizeof *all.backups, backups_newest_first);
    for (uint32_t i = 0; i < all.count; i++) {
        bool old = max_days && all.backups[i].ms < now - max_days * DAY_MS;
        char whole[PATH_MAX];
        int n = snprintf(whole, sizeof whole, "%.*s%s", (int)(p.name - path), path,
                         all.backups[i].name);
        if ((old || (max_backups && i >= max_backups)) && n < PATH_MAX)
            (void)unlink(whole);
        br_free(all.backups[i].name);
    }
    br_free(all.backups);
}
