/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/series.h"

#include <string.h>

#include "attribute/value.h"
#include "base/bytes.h"
#include "base/lexer.h"
#include "base/mem.h"
#include "otlp/dictionary/dictionary.h"
#include "profile/pair.h"

/* Labels with unique names; the first label with a name is kept. */
struct labels {
    struct br_label labels[BR_SERIES_LABELS_MAX];
    uint32_t count, max;
    uint32_t n_more;      /* number of labels left out because there were `max` already */
    struct br_label more; /* the first label that was left out */
};

/* Labels of a Resource or scope, read once for all its profiles. */
struct origin {
    struct br_entry body;
    bool from_pyroscope, read;
    struct labels labels;
    struct br_arena arena; /* memory for the texts of `labels` */
};

struct br_series {
    const struct br_series_config *config;
    struct labels labels; /* labels of the current series */
    struct origin service, resource, scope;
    bool no_memory;
    bool keep_empty;       /* true: labels with an empty value are kept */
    struct br_arena arena; /* memory for the names of `labels` */
};

/* Attributes that distinguish deployments and have few values. service.instance.id, process.pid
 * and similar attributes are deliberately absent. These attributes change with every start, and
 * each value would create a new series. */
static const char *const default_resource[] = {"service.namespace",
                                               "service.version",
                                               "deployment.environment",
                                               "deployment.environment.name",
                                               "host.name",
                                               "container.name",
                                               "k8s.cluster.name",
                                               "k8s.namespace.name",
                                               "k8s.deployment.name",
                                               "k8s.statefulset.name",
                                               "k8s.daemonset.name",
                                               "k8s.cronjob.name",
                                               "k8s.node.name",
                                               "k8s.pod.name",
                                               "k8s.container.name",
                                               "cloud.region",
                                               "cloud.availability_zone"};

/* Sample attributes that become labels by default: a service has few different span names. */
static const char *const default_sample[] = {"span_name", "span.name"};

/* Attributes that Pyroscope stores with the sample. These attributes do not create series. */
static const char *const ids[] = {"span_id", "trace_id", "profile_id"};

/* --- Selection by the config ------------------------------------------------------------------ */

