/* SPDX-License-Identifier: Apache-2.0 */
#include "core/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/map.h"
#include "base/mem.h"

struct metric {
    double value;
    struct br_histogram histogram;  /* the histogram, if the type is BR_HISTOGRAM */
    struct br_exemplars *exemplars; /* NULL: the metric has no exemplars */
    enum br_metric_type type;
    const char *name;
    const char *labels;
    /* counts of the histogram's buckets; the bounds, `name` and `labels` are stored after them */
    double counts[];
};

struct br_metrics {
    struct br_map *map; /* map from "name\0labels" to struct metric */
    /* value that is shared by all metrics above the maximum BR_METRICS_MAX and is not part of any
     * scrape */
    double lost;
    /* histogram that is shared by all histograms above the maximum BR_METRICS_MAX */
    struct br_histogram lost_figures;
    bool has_exemplars; /* a metric has a set of exemplars */
};

struct br_metrics *br_metrics_new(void)
{
    struct br_metrics *metrics = br_calloc(1, sizeof *metrics);
    if (!metrics)
        return NULL;
    metrics->map = br_map_new(BR_METRICS_MAX);
    if (!metrics->map) {
        br_free(metrics);
        return NULL;
    }
    return metrics;
}

static void metrics_free_metric(void *value)
{
    struct metric *metric = value;
    br_free(metric->exemplars);
    br_free(metric);
}

void br_metrics_free(struct br_metrics *metrics)
{
    if (!metrics)
        return;
    br_map_free(metrics->map, metrics_free_metric);
    br_free(metrics);
}

/* Returns the metric with that name and these labels. Creates the metric if it does not exist.
 * Returns NULL if there are already BR_METRICS_MAX metrics or if memory is short. */
static struct metric *metrics_make(struct br_metrics *metrics, enum br_metric_type type,
                                   const char *name, const char *labels, const double *bounds,
                                   size_t n_bounds)
{
    size_t name_len = strlen(name) + 1, labels_len = strlen(labels) + 1;
    size_t n_numbers = bounds ? 2 * n_bounds + 1 : 0;
    struct metric *metric =
        br_calloc(1, sizeof *metric + n_numbers * sizeof(double) + name_len + labels_len);
    if (!metric)
        return NULL;
    char *text = (char *)&metric->counts[n_numbers];
    metric->type = type;
    if (bounds)
        metric->histogram = (struct br_histogram){
            .bounds = memcpy(&metric->counts[n_bounds + 1], bounds, n_bounds * sizeof *bounds),
            .n_bounds = n_bounds,
            .counts = metric->counts};
    metric->name = memcpy(text, name, name_len);
    metric->labels = memcpy(text + name_len, labels, labels_len);
    struct metric *known = br_map_get(metrics->map, text, name_len + labels_len);
    if (known || br_map_put(metrics->map, text, name_len + labels_len, metric, NULL)) {
        br_free(metric);
        return known;
    }
    return metric;
}

size_t br_metrics_room(const struct br_metrics *metrics)
{
    return BR_METRICS_MAX - br_map_count(metrics->map);
}

double *br_metric_try(struct br_metrics *metrics, enum br_metric_type type, const char *name,
                      const char *labels)
{
    struct metric *metric = metrics_make(metrics, type, name, labels, NULL, 0);
    return metric ? &metric->value : NULL;
}

double *br_metric(struct br_metrics *metrics, enum br_metric_type type, const char *name,
                  const char *labels)
{
    double *value = br_metric_try(metrics, type, name, labels);
    return value ? value : &metrics->lost;
}

struct br_histogram *br_histogram(struct br_metrics *metrics, const char *name, const char *labels,
                                  const double *bounds, size_t n_bounds)
{
    struct metric *metric = metrics_make(metrics, BR_HISTOGRAM, name, labels, bounds, n_bounds);
    return metric ? &metric->histogram : &metrics->lost_figures;
}

static size_t metrics_bucket(const struct br_histogram *histogram, double value)
{
    size_t at = 0;
    while (at < histogram->n_bounds && value > histogram->bounds[at])
        at++;
    return at;
}

size_t br_histogram_add(struct br_histogram *histogram, double value, double weight)
{
    size_t at = metrics_bucket(histogram, value);
    if (!histogram->counts)
        return at;
    histogram->counts[at] += weight;
    histogram->sum += weight * value;
    return at;
}

void br_histogram_observe(struct br_histogram *histogram, double value)
{
    (void)br_histogram_add(histogram, value, 1);
}

/* --- Exemplars -------------------------------------------------------------------------------- */

