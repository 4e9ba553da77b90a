/* SPDX-License-Identifier: Apache-2.0 */
#include "extensions/query/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/lexer.h"
#include "base/map.h"

struct query_names {
    struct query_job *job;
    const struct query_names_params *params;
    struct br_map *map;
    int rc;
};

static void names_add_text(struct query_names *names, const char *text)
{
    size_t len = strlen(text);
    if (br_map_get(names->map, text, len))
        return;
    char *copy = br_arena_strndup(&names->job->arena, text, len);
    names->rc =
        copy ? br_map_put(names->map, copy, len, copy, NULL) : br_arena_why(&names->job->arena);
    if (names->rc == BR_EFULL && br_map_count(names->map) == QUERY_NAMES_MAX) {
        query_job_note(names->job, "there are more names than one response can list");
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

/* Returns that component of a profile type that Pyroscope stores as the value of `label`. Returns
 * NULL if Pyroscope has no such label. */
static const char *names_type_part(struct query_job *job, const char *type, const char *label)
{
    struct br_profile_type parsed;
    if (br_profile_type_parse(type, strlen(type), &job->arena, &parsed, NULL))
        return NULL;
    const struct {
        const char *label, *value;
    } parts[] = {{"__name__", parsed.name},
                 {"__type__", parsed.type},
                 {"__unit__", parsed.unit},
                 {"__period_type__", parsed.period_type},
                 {"__period_unit__", parsed.period_unit}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strcmp(label, parts[i].label))
            return parts[i].value;
    return NULL;
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

static bool names_on_series(const struct br_stored_series *series, void *arg)
{
    struct query_names *names = arg;
    const struct query_names_params *params = names->params;
    struct br_series_label label;
    const char *value;
    switch (params->of) {
    case QUERY_TYPES:
        names_add_text(names, series->type);
        break;
    case QUERY_LABEL_VALUES:
        value = names_value_of(names->job, series, params->label);
        if (value && *value)
            names_add_text(names, value);
        break;
    case QUERY_LABEL_NAMES:
        for (size_t i = 0; query_names_label(series, i, &label) && !names->rc; i++)
            if (label.name &&
                (!params->plain_only || br_is_identifier(label.name, strlen(label.name))))
                names_add_text(names, label.name);
        break;
    }
    return !names->rc && query_job_may_continue(names->job);
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

int query_names_each_series(struct query_job *job, const struct query_names_params *params,
                            br_series_fn *fn, void *arg, struct br_err *err)
{
    struct query_selection selection = {.from_ns = params->from_ns, .until_ns = params->until_ns};
    struct br_sample_filter filter;
    int rc = 0;
    for (size_t i = 0; i < params->n_selectors && !rc; i++)
        rc = query_selection_add_selector(job, &selection, params->selectors[i],
                                          strlen(params->selectors[i]), err);
    if (!rc)
        rc = query_selection_filter(job, &selection, &filter);
    return rc ? rc : br_store_series(job->store, &filter, fn, arg, err);
}

int query_names_gather(struct query_job *job, const struct query_names_params *params, char ***ret,
                       size_t *ret_n, struct br_err *err)
{
    struct query_names names = {.job = job, .params = params, .map = br_map_new(QUERY_NAMES_MAX)};
    int rc =
        names.map ? query_names_each_series(job, params, names_on_series, &names, err) : BR_ENOMEM;
    if (!rc)
        rc = names.rc;
    if (!rc)
        rc = names_list(&names, ret, ret_n);
    br_map_free(names.map, NULL);
    return rc;
}
