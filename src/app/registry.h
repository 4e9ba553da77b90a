/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pipeline/component.h"

/* The registry: every component that is built in, NULL-terminated, sorted by kind and name. */
extern const struct br_component *const br_components[];
