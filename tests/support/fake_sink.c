/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/fake_sink.h"

#include "base/mem.h"
#include "tests/support/items.h"
#include "tests/support/test.h"

/* An item that the sink finishes later. */
struct held {
    struct br_list link;
    struct fake_sink *sink;
    struct br_item *item;
    struct br_timer timer;
    enum fake_verdict verdict;
};

uint64_t fake_random(uint64_t *seed)
{
    uint64_t x = *seed += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

struct br_node fake_node(struct br_host *h)
{
    static const struct br_component component = {.name = "test", .kind = BR_EXPORTER};
    return (struct br_node){.component = &component,
                            .id = "test",
                            .host = h,
                            .log.name = "test",
                            .in_pipeline = {true, true}};
}

static void on_tally(struct br_item *item, void *arg)
{
    struct fake_tally *t = arg;
    t->n++;
    t->n_done += item->outcome.verdict == BR_DONE;
    t->n_retry += item->outcome.verdict == BR_RETRY;
    t->n_reject += item->outcome.verdict == BR_REJECT;
    t->last = item->outcome;
}

struct br_item *fake_tally_item(struct fake_tally *t, struct br_host *h, enum br_signal signal,
                                uint64_t first, uint32_t n)
{
    struct br_item *item = items_new(h, signal, first, n);
    if (item) {
        item->done = on_tally;
        item->done_arg = t;
    }
    return item;
}

/* Returns the bytes of an item, in the C library's memory. */
static uint8_t *flatten(const struct br_item *item, size_t *ret_len)
{
    struct wire w = {0};
    struct br_rope rope = {0};
    bool edited = false;
    for (uint32_t i = 0; i < item->n_parts; i++)
        edited = edited || item->parts[i].new_resource;
    if (edited && br_item_write(item, &rope) == 0)
        for (uint32_t i = 0; i < rope.count; i++)
            wire_raw(&w, rope.slices[i].data, rope.slices[i].len);
    /* this loop does not allocate with br_malloc */
    for (uint32_t i = 0; !edited && i < item->n_parts; i++)
        wire_raw(&w, item->parts[i].raw, item->parts[i].raw_len);
    br_rope_release(&rope);
    *ret_len = w.len;
    return w.data;
}

/* Returns the numbers of the records of an item (items.h). The array is valid until the next
 * call. */
static const uint64_t *numbers_of(const struct br_item *item, size_t *ret_n)
{
    static uint64_t numbers[FAKE_SINK_NUMBERS];
    size_t len;
    uint8_t *data = flatten(item, &len);
    *ret_n = items_numbers(item->signal, data, len, numbers, FAKE_SINK_NUMBERS);
    free(data);
    assert_true(*ret_n <= FAKE_SINK_NUMBERS);
    return numbers;
}

static void count(uint8_t *counts, const struct br_item *item)
{
    size_t n;
    const uint64_t *numbers = numbers_of(item, &n);
    for (size_t i = 0; i < n; i++) {
        assert_true(numbers[i] < FAKE_SINK_NUMBERS);
        if (counts[numbers[i]] < 255)
            counts[numbers[i]]++;
    }
}

static bool too_large(const struct fake_sink *s, const struct br_item *item)
{
    size_t n = 0;
    const uint64_t *numbers = s->n_giants ? numbers_of(item, &n) : NULL;
    for (size_t i = 0; i < n; i++)
        if (numbers[i] >= s->giant && numbers[i] - s->giant < s->n_giants)
            return true;
    return item->n_records > s->limit;
}

static void finish(struct fake_sink *s, struct br_item *item, enum fake_verdict verdict)
{
    if (verdict == FAKE_TOO_LARGE && too_large(s, item)) {
        s->n_reject++;
        br_item_reject(item, BR_STATUS_RESOURCE_EXHAUSTED, "scripted: too large");
    } else if (verdict == FAKE_RETRY) {
        s->n_retry++;
        br_item_retry(item, BR_STATUS_UNAVAILABLE, s->delay_ms, "scripted: retry");
    } else if (verdict == FAKE_REJECT) {
        s->n_reject++;
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT, "scripted: reject");
    } else {
        s->n_done++;
        count(s->delivered[item->signal], item);
        struct br_outcome o = {.verdict = BR_DONE, .n_rejected = s->n_rejected};
        br_item_finish(item, &o);
    }
}

