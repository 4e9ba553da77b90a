/* SPDX-License-Identifier: Apache-2.0 */
/* The rings of the join's table and the buckets above them: eviction, and positions that wrap
 * around. */
#include "processors/join/table/ring.h"
#include "tests/support/fake_sink.h"
#include "tests/support/join_enter.h"
#include "tests/support/join_table_rig.h"
#include "tests/support/test.h"

/* Hashes differ with each run, so occasionally a bucket and its neighbour are full. This loses
 * at most a few of the thousands of spans here, usually none. */
#define FULL_BUCKETS_MAX 30

/* The spans evicted are the oldest ones of the same shard. */
static void the_oldest_are_evicted_first(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    enum { N = 20000 };
    for (uint64_t k = 1; k <= N; k++)
        table_rig_enter(t, 7, k, "GET /a/name/of/some/length", NOW + k / 100, &tally);
    struct join_stats s = table_rig_stats(t, NOW + N / 100);
    assert_int_equal(s.spans + tally.evicted, N);
    assert_true(s.bytes <= s.max_bytes);
    assert_true(s.max_bytes <= MIB);
    assert_true(tally.evicted > N / 4);
    assert_int_equal(table_rig_sum(tally.unknown) + table_rig_sum(tally.late), 0);
    /* Shards fill evenly. The remaining spans are therefore the newest ones, except for a small
     * margin. */
    struct seen seen = {0};
    uint64_t n_found = 0, n_lost = 0;
    for (uint64_t k = 1; k <= N; k++) {
        bool found = table_rig_look(t, 7, k, NOW + N / 100, &seen) == JOIN_FOUND;
        n_found += found;
        if (k <= tally.evicted / 2)
            assert_false(found);
        n_lost += k > N - s.spans / 2 && !found;
    }
    assert_int_equal(n_found, s.spans);
    assert_true(n_lost < FULL_BUCKETS_MAX);
    assert_int_equal(seen.n, n_found);
    join_table_free(t);
}

/* Records of every size wrap around the end of the ring many times. The unused space at the end
 * takes every size. */
static void records_of_every_size_wrap_around(void **state)
{
    (void)state;
    static char text[JOIN_ATTRIBUTES_BYTES_MAX];
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    uint64_t seed = 3;
    memset(text, 'x', sizeof text);
    uint64_t n = 0, entered_bytes = 0;
    for (; entered_bytes < 16u * MIB; n++) {
        struct ids i = table_rig_ids(1, n + 1);
        struct join_span s = table_rig_span(&i, "");
        s.name = (const uint8_t *)text;
        s.name_len = fake_random(&seed) % (JOIN_VALUE_MAX + 1);
        s.service = (const uint8_t *)text;
        s.service_len = fake_random(&seed) % (JOIN_VALUE_MAX + 1);
        s.attributes = (const uint8_t *)text;
        s.attributes_len = fake_random(&seed) % 8 ? fake_random(&seed) % 16
                                                  : fake_random(&seed) % (sizeof text + 1);
        enter_spans(t, &s, 1, 0, NULL, NOW, &tally);
        struct seen seen = {0};
        assert_int_equal(table_rig_look(t, 1, n + 1, NOW, &seen), JOIN_FOUND);
        assert_int_equal(strlen(seen.name), s.name_len);
        assert_int_equal(strlen(seen.service), s.service_len);
        entered_bytes += s.name_len + s.service_len + s.attributes_len;
    }
    assert_int_equal(table_rig_stats(t, NOW).spans + tally.evicted, n);
    join_table_free(t);
}

/* A bucket and its neighbour have room for twenty records. About 9,700 of the shortest records
 * in 20,000 slots fill some of them. The oldest span is then evicted although the ring has room,
 * and its record is dead. */
static void full_buckets_evict_their_oldest(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    enum { N = 100000, RECORD = 80 };
    uint64_t n_dead = 0;
    struct seen seen = {0};
    (void)table_rig_look(t, 0, 1, NOW, &seen); /* so that spans are indexed when they arrive */
    for (uint64_t k = 1; k <= N; k++) {
        struct ids i = table_rig_ids(1, k);
        struct join_span span = {.span_id = i.span};
        enter_spans(t, &span, 1, 0, NULL, NOW, &tally);
        struct join_stats s = table_rig_stats(t, NOW);
        assert_int_equal(s.spans + tally.evicted, k);
        n_dead += s.bytes / RECORD - s.spans;
    }
    assert_true(n_dead > 0);
    uint64_t n_found = 0;
    for (uint64_t k = 1; k <= N; k++)
        n_found += table_rig_look(t, 0, k, NOW, &seen) == JOIN_FOUND;
    assert_int_equal(n_found, table_rig_stats(t, NOW).spans);
    join_table_free(t);
}

