/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends a large item in pieces. The processors of a pipeline work on an item in one call. For a
 * piece of 256 KiB, processors need one to three milliseconds, and between two pieces the worker
 * serves other connections. The processing time depends on the number of records as much as on
 * bytes, so a record of few bytes counts as 256 bytes.
 *
 * The pieces are children of the whole item. The whole item then has no parts, and ends when the
 * last piece has ended.
 * - If a piece is refused before any piece was accepted, the whole item is refused, and the other
 * pieces are not sent.
 * - If a piece is refused after another was accepted, it is retried. Accepted pieces are not sent
 * again.
 * - If a piece is rejected, or is still refused after BR_PIECES_RETRY_MS, it becomes the rejected
 * part of a success (OTLP, "Partial Success"). The sender is informed how much was rejected and
 * why.
 *
 * If the sender were asked to send the whole item again, the accepted pieces would be delivered
 * twice. The accepted pieces would be delivered again for as long as the destination is too slow.
 * BR_PIECES_RETRY_MS equals the export timeout of the SDKs, after which a client sends the item
 * again anyway. Only at shutdown is the whole item refused although pieces were accepted.
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
#define BR_PIECE_SPAN_BYTES 256u /* a span that has fewer bytes counts as this number of bytes */
/* a sample that has fewer bytes counts as this number of bytes, because processing it takes as
 * much time */
#define BR_PIECE_SAMPLE_BYTES 256u
#define BR_PIECES_RETRY_MS 10000

/* Returns the size in bytes up to which an item of the signal is not cut. */
size_t br_pieces_from(enum br_signal signal);

/* Returns true if br_pieces_cut would cut the item. */
bool br_pieces_wanted(const struct br_item *item);

/* Cuts `reading->item`, which has records, if it counts as more than br_pieces_from bytes and
 * has not been cut yet. Afterwards the item has no parts, and `reading->pieces` contains its
 * pieces. Each piece of a profiles item has a dictionary.
 *
 * All pieces together may take, within the memory budget:
 * - pieces of profiles below 1 MiB: three times the item's size;
 * - pieces of profiles from 1 MiB on: four times the item's size;
 * - pieces of traces: twice the item's size, or three times with lists of spans.
 *
 * If the pieces would exceed the limit, larger pieces are made. Above 1 MiB, pieces have fewer
 * records in proportion to their size. If one half of the item would still exceed the limit, the
 * item is not cut. If lists of spans (options->spans) would exceed the limit, the pieces have no
 * lists, and components make the lists when they need them.
 *
 * `options` is the argument for br_walk; NULL for profiles. Returns 0 or BR_ENOMEM. */
int br_pieces_cut(struct br_reading *reading, const struct br_walk_options *options);

/* Frees pieces that were not sent. */
void br_pieces_free(struct br_list *pieces);

struct br_pieces;

/* Sends the pieces to the next component after `node`, one in each loop iteration. Finishes
 * `whole`, which was counted as received, after the last piece. Takes `whole` and the pieces.
 * Adds the transfer to the list `sendings`, for br_pieces_stop. */
void br_pieces_send(struct br_node *node, struct br_item *whole, struct br_list *pieces,
                    struct br_list *sendings);

/* Stops all transfers in the list. Pieces that have not been accepted yet are refused. */
void br_pieces_stop(struct br_list *sendings);
