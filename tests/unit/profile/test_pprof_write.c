/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts OTLP profiles to pprofs, which protobuf-c reads by proto/pprof/profile.proto. Expected
 * values come from the two schemas and from arithmetic.
 */
#include "tests/support/profiles_request.h"

#include "pprof/profile.pb-c.h"
#include "profile/pprof/write.h"
#include "tests/support/test.h"

typedef Perftools__Profiles__Profile Pprof;
typedef Perftools__Profiles__Label Label;

#define T0 1700000000000000000u /* time of all profiles, in nanoseconds since 1970 */

/* Fields of Profile and Sample of OTLP. */
enum { P_TYPE = 1, P_SAMPLES, P_TIME, P_DURATION, P_PERIOD_TYPE, P_PERIOD, P_ATTRIBUTES = 11 };
enum { S_STACK = 1, S_ATTRIBUTES, S_LINK, S_VALUES, S_TIMES };

/* Strings of every request in this file, by their index. */
static const char *const strings[] = {
    "",           "cpu",       "nanoseconds", "samples", "count",    "main",
    "leaf",       "/src/a.go", "thread",      "pid",     "span_id",  "shop.bin",
    "bytes",      "build",     "space",       "task",    "trace_id", "pprof.location.is_folded",
    "wall clock", "itimer",    "ns",          "wall"};
enum {
    CPU = 1,
    NS,
    SAMPLES,
    COUNT,
    MAIN,
    LEAF,
    FILE_A,
    THREAD,
    PID,
    SPAN_ID,
    BINARY,
    BYTES,
    BUILD,
    SPACE,
    TASK,
    TRACE_ID,
    FOLDED,
    WALL,
    ITIMER,
    SHORT_NS,
    WALL_TIME
};

static struct message *none(void)
{
    return new_message(0);
}

static struct message *value_type(uint32_t field, uint32_t type, uint32_t unit)
{
    return nest(field, number(1, type), number(2, unit), END);
}

/* Returns a packed list of numbers; -1 ends the arguments. */
static struct message *list(uint32_t field, ...)
{
    uint8_t data[256], *p = data;
    va_list ap;
    va_start(ap, field);
    for (int64_t v; (v = va_arg(ap, int64_t)) != -1;)
        p = br_put_varint(p, (uint64_t)v);
    va_end(ap);
    return bytes(field, data, (size_t)(p - data));
}

#define L(n) ((int64_t)(n))
#define STOP ((int64_t)-1)

static struct message *sample(uint32_t stack, struct message *more, int64_t value)
{
    return nest(P_SAMPLES, number(S_STACK, stack), more, list(S_VALUES, value, STOP), END);
}

static struct message *fixed(uint32_t field, uint64_t v)
{
    struct message *m = new_message(16);
    uint8_t *p = br_put_varint(m->data, BR_TAG(field, BR_WIRE_I64));
    memcpy(p, &v, 8);
    m->len = (size_t)(p + 8 - m->data);
    return m;
}

static struct message *profile(uint32_t type, uint32_t unit, struct message *samples)
{
    return nest(2, value_type(P_TYPE, type, unit), samples, fixed(P_TIME, T0),
                number(P_DURATION, 10), value_type(P_PERIOD_TYPE, CPU, NS), number(P_PERIOD, 1000),
                END);
}

static struct message *text_value(uint32_t field, const char *s)
{
    return nest(field, text(1, s), END);
}

static struct message *number_value(uint32_t field, uint64_t v)
{
    return nest(field, number(3, v), END);
}

/* Returns the dictionary. Its attributes are: 1: thread = "t1"; 2: pid = 7, with a unit; 3:
 * span_id, of a span other than that of link 1; 4: the build id of the binary; 5: folded; 6: task =
 * "x". Link 1 has the span id 0x11... and the trace id 0x22... Stack 1 consists of leaf and main,
 * stack 2 of main. */
