/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the walk over profiles: its rules for the dictionary and for samples. */
#include "base/mem.h"
#include "tests/support/fake_sink.h"
#include "tests/support/items.h"
#include "tests/support/test.h"
#include "tests/support/walk_check.h"

static int setup(void **state)
{
    return walk_check_setup(state, BR_PROFILES);
}

static int teardown(void **state)
{
    return walk_check_teardown(state);
}

enum { MAPPING = 1, LOCATION, FUNCTION, LINK, STRING, ATTRIBUTE, STACK };

/* Writes `n` empty entries of a table. If `apart`, each entry is in a separate dictionary
 * message. */
static void put_table(struct wire *w, uint32_t table, unsigned n, bool apart)
{
    size_t d = apart ? 0 : wire_open(w, 2);
    for (unsigned i = 0; i < n; i++) {
        if (apart)
            d = wire_open(w, 2);
        wire_len(w, table, NULL, 0);
        if (apart)
            wire_close(w, d);
    }
    if (!apart)
        wire_close(w, d);
}

/* --- Indices ---------------------------------------------------------------------------------- */

/* Every field that refers to a table entry (profiles.proto). Each row contains its path, and
 * whether the field is a list. */
static const struct reference {
    uint32_t path[6], field, table;
    bool list;
} references[] = {
    {{1, 2, 2, 1}, 1, STRING, false}, /* Profile.sample_type.type_strindex */
    {{1, 2, 2, 1}, 2, STRING, false}, /* .unit_strindex */
    {{1, 2, 2, 5}, 1, STRING, false}, /* Profile.period_type */
    {{1, 2, 2, 5}, 2, STRING, false},
    {{1, 2, 2}, 11, ATTRIBUTE, true},   /* Profile.attribute_indices */
    {{1, 2, 2, 2}, 1, STACK, false},    /* Sample.stack_index */
    {{1, 2, 2, 2}, 2, ATTRIBUTE, true}, /* .attribute_indices */
    {{1, 2, 2, 2}, 3, LINK, false},     /* .link_index */
    {{2, 1}, 4, STRING, false},         /* Mapping.filename_strindex */
    {{2, 1}, 5, ATTRIBUTE, true},
    {{2, 2}, 1, MAPPING, false}, /* Location.mapping_index */
    {{2, 2}, 4, ATTRIBUTE, true},
    {{2, 2, 3}, 1, FUNCTION, false}, /* Line.function_index */
    {{2, 3}, 1, STRING, false},      /* Function.name_strindex and so on */
    {{2, 3}, 2, STRING, false},
    {{2, 3}, 3, STRING, false},
    {{2, 6}, 1, STRING, false},       /* KeyValueAndUnit.key_strindex */
    {{2, 6}, 3, STRING, false},       /* .unit_strindex */
    {{2, 7}, 1, LOCATION, true},      /* Stack.location_indices */
    {{1, 1, 1}, 3, STRING, false},    /* KeyValue.key_strindex of a resource's attribute */
    {{1, 2, 1, 3}, 3, STRING, false}, /* KeyValue.key_strindex of a scope's attribute */
    {{1, 1, 1, 2}, 8, STRING, false}, /* AnyValue.string_value_strindex */
    {{2, 6, 2}, 8, STRING, false},    /* the same in an attribute of the table */
};

enum form { SINGLE, PACKED, TWICE };

static void put_reference(struct wire *w, const struct reference *r, uint64_t index, enum form form)
{
    size_t open[6];
    int n = 0;
    for (; n < 6 && r->path[n]; n++)
        open[n] = wire_open(w, r->path[n]);
    if (form == PACKED) {
        size_t list = wire_open(w, r->field);
        wire_number(w, 0);
        wire_number(w, index);
        wire_number(w, 0);
        wire_close(w, list);
    } else {
        wire_varint(w, r->field, index);
        if (form == TWICE)
            wire_varint(w, r->field, 0);
    }
    if (n == 4 && r->path[2] == 2 && r->path[3] == 2)
        wire_varint(w, 4, 1); /* a sample is only valid with a value */
    while (n > 0)
        wire_close(w, open[--n]);
}

