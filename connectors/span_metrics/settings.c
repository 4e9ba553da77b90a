/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/bytes.h"
#include "config/parts.h"
#include "connectors/span_metrics/span_metrics.h"

#define NO_EFFECT "Prometheus scrapes cumulative metrics from the telemetry endpoint"

static const char *const units[] = {"ms", "s", NULL};

static const struct br_option dimension_options[] = {
    BR_STRING(struct span_metrics_dimension, name, NULL,
              "key of an attribute of the span or, if it is absent there, of its resource"),
    {.name = "default",
     .kind = BR_OPT_STRING,
     .offset = BR_OPT_FIELD(struct span_metrics_dimension, fallback, const char *),
     .help = "value of the label if the attribute is absent; default: the label is absent"},
    BR_STRING(struct span_metrics_dimension, glob, NULL,
              "pattern of keys of attributes; not supported"),
    BR_OPT_END,
};

static const struct br_option explicit_options[] = {
    BR_STRINGS(struct span_metrics_explicit, buckets,
               "upper bounds of the buckets, as durations; default: 2ms, 4ms, 6ms, 8ms, 10ms, "
               "50ms, 100ms, 200ms, 400ms, 800ms, 1s, 1400ms, 2s, 5s, 10s, 15s"),
    BR_OPT_END,
};

static const struct br_option histogram_options[] = {
    BR_BOOL(struct span_metrics_histogram, disable, false, "do not measure durations"),
    BR_ENUM(struct span_metrics_histogram, unit, "ms", units, "unit of the durations"),
    {.name = "explicit",
     .kind = BR_OPT_PRESENT,
     .offset = offsetof(struct span_metrics_histogram, explicit_buckets),
     .sub = explicit_options,
     .size = sizeof(struct span_metrics_explicit),
     .help = "buckets of the durations"},
    BR_VALUE(struct span_metrics_histogram, exponential, "exponential buckets; not supported"),
    BR_LIST(struct span_metrics_histogram, dimensions, struct span_metrics_dimension,
            dimension_options, "further labels of the durations"),
    BR_OPT_END,
};

static const struct br_option exemplars_options[] = {
    BR_BOOL(struct span_metrics_exemplars, enabled, false,
            "add the trace id and span id of counted spans to the metrics, in OpenMetrics"),
    BR_INT(struct span_metrics_exemplars, max_per_data_point, 5, 0, INT32_MAX,
           "largest number of exemplars of a series of durations, at most one per bucket; a newer "
           "exemplar replaces the oldest one"),
    BR_OPT_END,
};

const struct br_option span_metrics_options[] = {
    BR_LIST(struct span_metrics_config, dimensions, struct span_metrics_dimension,
            dimension_options, "further labels of all metrics, from attributes"),
    BR_LIST(struct span_metrics_config, calls_dimensions, struct span_metrics_dimension,
            dimension_options, "further labels of the calls"),
    BR_STRINGS(struct span_metrics_config, exclude_dimensions,
               "labels that are left out: service.name, span.name, span.kind, status.code"),
    BR_INT_UP_TO(
        struct span_metrics_config, aggregation_cardinality_limit, 0, 0, SPAN_METRICS_SERIES_MAX,
        "largest number of series of each metric, by all workers together; further series are "
        "added up in one with the label otel_metric_overflow; 0: 2000"),
    BR_STRING(struct span_metrics_config, namespace, "traces.span.metrics",
              "prefix of the names of the metrics"),
    BR_STRUCT(struct span_metrics_config, histogram, histogram_options,
              "histogram of the durations"),
    BR_STRUCT(struct span_metrics_config, exemplars, exemplars_options,
              "references from the metrics to spans that were counted"),
    BR_VALUE(struct span_metrics_config, events,
             "metric of span events; `enabled: true` is not supported"),
    BR_IGNORED("include_instrumentation_scope", "the metrics have no labels of scopes"),
    BR_IGNORED("add_resource_attributes",
               "name attributes of the resource in `dimensions` instead"),
    BR_IGNORED("enable_metrics_sampling_method", "the metrics have no label sampling.method"),
    BR_IGNORED("dimensions_cache_size", "aggregation_cardinality_limit limits the series"),
    BR_IGNORED("resource_metrics_cache_size", "aggregation_cardinality_limit limits the series"),
    BR_IGNORED("resource_metrics_key_attributes", "the metrics have no resource"),
    BR_IGNORED("aggregation_temporality", NO_EFFECT),
    BR_IGNORED("metric_timestamp_cache_size", NO_EFFECT),
    BR_IGNORED("metrics_flush_interval", NO_EFFECT),
    BR_IGNORED("metrics_expiration", "series are kept until the process ends"),
    BR_IGNORED("series_expiration", "series are kept until the process ends"),
    BR_OPT_END,
};

