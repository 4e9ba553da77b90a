/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Translates the client authenticators of the Collector whose result is fixed text into headers of
 * the exporter that uses them: `bearertokenauth`, `basicauth` with `client_auth`, and
 * `headers_setter` with fixed values. ${...} in a token or a password stays ${...}.
 */
#pragma once

#include "config/edit.h"

struct br_auth {
    struct br_arena *arena;
    struct br_edits *edits;          /* gets the changes of the file, or NULL */
    const char *type;                /* of the extension: "bearertokenauth" */
    const struct br_yaml *extension; /* its settings */
};

/* Replaces the key `auth` of the map `exporter`, whose key in its section is `key`, with the
 * headers that the extension sends. Returns 0; BR_EUNSUPPORTED and the reason in `*ret_why`, a
 * clause in the arena, and changes nothing; or BR_ENOMEM. */
int br_auth_translate(const struct br_auth *auth, const struct br_yaml *key,
                      struct br_yaml *exporter, const char **ret_why);
