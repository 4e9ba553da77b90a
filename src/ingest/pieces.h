/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends a large item in pieces. The processors of a pipeline work on an item in one call; a piece
 * of 256 KiB takes them a millisecond or three, and between two pieces the worker serves others.
 * What it takes is in spans and samples as much as in bytes, so that small ones count as larger.
 *
 * The pieces are children of the whole, which has no parts of its own and ends when the last of
 * them has. While nothing has been taken yet, a refusal is that of the whole, and the rest is not
 * sent on. After that a piece that is refused is tried again, and what was taken is not sent a
 * second time. A piece that is refused for good, or is still refused after BR_PIECES_RETRY_MS,
 * is the rejected part of a success (OTLP, "Partial Success"): the sender is told how much, and
 * why. To be told to send the whole again would double what was taken, each time anew for as long
 * as the destination is too slow. The patience is the time limit of the SDKs: who has given up by
 * then sends it again anyway. Only at the end of the process, which comes once, the whole is
 * refused.
 */
#pragma once

#include "ingest/reading.h"
#include "pipeline/component.h"

#define BR_PIECE_BYTES (256u << 10)
/* What is larger is cut. Spans are a matter of half a millisecond in 1 MiB, and cutting copies
 * them; samples are small, and each piece of them has a dictionary of its own. */
#define BR_PIECES_FROM_TRACES (1u << 20)
#define BR_PIECES_FROM_PROFILES (512u << 10)
#define BR_PIECE_SPAN_BYTES 256u   /* what a span counts at least, */
#define BR_PIECE_SAMPLE_BYTES 256u /* and a sample: small ones cost as much work */
#define BR_PIECES_RETRY_MS 10000

/* Returns the bytes of such an item that are not cut yet, whatever they count. */
size_t br_pieces_from(enum br_signal signal);

/* Returns true when br_pieces_cut has something to cut. */
bool br_pieces_wanted(const struct br_item *item);

/* Cuts r->item, which has spans or samples, where it counts more than br_pieces_from:
 * afterwards it is the whole, without parts, and r->pieces are its pieces. Each piece of a profiles
 * item has a dictionary of its own. Where pieces below 1 MiB would take more than three times the
 * item's size, larger ones more than four times, those of traces more than twice (and once more
 * with lists of spans), or either more than the memory budget has, they are made larger, above 1
 * MiB with fewer items in proportion; where halves would, the item stays as it is, and so does one
 * that has pieces. Where lists of spans (options->spans) would take too much, pieces have none:
 * whoever wants one makes it. `options` is as br_walk's; of profiles NULL. Returns 0 or BR_ENOMEM.
 */
int br_pieces_cut(struct br_reading *reading, const struct br_walk_options *options);

/* Frees pieces that were not sent. */
void br_pieces_free(struct br_list *pieces);

struct br_pieces;

/* Sends the pieces to what follows `node`, one each turn, and finishes `whole`, which is in the
 * ledger. Takes both. The sending is put into `sendings`, for br_pieces_stop. */
void br_pieces_send(struct br_node *node, struct br_item *whole, struct br_list *pieces,
                    struct br_list *sendings);

/* Gives up what is being sent: what is not taken yet is refused. */
void br_pieces_stop(struct br_list *sendings);
