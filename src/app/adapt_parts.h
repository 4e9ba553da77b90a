/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that adapt.c and adapt_split.c share. adapt.c removes unsupported parts of a
 * configuration, and adapt_split.c splits pipelines between Braid and a Collector. */
#pragma once

#include "app/adapt.h"
#include "config/edit.h"

#define BR_ADAPT_LISTS 3

/* A component of the configuration. */
struct br_adapt_unit {
    enum br_kind kind;
    const char *id, *type;
    struct br_yaml *key, *node;
    /* Braid's component, even if the Collector uses another name for it; NULL if Braid lacks it */
    const struct br_component *component;
    const struct br_foreign *foreign;
    const char *lacking; /* reason why the component has to be removed; NULL if it can stay */
    /* for an exporter, the reason why its `auth` is not supported; otherwise NULL */
    const char *refused;
    bool named;     /* a pipeline lists the component */
    bool wanted;    /* a pipeline of traces or profiles lists the component */
    bool used;      /* a pipeline that remains lists the component */
    bool cut;       /* at least one setting of the component was removed */
    bool by_client; /* an exporter that sends headers from client requests */
    bool collected; /* a receiver that runs in the Collector and therefore not in Braid */
    bool connected; /* a connector that the file uses both as an exporter and as a receiver */
};

/* A processor that was removed from a pipeline, and the key of that pipeline. */
struct br_adapt_loss {
    struct br_adapt_loss *next;
    const struct br_adapt_unit *unit;
    const struct br_yaml *pipeline;
};

/* The lists of a pipeline before it is split, and the links that the split adds. */
struct br_adapt_plan {
    struct br_yaml *key, *pipeline;
    const char *id;
    struct br_yaml **items[BR_ADAPT_LISTS];
    size_t count[BR_ADAPT_LISTS];
    const char
        /* ids of the receiver and of the exporter that are Braid's ends of links; NULL: no link */
        *link[BR_ADAPT_LISTS];
    const char *text[BR_ADAPT_LISTS]; /* settings of the components in `link`, as YAML */
    size_t n_front; /* number of processors that the Collector runs before Braid */
};

struct br_adapter {
    const struct br_adapt *adapt;
    struct br_yaml *tree;
    struct br_adapt_unit *units;
    size_t n_units;
    struct br_adapt_loss *losses;
    struct br_adapt_plan *plans;
    size_t n_plans;
    unsigned port; /* port of the link that was added last */
    bool no_memory;
};

/* A list of a pipeline (receivers, processors or exporters) and the kind of its components. */
struct br_adapt_list {
    const char *key;
    enum br_kind kind;
};
extern const struct br_adapt_list br_adapt_lists[BR_ADAPT_LISTS];

/* Returns `memory`. If `memory` is NULL, records that memory ran out. */
void *br_adapt_keep(struct br_adapter *adapter, void *memory);

/* Returns service::pipelines, or NULL if it is not a map. */
struct br_yaml *br_adapt_pipelines(const struct br_adapter *adapter);

/* Returns the section of the components of a kind, or NULL if it is not a map. */
struct br_yaml *br_adapt_section(const struct br_adapter *adapter, enum br_kind kind);

/* Returns the component to which `node`, an item of a list of `kind`, refers. The component may
 * be a connector. Returns NULL if the component is not defined. */
struct br_adapt_unit *br_adapt_resolve(struct br_adapter *adapter, enum br_kind kind,
                                       const struct br_yaml *node);

/* Records the current lists of all traces and profiles pipelines as plans. */
void br_adapt_plan_all(struct br_adapter *adapter);

/* Returns true if a pipeline with this id is of a signal that Braid does not support. */
bool br_adapt_is_foreign_signal(const char *id);

/* Marks the connectors that the Collector has to run as lacking, because it runs the pipelines
 * before or after them. */
void br_adapt_split_connectors(struct br_adapter *adapter);

/* Splits each remaining pipeline. The Collector keeps the receivers and exporters that Braid
 * does not have, and all processors up to the last one that Braid does not have. In Braid's
 * pipeline, an otlp receiver and an otlp exporter replace the components that the Collector
 * keeps. */
void br_adapt_split(struct br_adapter *adapter);

/* Removes the links of removed pipelines and records the changes to make in the file. */
void br_adapt_plan_end(struct br_adapter *adapter);
