/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes from a Collector's configuration tree everything that Braid does not support. Each
 * removal is reported by a warning that states its effect and any remaining work.
 *
 * - Pipelines of metrics and logs are removed, with the components that only they use.
 * - Components that Braid does not have are removed from every pipeline. A pipeline without a
 *   receiver or without an exporter is also removed.
 * - Unknown settings are removed one by one.
 *
 * Some removals are errors, unless `accept_loss` allows them. Without the removed part, data would
 * pass that the original dropped, hid or changed, or clients would be accepted that it rejected.
 * Examples are span, filter, redaction and transform, settings of such a processor, `auth`
 * or `tls` of a receiver, and an `auth` of an exporter whose authenticator Braid does not have.
 *
 * With `accept_loss`, all other settings that the loader rejects are removed too. A server or
 * exporter whose `auth` or `tls` is rejected is removed as a whole.
 *
 * With `split`, a Collector runs next to Braid and keeps the removed parts (remainder.c), so
 * nothing is lost. Links over OTLP on loopback connect Braid and the Collector, one per pipeline
 * and direction.
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
    /* text of the file, for `split`: links use only ports that the text does not contain */
    const char *text;
};

/* Changes `tree`, which must be merged and expanded. Returns 0, BR_ENOMEM, or BR_EINVAL with
 * errors if something cannot be removed or no pipeline remains. With `elsewhere`, the tree may
 * still contain values from ${...} that the loader rejects. */
int br_config_adapt(const struct br_adapt *adapt, struct br_yaml *tree);