static struct message *dictionary(void)
{
    struct message *m = zero_entries();
    m = join(m, nest(MAPPING, number(1, 0x1000), number(2, 0x2000), number(4, BINARY),
                     list(5, L(4), STOP), END));
    m = join(m, nest(LOCATION, number(1, 1), number(2, 0x1010),
                     nest(3, number(1, 1), number(2, 12), number(3, 3), END), list(4, L(5), STOP),
                     END));
    m = join(m, nest(LOCATION, nest(3, number(1, 2), number(2, 99), END), END));
    m = join(
        m, nest(FUNCTION, number(1, LEAF), number(2, LEAF), number(3, FILE_A), number(4, 5), END));
    m = join(m, nest(FUNCTION, number(1, MAIN), END));
    m = join(m, nest(LINK, bytes(1, "\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"", 16),
                     bytes(2, "\x11\x11\x11\x11\x11\x11\x11\x11", 8), END));
    for (size_t i = 1; i < BR_COUNT(strings); i++)
        m = join(m, text(STRING, strings[i]));
    m = join(m, nest(ATTRIBUTE, number(1, THREAD), text_value(2, "t1"), END));
    m = join(m, nest(ATTRIBUTE, number(1, PID), number_value(2, 7), number(3, BYTES), END));
    m = join(m, nest(ATTRIBUTE, number(1, SPAN_ID), text_value(2, "ffffffffffffffff"), END));
    m = join(m, nest(ATTRIBUTE, number(1, BUILD), text_value(2, "b1"), END));
    m = join(m, nest(ATTRIBUTE, number(1, FOLDED), nest(2, number(2, 1), END), END));
    m = join(m, nest(ATTRIBUTE, number(1, TASK), text_value(2, "x"), END));
    m = join(m, nest(STACK, list(1, L(1), L(2), STOP), END));
    m = join(m, nest(STACK, list(1, L(2), STOP), END));
    return m;
}

static struct br_item *request_of(struct message *profiles, struct message *scope)
{
    struct message *m = nest(1, nest(1, END), nest(2, nest(1, scope, END), profiles, END), END);
    return walked(BR_PROFILES, join(m, bytes(2, dictionary()->data, dictionary()->len)));
}

/* --- Results --------------------------------------------------------------------------------- */

#define OUTS_MAX 64

struct result {
    struct {
        Pprof *pprof;
        uint32_t n_types, n_samples, n_records, n_left_out, n_labels;
        uint64_t time_ns;
        size_t size;
        bool too_large, cumulative, from_pyroscope;
        char name[64], types[BR_PPROF_TYPES_MAX][64];
    } out[OUTS_MAX];
    uint32_t n;
    int stop; /* the value that the callback returns */
};

/* Asserts that the pprof does not contain a string twice. Pyroscope would look up a name only in
 * the first of several equal strings. */
static void assert_strings_differ(const Pprof *p)
{
    for (size_t i = 0; i < p->n_string_table; i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(p->string_table[i], p->string_table[k]);
}

static int on_pprof(const struct br_pprof_out *p, void *arg)
{
    struct result *r = arg;
    assert_true(r->n < OUTS_MAX);
    r->out[r->n].pprof = perftools__profiles__profile__unpack(NULL, p->buf->len, p->buf->data);
    assert_non_null(r->out[r->n].pprof);
    assert_strings_differ(r->out[r->n].pprof);
    r->out[r->n].n_types = p->n_types;
    r->out[r->n].n_samples = p->n_samples;
    r->out[r->n].n_records = p->n_records;
    r->out[r->n].n_left_out = p->n_left_out;
    r->out[r->n].n_labels = p->n_labels;
    r->out[r->n].time_ns = p->time_ns;
    r->out[r->n].size = p->buf->len;
    r->out[r->n].too_large = p->too_large;
    r->out[r->n].cumulative = p->cumulative;
    r->out[r->n].from_pyroscope = p->from_pyroscope;
    (void)snprintf(r->out[r->n].name, sizeof r->out[0].name, "%s", p->name);
    for (uint32_t i = 0; i < p->n_types; i++)
        (void)snprintf(r->out[r->n].types[i], sizeof r->out[0].types[0], "%s", p->types[i]);
    r->n++;
    return r->stop;
}

static void free_result(struct result *r)
{
    while (r->n)
        perftools__profiles__profile__free_unpacked(r->out[--r->n].pprof, NULL);
    free(r);
    free_messages();
}

/* Writes the item and takes ownership of it. */
static struct result *write_item(struct br_item *item, const struct br_pprof_options *options)
{
    struct result *r = calloc(1, sizeof *r);
    struct br_pprof_writer *w = br_pprof_writer_new(&host);
    assert_non_null(r);
    assert_non_null(w);
    assert_int_equal(br_pprof_write(w, item, options, on_pprof, r), 0);
    br_item_free(item);
    br_pprof_writer_free(w);
    return r;
}

static struct result *write_all(struct message *profiles, struct message *scope,
                                const struct br_pprof_options *options)
{
    return write_item(request_of(profiles, scope), options);
}

static const char *string(const Pprof *p, int64_t i)
{
    assert_true(i >= 0 && (size_t)i < p->n_string_table);
    return p->string_table[i];
}

static void label_is(const Pprof *p, const Label *l, const char *key, const char *str, int64_t num,
                     const char *unit)
{
    assert_string_equal(string(p, l->key), key);
    assert_string_equal(string(p, l->str), str);
    assert_int_equal(l->num, num);
    assert_string_equal(string(p, l->num_unit), unit);
}

static void types_are(const Pprof *p, size_t n, ...)
{
    va_list ap;
    assert_int_equal(p->n_sample_type, n);
    va_start(ap, n);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(string(p, p->sample_type[i]->type), va_arg(ap, const char *));
        assert_string_equal(string(p, p->sample_type[i]->unit), va_arg(ap, const char *));
    }
    va_end(ap);
}

/* --- One profile ----------------------------------------------------------------------------- */

static void one_profile_is_one_pprof(void **state)
{
    (void)state;
    struct message *labelled = list(S_ATTRIBUTES, L(1), L(2), STOP);
    struct result *r = write_all(
        profile(CPU, NS, join(sample(1, labelled, 3000), sample(2, none(), 1000))), none(), NULL);
    assert_int_equal(r->n, 1);
    const Pprof *p = r->out[0].pprof;
    assert_string_equal(r->out[0].name, "process_cpu");
    assert_int_equal(r->out[0].time_ns, T0);
    assert_int_equal(r->out[0].n_records, 2);
    assert_false(r->out[0].cumulative || r->out[0].from_pyroscope || r->out[0].too_large);
    types_are(p, 1, "cpu", "nanoseconds");
    assert_int_equal(p->time_nanos, T0);
    assert_int_equal(p->duration_nanos, 10);
    assert_int_equal(p->period, 1000);
    assert_string_equal(string(p, p->period_type->type), "cpu");
    assert_string_equal(string(p, 0), "");
    assert_int_equal(p->n_sample, 2);
    assert_int_equal(p->sample[0]->value[0], 3000);
    assert_int_equal(p->sample[0]->n_label, 2);
    label_is(p, p->sample[0]->label[0], "thread", "t1", 0, "");
    label_is(p, p->sample[0]->label[1], "pid", "", 7, "bytes");
    assert_int_equal(p->n_location, 2);
    assert_int_equal(p->n_function, 2);
    assert_int_equal(p->n_mapping, 1);
    assert_int_equal(p->sample[0]->n_location_id, 2);
    assert_int_equal(p->sample[0]->location_id[0], p->location[0]->id);
    assert_int_equal(p->sample[1]->location_id[0], p->location[1]->id);
    assert_int_equal(p->location[0]->address, 0x1010);
    assert_true(p->location[0]->is_folded && !p->location[1]->is_folded);
    assert_int_equal(p->location[0]->mapping_id, p->mapping[0]->id);
    assert_int_equal(p->location[1]->mapping_id, 0);
    assert_int_equal(p->location[0]->line[0]->line, 12);
    assert_int_equal(p->location[0]->line[0]->column, 3);
    assert_int_equal(p->location[0]->line[0]->function_id, p->function[0]->id);
    assert_string_equal(string(p, p->function[0]->name), "leaf");
    assert_string_equal(string(p, p->function[0]->filename), "/src/a.go");
    assert_int_equal(p->function[0]->start_line, 5);
    assert_string_equal(string(p, p->function[1]->name), "main");
    assert_int_equal(p->mapping[0]->memory_start, 0x1000);
    assert_string_equal(string(p, p->mapping[0]->filename), "shop.bin");
    free_result(r);
}

/* Entries of the dictionary that no sample uses are not written. */
static void nothing_unused_is_written(void **state)
{
    (void)state;
    struct result *r = write_all(profile(CPU, NS, sample(2, none(), 1)), none(), NULL);
    const Pprof *p = r->out[0].pprof;
    assert_int_equal(p->n_location, 1);
    assert_int_equal(p->n_function, 1);
    assert_int_equal(p->n_mapping, 0);
    for (size_t i = 0; i < p->n_string_table; i++)
        assert_string_not_equal(p->string_table[i], "leaf");
    free_result(r);
}

static void profiles_without_samples_are_not_written(void **state)
{
    (void)state;
    struct result *r = write_all(profile(CPU, NS, none()), none(), NULL);
    assert_int_equal(r->n, 0);
    free_result(r);
}

/* A sum above INT64_MAX becomes INT64_MAX. A sample that has timestamps but no values counts as one
 * period per timestamp. */
static void values(void **state)
{
    (void)state;
    const uint64_t stamps[] = {1, 2, 3};
    struct message *timed =
        nest(P_SAMPLES, number(S_STACK, 2), bytes(S_TIMES, stamps, sizeof stamps), END);
    struct message *single = nest(P_SAMPLES, fixed(S_TIMES, 1), number(S_STACK, 1), END);
    struct message *several = nest(P_SAMPLES, list(S_VALUES, L(4), L(5), STOP), number(S_VALUES, 6),
                                   number(S_STACK, 2), END);
    struct message *huge = nest(P_SAMPLES, list(S_VALUES, INT64_MAX, L(5), STOP), END);
    struct result *r =
        write_all(profile(CPU, NS, join(join(timed, single), join(several, huge))), none(), NULL);
    const Pprof *p = r->out[0].pprof;
    assert_int_equal(p->n_sample, 4);
    assert_int_equal(p->sample[0]->value[0], 3000);
    assert_int_equal(p->sample[1]->value[0], 1000);
    assert_int_equal(p->sample[2]->value[0], 15);
    assert_true(p->sample[3]->value[0] == INT64_MAX);
    assert_int_equal(p->sample[3]->n_location_id, 0);
    free_result(r);
}

/* --- Names ----------------------------------------------------------------------------------- */

static struct message *scope_attribute(const char *key, struct message *value)
{
    return nest(3, text(1, key), value, END);
}

static void counted_samples_become_cpu_time(void **state)
{
    (void)state;
    struct result *r = write_all(profile(SAMPLES, COUNT, sample(2, none(), 4)), none(), NULL);
    const Pprof *p = r->out[0].pprof;
    types_are(p, 1, "cpu", "nanoseconds");
    assert_string_equal(r->out[0].name, "process_cpu");
    assert_string_equal(r->out[0].types[0], "cpu");
    assert_int_equal(p->sample[0]->value[0], 4000);
    free_result(r);
}

/* Async-profiler's OTLP has the types itimer:count and wall:count, and a period in nanoseconds. */
static void counted_periods_become_time(void **state)
{
    (void)state;
    static const struct {
        uint32_t type, period_type;
        const char *name, *result;
        int64_t value;
    } cases[] = {
        {ITIMER, ITIMER, "process_cpu", "cpu", 4000},
        {ITIMER, CPU, "process_cpu", "cpu", 4000},
        {CPU, CPU, "process_cpu", "cpu", 4000},
        {WALL_TIME, WALL_TIME, "wall", "wall", 4000},
        {WALL_TIME, CPU, "wall", "wall", 4}, /* another clock */
        {TASK, CPU, "task", "task", 4},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct message *counts = nest(
            2, value_type(P_TYPE, cases[i].type, COUNT), sample(2, none(), 4), fixed(P_TIME, T0),
            value_type(P_PERIOD_TYPE, cases[i].period_type, SHORT_NS), number(P_PERIOD, 1000), END);
        struct result *r = write_all(counts, none(), NULL);
        types_are(r->out[0].pprof, 1, cases[i].result,
                  cases[i].value > 4 ? "nanoseconds" : "count");
        assert_string_equal(r->out[0].name, cases[i].name);
        assert_int_equal(r->out[0].pprof->sample[0]->value[0], cases[i].value);
        free_result(r);
    }
}

static void names_from_clients_are_kept(void **state)
{
    (void)state;
    struct message *scope = scope_attribute(BR_SCOPE_PYROSCOPE_NAME, text_value(2, "my_name"));
    struct result *r = write_all(profile(WALL, COUNT, sample(2, none(), 4)), scope, NULL);
    types_are(r->out[0].pprof, 1, "wall clock", "count");
    assert_string_equal(r->out[0].name, "my_name");
    assert_true(r->out[0].from_pyroscope);
    assert_int_equal(r->out[0].pprof->sample[0]->value[0], 4);
    free_result(r);
    r = write_all(profile(WALL, COUNT, sample(2, none(), 4)), none(), NULL);
    types_are(r->out[0].pprof, 1, "wall_clock", "count");
    free_result(r);
}

/* --- Profiles that form one pprof ------------------------------------------------------------ */

static struct result *two(struct message *first, struct message *second)
{
    return write_all(join(profile(SAMPLES, COUNT, join(first, sample(2, none(), 2))),
                          profile(CPU, NS, join(second, sample(2, none(), 20)))),
                     none(), NULL);
}

static void profiles_with_equal_samples_are_merged(void **state)
{
    (void)state;
    struct message *packed = list(S_ATTRIBUTES, L(1), L(2), STOP);
    struct message *single = join(number(S_ATTRIBUTES, 1), number(S_ATTRIBUTES, 2));
    struct message *swapped =
        nest(P_SAMPLES, list(S_VALUES, L(10), STOP), packed, number(S_STACK, 1), END);
    struct message *const seconds[] = {sample(1, packed, 10), sample(1, single, 10), swapped};
    for (size_t i = 0; i < BR_COUNT(seconds); i++) {
        struct result *r = two(sample(1, packed, 1), seconds[i]);
        assert_int_equal(r->n, 1);
        const Pprof *p = r->out[0].pprof;
        types_are(p, 2, "samples", "count", "cpu", "nanoseconds");
        assert_int_equal(r->out[0].n_types, 2);
        assert_int_equal(r->out[0].n_samples, 2);
        assert_int_equal(r->out[0].n_records, 4);
        assert_int_equal(p->sample[0]->value[0], 1);
        assert_int_equal(p->sample[0]->value[1], 10);
        assert_int_equal(p->sample[1]->value[0], 2);
        assert_int_equal(p->sample[1]->value[1], 20);
        assert_int_equal(p->sample[0]->n_label, 2);
        if (i + 1 < BR_COUNT(seconds)) {
            while (r->n)
                perftools__profiles__profile__free_unpacked(r->out[--r->n].pprof, NULL);
            free(r);
        } else {
            free_result(r);
        }
    }
}

static void profiles_that_differ_are_not_merged(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct message *labelled = list(S_ATTRIBUTES, L(1), STOP);
        struct message *const seconds[] = {
            sample(2, labelled, 10), sample(1, list(S_ATTRIBUTES, L(2), STOP), 10),
            sample(1, join(list(S_ATTRIBUTES, L(1), STOP), number(S_LINK, 1)), 10),
            sample(1, list(S_ATTRIBUTES, L(1), L(2), STOP), 10),
            join(sample(1, labelled, 10), sample(1, none(), 1))};
        struct result *r = two(sample(1, labelled, 1), seconds[i]);
        assert_int_equal(r->n, 2);
        assert_int_equal(r->out[0].pprof->n_sample_type, 1);
        assert_int_equal(r->out[1].pprof->n_sample_type, 1);
        free_result(r);
    }
}

