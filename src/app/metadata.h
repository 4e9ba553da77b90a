/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that receivers and processors keep the client metadata that later components use. */
#pragma once

#include "app/config.h"

/* Warns of each receiver without include_metadata if a later processor or exporter uses client
 * metadata: as in the Collector, that component will find none. Also warns of each processor
 * that merges requests of several clients if its metadata_keys lack a key that a later component
 * uses. */
void br_metadata_check(const struct br_config *config, struct br_errs *errs);
