/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests recordings of a real machine and a real agent (tests/data/jfr/capture) and recordings
 * written by hand for cases that no machine produces. Two independent readers give the expected
 * results: Pyroscope's jfr-parser for uploads of Pyroscope clients (.expected), and the JDK's
 * reader, event by event, for other uploads (.events).
 */
#include "tests/support/profiles_request.h"

#include "opentelemetry/proto/collector/profiles/v1development/profiles_service.pb-c.h"
#include "otlp/json/json.h"
#include "profile/jfr/jfr.h"
#include "profile/profile.h"
#include "tests/support/corpus.h"
#include "tests/support/fake_sink.h"
#include "tests/support/gen.h"
#include "tests/support/jfr_made.h"
#include "tests/support/profile_view.h"
#include "tests/support/test.h"
#include "wire/compression.h"

#define PLAIN_MAX (4u << 20)
#define BEGIN_NS 1000000000u
#define END_NS 11000000000u

/* Returns a file of tests/data/jfr, which is decompressed if it is gzip. Returns NULL if the file
 * does not exist. */
static struct br_buf *data_file(const char *name, const char *suffix)
{
    char path[256];
    static uint8_t block[1 << 20];
    (void)snprintf(path, sizeof path, "tests/data/jfr/%s.%s", name, suffix);
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    size_t len = fread(block, 1, sizeof block, f);
    (void)fclose(f);
    struct br_buf *plain = NULL;
    if (len < 2 || block[0] != 0x1f || block[1] != 0x8b) {
        plain = br_buf_new(host.pool, len);
        assert_int_equal(br_buf_append(&plain, block, len, PLAIN_MAX), 0);
        return plain;
    }
    struct br_codec *codec = br_codec_new();
    int rc = br_decompress(codec, BR_ENCODING_GZIP, block, len, PLAIN_MAX, host.pool, &plain, NULL);
    assert_int_equal(rc, 0);
    br_codec_free(codec);
    return plain;
}

/* Returns the bytes of the builder's request; NULL if memory runs out. */
static struct br_buf *built(struct br_build *b, const uint8_t **ret, size_t *ret_len)
{
    struct br_rope rope = {0};
    struct br_item *item = br_item_new(&host, BR_PROFILES);
    struct br_buf *flat = NULL;
    if (item && !br_build_take(b, item) && !br_item_write(item, &rope))
        flat = br_rope_flat(&rope, host.pool, ret);
    *ret_len = rope.len;
    br_rope_release(&rope);
    if (item)
        br_item_free(item);
    return flat;
}

struct result {
    struct br_err err;
    struct br_buf *buf; /* NULL: no result */
    const uint8_t *data;
    size_t len;
    size_t build_max;
};

/* Converts a source to a request. The walk must accept the request. */
static int convert(const struct br_profile_source *s, struct result *r)
{
    struct br_arena scratch = {.max = 64u << 20};
    struct br_build *b = br_build_new(&host, r->build_max ? r->build_max : 64u << 20);
    r->buf = NULL;
    r->err = (struct br_err){0};
    int rc = b ? br_profile_read(b, BR_FORMAT_JFR, s, &scratch, &r->err) : BR_ENOMEM;
    if (!rc && br_build_records(b)) {
        r->buf = built(b, &r->data, &r->len);
        rc = r->buf ? 0 : BR_ENOMEM;
    }
    br_build_free(b);
    br_arena_release(&scratch);
    if (rc || !r->buf)
        return rc;
    struct br_item *walked = br_item_new(&host, BR_PROFILES);
    const struct br_walk_options options = {.utf8 = BR_UTF8_REJECT};
    struct br_err err = {0};
    uint32_t repaired;
    rc = walked ? br_walk(walked, r->buf, r->data, r->len, &options, &repaired, &err) : BR_ENOMEM;
    if (rc == BR_EINVAL)
        fail_msg("%s", err.text);
    br_item_free(walked);
    return rc;
}

static struct br_profile_source upload_of(const struct br_buf *file, const struct br_buf *labels)
{
    return (struct br_profile_source){.data = file->data,
                                      .len = file->len,
                                      .labels = labels ? labels->data : NULL,
                                      .labels_len = labels ? labels->len : 0,
                                      .from_pyroscope = true,
                                      .sample_rate = 100,
                                      .start_ns = BEGIN_NS,
                                      .end_ns = END_NS};
}