/* Returns a request whose dictionary has 256 attributes. */
static struct br_item *request_of_many_attributes(struct message *profiles)
{
    struct message *m = nest(1, nest(1, END), nest(2, nest(1, END), profiles, END), END);
    struct message *entries = dictionary();
    for (uint64_t i = 7; i < 256; i++)
        entries = join(entries, nest(ATTRIBUTE, number(1, TASK), number_value(2, i), END));
    return walked(BR_PROFILES, join(m, bytes(2, entries->data, entries->len)));
}

/* The indices of the lists `a` and `b` have the same 64-bit FNV-1a hash: sum((b[i] - a[i]) *
 * prime^(13 - i)) is 0 modulo 2^64. The lists were found by lattice reduction. */
static void equal_hashes_do_not_make_attributes_equal(void **state)
{
    (void)state;
    static const uint8_t a[] = {239, 37, 12, 10, 139, 158, 199, 11, 244, 253, 137, 3, 44, 47};
    static const uint8_t b[] = {233, 36, 7, 58, 146, 170, 73, 63, 238, 2, 148, 121, 108, 80};
    uint64_t hash[2] = {14695981039346656037u, 14695981039346656037u};
    for (size_t i = 0; i < sizeof a; i++) {
        hash[0] = (hash[0] ^ a[i]) * 1099511628211u;
        hash[1] = (hash[1] ^ b[i]) * 1099511628211u;
    }
    assert_true(hash[0] == hash[1]);
    for (int same = 0; same < 2; same++) {
        struct message *first = sample(1, none(), 3), *second = sample(1, none(), 30);
        for (size_t i = 0; i < sizeof a; i++) {
            first = join(first, number(P_ATTRIBUTES, a[i]));
            second = join(second, number(P_ATTRIBUTES, same ? a[i] : b[i]));
        }
        struct result *r =
            write_item(request_of_many_attributes(
                           join(profile(SAMPLES, COUNT, first), profile(CPU, NS, second))),
                       NULL);
        assert_int_equal(r->n, same ? 1 : 2);
        free_result(r);
    }
}

