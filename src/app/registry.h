/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pipeline/component.h"

/* All components of this build, sorted by kind and name. Ends with NULL. */
extern const struct br_component *const br_components[];
