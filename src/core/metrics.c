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
    struct br_metrics *m = br_calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->map = br_map_new(BR_METRICS_MAX);
    if (!m->map) {
        br_free(m);
        return NULL;
    }
    return m;
}

void br_metrics_free(struct br_metrics *m)
{
    if (!m)
        return;
    br_map_free(m->map, br_free);
    br_free(m);
}

double *br_metric(struct br_metrics *m, enum br_metric_type type, const char *name,
                  const char *labels)
{
    size_t name_len = strlen(name) + 1, labels_len = strlen(labels) + 1;
    struct metric *metric = br_malloc(sizeof *metric + name_len + labels_len);
    if (!metric)
        return &m->lost;
    metric->value = 0;
    metric->type = type;
    metric->name = memcpy(metric->text, name, name_len);
    metric->labels = memcpy(metric->text + name_len, labels, labels_len);
    struct metric *known = br_map_get(m->map, metric->text, name_len + labels_len);
    if (known) {
        br_free(metric);
        return &known->value;
    }
    if (br_map_put(m->map, metric->text, name_len + labels_len, metric, NULL)) {
        br_free(metric);
        return &m->lost;
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

static int by_name(const void *a, const void *b)
{
    const struct metric *x = *(const struct metric *const *)a;
    const struct metric *y = *(const struct metric *const *)b;
    int names = strcmp(x->name, y->name);
    return names ? names : strcmp(x->labels, y->labels);
}

/* In as few digits as name it, among all numbers. */
static void print_fraction(double v, struct br_str *out)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    br_str_printf(out, " %s\n", text);
}

static void print_value(double v, struct br_str *out)
{
    if (isnan(v))
        br_str_puts(out, " NaN\n");
    else if (isinf(v))
        br_str_puts(out, v > 0 ? " +Inf\n" : " -Inf\n");
    else if (v == floor(v) && fabs(v) < 9007199254740992.0)
        br_str_printf(out, " %.0f\n", v);
    else
        print_fraction(v, out);
}

void br_metrics_print(const struct br_metrics *m, struct br_str *out)
{
    size_t n = br_map_count(m->map);
    const struct metric **sorted = br_calloc(n, sizeof(struct metric *));
    if (!sorted) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < n; i++)
        sorted[i] = br_map_at(m->map, i, NULL, NULL);
    qsort(sorted, n, sizeof(struct metric *), by_name);
    for (size_t i = 0; i < n; i++) {
        const struct metric *metric = sorted[i];
        if (i == 0 || strcmp(sorted[i - 1]->name, metric->name) != 0)
            br_str_printf(out, "# TYPE %s %s\n", metric->name,
                          metric->type == BR_COUNTER ? "counter" : "gauge");
        br_str_puts(out, metric->name);
        if (metric->labels[0])
            br_str_printf(out, "{%s}", metric->labels);
        print_value(metric->value, out);
    }
    br_free(sorted);
}

/* One number of the ledger; without memory for its labels, one that no scrape shows. */
static double *entry(struct br_ledger *l, enum br_metric_type type, const char *name,
                     enum br_signal signal, const char *reason)
{
    struct br_str labels = {.max = 1024};
    char full[64];
    (void)snprintf(full, sizeof full, "braid_%s_%s", l->exporter ? "exporter" : "ledger", name);
    if (l->exporter)
        br_label(&labels, "exporter", l->exporter);
    br_label(&labels, "signal", br_signal_name(signal));
    if (reason)
        br_label(&labels, "reason", reason);
    double *number =
        labels.failed ? &l->metrics->lost : br_metric(l->metrics, type, full, labels.data);
    br_str_release(&labels);
    return number;
}

int br_ledger_init(struct br_ledger *l, struct br_metrics *m, const char *exporter)
{
    bool lost = false;
    l->metrics = m;
    l->exporter = exporter;
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++) {
        l->received[s] = entry(l, BR_COUNTER, "received", s, NULL);
        l->sent[s] = entry(l, BR_COUNTER, "sent", s, NULL);
        l->rejected[s] = entry(l, BR_COUNTER, "rejected", s, NULL);
        l->held[s] = entry(l, BR_GAUGE, "held", s, NULL);
        l->dropped_other[s] = entry(l, BR_COUNTER, "dropped", s, "other");
        l->empty[s] = exporter ? NULL : entry(l, BR_COUNTER, "empty_requests", s, NULL);
        const double *const numbers[] = {l->received[s], l->sent[s],          l->rejected[s],
                                         l->held[s],     l->dropped_other[s], l->empty[s]};
        for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
            lost = lost || numbers[i] == &m->lost;
    }
    return lost ? BR_ENOMEM : 0;
}

void br_ledger_dropped(struct br_ledger *l, enum br_signal signal, const char *reason, uint32_t n)
{
    double *dropped = entry(l, BR_COUNTER, "dropped", signal, reason);
    if (dropped == &l->metrics->lost)
        dropped = l->dropped_other[signal];
    *dropped += n;
}
