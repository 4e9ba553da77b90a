/* SPDX-License-Identifier: Apache-2.0 */
/* Warnings about a configuration that is valid and probably does not do what was meant. */
#pragma once

#include "app/config.h"

/* Adds warnings to `errs`: a memory_limiter behind other processors, and an endpoint whose scheme
 * contradicts its `tls`. */
void br_advice(const struct br_config *config, struct br_errs *errs);
