/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replaces the Collector's client authenticators with headers of the exporter that uses them, if
 * the result is fixed text. Supported are `bearertokenauth`, `basicauth` with `client_auth`, and
 * `headers_setter` with fixed values. ${...} in a token or a password stays ${...}.
 */
#pragma once

#include "config/edit.h"

struct br_auth {
    struct br_arena *arena;
    struct br_edits *edits;          /* receives the changes to make in the file; may be NULL */
    const char *type;                /* type of the extension, such as "bearertokenauth" */
    const struct br_yaml *extension; /* settings of the extension */
};

/* Replaces the key `auth` of the map `exporter`, whose key in its section is `key`, with the
 * headers that the extension sends. Returns 0 or BR_ENOMEM. Returns BR_EUNSUPPORTED, changes
 * nothing and sets `*ret_why` to a clause in the arena if headers cannot replace the extension. */
int br_auth_translate(const struct br_auth *auth, const struct br_yaml *key,
                      struct br_yaml *exporter, const char **ret_why);
