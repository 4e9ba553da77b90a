/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "profile/profile.h"

/* Pyroscope's display names of sample types for clients that send no display names. */
static const struct br_sample_type defaults[] = {
    {.type = "samples", .display_name = "cpu"},
    {.type = "goroutine", .display_name = "goroutines"},
    {.type = "contentions", .display_name = "mutex_count"},
    {.type = "delay", .display_name = "mutex_duration"}};

static const char *pyroscope_name_display_name(const char *type,
                                               const struct br_sample_type *configs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct br_sample_type *sample_type = &configs[i];
        if (sample_type->type && !strcmp(sample_type->type, type))
            return sample_type->display_name && *sample_type->display_name
                       ? sample_type->display_name
                       : type;
    }
    return type;
}

/* Returns the `__name__` for the display name of a sample type, or NULL if the type has no
 * `__name__`. */
static const char *pyroscope_name_of(const char *type)
{
    if (strstr(type, "cpu"))
        return "process_cpu";
    if (strstr(type, "alloc_") || strstr(type, "inuse_") || !strcmp(type, "space") ||
        !strcmp(type, "objects"))
        return "memory";
    if (strstr(type, "mutex_"))
        return "mutex";
    if (strstr(type, "block_"))
        return "block";
    return strstr(type, "goroutines") ? "goroutines" : NULL;
}

static const char *pyroscope_name_find(const char *const *types, size_t count,
                                       const struct br_sample_type *configs, size_t n_configs)
{
    const char *last = "";
    for (size_t i = 0; i < count; i++)
        if (!strcmp(types[i], "wall"))
            return types[i];
    for (size_t i = 0; i < count; i++) {
        last = pyroscope_name_display_name(types[i], configs, n_configs);
        const char *name = pyroscope_name_of(last);
        if (name)
            return name;
    }
    return last;
}

void br_pyroscope_name(const char *const *types, size_t count, const struct br_sample_type *configs,
                       size_t n_configs, char *ret, size_t size)
{
    if (!configs) {
        configs = defaults;
        n_configs = BR_COUNT(defaults);
    }
    (void)snprintf(ret, size, "%s", pyroscope_name_find(types, count, configs, n_configs));
}