static void check_reference(struct walk_check *c, size_t i, uint64_t index, unsigned entries,
                            enum form form, bool want)
{
    const struct reference *r = &references[i];
    /* the dictionary is after the reference, before it, or in many pieces */
    for (int order = 0; order < 3; order++) {
        struct wire w = {0};
        bool own = r->path[0] == 2 && r->path[1] == r->table; /* put_reference adds an entry */
        unsigned more = own && entries ? entries - 1 : entries;
        if (order == 1)
            put_table(&w, r->table, more, false);
        put_reference(&w, r, index, form);
        if (order != 1)
            put_table(&w, r->table, more, order == 2);
        if ((walk_check(c, &w) == 0) != want)
            fail_msg("reference %zu: index %llu, %u entries, form %d: %s", i,
                     (unsigned long long)index, entries, (int)form, c->err.text);
        if (want && more) /* a second, empty dictionary is not kept */
            assert_true(walk_check_writes(c, &w));
        else if (!want)
            assert_int_equal(c->err.code, BR_EINVAL);
        wire_free(&w);
    }
}

static void indices_refer_to_existing_entries(void **state)
{
    struct walk_check *c = *state;
    for (size_t i = 0; i < BR_COUNT(references); i++) {
        for (enum form form = SINGLE; form <= TWICE; form++) {
            if (form != SINGLE && !references[i].list)
                continue;
            /* index 0 means "not set" and is valid even without a table */
            check_reference(c, i, 0, 0, form, true);
            check_reference(c, i, 1, 0, form, false);
            check_reference(c, i, 2, 3, form, true);
            check_reference(c, i, 3, 3, form, false);
            check_reference(c, i, 299, 300, form, true);
            check_reference(c, i, 300, 300, form, false);
            check_reference(c, i, 0xffffffffu, 3, form, false);
            /* a negative int32, as it is encoded */
            check_reference(c, i, (uint64_t)-1, 3, form, false);
            check_reference(c, i, (uint64_t)INT32_MIN, 3, form, false);
            check_reference(c, i, (1ull << 32) + 1, 3, form, false);
        }
    }
}

static void each_index_is_checked_against_its_table(void **state)
{
    struct walk_check *c = *state;
    for (size_t i = 0; i < BR_COUNT(references); i++) {
        struct wire w = {0};
        for (uint32_t table = MAPPING; table <= STACK; table++)
            if (table != references[i].table)
                put_table(&w, table, 10, false);
        put_reference(&w, &references[i], 5, SINGLE);
        assert_int_equal(walk_check(c, &w), BR_EINVAL);
        wire_free(&w);
    }
}

static void errors_name_the_sample(void **state)
{
    struct walk_check *c = *state;
    struct wire w = {0};
    items_profiles(&w, 0, 3, 1);
    items_profiles(&w, 3, 2, 1);
    size_t rp = wire_open(&w, 1), scope = wire_open(&w, 2);
    wire_len(&w, 2, NULL, 0);
    size_t profile = wire_open(&w, 2);
    for (uint64_t i = 0; i < 3; i++) {
        size_t sample = wire_open(&w, 2);
        wire_varint(&w, 3, i * 100);
        wire_varint(&w, 4, 1);
        wire_close(&w, sample);
    }
    wire_close(&w, profile);
    wire_close(&w, scope);
    wire_close(&w, rp);
    assert_int_equal(walk_check(c, &w), BR_EINVAL);
    const char *want = "resource_profiles[2].scope_profiles[0].profiles[1].samples[1]: "
                       "a link index is outside the link table";
    assert_memory_equal(c->err.text, want, strlen(want));
    wire_free(&w);
}

/* --- Samples ---------------------------------------------------------------------------------- */

