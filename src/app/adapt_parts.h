/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by adapt.c, which removes unsupported parts of a configuration, and adapt_split.c,
 * which splits pipelines between Braid and a Collector. */
#pragma once

#include "app/adapt.h"

#define BR_ADAPT_LISTS 3

/* A component as defined in its section. */
struct br_adapt_unit {
    enum br_kind kind;
    const char *id, *type;
    struct br_yaml *key, *node;
    /* Braid's component, also if the Collector has another name for it; or NULL */
    const struct br_component *component;
    const struct br_foreign *foreign;
    const char *lacking; /* why it has to be removed; NULL if it can stay */
    /* why the `auth` of an exporter cannot be translated, also in its extension; or NULL */
    const char *refused;
    bool named;      /* listed by a pipeline */
    bool wanted;     /* listed by a pipeline of traces or profiles */
    bool used;       /* listed by a pipeline that remains */
    bool cut;        /* one of its settings was removed */
    bool by_client;  /* an exporter that sends headers from client requests */
    bool collected;  /* a receiver that runs in the Collector and therefore not in Braid */
    bool translated; /* an extension that became headers of an exporter */
};

/* A processor that was removed from a pipeline, and the key of that pipeline. */
struct br_adapt_loss {
    struct br_adapt_loss *next;
    const struct br_adapt_unit *unit;
    const struct br_yaml *pipeline;
};

/* A pipeline as it is in the file, to be split. */
struct br_adapt_plan {
    struct br_yaml *key, *pipeline;
    const char *id;
    struct br_yaml **items[BR_ADAPT_LISTS];
    size_t count[BR_ADAPT_LISTS];
    const char
        /* ids of Braid's receiver and exporter for the links; NULL without a link */
        *link[BR_ADAPT_LISTS];
    const char *text[BR_ADAPT_LISTS]; /* settings of these two, as YAML */
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
    unsigned port; /* port of the last link */
    bool no_memory;
};

/* The lists of a pipeline, in their order. */
struct br_adapt_list {
    const char *key;
    enum br_kind kind;
};
extern const struct br_adapt_list br_adapt_lists[BR_ADAPT_LISTS];

/* Returns `memory`; records that memory ran out if it is NULL. */
void *br_adapt_keep(struct br_adapter *adapter, void *memory);

/* Return service::pipelines, and the section of a kind of component; NULL if it is not a map. */
struct br_yaml *br_adapt_pipelines(const struct br_adapter *adapter);
struct br_yaml *br_adapt_section(const struct br_adapter *adapter, enum br_kind kind);

/* Returns the component that `node` refers to in a list of `kind`, which may be a connector, or
 * NULL if it is not defined. */
struct br_adapt_unit *br_adapt_resolve(struct br_adapter *adapter, enum br_kind kind,
                                       const struct br_yaml *node);

/* Records the current lists of all pipelines of traces and profiles. */
void br_adapt_plan_all(struct br_adapter *adapter);

/* Splits each remaining pipeline. The Collector keeps the receivers and exporters that Braid
 * does not have, and all processors up to the last one that it does not have. Braid receives an
 * otlp receiver and an otlp exporter in their place. */
void br_adapt_split(struct br_adapter *adapter);

/* Removes the links of removed pipelines and records the changes of the file. */
void br_adapt_plan_end(struct br_adapter *adapter);
