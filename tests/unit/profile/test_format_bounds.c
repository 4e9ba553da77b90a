/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the cost of reading profiles that are small on the wire. Each reader of a format gets
 * bodies that contain as many references as possible to a long text, or as many tiny elements as
 * possible. The number of steps (base/steps.h) may grow in proportion to the body. The memory may
 * grow to GROWTH times the body plus 1 MiB. If the environment variable BOUNDS_PRINT is set, the
 * test prints the figures. BOUNDS_ONLY names the only shape to run.
 */
#include <libdeflate.h>

#include "base/mem.h"
#include "base/steps.h"
#include "core/host.h"
#include "ingest/reading.h"
#include "tests/support/jfr_shape.h"
#include "tests/support/test.h"
#include "tests/support/worst.h"

#define MIB (1u << 20)
#define GROWTH 4
#define ROOM (1u << 30) /* effectively unlimited */
#define STEPS_MAX 24    /* steps allowed per byte; a body of n bytes counts as n + MIB bytes */

/* The body of a request and its parameters. */
struct body {
    enum br_profile_format format;
    bool from_pyroscope;
    struct wire data, labels;
    struct jfr_shape jfr;
};

typedef void shape_fn(struct body *b, size_t size);

struct cost {
    int rc;
    struct br_err err;
    size_t len, peak;
    uint64_t steps;
    uint32_t items;
    /* number of parts into which the reading divided the body; 0: the body was read as a whole */
    unsigned n_parts;
};

static struct br_host host;

static int setup(void **state)
{
    static const struct br_host_ops ops = {0};
    (void)state;
    return br_host_init(&host, &ops, br_pool_new(0));
}

static int teardown(void **state)
{
    (void)state;
    br_host_release(&host);
    br_pool_free(host.pool);
    return 0;
}

static size_t bytes_max(size_t len)
{
    return GROWTH * len + MIB;
}

/* --- Memory meter: current and peak bytes, with an optional limit ----------------------------- */

static struct {
    size_t held, peak, limit; /* bytes */
} meter;

static bool meter_take(size_t bytes)
{
    if (bytes > meter.limit - meter.held)
        return false;
    meter.held += bytes;
    meter.peak = meter.held > meter.peak ? meter.held : meter.peak;
    return true;
}

static void *meter_resize(void *p, size_t size)
{
    size_t *block = p ? (size_t *)p - 2 : NULL, had = block ? *block : 0;
    if (size > had && !meter_take(size - had))
        return NULL;
    size_t *moved = realloc(block, size + 16);
    if (!moved)
        abort();
    meter.held -= size < had ? had - size : 0;
    *moved = size;
    return moved + 2;
}

static void *meter_alloc(size_t size)
{
    return meter_resize(NULL, size);
}

static void meter_release(void *p)
{
    size_t *block = (size_t *)p - 2;
    meter.held -= *block;
    free(block);
}

static size_t meter_size(const void *p)
{
    return ((const size_t *)p)[-2];
}

static const struct br_mem_hooks meter_hooks = {
    .alloc = meter_alloc, .resize = meter_resize, .release = meter_release, .size = meter_size};

/* --- Reading ---------------------------------------------------------------------------------- */

/* Reads the source and takes the request from the builder. Allocations fail above `limit` bytes. */
static struct cost read_source(const struct br_profile_source *s, enum br_profile_format format,
                               size_t limit)
{
    struct cost cost = {.len = s->len + s->labels_len};
    struct br_arena scratch = {.max = ROOM};
    memset(&meter, 0, sizeof meter);
    meter.limit = ROOM;
    br_mem_set_hooks(&meter_hooks);
    struct br_build *build = br_build_new(&host, ROOM);
    struct br_item *item = br_item_new(&host, BR_PROFILES);
    assert_true(build && item);
    size_t before = meter.held;
    uint64_t steps = br_steps();
    meter.limit = before + limit;
    cost.rc = br_profile_read(build, format, s, &scratch, &cost.err);
    cost.steps = br_steps() - steps;
    cost.items = br_build_records(build);
    br_arena_release(&scratch);
    if (!cost.rc) {
        cost.rc = br_build_take(build, item);
        if (cost.rc)
            /* the message that receivers set in this case */
            (void)br_err_set(&cost.err, cost.rc, "%s", br_strerror(cost.rc));
    }
    cost.peak = meter.peak - before;
    br_item_free(item);
    br_build_free(build);
    br_mem_set_hooks(NULL);
    assert_int_equal(meter.held, 0);
    return cost;
}

static unsigned parts_of(const struct br_reading *reading)
{
    unsigned n = 0;
    for (const struct br_list *l = reading->pieces.next; l != &reading->pieces; l = l->next)
        n++;
    return n;
}

/* Reads the source as receivers do: the memory is limited by a memory scope, and a source that is
 * too large is read in parts. */
static struct cost read_in_scope(const struct br_profile_source *s, enum br_profile_format format)
{
    struct cost cost = {.len = s->len + s->labels_len};
    struct br_arena scratch = {.max = ROOM};
    struct br_workbench bench = {0};
    struct br_reading reading = {.host = &host, .bench = &bench};
    memset(&meter, 0, sizeof meter);
    meter.limit = ROOM;
    br_mem_set_hooks(&meter_hooks);
    bench.build = br_build_new(&host, ROOM);
    assert_non_null(bench.build);
    br_list_init(&reading.pieces);
    size_t before = meter.held;
    uint64_t steps = br_steps();
    br_mem_scope_begin(&reading.scope, bytes_max(cost.len), NULL);
    cost.rc = br_profile_reading(&reading, format, s, &scratch);
    br_arena_release(&scratch);
    if (!cost.rc && !reading.item && br_build_records(bench.build)) {
        reading.item = br_item_new(&host, BR_PROFILES);
        cost.rc = reading.item ? br_build_take(bench.build, reading.item) : BR_ENOMEM;
    }
    cost.steps = br_steps() - steps;
    cost.err = reading.err;
    cost.peak = meter.peak - before;
    cost.items = reading.item ? reading.item->n_records : 0;
    cost.n_parts = parts_of(&reading);
    br_reading_drop(&reading);
    br_mem_scope_end(&reading.scope);
    br_build_free(bench.build);
    br_mem_set_hooks(NULL);
    assert_int_equal(meter.held, 0);
    return cost;
}

enum limit { UNLIMITED, LIMITED, SCOPED };

/* Creates a body of about `size` bytes with the function `shape`, and reads it. */
static struct cost read_shape(shape_fn *shape, size_t size, enum limit limit)
{
    struct body b = {0};
    shape(&b, size);
    if (b.jfr.whole.len) {
        b.format = BR_FORMAT_JFR;
        wire_raw(&b.data, b.jfr.whole.data, b.jfr.whole.len);
    }
    struct br_profile_source s = {.data = b.data.data,
                                  .len = b.data.len,
                                  .labels = b.labels.data,
                                  .labels_len = b.labels.len,
                                  .from_pyroscope = b.from_pyroscope};
    size_t most = limit == LIMITED ? bytes_max(s.len + s.labels_len) : ROOM;
    struct cost cost =
        limit == SCOPED ? read_in_scope(&s, b.format) : read_source(&s, b.format, most);
    wire_free(&b.data);
    wire_free(&b.labels);
    jfr_shape_free(&b.jfr);
    return cost;
}