/* Two profiles of the same type need two pprofs, because the types of the columns of a pprof must
 * differ. */
static void a_type_occurs_once(void **state)
{
    (void)state;
    struct message *one = profile(CPU, NS, sample(1, none(), 1));
    struct result *r = write_all(join(one, one), none(), NULL);
    assert_int_equal(r->n, 2);
    free_result(r);
}

static void the_order_of_types_is_restored(void **state)
{
    (void)state;
    struct message *order =
        nest(2, nest(5, nest(1, number(3, 1), END), nest(1, number(3, 0), END), END), END);
    struct message *scope =
        join(scope_attribute(BR_SCOPE_SAMPLE_TYPE_ORDER, order),
             scope_attribute(BR_SCOPE_DEFAULT_SAMPLE_TYPE, text_value(2, "samples")));
    struct result *r = write_all(join(profile(CPU, NS, sample(1, none(), 10)),
                                      profile(SAMPLES, COUNT, sample(1, none(), 1))),
                                 scope, NULL);
    assert_int_equal(r->n, 1);
    types_are(r->out[0].pprof, 2, "samples", "count", "cpu", "nanoseconds");
    assert_string_equal(string(r->out[0].pprof, r->out[0].pprof->default_sample_type), "samples");
    assert_int_equal(r->out[0].pprof->sample[0]->value[0], 1);
    assert_int_equal(r->out[0].pprof->sample[0]->value[1], 10);
    free_result(r);
}

