/* SPDX-License-Identifier: Apache-2.0 */
/* The `auth` blocks of a configuration, and the extensions that they name. */
#pragma once

#include "app/config.h"
#include "core/authenticator.h"

/* Checks that each `auth` block of a component in use names an extension in service::extensions
 * that can authenticate on its side. Adds errors to `errs`. Returns 0 or BR_ENOMEM. */
int br_authenticators_check(const struct br_config *config, struct br_arena *arena,
                            struct br_errs *errs);

/* Checks one `auth` block of a server as br_authenticators_check does. The block may be NULL.
 * `node` and `path` are those of the block in the file. */
void br_authenticators_check_server(const struct br_config *config,
                                    const struct br_auth_config *auth, const struct br_yaml *node,
                                    const char *path, struct br_errs *errs);

/* Returns the extension that an exporter's `auth` block names, or NULL. `arena` is for temporary
 * memory. */
const struct br_instance *br_authenticators_of(const struct br_config *config,
                                               const struct br_instance *exporter,
                                               struct br_arena *arena);