/* Asserts that the number of steps for bodies of 1 MiB, 2 MiB and so on grows linearly with their
 * size. A reader may reject a body that is too large for it. */
static void grows_with_the_body(const char *name, shape_fn *shape)
{
    uint64_t first = 0;
    for (size_t n = 1; n <= worst_mib_max(); n *= 2) {
        struct cost c = read_shape(shape, n * MIB, UNLIMITED);
        if (getenv("BOUNDS_PRINT"))
            print_message("%s: %zu bytes, %llu steps, %zu bytes held, %u samples, %d %s\n", name,
                          c.len, (unsigned long long)c.steps, c.peak, c.items, c.rc, c.err.text);
        if (c.rc != 0 && c.rc != BR_EFULL && c.rc != BR_EINVAL)
            fail_msg("%s: %d %s", name, c.rc, c.err.text);
        if (!first && c.rc == 0)
            first = c.steps / n;
        bool grows = c.rc == 0 && 2 * c.steps > (2 * n + 1) * first;
        if (grows || c.steps > STEPS_MAX * (c.len + MIB))
            fail_msg("%s: %llu steps for %zu bytes, %llu for the first mebibyte", name,
                     (unsigned long long)c.steps, c.len, (unsigned long long)first);
    }
}

/* --- Recordings ------------------------------------------------------------------------------- */

#define LATIN1 0xe9 /* a byte of Latin-1 text; the same character takes two bytes in UTF-8 */

static void put_bytes(struct wire *w, unsigned c, size_t n)
{
    uint8_t *bytes = malloc(n + 1);
    if (!bytes)
        abort();
    memset(bytes, (int)c, n);
    wire_raw(w, bytes, n);
    free(bytes);
}

static void put_long_string(struct body *b, uint64_t id, unsigned c, size_t len)
{
    jfr_shape_pool(&b->jfr, JFR_STRING, 1);
    wire_number(&b->jfr.pools, id);
    jfr_shape_latin1(&b->jfr.pools, c, len);
}

/* Appends a thread state. Samples in this state are counted. */
static void put_state(struct body *b)
{
    jfr_shape_pool(&b->jfr, JFR_STATE, 1);
    wire_number(&b->jfr.pools, 1);
    jfr_shape_text(&b->jfr.pools, "STATE_RUNNABLE");
}

/* Appends a stack without frames, and a thread state. */
static void put_no_stack(struct body *b)
{
    put_state(b);
    jfr_shape_pool(&b->jfr, JFR_TRACE, 1);
    wire_number(&b->jfr.pools, 1);
    wire_number(&b->jfr.pools, 0);
}

static void put_sample(struct body *b, uint64_t thread, uint64_t stack, uint64_t state,
                       uint64_t context, uint64_t name)
{
    const uint64_t v[] = {1, thread, stack, state, context, name != 0, name};
    struct wire *w = jfr_shape_open(&b->jfr, JFR_SAMPLE);
    for (size_t i = 0; i < BR_COUNT(v); i++)
        wire_number(w, v[i]);
    jfr_shape_close(&b->jfr);
}

/* Appends an event of four bytes. */
static void put_alloc(struct body *b, uint64_t size)
{
    struct wire *w = jfr_shape_open(&b->jfr, JFR_ALLOC);
    wire_number(w, 1);
    wire_number(w, size);
    jfr_shape_close(&b->jfr);
}

static void put_setting(struct body *b, size_t size, bool value)
{
    put_long_string(b, 1, LATIN1, size / 2);
    put_no_stack(b);
    put_sample(b, 1, 1, 1, 0, 0);
    while (b->jfr.events.len < size / 2) {
        struct wire *w = jfr_shape_open(&b->jfr, JFR_SETTING);
        wire_number(w, JFR_SAMPLE);
        if (value)
            jfr_shape_text(w, b->jfr.events.len % 2 ? "event" : "period");
        jfr_shape_pooled(w, 1);
        if (!value)
            jfr_shape_pooled(w, 1);
        jfr_shape_close(&b->jfr);
    }
    jfr_shape_chunk(&b->jfr);
}

static void shape_setting_names(struct body *b, size_t size)
{
    put_setting(b, size, false);
}

static void shape_setting_values(struct body *b, size_t size)
{
    put_setting(b, size, true);
}

static void shape_states(struct body *b, size_t size)
{
    unsigned n = (unsigned)(size / 32);
    put_long_string(b, 1, LATIN1, size / 2);
    put_no_stack(b);
    jfr_shape_pool(&b->jfr, JFR_STATE, n);
    for (unsigned i = 1; i <= n; i++) {
        wire_number(&b->jfr.pools, i);
        jfr_shape_pooled(&b->jfr.pools, 1);
        put_sample(b, 1, 1, i, 0, 0);
    }
    jfr_shape_chunk(&b->jfr);
}

static void shape_threads(struct body *b, size_t size)
{
    unsigned n = (unsigned)(size / 32);
    put_long_string(b, 1, LATIN1, size / 2);
    put_no_stack(b);
    jfr_shape_pool(&b->jfr, JFR_THREAD, n);
    for (unsigned i = 1; i <= n; i++) {
        wire_number(&b->jfr.pools, i);
        wire_byte(&b->jfr.pools, 0);
        jfr_shape_pooled(&b->jfr.pools, 1);
        wire_number(&b->jfr.pools, 0);
        put_sample(b, i, 1, 1, 0, 0);
    }
    jfr_shape_chunk(&b->jfr);
}

/* Appends `n` methods of class 1, named by symbol 1, and one stack that contains them all. */
static void put_methods(struct body *b, unsigned n)
{
    struct wire *w = &b->jfr.pools;
    put_state(b);
    jfr_shape_pool(&b->jfr, JFR_METHOD, n);
    for (unsigned i = 1; i <= n; i++) {
        wire_number(w, i);
        wire_number(w, 1);
        wire_number(w, 1);
    }
    jfr_shape_pool(&b->jfr, JFR_TRACE, 1);
    wire_number(w, 1);
    wire_number(w, n);
    for (unsigned i = 1; i <= n; i++) {
        wire_number(w, i);
        wire_number(w, 1);
    }
    put_sample(b, 1, 1, 1, 0, 0);
    jfr_shape_chunk(&b->jfr);
}

