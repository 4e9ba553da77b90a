/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of components. Each is a section of the config. */
#pragma once

enum br_kind { BR_RECEIVER, BR_PROCESSOR, BR_EXPORTER, BR_CONNECTOR, BR_EXTENSION };

/* Return "receiver" and so on, and "receivers" and so on, the name of the section. */
const char *br_kind_name(enum br_kind kind);
const char *br_kind_section(enum br_kind kind);
