/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes from a Collector's configuration tree everything that Braid does not support. Each
 * removal is reported by a warning that names its effect and the remaining work.
 *
 *  - Pipelines of metrics and logs are removed, with the components that only they use.
 *  - Components that Braid does not have are removed from every pipeline. A pipeline without a
 *    receiver or without an exporter is removed, too.
 *  - Unknown settings are removed one by one.
 *  - An exporter's `auth` becomes headers (auth.h).
 *
 * Some removals would pass on data that the original dropped, hid or changed, or would let in
 * clients that it refused: a processor such as tail_sampling, filter, redaction or transform, a
 * setting of one, `auth` or `tls` of a receiver, an `auth` that no header replaces. They are
 * errors, unless `accept_loss` allows them. `accept_loss` also removes whatever else the loader
 * refuses: a server whose `auth` or `tls` is refused goes as a whole, and so does an exporter.
 *
 * With `divide`, a Collector runs beside Braid and keeps those parts (rest.h), so that nothing is
 * lost. Links over OTLP on loopback join the two, one per pipeline and direction.
 */
#pragma once

#include "app/config.h"
#include "config/edit.h"

struct br_fit {
    const struct br_component *const *registry;
    struct br_arena *arena;
    struct br_errs *errs;   /* gets the warnings and the errors */
    struct br_edits *edits; /* gets the changes of the file; NULL where only the tree matters */
    bool accept_loss;       /* remove also what changes which data is kept, shown or let in */
    bool elsewhere;         /* values that ${...} brings are those of another machine */
    bool divide;            /* a Collector keeps what Braid lacks */
    const char *text;       /* with `divide`: the file, whose ports the links avoid */
};

/* Changes `tree`, merged and expanded. Returns 0, BR_EINVAL with errors when it cannot be carried
 * over or no pipeline is left, or BR_ENOMEM. With `elsewhere`, only errors of values that come from
 * ${...} may be left in the tree. */
int br_config_fit(const struct br_fit *fit, struct br_yaml *tree);
