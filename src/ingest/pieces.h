/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends a large item in pieces. The processors of a pipeline work on an item in one call. For a
 * piece of 256 KiB they need one to three milliseconds, and between two pieces the worker serves
 * others. The time depends on the number of records as much as on bytes, so small records count as
 * larger ones.
 *
 * The pieces are children of the whole item, which has no parts then and ends when the last piece
 * has. As long as nothing was accepted, a refusal ends the whole, and the other pieces are not
 * sent. After that, a refused piece is retried, and accepted pieces are not sent again. A piece
 * that is rejected, or is still refused after BR_PIECES_RETRY_MS, is the rejected part of a success
 * (OTLP, "Partial Success"): the sender is informed how much was rejected and why. If the sender
 * were asked to send the whole again, the accepted pieces would be delivered twice, for as long as
 * the destination is too slow. The limit equals the export timeout of the SDKs, after which a
 * client sends the item again anyway. Only at shutdown the whole is refused.
 */
#pragma once

#include "ingest/reading.h"
#include "pipeline/component.h"

#define BR_PIECE_BYTES (256u << 10)
/* Larger items are cut. Spans take about half a millisecond for 1 MiB, and cutting copies them.
 * Samples are small, and each piece of them has a dictionary. */
#define BR_PIECES_FROM_TRACES (1u << 20)
#define BR_PIECES_FROM_PROFILES (512u << 10)
#define BR_PIECE_SPAN_BYTES 256u /* minimum size that counts for a span */
/* minimum size that counts for a sample; small records take as much time */
#define BR_PIECE_SAMPLE_BYTES 256u
#define BR_PIECES_RETRY_MS 10000

/* Returns the size in bytes up to which items of the signal are not cut. */
size_t br_pieces_from(enum br_signal signal);

/* Returns true if br_pieces_cut would cut the item. */
bool br_pieces_wanted(const struct br_item *item);

/* Cuts `reading->item`, which has records, if it counts more than br_pieces_from and is not cut
 * yet. Afterwards the item has no parts, and `reading->pieces` contains its pieces. Each piece
 * of a profiles item has a dictionary.
 *
 * All pieces together may take three times the item's size if they are below 1 MiB, four times
 * above, and twice for traces (three times with lists of spans), within the memory budget. If
 * they would take more, larger pieces are made; above 1 MiB they have fewer records in
 * proportion. If two halves would still take too much, the item is not cut. If lists of spans
 * (options->spans) would take too much, the pieces have none, and components make them when
 * needed.
 *
 * `options` is that of br_walk; NULL for profiles. Returns 0 or BR_ENOMEM. */
int br_pieces_cut(struct br_reading *reading, const struct br_walk_options *options);

/* Frees pieces that were not sent. */
void br_pieces_free(struct br_list *pieces);

struct br_pieces;

/* Sends the pieces to the next component after `node`, one in each loop iteration, and finishes
 * `whole`, which was counted as received. Takes both. Adds the transfer to `sendings`, for
 * br_pieces_stop. */
void br_pieces_send(struct br_node *node, struct br_item *whole, struct br_list *pieces,
                    struct br_list *sendings);

/* Stops all transfers. Pieces that are not accepted yet are refused. */
void br_pieces_stop(struct br_list *sendings);
