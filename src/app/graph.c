/* SPDX-License-Identifier: Apache-2.0 */
#include "app/graph.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "core/debt.h"
#include "otlp/dictionary/dictionary.h"
#include "pipeline/exporter.h"

#define DEPTH_EXPORTER 1000u
#define QUEUE_ITEMS_LARGE 1000000u /* spans or samples in a queue that somebody should know of */
#define METADATA_KEYS_MAX 10000u /* as many as a config file can hold */

struct place {
    struct br_list link; /* graph->places, in order of creation */
    struct br_node node;
    const struct br_instance *instance;
    const struct br_pipeline
        *pipeline; /* of a processor that is one per pipeline; NULL otherwise */
    unsigned turn; /* of a shared processor: which of the pipelines of each signal it is in */
    unsigned depth;
    bool started;
    struct br_graph *graph;
    char *log_name;
    struct br_queue *queue; /* exporters */
    struct br_retry *retry;
    struct br_ledger ledger; /* exporters */
    struct br_fanout *fanouts[BR_SIGNALS]; /* owned; receivers with several pipelines */
    struct br_strings metadata_keys; /* receivers: what all their processors want, each once */
    uint32_t cap_metadata_keys;
};

struct br_graph {
    const struct br_config *config;
    struct br_host *host;
    struct br_list places;
    struct br_fanout **fanouts;   /* owned; in front of several exporters */
    struct br_consumer **heads;   /* the entry of each pipeline */
    unsigned depth;               /* the level that is being drained */
    void (*on_drained)(void *arg);
    void *on_drained_arg;
    struct br_deferred step;
};

#define each_place(g, l) for (struct br_list *l = (g)->places.next; l != &(g)->places; l = l->next)

static struct place *place_of(struct br_list *l)
{
    return br_container_of(l, struct place, link);
}

static void node_consume(struct br_consumer *self, struct br_item *item)
{
    struct br_node *node = br_container_of(self, struct br_node, input);
    if (!node->state) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "shutting down");
        return;
    }
    br_debt_enter(&item->debt, item->signal, node->ledger);
    bool refers = node->component->resolves && item->signal == BR_PROFILES &&
                  br_item_has_references(item);
    int rc = refers ? br_item_inline_references(item) : 0;
    if (rc == BR_ENOMEM)
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "out of memory");
    else if (rc)
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT,
                       "references to strings take too many bytes written inline");
    else
        node->component->consume(node, item);
}

static struct place *find(struct br_graph *g, const struct br_instance *instance,
                          const struct br_pipeline *pipeline)
{
    each_place(g, l)
    {
        struct place *p = place_of(l);
        if (p->instance == instance && p->pipeline == pipeline)
            return p;
    }
    return NULL;
}

/* How many earlier pipelines of its signal an instance stands in. */
static unsigned turn_in(const struct br_graph *g, const struct br_instance *instance,
                        const struct br_pipeline *pipeline)
{
    const struct br_config *c = g->config;
    unsigned turn = 0;
    for (size_t i = 0; i < c->n_pipelines && &c->pipelines[i] != pipeline; i++)
        for (size_t k = 0; k < c->pipelines[i].n_processors; k++)
            turn += c->pipelines[i].signal == pipeline->signal &&
                    c->pipelines[i].processors[k] == instance;
    return turn;
}

/* A shared processor is one for its first traces and its first profiles pipeline, one for the
 * second ones, and so on: what these share lies with the host (core/shared.h). */
static struct place *find_shared(struct br_graph *g, const struct br_instance *instance,
                                 unsigned turn)
{
    each_place(g, l)
    {
        struct place *p = place_of(l);
        if (p->instance == instance && p->turn == turn)
            return p;
    }
    return NULL;
}