/* Class entries that have many bytes to skip, but a short name. */
static void shape_class_entries(struct body *b, size_t size)
{
    struct wire *w = &b->jfr.pools;
    jfr_shape_pool(&b->jfr, JFR_SYMBOL, 1);
    wire_number(w, 1);
    jfr_shape_text(w, "s");
    jfr_shape_pool(&b->jfr, JFR_CLASS, 1);
    wire_number(w, 1);
    wire_number(w, size / 2);
    put_bytes(w, 0, size / 2);
    wire_number(w, 1);
    put_methods(b, (unsigned)(size / 20));
}

/* All classes share one long name in the string pool. */
static void shape_class_names(struct body *b, size_t size)
{
    struct wire *w = &b->jfr.pools;
    unsigned n = (unsigned)(size / 60);
    put_state(b);
    put_long_string(b, 1, LATIN1, size / 2);
    jfr_shape_pool(&b->jfr, JFR_SYMBOL, n);
    for (unsigned i = 1; i <= n; i++) {
        wire_number(w, i);
        jfr_shape_pooled(w, 1);
    }
    jfr_shape_pool(&b->jfr, JFR_CLASS, n);
    for (unsigned i = 1; i <= n; i++) {
        wire_number(w, i);
        wire_number(w, 0);
        wire_number(w, i);
    }
    jfr_shape_pool(&b->jfr, JFR_METHOD, n);
    for (unsigned i = 1; i <= n; i++) {
        wire_number(w, i);
        wire_number(w, i);
        /* all methods have the same name: the entry after the last class name */
        wire_number(w, n + 1);
    }
    jfr_shape_pool(&b->jfr, JFR_TRACE, 1);
    wire_number(w, 1);
    wire_number(w, n);
    for (unsigned i = 1; i <= n; i++) {
        wire_number(w, i);
        wire_number(w, 1);
    }
    put_sample(b, 1, 1, 1, 0, 0);
    jfr_shape_chunk(&b->jfr);
}

/* The name of every method consists of the long name of the class and a short one of the method. */
static void shape_method_names(struct body *b, size_t size)
{
    struct wire *w = &b->jfr.pools;
    jfr_shape_pool(&b->jfr, JFR_SYMBOL, 1);
    wire_number(w, 1);
    jfr_shape_latin1(w, LATIN1, size / 2);
    jfr_shape_pool(&b->jfr, JFR_CLASS, 1);
    wire_number(w, 1);
    wire_number(w, 0);
    wire_number(w, 1);
    put_methods(b, (unsigned)(size / 20));
}

/* Names in which almost every position looks like a generated suffix that must be merged. */
static void shape_lambda_names(struct body *b, size_t size)
{
    struct wire *w = &b->jfr.pools;
    jfr_shape_pool(&b->jfr, JFR_SYMBOL, 1);
    wire_number(w, 1);
    wire_byte(w, 3);
    wire_number(w, size / 2 / 8 * 8);
    for (size_t i = 0; i < size / 2 / 8; i++)
        wire_raw(w, "$$Lambda", 8);
    jfr_shape_pool(&b->jfr, JFR_CLASS, 1);
    wire_number(w, 1);
    wire_number(w, 0);
    wire_number(w, 1);
    put_methods(b, (unsigned)(size / 20));
}

static void shape_equal_events(struct body *b, size_t size)
{
    b->from_pyroscope = true;
    put_no_stack(b);
    while (b->jfr.events.len < size)
        put_alloc(b, 1);
    jfr_shape_chunk(&b->jfr);
}

static void shape_equal_events_uploaded(struct body *b, size_t size)
{
    shape_equal_events(b, size);
    b->from_pyroscope = false;
}

/* No two samples can be merged. */
static void shape_unequal_events(struct body *b, size_t size)
{
    struct wire *w = &b->jfr.pools;
    unsigned n = (unsigned)(size / 24);
    b->from_pyroscope = true;
    put_state(b);
    jfr_shape_pool(&b->jfr, JFR_SYMBOL, 1);
    wire_number(w, 1);
    jfr_shape_text(w, "s");
    jfr_shape_pool(&b->jfr, JFR_CLASS, 1);
    wire_number(w, 1);
    wire_number(w, 0);
    wire_number(w, 1);
    jfr_shape_pool(&b->jfr, JFR_METHOD, 1);
    wire_raw(w, "\1\1\1", 3);
    jfr_shape_pool(&b->jfr, JFR_TRACE, n);
    for (unsigned i = 1; i <= n; i++) {
        wire_number(w, i);
        wire_raw(w, "\1\1", 2);
        wire_number(w, i);
        put_sample(b, 1, i, 1, 0, 0);
    }
    jfr_shape_chunk(&b->jfr);
}

/* A chunk with as many constants as possible, followed by chunks with one constant of each kind. */
static void shape_chunks(struct body *b, size_t size)
{
    static const enum jfr_shape_type types[] = {JFR_STATE, JFR_CLASS, JFR_SYMBOL, JFR_METHOD};
    for (unsigned many = (unsigned)(size / 40); b->jfr.whole.len < size; many = 1) {
        for (size_t t = 0; t < BR_COUNT(types); t++) {
            jfr_shape_pool(&b->jfr, types[t], many);
            for (unsigned i = 1; i <= many; i++) {
                wire_number(&b->jfr.pools, i);
                wire_raw(&b->jfr.pools, "\0\0",
                         types[t] == JFR_STATE || types[t] == JFR_SYMBOL ? 1 : 2);
            }
        }
        jfr_shape_chunk(&b->jfr);
    }
}

/* A stack that contains one method as often as possible. */
static void shape_deep_stack(struct body *b, size_t size)
{
    struct wire *w = &b->jfr.pools;
    unsigned n = (unsigned)(size / 16);
    jfr_shape_pool(&b->jfr, JFR_CLASS, 1);
    wire_raw(w, "\1\0\1", 3);
    jfr_shape_pool(&b->jfr, JFR_METHOD, 1);
    wire_raw(w, "\1\1\1", 3);
    jfr_shape_pool(&b->jfr, JFR_TRACE, 1);
    wire_number(w, 1);
    wire_number(w, n);
    for (unsigned i = 0; i < n; i++)
        wire_raw(w, "\1\1", 2);
    for (unsigned i = 0; i < n; i++)
        put_alloc(b, 1);
    jfr_shape_chunk(&b->jfr);
}

/* --- Labels of a recording -------------------------------------------------------------------- */

static void put_label_string(struct wire *w, uint64_t id, const void *text, size_t len)
{
    size_t entry = wire_open(w, 2);
    wire_varint(w, 1, id);
    wire_len(w, 2, text, len);
    wire_close(w, entry);
}

static void put_long_label(struct wire *w, uint64_t id, int c, size_t len)
{
    char *text = malloc(len + 1);
    assert_non_null(text);
    memset(text, c, len);
    put_label_string(w, id, text, len);
    free(text);
}

/* Appends a context with `n` labels. Label k has the key `key` + k * `step`. All labels have the
 * value `value`. */