static void put_sample(struct wire *w, unsigned values, unsigned times, bool packed)
{
    size_t rp = wire_open(w, 1), scope = wire_open(w, 2), profile = wire_open(w, 2),
           sample = wire_open(w, 2), list;
    if (packed && values) {
        list = wire_open(w, 4);
        for (unsigned i = 0; i < values; i++)
            wire_number(w, i * 1000);
        wire_close(w, list);
    }
    for (unsigned i = 0; !packed && i < values; i++)
        wire_varint(w, 4, (uint64_t)-1 - i);
    if (packed && times) {
        list = wire_open(w, 5);
        for (uint64_t i = 0; i < times; i++)
            wire_raw(w, &i, 8);
        wire_close(w, list);
    }
    for (unsigned i = 0; !packed && i < times; i++)
        wire_i64(w, 5, i);
    wire_close(w, sample);
    wire_close(w, profile);
    wire_close(w, scope);
    wire_close(w, rp);
}

/* profiles.proto, Sample: values, or timestamps, or equal numbers of both. */
static void values_and_timestamps(void **state)
{
    struct walk_check *c = *state;
    for (unsigned values = 0; values < 5; values++) {
        for (unsigned times = 0; times < 5; times++) {
            for (int packed = 0; packed < 2; packed++) {
                struct wire w = {0};
                bool ok = values + times > 0 && (!values || !times || values == times);
                put_sample(&w, values, times, packed);
                assert_int_equal(walk_check(c, &w), ok ? 0 : BR_EINVAL);
                if (ok) {
                    assert_int_equal(c->item->n_records, 1);
                    assert_true(walk_check_writes(c, &w));
                }
                wire_free(&w);
            }
        }
    }
}

static void malformed_packed_lists(void **state)
{
    struct walk_check *c = *state;
    static const struct {
        uint32_t field;
        const char *bytes;
        size_t len;
    } cases[] = {
        {4, "\x80", 1}, {4, "\x01\xff", 2}, {2, "\x80", 1}, {5, "1234567", 7}, {5, "123456789", 9}};
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct wire w = {0};
        size_t rp = wire_open(&w, 1), scope = wire_open(&w, 2), profile = wire_open(&w, 2),
               sample = wire_open(&w, 2);
        wire_len(&w, cases[i].field, cases[i].bytes, cases[i].len);
        wire_varint(&w, 4, 1);
        wire_close(&w, sample);
        wire_close(&w, profile);
        wire_close(&w, scope);
        wire_close(&w, rp);
        assert_int_equal(walk_check(c, &w), BR_EINVAL);
        wire_free(&w);
    }
}

/* --- Valid dictionaries ----------------------------------------------------------------------- */

static void duplicates_and_orphans_are_valid(void **state)
{
    struct walk_check *c = *state;
    struct wire w = {0};
    size_t d = wire_open(&w, 2);
    for (int i = 0; i < 3; i++)
        wire_str(&w, 5, "the same");
    for (int i = 0; i < 3; i++)
        wire_len(&w, 3, NULL, 0);
    wire_str(&w, 5, "a string behind functions");
    wire_str(&w, 1000, "unknown");
    wire_close(&w, d);
    assert_int_equal(walk_check(c, &w), 0);
    assert_true(walk_check_writes(c, &w));
    wire_free(&w);
}

static void overlong_tags_and_lengths_count_as_entries(void **state)
{
    struct walk_check *c = *state;
    struct wire w = {0};
    /* Dictionary{functions: [{}, {name: 2}], strings: ["", "a", "b"]} with padded tags and
     * lengths. */
    static const uint8_t bytes[] = {
        0x12, 19,   0x9a, 0x00, 0x80, 0x00, /* function 0, with tag and length of two bytes */
        0x1a, 0x82, 0x00, 0x08, 0x02,       /* function 1, name 2 */
        0xaa, 0x80, 0x00, 0x00,             /* string 0, with a tag of three bytes */
        0x2a, 0x01, 'a',  0x2a, 0x81, 0x00, /* string 2 is cut off here: ... */
    };
    wire_raw(&w, bytes, sizeof bytes);
    assert_int_equal(walk_check(c, &w), BR_EINVAL);
    wire_byte(&w, 'b'); /* ... and completed here */
    w.data[1] = 20;
    assert_int_equal(walk_check(c, &w), 0);
    w.data[10] = 3; /* a name past the end of the strings */
    assert_int_equal(walk_check(c, &w), BR_EINVAL);
    wire_free(&w);
}