static char *view(const struct result *r)
{
    struct br_str out = {.max = 64u << 20};
    profile_view(r->data, r->len, &out);
    assert_false(out.failed);
    return out.data;
}

/* Prints only the first line that differs, because each text may have megabytes. */
static void assert_same_text(const char *name, const char *ours, const char *theirs)
{
    const char *from = theirs;
    size_t line = 1;
    for (; *ours && *ours == *theirs; ours++, theirs++)
        if (*ours == '\n') {
            line++;
            from = theirs + 1;
        }
    if (*ours != *theirs)
        fail_msg("%s, line %zu: ours continues with \"%.300s\", theirs is \"%.2000s\"", name, line,
                 ours, from);
}

/* --- Captures --------------------------------------------------------------------------------- */

/* For each capture: the program that recorded it, and the period of its samples according to the
 * program's settings. */
static const struct {
    const char *name;
    bool labels;
    uint32_t n_chunks;
    int64_t period_ns, wall_ns;
} captures[] = {
    {"agent-itimer", true, 1, 10000000, 10000000},  {"agent-malloc", true, 1, 0, 0},
    {"agent-wall", true, 1, 20000000, 20000000},    {"agent-both", true, 1, 10000000, 50000000},
    {"jdk17-chunks", false, 4, 10000000, 10000000}, {"jdk17-default", false, 2, 20000000, 20000000},
};

typedef Opentelemetry__Proto__Collector__Profiles__V1development__ExportProfilesServiceRequest
    Request;
typedef Opentelemetry__Proto__Profiles__V1development__Profile Profile;

/* Asserts that profiles of CPU time and wall time have these periods, and that all profiles have
 * these times. */
static void check_profiles(const struct result *r, int64_t cpu_ns, int64_t wall_ns,
                           uint64_t start_ns, uint64_t duration_ns)
{
    Request *q = gen_decode(br_otlp_request(BR_PROFILES), r->data, r->len);
    assert_int_equal(q->n_resource_profiles, 1);
    for (size_t i = 0; i < q->resource_profiles[0]->n_scope_profiles; i++)
        for (size_t k = 0; k < q->resource_profiles[0]->scope_profiles[i]->n_profiles; k++) {
            const Profile *p = q->resource_profiles[0]->scope_profiles[i]->profiles[k];
            const char *type = q->dictionary->string_table[p->sample_type->type_strindex];
            bool of_wall = !strcmp(type, "wall"), of_time = !strcmp(type, "cpu") || of_wall;
            int64_t period_ns = of_wall ? wall_ns : cpu_ns;
            assert_int_equal(p->period, of_time ? period_ns : 0);
            for (size_t n = 0; of_time && n < p->n_samples; n++)
                assert_int_equal(p->samples[n]->values[0] % period_ns, 0);
            assert_int_equal(p->time_unix_nano, start_ns);
            assert_int_equal(p->duration_nano, duration_ns);
        }
    protobuf_c_message_free_unpacked(&q->base, NULL);
}

static void compare(const char *name, const char *suffix, struct result *r)
{
    struct br_buf *theirs = data_file(name, suffix);
    assert_non_null(theirs);
    assert_int_equal(br_buf_append(&theirs, "", 1, PLAIN_MAX), 0);
    assert_non_null(r->buf);
    char *ours = view(r);
    assert_same_text(name, ours, (const char *)theirs->data);
    br_free(ours);
    br_buf_unref(theirs);
}

static void test_as_pyroscope(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(captures); i++) {
        struct br_buf *file = data_file(captures[i].name, "jfr.gz");
        struct br_buf *labels = data_file(captures[i].name, "labels.pb");
        enum br_profile_format format;
        assert_true(br_profile_guess(file->data, file->len, &format));
        assert_int_equal(format, BR_FORMAT_JFR);
        assert_int_equal(labels != NULL, captures[i].labels);
        struct br_profile_source s = upload_of(file, labels);
        struct result r = {0};
        assert_int_equal(convert(&s, &r), 0);
        compare(captures[i].name, "expected.gz", &r);
        check_profiles(&r, 10000000, 10000000, BEGIN_NS, END_NS - BEGIN_NS);
        br_buf_unref(r.buf);
        br_buf_unref(labels);
        br_buf_unref(file);
    }
}