static bool series_matches(const char *pattern, const char *text, const char *end)
{
    const char *star = NULL, *again = NULL;
    while (text < end) {
        if (*pattern == '*') {
            star = ++pattern;
            again = text;
        } else if (*pattern && *pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star;
            text = ++again;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

static bool series_listed(const char *const *list, size_t count, const char *key, size_t len)
{
    for (size_t i = 0; i < count; i++)
        if (series_matches(list[i], key, key + len))
            return true;
    return false;
}

bool br_series_is_id(const char *key, size_t len)
{
    return series_listed(ids, BR_COUNT(ids), key, len);
}

bool br_series_keeps(const struct br_series_config *config, const char *key, size_t len)
{
    const struct br_strings *want = &config->sample_attributes;
    return br_series_is_id(key, len) ||
           (want->items ? series_listed(want->items, want->count, key, len)
                        : series_listed(default_sample, BR_COUNT(default_sample), key, len));
}

/* --- One label ------------------------------------------------------------------------------- */

static const char *series_sanitized(struct br_arena *arena, const char *name, size_t len)
{
    char *out = br_arena_strndup(arena, name, len);
    for (size_t i = 0; out && i < len; i++)
        if (!br_is_word(out[i]) || (i == 0 && br_is_digit(out[i])))
            out[i] = '_';
    return out;
}

/* Adds a label unless one with the same name exists. */
static void series_put(struct labels *labels, const struct br_label *label)
{
    for (uint32_t i = 0; i < labels->count; i++)
        if (br_bytes_equal(labels->labels[i].name, labels->labels[i].name_len, label->name,
                           label->name_len))
            return;
    if (labels->count < labels->max)
        labels->labels[labels->count++] = *label;
    else if (labels->n_more++ == 0)
        labels->more = *label;
}

static bool series_name_is_valid(const struct br_label *label)
{
    return label->name_len > 0 && label->name_len <= BR_SERIES_NAME_MAX &&
           br_utf8_valid((const uint8_t *)label->name, label->name_len) == label->name_len;
}

static void series_add(struct br_series *series, struct labels *to, struct br_arena *arena,
                       struct br_label label)
{
    size_t n = label.value_len < BR_SERIES_VALUE_MAX ? label.value_len : BR_SERIES_VALUE_MAX;
    n = n ? br_utf8_valid((const uint8_t *)label.value, n) : 0;
    if (n == 0 && (label.value_len || !series->keep_empty))
        return;
    if (!series_name_is_valid(&label))
        return;
    label.value_len = n;
    if (series->config->sanitize)
        label.name = series_sanitized(arena, label.name, label.name_len);
    if (label.name)
        series_put(to, &label);
    else
        series->no_memory = true;
}

static void series_add_text(struct br_series *series, const char *name, const char *value)
{
    series_add(series, &series->labels, &series->arena,
               (struct br_label){name, strlen(name), value, strlen(value)});
}

/* If a value is a list with one element, returns the element. Otherwise returns the value. */
static struct br_any series_only(struct br_any any)
{
    struct br_any first, second;
    if (any.type != BR_VALUE_LIST)
        return any;
    const uint8_t *end = any.data + any.len, *p = br_list_next(any.data, end, &first);
    return p && !br_list_next(p, end, &second) ? first : any;
}

static void series_add_pair(struct br_series *series, struct origin *origin,
                            const struct br_pair *pair)
{
    struct br_any value = series_only(pair->value);
    struct br_label label = {(const char *)pair->key.data, pair->key.len, (const char *)value.data,
                             value.len};
    if (br_text_is(pair->key, "service.name")) {
        label.name = "service_name";
        if (value.type == BR_VALUE_STRING && !value.len)
            return;
    } else if (br_text_is(pair->key, BR_LABEL_SERVICE_NAME)) {
        label.name = "service.name";
    }
    if (label.name != (const char *)pair->key.data)
        label.name_len = strlen(label.name);
    if (value.type == BR_VALUE_STRING) {
        series_add(series, &origin->labels, &origin->arena, label);
        return;
    }
    struct br_str text = {.max = 2 * BR_SERIES_VALUE_MAX};
    br_value_text(&text, &value, &origin->arena);
    label.value = text.len ? br_arena_strndup(&origin->arena, text.data, text.len) : NULL;
    label.value_len = text.len;
    if (label.value)
        series_add(series, &origin->labels, &origin->arena, label);
    else if (text.len)
        series->no_memory = true;
    br_str_release(&text);
}

/* --- Labels of a Resource or scope ------------------------------------------------------------ */

struct wanted {
    const char *const *items;
    size_t count;
};

/* Labels that begin with `__` control the Pyroscope server, so the config cannot exclude them. */
static bool series_is_wanted(const struct origin *origin, struct wanted want,
                             const struct br_pair *pair)
{
    const char *key = (const char *)pair->key.data;
    size_t len = pair->key.len;
    if (origin->from_pyroscope && len > 2 && memcmp(key, "__", 2) == 0)
        return true;
    if (br_text_is(pair->key, BR_LABEL_SERVICE_NAME)) {
        key = "service.name";
        len = strlen(key);
    }
    return len && series_listed(want.items, want.count, key, len);
}

static void series_read_pairs(struct br_series *series, struct origin *origin, uint32_t field,
                              struct wanted want)
{
    const uint8_t *p = origin->body.data, *end = origin->body.len ? p + origin->body.len : p;
    struct br_pair pair;
    while ((want.count || origin->from_pyroscope) && (p = br_pair_next(p, end, field, &pair)))
        if (series_is_wanted(origin, want, &pair))
            series_add_pair(series, origin, &pair);
}

/* Prepares `origin` for reading `body`. Returns false if the labels of `origin` are already
 * cached. */
static bool series_begin_origin(struct origin *origin, struct br_entry body, bool from_pyroscope)
{
    if (origin->read && origin->body.data == body.data && origin->body.len == body.len &&
        origin->from_pyroscope == from_pyroscope)
        return false;
    br_arena_release(&origin->arena);
    origin->body = body;
    origin->from_pyroscope = from_pyroscope;
    origin->labels.count = origin->labels.n_more = 0;
    origin->labels.max = BR_SERIES_LABELS_MAX;
    return true;
}

static void series_read_origin(struct br_series *series, struct origin *origin,
                               struct br_entry body, uint32_t field, struct wanted want)
{
    if (!series_begin_origin(origin, body, series->keep_empty))
        return;
    series_read_pairs(series, origin, field, want);
    origin->read = !series->no_memory;
}

/* Adds the `service_name` that Pyroscope gives to OTLP profiles without a service. Pyroscope
 * itself chooses the name for profiles of its SDKs. */
static void series_add_unknown(struct br_series *series, struct origin *origin,
                               const struct br_any *program)
{
    static const char unknown[] = "unknown_service:";
    size_t len = program->len < BR_SERIES_VALUE_MAX ? program->len : BR_SERIES_VALUE_MAX;
    size_t n = sizeof unknown - 1;
    char *text = br_arena_alloc(&origin->arena, n + len);
    if (!text) {
        series->no_memory = true;
        return;
    }
    memcpy(text, unknown, n);
    if (len)
        memcpy(text + n, program->data, len);
    series_add(
        series, &origin->labels, &origin->arena,
        (struct br_label){"service_name", strlen("service_name"), text, len ? n + len : n - 1});
}

static void series_read_service(struct br_series *series, struct origin *origin)
{
    const uint8_t *p = origin->body.data, *end = origin->body.len ? p + origin->body.len : p;
    struct br_any program = {.len = 0};
    struct br_pair pair;
    while ((p = br_pair_next(p, end, BR_RESOURCE_ATTRIBUTES, &pair))) {
        struct br_any value = series_only(pair.value);
        if (br_text_is(pair.key, "service.name"))
            series_add_pair(series, origin, &pair);
        else if (value.type == BR_VALUE_STRING && value.len &&
                 br_text_is(pair.key, "process.executable.name"))
            program = value;
    }
    if (!origin->labels.count && !origin->from_pyroscope)
        series_add_unknown(series, origin, &program);
}

/* Appends the cached labels of `origin` to those of the series. */
static void series_add_origin(struct br_series *series, const struct origin *origin)
{
    for (uint32_t i = 0; i < origin->labels.count; i++)
        series_put(&series->labels, &origin->labels.labels[i]);
    if (origin->labels.n_more && !series->labels.n_more)
        series->labels.more = origin->labels.more;
    series->labels.n_more += origin->labels.n_more;
}

void br_series_forget(struct br_series *series)
{
    series->service.read = series->resource.read = series->scope.read = false;
}

/* --- All labels ------------------------------------------------------------------------------- */

static struct wanted series_wanted_of(const struct br_series *series, bool from_pyroscope)
{
    static const char *const any[] = {"*"};
    const struct br_strings *want = &series->config->resource_attributes;
    if (want->items)
        return (struct wanted){want->items, want->count};
    return from_pyroscope ? (struct wanted){any, 1}
                          : (struct wanted){default_resource, BR_COUNT(default_resource)};
}

static void series_add_all(struct br_series *series, const struct br_pprof_out *result)
{
    const struct br_series_config *config = series->config;
    series_add_text(series, "__name__", result->name);
    for (size_t i = 0; i < config->fixed.count; i++)
        if (config->fixed.values[i].text)
            series_add_text(series, config->fixed.names[i], config->fixed.values[i].text);
    if (series_begin_origin(&series->service, result->resource, result->from_pyroscope)) {
        series_read_service(series, &series->service);
        series->service.read = !series->no_memory;
    }
    series_add_origin(series, &series->service);
    /* Prevents Pyroscope from computing differences, which are right only for totals since the
     * process began. */
    if (!result->from_pyroscope && !result->cumulative)
        series_add_text(series, "__delta__", "false");
    /* Labels with empty values are kept, because JFR profiles of Pyroscope clients have a label
     * `jfr_event=""`. */
    series->keep_empty = result->from_pyroscope;
    series_read_origin(series, &series->resource, result->resource, BR_RESOURCE_ATTRIBUTES,
                       series_wanted_of(series, result->from_pyroscope));
    series->keep_empty = false;
    series_add_origin(series, &series->resource);
    series_read_origin(
        series, &series->scope, result->scope, BR_SCOPE_ATTRIBUTES,
        (struct wanted){config->scope_attributes.items, config->scope_attributes.count});
    series_add_origin(series, &series->scope);
}

bool br_series_make(struct br_series *series, const struct br_pprof_out *result,
                    struct br_series_made *ret)
{
    struct labels *labels = &series->labels;
    uint32_t max = (uint32_t)series->config->max;
    br_arena_release(&series->arena);
    labels->count = labels->n_more = 0;
    labels->max = result->n_labels < max - 2 ? max - result->n_labels : 2;
    series->no_memory = false;
    series_add_all(series, result);
    *ret = (struct br_series_made){labels->labels, labels->count, labels->n_more, labels->more};
    return !series->no_memory;
}

struct br_series *br_series_new(const struct br_series_config *config)
{
    struct br_series *series = br_calloc(1, sizeof *series);
    if (series)
        series->config = config;
    return series;
}

void br_series_free(struct br_series *series)
{
    if (!series)
        return;
    br_arena_release(&series->service.arena);
    br_arena_release(&series->resource.arena);
    br_arena_release(&series->scope.arena);
    br_arena_release(&series->arena);
    br_free(series);
}