static void put_context(struct wire *w, uint64_t id, unsigned n, uint64_t key, unsigned step,
                        uint64_t value)
{
    struct wire labels = {0};
    for (unsigned k = 0; k < n; k++) {
        size_t label = wire_open(&labels, 1);
        wire_varint(&labels, 1, key + k * step);
        wire_varint(&labels, 2, value);
        wire_close(&labels, label);
    }
    size_t entry = wire_open(w, 1);
    wire_varint(w, 1, id);
    wire_len(w, 2, labels.data, labels.len);
    wire_close(w, entry);
    wire_free(&labels);
}

static void put_one_event(struct body *b)
{
    put_no_stack(b);
    put_sample(b, 1, 1, 1, 1, 0);
    jfr_shape_chunk(&b->jfr);
}

/* The same label many times. */
static void shape_label_values(struct body *b, size_t size)
{
    put_one_event(b);
    put_long_label(&b->labels, 1, 'v', size / 2);
    put_context(&b->labels, 1, (unsigned)(size / 12), 1, 0, 1);
}

static void shape_label_contexts(struct body *b, size_t size)
{
    put_one_event(b);
    put_long_label(&b->labels, 1, 0xff, size / 2);
    for (unsigned i = 1; i <= size / 32; i++)
        put_context(&b->labels, i, 1, 1, 0, 1);
}

/* Labels with different keys and one value, which they share. */
static void shape_label_keys(struct body *b, size_t size)
{
    unsigned n = (unsigned)(size / 60);
    put_one_event(b);
    put_long_label(&b->labels, 1, 'v', size / 2);
    for (unsigned i = 2; i <= n; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "k%u", i);
        put_label_string(&b->labels, i, key, strlen(key));
    }
    put_context(&b->labels, 1, n, 2, 1, 1);
}

/* Labels that share one long text of blanks. Each key is an entry of its own in the string table,
 * although all keys have the same text, "span_id". */
static void shape_label_ids(struct body *b, size_t size)
{
    unsigned n = (unsigned)(size / 60);
    put_one_event(b);
    put_long_label(&b->labels, 1, ' ', size / 2);
    for (unsigned i = 2; i <= n; i++)
        put_label_string(&b->labels, i, "span_id", 7);
    put_context(&b->labels, 1, n, 2, 1, 1);
}

/* Tiny contexts that all differ. */
static void shape_contexts(struct body *b, size_t size)
{
    put_one_event(b);
    put_label_string(&b->labels, 1, "k", 1);
    for (unsigned i = 1; b->labels.len < size; i++) {
        put_label_string(&b->labels, i + 1, &i, sizeof i);
        put_context(&b->labels, i, 1, 1, 0, i + 1);
    }
}

/* Samples that use two contexts in turn. Each context has many labels. */
static void shape_context_in_turns(struct body *b, size_t size)
{
    unsigned n = (unsigned)(size / 60);
    for (unsigned i = 2; i <= n; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "k%u", i);
        put_label_string(&b->labels, i, key, strlen(key));
    }
    put_context(&b->labels, 1, n, 2, 1, 2);
    put_context(&b->labels, 2, n, 2, 1, 3);
    put_no_stack(b);
    for (unsigned i = 0; i < size / 32; i++)
        put_sample(b, 1, 1, 1, 1 + i % 2, 0);
    jfr_shape_chunk(&b->jfr);
}

/* All spans share one long name. */
static void shape_span_names(struct body *b, size_t size)
{
    put_long_label(&b->labels, 7, 0xff, size / 2);
    put_no_stack(b);
    for (unsigned i = 1; i <= size / 24; i++) {
        const uint64_t v[] = {1, 1, 1, 1, 0, i, 7};
        struct wire *w = jfr_shape_open(&b->jfr, JFR_SAMPLE);
        for (size_t k = 0; k < BR_COUNT(v); k++)
            wire_number(w, v[k]);
        jfr_shape_close(&b->jfr);
    }
    jfr_shape_chunk(&b->jfr);
}

/* Appends `n` stacks of a typical service: 40 frames out of 200 methods each. */
static void put_service_stacks(struct body *b, unsigned n)
{
    struct wire *w = &b->jfr.pools;
    put_state(b);
    jfr_shape_pool(&b->jfr, JFR_SYMBOL, 1);
    wire_number(w, 1);
    jfr_shape_text(w, "s");
    jfr_shape_pool(&b->jfr, JFR_CLASS, 1);
    wire_raw(w, "\1\0\1", 3);
    jfr_shape_pool(&b->jfr, JFR_METHOD, 200);
    for (unsigned i = 1; i <= 200; i++) {
        wire_number(w, i);
        wire_raw(w, "\1\1", 2);
    }
    jfr_shape_pool(&b->jfr, JFR_TRACE, n);
    for (unsigned i = 1; i <= n; i++) {
        wire_number(w, i);
        wire_number(w, 40);
        for (unsigned k = 0; k < 40; k++) {
            wire_number(w, 1 + (i * 7 + k * 13 + i / 200 * k) % 200);
            wire_number(w, 10);
        }
    }
}

/* Appends samples as in a service with many short requests: each span is different, and each stack
 * has four samples. */
static void put_spans(struct body *b, unsigned n)
{
    uint64_t id = 88172645463325252u;
    put_label_string(&b->labels, 7, "GET /", 5);
    put_service_stacks(b, n / 4);
    for (unsigned i = 0; i < n; i++) {
        id ^= id << 13, id ^= id >> 7, id ^= id << 17; /* xorshift */
        const uint64_t v[] = {i, 1, 1 + i / 4, 1, 0, id, 7};
        struct wire *w = jfr_shape_open(&b->jfr, JFR_SAMPLE);
        for (size_t k = 0; k < BR_COUNT(v); k++)
            wire_number(w, v[k]);
        jfr_shape_close(&b->jfr);
    }
    jfr_shape_chunk(&b->jfr);
}

static void shape_spans(struct body *b, size_t size)
{
    put_spans(b, (unsigned)(size / 48));
}

static void shape_spans_pushed(struct body *b, size_t size)
{
    b->from_pyroscope = true;
    put_spans(b, (unsigned)(size / 48));
}

/* --- Tries and trees -------------------------------------------------------------------------- */

static void put_node(struct wire *w, const void *name, size_t len, uint64_t value,
                     uint64_t n_children)
{
    wire_number(w, len);
    wire_raw(w, name, len);
    wire_number(w, value);
    wire_number(w, n_children);
}

/* Writes a chain of nodes. Each node adds one byte to the path, and the whole path is one name. */
static void put_chain(struct body *b, size_t size, enum br_profile_format format, const char *name)
{
    unsigned depth = size / 6 < 60000 ? (unsigned)(size / 6) : 60000;
    b->format = format;
    put_node(&b->data, "", 0, 0, 1);
    for (unsigned i = 1; i <= depth; i++)
        put_node(&b->data, name, strlen(name), 1, i < depth);
}

static void shape_trie_chain(struct body *b, size_t size)
{
    put_chain(b, size, BR_FORMAT_TRIE, "x");
}

