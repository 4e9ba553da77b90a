/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A component is a type of receiver, processor, exporter, connector or extension. Each component is
 * described by one constant br_component. A node is an instance of a component in the graph of one
 * worker. A connector ends pipelines like an exporter, and begins other pipelines of the same
 * signal like a receiver.
 *
 * Life cycle of a node:
 * - create: reads the config, allocates memory and creates metrics, without I/O.
 * - start: opens listeners or clients.
 * - consume: receives items.
 * - drain: finishes or forwards all held items, then calls br_node_drained once. Receivers are
 *   drained first and exporters last, so no new requests arrive.
 * - destroy: finishes items that are still held, and frees the memory of the state. destroy is also
 *   called if create failed; it must then free the parts that create has allocated.
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

/* The interface through which a node passes items to the next one. `consume` always takes ownership
 * of the item. */
struct br_consumer {
    void (*consume)(struct br_consumer *self, struct br_item *item);
};

static inline void br_consume(struct br_consumer *next, struct br_item *item)
{
    next->consume(next, item);
}

/* A reference to another component, made by an option that contains the id of that component. The
 * referenced component must be in a pipeline. */
struct br_reference {
    const char *key;       /* name of the option */
    enum br_kind kind;     /* kind of the referenced component */
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
    /* signals that the component supports, as a set of BR_SIGNAL_BIT values; 0 for extensions */
    unsigned signals;
    /* stability level in the words of the Collector, such as "beta" */
    const char *stability;
    const char *help; /* one-line description of the component */
    /* table of the component's options, terminated by BR_OPT_END */
    const struct br_option *options;
    /* size in bytes of the config struct that `options` describes; the struct is constant after
     * loading */
    size_t config_size;
    size_t state_size; /* size in bytes of the node's private state, which is allocated zeroed */
    /* extensions: one node for each worker (true), or only one node in the first worker (false) */
    bool every_worker;
    /* processors: in each worker, all pipelines that contain the processor share one node (join) */
    bool shared;
    /* shared: set of BR_SIGNAL_BIT, signals that the processor handles without the other signal;
     * the loader warns if the processor is only in pipelines of another signal */
    unsigned handles_alone;
    /* The connector reads the data of the pipelines that list it as an exporter, and is not a
     * receiver of others. It has one node for each pipeline, after the processors and before the
     * other exporters. If there are no others, node->next is NULL. */
    bool observes;
    /* the component is an exporter, with sending_queue and retry_on_failure in front of it */
    bool exporter_wrapped;
    /* exporter_wrapped: the exporter divides an item into several requests, and itself retries them
     * as configured in retry_on_failure */
    bool retries_parts;
    /* The node's files can be opened only once at a time. A reload must therefore destroy the old
     * node before it creates a node with other settings. */
    bool owns_files;
    bool wants_spans; /* the component is a processor that reads br_item.spans */
    /* The component is a processor that needs the time and thread of each sample. Receivers then
     * keep the times and threads of samples from Pyroscope clients. The processor must remove the
     * times and merge equal samples before it forwards them. */
    bool wants_times;
    /* The component is an exporter whose server may not understand attributes that refer to strings
     * in the profile dictionary. The graph replaces these references by the strings. */
    bool resolves;
    /* exporter_wrapped: offset of struct br_exporter_config (exporter.h) in the config struct */
    size_t common_at;

    /* Returns the keys of the client metadata that a processor or exporter reads from items.
     * NULL: the component reads no metadata. */
    const struct br_strings *(*metadata_keys)(const void *config);

    /* Returns true if a receiver with this config keeps client metadata for every protocol.
     * NULL: the receiver always does. */
    bool (*keeps_metadata)(const void *config);

    /* Returns the number of records that a processor combines into one request. NULL: the processor
     * does not combine requests. */
    uint64_t (*request_records)(const void *config);

    /* Returns whether an authenticator can authenticate clients, servers or both, as a set of
     * BR_AUTH_SERVER and BR_AUTH_CLIENT (core/authenticator.h). NULL: the component is not an
     * authenticator. */
    unsigned (*authenticates)(const void *config);

    /* Sets `*ret` to another component that this one needs. A config without the other component is
     * rejected. NULL: this component does not need another one. */
    void (*refers)(const void *config, struct br_reference *ret);

    /* Returns the routes of a connector: each is a list of pipelines to which
     * br_node_forward_to sends an item. NULL: the connector sends each item to all pipelines
     * that list it as a receiver. */
    const struct br_routes *(*routes)(const void *config);

