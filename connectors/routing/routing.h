/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the routing connector. routing.c reads the settings and handles items, request.c
 * compares the metadata of requests, select.c finds the row of the table for each record, and
 * division.c sends the parts of an item to the pipelines of several rows.
 */
#pragma once

#include "attribute/condition.h"
#include "pipeline/component.h"

enum routing_context {
    ROUTING_RESOURCE,
    ROUTING_SPAN,
    ROUTING_PROFILE,
    ROUTING_REQUEST,
};

enum routing_action { ROUTING_MOVE, ROUTING_COPY };

/* A row of `table`. */
struct routing_row {
    int context; /* enum routing_context */
    const char *condition, *statement;
    int action; /* enum routing_action */
    struct br_strings pipelines;
    /* The fields below are set when the settings are checked. */
    const char *text;  /* the condition, without "route() where"; "": always true */
    const char *key;   /* ROUTING_REQUEST: key of the client metadata */
    const char *value; /* ROUTING_REQUEST: text that the metadata is compared with */
    bool differs;      /* ROUTING_REQUEST: the metadata must differ from `value` */
};

struct routing_config {
    struct br_strings default_pipelines;
    struct br_structs table; /* list of struct routing_row */
    /* processor time, in nanoseconds, that regular expressions may take for an item, in addition
     * to 20 ns per byte */
    uint64_t match_time;
    /* The fields below are set when the settings are checked. */
    struct br_routes routes; /* the routes of the rows, followed by the default route */
    struct br_strings metadata_keys;
};

struct routing_state {
    struct br_arena arena; /* memory of the conditions */
    /* for each row, its conditions for each signal; the list is empty if the row does not need
     * them */
    struct br_conditions (*conditions)[BR_SIGNALS];
    struct br_regex_time time; /* time that regular expressions took for the current item */
    struct br_list divisions;  /* divisions of items that have not ended */
    double *gave_up;
    struct br_log_limit limit, failed_limit;
};

static inline const struct routing_row *routing_row(const struct routing_config *config,
                                                    size_t index)
{
    return &((const struct routing_row *)config->table.items)[index];
}

/* --- Metadata of requests (request.c) --------------------------------------------------------- */

/* Parses the condition of a row with the context `request`: request["KEY"] == "VALUE", or with
 * `!=`. Returns 0 or BR_ENOMEM, or BR_EINVAL with `err` set. */
int routing_request_parse(struct routing_row *row, struct br_arena *arena, struct br_err *err);

/* Returns true if the client metadata of the item has the key of the row, with a value that
 * satisfies the condition. */
bool routing_request_matches(const struct routing_row *row, const struct br_item *item);

/* --- Selection (select.c) --------------------------------------------------------------------- */

/* The rows of the records of an item. The arrays are in the arena of the item. */
struct routing_selection {
    size_t n_rows; /* number of rows of the table; the number of the default route */
    /* for each record, the number of the route to which it is moved, or n_rows + 1: the record
     * does not match any row, and there is no default route */
    uint32_t *route;
    uint32_t *n_moved; /* for each route, and for none: number of records */
    /* for each row with the action `copy`: bits of the records that match; NULL: none matches */
    uint8_t **copied;
    uint32_t *n_copied; /* for each row: number of the records that match a copying row */
};

/* Finds the routes of all records of an item. Returns 0, or BR_EFULL, BR_EINVAL or BR_ENOMEM as
 * br_conditions_hold does. */
int routing_select(struct br_node *node, struct br_item *item, struct routing_selection *ret);

/* Removes the records from `part`, which refers to all records of the item, that are not moved to
 * the route, or with `copy`, that do not match the copying row. Returns 0, or an error of
 * br_item_rewrite. */
int routing_select_keep(const struct routing_selection *selection, struct br_item *part,
                        size_t route, bool copy);

/* --- Division (division.c) -------------------------------------------------------------------- */

/* Divides an item, which is taken, and sends its parts to their routes. */
void routing_divide(struct br_node *node, struct br_item *item,
                    const struct routing_selection *selection);

/* Ends the divisions of the node. Parts that no pipeline has accepted yet are refused. */
void routing_divisions_stop(struct br_node *node);

/* Reports that a division cannot be made for lack of memory, or because of malformed data: ends the
 * item, which is taken, with the outcome for the error `rc`. */
void routing_fail(struct br_item *item, int rc);
