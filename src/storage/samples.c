/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/samples.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/sum.h"
#include "storage/chunks.h"
#include "storage/stacks.h"

/* --- Writing --------------------------------------------------------------------------------- */

void br_sample_packer_release(struct br_sample_packer *packer)
{
    br_free(packer->place_of);
    br_free(packer->nodes);
    br_free(packer->sums);
    br_pack_release(&packer->totals);
    br_pack_release(&packer->samples);
    *packer = (struct br_sample_packer){.nodes = NULL};
}

static int samples_compare_traces(const uint8_t *left, const uint8_t *right)
{
    if (left == right)
        return 0;
    if (!left || !right)
        return left ? 1 : -1;
    return memcmp(left, right, 16);
}

static int samples_compare_spans(const struct br_sample_row *left,
                                 const struct br_sample_row *right)
{
    int traces = samples_compare_traces(left->trace_id, right->trace_id);
    if (traces || left->span_id == right->span_id)
        return traces;
    return left->span_id < right->span_id ? -1 : 1;
}

static int samples_compare(const void *left, const void *right)
{
    const struct br_sample_row *first = left, *second = right;
    if (first->series != second->series)
        return first->series < second->series ? -1 : 1;
    int spans = samples_compare_spans(first, second);
    if (spans)
        return spans;
    return (first->time_ns > second->time_ns) - (first->time_ns < second->time_ns);
}

void br_sample_rows_sort(struct br_sample_row *rows, size_t count)
{
    if (count)
        qsort(rows, count, sizeof *rows, samples_compare);
}

static int samples_compare_nodes(const void *left, const void *right)
{
    uint32_t first = *(const uint32_t *)left, second = *(const uint32_t *)right;
    return (first > second) - (first < second);
}

/* Makes room in the arrays of the packer for the sum of a new node. */
static bool samples_grow_sums(struct br_sample_packer *packer, uint32_t node)
{
    uint32_t before = packer->cap_places;
    size_t need = (size_t)packer->n_nodes + 1, max = BR_STACK_NODES_MAX + 1u;
    if (br_grow(&packer->place_of, &packer->cap_places, (size_t)node + 1, sizeof *packer->place_of,
                max))
        return false;
    memset(packer->place_of + before, 0,
           (size_t)(packer->cap_places - before) * sizeof *packer->place_of);
    return !br_grow(&packer->nodes, &packer->cap_nodes, need, sizeof *packer->nodes, max) &&
           !br_grow(&packer->sums, &packer->cap_sums, need, sizeof *packer->sums, max);
}

bool br_sample_packer_add(void *arg, uint32_t node, int64_t value)
{
    struct br_sample_packer *packer = arg;
    uint32_t place = node < packer->cap_places ? packer->place_of[node] : 0;
    if (place) {
        packer->sums[place - 1] = br_sum(packer->sums[place - 1], value);
        return true;
    }
    if (!samples_grow_sums(packer, node)) {
        packer->failed = true;
        return false;
    }
    packer->nodes[packer->n_nodes] = node;
    packer->sums[packer->n_nodes] = value;
    packer->place_of[node] = ++packer->n_nodes;
    return true;
}

/* Packs the nodes and their sums in the order of node numbers, and updates `place_of`. */
static void samples_pack_sums(struct br_sample_packer *packer)
{
    struct br_pack *totals = &packer->totals;
    uint32_t before = 0, count = packer->n_nodes;
    if (count)
        qsort(packer->nodes, count, sizeof *packer->nodes, samples_compare_nodes);
    br_pack_clear(totals);
    br_pack_varint(totals, count);
    for (uint32_t i = 0; i < count; i++) {
        br_pack_varint(totals, packer->nodes[i] - before);
        before = packer->nodes[i];
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *place = &packer->place_of[packer->nodes[i]];
        br_pack_signed(totals, packer->sums[*place - 1]);
        *place = i + 1;
    }
}

static void samples_forget_sums(struct br_sample_packer *packer)
{
    for (uint32_t i = 0; i < packer->n_nodes; i++)
        packer->place_of[packer->nodes[i]] = 0;
    packer->n_nodes = 0;
    packer->failed = false;
}

bool br_sample_packer_sum(struct br_sample_packer *packer)
{
    bool failed = packer->failed;
    samples_pack_sums(packer);
    samples_forget_sums(packer);
    return !failed && !packer->totals.failed;
}

static void samples_pack_spans(struct br_pack *pack, const struct br_sample_row *rows,
                               uint32_t count)
{
    uint32_t n_groups = 0;
    for (uint32_t i = 0; i < count; i++)
        n_groups += i == 0 || samples_compare_spans(&rows[i - 1], &rows[i]) != 0;
    br_pack_varint(pack, n_groups);
    for (uint32_t i = 0, next; i < count; i = next) {
        for (next = i + 1; next < count && !samples_compare_spans(&rows[i], &rows[next]); next++) {
        }
        br_pack_varint(pack, (uint64_t)(next - i) << 1 | (rows[i].trace_id != NULL));
        br_pack_bytes(pack, &rows[i].span_id, 8);
        if (rows[i].trace_id)
            br_pack_bytes(pack, rows[i].trace_id, 16);
    }
}

