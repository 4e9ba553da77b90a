/* SPDX-License-Identifier: Apache-2.0 */
#include "config/kind.h"

static const char *const kinds[][2] = {
    [BR_RECEIVER] = {"receiver", "receivers"},    [BR_PROCESSOR] = {"processor", "processors"},
    [BR_EXPORTER] = {"exporter", "exporters"},    [BR_CONNECTOR] = {"connector", "connectors"},
    [BR_EXTENSION] = {"extension", "extensions"},
};

const char *br_kind_name(enum br_kind kind)
{
    return kinds[kind][0];
}

const char *br_kind_section(enum br_kind kind)
{
    return kinds[kind][1];
}