static bool settings_is_word(char letter)
{
    static const char words[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    return strchr(words, letter) != NULL;
}

/* Returns `prefix` and the text, in which each character that Prometheus does not allow in names is
 * replaced by an underscore. Returns NULL if memory runs out. */
static const char *settings_name(const char *prefix, const char *text, struct br_arena *arena)
{
    bool digit = !*prefix && *text >= '0' && *text <= '9';
    char *name = br_arena_printf(arena, "%s%s%s", digit ? "key_" : "", prefix, text);
    for (char *p = name; p && *p; p++)
        if (!settings_is_word(*p))
            *p = '_';
    return name;
}

/* --- Labels ----------------------------------------------------------------------------------- */

static const struct span_metrics_label standard[] = {
    {"service_name", SPAN_METRICS_SERVICE, "service.name", NULL},
    {"span_name", SPAN_METRICS_NAME, "span.name", NULL},
    {"span_kind", SPAN_METRICS_KIND, "span.kind", NULL},
    {"status_code", SPAN_METRICS_STATUS, "status.code", NULL},
};

static bool settings_excludes(const struct span_metrics_config *config, const char *key)
{
    for (size_t i = 0; i < config->exclude_dimensions.count; i++)
        if (strcmp(config->exclude_dimensions.items[i], key) == 0)
            return true;
    return false;
}

/* Returns true if a label of this name exists. The names of the standard labels and of the label
 * `connector` are reserved, even if they are excluded. */
static bool settings_is_taken(const struct span_metrics_labels *labels, const char *name)
{
    for (size_t i = 0; i < BR_COUNT(standard); i++)
        if (strcmp(standard[i].name, name) == 0)
            return true;
    for (size_t i = 0; i < labels->count; i++)
        if (strcmp(labels->items[i].name, name) == 0)
            return true;
    return strcmp(name, "connector") == 0 || strcmp(name, "le") == 0;
}

/* Returns true if the label of this key exists. The Collector rejects a key that is listed twice,
 * but not two keys that have the same name as labels of Prometheus, such as a.b and a_b. */
static bool settings_repeats(const struct span_metrics_labels *labels, const char *key)
{
    for (size_t i = 0; i < labels->count; i++)
        if (labels->items[i].key && strcmp(labels->items[i].key, key) == 0)
            return true;
    return false;
}

static int settings_add_label(struct span_metrics_labels *labels,
                              const struct span_metrics_dimension *dimension,
                              const struct br_yaml *node, const char *path, struct br_arena *arena,
                              struct br_errs *errs)
{
    bool named = dimension->name && *dimension->name;
    bool globbed = dimension->glob && *dimension->glob;
    if (globbed)
        return br_errs_lack(errs, br_yaml_get(node, "glob"), path,
                            "\"glob\": Braid supports only single attributes; use \"name\"");
    if (!named)
        return br_errs_add(errs, node, path, "needs a \"name\"");
    const char *name = settings_name("", dimension->name, arena);
    if (!name)
        return BR_ENOMEM;
    if (settings_repeats(labels, dimension->name))
        return br_errs_add_key(errs, node, path, "name", "\"%s\" is already a dimension",
                               dimension->name);
    if (settings_is_taken(labels, name))
        return br_errs_lack(errs, node, path,
                            "the label of \"%s\" would be \"%s\", but another label has this name, "
                            "and Prometheus does not allow that",
                            dimension->name, name);
    if (labels->count == SPAN_METRICS_LABELS_MAX)
        return br_errs_add(errs, node, path, "a metric can have at most %d labels",
                           SPAN_METRICS_LABELS_MAX);
    labels->items[labels->count++] = (struct span_metrics_label){
        name, SPAN_METRICS_ATTRIBUTE, dimension->name, dimension->fallback};
    return 0;
}

/* Position of a list of dimensions in the config, for error messages. */
struct place {
    const struct br_yaml *node; /* the list */
    const char *path;
};

static int settings_add_labels(struct span_metrics_labels *labels, const struct br_structs *list,
                               struct place place, struct br_arena *arena, struct br_errs *errs)
{
    const struct span_metrics_dimension *dimensions = list->items;
    int rc = 0;
    for (size_t i = 0; i < list->count && rc != BR_ENOMEM; i++) {
        bool seq = place.node && place.node->type == BR_YAML_SEQ;
        const struct br_yaml *node = seq ? place.node->items[i] : place.node;
        char *path = br_arena_printf(arena, "%s[%zu]", place.path, i);
        int one =
            path ? settings_add_label(labels, &dimensions[i], node, path, arena, errs) : BR_ENOMEM;
        rc = one ? one : rc;
    }
    return rc;
}

/* Makes the labels of a family: the standard labels, `dimensions`, and the labels in `more`. Errors
 * of `dimensions` are added only for the first family. */
static int settings_make_labels(struct span_metrics_config *config, int family, struct place all,
                                struct place own, const struct br_structs *more,
                                struct br_arena *arena, struct br_errs *errs)
{
    struct span_metrics_labels *labels = &config->labels[family];
    labels->items = br_arena_calloc(arena, SPAN_METRICS_LABELS_MAX, sizeof *labels->items);
    if (!labels->items || !all.path || !own.path)
        return BR_ENOMEM;
    for (size_t i = 0; i < BR_COUNT(standard); i++)
        if (!settings_excludes(config, standard[i].key))
            labels->items[labels->count++] = standard[i];
    int rc = settings_add_labels(labels, &config->dimensions, all, arena, errs);
    return rc ? rc : settings_add_labels(labels, more, own, arena, errs);
}

static int settings_make_all_labels(struct span_metrics_config *config, const struct br_yaml *node,
                                    const char *path, struct br_arena *arena, struct br_errs *errs)
{
    struct place all = {br_yaml_get(node, "dimensions"),
                        br_arena_printf(arena, "%s::dimensions", path)};
    struct place calls = {br_yaml_get(node, "calls_dimensions"),
                          br_arena_printf(arena, "%s::calls_dimensions", path)};
    struct place durations = {br_yaml_get(br_yaml_get(node, "histogram"), "dimensions"),
                              br_arena_printf(arena, "%s::histogram::dimensions", path)};
    int rc = settings_make_labels(config, SPAN_METRICS_CALLS, all, calls, &config->calls_dimensions,
                                  arena, errs);
    return rc ? rc
              : settings_make_labels(config, SPAN_METRICS_DURATION, all, durations,
                                     &config->histogram.dimensions, arena, errs);
}

/* --- Buckets ---------------------------------------------------------------------------------- */

static int settings_read_buckets(struct span_metrics_config *config, const struct br_yaml *node,
                                 const char *path, struct br_arena *arena, struct br_errs *errs)
{
    static const double default_ms[] = {2,   4,   6,    8,    10,   50,   100,   200,
                                        400, 800, 1000, 1400, 2000, 5000, 10000, 15000};
    const struct span_metrics_explicit *given = config->histogram.explicit_buckets;
    size_t n = given && given->buckets.count ? given->buckets.count : BR_COUNT(default_ms);
    double *bounds = br_arena_calloc(arena, n, sizeof *bounds);
    char at[192], shown[BR_SHOWN_SIZE];
    if (!bounds)
        return BR_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        bool known = given && given->buckets.count;
        uint64_t ns = known ? 0 : (uint64_t)(default_ms[i] * 1e6);
        const char *text = known ? given->buckets.items[i] : "";
        bounds[i] = 0;
        if (known && !br_duration_parse(text, &ns))
            return br_errs_add_key(errs, node, br_path_join(at, path, "histogram::explicit"),
                                   "buckets", "must be a list of durations, got %s",
                                   br_text_show(text, shown));
        bounds[i] = (double)ns / config->unit_ns;
        if (i && bounds[i] <= bounds[i - 1])
            return br_errs_add_key(errs, node, br_path_join(at, path, "histogram::explicit"),
                                   "buckets", "must be in ascending order");
    }
    config->bounds = bounds;
    config->n_bounds = n;
    return 0;
}

