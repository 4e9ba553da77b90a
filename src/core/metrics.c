/* SPDX-License-Identifier: Apache-2.0 */
#include "core/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/map.h"
#include "base/mem.h"

struct metric {
    double value;
    enum br_metric_type type;
    const char *name;
    const char *labels;
    char text[];
};

struct br_metrics {
    struct br_map *map; /* "name\0labels" -> struct metric */
    double lost;        /* where numbers go that have no place */
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

void br_metrics_free(struct br_metrics *metrics)
{
    if (!metrics)
        return;
    br_map_free(metrics->map, br_free);
    br_free(metrics);
}

double *br_metric(struct br_metrics *metrics, enum br_metric_type type, const char *name,
                  const char *labels)
{
    size_t name_len = strlen(name) + 1, labels_len = strlen(labels) + 1;
    struct metric *metric = br_malloc(sizeof *metric + name_len + labels_len);
    if (!metric)
        return &metrics->lost;
    metric->value = 0;
    metric->type = type;
    metric->name = memcpy(metric->text, name, name_len);
    metric->labels = memcpy(metric->text + name_len, labels, labels_len);
    struct metric *known = br_map_get(metrics->map, metric->text, name_len + labels_len);
    if (known) {
        br_free(metric);
        return &known->value;
    }
    if (br_map_put(metrics->map, metric->text, name_len + labels_len, metric, NULL)) {
        br_free(metric);
        return &metrics->lost;
    }
    return &metric->value;
}

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

int br_metrics_add(struct br_metrics *into, const struct br_metrics *from)
{
    const struct metric *metric;
    for (size_t i = 0; (metric = br_map_at(from->map, i, NULL, NULL)); i++) {
        double *value = br_metric(into, metric->type, metric->name, metric->labels);
        if (value == &into->lost)
            return BR_ENOMEM;
        *value += metric->value;
    }
    return 0;
}

static int metrics_by_name(const void *left, const void *right)
{
    const struct metric *metric = *(const struct metric *const *)left;
    const struct metric *this_metric = *(const struct metric *const *)right;
    int names = strcmp(metric->name, this_metric->name);
    return names ? names : strcmp(metric->labels, this_metric->labels);
}

/* In as few digits as name it, among all numbers. */
static void metrics_print_fraction(double value, struct br_str *out)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    br_str_printf(out, " %s\n", text);
}

static void metrics_print_value(double value, struct br_str *out)
{
    if (isnan(value))
        br_str_puts(out, " NaN\n");
    else if (isinf(value))
        br_str_puts(out, value > 0 ? " +Inf\n" : " -Inf\n");
    else if (value == floor(value) && fabs(value) < 9007199254740992.0)
        br_str_printf(out, " %.0f\n", value);
    else
        metrics_print_fraction(value, out);
}

void br_metrics_print(const struct br_metrics *metrics, struct br_str *out)
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
        if (i == 0 || strcmp(sorted[i - 1]->name, metric->name) != 0)
            br_str_printf(out, "# TYPE %s %s\n", metric->name,
                          metric->type == BR_COUNTER ? "counter" : "gauge");
        br_str_puts(out, metric->name);
        if (metric->labels[0])
            br_str_printf(out, "{%s}", metric->labels);
        metrics_print_value(metric->value, out);
    }
    br_free(sorted);
}

/* One number of the ledger; without memory for its labels, one that no scrape shows. */
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
        ledger->dropped_other[s] = metrics_entry(ledger, BR_COUNTER, "dropped", s, "other");
        ledger->empty[s] =
            exporter ? NULL : metrics_entry(ledger, BR_COUNTER, "empty_requests", s, NULL);
        const double *const numbers[] = {ledger->received[s],      ledger->sent[s],
                                         ledger->rejected[s],      ledger->held[s],
                                         ledger->dropped_other[s], ledger->empty[s]};
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
