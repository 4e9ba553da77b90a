/* SPDX-License-Identifier: Apache-2.0 */
/* Warns about configurations that are valid but probably not intended. */
#pragma once

#include "app/config.h"

/* Adds warnings to `errs` for a memory_limiter after other processors, for an endpoint whose scheme
 * contradicts its `tls`, and for an exporter that sends to a receiver of the same pipeline. */
void br_advice(const struct br_config *config, struct br_errs *errs);