static struct metric *metrics_find(const struct br_metrics *metrics, const char *name,
                                   const char *labels)
{
    struct br_str key = {0};
    br_str_add(&key, name, strlen(name) + 1);
    br_str_add(&key, labels, strlen(labels) + 1);
    struct metric *metric = key.failed ? NULL : br_map_get(metrics->map, key.data, key.len);
    br_str_release(&key);
    return metric;
}

static struct br_exemplars *metrics_make_exemplars(struct br_metrics *metrics,
                                                   struct metric *metric, size_t max)
{
    size_t n_buckets = metric->histogram.n_bounds + 1;
    if (!metric->exemplars)
        metric->exemplars = br_exemplars_new(max < n_buckets ? max : n_buckets);
    metrics->has_exemplars = metrics->has_exemplars || metric->exemplars;
    return metric->exemplars;
}

struct br_exemplars *br_metric_exemplars(struct br_metrics *metrics, const char *name,
                                         const char *labels, size_t max)
{
    struct metric *metric = max ? metrics_find(metrics, name, labels) : NULL;
    return metric ? metrics_make_exemplars(metrics, metric, max) : NULL;
}

bool br_metrics_have_exemplars(const struct br_metrics *metrics)
{
    return metrics->has_exemplars;
}

/* --- Snapshots -------------------------------------------------------------------------------- */

void br_label(struct br_str *out, const char *name, const char *value)
{
    br_str_printf(out, "%s%s=\"", out->len ? "," : "", name);
    for (; *value; value++) {
        if (*value == '\\' || *value == '"')
            br_str_printf(out, "\\%c", *value);
        else if (*value == '\n')
            br_str_puts(out, "\\n");
        else
            br_str_putc(out, *value);
    }
    br_str_putc(out, '"');
}

static int metrics_add_value(struct br_metrics *into, const struct metric *from)
{
    double *sum = br_metric_try(into, from->type, from->name, from->labels);
    if (!sum)
        return BR_ENOMEM;
    *sum += from->value;
    return 0;
}

static int metrics_add_histogram(struct br_metrics *into, const struct metric *from)
{
    const struct br_histogram *source = &from->histogram;
    struct br_histogram *sum =
        br_histogram(into, from->name, from->labels, source->bounds, source->n_bounds);
    if (!sum->counts)
        return BR_ENOMEM;
    /* The workers' histograms can have different bounds after a reload. A bucket is then added to
     * the one that contains its upper bound, so no value is counted below its true size. */
    for (size_t i = 0, at = 0; i < source->n_bounds; i++) {
        while (at < sum->n_bounds && source->bounds[i] > sum->bounds[at])
            at++;
        sum->counts[at] += source->counts[i];
    }
    sum->counts[sum->n_bounds] += source->counts[source->n_bounds];
    sum->sum += source->sum;
    return 0;
}

static int metrics_add_exemplars(struct br_metrics *into, const struct metric *from)
{
    const struct br_exemplars *source = from->exemplars;
    if (!source)
        return 0;
    struct metric *metric = metrics_find(into, from->name, from->labels);
    struct br_exemplars *sum = metric ? metrics_make_exemplars(into, metric, source->max) : NULL;
    for (size_t i = 0; sum && i < source->count; i++) {
        struct br_exemplar exemplar = source->items[i];
        exemplar.bucket = metrics_bucket(&metric->histogram, exemplar.value);
        br_exemplars_add(sum, &exemplar);
    }
    return sum ? 0 : BR_ENOMEM;
}

int br_metrics_add(struct br_metrics *into, const struct br_metrics *from)
{
    const struct metric *metric;
    for (size_t i = 0; (metric = br_map_at(from->map, i, NULL, NULL)); i++) {
        int rc = metric->type == BR_HISTOGRAM ? metrics_add_histogram(into, metric)
                                              : metrics_add_value(into, metric);
        if (rc || metrics_add_exemplars(into, metric))
            return BR_ENOMEM;
    }
    return 0;
}

/* --- Output ----------------------------------------------------------------------------------- */

static int metrics_by_name(const void *left, const void *right)
{
    const struct metric *one = *(const struct metric *const *)left;
    const struct metric *other = *(const struct metric *const *)right;
    int names = strcmp(one->name, other->name);
    return names ? names : strcmp(one->labels, other->labels);
}

/* Prints a value with the smallest number of digits that represents it exactly. */
static void metrics_print_fraction(double value, struct br_str *out)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    br_str_printf(out, " %s", text);
}

static void metrics_print_value(double value, struct br_str *out)
{
    if (isnan(value))
        br_str_puts(out, " NaN");
    else if (isinf(value))
        br_str_puts(out, value > 0 ? " +Inf" : " -Inf");
    else if (value == floor(value) && fabs(value) < 9007199254740992.0)
        br_str_printf(out, " %.0f", value);
    else
        metrics_print_fraction(value, out);
}

