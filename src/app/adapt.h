/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes the parts of a Collector's configuration tree that Braid does not support. A warning
 * reports each removal with the reason and, for some components, with advice.
 *
 * - Metrics and logs pipelines are removed, together with the components that no other pipeline
 *   uses.
 * - Components that Braid does not have are removed from every pipeline. A pipeline without a
 *   receiver or without an exporter is also removed.
 * - Unknown settings are removed one by one.
 *
 * Some removals are errors unless `accept_loss` is set. Without the removed part, Braid would
 * forward data that the original configuration drops, hides or changes, or would accept clients
 * that the original rejects. Examples of parts whose removal is an error:
 *
 * - a processor that drops, hides or changes data, such as filter, and settings of such a processor
 * - `auth` or `tls` of a receiver
 * - `auth` of an exporter, if Braid does not have the authenticator
 *
 * With `accept_loss`, all other settings that the loader rejects are removed too. If the loader
 * rejects the `auth` or `tls` of a server or exporter, the whole server or exporter is removed.
 *
 * With `split`, a Collector runs next to Braid and keeps the removed parts (remainder.c), so no
 * function is lost. Links connect Braid and the Collector. A link sends the data of one pipeline in
 * one direction, over OTLP on the loopback interface.
 */
#pragma once

#include "app/config.h"
#include "config/edit.h"

struct br_adapt {
    const struct br_component *const *registry;
    struct br_arena *arena;
    struct br_errs *errs; /* receives the warnings and errors; owned by the caller */
    /* receives the changes to make in the file; NULL if only the tree is needed */
    struct br_edits *edits;
    /* remove unsupported parts even if they drop, hide, change or protect data */
    bool accept_loss;
    /* the configuration will run on another machine, where variables have other values */
    bool elsewhere;
    /* a Collector next to Braid keeps the parts that Braid does not support */
    bool split;
    /* `split`: text of the file; links use only port numbers that do not occur in the text */
    const char *text;
};

/* Adapts `tree`, which must be merged and expanded, in place. Returns 0 or BR_ENOMEM. Returns
 * BR_EINVAL, with errors in adapt->errs, if an unsupported part cannot be removed or no pipeline
 * remains. With `elsewhere`, the tree may still contain values from ${...} that the loader
 * rejects. */
int br_config_adapt(const struct br_adapt *adapt, struct br_yaml *tree);