/* Continues at a later position, after all spans have been evicted. */
static void skip_to(struct join_table *t, uint64_t position)
{
    for (unsigned k = 0; k < join_table_n_shards(t); k++) {
        struct shard *s = &t->shards[k];
        assert_true(s->head == s->tail && s->head < position);
        s->head = s->tail = position;
    }
}

/* Only the low bits of positions are stored, so the stored positions wrap around. In a family, this
 * happens after months. */
static void positions_wrap_around(void **state)
{
    (void)state;
    static const uint8_t service[] = "shop";
    for (unsigned bits = 44 + 3; bits <= 48 + 3; bits += 4) {
        struct join_table *t = table_rig_new(MIB);
        struct join_tally tally = {0};
        skip_to(t, (1ull << bits) - 2048);
        for (unsigned k = 0; k < join_table_n_shards(t); k++)
            t->shards[k].sweep_at = t->shards[k].head - SWEEP_BYTES;
        for (uint64_t n = 1; n <= 2000; n++) {
            struct ids i = table_rig_ids(1 + n / 8, n);
            struct join_span s = table_rig_span(&i, "x");
            struct seen seen = {0};
            enter_spans(t, &s, 1, 77, NULL, NOW, &tally);
            assert_int_equal(table_rig_look(t, 1 + n / 8, n, NOW, &seen), JOIN_FOUND);
            if (n % 8 == 7) {
                struct join_relative family[256];
                struct join_search more;
                unsigned size = join_table_family(t, i.trace, service, 4, 77, family, 256, &more);
                assert_int_equal(size, n == 7 ? 7 : 8);
            }
        }
        assert_int_equal(table_rig_stats(t, NOW).spans, 2000);
        join_table_free(t);
    }
}

/* Returns the bucket of a span's id. */
static const struct bucket *bucket_of(struct join_table *t, const struct ids *i)
{
    uint64_t hash = join_table_mix(t, br_load64(i->span));
    return join_slots_home(join_table_shard(t, hash), hash).bucket;
}

/* A bucket has room for ten records, so two of twelve are in its neighbour. If they are sent
 * again, the new records are found there, too, and not only the old ones. */
static void records_in_the_neighbour_are_found_when_sent_again(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    enum { N = WAYS + 2, FILLERS = 4500, FIRST_FILLER = 10000000 };
    struct ids first = table_rig_ids(1, 1);
    const struct bucket *bucket = bucket_of(t, &first);
    uint64_t ours[N], n = 0, filler = FIRST_FILLER;
    for (uint64_t k = 1; n < N; k++) {
        struct ids i = table_rig_ids(1, k);
        if (bucket_of(t, &i) == bucket)
            ours[n++] = k;
    }
    /* 88 bytes each; 8,600 of them fit */
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < N; i++)
            table_rig_enter(t, 1, ours[i], "a", NOW, &tally);
        for (unsigned i = 0; i < FILLERS;) {
            struct ids id = table_rig_ids(1, ++filler);
            const struct bucket *b = bucket_of(t, &id);
            if (b != bucket && b != bucket + 1 && b != bucket - 1) {
                table_rig_enter(t, 1, filler, "a", NOW, &tally);
                i++;
            }
        }
    }
    struct seen seen = {0};
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(table_rig_look(t, 1, ours[i], NOW, &seen), JOIN_FOUND);
    join_table_free(t);
}

static uint64_t live_slots(const struct join_table *t)
{
    uint64_t n = 0;
    for (unsigned k = 0; k < join_table_n_shards(t); k++) {
        const struct shard *s = &t->shards[k];
        for (uint64_t b = 0; b < s->n_buckets; b++)
            for (unsigned slot = 0; slot < WAYS; slot++)
                n += join_slots_live(s, &s->buckets[b], slot);
    }
    return n;
}

/* Positions in slots wrap around after 32 GiB, here in eight steps. An evicted record must not
 * seem to be present again when its position is that of another record, or is inside one. */
