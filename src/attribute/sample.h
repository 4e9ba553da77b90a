/* SPDX-License-Identifier: Apache-2.0 */
/* Adds attributes of a profiles item's dictionary to a list, by their indices. */
#pragma once

#include "attribute/attributes.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/fields.h"

/* Appends the attributes whose indices are in field `field` of a Sample or a Profile, except
 * index 0. Values are those of the dictionary: they contain no references if the item has none.
 * Returns false if memory runs out or there are too many attributes. */
bool br_sample_attributes_add(struct br_attributes *attributes,
                              const struct br_dictionary_view *view, uint32_t field,
                              const uint8_t *body, size_t len);
