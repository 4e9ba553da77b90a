/* SPDX-License-Identifier: Apache-2.0 */
/* Prints maps as text: keys are sorted, the last of equal keys counts, and large maps have
 * bounded costs. */
#include "attribute/value.h"
#include "base/steps.h"
#include "tests/support/mem_meter.h"
#include "tests/support/test.h"
#include "tests/support/wire.h"

#define MIB (1u << 20)

static void put_entry(struct wire *map, const char *key, size_t key_len, int number)
{
    uint8_t entry[64] = {0x0a, (uint8_t)key_len}, *p = entry + 2;
    memcpy(p, key, key_len);
    p += key_len;
    if (number >= 0) {
        uint8_t value[] = {0x12, 3, 0x18, (uint8_t)(number | 0x80), (uint8_t)(number >> 7)};
        memcpy(p, value, sizeof value);
        p += sizeof value;
    }
    uint8_t head[] = {0x0a, (uint8_t)(p - entry)};
    wire_raw(map, head, 2);
    wire_raw(map, entry, (size_t)(p - entry));
}

static void write_map(const struct wire *map, struct br_arena *arena, struct br_str *out)
{
    struct br_any any = {.type = BR_VALUE_MAP, .data = map->data, .len = map->len};
    br_value_text(out, &any, arena);
}

static void small_maps(void **state)
{
    (void)state;
    static const struct {
        const char *keys[6], *text;
    } cases[] = {
        {{NULL}, "{}"},
        {{""}, "{\"\":0}"},
        {{"", ""}, "{\"\":1}"},
        {{"a", "", "a"}, "{\"\":1,\"a\":2}"},
        {{"b", "a"}, "{\"a\":1,\"b\":0}"},
        {{"ab", "a", "b", "ab", "a"}, "{\"a\":4,\"ab\":3,\"b\":2}"},
        {{"k", "k", "k", "k", "k", "k"}, "{\"k\":5}"},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_arena arena = {0};
        struct wire map = {0};
        struct br_str out = {0};
        for (int j = 0; j < 6 && cases[i].keys[j]; j++)
            put_entry(&map, cases[i].keys[j], strlen(cases[i].keys[j]), j);
        write_map(&map, &arena, &out);
        assert_string_equal(out.data, cases[i].text);
        br_str_release(&out);
        free(map.data);
        br_arena_release(&arena);
    }
}

/* Compares random maps with a simple method that searches for each key in turn. Keys have up to
 * three letters, and each letter has one of two values. */
static void random_maps(void **state)
{
    (void)state;
    static const char *const keys[] = {"",  "a",  "aa",  "aaa", "aab", "ab",  "aba", "abb",
                                       "b", "ba", "baa", "bab", "bb",  "bba", "bbb"};
    uint32_t seed = 1;
    for (int round = 0; round < 2000; round++) {
        struct br_arena arena = {0};
        struct wire map = {0};
        struct br_str out = {0}, want = {0};
        int last[BR_COUNT(keys)];
        memset(last, -1, sizeof last);
        for (int i = 0; i < round % 40; i++) {
            seed = seed * 1664525 + 1013904223;
            size_t key = (seed >> 16) % BR_COUNT(keys);
            last[key] = i;
            put_entry(&map, keys[key], strlen(keys[key]), i);
        }
        for (size_t key = 0; key < BR_COUNT(keys); key++)
            if (last[key] >= 0)
                br_str_printf(&want, "%s\"%s\":%d", want.len ? "," : "{", keys[key], last[key]);
        br_str_puts(&want, want.len ? "}" : "{}");
        write_map(&map, &arena, &out);
        assert_string_equal(out.data, want.data);
        br_str_release(&out);
        br_str_release(&want);
        free(map.data);
        br_arena_release(&arena);
    }
}

/* Prints maps of 1 MiB without values. Their keys have `digits` letters and descend. */
static void large_maps(void **state)
{
    (void)state;
    for (size_t digits = 0; digits < 9; digits++) {
        struct br_arena arena = {0};
        struct wire map = {0};
        struct br_str out = {0};
        for (uint32_t i = UINT32_MAX; map.len < MIB; i--) {
            char key[9];
            (void)snprintf(key, sizeof key, "%08x", i);
            put_entry(&map, key + 8 - digits, digits, -1);
        }
        uint64_t steps = br_steps();
        mem_meter = (struct mem_meter){0};
        br_mem_set_hooks(&mem_meter_hooks);
        br_arena_init(&arena, 0);
        br_str_clear(&out);
        write_map(&map, &arena, &out);
        size_t peak = mem_meter.peak, n_text = out.cap * 3 / 2; /* the text grows by doubling */
        assert_false(out.failed);
        br_str_release(&out);
        br_arena_release(&arena);
        br_mem_set_hooks(NULL);
        if (peak > n_text + MIB + MIB / 4 + 65536)
            fail_msg("%zu digits: %zu bytes", digits, peak);
        assert_true(br_steps() - steps < 32 * (uint64_t)map.len);
        free(map.data);
    }
}

SUITE(value_text)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_maps),
        cmocka_unit_test(random_maps),
        cmocka_unit_test(large_maps),
    };
    return RUN(tests, NULL, NULL);
}
