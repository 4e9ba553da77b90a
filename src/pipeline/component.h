/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A component describes a receiver, processor, exporter, connector or extension; each has one
 * constant br_component. A node is an instance of a component in a graph: one br_node for each
 * worker. A connector ends pipelines like an exporter, and begins other pipelines of the same
 * signal like a receiver.
 *
 * Life of a node:
 * - create: reads its constant config, allocates memory, makes its metrics; no I/O.
 * - start: opens listeners or clients.
 * - consume: receives items.
 * - drain: finishes or forwards everything that the node holds, then calls br_node_drained once. No
 * new requests arrive. Receivers are drained first, exporters last.
 * - destroy: frees the state, and finishes items that are still held. destroy can follow create
 * directly, even if create failed. It then frees the parts of the zeroed state that create has
 * allocated.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/log.h"
#include "config/kind.h"
#include "config/option.h"
#include "core/host.h"
#include "core/item.h"

struct br_node;
struct br_retry;

/* The interface through which items pass from node to node. `consume` always takes the item. */
struct br_consumer {
    void (*consume)(struct br_consumer *self, struct br_item *item);
};

static inline void br_consume(struct br_consumer *next, struct br_item *item)
{
    next->consume(next, item);
}

/* A component that an option names by its id. The named component has to be in a pipeline. */
struct br_reference {
    const char *key;       /* name of the option */
    enum br_kind kind;     /* kind of the named component */
    const char *component; /* name of the referenced component, such as "store" */
    const char *id;        /* id of the referenced component, such as "store/slow" */
};

/* A route of a connector: ids of pipelines, such as "traces/slow". The route for a signal consists
 * of its pipelines of that signal. */
struct br_route_names {
    const char *key; /* path of the route in the config of the connector, for messages */
    struct br_strings pipelines;
};

struct br_routes {
    const struct br_route_names *items;
    size_t count;
};

#define BR_SIGNAL_BIT(signal) (1u << (signal))
#define BR_BOTH_SIGNALS 3u

struct br_component {
    const char *name;  /* name of the component in the config, such as "otlp" */
    const char *alias; /* another name in the Collector, such as "otlp_grpc", or NULL */
    enum br_kind kind;
    /* set of BR_SIGNAL_BIT: the signals that the component supports; 0 for extensions */
    unsigned signals;
    /* stability level in the words of the Collector, such as "beta" */
    const char *stability;
    const char *help;                /* description in one line */
    const struct br_option *options; /* table of the component's options, ended by BR_OPT_END */
    /* size of the struct that `options` fill; its content is constant once the config is loaded */
    size_t config_size;
    size_t state_size; /* size in bytes of the node's private state, which is zeroed */
    bool every_worker; /* the extension has a node on each worker; other extensions have one node */
    bool shared;       /* the processor has one node for all its pipelines (join) */
    /* The connector reads the data of the pipelines that list it as an exporter, and is not a
     * receiver of others. It has one node for each pipeline, after the processors and before the
     * other exporters. If there are no others, node->next is NULL. */
    bool observes;
    /* the component is an exporter, with sending_queue and retry_on_failure in front of it */
    bool exporter_wrapped;
    /* exporter_wrapped: the exporter itself retries the requests that it makes from an item, as
     * configured in retry_on_failure */
    bool retries_parts;
    /* Files of a node can be open only once, so a node with other settings cannot be created before
     * this one is destroyed. */
    bool owns_files;
    bool wants_spans; /* the component is a processor that reads br_item.spans */
    /* The component is a processor that needs the time and thread of each sample. For it,
     * receivers keep times and threads in samples of Pyroscope's clients. The processor folds
     * these samples before it forwards them. */
    bool wants_times;
    /* the component is an exporter whose server may not support attributes by reference */
    bool resolves;
    /* exporter_wrapped: offset of struct br_exporter_config (exporter.h) in the config struct */
    size_t common_at;

    /* Returns the keys of the client metadata that a processor or exporter reads from items.
     * NULL: the component reads no metadata. */
    const struct br_strings *(*metadata_keys)(const void *config);

    /* Returns true if a receiver with this config keeps client metadata for every protocol.
     * NULL: the receiver always does. */
    bool (*keeps_metadata)(const void *config);

    /* Returns how many records a processor gathers in one request. NULL: the processor does not
     * gather records. */
    uint64_t (*request_records)(const void *config);

    /* Returns on which sides an authenticator works: a set of BR_AUTH_SERVER and BR_AUTH_CLIENT
     * (core/authenticator.h). NULL: the component is not an authenticator. */
    unsigned (*authenticates)(const void *config);

    /* Sets `*ret` to another component that this one needs; a config without that component is
     * rejected. NULL: this component needs no other. */
    void (*refers)(const void *config, struct br_reference *ret);

    /* Returns the routes of a connector: each is a list of pipelines to which
     * br_node_forward_to sends an item. NULL: the connector sends each item to all pipelines
     * that list it as a receiver. */
    const struct br_routes *(*routes)(const void *config);

