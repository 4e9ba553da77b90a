/* SPDX-License-Identifier: Apache-2.0 */
#include "query/selector.h"

#include <string.h>

#include "profile/name.h"

#define PARTS_MAX 6

static int profile_type_bad(const char *text, size_t len, struct br_err *err)
{
    return br_err_set(err, BR_EINVAL,
                      "profile-type selection must be of the form "
                      "<name>:<sample-type>:<sample-unit>:<period-type>:<period-unit>(:delta), "
                      "got(%d): \"%.*s\"",
                      (int)(len > BR_PROFILE_TYPE_MAX ? BR_PROFILE_TYPE_MAX : len),
                      (int)(len > 100 ? 100 : len), text);
}

int br_profile_type_parse(const char *text, size_t len, struct br_arena *arena,
                          struct br_profile_type *ret, struct br_err *err)
{
    const char *parts[PARTS_MAX] = {"", "", "", "", "", ""};
    size_t n_parts = 1;
    if (len > BR_PROFILE_TYPE_MAX)
        return profile_type_bad(text, len, err);
    char *copy = br_arena_strndup(arena, text, len), *id = br_arena_strndup(arena, text, len);
    if (!copy || !id)
        return br_arena_why(arena);
    parts[0] = copy;
    for (char *p = copy; *p; p++) {
        if (*p != ':')
            continue;
        *p = '\0';
        if (n_parts == PARTS_MAX)
            return profile_type_bad(text, len, err);
        parts[n_parts++] = p + 1;
    }
    if (n_parts == PARTS_MAX && !strcmp(parts[5], "delta"))
        id[len - strlen(":delta")] = '\0';
    else if ((n_parts != 5 && n_parts != 3) || !*parts[0] || !*parts[1])
        return profile_type_bad(text, len, err);
    *ret = (struct br_profile_type){.id = id,
                                    .whole = n_parts != 3,
                                    .name = parts[0],
                                    .type = parts[1],
                                    .unit = parts[2],
                                    .period_type = parts[3],
                                    .period_unit = parts[4]};
    return 0;
}

/* Returns the unit in which Braid's receivers store the values of an application's profile type. */
static const char *profile_type_unit(const struct br_app_type *app)
{
    return !strcmp(app->type, "cpu") || !strcmp(app->type, "wall") ? "nanoseconds" : app->units;
}

int br_profile_type_app(const char *text, size_t len, struct br_arena *arena,
                        struct br_profile_type *ret, const char **ret_service, struct br_err *err)
{
    struct br_app_type app = {.name = "process_cpu", .type = "cpu", .app_len = len};
    if (!len)
        return profile_type_bad(text, len, err);
    if (br_app_type_find(text, len, &app, NULL))
        app = (struct br_app_type){.name = "process_cpu", .type = "cpu", .app_len = len};
    const char *unit = app.units ? profile_type_unit(&app) : "nanoseconds";
    const char *id = br_arena_printf(arena, "%s:%s:%s", app.name, app.type, unit);
    const char *service = br_arena_strndup(arena, text, app.app_len);
    if (!id || !service)
        return br_arena_why(arena);
    int rc = br_profile_type_parse(id, strlen(id), arena, ret, err);
    if (!rc)
        *ret_service = service;
    return rc;
}

const char *br_profile_type_units(const struct br_profile_type *type, uint32_t *ret_rate)
{
    static const char *const objects[] = {"inuse_objects", "alloc_objects", "goroutine", "samples"};
    bool cpu = !strcmp(type->type, "cpu");
    *ret_rate = cpu ? 1000000000 : 100;
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++)
        if (!strcmp(type->type, objects[i]))
            return "objects";
    return cpu ? "samples" : type->unit;
}

bool br_profile_type_is_gauge(const struct br_profile_type *type)
{
    static const char *const gauges[] = {"inuse_space", "inuse_objects", "goroutine", "goroutines",
                                         "live"};
    for (size_t i = 0; i < sizeof gauges / sizeof *gauges; i++)
        if (!strcmp(type->type, gauges[i]))
            return true;
    return false;
}
