/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends a large item in pieces. The processors of a pipeline process an item in one call, which
 * takes one to three milliseconds for a piece of 256 KiB. Between two pieces, the worker serves
 * other connections. The processing time depends on the number of records as much as on the number
 * of bytes, so a small record counts as 256 bytes.
 *
 * The pieces are children of the whole item. The whole item then has no parts, and ends when the
 * last piece has ended.
 * - If a piece is refused before another piece was accepted, the whole item is refused, and the
 *   remaining pieces are not sent.
 * - If a piece is refused after another piece was accepted, the refused piece is retried. Accepted
 *   pieces are not sent again.
 * - If a piece is rejected, or is still refused after BR_PIECES_RETRY_MS, the result of the whole
 *   item is a partial success (OTLP, "Partial Success"). The response states how many records were
 *   rejected and why.
 *
 * If the sender sent the whole item again, the accepted pieces would be delivered twice, or even
 * more often if the destination stays too slow. BR_PIECES_RETRY_MS equals the export timeout of the
 * SDKs, after which a client sends the item again anyway. Exception: at shutdown, the whole item is
 * refused even if pieces were accepted.
 */
#pragma once

#include "ingest/reading.h"
#include "pipeline/component.h"

#define BR_PIECE_BYTES (256u << 10)
/* Traces items that are larger than this number of bytes are cut into pieces. Processing 1 MiB
 * of spans takes about half a millisecond, and cutting copies the spans. For profiles the number
 * is smaller: samples are small, and each piece of a profiles item has a dictionary. */
#define BR_PIECES_FROM_TRACES (1u << 20)
#define BR_PIECES_FROM_PROFILES (512u << 10)
#define BR_PIECE_SPAN_BYTES 256u /* a smaller span counts as this number of bytes */
/* a smaller sample counts as this number of bytes, because its processing time does not depend on
 * its size */
#define BR_PIECE_SAMPLE_BYTES 256u
#define BR_PIECES_RETRY_MS 10000

/* Returns the maximum size, in bytes, of an item of the signal that is not cut. */
size_t br_pieces_from(enum br_signal signal);

/* Returns true if br_pieces_cut would cut the item. */
bool br_pieces_wanted(const struct br_item *item);

/* Cuts `reading->item`, which must contain records, into pieces. Does nothing if the item counts as
 * at most br_pieces_from bytes or has already been cut. Afterwards the item has no parts, and
 * `reading->pieces` contains its pieces. Each piece of a profiles item has a dictionary.
 *
 * All pieces together may take, within the memory budget:
 * - pieces of profiles below 1 MiB: three times the item's size;
 * - pieces of profiles from 1 MiB on: four times the item's size;
 * - pieces of traces: twice the item's size, or three times with lists of spans.
 *
 * If the pieces would exceed the limit, the item is cut into larger pieces. Pieces above 1 MiB
 * contain fewer records per byte. If even two halves of the item would exceed the limit, the item
 * is not cut. If lists of spans (options->spans) would exceed the limit, the pieces have no lists,
 * and components make the lists when they need them.
 *
 * `options` is the argument for br_walk; NULL for profiles. Returns 0 or BR_ENOMEM. */
int br_pieces_cut(struct br_reading *reading, const struct br_walk_options *options);

/* Frees pieces that were not sent. */
void br_pieces_free(struct br_list *pieces);

struct br_pieces;

/* Sends the pieces to the next component after `node`, one in each loop iteration. Finishes `whole`
 * after the last piece; br_item_received must have been called for it. Takes `whole` and the
 * pieces. Adds the transfer to the list `sendings`, which br_pieces_stop reads. */
void br_pieces_send(struct br_node *node, struct br_item *whole, struct br_list *pieces,
                    struct br_list *sendings);

/* Stops all transfers in the list. Pieces that have not been accepted yet are refused. */
void br_pieces_stop(struct br_list *sendings);
