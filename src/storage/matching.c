/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/view.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "storage/chunks.h"

#define PATTERN_MAX 65536
#define SERIES_MAX 1000000u
#define MATCH_NS UINT64_C(1000000000)
#define LABELS_MAX 500u

static int matching_no_memory(struct br_store_matching *matching)
{
    return br_err_set(matching->err, BR_ENOMEM, "out of memory");
}

static bool matching_is_pattern(const struct br_matcher *matcher)
{
    return matcher->type == BR_MATCH_REGEX || matcher->type == BR_MATCH_NOT_REGEX;
}

static int matching_compile(struct br_store_matching *matching, size_t index)
{
    char why[BR_REGEX_WHY_SIZE];
    const char *value = matching->filter->matchers[index].value;
    struct br_str whole = {.max = PATTERN_MAX + sizeof "^(?:)$"};
    if (strlen(value) > PATTERN_MAX)
        return br_err_set(matching->err, BR_EINVAL, "a regular expression is too long");
    br_str_printf(&whole, "^(?:%s)$", value);
    int rc = whole.failed
                 ? BR_ENOMEM
                 : br_regex_compile(&matching->regex, whole.data, &matching->patterns[index], why);
    br_str_release(&whole);
    if (rc == BR_EINVAL)
        return br_err_set(matching->err, rc, "%s: %s", matching->filter->matchers[index].name, why);
    return rc ? matching_no_memory(matching) : 0;
}

int br_store_matching_init(struct br_store_matching *matching, struct br_store_query *query,
                           const struct br_sample_filter *filter, struct br_err *err)
{
    int rc = 0;
    *matching = (struct br_store_matching){.query = query, .filter = filter, .err = err};
    matching->patterns = br_calloc(filter->n_matchers + 1, sizeof(pcre2_code *));
    matching->known = br_map_new(SERIES_MAX);
    if (!matching->patterns || !matching->known)
        return matching_no_memory(matching);
    for (size_t i = 0; i < filter->n_matchers && !rc; i++)
        if (matching_is_pattern(&filter->matchers[i]))
            rc = matching_compile(matching, i);
    if (!rc && br_regex_ready(&matching->regex))
        rc = matching_no_memory(matching);
    if (rc)
        return rc;
    br_regex_time_begin(&matching->time, MATCH_NS, NULL);
    br_regex_bound(&matching->regex, &matching->time);
    return 0;
}

void br_store_matching_release(struct br_store_matching *matching)
{
    for (size_t i = 0; matching->patterns && i < matching->filter->n_matchers; i++)
        pcre2_code_free(matching->patterns[i]);
    br_free(matching->patterns);
    br_map_free(matching->known, NULL);
    br_free(matching->series);
    br_regex_release(&matching->regex);
}

/* --- Labels ---------------------------------------------------------------------------------- */

static const char *matching_value(const struct br_series_label *labels, size_t count,
                                  const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(labels[i].name, name) == 0)
            return labels[i].value;
    return "";
}

static bool matching_matches(struct br_store_matching *matching,
                             const struct br_series_label *labels, size_t count)
{
    for (size_t i = 0; i < matching->filter->n_matchers; i++) {
        const struct br_matcher *matcher = &matching->filter->matchers[i];
        const char *value = matching_value(labels, count, matcher->name);
        int equal;
        if (matching_is_pattern(matcher)) {
            equal = br_regex_match(&matching->regex, matching->patterns[i], value, strlen(value));
            if (equal < 0) {
                matching->query->cut = "a regular expression takes too long";
                return false;
            }
        } else {
            equal = strcmp(value, matcher->value) == 0;
        }
        bool positive = matcher->type == BR_MATCH_EQUAL || matcher->type == BR_MATCH_REGEX;
        if ((equal == 1) != positive)
            return false;
    }
    return true;
}

/* Splits labels that are encoded as name\0value\0. Returns false if the labels are malformed. */
static bool matching_split(const char *data, size_t len, struct br_series_label *labels,
                           size_t *ret_count)
{
    const char *p = data, *end = br_mem_end(data, len);
    size_t count = 0;
    while (p < end) {
        const char *value = memchr(p, '\0', (size_t)(end - p));
        const char *after = value ? memchr(value + 1, '\0', (size_t)(end - value - 1)) : NULL;
        if (!after || count == LABELS_MAX)
            return false;
        labels[count++] = (struct br_series_label){p, value + 1};
        p = after + 1;
    }
    *ret_count = count;
    return true;
}