/* --- Labels ---------------------------------------------------------------------------------- */

static void the_link_overrides_attributes(void **state)
{
    (void)state;
    struct message *more = join(list(S_ATTRIBUTES, L(3), L(1), STOP), number(S_LINK, 1));
    struct result *r =
        write_all(profile(CPU, NS, join(sample(1, more, 1), sample(1, number(S_ATTRIBUTES, 3), 1))),
                  none(), NULL);
    const Pprof *p = r->out[0].pprof;
    assert_int_equal(p->sample[0]->n_label, 3);
    label_is(p, p->sample[0]->label[0], "thread", "t1", 0, "");
    label_is(p, p->sample[0]->label[1], "span_id", "1111111111111111", 0, "");
    label_is(p, p->sample[0]->label[2], "trace_id", "22222222222222222222222222222222", 0, "");
    assert_int_equal(p->sample[1]->n_label, 1);
    label_is(p, p->sample[1]->label[0], "span_id", "ffffffffffffffff", 0, "");
    free_result(r);
}

static struct message *many(uint32_t n, struct message *more)
{
    struct message *m = none();
    for (uint32_t i = 0; i < n; i++)
        m = join(m, sample(1 + i % 2, more, L(1) << (i % 8)));
    return m;
}

/* The writer returns the largest number of labels of a sample. Ids and numbers are not counted,
 * because they do not become labels of a series. */
