/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads profiles of other formats within a reading. Texts that write each stack out become larger
 * when they are OTLP, and the tables that find equal ones are larger still: where that is more than
 * the reading may have, such a text is read again in parts, each with tables of its own that go
 * before the next one comes. The parts are pieces of one item, as br_pieces_cut makes them.
 */
#pragma once

#include "ingest/reading.h"
#include "profile/profile.h"

/* Reads a profile into the bench's builder, as br_profile_read. A format that divides has to be
 * alone in the reading: it becomes r->item at once (NULL: nothing was in it), with r->pieces where
 * it was read in parts, and leaves the builder empty. `scratch` is the caller's to release. Returns
 * as br_profile_read, with the sentence in r->err. */
int br_profile_reading(struct br_reading *reading, enum br_profile_format format,
                       const struct br_profile_source *source, struct br_arena *scratch);

/* Cuts what was read into pieces, where it is large (br_pieces_cut), without the bytes that it was
 * read from: they are given up before. Nothing happens without an item. Returns 0 or BR_ENOMEM. */
int br_profile_reading_cut(struct br_reading *reading);
