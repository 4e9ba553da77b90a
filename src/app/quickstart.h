/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the config that `braid` runs when it is given none: config/examples/quickstart.yaml, which
 * is in the binary, and forwarding to the backends that the environment names.
 */
#pragma once

#include "base/arena.h"
#include "config/sources.h"

#define BR_QUICKSTART_URIS 3

/* Sets the sources' URIs to the embedded config and one more for each of TEMPO_ENDPOINT and
 * PYROSCOPE_ENDPOINT that is set. `uris` is the caller's, texts are in the arena. Returns 0 or
 * BR_ENOMEM. */
int br_quickstart_sources(struct br_config_sources *sources, const char *uris[BR_QUICKSTART_URIS],
                          struct br_arena *arena);

/* Prints where to send and where to look, by what the sources say. Once everything listens. */
void br_quickstart_welcome(const struct br_config_sources *sources);