/* --- Memory of the previous dictionary -------------------------------------------------------- */

/* Dictionaries grow, shrink, repeat and become invalid. The walk must give the same result with and
 * without the memory of the previous dictionary. */
static void a_remembered_dictionary_does_not_change_the_result(void **state)
{
    struct walk_check *c = *state;
    static struct br_walk_memo memo;
    unsigned n_ok = 0, n_bad = 0;
    for (uint64_t seed = 1; seed < 20000; seed++) {
        uint64_t s = seed, base = fake_random(&s) % 4;
        struct wire w = {0};
        items_profiles(&w, base, (uint32_t)(fake_random(&s) % 5), 1);
        if (fake_random(&s) % 4 == 0)
            items_profiles(&w, base + 1, 2, 1);
        if (fake_random(&s) % 3 == 0) { /* more entries of a table */
            size_t d = wire_open(&w, 2);
            uint32_t table = (uint32_t)(fake_random(&s) % 7) + 1;
            for (uint64_t k = fake_random(&s) % 3; k > 0; k--)
                wire_len(&w, table, NULL, 0);
            wire_close(&w, d);
        }
        for (uint64_t k = fake_random(&s) % 3; k > 0; k--) /* damaged bytes */
            w.data[fake_random(&s) % w.len] = (uint8_t)(fake_random(&s) % 32);
        c->options.memo = NULL;
        c->options.utf8 = (enum br_utf8_policy)(seed / 5000 % 2);
        int plain = walk_check(c, &w);
        struct br_err err = c->err;
        uint32_t n = plain ? 0 : c->item->n_records;
        if (seed % 5000 == 0)
            /* the memory is only valid for requests with the same options */
            br_walk_memo_release(&memo);
        c->options.memo = &memo;
        int remembered = walk_check(c, &w);
        if (plain != remembered || (!plain && n != c->item->n_records) ||
            strcmp(err.text, c->err.text) != 0)
            fail_msg("seed %llu: %d %s, with memory %d %s", (unsigned long long)seed, plain,
                     err.text, remembered, c->err.text);
        n_ok += !plain;
        n_bad += plain != 0;
        wire_free(&w);
    }
    assert_true(n_ok > 1000 && n_bad > 1000);
    br_walk_memo_release(&memo);
    c->options.memo = NULL;
}

/* --- Size of resolved references -------------------------------------------------------------- */

#define LONG 100000u /* bytes of the string that all references name */

static void put_long_string(struct wire *w)
{
    char *text = malloc(LONG);
    assert_non_null(text);
    memset(text, 'x', LONG);
    size_t dictionary = wire_open(w, 2);
    wire_len(w, STRING, NULL, 0);
    wire_len(w, STRING, text, LONG);
    wire_close(w, dictionary);
    free(text);
}

/* Writes one reference to the long string, nested in messages of the fields in `path`. */
static void put_inlined(struct wire *w, const uint32_t *path, uint32_t field)
{
    size_t open[8];
    int n = 0;
    for (; path[n]; n++)
        open[n] = wire_open(w, path[n]);
    wire_varint(w, field, 1);
    while (n > 0)
        wire_close(w, open[--n]);
}

/* Walks a request with `n` references; the dictionary comes first or last. Returns the walk's
 * result. */