static uint64_t big_endian(const uint8_t *p)
{
    uint64_t v = 0;
    for (int i = 0; i < 8; i++)
        v = v << 8 | p[i];
    return v;
}

/* Returns the end time of the last chunk, as stated by the headers. Stores the number of chunks in
 * `*ret_n`. */
static uint64_t end_of(const struct br_buf *file, uint32_t *ret_n)
{
    uint64_t end = 0;
    *ret_n = 0;
    for (size_t at = 0; at < file->len; at += big_endian(file->data + at + 8), ++*ret_n)
        end = big_endian(file->data + at + 32) + big_endian(file->data + at + 40);
    return end;
}

static void test_as_upload(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(captures); i++) {
        struct br_buf *file = data_file(captures[i].name, "jfr.gz");
        /* Times given with the upload do not replace those of the recording. */
        struct br_profile_source s = {
            .data = file->data, .len = file->len, .start_ns = END_NS, .end_ns = END_NS};
        struct result r = {0};
        uint64_t start = big_endian(file->data + 32);
        uint32_t n_chunks;
        uint64_t end = end_of(file, &n_chunks);
        assert_int_equal(n_chunks, captures[i].n_chunks);
        assert_int_equal(convert(&s, &r), 0);
        compare(captures[i].name, "events.gz", &r);
        check_profiles(&r, captures[i].period_ns, captures[i].wall_ns, start, end - start);
        br_buf_unref(r.buf);
        br_buf_unref(file);
    }
}

/* A capture that is cut at any place is reported as an error. Sanitizers detect reads after the
 * cut. */
static void test_cut_off(void **state)
{
    (void)state;
    struct br_buf *file = data_file("agent-itimer", "jfr.gz");
    for (size_t len = 1; len < file->len; len += len < 200 ? 1 : 997) {
        uint8_t *exact = malloc(len);
        assert_non_null(exact);
        memcpy(exact, file->data, len);
        struct br_profile_source s = {.data = exact, .len = len};
        struct result r = {0};
        assert_int_equal(convert(&s, &r), BR_EINVAL);
        assert_memory_equal(r.err.text, "JFR chunk at byte 0: ", 21);
        free(exact);
    }
    br_buf_unref(file);
}

static void test_too_large(void **state)
{
    (void)state;
    struct br_buf *file = data_file("jdk17-default", "jfr.gz");
    struct br_profile_source s = upload_of(file, NULL);
    struct result r = {.build_max = 1000};
    assert_int_equal(convert(&s, &r), BR_EFULL);
    br_buf_unref(file);
}

struct fault_case {
    struct br_profile_source source;
    struct br_buf *file, *labels;
};

static int convert_once(void *arg)
{
    const struct fault_case *c = arg;
    struct result r = {0};
    int rc = convert(&c->source, &r);
    br_buf_unref(r.buf);
    return rc;
}

static void test_no_memory(void **state)
{
    (void)state;
    struct fault_case c = {.file = data_file("agent-wall", "jfr.gz"),
                           .labels = data_file("agent-wall", "labels.pb")};
    c.source = upload_of(c.file, c.labels);
    with_failures(convert_once, &c);
    c.source.from_pyroscope = false;
    with_failures(convert_once, &c);
    br_buf_unref(c.file);
    br_buf_unref(c.labels);
}

/* --- The walk over events --------------------------------------------------------------------- */

enum { WANTED = 101, N_EVENTS = 12000 };

struct row {
    struct wire w;
    uint32_t starts[N_EVENTS];
    uint64_t ticks[N_EVENTS]; /* ticks of the events that the walk should find */
    uint32_t n_wanted;
    uint64_t random;
};

/* Appends a value as LEB128 in `n` bytes. */
static void leb128(struct wire *w, uint64_t value, unsigned n)
{
    for (; n > 1; n--, value >>= 7)
        wire_byte(w, (unsigned)(value & 0x7f) | 0x80);
    wire_byte(w, (unsigned)value);
}

/* Appends an event with its tick and random bytes. */
static void row_event(struct row *row, uint64_t type, unsigned n_type, unsigned n_size,
                      unsigned n_rest)
{
    struct wire body = {0};
    uint64_t tick = fake_random(&row->random) % 1000000;
    leb128(&body, type, n_type);
    leb128(&body, tick, 3);
    for (unsigned k = 0; k < n_rest; k++)
        wire_byte(&body, (unsigned)(fake_random(&row->random) & 0xff));
    leb128(&row->w, n_size + body.len, n_size);
    wire_raw(&row->w, body.data, body.len);
    if (type == WANTED)
        row->ticks[row->n_wanted++] = tick;
    wire_free(&body);
}