bool br_sample_rows_pack(struct br_sample_packer *packer, const struct br_sample_row *rows,
                         uint32_t count)
{
    struct br_pack *samples = &packer->samples;
    int64_t time_ns = 0;
    bool added = true;
    br_pack_clear(samples);
    for (uint32_t i = 0; i < count && added; i++)
        added = br_sample_packer_add(packer, rows[i].node, rows[i].value);
    if (!added) {
        samples_forget_sums(packer);
        return false;
    }
    samples_pack_sums(packer);
    br_pack_varint(samples, count);
    samples_pack_spans(samples, rows, count);
    for (uint32_t i = 0; i < count; i++)
        br_pack_varint(samples, packer->place_of[rows[i].node] - 1);
    for (uint32_t i = 0; i < count; i++)
        br_pack_signed(samples, rows[i].value);
    for (uint32_t i = 0; i < count; i++) {
        br_pack_signed(samples, (int64_t)((uint64_t)rows[i].time_ns - (uint64_t)time_ns));
        time_ns = rows[i].time_ns;
    }
    samples_forget_sums(packer);
    return !packer->totals.failed && !samples->failed;
}

/* --- Reading --------------------------------------------------------------------------------- */

bool br_sample_totals_read(const uint8_t *data, size_t len, br_sample_total_fn *fn, void *arg)
{
    struct br_unpack nodes = {.p = data, .end = br_mem_end(data, len)};
    uint64_t count = br_unpack_varint(&nodes), node = 0;
    if (nodes.failed || count > BR_STACK_NODES_MAX + 1u)
        return false;
    struct br_unpack sums = nodes;
    for (uint64_t i = 0; i < count; i++)
        (void)br_unpack_varint(&sums);
    for (uint64_t i = 0; i < count; i++) {
        node += br_unpack_varint(&nodes);
        int64_t sum = br_unpack_signed(&sums);
        if (nodes.failed || sums.failed || node > BR_STACK_NODES_MAX)
            return false;
        if (!fn(arg, (uint32_t)node, sum))
            return true;
    }
    return true;
}

struct samples_reading {
    struct br_unpack spans, nodes, values, times;
    uint32_t n_samples, n_groups, n_nodes;
    uint32_t *node_of;
};

static bool samples_begin(struct samples_reading *reading, const uint8_t *data, size_t len,
                          const uint8_t *totals, size_t totals_len)
{
    struct br_unpack nodes = {.p = totals, .end = totals + totals_len};
    struct br_unpack at = {.p = data, .end = br_mem_end(data, len)};
    uint64_t count = br_unpack_varint(&nodes), node = 0;
    if (nodes.failed || count > BR_CHUNK_SAMPLES)
        return false;
    reading->n_nodes = (uint32_t)count;
    for (uint32_t i = 0; i < count; i++) {
        node += br_unpack_varint(&nodes);
        reading->node_of[i] = (uint32_t)node;
        nodes.failed = nodes.failed || node > BR_STACK_NODES_MAX;
    }
    uint64_t n_samples = br_unpack_varint(&at), n_groups = br_unpack_varint(&at);
    if (nodes.failed || at.failed || n_samples > BR_CHUNK_SAMPLES || n_groups > n_samples)
        return false;
    reading->n_samples = (uint32_t)n_samples;
    reading->n_groups = (uint32_t)n_groups;
    reading->spans = at;
    for (uint32_t i = 0; i < reading->n_groups; i++)
        (void)br_unpack_bytes(&at, br_unpack_varint(&at) & 1 ? 24 : 8);
    reading->nodes = at;
    for (uint32_t i = 0; i < reading->n_samples; i++)
        (void)br_unpack_varint(&at);
    reading->values = at;
    for (uint32_t i = 0; i < reading->n_samples; i++)
        (void)br_unpack_varint(&at);
    reading->times = at;
    return !at.failed;
}

bool br_samples_read(const uint8_t *data, size_t len, const uint8_t *totals, size_t totals_len,
                     uint32_t *node_of, br_sample_span_fn *span, br_sample_fn *fn, void *arg)
{
    struct samples_reading reading = {.node_of = node_of};
    uint32_t n_read = 0;
    uint64_t time_ns = 0;
    if (!samples_begin(&reading, data, len, totals, totals_len))
        return false;
    for (uint32_t group = 0; group < reading.n_groups; group++) {
        struct br_sample_read sample = {.trace_id = NULL};
        uint64_t head = br_unpack_varint(&reading.spans), count = head >> 1;
        const uint8_t *id = br_unpack_bytes(&reading.spans, 8);
        if (!id || count > reading.n_samples - n_read)
            return false;
        memcpy(&sample.span_id, id, 8);
        sample.trace_id = head & 1 ? br_unpack_bytes(&reading.spans, 16) : NULL;
        bool wanted = !span || span(arg, sample.trace_id, sample.span_id);
        n_read += (uint32_t)count;
        for (; count; count--) {
            uint64_t place = br_unpack_varint(&reading.nodes);
            sample.value = br_unpack_signed(&reading.values);
            time_ns += (uint64_t)br_unpack_signed(&reading.times);
            sample.time_ns = (int64_t)time_ns;
            if (reading.times.failed || place >= reading.n_nodes)
                return false;
            sample.node = reading.node_of[place];
            if (wanted && !fn(arg, &sample))
                return true;
        }
    }
    return !reading.spans.failed;
}