/* The place of an instance in a pipeline, made where it is new; it is created later. */
static struct place *place(struct br_graph *g, const struct br_instance *instance,
                           const struct br_pipeline *pipeline, unsigned depth)
{
    const struct br_component *c = instance->component;
    bool own = c->kind == BR_PROCESSOR && !c->shared;
    unsigned turn = c->shared ? turn_in(g, instance, pipeline) : 0;
    struct place *p = c->shared ? find_shared(g, instance, turn)
                                : find(g, instance, own ? pipeline : NULL);
    if (!p) {
        p = br_calloc(1, sizeof *p);
        if (!p)
            return NULL;
        p->instance = instance;
        p->pipeline = own ? pipeline : NULL;
        p->turn = turn;
        p->graph = g;
        p->node = (struct br_node){.component = c,
                                   .id = instance->id,
                                   .config = instance->config,
                                   .host = g->host,
                                   .input.consume = node_consume};
        br_list_append(&g->places, &p->link);
    }
    if (depth > p->depth)
        p->depth = depth;
    if (pipeline)
        p->node.in_pipeline[pipeline->signal] = true;
    return p;
}

static int no_memory(struct br_err *err)
{
    return br_err_set(err, BR_ENOMEM, "out of memory");
}

static int place_all(struct br_graph *g, struct br_err *err)
{
    const struct br_config *c = g->config;
    for (size_t i = 0; i < c->n_extensions && g->host->worker == 0; i++)
        if (!place(g, c->extensions[i], NULL, DEPTH_EXPORTER + 1))
            return no_memory(err);
    for (size_t i = 0; i < c->n_pipelines; i++) {
        const struct br_pipeline *p = &c->pipelines[i];
        for (size_t k = 0; k < p->n_receivers; k++)
            if (!place(g, p->receivers[k], p, 0))
                return no_memory(err);
        for (size_t k = 0; k < p->n_processors; k++)
            if (!place(g, p->processors[k], p, (unsigned)k + 1))
                return no_memory(err);
        for (size_t k = 0; k < p->n_exporters; k++)
            if (!place(g, p->exporters[k], p, DEPTH_EXPORTER))
                return no_memory(err);
    }
    return 0;
}

static struct place *processor(struct br_graph *g, const struct br_pipeline *p, size_t k)
{
    const struct br_instance *instance = p->processors[k];
    return instance->component->shared ? find_shared(g, instance, turn_in(g, instance, p))
                                       : find(g, instance, p);
}

/* Moves processors down until each stands below what is before it in any of its pipelines: draining
 * and destroying go by these levels. */
static int order(struct br_graph *g, struct br_err *err)
{
    const struct br_config *c = g->config;
    bool moved = true;
    while (moved) {
        moved = false;
        for (size_t i = 0; i < c->n_pipelines; i++) {
            unsigned above = 0;
            for (size_t k = 0; k < c->pipelines[i].n_processors; k++) {
                struct place *p = processor(g, &c->pipelines[i], k);
                if (p->depth <= above) {
                    p->depth = above + 1;
                    moved = true;
                }
                above = p->depth;
                if (above >= DEPTH_EXPORTER)
                    return br_err_set(err, BR_EINVAL,
                                      "service::pipelines::%s: too many processors, or shared ones "
                                      "in another order than in another pipeline",
                                      c->pipelines[i].id);
            }
        }
    }
    return 0;
}

static const struct br_exporter_config *common_of(const struct br_instance *wrapped)
{
    return (const void *)((const char *)wrapped->config + wrapped->component->common_at);
}

static int create(struct br_graph *g, struct place *p, struct br_err *err)
{
    struct br_node *node = &p->node;
    const struct br_component *c = node->component;
    char name[512];
    (void)snprintf(name, sizeof name, "%s/%s", br_kind_name(c->kind), node->id);
    p->log_name = br_strdup(name);
    node->log.name = p->log_name;
    node->state = br_calloc(1, c->state_size);
    if (!p->log_name || !node->state) {
        br_free(node->state);
        node->state = NULL; /* it was never created, so it must not be destroyed */
        return no_memory(err);
    }
    if (c->kind == BR_EXPORTER) {
        if (br_ledger_init(&p->ledger, g->host->metrics, node->id)) {
            br_free(node->state);
            node->state = NULL;
            return no_memory(err);
        }
        node->ledger = &p->ledger;
    }
    int rc = c->create ? c->create(node, err) : 0;
    if (rc) {
        br_err_prefix(err, "%s: ", name);
        return rc; /* what it made so far goes with the graph, by destroy */
    }
    if (!c->exporter_wrapped)
        return 0;
    const struct br_exporter_config *common = common_of(p->instance);
    if (!c->retries_parts)
        p->retry = br_retry_new(node, &common->retry_on_failure, &node->input);
    if (p->retry || c->retries_parts)
        p->queue = br_queue_new(node, &common->sending_queue,
                                p->retry ? br_retry_input(p->retry) : &node->input);
    return p->queue ? 0 : no_memory(err);
}