    /* Checks conditions that the option table cannot express, and adds errors with positions
     * from `node` to `errs`. NULL: nothing to check. */
    int (*check)(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
                 struct br_errs *errs);
    int (*create)(struct br_node *node, struct br_err *err);
    /* Opens listeners or clients. Returns 0, or a negative code with a message in `err`. NULL:
     * there is nothing to open. */
    int (*start)(struct br_node *node, struct br_err *err);
    void (*consume)(struct br_node *node,
                    struct br_item *item); /* Takes an item. NULL for receivers and extensions. */
    /* Sends everything that the node holds, and items that arrive later, and then calls
     * br_node_drained. `drain` can be called again if more items arrived meanwhile. NULL: the
     * node is drained at once. */
    void (*drain)(struct br_node *node);
    /* retries_parts: ends the waiting retries with BR_RETRY, and later also each request that
     * fails. Called when a durable queue in front of the exporter is drained. NULL: node->retry
     * makes all retries. */
    void (*stop_retries)(struct br_node *node);
    /* Frees the memory that the state refers to, and finishes held items. The graph frees the
     * state itself. NULL: there is nothing else to free. */
    void (*destroy)(struct br_node *node);
};

struct br_node {
    const struct br_component *component;
    /* id of the node in the config, such as "otlp/tempo"; borrowed from the config */
    const char *id;
    const void *config; /* the component's config struct, constant */
    void *state;        /* state of the node: state_size bytes, zeroed at first */
    struct br_host *host;
    struct br_log log; /* logger with the node's name, such as "exporter/otlp/tempo" */
    /* consumer that upstream nodes call; it forwards to component->consume */
    struct br_consumer input;
    /* the next consumer downstream; NULL at the end of a pipeline, and for connectors with routes
     */
    struct br_consumer *next[BR_SIGNALS];
    /* connectors: by signal, the consumer of each route; a consumer is NULL if the route has no
     * pipeline of the signal. NULL: the component has no routes. */
    struct br_consumer *const *routes[BR_SIGNALS];
    bool in_pipeline[BR_SIGNALS]; /* by signal: true if the node receives or sends the signal */
    bool draining, drained;
    bool ending; /* the node is being destroyed: refused items are not retried */
    /* by signal: number of records that the node dropped with the reason "shutdown"
     * (br_node_drop_unsent) */
    uint64_t n_unsent[BR_SIGNALS];
    void (*on_drained)(struct br_node *node, void *arg);
    void *on_drained_arg;
    /* receivers: keys of the client metadata to keep on items; NULL: no metadata is kept */
    const struct br_strings *metadata_keys;
    bool spans_wanted; /* receivers: true if a processor downstream reads br_item.spans */
    /* receivers: true if every pipeline of profiles contains a component with wants_times */
    bool times_wanted;
    /* exporters: ledger of the records that arrived at the exporter; NULL in tests */
    struct br_ledger *ledger;
    /* exporters: retries of failed items; NULL: failed items are never retried */
    struct br_retry *retry;
    /* exporters behind a durable queue: age in milliseconds up to which a failed item is tried
     * again, which may be UINT64_MAX; 0: retry_on_failure limits the retries */
    uint64_t max_age_ms;
    /* processors and connectors: counters of the records received and forwarded; NULL for other
     * components */
    double *incoming[BR_SIGNALS], *outgoing[BR_SIGNALS];
};

/* Returns true if a receiver must refuse new requests. A receiver that a reload has replaced still
 * accepts the requests of its connections. */
static inline bool br_node_is_shutting_down(const struct br_node *node)
{
    return node->draining && node->host->draining;
}

/* Sends an item to the next component for its signal. */
void br_node_forward(struct br_node *node, struct br_item *item);

/* Returns true if the route `index` of a connector has a pipeline of the signal. */
static inline bool br_node_has_route(const struct br_node *node, enum br_signal signal,
                                     size_t index)
{
    return node->routes[signal] && node->routes[signal][index];
}

/* Sends an item to the pipelines of the route `index` of a connector. The route must have a
 * pipeline of the item's signal. */
void br_node_forward_to(struct br_node *node, size_t index, struct br_item *item);

/* Logs a printf-style warning at most once a minute for each `limit`; see br_log_limited. */
#define br_node_warn(node, limit, ...)                                                             \
    br_log_limited(&(node)->log, BR_LOG_WARN, (limit), br_host_mono_ms((node)->host),              \
                   BR_LOG_EVERY_MS, __VA_ARGS__)

/* Returns a counter or gauge with the label `<kind>="<id>"` and, unless `label` is NULL, the
 * label `<label>="<value>"`. */
double *br_node_metric(struct br_node *node, enum br_metric_type type, const char *name,
                       const char *label, const char *value);

/* Returns a histogram of the sizes of requests, in bytes or records, with the label
 * `<kind>="<id>"`. */
struct br_histogram *br_node_size_histogram(struct br_node *node, const char *name, bool bytes);

/* Counts the pending records of `item` as dropped for `reason` (a constant). Logs the loss at
 * most once a minute for each `limit`. The item is not finished. */
void br_node_drop(struct br_node *node, struct br_item *item, const char *reason,
                  const struct br_outcome *why, struct br_log_limit *limit);

/* Counts the pending records of `item` as dropped with the reason "shutdown", and adds them to
 * n_unsent. When the node is destroyed, the total of n_unsent is logged. The item is not
 * finished. */
void br_node_drop_unsent(struct br_node *node, struct br_item *item);

/* If `outcome` is a partial success, logs how many records of `item` were rejected, at most once
 * a minute for each `limit`. Used for items whose sender does not receive the outcome. */
void br_node_log_partial(struct br_node *node, const struct br_item *item,
                         const struct br_outcome *outcome, struct br_log_limit *limit);

/* Reports that the node does not hold any items, after drain was called. */
void br_node_drained(struct br_node *node);

/* Returns the component of the given kind with the given name or alias, or NULL. */
const struct br_component *br_component_find(const struct br_component *const *registry,
                                             enum br_kind kind, const char *name);