/* Appends random events. The types of some unwanted events begin with the byte of the wanted type,
 * or are equal to it modulo BR_JFR_WANTED. */
static void row_events(struct row *row, unsigned wanted_of_100)
{
    static const struct {
        uint64_t type;
        unsigned n_type;
    } others[] = {{50, 1}, {50, 1}, {50, 2}, {49, 1}, {WANTED + 128, 2}, {WANTED + 1024, 2}};
    for (size_t k = 0; k < BR_JFR_HEADER; k++)
        wire_byte(&row->w, 0);
    for (uint32_t i = 0; i < N_EVENTS; i++) {
        uint64_t dice = fake_random(&row->random);
        size_t other = dice >> 8 & 7 ? 0 : dice >> 16;
        row->starts[i] = (uint32_t)row->w.len;
        unsigned n_size = 1;
        if (!(dice >> 32 & 15))
            n_size = dice >> 36 & 1 ? 2 : 4;
        unsigned n_rest = n_size == 1 ? (unsigned)(dice >> 40 & 63) : 200;
        if (dice % 100 < wanted_of_100)
            row_event(row, WANTED, dice >> 48 & 1 ? 1 : 2, n_size, n_rest);
        else
            row_event(row, others[other % BR_COUNT(others)].type,
                      others[other % BR_COUNT(others)].n_type, n_size, n_rest);
    }
}

static void check_events(const struct row *row, struct br_jfr_chunk *chunk, uint32_t middle)
{
    static struct br_jfr_events events;
    uint64_t v[BR_JFR_N_SLOTS];
    struct br_err err = {0};
    uint32_t n = 0;
    chunk->middle = middle;
    br_jfr_events_begin(&events, chunk);
    for (int type; (type = br_jfr_event(chunk, &events, v, &err)) != 0; n++) {
        assert_int_equal(type, BR_JFR_EXECUTION_SAMPLE);
        assert_in_range(n, 0, row->n_wanted - 1);
        assert_int_equal(v[BR_JFR_START], row->ticks[n]);
    }
    assert_int_equal(n, row->n_wanted);
}

/* Wherever the second scan (struct br_jfr_events) begins, even between two events, the iteration
 * returns all events once and in order. This also holds if the second scan finds more events than
 * it can record. */
static void test_events_ahead(void **state)
{
    (void)state;
    static const unsigned wanted_of_100[] = {0, 1, 10, 95};
    struct br_jfr_field field = {.slot = BR_JFR_START, .type = BR_JFR_LONG, .plain = true};
    struct br_jfr_class class = {.id = WANTED, .n_fields = 1, .n_needed = 1};
    static struct br_jfr_chunk chunk;
    for (size_t i = 0; i < BR_COUNT(wanted_of_100); i++) {
        struct row *row = calloc(1, sizeof *row);
        assert_non_null(row);
        row_events(row, wanted_of_100[i]);
        chunk = (struct br_jfr_chunk){.data = row->w.data,
                                      .size = (uint32_t)row->w.len,
                                      .packed = true,
                                      .classes = &class,
                                      .n_classes = 1,
                                      .fields = &field,
                                      .n_fields = 1};
        for (unsigned type = 0; type < BR_JFR_N_TYPES; type++)
            chunk.class_of[type] = BR_JFR_NO_CLASS;
        chunk.class_of[BR_JFR_EXECUTION_SAMPLE] = 0;
        chunk.event_ids[BR_JFR_EXECUTION_SAMPLE - BR_JFR_FIRST_EVENT] = WANTED;
        chunk.wanted[WANTED] = chunk.wanted_first[WANTED] = chunk.wanted_first[WANTED | 0x80] =
            true;
        check_events(row, &chunk, 0);
        for (uint32_t k = 0; k < 64; k++) {
            uint32_t start = row->starts[k < 8 ? k : N_EVENTS - 1 - (k - 8) * (k - 8)];
            check_events(row, &chunk, start);
            check_events(row, &chunk, start + 1);
            check_events(row, &chunk,
                         (uint32_t)(BR_JFR_HEADER +
                                    fake_random(&row->random) % (row->w.len - BR_JFR_HEADER)));
        }
        wire_free(&row->w);
        free(row);
    }
}