static struct br_consumer *entry(struct place *p)
{
    return p->queue ? br_queue_input(p->queue) : &p->node.input;
}

/* DONE from it means that it has delivered. */
static bool delivers(const struct place *p)
{
    if (!p->instance->component->exporter_wrapped)
        return true;
    const struct br_queue_config *queue = &common_of(p->instance)->sending_queue;
    return !queue->enabled || queue->wait_for_result;
}

static struct br_fanout *fan_out(struct br_graph *g, const struct br_pipeline *p)
{
    struct br_fanout_end *ends = br_calloc(p->n_exporters, sizeof *ends);
    if (!ends)
        return NULL;
    for (size_t k = 0; k < p->n_exporters; k++) {
        struct place *at = find(g, p->exporters[k], NULL);
        ends[k] = (struct br_fanout_end){.next = entry(at),
                                         .ledger = at->node.ledger,
                                         .name = at->log_name,
                                         .kind = br_kind_name(BR_EXPORTER),
                                         .id = at->node.id,
                                         .delivers = delivers(at)};
    }
    struct br_fanout *f = br_fanout_new(g->host, &g->config->fanout, ends, p->n_exporters);
    br_free(ends);
    return f;
}

/* Wires one pipeline from its end to its beginning. */
static int wire(struct br_graph *g, size_t i, struct br_err *err)
{
    const struct br_pipeline *p = &g->config->pipelines[i];
    struct br_consumer *next;
    if (p->n_exporters == 1) {
        next = entry(find(g, p->exporters[0], NULL));
    } else {
        g->fanouts[i] = fan_out(g, p);
        if (!g->fanouts[i])
            return no_memory(err);
        next = br_fanout_input(g->fanouts[i]);
    }
    for (size_t k = p->n_processors; k-- > 0;) {
        struct place *at = processor(g, p, k);
        at->node.next[p->signal] = next;
        next = &at->node.input;
    }
    g->heads[i] = next;
    return 0;
}

static bool has(struct br_instance *const *list, size_t n, const struct br_instance *instance)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == instance)
            return true;
    return false;
}

static int want_metadata(struct place *at, const char *key)
{
    struct br_strings *keys = &at->metadata_keys;
    for (size_t i = 0; i < keys->n; i++)
        if (strcasecmp(keys->v[i], key) == 0)
            return 0;
    if (br_grow(&keys->v, &at->cap_metadata_keys, keys->n + 1, sizeof *keys->v, METADATA_KEYS_MAX))
        return BR_ENOMEM;
    keys->v[keys->n++] = key;
    at->node.metadata_keys = keys;
    return 0;
}

static int want_all_metadata(struct place *at, const struct br_strings *keys)
{
    for (size_t k = 0; keys && k < keys->n; k++)
        if (want_metadata(at, keys->v[k]))
            return BR_ENOMEM;
    return 0;
}

static int want_metadata_of(struct place *at, const struct br_instance *instance)
{
    const struct br_component *c = instance->component;
    const struct br_queue_batch_config *batch =
        c->exporter_wrapped ? common_of(instance)->sending_queue.batch : NULL;
    if (c->metadata_keys && want_all_metadata(at, c->metadata_keys(instance->config)))
        return BR_ENOMEM;
    return batch ? want_all_metadata(at, &batch->partition.metadata_keys) : 0;
}