static void shape_trie_frames(struct body *b, size_t size)
{
    put_chain(b, size, BR_FORMAT_TRIE, "x;");
}

static void shape_trie_bad_chain(struct body *b, size_t size)
{
    put_chain(b, size, BR_FORMAT_TRIE, "\xff");
}

static void shape_tree_chain(struct body *b, size_t size)
{
    put_chain(b, size, BR_FORMAT_TREE, "x");
}

/* Many names under a long path. They differ in bytes that are not UTF-8, so they become equal when
 * these bytes are replaced. */
static void shape_trie_bad_names(struct body *b, size_t size)
{
    struct wire *w = &b->data;
    b->format = BR_FORMAT_TRIE;
    put_node(w, "", 0, 0, 1);
    wire_number(w, size / 8);
    put_bytes(w, 0xff, size / 8);
    wire_raw(w, "\0\x64", 2);
    for (unsigned i = 0; i < 100 * 100; i++) {
        uint8_t outer = (uint8_t)(0x80 + i / 100), inner = (uint8_t)(0x80 + i % 100);
        if (i % 100 == 0)
            put_node(w, &outer, 1, 1, 100);
        put_node(w, &inner, 1, 1, 0);
    }
    put_bytes(w, 0, size / 2 / 3 * 3); /* empty tries follow */
}

/* Different names that begin with the same long prefix. */
static void shape_trie_prefix(struct body *b, size_t size)
{
    struct wire *w = &b->data;
    b->format = BR_FORMAT_TRIE;
    put_node(w, "", 0, 0, 1);
    wire_number(w, size / 4);
    put_bytes(w, 'x', size / 4);
    wire_number(w, 1);
    wire_number(w, 200);
    for (unsigned i = 0; i < 200; i++) {
        uint8_t last = (uint8_t)(1 + i);
        put_node(w, &last, 1, 1, 0);
    }
}

/* Appends as many different children of the root as possible. The text of each frame is as short as
 * possible. */
static void put_tiny_frames(struct body *b, size_t size, enum br_profile_format format)
{
    unsigned n = (unsigned)(size / 16);
    b->format = format;
    put_node(&b->data, "", 0, 0, n);
    for (unsigned i = 0; i < n; i++)
        put_node(&b->data, &i, 3, 1, 0);
}

static void shape_tree_leaves(struct body *b, size_t size)
{
    put_tiny_frames(b, size, BR_FORMAT_TREE);
}

static void shape_tree_equal_leaves(struct body *b, size_t size)
{
    unsigned n = (unsigned)(size / 6);
    b->format = BR_FORMAT_TREE;
    put_node(&b->data, "", 0, 0, n);
    for (unsigned i = 0; i < n; i++)
        put_node(&b->data, "x", 1, 1, 0);
}

/* --- Text ------------------------------------------------------------------------------------- */

static void put_lines(struct body *b, size_t size, const char *line)
{
    b->format = BR_FORMAT_FOLDED;
    while (b->data.len < size)
        wire_raw(&b->data, line, strlen(line));
}

static void shape_folded_lines(struct body *b, size_t size)
{
    put_lines(b, size, "a;b;c;\xff\xff\xff\xff 1\n");
}

static void shape_folded_depth(struct body *b, size_t size)
{
    b->format = BR_FORMAT_LINES;
    for (unsigned i = 0; i < 2; i++) {
        put_bytes(&b->data, ';', size / 2);
        wire_raw(&b->data, i ? "b\n" : "a\n", 2);
    }
}

static void shape_folded_frames(struct body *b, size_t size)
{
    b->format = BR_FORMAT_LINES;
    for (unsigned i = 0; b->data.len < size; i++) {
        char line[16];
        wire_raw(&b->data, line, (size_t)snprintf(line, sizeof line, "%x\n", i));
    }
}

static void shape_folded_long_lines(struct body *b, size_t size)
{
    b->format = BR_FORMAT_LINES;
    put_bytes(&b->data, 0xff, size / 2);
    wire_raw(&b->data, "\n", 1);
    put_bytes(&b->data, 0xff, size / 2);
}

/* --- perf script ------------------------------------------------------------------------------ */

static void perf_repeat(struct body *b, size_t size, const char *text)
{
    b->format = BR_FORMAT_PERF_SCRIPT;
    while (b->data.len < size)
        wire_raw(&b->data, text, strlen(text));
}

static void shape_perf_samples(struct body *b, size_t size)
{
    perf_repeat(b, size, "a 1 1.0: 1 c:\n\n");
}

static void shape_perf_frames(struct body *b, size_t size)
{
    b->format = BR_FORMAT_PERF_SCRIPT;
    wire_raw(&b->data, "a 1 1.0: 1 c:\n", 14);
    perf_repeat(b, size, " 1\n");
}

/* Each line has a new function, mapping and location. */
static void shape_perf_names(struct body *b, size_t size)
{
    b->format = BR_FORMAT_PERF_SCRIPT;
    for (unsigned i = 0; b->data.len < size; i++) {
        char text[96];
        (void)snprintf(text, sizeof text, "a%u %u 1.0: 1 c:\n 1 f%u (m%u)\n\n", i, i, i, i);
        wire_raw(&b->data, text, strlen(text));
    }
}

/* Lines with many words that look like thread ids. The last line ends with a long word that does
 * not. */
static void shape_perf_words(struct body *b, size_t size)
{
    b->format = BR_FORMAT_PERF_SCRIPT;
    perf_repeat(b, size / 2, "1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1.0: 1 c:\n\n");
    wire_raw(&b->data, "a 1 1 1 1 1 1 ", 14);
    put_bytes(&b->data, 'x', size / 2);
}

/* --- .cpuprofile ------------------------------------------------------------------------------ */

static void v8_open(struct body *b)
{
    b->format = BR_FORMAT_CPUPROFILE;
    wire_raw(&b->data, "{\"startTime\":0,\"nodes\":[", 24);
}

/* Appends a chain of nodes, each of which has a sample. Each stack contains the nodes before it, so
 * the total size of all stacks is quadratic in `n`. */
static void v8_samples(struct body *b, unsigned n, bool one)
{
    char text[64];
    wire_raw(&b->data, "],\"samples\":[", 13);
    for (unsigned i = 1; i <= n; i++) {
        (void)snprintf(text, sizeof text, "%s%u", i > 1 ? "," : "", one ? 1 : i);
        wire_raw(&b->data, text, strlen(text));
    }
    wire_raw(&b->data, "],\"timeDeltas\":[", 16);
    for (unsigned i = 1; i <= n; i++)
        wire_raw(&b->data, i > 1 ? ",1" : "1", i > 1 ? 2 : 1);
    wire_raw(&b->data, "]}", 2);
}

