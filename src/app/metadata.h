/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the client metadata that a configuration reads with what its receivers keep. */
#pragma once

#include "app/config.h"

/* Warns of each receiver that keeps no client metadata (include_metadata) although a processor or
 * an exporter behind it reads some: as in the Collector, it finds none. Warns of each processor
 * that gathers requests of several clients in one, and whose metadata_keys lack what is read behind
 * it. */
void br_metadata_check(const struct br_config *config, struct br_errs *errs);
