/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "connectors/span_metrics/span_metrics.h"
#include "core/shared.h"

/* number of metrics of the worker that the connector does not use, so that other components can use
 * them */
#define METRICS_RESERVE 4096u

/* Keys of the existing series, shared by all workers and pipelines of a connector. */
struct span_metrics_registry {
    pthread_mutex_t lock;
    struct br_map *keys[SPAN_METRICS_FAMILIES];
};

/* --- Keys of all workers ---------------------------------------------------------------------- */

static void series_free_registry(void *registry)
{
    struct span_metrics_registry *shared = registry;
    for (int i = 0; i < SPAN_METRICS_FAMILIES; i++)
        br_map_free(shared->keys[i], NULL);
    (void)pthread_mutex_destroy(&shared->lock);
    br_free(shared);
}

static void *series_make_registry(const void *config)
{
    const struct span_metrics_config *settings = config;
    struct span_metrics_registry *registry = br_calloc(1, sizeof *registry);
    if (!registry || pthread_mutex_init(&registry->lock, NULL)) {
        br_free(registry);
        return NULL;
    }
    bool made = true;
    for (int i = 0; i < SPAN_METRICS_FAMILIES; i++) {
        registry->keys[i] = br_map_new(settings->max_series);
        made = made && registry->keys[i];
    }
    if (made)
        return registry;
    series_free_registry(registry);
    return NULL;
}

/* Returns true if a series with this key exists or may be created. A new series may be created if
 * the limit of series is not reached. */
static bool series_admit(struct span_metrics_registry *registry, int family, const uint8_t *key,
                         size_t len)
{
    static char present;
    pthread_mutex_lock(&registry->lock);
    bool admitted = br_map_get(registry->keys[family], key, len) ||
                    br_map_put(registry->keys[family], key, len, &present, NULL) == 0;
    pthread_mutex_unlock(&registry->lock);
    return admitted;
}

/* --- Series ----------------------------------------------------------------------------------- */

/* Appends the labels of a key. */
static void series_put_labels(const struct span_metrics_labels *labels, const uint8_t *key,
                              struct br_str *out)
{
    char value[SPAN_METRICS_VALUE_MAX + 1];
    for (size_t i = 0; i < labels->count; i++) {
        uint16_t len;
        memcpy(&len, key, sizeof len);
        key += sizeof len;
        if (len == SPAN_METRICS_ABSENT)
            continue;
        memcpy(value, key, len);
        value[len] = '\0';
        br_label(out, labels->items[i].name, value);
        key += len;
    }
}

/* Creates the metric of a series. `key` is NULL for the series that counts all spans above the
 * limit of series. Returns false if memory is short. */
static bool series_make(const struct span_metrics_table *table, int family, const uint8_t *key,
                        struct span_metrics_series *ret)
{
    const struct span_metrics_config *config = table->node->config;
    struct br_metrics *metrics = table->node->host->metrics;
    struct br_str labels = {.max = 4 * SPAN_METRICS_KEY_MAX};
    br_label(&labels, br_kind_name(BR_CONNECTOR), table->node->id);
    if (key)
        series_put_labels(&config->labels[family], key, &labels);
    else
        br_label(&labels, "otel_metric_overflow", "true");
    bool made = !labels.failed;
    if (made && family == SPAN_METRICS_CALLS)
        ret->calls = br_metric_try(metrics, BR_TOTAL, config->names[family], labels.data);
    else if (made)
        ret->durations = br_histogram(metrics, config->names[family], labels.data, config->bounds,
                                      config->n_bounds);
    if (made && config->exemplars.enabled)
        ret->exemplars = br_metric_exemplars(metrics, config->names[family], labels.data,
                                             (size_t)config->exemplars.max_per_data_point);
    br_str_release(&labels);
    return made && (ret->calls || (ret->durations && ret->durations->counts));
}

static struct span_metrics_series *series_get(struct span_metrics_table *table, int family,
                                              const uint8_t *key, size_t len)
{
    struct span_metrics_series *series = br_map_get(table->known[family], key, len);
    if (series)
        return series;
    if (br_metrics_room(table->node->host->metrics) > METRICS_RESERVE &&
        series_admit(table->registry, family, key, len))
        series = br_calloc(1, sizeof *series);
    if (series && series_make(table, family, key, series) &&
        br_map_put(table->known[family], key, len, series, NULL) == 0)
        return series;
    br_free(series);
    return &table->overflow[family];
}

void span_metrics_table_add(struct span_metrics_table *table, int family, const uint8_t *key,
                            size_t len, const struct span_metrics_observation *observation)
{
    struct span_metrics_series *series = series_get(table, family, key, len);
    struct br_exemplar exemplar = observation->exemplar;
    if (series->calls)
        *series->calls += observation->weight;
    else if (series->durations)
        exemplar.bucket = br_histogram_add(series->durations, exemplar.value, observation->weight);
    if (series->exemplars && observation->traced)
        br_exemplars_add(series->exemplars, &exemplar);
}

/* --- Life cycle ------------------------------------------------------------------------------- */

int span_metrics_table_init(struct span_metrics_table *table, struct br_node *node)
{
    const struct span_metrics_config *config = node->config;
    char name[1200];
    table->node = node;
    (void)snprintf(name, sizeof name, "span_metrics:%zu:%s", config->max_series, node->id);
    table->registry = br_shared_get(node->host, name, series_make_registry, config);
    if (!table->registry)
        return BR_ENOMEM;
    for (int i = 0; i < SPAN_METRICS_FAMILIES; i++) {
        table->known[i] = br_map_new(config->max_series);
        bool measured = i != SPAN_METRICS_DURATION || !config->histogram.disable;
        if (!table->known[i] || (measured && !series_make(table, i, NULL, &table->overflow[i])))
            return BR_ENOMEM;
    }
    return 0;
}

void span_metrics_table_release(struct span_metrics_table *table)
{
    for (int i = 0; i < SPAN_METRICS_FAMILIES; i++)
        br_map_free(table->known[i], br_free);
    if (table->registry)
        br_shared_put(table->node->host, table->registry, series_free_registry);
    *table = (struct span_metrics_table){0};
}