static bool settings_is_enabled(const struct br_yaml *section)
{
    const struct br_yaml *enabled = br_yaml_get(section, "enabled");
    return enabled && enabled->type == BR_YAML_SCALAR && strcmp(enabled->text, "true") == 0;
}

static int settings_check_unsupported(const struct span_metrics_config *config, const char *path,
                                      struct br_errs *errs)
{
    char at[192];
    int rc = 0;
    if (settings_is_enabled(config->events))
        rc = br_errs_lack(errs, config->events, br_path_join(at, path, "events"),
                          "Braid does not count span events");
    if (config->histogram.exponential)
        rc = br_errs_lack(errs, config->histogram.exponential,
                          br_path_join(at, path, "histogram::exponential"),
                          "Braid supports only explicit buckets");
    return rc;
}

int span_metrics_check(void *config, const struct br_yaml *node, const char *path,
                       struct br_arena *arena, struct br_errs *errs)
{
    struct span_metrics_config *settings = config;
    bool ms = settings->histogram.unit == 0;
    const char *prefix = settings->namespace && *settings->namespace
                             ? br_arena_printf(arena, "%s.", settings->namespace)
                             : "";
    settings->unit_ns = ms ? 1e6 : 1e9;
    settings->max_series = settings->aggregation_cardinality_limit
                               ? (size_t)settings->aggregation_cardinality_limit
                               : SPAN_METRICS_SERIES;
    if (!prefix)
        return BR_ENOMEM;
    settings->names[SPAN_METRICS_CALLS] = settings_name(prefix, "calls", arena);
    settings->names[SPAN_METRICS_DURATION] =
        settings_name(prefix, ms ? "duration_milliseconds" : "duration_seconds", arena);
    if (!settings->names[SPAN_METRICS_CALLS] || !settings->names[SPAN_METRICS_DURATION])
        return BR_ENOMEM;
    int rc = settings_check_unsupported(settings, path, errs);
    int labels = settings_make_all_labels(settings, node, path, arena, errs);
    int buckets = settings_read_buckets(
        settings, br_yaml_get(br_yaml_get(node, "histogram"), "explicit"), path, arena, errs);
    if (labels == BR_ENOMEM || buckets == BR_ENOMEM)
        return BR_ENOMEM;
    rc = rc ? rc : labels;
    return rc ? rc : buckets;
}
