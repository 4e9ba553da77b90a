/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A component describes a receiver, processor, exporter or extension: one constant br_component
 * each. A node is an instance of it in a graph: one br_node per worker.
 *
 * Life of a node: create (reads its const config, allocates, makes its metrics; no I/O), start
 * (opens listeners or clients), consume (traffic), drain (no new traffic comes; finish or hand on
 * everything held, then call br_node_drained once), destroy. destroy may follow create directly,
 * also one that failed: it frees what is there of a state that was zeroed at first. Receivers are
 * drained first, exporters last; what is still held when time is up is finished by destroy.
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

/* The interface through which all data passes. `consume` always takes the item. */
struct br_consumer {
    void (*consume)(struct br_consumer *self, struct br_item *item);
};

static inline void br_consume(struct br_consumer *next, struct br_item *item)
{
    next->consume(next, item);
}

/* A component that an option names by its id. It has to be in a pipeline. */
struct br_reference {
    const char *key;       /* the option */
    enum br_kind kind;     /* of what it names */
    const char *component; /* "store" */
    const char *id;        /* "store/slow" */
};

#define BR_SIGNAL_BIT(signal) (1u << (signal))
#define BR_BOTH_SIGNALS 3u

struct br_component {
    const char *name;  /* as in the config: "otlp" */
    const char *alias; /* the Collector's other spelling, or NULL: "otlp_grpc" */
    enum br_kind kind;
    unsigned signals;                /* BR_SIGNAL_BIT of each; 0 for extensions */
    const char *stability;           /* "beta", as the Collector words it */
    const char *help;                /* one line */
    const struct br_option *options; /* ended by BR_OPT_END */
    size_t config_size;              /* of the struct that `options` fill; constant once loaded */
    size_t state_size;               /* of the node's private, zeroed state */
    bool shared;           /* a processor of which one node serves all its pipelines (join) */
    bool exporter_wrapped; /* an exporter that gets sending_queue and retry_on_failure in front */
    /* exporter_wrapped: the exporter itself applies retry_on_failure, to the requests that it makes
     * of an item. */
    bool retries_parts;
    bool wants_spans; /* a processor that reads br_item.spans */
    bool
        wants_times; /* a processor that needs the time and thread of each sample, and folds samples
                        of Pyroscope's clients, which have none elsewhere, when they leave */
    bool resolves;   /* an exporter whose peer is not known to read attributes by reference */
    size_t common_at; /* exporter_wrapped: offset of its struct br_exporter_config (exporter.h) */

    /* Returns the client metadata that a processor or exporter reads from items. NULL: none. */
    const struct br_strings *(*metadata_keys)(const void *config);

    /* Whether it (a receiver) keeps client metadata on whatever way it comes; NULL: it does. */
    bool (*keeps_metadata)(const void *config);

    /* Returns how many spans or samples a processor gathers in one request. NULL: it gathers none.
     */
    uint64_t (*request_items)(const void *config);

    /* Names another component that this one needs. NULL: none. A config that lacks it is refused.
     */
    void (*refers)(const void *config, struct br_reference *ret);

    /* Checks what the option table cannot, and adds errors with positions from `node` to `errs`.
     * NULL: there is nothing to check. */
    int (*check)(void *config, const struct br_yaml *node, const char *path, struct br_arena *arena,
                 struct br_errs *errs);
    int (*create)(struct br_node *node, struct br_err *err);
    int (*start)(struct br_node *node, struct br_err *err); /* NULL: nothing to open */
    void (*consume)(struct br_node *node,
                    struct br_item *item); /* NULL for receivers, extensions */
    /* What it holds must leave, and so must what still comes: it ends with br_node_drained. May be
     * called again, when more has come in between. NULL: drained at once. */
    void (*drain)(struct br_node *node);
    void (*destroy)(struct br_node *node); /* NULL: only the state, which the graph frees */
};

struct br_node {
    const struct br_component *component;
    const char *id;     /* "otlp/tempo"; borrowed from the config */
    const void *config; /* the component's config struct, constant */
    void *state;        /* state_size zeroed bytes */
    struct br_host *host;
    struct br_log log;                    /* "exporter/otlp/tempo" */
    struct br_consumer input;             /* what upstream calls: forwards to component->consume */
    struct br_consumer *next[BR_SIGNALS]; /* downstream; NULL where the node has none */
    bool in_pipeline[BR_SIGNALS];         /* which signals reach it or leave it */
    bool draining, drained;
    bool ending; /* it is being destroyed, which is why it gives up what it holds */
    uint64_t n_unsent[BR_SIGNALS]; /* of its items, dropped for "shutdown" (br_redelivery_end) */
    void (*on_drained)(struct br_node *node, void *arg);
    void *on_drained_arg;
    const struct br_strings
        *metadata_keys;       /* receivers: client metadata to keep on items; NULL: none */
    bool spans_wanted;        /* receivers: a processor downstream reads br_item.spans */
    bool times_wanted;        /* receivers: all pipelines of profiles have a wants_times */
    struct br_ledger *ledger; /* exporters: what came to it; NULL in tests */
    struct br_retry *retry;   /* exporters: what sends again; NULL where nothing does */
    double *incoming[BR_SIGNALS], *outgoing[BR_SIGNALS]; /* processors: spans or samples that were
                                                            passed to it, and on; NULL elsewhere */
};

/* Hands an item to what follows the node for the item's signal. */
void br_node_forward(struct br_node *node, struct br_item *item);

/* Logs a printf-style warning at most once a minute for each `limit`; see br_log_limited. */
#define br_node_warn(node, limit, ...)                                                             \
    br_log_limited(&(node)->log, BR_LOG_WARN, (limit), br_host_mono_ms((node)->host),              \
                   BR_LOG_EVERY_MS, __VA_ARGS__)

/* Returns a counter or gauge with labels `<kind>="<id>"` and, unless NULL, one more. */
double *br_node_metric(struct br_node *node, enum br_metric_type type, const char *name,
                       const char *label, const char *value);

/* Returns a histogram of the records, or bytes, of requests, with the label `<kind>="<id>"`. */
struct br_histogram *br_node_size_histogram(struct br_node *node, const char *name, bool bytes);

/* Says that everything the node held is finished or handed on, after drain was called. */
void br_node_drained(struct br_node *node);

/* Returns the component of that kind with the name or alias, or NULL. */
const struct br_component *br_component_find(const struct br_component *const *registry,
                                             enum br_kind kind, const char *name);