static const struct br_stored_series *matching_add_series(struct br_store_matching *matching,
                                                          sqlite3_stmt *statement, uint64_t hash)
{
    struct br_arena *arena = matching->query->arena;
    struct br_series_label labels[LABELS_MAX];
    size_t len = (size_t)sqlite3_column_bytes(statement, 3), count = 0;
    struct br_stored_series *series = br_arena_alloc(arena, sizeof *series);
    char *data = br_arena_alloc(arena, len + 1);
    if (!series || !data)
        return NULL;
    if (len)
        memcpy(data, sqlite3_column_blob(statement, 3), len);
    (void)matching_split(data, len, labels, &count);
    struct br_series_label *copy = br_arena_alloc(arena, (count + 1) * sizeof *copy);
    const char *type = br_store_view_text(matching->query, statement, 2);
    if (!copy || !type)
        return NULL;
    memcpy(copy, labels, count * sizeof *copy);
    *series = (struct br_stored_series){
        .labels = copy, .n_labels = count, .type = type, .hash = hash, .source = hash};
    for (size_t i = 0; i < count; i++)
        if (!strcmp(copy[i].name, BR_SERIES_HIDDEN)) {
            char *end;
            series->per_sample = strtoull(copy[i].value, &end, 16);
            series->source = strtoull(end, NULL, 16);
            memmove(copy + i, copy + i + 1, (count - i - 1) * sizeof *copy);
            series->n_labels--;
            break;
        }
    if (br_map_put(matching->known, &hash, sizeof hash, series, NULL))
        return NULL;
    return series;
}

/* Finds the series of the current row. Sets `*ret` to NULL if the filter does not select the
 * series. */
static int matching_look_up(struct br_store_matching *matching, sqlite3_stmt *statement,
                            const struct br_stored_series **ret)
{
    struct br_series_label labels[LABELS_MAX];
    uint64_t hash = (uint64_t)sqlite3_column_int64(statement, 1);
    const char *type = (const char *)sqlite3_column_text(statement, 2);
    const char *data = sqlite3_column_blob(statement, 3);
    size_t len = (size_t)sqlite3_column_bytes(statement, 3), count = 0;
    *ret = br_map_get(matching->known, &hash, sizeof hash);
    if (*ret)
        return 0;
    if (matching->filter->type && (!type || strcmp(type, matching->filter->type) != 0))
        return 0;
    if (!matching_split(data, len, labels, &count))
        return br_err_set(matching->err, BR_EPROTO, "the labels of a series are damaged");
    if (!matching_matches(matching, labels, count))
        return 0;
    *ret = matching_add_series(matching, statement, hash);
    if (!*ret)
        matching->query->cut = "it takes too much memory";
    return 0;
}

int br_store_matching_read(struct br_store_matching *matching, struct br_store_view *view)
{
    struct br_sql *sql = &view->reader->sql;
    sqlite3_stmt *statement = br_sql_statement(sql, BR_SQL_SERIES);
    int rc = 0, sql_rc = 0;
    matching->n_series = 0;
    while (!rc && !matching->query->cut && br_sql_row(sql, statement, &sql_rc, NULL)) {
        uint64_t id = (uint64_t)sqlite3_column_int64(statement, 0);
        if (id > BR_SERIES_MAX)
            continue;
        rc = br_grow(&matching->series, &matching->cap_series, (size_t)id + 1,
                     sizeof *matching->series, BR_SERIES_MAX + 1u);
        if (rc) {
            rc = matching_no_memory(matching);
            break;
        }
        while (matching->n_series <= id)
            matching->series[matching->n_series++] = NULL;
        rc = matching_look_up(matching, statement, &matching->series[id]);
        if (matching->filter->select_series && matching->series[id] &&
            !matching->filter->select_series(matching->series[id], matching->filter->select_arg))
            matching->series[id] = NULL;
    }
    if (statement)
        (void)sqlite3_reset(statement);
    if (rc == BR_EPROTO)
        return br_store_view_failed(matching->query, view, rc, matching->err);
    if (!rc && sql_rc)
        rc = br_store_view_sql_failed(matching->query, view, matching->err);
    return rc;
}
