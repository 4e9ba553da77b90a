/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads profiles in formats other than OTLP. A text format that writes each stack out becomes
 * larger as OTLP, and the tables that find equal stacks are larger still. If a text does not fit
 * into the memory of the reading, it is read again in parts. Each part has separate tables, which
 * are freed before the next part. The parts become pieces of one item, like those of br_pieces_cut.
 */
#pragma once

#include "ingest/reading.h"
#include "profile/profile.h"

/* Reads a profile into the workbench's builder with br_profile_read. Returns the codes of
 * br_profile_read, with a message in reading->err. A format that can be divided must be the only
 * one in the reading. A profile in such a format becomes reading->item at once (NULL if the
 * profile is empty), and the builder is left empty. If the profile was read in parts,
 * reading->pieces is set. The caller releases `scratch`. */
int br_profile_reading(struct br_reading *reading, enum br_profile_format format,
                       const struct br_profile_source *source, struct br_arena *scratch);

/* Frees the bytes that the item was read from, and divides the item into pieces if it is large
 * (br_pieces_cut). Without an item, only frees the bytes. Returns 0 or BR_ENOMEM. */
int br_profile_reading_cut(struct br_reading *reading);