/* --- Recordings written by hand --------------------------------------------------------------- */

static const char made_sent[] = "jfr_event=\n"
                                "# mutex contentions count mutex count\n"
                                "a/B$$Lambda_.main:0 1\n"
                                "# mutex delay nanoseconds mutex count\n"
                                "a/B$$Lambda_.main:0 5000\n"
                                "# process_cpu cpu nanoseconds cpu nanoseconds\n"
                                "a/B.run:12;a/B$$Lambda_.main:0|profile_id=1122334455667788,"
                                "span_name=GET /,trace_id=0102030405060708090a0b0c0d0e0f10,user=x"
                                " 10000000\n";

static const char made_uploaded[] =
    "jfr_event=-\n"
    "# - contentions count mutex count\n"
    "a/B$$Lambda_.main:0|thread.id=7,thread.name=ü@1000300000 1\n"
    "# - cpu nanoseconds cpu nanoseconds\n"
    "a/B.run:12;a/B$$Lambda_.main:0|profile_id=1122334455667788,thread.id=7,thread.name=ü,"
    "trace_id=0102030405060708090a0b0c0d0e0f10@1000250000 10000000\n"
    "# - delay nanoseconds mutex count\n"
    "a/B$$Lambda_.main:0|thread.id=7,thread.name=ü@1000300000 5000\n";

/* In all of its encodings, a chunk is converted to the same samples. */
static void test_encodings(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        struct wire w = {0}, labels = {0};
        const struct jfr_made how = {.packed = i & 1, .utf16 = i & 2, .split = i & 4};
        jfr_made(&w, &how);
        jfr_made_labels(&labels);
        struct br_profile_source s = {.data = w.data, .len = w.len};
        for (int n = 0; n < 2; n++) {
            struct result r = {0};
            int rc = convert(&s, &r);
            if (rc)
                fail_msg("way %u: %s", i, r.err.text);
            assert_non_null(r.buf);
            char *text = view(&r);
            assert_same_text("made", text, n ? made_sent : made_uploaded);
            br_free(text);
            br_buf_unref(r.buf);
            s.from_pyroscope = true;
            s.labels = labels.data;
            s.labels_len = labels.len;
        }
        wire_free(&labels);
        wire_free(&w);
    }
}

/* The first and last characters of each length in UTF-8 (Unicode 16.0, table 3-6), as UTF-16
 * strings of JFR: the encoding 4, the number of code units, and the code units. */
static void test_lengths_of_utf8(void **state)
{
    static const struct {
        uint32_t n_units, units[2];
        const char *text;
    } cases[] = {
        {1, {0x7f}, "\x7f"},
        {1, {0x80}, "\xc2\x80"},
        {1, {0x7ff}, "\xdf\xbf"},
        {1, {0x800}, "\xe0\xa0\x80"},
        {1, {0xffff}, "\xef\xbf\xbf"},
        {2, {0xd800, 0xdc00}, "\xf0\x90\x80\x80"},
        {2, {0xdbff, 0xdfff}, "\xf4\x8f\xbf\xbf"},
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct wire w = {0};
        struct br_str text = {0};
        for (unsigned k = 0; k < BR_JFR_HEADER; k++)
            wire_byte(&w, 0);
        wire_byte(&w, 4);
        wire_number(&w, cases[i].n_units);
        for (uint32_t k = 0; k < cases[i].n_units; k++)
            wire_number(&w, cases[i].units[k]);
        const struct br_jfr_chunk chunk = {.data = w.data, .size = (uint32_t)w.len, .packed = true};
        br_jfr_text(&chunk, BR_JFR_HEADER, &text);
        assert_int_equal(text.len, strlen(cases[i].text));
        assert_memory_equal(text.data, cases[i].text, text.len);
        br_str_release(&text);
        wire_free(&w);
    }
}

/* Two chunks contain equal samples. In an upload from a Pyroscope client, the samples are merged
 * into one. In other uploads, both samples are kept. */
