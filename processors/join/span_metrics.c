/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/span_metrics.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "wire/protobuf.h"

#define OTHER "_other"

const struct br_option join_span_metrics_options[] = {
    BR_BOOL(struct join_span_metrics_config, enabled, false,
            "counts CPU seconds, allocated bytes and samples by service and span name"),
    BR_INT(struct join_span_metrics_config, max_series, 500, 1, JOIN_SERIES_MAX,
           "pairs of service and span name with counters of their own; then _other"),
    BR_OPT_END,
};

int join_span_metrics_init(struct join_span_metrics *m, const struct join_span_metrics_config *c,
                           struct br_node *node, struct join_table *table)
{
    if (!c->enabled)
        return 0;
    m->known = br_map_new((size_t)c->max_series);
    m->max_series = (size_t)c->max_series;
    m->table = table;
    m->node = m->known ? node : NULL;
    return m->known ? 0 : BR_ENOMEM;
}

static void free_counters(void *counters)
{
    br_free(counters);
}

void join_span_metrics_release(struct join_span_metrics *m)
{
    br_map_free(m->known, free_counters);
    *m = (struct join_span_metrics){0};
}

/* A pair of names with a 0 behind each: the key of a series, and the values of its labels. */
struct pair {
    char text[2 * JOIN_VALUE_MAX + 2];
    size_t len, name_at;
};

static struct pair pair_of(const void *service, size_t service_len, const void *name,
                           size_t name_len)
{
    struct pair p;
    p.name_at = service_len + 1;
    p.len = p.name_at + name_len + 1;
    char *end = (char *)br_put_bytes((uint8_t *)p.text, service, service_len);
    *end++ = 0;
    end = (char *)br_put_bytes((uint8_t *)end, name, name_len);
    *end = 0;
    return p;
}

static struct join_span_counters *counters_of(struct join_span_metrics *m, const struct pair *p)
{
    struct join_span_counters *c = br_map_get(m->known, p->text, p->len);
    if (c)
        return c;
    c = join_table_series(m->table, p->text, p->len, m->max_series) ? br_calloc(1, sizeof *c)
                                                                    : NULL;
    if (c && br_map_put(m->known, p->text, p->len, c, NULL) == 0)
        return c;
    br_free(c);
    return NULL;
}

static void add(const struct join_span_metrics *m, double **counter, const char *what,
                const struct pair *p, double value)
{
    if (value <= 0)
        return;
    if (!*counter) {
        struct br_str labels = {.max = 8 * sizeof p->text + 1024};
        br_label(&labels, br_kind_name(m->node->component->kind), m->node->id);
        br_label(&labels, "service", p->text);
        br_label(&labels, "span_name", p->text + p->name_at);
        *counter = br_metric(m->node->host->metrics, BR_COUNTER, what,
                             labels.data && !labels.failed ? labels.data : "");
        br_str_release(&labels);
    }
    **counter += value;
}

void join_span_metrics_add(struct join_span_metrics *m, const struct join_span *span,
                           const struct join_spent *spent)
{
    if (!m->node)
        return;
    struct pair p = pair_of(span->service, span->service_len, span->name, span->name_len);
    struct join_span_counters *c = counters_of(m, &p);
    if (!c) {
        c = &m->other;
        p = pair_of(OTHER, sizeof OTHER - 1, OTHER, sizeof OTHER - 1);
    }
    add(m, &c->cpu_seconds, "braid_join_span_cpu_seconds", &p, (double)spent->cpu_ns / 1e9);
    add(m, &c->allocated_bytes, "braid_join_span_allocated_bytes", &p,
        (double)spent->allocated_bytes);
    add(m, &c->samples, "braid_join_span_samples", &p, (double)spent->samples);
}

struct join_spent join_spent_of(const struct join_figures *f)
{
    enum join_measure measure = join_figures_measure(f);
    bool cpu = measure <= JOIN_CPU_COUNT;
    return (struct join_spent){.cpu_ns = cpu ? f->time_ns[measure] : 0,
                               .allocated_bytes = f->allocated_bytes,
                               .samples = measure < JOIN_OTHER ? f->count[measure] : 0};
}