static void shape_cpuprofile_chain(struct body *b, size_t size)
{
    char text[128];
    unsigned n = (unsigned)(size / 96);
    v8_open(b);
    for (unsigned i = 1; i <= n; i++) {
        (void)snprintf(text, sizeof text,
                       "%s{\"id\":%u,\"callFrame\":{\"functionName\":\"f\"},\"children\":[",
                       i > 1 ? "," : "", i);
        wire_raw(&b->data, text, strlen(text));
        (void)snprintf(text, sizeof text, "%u]}", i + 1);
        wire_raw(&b->data, i < n ? text : "]}", i < n ? strlen(text) : 2);
    }
    v8_samples(b, n, false);
}

static void shape_cpuprofile_nodes(struct body *b, size_t size)
{
    char text[128];
    unsigned n = 1;
    v8_open(b);
    for (; b->data.len < size; n++) {
        (void)snprintf(text, sizeof text, "%s{\"id\":%u}", n > 1 ? "," : "", n);
        wire_raw(&b->data, text, strlen(text));
    }
    v8_samples(b, 1, true);
}

static void shape_cpuprofile_samples(struct body *b, size_t size)
{
    v8_open(b);
    wire_raw(&b->data, "{\"id\":1}", 8);
    v8_samples(b, (unsigned)(size / 4), true);
}

/* --- Firefox profiles ------------------------------------------------------------------------- */

static void put_text(struct body *b, const char *text)
{
    wire_raw(&b->data, text, strlen(text));
}

static void gecko_open(struct body *b)
{
    b->format = BR_FORMAT_GECKO;
    put_text(b, "{\"meta\":{},\"threads\":[{");
}

/* Appends a column that has the same element `n` times. */
static void gecko_column(struct body *b, const char *name, const char *element, size_t n)
{
    put_text(b, name);
    for (size_t i = 0; i < n; i++) {
        put_text(b, i ? "," : "[");
        put_text(b, element);
    }
    put_text(b, "]");
}

static void gecko_numbers(struct body *b, const char *name, unsigned first, unsigned n)
{
    char text[16];
    put_text(b, name);
    for (unsigned i = 0; i < n; i++) {
        (void)snprintf(text, sizeof text, "%s%u", i ? "," : "[", first + i);
        put_text(b, text);
    }
    put_text(b, "]");
}

#define GECKO_FUNCTION "\"stringArray\":[\"f\"],\"funcTable\":{\"name\":[0]},"
#define GECKO_TABLES GECKO_FUNCTION "\"frameTable\":{\"func\":[0]},"

/* Each stack adds one frame to the previous stack, and each stack has a sample. The total size of
 * all stacks is quadratic. */
static void shape_gecko_chain(struct body *b, size_t size)
{
    unsigned n = (unsigned)(size / 20);
    gecko_open(b);
    put_text(b, GECKO_TABLES "\"stackTable\":{");
    gecko_column(b, "\"frame\":", "0", n);
    put_text(b, ",\"prefixOffset\":[0");
    for (unsigned i = 1; i < n; i++)
        put_text(b, ",1");
    put_text(b, "]},\"samples\":{");
    gecko_numbers(b, "\"stack\":", 0, n);
    gecko_column(b, ",\"time\":", "1", n);
    put_text(b, "}}]}");
}

/* Stacks that no sample uses. */
static void shape_gecko_stacks(struct body *b, size_t size)
{
    gecko_open(b);
    put_text(b, GECKO_TABLES "\"stackTable\":{");
    gecko_column(b, "\"frame\":", "0", size / 2);
    put_text(b, "},\"samples\":{}}]}");
}

/* One long name, shared by all functions. */
static void shape_gecko_names(struct body *b, size_t size)
{
    gecko_open(b);
    put_text(b, "\"stringArray\":[\"\\u00e9");
    put_bytes(&b->data, 'x', size / 2);
    put_text(b, "\"],\"stackTable\":{},\"samples\":{},\"funcTable\":{");
    gecko_column(b, "\"name\":", "0", size / 4);
    put_text(b, "}}]}");
}

/* One long name, shared by all functions, in Gecko's native format. There, a frame contains the
 * name of its function. */
static void shape_gecko_locations(struct body *b, size_t size)
{
    gecko_open(b);
    put_text(b, "\"stringTable\":[\"f (");
    put_bytes(&b->data, 'x', size / 2);
    put_text(b, ":1)\"],\"stackTable\":{},\"samples\":{},\"frameTable\":{"
                "\"schema\":{\"location\":0},");
    gecko_column(b, "\"data\":", "[0]", size / 8);
    put_text(b, "}}]}");
}

/* Short strings that nothing refers to. */
static void shape_gecko_strings(struct body *b, size_t size)
{
    gecko_open(b);
    gecko_column(b, "\"stackTable\":{},\"samples\":{},\"stringArray\":", "0", size / 2);
    put_text(b, "}]}");
}

static void shape_gecko_samples(struct body *b, size_t size)
{
    gecko_open(b);
    put_text(b, GECKO_TABLES "\"stackTable\":{\"frame\":[0]},\"samples\":{");
    gecko_column(b, "\"stack\":", "0", size / 4);
    gecko_column(b, ",\"timeDeltas\":", "1", size / 4);
    put_text(b, "}}]}");
}

/* Many threads with one sample each, all of the same stack. */
static void shape_gecko_threads(struct body *b, size_t size)
{
    static const char thread[] = ",{\"samples\":{\"stack\":[0],\"time\":[1]}}";
    b->format = BR_FORMAT_GECKO;
    put_text(b, "{\"meta\":{},\"shared\":{" GECKO_TABLES
                "\"stackTable\":{\"frame\":[0]}},\"threads\":[{}");
    while (b->data.len < size)
        put_text(b, thread);
    put_text(b, "]}");
}

/* --- speedscope ------------------------------------------------------------------------------- */

#define SCHEMA "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\","

static void put_frames(struct body *b, const char *frames)
{
    b->format = BR_FORMAT_SPEEDSCOPE;
    put_text(b, SCHEMA "\"shared\":{\"frames\":[");
    put_text(b, frames);
    put_text(b, "]},\"profiles\":[");
}

/* Writes as many profiles as possible. Each profile contains the same `depth` nested frames. */
static void shape_speedscope_events(struct body *b, size_t size)
{
    put_frames(b, "{\"name\":\"f\"}");
    unsigned depth = 1;
    while ((size_t)depth * depth < 2 * size)
        depth++;
    for (unsigned p = 0; b->data.len < size; p++) {
        char text[96];
        (void)snprintf(text, sizeof text,
                       "%s{\"type\":\"evented\",\"name\":\"%u\",\"unit\":\"none\",\"startValue\":0,"
                       "\"events\":[",
                       p ? "," : "", p);
        put_text(b, text);
        for (unsigned i = 1; i <= depth; i++) {
            (void)snprintf(text, sizeof text, "%s{\"type\":\"O\",\"at\":%u,\"frame\":0}",
                           i > 1 ? "," : "", i);
            put_text(b, text);
        }
        for (unsigned i = 1; i <= depth; i++) {
            (void)snprintf(text, sizeof text, ",{\"type\":\"C\",\"at\":%u,\"frame\":0}", depth + i);
            put_text(b, text);
        }
        put_text(b, "]}");
    }
    put_text(b, "]}");
}