/* What the processors and exporters behind a receiver want of it. */
static int note_wishes(struct place *at, const struct br_pipeline *p)
{
    int rc = 0;
    for (size_t i = 0; i < p->n_processors && !rc; i++) {
        if (p->processors[i]->component->wants_spans && p->signal == BR_TRACES)
            at->node.spans_wanted = true;
        rc = want_metadata_of(at, p->processors[i]);
    }
    for (size_t i = 0; i < p->n_exporters && !rc; i++)
        rc = want_metadata_of(at, p->exporters[i]);
    return rc;
}

/* The pipeline as a destination of its receivers. */
static struct br_fanout_end head_of(struct br_graph *g, size_t i)
{
    const struct br_pipeline *p = &g->config->pipelines[i];
    struct br_fanout_end end = {
        .next = g->heads[i], .name = p->id, .kind = "pipeline", .id = p->id};
    for (size_t k = 0; k < p->n_exporters; k++)
        end.delivers = end.delivers || delivers(find(g, p->exporters[k], NULL));
    return end;
}

static int wire_receiver(struct br_graph *g, struct place *at, struct br_err *err)
{
    const struct br_config *c = g->config;
    struct br_fanout_end *heads = br_calloc(c->n_pipelines, sizeof *heads);
    if (!heads)
        return no_memory(err);
    int rc = 0;
    for (int s = 0; s < BR_SIGNALS && !rc; s++) {
        size_t n = 0;
        for (size_t i = 0; i < c->n_pipelines; i++) {
            const struct br_pipeline *p = &c->pipelines[i];
            if ((int)p->signal != s || !has(p->receivers, p->n_receivers, at->instance))
                continue;
            heads[n++] = head_of(g, i);
            if (note_wishes(at, p))
                rc = no_memory(err);
        }
        if (n > 1)
            at->fanouts[s] = br_fanout_new(g->host, &c->fanout, heads, n);
        if (n > 1 && !at->fanouts[s])
            rc = no_memory(err);
        else
            at->node.next[s] = n > 1 ? br_fanout_input(at->fanouts[s]) : n ? heads[0].next : NULL;
    }
    br_free(heads);
    return rc;
}

int br_graph_new(const struct br_config *config, struct br_host *host, struct br_graph **ret,
                 struct br_err *err)
{
    struct br_graph *g = br_calloc(1, sizeof *g);
    if (!g)
        return no_memory(err);
    g->config = config;
    g->host = host;
    br_list_init(&g->places);
    g->fanouts = br_calloc(config->n_pipelines, sizeof(struct br_fanout *));
    g->heads = br_calloc(config->n_pipelines, sizeof(struct br_consumer *));
    int rc = g->fanouts && g->heads ? place_all(g, err) : no_memory(err);
    if (!rc)
        rc = order(g, err);
    each_place(g, l)
    {
        if (!rc)
            rc = create(g, place_of(l), err);
    }
    for (size_t i = 0; i < config->n_pipelines && !rc; i++)
        rc = wire(g, i, err);
    each_place(g, l)
    {
        if (!rc && place_of(l)->node.component->kind == BR_RECEIVER)
            rc = wire_receiver(g, place_of(l), err);
    }
    if (rc) {
        br_graph_free(g);
        return rc;
    }
    *ret = g;
    return 0;
}

static int start(struct place *p, struct br_err *err)
{
    const struct br_component *c = p->node.component;
    if (p->started)
        return 0;
    p->started = true;
    int rc = c->start ? c->start(&p->node, err) : 0;
    if (rc)
        br_err_prefix(err, "%s: ", p->log_name);
    return rc;
}