    /* Checks conditions that the option table cannot express. Adds errors to `errs`, with their
     * positions in the config file from `node`. NULL: nothing to check. */
    int (*check)(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
                 struct br_errs *errs);
    int (*create)(struct br_node *node, struct br_err *err);
    /* Opens listeners or clients. Returns 0, or a negative error code and a message in `err`. NULL:
     * there is nothing to open. */
    int (*start)(struct br_node *node, struct br_err *err);
    void (*consume)(struct br_node *node,
                    struct br_item *item); /* Takes an item. NULL for receivers and extensions. */
    /* Sends all held items and all items that arrive later, and then calls br_node_drained. Can be
     * called again if further items have arrived since the first call. NULL: the node is always
     * drained. */
    void (*drain)(struct br_node *node);
    /* retries_parts: stops all retries. Waiting requests end with BR_RETRY, and so does each
     * request that fails later. Called when a durable queue in front of the exporter is drained.
     * NULL: the exporter does not retry by itself. */
    void (*stop_retries)(struct br_node *node);
    /* Finishes held items and frees the memory that the state points to. The graph frees the state
     * itself. NULL: there is nothing else to free. */
    void (*destroy)(struct br_node *node);
};

struct br_node {
    const struct br_component *component;
    /* id of the node in the config, such as "otlp/tempo"; borrowed from the config */
    const char *id;
    const void *config; /* config struct of the node; its type depends on the component */
    void *state;        /* state of the node: state_size bytes, zeroed at first */
    struct br_host *host;
    struct br_log log; /* logger with the node's name, such as "exporter/otlp/tempo" */
    /* consumer that upstream nodes call; it forwards to component->consume */
    struct br_consumer input;
    /* by signal: the next consumer downstream; NULL at the end of a pipeline, and for connectors
     * with routes */
    struct br_consumer *next[BR_SIGNALS];
    /* connectors: by signal, the consumer of each route; a consumer is NULL if the route has no
     * pipeline of the signal. NULL: the component has no routes. */
    struct br_consumer *const *routes[BR_SIGNALS];
    bool in_pipeline[BR_SIGNALS]; /* by signal: true if the node receives or sends the signal */
    bool draining, drained;
    bool ending; /* the node is being destroyed, so refused items must not be retried */
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
    /* exporters: counters of the records that arrived at the exporter, by result; NULL in tests */
    struct br_ledger *ledger;
    /* exporters: the consumer that retries failed items; NULL: failed items are never retried */
    struct br_retry *retry;
    /* exporters behind a durable queue: age in milliseconds up to which a failed item is retried,
     * or UINT64_MAX for no limit; 0: retry_on_failure limits the retries */
    uint64_t max_age_ms;
    /* processors and connectors: counters of the records received and forwarded; NULL for other
     * components */
    double *incoming[BR_SIGNALS], *outgoing[BR_SIGNALS];
};

/* Returns true if a receiver must refuse new requests, because the whole service is shutting down.
 * A receiver that a reload has replaced still accepts requests on its open connections. */
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

/* Adds the number of regular expressions that took too long to `counter`. Logs `text` unless the
 * number is 0, at most once a minute for each `limit`. */
void br_node_count_gave_up(struct br_node *node, double *counter, unsigned n_gave_up,
                           struct br_log_limit *limit, const char *text);

/* Logs a warning with printf-style arguments, at most once a minute for each `limit`; see
 * br_log_limited. */
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

/* Reports, after `drain` was called, that the node holds no more items. */
void br_node_drained(struct br_node *node);

/* An item that a node has offered to other nodes (br_item_attempt), and that ends with the outcome
 * of its last offer. If the node is destroyed earlier, the delivery ends with the current offer. */
struct br_delivery {
    struct br_list link;  /* link in a list in the state of the node */
    struct br_node *node; /* NULL: the node was destroyed */
    struct br_item *item;
};

/* Adds a delivery, which was allocated with br_malloc or br_calloc, to a list. Takes the item. */
void br_delivery_begin(struct br_delivery *delivery, struct br_list *deliveries,
                       struct br_node *node, struct br_item *item);

/* Finishes the item with an outcome, and frees the delivery, which may be the first member of a
 * larger struct. Calls br_node_drained after the last delivery of a node that is being drained. */
void br_delivery_end(struct br_delivery *delivery, const struct br_outcome *outcome);

/* Separates the deliveries in a list from their node, which is being destroyed. Accepts a zeroed
 * list. */
void br_deliveries_release(struct br_list *deliveries);

/* Returns the component of the given kind with the given name or alias, or NULL. */
const struct br_component *br_component_find(const struct br_component *const *registry,
                                             enum br_kind kind, const char *name);
