/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/file/writer.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "core/shared.h"

struct group {
    struct br_list link; /* link in groups->unused; in no list while a worker uses the group */
    struct file_writer *writer;
    char *path;
    unsigned n_users;
};

struct file_groups {
    struct file_writer_config config;
    size_t max_open;
    pthread_mutex_t
        /* protects `open` and `unused`; not locked while a file is opened, written or closed */
        lock;
    struct br_map *open; /* map from path to struct group */
    /* list of struct group that no worker uses; the most recently used group is last */
    struct br_list unused;
};

struct group_params {
    const struct file_writer_config *config;
    size_t max_open, n_workers;
};

static void *file_groups_make(const void *arg)
{
    const struct group_params *params = arg;
    struct file_groups *groups = br_calloc(1, sizeof *groups);
    if (!groups)
        return NULL;
    groups->config = *params->config;
    /* a file that was closed because of max_open_files is opened again and must keep its content */
    groups->config.append = true;
    groups->max_open = params->max_open;
    br_list_init(&groups->unused);
    groups->open = br_map_new(params->max_open + params->n_workers);
    if (groups->open) {
        (void)pthread_mutex_init(&groups->lock, NULL);
        return groups;
    }
    br_free(groups);
    return NULL;
}

struct file_groups *file_groups_open(struct br_host *host, const struct file_writer_config *config,
                                     size_t max_open)
{
    char name[PATH_MAX + 256];
    const struct group_params params = {config, max_open, host->n_workers};
    (void)snprintf(name, sizeof name, "file groups %s %s", config->owner, config->path);
    return br_shared_get(host, name, file_groups_make, &params);
}

static void file_groups_free_group(struct group *group)
{
    if (!group)
        return;
    file_writer_free(group->writer);
    br_free(group->path);
    br_free(group);
}

static void file_groups_free_any(void *group)
{
    file_groups_free_group(group);
}

static void file_groups_release(void *thing)
{
    struct file_groups *groups = thing;
    br_map_free(groups->open, file_groups_free_any);
    (void)pthread_mutex_destroy(&groups->lock);
    br_free(groups);
}

void file_groups_close(struct br_host *host, struct file_groups *groups)
{
    br_shared_put(host, groups, file_groups_release);
}

static bool file_groups_is_dots(const char *text, size_t len)
{
    return len == 0 || (len <= 2 && text[0] == '.' && text[len - 1] == '.');
}

/* Appends an attribute value to a path. Leaves out unsafe path components, and replaces unsafe
 * characters. */
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

static struct group *file_groups_new_group(const struct file_groups *groups, const char *path)
{
    struct file_writer_config config = groups->config;
    struct group *group = br_calloc(1, sizeof *group);
    if (!group)
        return NULL;
    config.path = path;
    br_list_init(&group->link);
    group->path = br_strdup(path);
    group->writer = file_writer_new(&config);
    if (group->path && group->writer)
        return group;
    file_groups_free_group(group);
    return NULL;
}

/* Finds or adds the group of a path. Returns NULL if memory is short. */
static struct group *file_groups_find(struct file_groups *groups, const char *path)
{
    size_t len = strlen(path);
    struct group *group = br_map_get(groups->open, path, len);
    if (group)
        return group;
    group = file_groups_new_group(groups, path);
    if (group && br_map_put(groups->open, path, len, group, NULL) == 0)
        return group;
    file_groups_free_group(group);
    return NULL;
}

/* If there are too many groups, removes the least recently used group and returns it. The caller
 * frees the returned group. Returns NULL if no group has to be removed. */
static struct group *file_groups_take_oldest(struct file_groups *groups)
{
    struct br_list *link =
        br_map_count(groups->open) > groups->max_open ? br_list_shift(&groups->unused) : NULL;
    struct group *group = link ? br_container_of(link, struct group, link) : NULL;
    if (group)
        (void)br_map_remove(groups->open, group->path, strlen(group->path));
    return group;
}

int file_groups_writer(struct file_groups *groups, const void *value, size_t len,
                       struct file_writer **ret)
{
    const char *pattern = groups->config.path, *star = strchr(pattern, '*');
    struct br_str path = {0};
    if (len > FILE_GROUP_VALUE_MAX)
        return BR_EINVAL;
    br_str_add(&path, pattern, (size_t)(star - pattern));
    file_groups_put_value(&path, value, len);
    br_str_puts(&path, star + 1);
    (void)pthread_mutex_lock(&groups->lock);
    struct group *group = path.failed ? NULL : file_groups_find(groups, path.data);
    if (group) {
        br_list_remove(&group->link);
        group->n_users++;
        *ret = group->writer;
    }
    struct group *old = file_groups_take_oldest(groups);
    (void)pthread_mutex_unlock(&groups->lock);
    file_groups_free_group(old); /* also closes the file of the group */
    br_str_release(&path);
    return group ? 0 : BR_ENOMEM;
}

void file_groups_done(struct file_groups *groups, struct file_writer *writer)
{
    const char *path = file_writer_path(writer);
    (void)pthread_mutex_lock(&groups->lock);
    struct group *group = br_map_get(groups->open, path, strlen(path));
    if (--group->n_users == 0)
        br_list_append(&groups->unused, &group->link);
    struct group *old = file_groups_take_oldest(groups);
    (void)pthread_mutex_unlock(&groups->lock);
    file_groups_free_group(old);
}
