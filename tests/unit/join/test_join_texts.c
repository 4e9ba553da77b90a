/* SPDX-License-Identifier: Apache-2.0 */
/* Many entries refer to one long text, which is read once. The results are the same as for short
 * texts. */
#include "base/mem.h"
#include "base/steps.h"
#include "processors/join/join.h"
#include "processors/join/sample_view.h"
#include "tests/support/test.h"
#include "tests/support/wire.h"

#define LONG 100000u
#define REFERENCES 1000u

enum { KEY = 1, LONG_TEXT = 2, STRINGS = 3 }; /* indices in the string table */

/* A dictionary with a long text, and tables of equal entries. */
struct made {
    struct br_arena arena;
    struct br_dictionary_view view;
    struct join_table *table;
    char *text;
};

static void make_strings(struct made *m, const char *key)
{
    struct br_entry *strings = br_arena_calloc(&m->arena, STRINGS, sizeof *strings);
    strings[KEY] = (struct br_entry){(const uint8_t *)key, (uint32_t)strlen(key)};
    strings[LONG_TEXT] = (struct br_entry){(const uint8_t *)m->text, LONG};
    m->view.tables[BR_TABLE_STRING] = strings;
    m->view.count[BR_TABLE_STRING] = STRINGS;
}

static void make_entries(struct made *m, enum br_table table, const struct wire *w)
{
    struct br_entry *entries = br_arena_calloc(&m->arena, REFERENCES + 1, sizeof *entries);
    uint8_t *copy = br_arena_alloc(&m->arena, w->len);
    memcpy(copy, w->data, w->len);
    for (unsigned i = 1; i <= REFERENCES; i++)
        entries[i] = (struct br_entry){copy, (uint32_t)w->len};
    m->view.tables[table] = entries;
    m->view.count[table] = REFERENCES + 1;
}

static struct made *made_new(const char *key)
{
    struct made *m = calloc(1, sizeof *m);
    assert_non_null(m);
    br_arena_init(&m->arena, 64u << 20);
    m->table = join_table_new(JOIN_BYTES_MIN, 10000, 0, false, false);
    m->text = malloc(LONG);
    assert_non_null(m->text);
    memset(m->text, ' ', LONG);
    make_strings(m, key);
    return m;
}

static void made_free(struct made *m)
{
    join_table_free(m->table);
    br_arena_release(&m->arena);
    free(m->text);
    free(m);
}

/* Makes attributes with the same key that all refer to the long text. */
static void make_attributes(struct made *m)
{
    struct wire w = {0};
    wire_varint(&w, 1, KEY);
    size_t any = wire_open(&w, 2);
    wire_varint(&w, 8, LONG_TEXT);
    wire_close(&w, any);
    make_entries(m, BR_TABLE_ATTRIBUTE, &w);
    wire_free(&w);
}

static struct join_label *read_labels(struct made *m, uint64_t *ret_steps)
{
    static const char *span_ids[] = {"span_id"}, *trace_ids[] = {"trace_id"};
    const struct join_label_names names = {.span_id = {span_ids, 1}, .trace_id = {trace_ids, 1}};
    struct join_texts texts;
    bool any;
    uint64_t before = br_steps();
    make_attributes(m);
    join_texts_init(&texts, m->table, &m->view, &m->arena);
    struct join_label *labels = join_labels_read(&texts, &names, &m->arena, &any);
    assert_non_null(labels);
    assert_false(texts.no_memory);
    join_texts_release(&texts);
    *ret_steps = br_steps() - before;
    return labels;
}

static void an_id_of_blanks_is_read_once(void **state)
{
    (void)state;
    static const char *const keys[] = {"span_id", "trace_id"};
    for (unsigned k = 0; k < BR_COUNT(keys); k++) {
        uint64_t steps;
        struct made *m = made_new(keys[k]);
        struct join_label *labels = read_labels(m, &steps);
        for (unsigned i = 1; i <= REFERENCES; i++)
            assert_int_equal(labels[i].kind, JOIN_LABEL_NONE);
        assert_in_range(steps, LONG, LONG + REFERENCES * 64);
        made_free(m);
    }
}

static void ids_among_blanks_are_read_for_every_reference(void **state)
{
    (void)state;
    static const uint8_t want[16] = {[14] = 0xab, [15] = 0xcd};
    uint64_t steps;
    struct made *m = made_new("trace_id");
    memcpy(m->text + LONG / 2, "aBCd", 4);
    struct join_label *labels = read_labels(m, &steps);
    for (unsigned i = 1; i <= REFERENCES; i++) {
        assert_int_equal(labels[i].kind, JOIN_LABEL_TRACE_ID);
        assert_memory_equal(labels[i].id, want, sizeof want);
    }
    assert_in_range(steps, LONG, LONG + REFERENCES * 64);
    made_free(m);
}

static void a_threads_name_is_hashed_once(void **state)
{
    (void)state;
    uint64_t steps;
    struct made *m = made_new("thread.name");
    struct join_label *labels = read_labels(m, &steps);
    for (unsigned i = 1; i <= REFERENCES; i++) {
        assert_int_equal(labels[i].where, JOIN_THREAD_NAME);
        assert_int_equal(labels[i].hash, join_table_hash(m->table, m->text, LONG));
    }
    assert_in_range(steps, LONG, LONG + REFERENCES * 64);
    made_free(m);
}