/* Says what a queue of batches may come to: the number in the config is of requests. */
static void warn_of_queue(const struct br_pipeline *p, const struct place *exporter, uint64_t items)
{
    const struct br_queue_config *q = &common_of(exporter->instance)->sending_queue;
    uint64_t n = (uint64_t)q->queue_size;
    if (!q->enabled || q->sizer != BR_SIZER_REQUESTS || n > UINT64_MAX / items ||
        n * items < QUEUE_ITEMS_LARGE)
        return;
    br_warn(&exporter->node.log,
            "sending_queue may hold %llu requests, which the batch processor of %s makes of %llu %s: "
            "%llu %s, as far as memory goes; sizer: items or bytes counts what it holds",
            (unsigned long long)n, p->id, (unsigned long long)items, br_signal_items(p->signal),
            (unsigned long long)(n * items), br_signal_items(p->signal));
}

static void warn_of_queues(struct br_graph *g, const struct br_pipeline *p)
{
    uint64_t items = 0;
    for (size_t k = 0; k < p->n_processors; k++) {
        const struct br_component *c = p->processors[k]->component;
        if (c->request_items)
            items = c->request_items(p->processors[k]->config);
    }
    for (size_t k = 0; items && k < p->n_exporters; k++)
        if (p->exporters[k]->component->exporter_wrapped)
            warn_of_queue(p, find(g, p->exporters[k], NULL), items);
}

int br_graph_start(struct br_graph *g, struct br_err *err)
{
    for (size_t i = 0; i < g->config->n_pipelines && g->host->worker == 0; i++)
        warn_of_queues(g, &g->config->pipelines[i]);
    for (unsigned depth = DEPTH_EXPORTER + 2; depth-- > 0;) {
        each_place(g, l)
        {
            if (place_of(l)->depth != depth)
                continue;
            int rc = start(place_of(l), err);
            if (rc)
                return rc;
        }
    }
    return 0;
}

static int check_start(struct place *p, struct br_errs *errs)
{
    const struct br_component *c = p->node.component;
    struct br_node *node = &p->node;
    struct br_err err = {0};
    char path[192];
    int rc = c->start ? c->start(node, &err) : 0;
    if (!rc)
        return 0;
    (void)snprintf(path, sizeof path, "%s::%.150s", br_kind_section(c->kind), node->id);
    br_errs_add(errs, p->instance->node, path, "%s", err.text);
    return rc;
}

int br_graph_check(const struct br_config *config, struct br_host *host, struct br_errs *errs)
{
    struct br_graph *g = NULL;
    struct br_err err = {0};
    int rc = br_graph_new(config, host, &g, &err);
    if (rc) {
        br_errs_add(errs, NULL, NULL, "%s", err.text);
        return rc;
    }
    each_place(g, l)
    {
        int failed = check_start(place_of(l), errs);
        rc = failed ? failed : rc;
    }
    br_graph_free(g);
    return rc;
}

/* --- Draining ------------------------------------------------------------------------------- */

static void step(struct br_deferred *d);

static void on_drained(struct br_node *node, void *arg)
{
    struct br_graph *g = arg;
    (void)node;
    br_host_defer(g->host, &g->step, step);
}

static void drain_node(struct br_node *node)
{
    if (node->component->drain)
        node->component->drain(node);
    else
        br_node_drained(node);
}

static void on_queue_empty(void *arg)
{
    drain_node(arg);
}

static void drain(struct place *p)
{
    p->node.draining = true;
    p->node.on_drained = on_drained;
    p->node.on_drained_arg = p->graph;
    if (p->queue)
        br_queue_drain(p->queue, on_queue_empty, &p->node);
    else
        drain_node(&p->node);
}

static void on_fanout_end(void *arg)
{
    struct br_graph *g = arg;
    br_host_defer(g->host, &g->step, step);
}

/* True unless something of it is held; then it says when that has ended. */
static bool fanout_drained(struct br_graph *g, struct br_fanout *f)
{
    if (!f || br_fanout_idle(f))
        return true;
    br_fanout_on_end(f, on_fanout_end, g);
    return false;
}

