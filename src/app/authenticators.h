/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the `auth` blocks of a configuration, and finds the extensions that these blocks name. */
#pragma once

#include "app/config.h"
#include "core/authenticator.h"

/* Checks the `auth` blocks of all components in use. Each block must name an extension in
 * service::extensions. The extension for a server must check the credentials of clients, and the
 * extension for a client must add credentials to requests. Adds errors to `errs`. Returns 0 or
 * BR_ENOMEM. */
int br_authenticators_check(const struct br_config *config, struct br_arena *arena,
                            struct br_errs *errs);

/* Checks the `auth` block of one server as br_authenticators_check does. `auth` may be NULL. `node`
 * and `path` are the node and the path of the block in the file. */
void br_authenticators_check_server(const struct br_config *config,
                                    const struct br_auth_config *auth, const struct br_yaml *node,
                                    const char *path, struct br_errs *errs);

/* Returns the extension that an exporter's `auth` block names, or NULL. `arena` is used for
 * temporary memory. */
const struct br_instance *br_authenticators_of(const struct br_config *config,
                                               const struct br_instance *exporter,
                                               struct br_arena *arena);
