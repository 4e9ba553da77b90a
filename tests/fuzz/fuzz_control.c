/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the rules of the extension control. An accepted rule must be within its bounds, and it
 * must be possible to write it as JSON. */
#include <stdlib.h>
#include <string.h>

#include "extensions/control/control.h"
#include "otlp/json/tree.h"

#define HOUR_NS 3600000000000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void check(const struct control_override *r)
{
    const struct br_override *rule = &r->base;
    require(rule->service[0] && strlen(rule->service) <= 255);
    require(r->duration_ms >= 1000 && r->duration_ms <= HOUR_NS / 1000000);
    require(rule->n_types <= 16);
    for (size_t i = 0; i < rule->n_types; i++)
        require(rule->types[i] && rule->types[i][0] && strlen(rule->types[i]) <= 64);
    require(rule->sampling_percentage >= 0 && rule->sampling_percentage <= 100);
    require(rule->keep == (rule->sampling_percentage > 0 || rule->slow_threshold_ns > 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct control_override *r;
    struct br_err err = {0};
    if (size > CONTROL_BODY_MAX)
        return 0;
    if (control_read((const char *)data, size, HOUR_NS, &r, &err)) {
        require(err.text[0]);
        return 0;
    }
    check(r);
    struct br_str json = {0};
    struct br_json_tree tree;
    control_put_override(&json, r, 0);
    require(!json.failed && br_json_parse(&tree, json.data, json.len, 3, 0, &err) == 0);
    br_json_tree_release(&tree);
    br_str_release(&json);
    control_override_free(r);
    return 0;
}