static void shape_speedscope_samples(struct body *b, size_t size)
{
    put_frames(b, "{\"name\":\"f\"}");
    put_text(b, "{\"type\":\"sampled\",\"unit\":\"none\",\"samples\":[[0]");
    unsigned n = (unsigned)(size / 8);
    for (unsigned i = 1; i < n; i++)
        put_text(b, ",[0]");
    put_text(b, "],\"weights\":[1");
    for (unsigned i = 1; i < n; i++)
        put_text(b, ",1");
    put_text(b, "]}]}");
}

/* One sample, whose stack contains the same frame as often as possible. */
static void shape_speedscope_depth(struct body *b, size_t size)
{
    put_frames(b, "{\"name\":\"f\"}");
    put_text(b, "{\"type\":\"sampled\",\"unit\":\"none\",\"weights\":[1],\"samples\":[[0");
    while (b->data.len < size)
        put_text(b, ",0");
    put_text(b, "]]}]}");
}

/* Many members that Braid does not know. They precede the members that it reads. */
static void shape_speedscope_members(struct body *b, size_t size)
{
    put_frames(b, "{\"name\":\"f\"}");
    put_text(b, "{\"type\":\"evented\",\"unit\":\"none\",\"events\":[{\"type\":\"O\",\"at\":0,"
                "\"frame\":0");
    while (b->data.len < size)
        put_text(b, ",\"\\u0061\":0");
    put_text(b, "},{\"type\":\"C\",\"at\":1,\"frame\":0}]}]}");
}

static void shape_speedscope_profiles(struct body *b, size_t size)
{
    put_frames(b, "{\"name\":\"f\"}");
    for (unsigned i = 0; i < 4096; i++) {
        char text[128];
        (void)snprintf(
            text, sizeof text,
            "%s{\"type\":\"sampled\",\"name\":\"%u\",\"unit\":\"none\",\"samples\":[[0]],"
            "\"weights\":[1]}",
            i ? "," : "", i);
        put_text(b, text);
    }
    while (b->data.len < size)
        put_text(b, " ");
    put_text(b, "]}");
}

/* Empty arrays in members that are not read. */
static void shape_speedscope_empty(struct body *b, size_t size)
{
    b->format = BR_FORMAT_SPEEDSCOPE;
    put_text(b, SCHEMA "\"x\":[0");
    while (b->data.len < size)
        put_text(b, ",[]");
    put_text(b, "]}");
}

/* --- The tests -------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    shape_fn *make;
} shapes[] = {
#define SHAPE(name)                                                                                \
    {                                                                                              \
#name, shape_##name                                                                        \
    }
    SHAPE(setting_names),
    SHAPE(setting_values),
    SHAPE(states),
    SHAPE(threads),
    SHAPE(class_entries),
    SHAPE(class_names),
    SHAPE(method_names),
    SHAPE(lambda_names),
    SHAPE(equal_events),
    SHAPE(equal_events_uploaded),
    SHAPE(unequal_events),
    SHAPE(chunks),
    SHAPE(deep_stack),
    SHAPE(label_values),
    SHAPE(label_contexts),
    SHAPE(label_keys),
    SHAPE(label_ids),
    SHAPE(contexts),
    SHAPE(context_in_turns),
    SHAPE(span_names),
    SHAPE(spans),
    SHAPE(spans_pushed),
    SHAPE(trie_chain),
    SHAPE(trie_frames),
    SHAPE(trie_bad_chain),
    SHAPE(trie_bad_names),
    SHAPE(trie_prefix),
    SHAPE(tree_chain),
    SHAPE(tree_leaves),
    SHAPE(tree_equal_leaves),
    SHAPE(folded_lines),
    SHAPE(folded_depth),
    SHAPE(folded_frames),
    SHAPE(folded_long_lines),
    SHAPE(perf_samples),
    SHAPE(perf_frames),
    SHAPE(perf_names),
    SHAPE(perf_words),
    SHAPE(cpuprofile_chain),
    SHAPE(cpuprofile_nodes),
    SHAPE(cpuprofile_samples),
    SHAPE(gecko_chain),
    SHAPE(gecko_stacks),
    SHAPE(gecko_names),
    SHAPE(gecko_locations),
    SHAPE(gecko_strings),
    SHAPE(gecko_samples),
    SHAPE(gecko_threads),
    SHAPE(speedscope_events),
    SHAPE(speedscope_samples),
    SHAPE(speedscope_depth),
    SHAPE(speedscope_members),
    SHAPE(speedscope_profiles),
    SHAPE(speedscope_empty),
#undef SHAPE
};

static void test_work(void **state)
{
    const char *only = getenv("BOUNDS_ONLY");
    (void)state;
    for (size_t i = 0; i < BR_COUNT(shapes); i++)
        if (!only || strcmp(only, shapes[i].name) == 0)
            grows_with_the_body(shapes[i].name, shapes[i].make);
}

/* --- Profiles of real programs ---------------------------------------------------------------- */

/* Reads a file of tests/ and decompresses it if it is gzip. */
static struct wire read_file(const char *path)
{
    static uint8_t block[1 << 20], plain[1 << 20];
    struct wire w = {0};
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t len = fread(block, 1, sizeof block, f);
    (void)fclose(f);
    if (block[0] != 0x1f || block[1] != 0x8b) {
        wire_raw(&w, block, len);
        return w;
    }
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    assert_non_null(d);
    assert_int_equal(libdeflate_gzip_decompress(d, block, len, plain, sizeof plain, &len),
                     LIBDEFLATE_SUCCESS);
    libdeflate_free_decompressor(d);
    wire_raw(&w, plain, len);
    return w;
}

/* Asserts that reading a real profile takes little memory. A recording is repeated twenty times,
 * which makes twenty chunks. The fixed part of the limit is then small compared with the
 * recording. */
static void takes_little_memory(const char *path, enum br_profile_format format,
                                bool from_pyroscope)
{
    struct wire w = read_file(path), all = {0};
    for (int i = 0; i < (format == BR_FORMAT_JFR ? 20 : 1); i++)
        wire_raw(&all, w.data, w.len);
    struct br_profile_source s = {
        .data = all.data, .len = all.len, .from_pyroscope = from_pyroscope, .sample_rate = 100};
    struct cost c = read_source(&s, format, ROOM);
    if (getenv("BOUNDS_PRINT"))
        print_message("%s: %zu bytes held for %zu\n", path, c.peak, c.len);
    if (c.rc)
        fail_msg("%s: %d %s", path, c.rc, c.err.text);
    assert_true(c.peak <= 5 * c.len / 2 + MIB / 8);
    wire_free(&w);
    wire_free(&all);
}