static void series_labels_are_counted(void **state)
{
    (void)state;
    struct message *none_of_them = list(S_ATTRIBUTES, L(2), L(3), STOP);
    struct message *two_of_them = list(S_ATTRIBUTES, L(1), L(2), L(3), L(6), STOP);
    struct message *one_of_them = join(list(S_ATTRIBUTES, L(6), STOP), number(S_LINK, 1));
    struct result *r =
        write_all(profile(CPU, NS,
                          join(sample(1, none_of_them, 1),
                               join(sample(1, two_of_them, 1), sample(1, one_of_them, 1)))),
                  none(), NULL);
    assert_int_equal(r->out[0].n_labels, 2);
    free_result(r);
    r = write_all(profile(CPU, NS, sample(1, list(S_ATTRIBUTES, L(2), L(3), STOP), 1)), none(),
                  NULL);
    assert_int_equal(r->out[0].n_labels, 0);
    free_result(r);
}

static bool keep_thread(void *arg, const char *key, size_t len)
{
    unsigned *n_calls = arg;
    ++*n_calls;
    return len == 6 && memcmp(key, "thread", 6) == 0;
}

static void labels_can_be_selected(void **state)
{
    (void)state;
    unsigned n_calls = 0;
    const struct br_pprof_options options = {.keep_label = keep_thread, .arg = &n_calls};
    struct message *three = list(S_ATTRIBUTES, L(1), L(2), L(6), STOP);
    struct result *r = write_all(profile(CPU, NS, many(3, three)), none(), &options);
    assert_int_equal(n_calls, 3);
    assert_int_equal(r->out[0].n_left_out, 6);
    assert_int_equal(r->out[0].pprof->sample[2]->n_label, 1);
    free_result(r);
    three = list(S_ATTRIBUTES, L(1), L(2), L(6), STOP);
    r = write_all(profile(CPU, NS, many(1, three)),
                  scope_attribute(BR_SCOPE_PYROSCOPE_NAME, text_value(2, "process_cpu")), &options);
    assert_int_equal(n_calls, 3);
    assert_int_equal(r->out[0].pprof->sample[0]->n_label, 3);
    assert_int_equal(r->out[0].n_left_out, 0);
    free_result(r);
}

/* --- Limits ---------------------------------------------------------------------------------- */

/* Every piece is a complete pprof. Together the pieces contain the same samples as a single
 * pprof. */
