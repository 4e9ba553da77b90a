/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/file/groups.h"

#include <string.h>

#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"

struct group {
    struct br_list link; /* groups->used: the one that was used last comes last */
    struct file_writer *writer;
    char *path;
};

struct file_groups {
    struct br_host *host;
    struct file_writer_config config;
    size_t max_open;
    struct br_map *open; /* by path */
    struct br_list used;
};

struct file_groups *file_groups_new(struct br_host *host, const struct file_writer_config *config,
                                    size_t max_open)
{
    struct file_groups *groups = br_calloc(1, sizeof *groups);
    if (!groups)
        return NULL;
    groups->host = host;
    groups->config = *config;
    groups->config.append = true; /* what was closed for others is opened again */
    groups->max_open = max_open;
    br_list_init(&groups->used);
    groups->open = br_map_new(max_open);
    if (groups->open)
        return groups;
    br_free(groups);
    return NULL;
}

static void file_groups_close(struct file_groups *groups, struct group *group)
{
    br_list_remove(&group->link);
    if (group->path)
        (void)br_map_remove(groups->open, group->path, strlen(group->path));
    file_writer_close(groups->host, group->writer);
    br_free(group->path);
    br_free(group);
}

void file_groups_free(struct file_groups *groups)
{
    if (!groups)
        return;
    while (!br_list_empty(&groups->used))
        file_groups_close(groups, br_container_of(groups->used.next, struct group, link));
    br_map_free(groups->open, NULL);
    br_free(groups);
}

static bool file_groups_is_dots(const char *text, size_t len)
{
    return len == 0 || (len <= 2 && text[0] == '.' && text[len - 1] == '.');
}

/* Appends what a value says of a path. */
static void file_groups_put_value(struct br_str *out, const char *value, size_t len)
{
    bool any = false;
    for (size_t at = 0; at <= len;) {
        const char *slash = memchr(value + at, '/', len - at);
        size_t end = slash ? (size_t)(slash - value) : len;
        if (!file_groups_is_dots(value + at, end - at)) {
            if (any)
                br_str_putc(out, '/');
            any = true;
            for (size_t i = at; i < end; i++)
                br_str_putc(out,
                            (unsigned char)value[i] < 0x20 || value[i] == 0x7f ? '_' : value[i]);
        }
        at = end + 1;
    }
}

static int file_groups_open(struct file_groups *groups, const char *path, struct group **ret,
                            struct br_err *err)
{
    struct group *group = br_calloc(1, sizeof *group);
    if (!group)
        return BR_ENOMEM;
    br_list_init(&group->link);
    group->path = br_strdup(path);
    struct file_writer_config config = groups->config;
    config.path = path;
    if (br_map_count(groups->open) >= groups->max_open)
        file_groups_close(groups, br_container_of(groups->used.next, struct group, link));
    int rc = group->path ? file_writer_open(groups->host, &config, &group->writer, err) : BR_ENOMEM;
    if (!rc && br_map_put(groups->open, path, strlen(path), group, NULL))
        rc = BR_ENOMEM;
    if (rc) {
        file_writer_close(groups->host, group->writer);
        br_free(group->path);
        br_free(group);
        return rc;
    }
    *ret = group;
    return 0;
}

int file_groups_writer(struct file_groups *groups, const void *value, size_t len,
                       struct file_writer **ret, struct br_err *err)
{
    const char *pattern = groups->config.path, *star = strchr(pattern, '*');
    struct br_str path = {0};
    struct group *group = NULL;
    if (len > FILE_GROUP_VALUE_MAX)
        return br_err_set(err, BR_EINVAL, "a value of %zu bytes names no file", len);
    br_str_add(&path, pattern, (size_t)(star - pattern));
    file_groups_put_value(&path, value, len);
    br_str_puts(&path, star + 1);
    int rc = path.failed ? BR_ENOMEM : 0;
    if (!rc)
        group = br_map_get(groups->open, path.data, path.len);
    if (!rc && !group)
        rc = file_groups_open(groups, path.data, &group, err);
    br_str_release(&path);
    if (rc)
        return rc;
    br_list_remove(&group->link);
    br_list_append(&groups->used, &group->link);
    *ret = group->writer;
    return 0;
}