/* Nothing is on its way between this level, which is drained, and the next one. */
static bool fanouts_drained(struct br_graph *g)
{
    bool drained = true;
    each_place(g, l)
    {
        for (int s = 0; s < BR_SIGNALS && g->depth == 0; s++)
            drained = fanout_drained(g, place_of(l)->fanouts[s]) && drained;
    }
    for (size_t i = 0; i < g->config->n_pipelines && g->depth + 1 == DEPTH_EXPORTER; i++)
        drained = fanout_drained(g, g->fanouts[i]) && drained;
    return drained;
}

static void step(struct br_deferred *d)
{
    struct br_graph *g = br_container_of(d, struct br_graph, step);
    for (; g->depth <= DEPTH_EXPORTER + 1; g->depth++) {
        bool waiting = false;
        each_place(g, l)
        {
            struct place *p = place_of(l);
            if (p->depth != g->depth || !p->node.state)
                continue;
            if (!p->node.draining)
                drain(p);
            waiting = waiting || !p->node.drained;
        }
        if (waiting || !fanouts_drained(g))
            return;
    }
    void (*fn)(void *) = g->on_drained;
    g->on_drained = NULL;
    if (fn)
        fn(g->on_drained_arg);
}

void br_graph_drain(struct br_graph *g, void (*fn)(void *arg), void *arg)
{
    g->host->draining = true;
    g->on_drained = fn;
    g->on_drained_arg = arg;
    g->depth = 0;
    br_host_defer(g->host, &g->step, step);
}

static void say_unsent(const struct br_node *node)
{
    for (int s = 0; s < BR_SIGNALS; s++)
        if (node->n_unsent[s])
            br_error(&node->log, "dropped %llu %s (shutdown): they could not be sent in time",
                     (unsigned long long)node->n_unsent[s], br_signal_items((enum br_signal)s));
}

/* Ends a node: what it has under way is finished, and so, by the host's turns, are those who wait
 * for it upstream. What still comes to it afterwards is refused. */
static void destroy(struct place *p)
{
    struct br_node *node = &p->node;
    void *state = node->state;
    node->ending = true;
    if (p->queue)
        br_queue_close(p->queue);
    if (state && node->component->destroy)
        node->component->destroy(node);
    node->state = NULL;
    (void)br_host_turn(node->host);
    br_retry_free(p->retry);
    (void)br_host_turn(node->host);
    if (p->queue)
        br_queue_drop(p->queue);
    (void)br_host_turn(node->host);
    say_unsent(node);
    br_free(state);
}

/* Ends what fan-outs above the level that was destroyed last hold. */
static void close_fanouts(struct br_graph *g, unsigned depth)
{
    for (size_t i = 0; g->fanouts && i < g->config->n_pipelines && depth + 1 == DEPTH_EXPORTER; i++)
        if (g->fanouts[i])
            br_fanout_close(g->fanouts[i]);
    each_place(g, l)
    {
        for (int s = 0; s < BR_SIGNALS && depth == 0; s++)
            if (place_of(l)->fanouts[s])
                br_fanout_close(place_of(l)->fanouts[s]);
    }
    (void)br_host_turn(g->host);
}

void br_graph_free(struct br_graph *g)
{
    if (!g)
        return;
    br_host_defer_cancel(&g->step);
    g->on_drained = NULL;
    /* Downstream first: nothing that is destroyed has an item left further down. */
    for (unsigned depth = DEPTH_EXPORTER + 2; depth-- > 0;) {
        close_fanouts(g, depth);
        each_place(g, l)
        {
            if (place_of(l)->depth == depth)
                destroy(place_of(l));
        }
    }
    (void)br_host_turn(g->host);
    for (size_t i = 0; g->fanouts && i < g->config->n_pipelines; i++)
        br_fanout_free(g->fanouts[i]); /* before the names that they log under */
    struct br_list *l;
    while ((l = br_list_shift(&g->places))) {
        struct place *p = place_of(l);
        for (int s = 0; s < BR_SIGNALS; s++)
            br_fanout_free(p->fanouts[s]);
        br_queue_free(p->queue);
        br_free(p->metadata_keys.v);
        br_free(p->log_name);
        br_free(p);
    }
    br_free(g->fanouts);
    br_free(g->heads);
    br_free(g);
}