/* A thread's id is an integer in the span and a text in the sample, or vice versa. */
static void an_integer_has_the_hash_of_its_digits(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
        bool same;
    } cases[] = {
        {"0", 0, true},
        {"7", 7, true},
        {"-7", -7, true},
        {"1234567890123", 1234567890123, true},
        {"9223372036854775807", INT64_MAX, true},
        {"-9223372036854775808", INT64_MIN, true},
        {"9223372036854775808", INT64_MIN, false},
        {"18446744073709551623", 7, false},
        {"-9223372036854775809", INT64_MAX, false},
        {"07", 7, false},
        {"-0", 0, false},
        {"+7", 7, false},
        {"7 ", 7, false},
        {"-", 0, false},
        {"", 0, false},
    };
    struct join_table *table = join_table_new(JOIN_BYTES_MIN, 1000, 0, true, false);
    assert_non_null(table);
    /* the text is NULL, so its length has no meaning */
    assert_int_equal(join_table_hash_value(table, NULL, 7), 0);
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        uint32_t text = join_table_hash(table, cases[i].text, strlen(cases[i].text)),
                 number = join_table_hash_int(table, cases[i].value);
        if ((text == number) != cases[i].same || !text || !number)
            fail_msg("\"%s\"", cases[i].text);
    }
    join_table_free(table);
}

/* The name of each ResourceProfiles of a request. */
static void a_services_name_is_hashed_once(void **state)
{
    (void)state;
    struct made *m = made_new("service.name");
    struct wire w = {0};
    size_t pair = wire_open(&w, 1);
    wire_varint(&w, 3, KEY);
    size_t any = wire_open(&w, 2);
    wire_varint(&w, 8, LONG_TEXT);
    wire_close(&w, any);
    wire_close(&w, pair);
    struct br_part part = {.new_resource = w.data, .new_resource_len = (uint32_t)w.len};
    struct join_texts texts;
    join_texts_init(&texts, m->table, &m->view, &m->arena);
    uint64_t want = join_service_hash((const uint8_t *)m->text, LONG), before = br_steps();
    for (unsigned i = 0; i < REFERENCES; i++) {
        const struct join_service s = join_service_of(&part, &texts);
        assert_true(s.service == want && s.name_len == LONG);
    }
    assert_in_range(br_steps() - before, LONG, LONG + REFERENCES * 64);
    join_texts_release(&texts);
    wire_free(&w);
    made_free(m);
}

/* Returns an entry with unknown fields before and after the known ones. */
static struct wire with_unknown(struct made *m, const struct wire *known)
{
    struct wire w = {0};
    wire_len(&w, 15, m->text, LONG / 2);
    wire_raw(&w, known->data, known->len);
    wire_len(&w, 15, m->text, LONG / 2);
    return w;
}

static void a_long_link_is_read_once(void **state)
{
    (void)state;
    static const uint8_t span[8] = {1, 2, 3};
    struct made *m = made_new("");
    struct wire ids = {0}, sample = {0};
    wire_len(&ids, 2, span, sizeof span);
    struct wire link = with_unknown(m, &ids);
    make_entries(m, BR_TABLE_LINK, &link);
    wire_varint(&sample, 3, 1);
    wire_varint(&sample, 4, 1);
    struct join_links links = {.view = &m->view, .arena = &m->arena};
    uint64_t before = br_steps();
    for (unsigned i = 0; i < REFERENCES; i++) {
        struct join_sample_view s;
        join_sample_view_of(&links, NULL, sample.data, sample.data + sample.len, &s);
        assert_true(s.linked && memcmp(s.span_id, span, sizeof span) == 0);
    }
    assert_in_range(br_steps() - before, LONG, LONG + REFERENCES * 64);
    join_links_release(&links);
    wire_free(&ids);
    wire_free(&link);
    wire_free(&sample);
    made_free(m);
}

/* Stacks share a location, and locations share a function. */
static void shared_parts_of_stacks_are_read_once(void **state)
{
    (void)state;
    static const enum br_table tables[] = {BR_TABLE_STACK, BR_TABLE_LOCATION, BR_TABLE_FUNCTION};
    for (unsigned t = 0; t < BR_COUNT(tables); t++) {
        struct made *m = made_new("work");
        struct wire w[3] = {0};
        wire_varint(&w[0], 1, 1); /* a stack: location 1 */
        size_t line = wire_open(&w[1], 3);
        wire_varint(&w[1], 1, 1); /* function 1 */
        wire_close(&w[1], line);
        wire_varint(&w[2], 1, KEY); /* its name */
        for (unsigned i = 0; i < BR_COUNT(tables); i++) {
            struct wire entry = i == t ? with_unknown(m, &w[i]) : w[i];
            make_entries(m, tables[i], &entry);
            if (i == t)
                wire_free(&entry);
        }
        struct join_leaves leaves;
        join_leaves_init(&leaves, m->table, &m->view, &m->arena);
        uint64_t before = br_steps();
        uint32_t first = join_leaf_of(&leaves, 1);
        assert_int_not_equal(first, 0);
        for (unsigned i = 0; i < 10 * REFERENCES; i++)
            assert_int_equal(join_leaf_of(&leaves, 1 + (t ? i % REFERENCES : 0)), first);
        assert_in_range(br_steps() - before, LONG, LONG + REFERENCES * 64);
        for (unsigned i = 0; i < 3; i++)
            wire_free(&w[i]);
        made_free(m);
    }
}

SUITE(join_texts)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_of_blanks_is_read_once),
        cmocka_unit_test(ids_among_blanks_are_read_for_every_reference),
        cmocka_unit_test(a_threads_name_is_hashed_once),
        cmocka_unit_test(an_integer_has_the_hash_of_its_digits),
        cmocka_unit_test(a_services_name_is_hashed_once),
        cmocka_unit_test(a_long_link_is_read_once),
        cmocka_unit_test(shared_parts_of_stacks_are_read_once),
    };
    return RUN(tests, NULL, NULL);
}
