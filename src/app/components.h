/* SPDX-License-Identifier: Apache-2.0 */
/* Output of `braid components`: the components in this build, as a table, or as JSON with all
 * options. */
#pragma once

#include "base/str.h"
#include "pipeline/component.h"

/* Append a table, or a JSON array of {kind, name, alias, signals, stability, help, options}. An
 * option is {name, alias, type, default, choices, required, help, options}; keys without a value
 * are omitted. `registry` ends with NULL. */
void br_components_table(struct br_str *out, const struct br_component *const *registry);
void br_components_json(struct br_str *out, const struct br_component *const *registry);
