/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by fit.c, which removes unsupported parts of a configuration, and fit_links.c, which
 * divides pipelines between Braid and a Collector. */
#pragma once

#include "app/fit.h"

#define BR_FIT_LISTS 3

/* A component as a section defines it. */
struct br_fit_unit {
    enum br_kind kind;
    const char *id, *type;
    struct br_yaml *key, *node;
    const struct br_component *component; /* also by a name of the Collector's */
    const struct br_foreign *foreign;
    const char *lacking; /* why it cannot stay; NULL: it can */
    const char *refused; /* why its setting cannot be left out; NULL: nothing is known */
    bool named;          /* some pipeline names it */
    bool wanted;         /* one that Braid carries named it */
    bool used;           /* one that stays names it */
    bool cut;            /* a setting of it has gone */
    bool by_client;      /* an exporter that sends headers of clients */
    bool collected;      /* a receiver that the Collector has, so that Braid cannot have it */
    bool translated;     /* an extension that became headers of an exporter */
};

/* A processor that was left out of a pipeline, and the key of that pipeline. */
struct br_fit_loss {
    struct br_fit_loss *next;
    const struct br_fit_unit *unit;
    const struct br_yaml *pipeline;
};

/* A pipeline as the file has it, to be divided. */
struct br_fit_plan {
    struct br_yaml *key, *pipeline;
    const char *id;
    struct br_yaml **items[BR_FIT_LISTS];
    size_t count[BR_FIT_LISTS];
    const char
        *link[BR_FIT_LISTS]; /* ids of Braid's ends of the links: a receiver and an exporter */
    const char *text[BR_FIT_LISTS]; /* their settings */
    size_t n_front; /* processors that the Collector runs before Braid gets the data */
};

struct br_fitter {
    const struct br_fit *fit;
    struct br_yaml *tree;
    struct br_fit_unit *units;
    size_t n_units;
    struct br_fit_loss *losses;
    struct br_fit_plan *plans;
    size_t n_plans;
    unsigned port; /* of the last link */
    bool no_memory;
};

/* The lists of a pipeline in their order. */
struct br_fit_list {
    const char *key;
    enum br_kind kind;
};
extern const struct br_fit_list br_fit_lists[BR_FIT_LISTS];

/* Notes that memory ran out when `memory` is NULL. Returns it. */
void *br_fit_keep(struct br_fitter *fitter, void *memory);

/* Returns service::pipelines or a section of components; NULL when that is not a map. */
struct br_yaml *br_fit_pipelines(const struct br_fitter *fitter);
struct br_yaml *br_fit_section(const struct br_fitter *fitter, enum br_kind kind);

/* Returns the component that `node` means in a list of `kind`; NULL when the list
 * names nothing that is defined. */
struct br_fit_unit *br_fit_resolve(struct br_fitter *fitter, enum br_kind kind,
                                   const struct br_yaml *node);

/* Keeps the lists of all pipelines of traces and profiles as they are now. */
void br_fit_plan_all(struct br_fitter *fitter);

/* Divides each pipeline that is still there: the Collector keeps the receivers and exporters that
 * Braid lacks, and all processors up to the last one that it lacks. In their places Braid gets an
 * otlp receiver and an otlp exporter. */
void br_fit_divide(struct br_fitter *fitter);

/* Removes links of pipelines that have gone, and records the changes of the file. */
void br_fit_plan_end(struct br_fitter *fitter);