static void test_equal_samples(void **state)
{
    (void)state;
    struct wire w = {0};
    const struct jfr_made how = {.packed = true};
    jfr_made(&w, &how);
    jfr_made(&w, &how);
    for (int n = 0; n < 2; n++) {
        struct br_profile_source s = {.data = w.data, .len = w.len, .from_pyroscope = n};
        struct br_arena scratch = {0};
        struct br_err err = {0};
        struct br_build *b = br_build_new(&host, 1 << 20);
        assert_int_equal(br_jfr_read(b, &s, &scratch, &err), 0);
        assert_int_equal(br_build_records(b), n ? 3 : 6);
        br_build_free(b);
        br_arena_release(&scratch);
    }
    wire_free(&w);
}

/* Each case changes a number of `n` bytes in a packed chunk. The size of the load event ends at
 * byte 68, and its type ends at byte 69. */
static const struct {
    size_t at;
    unsigned n;
    uint64_t v;
    const char *message;
} broken[] = {
    {0, 4, 0x464c5201, "a chunk must begin with \"FLR\""},
    {4, 2, 1, "the chunk has version 1, only version 2 is supported"},
    {4, 2, 3, "the chunk has version 3, only version 2 is supported"},
    {8, 8, 0, "the chunk is incomplete: its header contains a size of 0 bytes"},
    {8, 8, 67, "the chunk is incomplete: its header contains a size of 67 bytes"},
    {8, 8, 1u << 30, NULL},
    {8, 8, UINT64_MAX, NULL},
    {16, 8, 67, "constant pools or metadata are outside the chunk"},
    {16, 8, 1u << 20, "constant pools or metadata are outside the chunk"},
    {24, 8, 0, "constant pools or metadata are outside the chunk"},
    {24, 8, UINT64_MAX, "constant pools or metadata are outside the chunk"},
    {24, 8, 68, "the metadata at byte 68 of the chunk is truncated or malformed"},
    {16, 8, 68, "the constant pools at byte 68 of the chunk are truncated or malformed"},
    {68, 1, 0, "the event at byte 68 of the chunk is truncated or malformed"},
    {68, 1, 1, "the event at byte 68 of the chunk is truncated or malformed"},
};

static void test_malformed(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(broken); i++) {
        struct wire w = {0};
        char expected[128];
        jfr_made(&w, &(struct jfr_made){.packed = true});
        jfr_patch(&w, broken[i].at, broken[i].n, broken[i].v);
        struct br_profile_source s = {.data = w.data, .len = w.len};
        struct result r = {0};
        assert_int_equal(convert(&s, &r), BR_EINVAL);
        (void)snprintf(expected, sizeof expected, "JFR chunk at byte 0: %s", broken[i].message);
        if (broken[i].message)
            assert_string_equal(r.err.text, expected);
        wire_free(&w);
    }
}

/* Bytes after a complete chunk must be another chunk, and labels must be valid. */
static void test_malformed_surroundings(void **state)
{
    (void)state;
    struct wire w = {0};
    jfr_made(&w, &(struct jfr_made){.packed = true});
    size_t len = w.len;
    char expected[128];
    wire_raw(&w, "FLX", 3);
    struct br_profile_source s = {.data = w.data, .len = w.len};
    struct result r = {0};
    assert_int_equal(convert(&s, &r), BR_EINVAL);
    (void)snprintf(expected, sizeof expected,
                   "JFR chunk at byte %zu: the header of the chunk is truncated", len);
    assert_string_equal(r.err.text, expected);
    s.len = len;
    s.labels = (const uint8_t *)"\x0a\x05";
    s.labels_len = 2;
    assert_int_equal(convert(&s, &r), BR_EINVAL);
    assert_string_equal(r.err.text, "the labels of the recording are not a valid LabelsSnapshot");
    s.labels = NULL;
    s.len = 0;
    assert_int_equal(convert(&s, &r), 0);
    assert_null(r.buf);
    wire_free(&w);
}

