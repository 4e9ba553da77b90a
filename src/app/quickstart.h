/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Built-in configuration of `braid` without --config: config/examples/quickstart.yaml, and
 * forwarding to the backends in the environment.
 */
#pragma once

#include "base/arena.h"
#include "config/sources.h"

#define BR_QUICKSTART_URIS 3

/* Sets the URIs of `sources` to the built-in configuration, plus one URI for each of
 * TEMPO_ENDPOINT and PYROSCOPE_ENDPOINT that is set. The caller owns `uris`; the texts are in
 * the arena. Returns 0 or BR_ENOMEM. */
int br_quickstart_sources(struct br_config_sources *sources, const char *uris[BR_QUICKSTART_URIS],
                          struct br_arena *arena);

/* Prints the addresses of the page and of the receivers, according to `sources`. Called when all
 * servers listen. */
void br_quickstart_welcome(const struct br_config_sources *sources);