static void end_held(struct held *h, enum fake_verdict verdict)
{
    struct fake_sink *s = h->sink;
    struct br_item *item = h->item;
    br_list_remove(&h->link);
    br_host_timer_stop(s->host, &h->timer);
    s->n_held--;
    free(h);
    finish(s, item, verdict);
}

static void on_late(struct br_timer *t)
{
    struct held *h = br_container_of(t, struct held, timer);
    end_held(h, h->verdict);
}

static void hold(struct fake_sink *s, struct br_item *item, enum fake_verdict then, bool timed)
{
    struct held *h = calloc(1, sizeof *h);
    if (!h)
        abort();
    *h = (struct held){.sink = s, .item = item, .verdict = then};
    br_list_append(&s->held, &h->link);
    s->n_held++;
    if (timed && !br_host_timer(s->host, &h->timer, s->late_ms, on_late))
        end_held(h, then);
}

static void consume(struct br_consumer *self, struct br_item *item)
{
    struct fake_sink *s = br_container_of(self, struct fake_sink, consumer);
    enum fake_verdict verdict = s->verdict;
    assert_false(s->closed);
    assert_int_equal(item->state, BR_ITEM_OPEN);
    s->n_items++;
    s->last_ms = br_host_mono_ms(s->host);
    if (item->n_records > s->largest)
        s->largest = item->n_records;
    if (item->size > s->largest_size)
        s->largest_size = item->size;
    count(s->seen[item->signal], item);
    if (s->first_fail) {
        s->first_fail--;
        finish(s, item, FAKE_RETRY);
        return;
    }
    if (verdict == FAKE_RANDOM) {
        static const enum fake_verdict now[] = {FAKE_DONE, FAKE_DONE, FAKE_RETRY, FAKE_REJECT};
        uint64_t r = fake_random(&s->seed);
        enum fake_verdict then = now[r % 4];
        if (r & 4)
            hold(s, item, then, true);
        else
            finish(s, item, then);
    } else if (verdict == FAKE_LATE) {
        hold(s, item, FAKE_DONE, true);
    } else if (verdict == FAKE_HOLD) {
        hold(s, item, FAKE_DONE, false);
    } else {
        finish(s, item, verdict);
    }
}

void fake_sink_init(struct fake_sink *s, struct br_host *h)
{
    *s = (struct fake_sink){.consumer.consume = consume, .host = h, .late_ms = 50};
    br_list_init(&s->held);
    for (int i = 0; i < BR_SIGNALS; i++) {
        s->delivered[i] = calloc(FAKE_SINK_NUMBERS, 1);
        s->seen[i] = calloc(FAKE_SINK_NUMBERS, 1);
        if (!s->delivered[i] || !s->seen[i])
            abort();
    }
}

void fake_sink_release_one(struct fake_sink *s, enum fake_verdict verdict)
{
    if (!br_list_empty(&s->held))
        end_held(br_container_of(s->held.next, struct held, link), verdict);
}

void fake_sink_release(struct fake_sink *s, enum fake_verdict verdict)
{
    while (!br_list_empty(&s->held))
        fake_sink_release_one(s, verdict);
}

void fake_sink_free(struct fake_sink *s)
{
    fake_sink_release(s, FAKE_RETRY);
    for (int i = 0; i < BR_SIGNALS; i++) {
        free(s->delivered[i]);
        free(s->seen[i]);
    }
}

size_t fake_sink_once(const struct fake_sink *s, enum br_signal signal, uint64_t first, size_t n)
{
    size_t once = 0;
    for (size_t i = 0; i < n; i++)
        once += s->delivered[signal][first + i] == 1;
    return once;
}

size_t fake_sink_twice(const struct fake_sink *s, enum br_signal signal)
{
    size_t twice = 0;
    for (size_t i = 0; i < FAKE_SINK_NUMBERS; i++)
        twice += s->delivered[signal][i] > 1;
    return twice;
}

void fake_bed_begin(struct fake_bed *bed)
{
    *bed = (struct fake_bed){.h = fake_host_new()};
    fake_sink_init(&bed->sink, &bed->h->host);
    bed->node = fake_node(&bed->h->host);
}

void fake_bed_end(struct fake_bed *bed)
{
    fake_sink_free(&bed->sink);
    fake_host_iterate(bed->h);
    fake_host_check_ledger(bed->h);
    fake_host_free(bed->h);
}
