/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/join.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "wire/protobuf.h"

#define OTHER "_other"

const struct br_option join_span_metrics_options[] = {
    BR_BOOL(struct join_span_metrics_config, enabled, false,
            "count CPU seconds, allocated bytes and samples by service and span name"),
    BR_INT(struct join_span_metrics_config, max_series, 500, 1, JOIN_SERIES_MAX,
           "largest number of pairs of service and span name that have separate counters; further "
           "pairs are counted as _other"),
    BR_OPT_END,
};

int join_span_metrics_init(struct join_span_metrics *metrics,
                           const struct join_span_metrics_config *config, struct br_node *node,
                           struct join_table *table)
{
    if (!config->enabled)
        return 0;
    metrics->known = br_map_new((size_t)config->max_series);
    metrics->max_series = (size_t)config->max_series;
    metrics->table = table;
    metrics->node = metrics->known ? node : NULL;
    return metrics->known ? 0 : BR_ENOMEM;
}

static void span_metrics_free_counters(void *counters)
{
    br_free(counters);
}

void join_span_metrics_release(struct join_span_metrics *metrics)
{
    br_map_free(metrics->known, span_metrics_free_counters);
    *metrics = (struct join_span_metrics){0};
}

/* A service and a span name, each followed by a zero byte. Both texts together are the key of a
 * series of metrics, and each is the value of a label. */
struct pair {
    char text[2 * JOIN_VALUE_MAX + 2];
    size_t len, name_at;
};

static struct pair span_metrics_pair_of(const void *service, size_t service_len, const void *name,
                                        size_t name_len)
{
    struct pair pair;
    pair.name_at = service_len + 1;
    pair.len = pair.name_at + name_len + 1;
    char *end = (char *)br_put_bytes((uint8_t *)pair.text, service, service_len);
    *end++ = 0;
    end = (char *)br_put_bytes((uint8_t *)end, name, name_len);
    *end = 0;
    return pair;
}

static struct join_span_counters *span_metrics_counters_of(struct join_span_metrics *metrics,
                                                           const struct pair *pair)
{
    struct join_span_counters *counters = br_map_get(metrics->known, pair->text, pair->len);
    if (counters)
        return counters;
    counters = join_table_series(metrics->table, pair->text, pair->len, metrics->max_series)
                   ? br_calloc(1, sizeof *counters)
                   : NULL;
    if (counters && br_map_put(metrics->known, pair->text, pair->len, counters, NULL) == 0)
        return counters;
    br_free(counters);
    return NULL;
}

static void span_metrics_add(const struct join_span_metrics *metrics, double **counter,
                             const char *what, const struct pair *pair, double value)
{
    if (value <= 0)
        return;
    if (!*counter) {
        struct br_str labels = {.max = 8 * sizeof pair->text + 1024};
        br_label(&labels, br_kind_name(metrics->node->component->kind), metrics->node->id);
        br_label(&labels, "service", pair->text);
        br_label(&labels, "span_name", pair->text + pair->name_at);
        *counter = br_metric(metrics->node->host->metrics, BR_COUNTER, what,
                             labels.data && !labels.failed ? labels.data : "");
        br_str_release(&labels);
    }
    **counter += value;
}

void join_span_metrics_add(struct join_span_metrics *metrics, const struct join_span *span,
                           const struct join_spent *spent)
{
    if (!metrics->node)
        return;
    struct pair pair =
        span_metrics_pair_of(span->service, span->service_len, span->name, span->name_len);
    struct join_span_counters *counters = span_metrics_counters_of(metrics, &pair);
    if (!counters) {
        counters = &metrics->other;
        pair = span_metrics_pair_of(OTHER, sizeof OTHER - 1, OTHER, sizeof OTHER - 1);
    }
    span_metrics_add(metrics, &counters->cpu_seconds, "braid_join_span_cpu_seconds", &pair,
                     (double)spent->cpu_ns / 1e9);
    span_metrics_add(metrics, &counters->allocated_bytes, "braid_join_span_allocated_bytes", &pair,
                     (double)spent->allocated_bytes);
    span_metrics_add(metrics, &counters->samples, "braid_join_span_samples", &pair,
                     (double)spent->samples);
}

struct join_spent join_spent_of(const struct join_totals *totals)
{
    struct join_totals all = *totals;
    for (unsigned m = 0; m < JOIN_OTHER; m++)
        all.count[m] += all.deferred_count[m];
    enum join_measure measure = join_totals_measure(&all);
    bool cpu = measure <= JOIN_CPU_COUNT;
    return (struct join_spent){.cpu_ns = cpu ? all.time_ns[measure] + all.deferred_ns[measure] : 0,
                               .allocated_bytes =
                                   all.allocated_bytes + all.deferred_allocated_bytes,
                               .samples = measure < JOIN_OTHER ? all.count[measure] : 0};
}