bool br_metrics_is_openmetrics(enum br_metrics_format format)
{
    return format == BR_METRICS_OPENMETRICS || format == BR_METRICS_OPENMETRICS_PLAIN;
}

static const char *metrics_suffix(const struct metric *metric, enum br_metrics_format format)
{
    bool suffixes = format == BR_METRICS_TEXT || format == BR_METRICS_OPENMETRICS;
    bool total = metric->type == BR_TOTAL || (metric->type == BR_COUNTER && suffixes);
    return total ? "_total" : "";
}

/* Prints the HELP and TYPE lines with the name of the metric family. In Prometheus text the name
 * of a counter's family has the suffix of the counter. In OpenMetrics the name has no suffix. */
static void metrics_print_family(const struct metric *metric, enum br_metrics_format format,
                                 const char *help, struct br_str *out)
{
    static const char *const types[] = {"counter", "gauge", "histogram", "counter"};
    const char *suffix = br_metrics_is_openmetrics(format) ? "" : metrics_suffix(metric, format);
    bool unknown = metric->type == BR_COUNTER && format == BR_METRICS_OPENMETRICS_PLAIN;
    if (help)
        br_str_printf(out, "# HELP %s%s %s\n", metric->name, suffix, help);
    br_str_printf(out, "# TYPE %s%s %s\n", metric->name, suffix,
                  unknown ? "unknown" : types[metric->type]);
}

/* Prints the exemplar of a sample (OpenMetrics 1.0.0, section "Exemplars"). The names and values of
 * its labels have 63 characters, of which the specification allows 128. */
static void metrics_print_exemplar(const struct br_exemplar *exemplar, struct br_str *out)
{
    static const uint8_t unknown[sizeof exemplar->span_id];
    br_str_puts(out, " # {trace_id=\"");
    br_str_hex(out, exemplar->trace_id, sizeof exemplar->trace_id);
    if (memcmp(exemplar->span_id, unknown, sizeof unknown) != 0) {
        br_str_puts(out, "\",span_id=\"");
        br_str_hex(out, exemplar->span_id, sizeof exemplar->span_id);
    }
    br_str_puts(out, "\"}");
    metrics_print_value(exemplar->value, out);
    uint64_t time_ms = exemplar->time_ns / 1000000;
    br_str_printf(out, " %" PRIu64 ".%03" PRIu64, time_ms / 1000, time_ms % 1000);
}

/* Prints a sample. `exemplar` is NULL if the sample has no exemplar. */
static void metrics_print_sample(const struct metric *metric, const char *suffix, const char *label,
                                 double value, const struct br_exemplar *exemplar,
                                 struct br_str *out)
{
    bool both = metric->labels[0] && label[0], any = metric->labels[0] || label[0];
    br_str_printf(out, "%s%s", metric->name, suffix);
    if (any)
        br_str_printf(out, "{%s%s%s}", metric->labels, both ? "," : "", label);
    metrics_print_value(value, out);
    if (exemplar)
        metrics_print_exemplar(exemplar, out);
    br_str_putc(out, '\n');
}

/* Returns the exemplar that a sample has in a format. Only OpenMetrics has exemplars. */
static const struct br_exemplar *metrics_exemplar(const struct metric *metric,
                                                  enum br_metrics_format format, size_t bucket)
{
    return br_metrics_is_openmetrics(format) ? br_exemplars_find(metric->exemplars, bucket) : NULL;
}

/* Prints the sample of one bucket. Formats the bucket's bound as the metrics format requires:
 * OpenMetrics needs a decimal point. */
static void metrics_print_bucket(const struct metric *metric, enum br_metrics_format format,
                                 size_t bucket, double count, struct br_str *out)
{
    const struct br_histogram *histogram = &metric->histogram;
    double bound = bucket < histogram->n_bounds ? histogram->bounds[bucket] : (double)INFINITY;
    char label[48];
    bool whole = bound == floor(bound) && br_metrics_is_openmetrics(format);
    if (isinf(bound))
        (void)snprintf(label, sizeof label, "le=\"+Inf\"");
    else if (whole)
        (void)snprintf(label, sizeof label, "le=\"%.1f\"", bound);
    else
        (void)snprintf(label, sizeof label, "le=\"%.15g\"", bound);
    metrics_print_sample(metric, "_bucket", label, count, metrics_exemplar(metric, format, bucket),
                         out);
}