static void pieces_by_samples(void **state)
{
    (void)state;
    const struct br_pprof_options options = {.max_samples = 3};
    struct result *r =
        write_all(profile(CPU, NS, many(8, number(S_ATTRIBUTES, 1))), none(), &options);
    int64_t sum = 0;
    assert_int_equal(r->n, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const Pprof *p = r->out[i].pprof;
        assert_int_equal(p->n_sample, i < 2 ? 3 : 2);
        assert_int_equal(r->out[i].n_records, p->n_sample);
        assert_int_equal(p->time_nanos, T0 + i * 1000000u);
        assert_int_equal(p->n_location, 2);
        for (size_t k = 0; k < p->n_sample; k++) {
            sum += p->sample[k]->value[0];
            label_is(p, p->sample[k]->label[0], "thread", "t1", 0, "");
        }
    }
    assert_int_equal(sum, 255);
    free_result(r);
}

static void pieces_by_size(void **state)
{
    (void)state;
    struct result *whole = write_all(profile(CPU, NS, many(40, none())), none(), NULL);
    const struct br_pprof_options options = {.max_bytes = whole->out[0].size - 1};
    assert_int_equal(whole->n, 1);
    free_result(whole);
    struct result *r = write_all(profile(CPU, NS, many(40, none())), none(), &options);
    uint32_t n = 0;
    assert_int_equal(r->n, 2);
    for (uint32_t i = 0; i < r->n; i++) {
        assert_true(r->out[i].size <= options.max_bytes && !r->out[i].too_large);
        n += r->out[i].n_samples;
    }
    assert_int_equal(n, 40);
    free_result(r);
}

static void a_single_sample_may_be_too_large(void **state)
{
    (void)state;
    const struct br_pprof_options options = {.max_bytes = 40};
    struct result *r = write_all(profile(CPU, NS, many(3, none())), none(), &options);
    assert_int_equal(r->n, 3);
    for (uint32_t i = 0; i < r->n; i++)
        assert_true(r->out[i].too_large && r->out[i].n_samples == 1);
    free_result(r);
}

static void the_callback_can_stop_writing(void **state)
{
    (void)state;
    const struct br_pprof_options options = {.max_samples = 1};
    struct result *r = calloc(1, sizeof *r);
    struct br_pprof_writer *w = br_pprof_writer_new(&host);
    struct br_item *item = request_of(profile(CPU, NS, many(3, none())), none());
    assert_non_null(r);
    r->stop = BR_EIO;
    assert_int_equal(br_pprof_write(w, item, &options, on_pprof, r), BR_EIO);
    assert_int_equal(r->n, 1);
    br_item_free(item);
    br_pprof_writer_free(w);
    free_result(r);
}

/* --- Large dictionaries ---------------------------------------------------------------------- */

/* Returns an item with `n` locations, one stack for each location, and one stack of all locations.
 * It is encoded by hand because it is large. Function i has the name i. */
static struct br_item *item_of_locations(uint32_t n)
{
    struct br_buf *buf = br_buf_new(host.pool, 64 * (size_t)n + 4096);
    struct message *all = new_message(4 * (size_t)n);
    assert_non_null(buf);
    uint8_t *body = buf->data + 16, *o = body, *list_end = all->data;
    struct message *zeros = zero_entries();
    o = br_put_bytes(o, zeros->data, zeros->len);
    for (uint32_t i = 1; i <= n; i++) {
        char name[16];
        struct message *line = number(1, i), *location = bytes(3, line->data, line->len);
        int len = snprintf(name, sizeof name, "%u", i);
        o = br_put_len(o, STRING, name, (size_t)len);
        o = br_put_len(o, FUNCTION, line->data, line->len);
        o = br_put_len(o, LOCATION, location->data, location->len);
        n_made -= 2;
        free(line);
        free(location);
        list_end = br_put_varint(list_end, i);
    }
    all->len = (size_t)(list_end - all->data);
    struct message *stack = bytes(1, all->data, all->len);
    o = br_put_len(o, STACK, stack->data, stack->len);
    size_t len = (size_t)(o - body);
    uint8_t head[16], *h = br_put_varint(head, BR_TAG(2, BR_WIRE_LEN));
    h = br_put_varint(h, len);
    uint8_t *start = body - (h - head);
    memcpy(start, head, (size_t)(h - head));
    struct message *profiles = nest(1, nest(2, profile(0, 0, sample(1, none(), 1)), END), END);
    o = br_put_bytes(o, profiles->data, profiles->len);
    buf->len = (uint32_t)(o - buf->data);
    struct br_item *item = br_item_new(&host, BR_PROFILES);
    struct br_walk_options options = {0};
    struct br_err err = {0};
    uint32_t repaired;
    assert_non_null(item);
    if (br_walk(item, buf, start, (size_t)(o - start), &options, &repaired, &err))
        fail_msg("%s", err.text);
    br_buf_unref(buf);
    return item;
}