static int try_inlined(struct walk_check *c, const uint32_t *path, uint32_t field, unsigned n,
                       bool first, size_t *ret_len)
{
    struct wire w = {0};
    if (first)
        put_long_string(&w);
    for (unsigned i = 0; i < n; i++)
        put_inlined(&w, path, field);
    if (!first)
        put_long_string(&w);
    *ret_len = w.len;
    int rc = walk_check(c, &w);
    wire_free(&w);
    return rc;
}

static void the_size_of_resolved_references_is_limited(void **state)
{
    struct walk_check *c = *state;
    static const struct {
        uint32_t path[8], field;
    } places[] = {
        {{1, 1, 1}, 3},             /* the key of a resource's attribute */
        {{1, 1, 1, 2}, 8},          /* the value of a resource's attribute */
        {{1, 2, 1, 3}, 3},          /* the key of a scope's attribute */
        {{1, 2, 1, 3, 2}, 8},       /* the value of a scope's attribute */
        {{2, 6, 2}, 8},             /* a value in the attribute table */
        {{2, 6, 2, 5, 1, 5, 1}, 8}, /* a value in a list of lists */
        {{2, 6, 2, 6, 1}, 3},       /* the key of a map */
        {{1, 1, 1, 2, 6, 1, 2}, 8}, /* a value in a map */
    };
    for (size_t i = 0; i < BR_COUNT(places); i++) {
        /* the dictionary is last or first, and the walk has no memory or a memory */
        for (unsigned way = 0; way < 4; way++) {
            static struct br_walk_memo memo;
            unsigned n = 0;
            size_t len;
            c->options.memo = way / 2 ? &memo : NULL;
            while (try_inlined(c, places[i].path, places[i].field, n + 1, way % 2, &len) == 0)
                n++;
            /* Each reference adds the string and at most a tag and a length. */
            size_t most = BR_WALK_INLINE_TIMES * len + BR_WALK_INLINE_BYTES;
            assert_int_equal(n, most / (LONG + 6));
            assert_int_equal(c->err.code, BR_ETOOBIG);
            assert_string_equal(
                c->err.text,
                "request: references to strings would need too much memory when resolved");
        }
    }
}

/* References in functions stay references, so they do not count as resolved. */
static void functions_may_share_a_long_name(void **state)
{
    struct walk_check *c = *state;
    struct wire w = {0};
    put_long_string(&w);
    size_t dictionary = wire_open(&w, 2);
    for (unsigned i = 0; i < 10000; i++) {
        size_t function = wire_open(&w, FUNCTION);
        wire_varint(&w, 1, 1);
        wire_close(&w, function);
    }
    wire_close(&w, dictionary);
    assert_int_equal(walk_check(c, &w), 0);
    wire_free(&w);
}

/* The limit is 32,768 entries, and one more for every twelve of the 78,648 bytes of the request. */
static void the_number_of_entries_is_limited(void **state)
{
    struct walk_check *c = *state;
    const unsigned most = 39322;
    for (uint32_t table = MAPPING; table <= STACK; table++) {
        for (unsigned more = 0; more < 2; more++) {
            struct wire w = {0};
            put_table(&w, table, most + more, false);
            int rc = walk_check(c, &w);
            assert_int_equal(rc, more ? BR_ETOOBIG : 0);
            if (more)
                assert_string_equal(
                    c->err.text,
                    "request: too many dictionary entries for the size of the request");
            wire_free(&w);
        }
    }
}

SUITE(walk_profiles)
{
    const struct CMUnitTest tests[] = {
        TEST(indices_refer_to_existing_entries),
        TEST(each_index_is_checked_against_its_table),
        TEST(errors_name_the_sample),
        TEST(values_and_timestamps),
        TEST(malformed_packed_lists),
        TEST(duplicates_and_orphans_are_valid),
        TEST(overlong_tags_and_lengths_count_as_entries),
        TEST(a_remembered_dictionary_does_not_change_the_result),
        TEST(the_size_of_resolved_references_is_limited),
        TEST(functions_may_share_a_long_name),
        TEST(the_number_of_entries_is_limited),
    };
    return RUN(tests, NULL, NULL);
}
