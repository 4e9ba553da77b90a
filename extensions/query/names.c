/* SPDX-License-Identifier: Apache-2.0 */
#include "extensions/query/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/map.h"

struct query_names {
    struct query_job *job;
    const struct query_names_ask *ask;
    struct br_map *map;
    int rc;
};

static void names_enter(struct query_names *names, const char *text)
{
    size_t len = strlen(text);
    if (br_map_get(names->map, text, len))
        return;
    char *copy = br_arena_strndup(&names->job->arena, text, len);
    names->rc =
        copy ? br_map_put(names->map, copy, len, copy, NULL) : br_arena_why(&names->job->arena);
    if (names->rc == BR_EFULL && br_map_count(names->map) == QUERY_NAMES_MAX) {
        names->job->store->note = "there are more names than one answer has";
        names->rc = 0;
    }
}

bool query_names_label(const struct br_stored_series *series, size_t index,
                       struct br_series_label *ret)
{
    *ret = (struct br_series_label){0};
    if (index < series->n_labels) {
        if (strcmp(series->labels[index].name, "__session_id__") != 0)
            *ret = series->labels[index];
        return true;
    }
    for (size_t i = 0; i < series->n_labels && index == series->n_labels; i++)
        if (!strcmp(series->labels[i].name, "service_name"))
            *ret = (struct br_series_label){"__service_name__", series->labels[i].value};
    return index == series->n_labels;
}

/* What Pyroscope keeps of a type as labels of their own. */
static const char *names_type_part(struct query_job *job, const char *type, const char *label)
{
    struct br_profile_type parsed;
    if (br_profile_type_parse(type, strlen(type), &job->arena, &parsed, NULL))
        return NULL;
    return !strcmp(label, "__name__")          ? parsed.name
           : !strcmp(label, "__type__")        ? parsed.type
           : !strcmp(label, "__unit__")        ? parsed.unit
           : !strcmp(label, "__period_type__") ? parsed.period_type
           : !strcmp(label, "__period_unit__") ? parsed.period_unit
                                               : NULL;
}

static const char *names_value_of(struct query_job *job, const struct br_stored_series *series,
                                  const char *label)
{
    struct br_series_label shown;
    for (size_t i = 0; query_names_label(series, i, &shown); i++)
        if (shown.name && !strcmp(shown.name, label))
            return shown.value;
    if (!strcmp(label, "__profile_type__"))
        return series->type;
    return br_text_starts(label, "__") ? names_type_part(job, series->type, label) : NULL;
}

bool query_names_is_plain(const char *name)
{
    for (const char *p = name; *p; p++)
        if (*p != '_' && (*p < 'a' || *p > 'z') && (*p < 'A' || *p > 'Z') &&
            (p == name || *p < '0' || *p > '9'))
            return false;
    return true;
}

static bool names_on_series(const struct br_stored_series *series, void *arg)
{
    struct query_names *names = arg;
    const struct query_names_ask *ask = names->ask;
    struct br_series_label label;
    const char *value;
    switch (ask->of) {
    case QUERY_TYPES:
        names_enter(names, series->type);
        break;
    case QUERY_LABEL_VALUES:
        value = names_value_of(names->job, series, ask->label);
        if (value && *value)
            names_enter(names, value);
        break;
    case QUERY_LABEL_NAMES:
        for (size_t i = 0; query_names_label(series, i, &label) && !names->rc; i++)
            if (label.name && (!ask->plain_only || query_names_is_plain(label.name)))
                names_enter(names, label.name);
        break;
    }
    return !names->rc && query_pick_goes_on(names->job);
}

static int names_by_text(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static int names_list(const struct query_names *names, char ***ret, size_t *ret_n)
{
    size_t count = br_map_count(names->map), len;
    const void *key;
    char **list = br_arena_calloc(&names->job->arena, count + 1, sizeof *list);
    if (!list)
        return br_arena_why(&names->job->arena);
    for (size_t i = 0; i < count; i++)
        list[i] = br_map_at(names->map, i, &key, &len);
    qsort(list, count, sizeof *list, names_by_text);
    *ret = list;
    *ret_n = count;
    return 0;
}

int query_names_each_series(struct query_job *job, const struct query_names_ask *ask,
                            br_series_fn *fn, void *arg, struct br_err *err)
{
    struct query_pick pick = {.from_ns = ask->from_ns, .until_ns = ask->until_ns};
    struct br_sample_filter filter;
    int rc = 0;
    for (size_t i = 0; i < ask->n_selectors && !rc; i++)
        rc = query_pick_add_selector(job, &pick, ask->selectors[i], strlen(ask->selectors[i]), err);
    if (!rc)
        rc = query_pick_filter(job, &pick, &filter);
    return rc ? rc : br_store_series(job->store, &filter, fn, arg, err);
}

int query_names_gather(struct query_job *job, const struct query_names_ask *ask, char ***ret,
                       size_t *ret_n, struct br_err *err)
{
    struct query_names names = {.job = job, .ask = ask, .map = br_map_new(QUERY_NAMES_MAX)};
    int rc =
        names.map ? query_names_each_series(job, ask, names_on_series, &names, err) : BR_ENOMEM;
    if (!rc)
        rc = names.rc;
    if (!rc)
        rc = names_list(&names, ret, ret_n);
    br_map_free(names.map, NULL);
    return rc;
}