/* Ids take one, two or three bytes. In some cases, an index and its id have different lengths. */
static void ids_of_every_length(void **state)
{
    (void)state;
    const uint32_t n = 20000;
    struct result *r = calloc(1, sizeof *r);
    struct br_pprof_writer *w = br_pprof_writer_new(&host);
    struct br_item *item = item_of_locations(n);
    assert_non_null(r);
    assert_int_equal(br_pprof_write(w, item, NULL, on_pprof, r), 0);
    const Pprof *p = r->out[0].pprof;
    assert_int_equal(p->sample[0]->n_location_id, n);
    assert_int_equal(p->n_location, n);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t id = p->sample[0]->location_id[i];
        assert_true(id >= 1 && id <= n);
        assert_int_equal(p->location[id - 1]->id, id);
        uint64_t function = p->location[id - 1]->line[0]->function_id;
        assert_int_equal(atoi(string(p, p->function[function - 1]->name)), i + 1);
    }
    br_item_free(item);
    br_pprof_writer_free(w);
    free_result(r);
}

static void too_many_entries_are_rejected(void **state)
{
    (void)state;
    /* the walk requires at least 12 bytes for each entry */
    const size_t n = BR_PPROF_ENTRIES_MAX + 1u, size = 12;
    struct message *many = new_message(size * n);
    memset(many->data, 'x', size * n);
    for (size_t i = 0; i < n; i++) {
        many->data[size * i] = BR_TAG(STRING, BR_WIRE_LEN);
        many->data[size * i + 1] = (uint8_t)(size - 2);
    }
    many->len = size * n;
    struct message *profiles = nest(1, nest(2, profile(0, 0, sample(0, none(), 1)), END), END);
    struct br_item *item = walked(BR_PROFILES, join(bytes(2, many->data, many->len), profiles));
    struct br_pprof_writer *w = br_pprof_writer_new(&host);
    struct result *r = calloc(1, sizeof *r);
    assert_non_null(r);
    assert_int_equal(br_pprof_write(w, item, NULL, on_pprof, r), BR_ETOOBIG);
    assert_int_equal(r->n, 0);
    br_item_free(item);
    br_pprof_writer_free(w);
    free_result(r);
}

/* --- No memory ------------------------------------------------------------------------------- */

static int count_pprof(const struct br_pprof_out *p, void *arg)
{
    uint32_t *n = arg;
    *n += p->n_samples;
    return 0;
}

static int work(void *arg)
{
    const struct br_pprof_options options = {.max_samples = 5};
    struct br_pprof_writer *w = br_pprof_writer_new(&host);
    uint32_t n = 0;
    int rc = w ? br_pprof_write(w, arg, &options, count_pprof, &n) : BR_ENOMEM;
    if (!rc)
        assert_int_equal(n, 12);
    br_pprof_writer_free(w);
    return rc;
}

static void without_memory(void **state)
{
    (void)state;
    struct message *more = join(list(S_ATTRIBUTES, L(1), L(2), L(3), STOP), number(S_LINK, 1));
    struct br_item *item = request_of(profile(CPU, NS, many(12, more)), none());
    with_failures(work, item);
    br_item_free(item);
    free_messages();
}

SUITE(pprof_write)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_profile_is_one_pprof),
        cmocka_unit_test(nothing_unused_is_written),
        cmocka_unit_test(profiles_without_samples_are_not_written),
        cmocka_unit_test(values),
        cmocka_unit_test(counted_samples_become_cpu_time),
        cmocka_unit_test(counted_periods_become_time),
        cmocka_unit_test(names_from_clients_are_kept),
        cmocka_unit_test(profiles_with_equal_samples_are_merged),
        cmocka_unit_test(profiles_that_differ_are_not_merged),
        cmocka_unit_test(equal_hashes_do_not_make_attributes_equal),
        cmocka_unit_test(a_type_occurs_once),
        cmocka_unit_test(the_order_of_types_is_restored),
        cmocka_unit_test(the_link_overrides_attributes),
        cmocka_unit_test(series_labels_are_counted),
        cmocka_unit_test(labels_can_be_selected),
        cmocka_unit_test(pieces_by_samples),
        cmocka_unit_test(pieces_by_size),
        cmocka_unit_test(a_single_sample_may_be_too_large),
        cmocka_unit_test(the_callback_can_stop_writing),
        cmocka_unit_test(ids_of_every_length),
        cmocka_unit_test(too_many_entries_are_rejected),
        cmocka_unit_test(without_memory),
    };
    return RUN(tests, request_setup, request_teardown);
}
