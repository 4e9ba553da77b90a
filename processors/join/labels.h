/* SPDX-License-Identifier: Apache-2.0 */
/* What the entries of a dictionary's attribute table mean to the join: ids, threads and processes,
 * and what it adds itself. */
#pragma once

#include "config/option.h"
#include "otlp/dictionary.h"
#include "processors/join/identity.h"

struct join_label_names {
    struct br_strings span_id, trace_id; /* the first of a list wins */
    const char *const *own;              /* the keys that joined samples get */
    size_t n_own;
};

enum join_label_kind { JOIN_LABEL_NONE, JOIN_LABEL_SPAN_ID, JOIN_LABEL_TRACE_ID, JOIN_LABEL_OWN };

struct join_label {
    uint8_t kind;   /* enum join_label_kind */
    uint8_t number; /* of its name in the list */
    uint8_t where;  /* enum join_where, beside its kind */
    uint8_t id[16]; /* 8 of them for a span */
    uint32_t hash;  /* of what it says there */
};

/* Reads the attribute table: one label for each entry, in `arena`. Ids are hex of any case with
 * white space around it, short ones padded with zeros on the left and long ones without the zeros
 * there; bytes of the right length; or, for spans, an integer with the id's 64 bits. Zero is no id.
 * `*ret_any` says whether any label has a kind or says where. Returns NULL when there is no memory.
 */
struct join_label *join_labels_read(struct join_texts *texts, const struct join_label_names *names,
                                    struct br_arena *arena, bool *ret_any);