/* A killed program leaves an incomplete last chunk. The complete chunks before it are used. */
static void test_incomplete_last_chunk(void **state)
{
    (void)state;
    for (int pyroscope = 0; pyroscope < 2; pyroscope++) {
        struct wire w = {0};
        jfr_made(&w, &(struct jfr_made){.packed = true});
        size_t whole = w.len;
        jfr_made(&w, &(struct jfr_made){.packed = true});
        struct br_profile_lost lost = {0};
        struct br_profile_source s = {
            .data = w.data, .from_pyroscope = pyroscope, .sample_rate = 100, .lost = &lost};
        for (s.len = whole; s.len < w.len; s.len++) {
            struct result r = {0};
            lost.count = 0;
            assert_int_equal(convert(&s, &r), 0);
            assert_int_equal(lost.count, s.len > whole);
            char *text = view(&r);
            if (!pyroscope)
                assert_same_text("torn", text, made_uploaded);
            br_free(text);
            br_buf_unref(r.buf);
        }
        assert_non_null(strstr(lost.first.text, "it is incomplete"));
        /* a program writes the size of a chunk last, so this chunk has the size 0 */
        jfr_patch(&w, whole + 8, 8, 0);
        s.len = w.len;
        struct result r = {0};
        assert_int_equal(convert(&s, &r), 0);
        br_buf_unref(r.buf);
        wire_free(&w);
    }
}

/* JDK 25 records CPU time samples of 20 ticks in addition to its usual samples. The time of these
 * samples must not be counted twice. */
static void test_cpu_time(void **state)
{
    (void)state;
    struct wire w = {0};
    jfr_made(&w, &(struct jfr_made){.packed = true, .cpu_time = true});
    struct br_profile_source s = {.data = w.data, .len = w.len};
    struct result r = {0};
    assert_int_equal(convert(&s, &r), 0);
    char *text = view(&r);
    assert_non_null(strstr(text,
                           "# - cpu nanoseconds cpu nanoseconds\n"
                           "a/B$$Lambda_.main:0|thread.id=7,thread.name=ü@1000300000 20000\n"));
    assert_non_null(strstr(text, "# - execution nanoseconds execution nanoseconds\na/B.run:12;"));
    br_free(text);
    br_buf_unref(r.buf);
    wire_free(&w);
}

/* A stack trace is missing from the pool. The sample is dropped if a Pyroscope client sent it;
 * in other uploads it has no frames. */
static void test_unknown_stack(void **state)
{
    (void)state;
    struct wire w = {0};
    jfr_made(&w, &(struct jfr_made){.packed = false});
    /* The load event has 4 + 8 + 8 + 4 bytes. The sample begins with its size, type, time and
     * thread. */
    jfr_patch(&w, BR_JFR_HEADER + 24 + 4 + 8 + 8 + 8, 8, 77);
    for (int n = 0; n < 2; n++) {
        struct br_profile_source s = {.data = w.data, .len = w.len, .from_pyroscope = n};
        struct result r = {0};
        assert_int_equal(convert(&s, &r), 0);
        char *text = view(&r);
        assert_non_null(strstr(text, "delay"));
        const char *cpu = strstr(text, "# - cpu nanoseconds cpu nanoseconds\n|profile_id=");
        assert_int_equal(cpu != NULL, n == 0);
        assert_int_equal(strstr(text, "cpu") != NULL, n == 0);
        br_free(text);
        br_buf_unref(r.buf);
    }
    wire_free(&w);
}

/* Converts random recordings. The walk must accept every result. This is a short run of
 * fuzz_jfr. */
static void replay(const uint8_t *data, size_t len)
{
    uint64_t seed = len;
    uint8_t *copy = malloc(len);
    assert_non_null(copy);
    for (int round = 0; round < 300 && len; round++) {
        memcpy(copy, data, len);
        for (unsigned k = round ? 1 + (unsigned)round % 3 : 0; k > 0; k--) {
            seed = seed * 6364136223846793005 + 1442695040888963407;
            copy[(seed >> 32) % len] ^= (uint8_t)(1u << (seed >> 29) % 8);
        }
        struct br_profile_source s = {.data = copy, .len = len, .from_pyroscope = round & 1};
        struct result r = {0};
        int rc = convert(&s, &r);
        assert_true(rc == 0 || rc == BR_EINVAL);
        br_buf_unref(r.buf);
    }
    free(copy);
}

static void test_corpus(void **state)
{
    (void)state;
    assert_true(corpus_replay("jfr", replay) >= 5);
}

/* Examples from the comments and tests of jfr-parser, and the edge cases of its regular
 * expressions. */
