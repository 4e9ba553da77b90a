/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the span_metrics connector. settings.c reads the settings, count.c reads the labels
 * and the duration of each span, series.c keeps the series of metrics, and span_metrics.c handles
 * items.
 *
 * A family is a metric: calls or duration. A series is a metric with the values of its labels. The
 * key of a series consists of these values, each as a length of two bytes and the text. The length
 * SPAN_METRICS_ABSENT stands for an absent label.
 */
#pragma once

#include "attribute/attributes.h"
#include "pipeline/component.h"

enum { SPAN_METRICS_CALLS, SPAN_METRICS_DURATION, SPAN_METRICS_FAMILIES };

#define SPAN_METRICS_LABELS_MAX 32 /* largest number of labels of a series */
/* largest length of the value of a label in bytes; longer values are cut */
#define SPAN_METRICS_VALUE_MAX 256u
#define SPAN_METRICS_ABSENT UINT16_MAX
#define SPAN_METRICS_KEY_MAX (SPAN_METRICS_LABELS_MAX * (SPAN_METRICS_VALUE_MAX + 2))
/* largest number of series of each metric, by all workers together, if the limit is 0 */
#define SPAN_METRICS_SERIES 2000
/* largest limit of series; the metrics of a worker, and a reserve for other components, fit into
 * BR_METRICS_MAX */
#define SPAN_METRICS_SERIES_MAX 28672

enum span_metrics_source {
    SPAN_METRICS_SERVICE,
    SPAN_METRICS_NAME,
    SPAN_METRICS_KIND,
    SPAN_METRICS_STATUS,
    SPAN_METRICS_ATTRIBUTE,
};

struct span_metrics_label {
    const char *name; /* name of the label in metrics */
    enum span_metrics_source source;
    const char *key;      /* SPAN_METRICS_ATTRIBUTE: key of the attribute */
    const char *fallback; /* value if the attribute is absent; NULL: the label is then absent */
};

struct span_metrics_labels {
    struct span_metrics_label *items;
    size_t count;
};

/* An entry of `dimensions`. */
struct span_metrics_dimension {
    const char *name, *fallback, *glob;
};

struct span_metrics_explicit {
    struct br_strings buckets;
};

struct span_metrics_histogram {
    bool disable;
    int unit;
    const struct span_metrics_explicit *explicit_buckets;
    const struct br_yaml *exponential;
    struct br_structs dimensions; /* list of struct span_metrics_dimension */
};

struct span_metrics_exemplars {
    bool enabled;
    int64_t max_per_data_point;
};

struct span_metrics_config {
    struct br_structs dimensions, calls_dimensions; /* lists of struct span_metrics_dimension */
    struct br_strings exclude_dimensions;
    int64_t aggregation_cardinality_limit;
    const char *namespace;
    struct span_metrics_histogram histogram;
    struct span_metrics_exemplars exemplars;
    const struct br_yaml *events;
    /* The fields below are set when the settings are checked. */
    const char *names[SPAN_METRICS_FAMILIES]; /* names of the metrics, without suffix _total */
    struct span_metrics_labels labels[SPAN_METRICS_FAMILIES];
    double unit_ns; /* nanoseconds per unit of the durations: 1e6 for ms */
    const double *bounds;
    size_t n_bounds;
    size_t max_series; /* largest number of series of each metric, by all workers together */
};

extern const struct br_option span_metrics_options[];

/* Checks the settings, and sets the derived fields of the config. See br_component.check. */
int span_metrics_check(void *config, const struct br_yaml *node, const char *path,
                       struct br_arena *arena, struct br_errs *errs);

/* --- Series (series.c) ------------------------------------------------------------------------ */

struct span_metrics_series {
    double *calls;                  /* NULL: a series of durations */
    struct br_histogram *durations; /* NULL: a series of calls */
    struct br_exemplars *exemplars; /* NULL: exemplars are disabled, or memory was short */
};

struct span_metrics_registry;

/* The series of a node. */
struct span_metrics_table {
    struct br_node *node;
    struct span_metrics_registry *registry; /* keys of all workers */
    struct br_map *known[SPAN_METRICS_FAMILIES];
    /* the series of records whose own series would be above the limit */
    struct span_metrics_series overflow[SPAN_METRICS_FAMILIES];
};

/* Initialises a zeroed table. Returns 0 or BR_ENOMEM. span_metrics_table_release must be called
 * after a failure as well. */
int span_metrics_table_init(struct span_metrics_table *table, struct br_node *node);
void span_metrics_table_release(struct span_metrics_table *table);

/* A span that is counted. */
struct span_metrics_observation {
    double weight;               /* number of spans that the span stands for */
    struct br_exemplar exemplar; /* its value is the duration in the unit of the config */
    bool traced;                 /* the exemplar has a trace id, so it can be stored */
};

/* Adds a span to the series with a key. */
void span_metrics_table_add(struct span_metrics_table *table, int family, const uint8_t *key,
                            size_t len, const struct span_metrics_observation *observation);

/* --- Spans (count.c) -------------------------------------------------------------------------- */

/* Memory for reading spans. */
struct span_metrics_reader {
    struct br_attributes own, resource;
    struct br_arena arena;
    struct br_str text;
    uint8_t key[SPAN_METRICS_KEY_MAX];
};

/* Adds all spans of an item to the table. Returns the number of spans that were not counted: those
 * of resources without service.name, and those for which memory was short. */
uint32_t span_metrics_count(struct span_metrics_reader *reader,
                            const struct span_metrics_config *config,
                            struct span_metrics_table *table, struct br_item *item);
void span_metrics_reader_release(struct span_metrics_reader *reader);
