/* SPDX-License-Identifier: Apache-2.0 */
/* `braid components`: what is built in, as a table or, with every option, as JSON. */
#pragma once

#include "base/str.h"
#include "pipeline/component.h"

/* Appends the table, or a JSON array of {kind, name, alias, signals, stability, help, options}; an
 * option is {name, alias, type, default, choices, required, help, options}, where there is such a
 * thing. `registry` is ended by NULL. */
void br_components_table(struct br_str *out, const struct br_component *const *registry);
void br_components_json(struct br_str *out, const struct br_component *const *registry);
