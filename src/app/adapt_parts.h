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
    /* Braid's implementation of the component, which may have another name; NULL if there is
     * none */
    const struct br_component *component;
    const struct br_foreign *foreign;
    /* reason why the component has to be removed; NULL if the component can stay */
    const char *lacking;
    /* exporters: reason why the exporter cannot run in Braid with its `auth`; NULL: none */
    const char *refused;
    bool named;     /* a pipeline lists the component */
    bool wanted;    /* a traces or profiles pipeline lists the component */
    bool used;      /* a pipeline that was not removed lists the component */
    bool cut;       /* at least one setting of the component was removed */
    bool by_client; /* the exporter sends headers from client requests */
    bool collected; /* the receiver runs in the Collector and therefore not in Braid */
    bool connected; /* the connector is used both as an exporter and as a receiver in the file */
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
        /* for each list: id of the component that is Braid's end of a link; NULL: no link */
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
    unsigned port; /* port number of the link that was added last */
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

/* Returns the component of `kind` whose id is in `node`, an item of a list. In a list of receivers
 * or exporters, the id may also name a connector. Returns NULL if the component is not defined. */
struct br_adapt_unit *br_adapt_resolve(struct br_adapter *adapter, enum br_kind kind,
                                       const struct br_yaml *node);

/* Creates a plan (struct br_adapt_plan) for each traces and profiles pipeline. A plan contains the
 * current lists of the pipeline. */
void br_adapt_plan_all(struct br_adapter *adapter);

/* Returns true if a pipeline with this id is of a signal that Braid does not support. */
bool br_adapt_is_foreign_signal(const char *id);

/* Marks the connectors that the Collector has to run as lacking, because it runs the pipelines
 * before or after them. */
void br_adapt_split_connectors(struct br_adapter *adapter);

/* Splits each remaining pipeline. The Collector keeps the receivers and exporters that Braid does
 * not have, and all processors up to and including the last one that Braid does not have. In
 * Braid's pipeline, an otlp receiver and an otlp exporter replace the components that the Collector
 * keeps. */
void br_adapt_split(struct br_adapter *adapter);

/* Removes the links of removed pipelines and records the changes to make in the file. */
void br_adapt_plan_end(struct br_adapter *adapter);
