/* SPDX-License-Identifier: Apache-2.0 */
/* Output of `braid components`: the components in this build, as a table, or as JSON with all
 * options. */
#pragma once

#include "base/str.h"
#include "pipeline/component.h"

/* Appends a table of the components in `registry`, which ends with NULL. */
void br_components_table(struct br_str *out, const struct br_component *const *registry);

/* Appends a JSON array with one object per component of `registry`: {kind, name, alias, signals,
 * stability, help, options}. An option is {name, alias, type, default, choices, required, help,
 * options}. Keys without a value are omitted. */
void br_components_json(struct br_str *out, const struct br_component *const *registry);
