/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of components. Each kind has a section in the config. */
#pragma once

enum br_kind { BR_RECEIVER, BR_PROCESSOR, BR_EXPORTER, BR_CONNECTOR, BR_EXTENSION };

/* Returns the name of the kind: "receiver", "processor" and so on. */
const char *br_kind_name(enum br_kind kind);

/* Returns the name of the kind's section in the config: "receivers", "processors" and so on. */
const char *br_kind_section(enum br_kind kind);
