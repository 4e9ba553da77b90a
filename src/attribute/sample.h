/* SPDX-License-Identifier: Apache-2.0 */
/* Adds attributes that lie in the dictionary of a profiles item to a list, by their indices. */
#pragma once

#include "attribute/attributes.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/fields.h"

/* Appends the attributes that a Sample or a Profile names in its field `field`, without those that
 * are none. Values are those of the dictionary: without references where the item has none. False
 * as br_attributes_read. */
bool br_sample_attributes_add(struct br_attributes *attributes,
                              const struct br_dictionary_view *view, uint32_t field,
                              const uint8_t *body, size_t len);
