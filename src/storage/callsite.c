/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/tree.h"

#include <string.h>

#include "base/mem.h"
#include "storage/samples.h"
#include "storage/stacks.h"

/* States of a node. A state ON_PATH + n means that the node's stack begins with the first n
 * names of the call site. */
enum { UNKNOWN, OUTSIDE, ON_PATH };

_Static_assert(ON_PATH + BR_CALL_SITE_MAX <= UINT16_MAX, "states hold each depth");

static bool callsite_grow(struct br_store_callsite *site, uint32_t node)
{
    uint32_t states = site->cap_states, words = site->cap_words;
    if (br_grow(&site->states, &site->cap_states, (size_t)node + 1, sizeof *site->states,
                BR_STACK_NODES_MAX) ||
        br_grow(&site->unknown.words, &site->cap_words, (size_t)node / 64 + 1,
                sizeof *site->unknown.words, BR_STACK_NODES_MAX / 64 + 1u))
        return false;
    memset(site->states + states, 0, (site->cap_states - states) * sizeof *site->states);
    memset(site->unknown.words + words, 0, (site->cap_words - words) * sizeof *site->unknown.words);
    site->n_states = site->cap_states;
    site->unknown.n_words = site->cap_words;
    return true;
}

static bool callsite_add_node(void *arg, uint32_t node, int64_t value)
{
    struct br_store_callsite *site = arg;
    (void)value;
    if ((node >= site->n_states || node / 64 >= site->unknown.n_words) &&
        !callsite_grow(site, node)) {
        site->no_memory = true;
        return false;
    }
    if (site->states[node] == UNKNOWN)
        site->unknown.words[node / 64] |= UINT64_C(1) << node % 64;
    return true;
}

static uint16_t callsite_state(const struct br_store_callsite *site,
                               const struct br_store_tree *tree, uint32_t node)
{
    uint32_t parent, function;
    if (!node)
        return ON_PATH;
    br_store_tree_node(tree, node, &parent, &function);
    uint16_t above = parent ? site->states[parent] : ON_PATH;
    size_t matched = (size_t)above - ON_PATH;
    if (above == OUTSIDE || matched == site->n_names)
        return above;
    return strcmp(br_store_tree_name(tree, function), site->names[matched]) == 0
               ? (uint16_t)(above + 1)
               : OUTSIDE;
}

/* Sets the states of the nodes in site->unknown. The parent of a node has a lower number and is
 * in site->unknown, too, so the parent is visited first. */
static void callsite_set_states(struct br_store_callsite *site, const struct br_store_tree *tree)
{
    for (uint32_t word = 0; word < site->unknown.n_words; word++) {
        for (uint64_t left = site->unknown.words[word]; left; left &= left - 1) {
            uint32_t node = 64 * word + (uint32_t)__builtin_ctzll(left);
            site->states[node] = callsite_state(site, tree, node);
        }
        site->unknown.words[word] = 0;
    }
}

int br_store_callsite_load(struct br_store_callsite *site, struct br_store_query *query,
                           struct br_store_view *view, const uint8_t *totals, size_t totals_len,
                           struct br_err *err)
{
    bool whole;
    if (site->view != view && site->n_states)
        memset(site->states, 0, site->n_states * sizeof *site->states);
    site->view = view;
    /* the caller reads the totals of the chunk as well, and reports damage */
    (void)br_sample_totals_read(totals, totals_len, callsite_add_node, site);
    if (site->no_memory)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    int rc = br_store_tree_load(query, view, &site->unknown, &whole, err);
    if (!rc && whole)
        callsite_set_states(site, view->reader->tree);
    else if (site->unknown.n_words)
        memset(site->unknown.words, 0, site->unknown.n_words * sizeof *site->unknown.words);
    return rc;
}

bool br_store_callsite_has(const struct br_store_callsite *site, uint32_t node)
{
    return node < site->n_states && site->states[node] == ON_PATH + site->n_names;
}

void br_store_callsite_release(struct br_store_callsite *site)
{
    br_free(site->states);
    br_free(site->unknown.words);
}