static void test_real_files(void **state)
{
    static const char *const recordings[] = {"agent-itimer", "agent-malloc", "agent-wall",
                                             "jdk17-chunks", "jdk17-default"};
    (void)state;
    for (size_t i = 0; i < 2 * BR_COUNT(recordings); i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "tests/data/jfr/%s.jfr.gz", recordings[i / 2]);
        takes_little_memory(path, BR_FORMAT_JFR, i % 2);
    }
    takes_little_memory("tests/corpus/speedscope/py-spy.json", BR_FORMAT_SPEEDSCOPE, false);
    takes_little_memory("tests/corpus/folded/py-spy", BR_FORMAT_FOLDED, false);
}

/* With the memory of one request, each shape is read or rejected within the limit. */
static void test_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(shapes); i++) {
        struct cost c = read_shape(shapes[i].make, 2 * MIB, LIMITED);
        if (getenv("BOUNDS_PRINT"))
            print_message("%s: %zu bytes held for %zu, %d %s\n", shapes[i].name, c.peak, c.len,
                          c.rc, c.err.text);
        if (c.rc != 0 && !c.err.text[0])
            fail_msg("%s: %d without a message", shapes[i].name, c.rc);
        assert_true(c.peak <= bytes_max(c.len));
    }
}

static void test_memory_in_scope(void **state)
{
    bool kept = true;
    (void)state;
    for (size_t i = 0; i < BR_COUNT(shapes); i++) {
        struct cost c = read_shape(shapes[i].make, 2 * MIB, SCOPED);
        if (getenv("BOUNDS_PRINT"))
            print_message("%s, in a scope: %zu bytes held for %zu in %u parts, %d %s\n",
                          shapes[i].name, c.peak, c.len, c.n_parts, c.rc, c.err.text);
        if (c.peak <= bytes_max(c.len) && c.steps <= STEPS_MAX * (c.len + MIB))
            continue;
        print_error("%s: %zu bytes held for %zu, %llu steps\n", shapes[i].name, c.peak, c.len,
                    (unsigned long long)c.steps);
        kept = false;
    }
    assert_true(kept);
}

/* A busy service sends 1,250 to 20,000 samples, each with a different span. */
static void test_spans(void **state)
{
    (void)state;
    for (unsigned n = 1250; n <= 20000; n *= 2) {
        for (int pushed = 0; pushed < 2; pushed++) {
            struct cost c = read_shape(pushed ? shape_spans_pushed : shape_spans, n * 48, LIMITED);
            if (getenv("BOUNDS_PRINT"))
                print_message("%u spans: %zu bytes held for %zu\n", n, c.peak, c.len);
            if (c.rc)
                fail_msg("%u spans: %s", n, c.err.text);
            /* if `n` is not a multiple of four, the stack of the last samples does not exist */
            assert_true(c.items + 4 >= n);
        }
    }
}

/* --- Many short stacks ------------------------------------------------------------------------ */

static const char *const around[][2] = {
    [BR_FORMAT_FOLDED] = {"main;run;fn_", " 1\n"},
    [BR_FORMAT_LINES] = {"main;run;fn_", "\n"},
    [BR_FORMAT_PERF_SCRIPT] = {"app 1 1.0: 1 c:\n\t1 fn_", " (app)\n\n"},
};

static void put_from(struct body *b, enum br_profile_format format, unsigned first, unsigned n)
{
    b->format = format;
    for (unsigned i = first; i < first + n; i++) {
        char line[96];
        wire_raw(&b->data, line,
                 (size_t)snprintf(line, sizeof line, "%s%06u%s", around[format][0], i,
                                  around[format][1]));
    }
}

static void put_stacks(struct body *b, enum br_profile_format format, unsigned n)
{
    put_from(b, format, 0, n);
}

/* Appends `n` stacks that consist of the same few names, each in a different order. */
static void put_orders(struct body *b, unsigned n)
{
    b->format = BR_FORMAT_FOLDED;
    for (unsigned i = 0; i < n; i++) {
        char line[64];
        wire_raw(&b->data, line,
                 (size_t)snprintf(line, sizeof line, "f%u;f%u;f%u 1\n", i % 47, i / 47 % 47,
                                  i / 47 / 47));
    }
}

static void put_speedscope(struct body *b, unsigned n)
{
    char text[64];
    b->format = BR_FORMAT_SPEEDSCOPE;
    put_text(b, SCHEMA "\"shared\":{\"frames\":[");
    for (unsigned i = 0; i < n; i++) {
        (void)snprintf(text, sizeof text, "%s{\"name\":\"fn_%06u\"}", i ? "," : "", i);
        put_text(b, text);
    }
    put_text(b, "]},\"profiles\":[{\"type\":\"sampled\",\"unit\":\"none\",\"samples\":[");
    for (unsigned i = 0; i < n; i++) {
        (void)snprintf(text, sizeof text, "%s[0,%u]", i ? "," : "", i);
        put_text(b, text);
    }
    put_text(b, "],\"weights\":[");
    for (unsigned i = 0; i < n; i++)
        put_text(b, i ? ",1" : "1");
    put_text(b, "]}]}");
}

static void expect_accepted(const char *name, struct body *b, unsigned n)
{
    struct br_profile_source s = {.data = b->data.data, .len = b->data.len};
    struct cost c = read_in_scope(&s, b->format);
    if (getenv("BOUNDS_PRINT"))
        print_message("%s, %u stacks: %zu bytes held for %zu in %u parts, %d %s\n", name, n, c.peak,
                      c.len, c.n_parts, c.rc, c.err.text);
    if (c.rc)
        fail_msg("%s, %u stacks: %d %s", name, n, c.rc, c.err.text);
    assert_int_equal(c.items, n);
    assert_true(c.peak <= bytes_max(c.len));
    assert_true(c.steps <= STEPS_MAX * (c.len + MIB));
    wire_free(&b->data);
    *b = (struct body){0};
}

/* Profilers typically send short stacks, most of which differ. In OTLP these stacks need more bytes
 * than in the formats of the profilers. */
static void test_short_stacks(void **state)
{
    static const unsigned counts[] = {1000, 10000, 45000, 100000};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(counts); i++) {
        struct body b = {0};
        unsigned n = counts[i];
        put_stacks(&b, BR_FORMAT_FOLDED, n);
        expect_accepted("folded", &b, n);
        put_orders(&b, n);
        expect_accepted("folded, few names", &b, n);
        put_stacks(&b, BR_FORMAT_LINES, n);
        expect_accepted("lines", &b, n);
        put_stacks(&b, BR_FORMAT_PERF_SCRIPT, n);
        expect_accepted("perf script", &b, n);
        put_speedscope(&b, n);
        expect_accepted("speedscope", &b, n);
    }
}

SUITE(format_bounds)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_memory_in_scope),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_short_stacks),
        cmocka_unit_test(test_real_files),
    };
    return RUN(tests, setup, teardown);
}