static void evicted_records_do_not_reappear(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    enum { STEPS = 40, N = 600 };
    for (uint64_t step = 0; step < STEPS; step++) {
        struct seen seen = {0};
        uint64_t now = NOW + step * 10 * WINDOW_MS;
        for (uint64_t k = step * N + 1; k <= (step + 1) * N; k++)
            table_rig_enter(t, 1, k, "a", now, &tally);
        assert_int_equal(table_rig_stats(t, now).spans, N);
        assert_int_equal(table_rig_look(t, 1, (step + 1) * N, now, &seen), JOIN_FOUND);
        assert_int_equal(table_rig_look(t, 1, step * N, now, &seen), JOIN_UNKNOWN);
        assert_int_equal(live_slots(t), N);
        join_table_expire(t, now + 5 * WINDOW_MS, &tally);
        assert_int_equal(table_rig_stats(t, now).spans, 0);
        skip_to(t, (step + 1) << 32 | RESERVED);
    }
    assert_int_equal(tally.evicted, 0);
    join_table_free(t);
}

/* Such a record takes 88 bytes, and 12/16 of 31/32 of the table are rings: 8,600 fit. */
static void expired_records_do_not_count_as_evicted(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    for (uint64_t k = 1; k <= 6000; k++)
        table_rig_enter(t, 1, k, "a", NOW, &tally);
    for (uint64_t k = 1; k <= 4500; k++)
        table_rig_enter(t, 2, 10000 + k, "a", NOW + WINDOW_MS + 200, &tally);
    assert_true(table_rig_stats(t, NOW).spans < 9000);
    assert_true(tally.evicted < FULL_BUCKETS_MAX);
    for (uint64_t k = 1; k <= 8000; k++)
        table_rig_enter(t, 3, 20000 + k, "a", NOW + WINDOW_MS + 200, &tally);
    assert_in_range(tally.evicted, 3000, 5500);
    uint64_t before = tally.evicted;
    while (join_table_expire(t, NOW + 9 * WINDOW_MS, &tally))
        ;
    assert_int_equal(tally.evicted, before);
    assert_int_equal(table_rig_stats(t, NOW).spans, 0);
    assert_int_equal(table_rig_stats(t, NOW).bytes, 0);
    join_table_free(t);
}

/* Returns the next number after `k` of a span that belongs to this bucket. */
static uint64_t next_at_home(struct join_table *t, const struct bucket *bucket, uint64_t k)
{
    for (;;) {
        struct ids i = table_rig_ids(7, ++k);
        uint64_t hash = join_table_mix(t, br_load64(i.span));
        if (join_slots_home(join_table_shard(t, hash), hash).bucket == bucket)
            return k;
    }
}

/* If a bucket is full of spans, a sample of another span is unknown at once, and only once. */
static void a_sample_without_a_slot_is_unknown_at_once(void **state)
{
    (void)state;
    struct join_table *t = table_rig_new(MIB);
    struct join_tally tally = {0};
    struct ids first = table_rig_ids(7, 1);
    uint64_t hash = join_table_mix(t, br_load64(first.span)), k = 0;
    const struct bucket *bucket = join_slots_home(join_table_shard(t, hash), hash).bucket;
    (void)table_rig_look(t, 0, 1, NOW,
                         &(struct seen){0}); /* so that spans are indexed when they arrive */
    for (unsigned n = 0; n < 2 * WAYS; n++)
        table_rig_enter(t, 7, k = next_at_home(t, bucket, k), "a", NOW, &tally);
    assert_int_equal(table_rig_stats(t, NOW).spans, 2 * WAYS);
    (void)table_rig_sample(t, 7, next_at_home(t, bucket, k), NOW, NULL, &tally);
    assert_int_equal(tally.unknown[1], 1);
    assert_int_equal(table_rig_stats(t, NOW).pending, 0);
    join_table_expire(t, NOW + 3 * WINDOW_MS, &tally);
    assert_int_equal(tally.unknown[1], 1);
    assert_int_equal(table_rig_stats(t, NOW).pending, 0);
    assert_int_equal(table_rig_stats(t, NOW).spans, 0);
    assert_int_equal(tally.evicted, 0);
    join_table_free(t);
}

SUITE(join_ring)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_oldest_are_evicted_first),
        cmocka_unit_test(records_of_every_size_wrap_around),
        cmocka_unit_test(full_buckets_evict_their_oldest),
        cmocka_unit_test(positions_wrap_around),
        cmocka_unit_test(records_in_the_neighbour_are_found_when_sent_again),
        cmocka_unit_test(evicted_records_do_not_reappear),
        cmocka_unit_test(expired_records_do_not_count_as_evicted),
        cmocka_unit_test(a_sample_without_a_slot_is_unknown_at_once),
    };
    return RUN_VARIANTS(tests, table_rig_way);
}
