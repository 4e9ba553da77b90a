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
/* Items of more than this number of bytes are cut. Processing 1 MiB of spans takes about half a
 * millisecond, and cutting copies them. Samples are small, and each piece of them has a
 * dictionary. */
#define BR_PIECES_FROM_TRACES (1u << 20)
#define BR_PIECES_FROM_PROFILES (512u << 10)
#define BR_PIECE_SPAN_BYTES 256u /* minimum size that counts for a span, in bytes */
/* minimum size that counts for a sample, in bytes; a small sample takes as much time as a larger
 * one */
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
 * All pieces together may take, within the memory budget:
 * - pieces of profiles below 1 MiB: three times the item's size;
 * - pieces of profiles from 1 MiB on: four times the item's size;
 * - pieces of traces: twice the item's size, or three times with lists of spans.
 *
 * If the pieces would exceed the limit, larger pieces are made. Above 1 MiB they have fewer
 * records in proportion. If two halves would still exceed the limit, the item is not cut. If
 * lists of spans (options->spans) would exceed the limit, the pieces have no lists, and
 * components make them when needed.
 *
 * `options` is that of br_walk; NULL for profiles. Returns 0 or BR_ENOMEM. */
int br_pieces_cut(struct br_reading *reading, const struct br_walk_options *options);

/* Frees pieces that were not sent. */
void br_pieces_free(struct br_list *pieces);

struct br_pieces;

/* Sends the pieces to the next component after `node`, one in each loop iteration, and finishes
 * `whole`, which was counted as received. Takes `whole` and the pieces. Adds the transfer to the
 * list `sendings`, for br_pieces_stop. */
void br_pieces_send(struct br_node *node, struct br_item *whole, struct br_list *pieces,
                    struct br_list *sendings);

/* Stops all transfers. Pieces that are not accepted yet are refused. */
void br_pieces_stop(struct br_list *sendings);
