/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the fuzz targets on their seeds and on earlier findings, without libFuzzer. */
#include "tests/support/corpus.h"
#include "tests/support/fake_sink.h"
#include "tests/support/h2_check.h"
#include "tests/support/profile_fuzz.h"
#include "tests/support/test.h"
#include "tests/support/walk_fuzz.h"

static void one_traces(const uint8_t *data, size_t len)
{
    walk_fuzz(BR_TRACES, data, len);
}

static void one_profiles(const uint8_t *data, size_t len)
{
    walk_fuzz(BR_PROFILES, data, len);
}

static void traces(void **state)
{
    (void)state;
    assert_true(corpus_replay("traces", one_traces) >= 4);
}

static void profiles(void **state)
{
    (void)state;
    assert_true(corpus_replay("profiles", one_profiles) >= 3);
}

static void grpc(void **state)
{
    (void)state;
    assert_true(corpus_replay("grpc", h2_fuzz) >= 7);
}

static void one_pprof(const uint8_t *data, size_t len)
{
    profile_fuzz(br_pprof_read, data, len);
}

static void pprof(void **state)
{
    (void)state;
    assert_true(corpus_replay("pprof", one_pprof) >= 10);
}

/* Changes, moves and cuts the bytes of each seed: a short fuzzing run in every test run. */
static void (*mutated)(const uint8_t *data, size_t len);

static void mutate(const uint8_t *data, size_t len)
{
    uint64_t seed = len;
    for (int round = 0; round < 400 && len; round++) {
        uint8_t *copy = malloc(len);
        memcpy(copy, data, len);
        for (uint64_t k = fake_random(&seed) % 4 + 1; k > 0; k--) {
            uint64_t r = fake_random(&seed);
            if (r >> 62)
                copy[r % len] = (uint8_t)(r >> 32);
            else
                copy[r % len] ^= (uint8_t)(1u << (r >> 32) % 8);
        }
        mutated(copy, round % 3 ? len : fake_random(&seed) % len + 1);
        free(copy);
    }
}

static void mutated_traces(void **state)
{
    (void)state;
    mutated = one_traces;
    corpus_replay("traces", mutate);
}

static void mutated_profiles(void **state)
{
    (void)state;
    mutated = one_profiles;
    corpus_replay("profiles", mutate);
}

static void mutated_grpc(void **state)
{
    (void)state;
    mutated = h2_fuzz;
    corpus_replay("grpc", mutate);
}

static void mutated_pprof(void **state)
{
    (void)state;
    mutated = one_pprof;
    corpus_replay("pprof", mutate);
}

SUITE(corpus)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traces),         cmocka_unit_test(profiles),
        cmocka_unit_test(grpc),           cmocka_unit_test(pprof),
        cmocka_unit_test(mutated_traces), cmocka_unit_test(mutated_profiles),
        cmocka_unit_test(mutated_grpc),   cmocka_unit_test(mutated_pprof),
    };
    return RUN(tests, NULL, NULL);
}