static void test_merge_name(void **state)
{
    (void)state;
#define HASH "17b9a1d8156277a98ccc871afa9a8f69215f92"
    static const char *const names[][2] = {
        {"a/B$$Lambda$4/1283928880", "a/B$$Lambda_"},
        {"a/B$$Lambda$8/0x0000000800c01220", "a/B$$Lambda_"},
        {"a/B$$Lambda$669.0x0000000800fd7318", "a/B$$Lambda_"},
        {"Fib$$Lambda.0x00007ffa600c4da0", "Fib$$Lambda_"},
        {"Fib$$Lambda12", "Fib$$Lambda_"},
        {"Fib$$Lambda", "Fib$$Lambda"},
        {"Fib$$Lambda$12", "Fib$$Lambda$12"},
        {"Fib$$Lambda$4/0x", "Fib$$Lambda$4/0x"},
        {"Fib$$Lambda$4/12zz", "Fib$$Lambda$4/12zz"},
        {"$$Lambda$4/12", "$$Lambda$4/12"},
        {"A$$Lambda$93+0x00007f19b4009a20/1616974404",
         "A$$Lambda$93+0x00007f19b4009a20/1616974404"},
        {"java/util/concurrent/Executors$RunnableAdapter",
         "java/util/concurrent/Executors$RunnableAdapter"},
        {"jdk/internal/reflect/GeneratedMethodAccessor31",
         "jdk/internal/reflect/GeneratedMethodAccessor_"},
        {"jdk/internal/reflect/GeneratedMethodAccessor",
         "jdk/internal/reflect/GeneratedMethodAccessor"},
        {"jdk/internal/reflect/GeneratedMethodAccessor3a",
         "jdk/internal/reflect/GeneratedMethodAccessor3a"},
        {"foo/Baz$$EnhancerBySpringCGLIB$$1234567890", "foo/Baz$$EnhancerBySpringCGLIB$$_"},
        {"foo/Baz$$EnhancerBySpringCGLIB$$", "foo/Baz$$EnhancerBySpringCGLIB$$_"},
        {"libasyncProfiler-linux-arm64-" HASH ".so", "libasyncProfiler-_.so"},
        {"/tmp/libasyncProfiler-linux-musl-x64-" HASH ".so (deleted)", "libasyncProfiler-_.so"},
        {"./tmp/libasyncProfiler-macos-" HASH ".so", "libasyncProfiler-_.so"},
        {"libasyncProfiler-windows-" HASH ".so", "libasyncProfiler-windows-" HASH ".so"},
        {"libamazonCorrettoCryptoProvider109b39cf33c563eb.so",
         "libamazonCorrettoCryptoProvider_.so"},
        {"amazonCorrettoCryptoProviderNativeLibraries.7382c2f79097f415/libcrypto.so",
         "libamazonCorrettoCryptoProvider_.so"},
        {"/tmp/amazonCorrettoCryptoProviderNativeLibraries.24e42b0d5ecf5f50/"
         "libamazonCorrettoCryptoProvider.so (deleted)",
         "libamazonCorrettoCryptoProvider_.so"},
        {"libamazonCorrettoCryptoProvider109b39cf33c563.so",
         "libamazonCorrettoCryptoProvider109b39cf33c563.so"},
        {"libzstd-jni-1.5.1-16931311898282279136.so", "libzstd-jni-_.so"},
        {"./tmp/libzstd-jni-1.5.1-16931311898282279136.so (deleted)", "libzstd-jni-_.so"},
        {"libzstd-jni-1.5-16931311898282279136.so", "libzstd-jni-1.5-16931311898282279136.so"},
        {"", ""},
    };
#undef HASH
    for (size_t i = 0; i < BR_COUNT(names); i++) {
        char name[256];
        size_t len = strlen(names[i][0]);
        memcpy(name, names[i][0], len);
        len = br_jfr_merge_name(name, len);
        name[len] = '\0';
        assert_string_equal(name, names[i][1]);
    }
}

SUITE(jfr)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_pyroscope),
        cmocka_unit_test(test_as_upload),
        cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_encodings),
        cmocka_unit_test(test_equal_samples),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_malformed_surroundings),
        cmocka_unit_test(test_incomplete_last_chunk),
        cmocka_unit_test(test_cpu_time),
        cmocka_unit_test(test_unknown_stack),
        cmocka_unit_test(test_events_ahead),
        cmocka_unit_test(test_corpus),
        cmocka_unit_test(test_merge_name),
        cmocka_unit_test(test_lengths_of_utf8),
    };
    return RUN(tests, request_setup, request_teardown);
}