static void metrics_print_histogram(const struct metric *metric, enum br_metrics_format format,
                                    struct br_str *out)
{
    const struct br_histogram *histogram = &metric->histogram;
    double count = 0;
    for (size_t i = 0; i <= histogram->n_bounds; i++) {
        count += histogram->counts[i];
        metrics_print_bucket(metric, format, i, count, out);
    }
    metrics_print_sample(metric, "_sum", "", histogram->sum, NULL, out);
    metrics_print_sample(metric, "_count", "", count, NULL, out);
}

void br_metrics_print(const struct br_metrics *metrics, enum br_metrics_format format,
                      br_metric_help_fn *help, br_metric_hidden_fn *hidden, struct br_str *out)
{
    size_t n = br_map_count(metrics->map);
    const struct metric **sorted = br_calloc(n, sizeof(struct metric *));
    if (!sorted) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < n; i++)
        sorted[i] = br_map_at(metrics->map, i, NULL, NULL);
    qsort(sorted, n, sizeof(struct metric *), metrics_by_name);
    for (size_t i = 0; i < n; i++) {
        const struct metric *metric = sorted[i];
        if (hidden && hidden(metric->name))
            continue;
        if (i == 0 || strcmp(sorted[i - 1]->name, metric->name) != 0)
            metrics_print_family(metric, format, help ? help(metric->name) : NULL, out);
        if (metric->type == BR_HISTOGRAM)
            metrics_print_histogram(metric, format, out);
        else
            metrics_print_sample(metric, metrics_suffix(metric, format), "", metric->value,
                                 metrics_exemplar(metric, format, 0), out);
    }
    br_free(sorted);
}

void br_metrics_print_target(const char *labels, enum br_metrics_format format, struct br_str *out)
{
    bool text = !br_metrics_is_openmetrics(format);
    const char *family = text ? "target_info" : "target";
    br_str_printf(out, "# HELP %s Target metadata\n# TYPE %s %s\ntarget_info{%s} 1\n", family,
                  family, text ? "gauge" : "info", labels);
}

/* --- The ledger ------------------------------------------------------------------------------- */

/* Returns the value of a ledger's metric. If memory for the labels is short, returns a value that
 * is not part of any scrape. */
static double *metrics_entry(struct br_ledger *ledger, enum br_metric_type type, const char *name,
                             enum br_signal signal, const char *reason)
{
    struct br_str labels = {.max = 1024};
    char full[64];
    (void)snprintf(full, sizeof full, "braid_%s_%s", ledger->exporter ? "exporter" : "ledger",
                   name);
    if (ledger->exporter)
        br_label(&labels, "exporter", ledger->exporter);
    br_label(&labels, "signal", br_signal_name(signal));
    if (reason)
        br_label(&labels, "reason", reason);
    double *number = labels.failed ? &ledger->metrics->lost
                                   : br_metric(ledger->metrics, type, full, labels.data);
    br_str_release(&labels);
    return number;
}

int br_ledger_init(struct br_ledger *ledger, struct br_metrics *metrics, const char *exporter)
{
    bool lost = false;
    ledger->metrics = metrics;
    ledger->exporter = exporter;
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++) {
        ledger->received[s] = metrics_entry(ledger, BR_COUNTER, "received", s, NULL);
        ledger->sent[s] = metrics_entry(ledger, BR_COUNTER, "sent", s, NULL);
        ledger->rejected[s] = metrics_entry(ledger, BR_COUNTER, "rejected", s, NULL);
        ledger->held[s] = metrics_entry(ledger, BR_GAUGE, "held", s, NULL);
        ledger->stored[s] = metrics_entry(ledger, BR_COUNTER, "stored", s, NULL);
        ledger->restored[s] = metrics_entry(ledger, BR_COUNTER, "restored", s, NULL);
        ledger->dropped_other[s] = metrics_entry(ledger, BR_COUNTER, "dropped", s, "other");
        ledger->empty[s] =
            exporter ? NULL : metrics_entry(ledger, BR_COUNTER, "empty_requests", s, NULL);
        ledger->unanswered[s] =
            exporter ? NULL : metrics_entry(ledger, BR_GAUGE, "unanswered", s, NULL);
        const double *const numbers[] = {
            ledger->received[s],   ledger->sent[s],          ledger->rejected[s],
            ledger->held[s],       ledger->dropped_other[s], ledger->empty[s],
            ledger->unanswered[s], ledger->stored[s],        ledger->restored[s]};
        for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
            lost = lost || numbers[i] == &metrics->lost;
    }
    return lost ? BR_ENOMEM : 0;
}

void br_ledger_dropped(struct br_ledger *ledger, enum br_signal signal, const char *reason,
                       uint32_t count)
{
    double *dropped = metrics_entry(ledger, BR_COUNTER, "dropped", signal, reason);
    if (dropped == &ledger->metrics->lost)
        dropped = ledger->dropped_other[signal];
    *dropped += count;
}
