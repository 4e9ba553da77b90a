/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helpers for unit tests of the dictionary. The tests write requests field by field according to
 * the .proto files, and compare results as bytes. A test file includes this header once. Its group
 * of tests has the fixtures request_setup and request_teardown.
 */
#pragma once

#include "base/mem.h"
#include "core/host.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/walk/walk.h"
#include "tests/support/test.h"
#include "wire/protobuf.h"

static struct br_host host;

static inline int request_setup(void **state)
{
    static const struct br_host_ops ops = {0};
    (void)state;
    return br_host_init(&host, &ops, br_pool_new(1 << 20));
}

static inline int request_teardown(void **state)
{
    (void)state;
    br_host_release(&host);
    br_pool_free(host.pool); /* fails if a buffer was not freed */
    return 0;
}

/* --- Writing requests ----------------------------------------------------------------------- */

#define ROOM (1u << 20)

struct message {
    size_t len;
    uint8_t data[];
};

/* The messages that the current test has made. They are freed at the end of the test. */
static struct message *made[4096];
static size_t n_made;

static inline struct message *new_message(size_t room)
{
    assert_true(n_made < BR_COUNT(made));
    struct message *m = malloc(sizeof *m + room);
    assert_non_null(m);
    m->len = 0;
    made[n_made++] = m;
    return m;
}

static inline void free_messages(void)
{
    while (n_made)
        free(made[--n_made]);
}

static inline struct message *number(uint32_t field, uint64_t v)
{
    struct message *m = new_message(2 * BR_VARINT_MAX);
    uint8_t *p = br_put_varint(m->data, BR_TAG(field, BR_WIRE_VARINT));
    m->len = (size_t)(br_put_varint(p, v) - m->data);
    return m;
}

static inline struct message *bytes(uint32_t field, const void *data, size_t len)
{
    struct message *m = new_message(len + 2 * BR_VARINT_MAX);
    m->len = (size_t)(br_put_len(m->data, field, data, len) - m->data);
    return m;
}

static inline struct message *text(uint32_t field, const char *s)
{
    return bytes(field, s, strlen(s));
}

#define END ((struct message *)NULL)

/* Returns a field that is a message. The message consists of the given fields, in this order. */
static inline struct message *nest(uint32_t field, ...)
{
    struct message *body = new_message(ROOM);
    struct message *m;
    va_list ap;
    va_start(ap, field);
    while ((m = va_arg(ap, struct message *))) {
        assert_true(body->len + m->len <= ROOM);
        memcpy(body->data + body->len, m->data, m->len);
        body->len += m->len;
    }
    va_end(ap);
    return bytes(field, body->data, body->len);
}

static inline struct message *join(struct message *a, struct message *b)
{
    struct message *m = new_message(a->len + b->len);
    memcpy(m->data, a->data, a->len);
    memcpy(m->data + a->len, b->data, b->len);
    m->len = a->len + b->len;
    return m;
}

static inline struct br_item *walked(enum br_signal signal, const struct message *m)
{
    struct br_buf *buf = br_buf_new(host.pool, m->len);
    assert_non_null(buf);
    memcpy(buf->data, m->data, m->len);
    buf->len = (uint32_t)m->len;
    struct br_item *item = br_item_new(&host, signal);
    struct br_walk_options options = {0};
    struct br_err err = {0};
    uint32_t repaired;
    assert_non_null(item);
    if (br_walk(item, buf, buf->data, buf->len, &options, &repaired, &err))
        fail_msg("%s", err.text);
    br_buf_unref(buf);
    return item;
}

/* Field numbers of ProfilesDictionary. */
enum { MAPPING = 1, LOCATION, FUNCTION, LINK, STRING, ATTRIBUTE, STACK };

static inline struct message *zero_entries(void)
{
    struct message *m = new_message(0);
    for (uint32_t t = MAPPING; t <= STACK; t++)
        m = join(m, bytes(t, "", 0));
    return m;
}

/* --- Reading results ------------------------------------------------------------------------ */

struct flat {
    struct br_buf *buf;
    const uint8_t *data;
    size_t len;
};

static inline struct flat flatten(const struct br_item *item)
{
    struct br_rope rope = {0};
    struct flat f;
    assert_int_equal(br_item_write(item, &rope), 0);
    assert_int_equal(rope.len, item->size);
    f.len = rope.len;
    f.buf = br_rope_flat(&rope, host.pool, &f.data);
    assert_non_null(f.buf);
    br_rope_release(&rope);
    return f;
}

/* Frees `item`, whose bytes must be those of `m`. */
static inline void assert_is(struct br_item *item, const struct message *m)
{
    struct flat f = flatten(item);
    assert_int_equal(f.len, m->len);
    assert_memory_equal(f.data, m->data, m->len);
    br_buf_unref(f.buf);
    br_item_free(item);
}

static inline void tables_are(const struct br_item *item, const uint32_t n[BR_TABLES])
{
    struct br_arena arena = {0};
    struct br_dictionary_view v;
    assert_int_equal(br_dictionary_index(item, &arena, &v), 0);
    for (size_t t = 0; t < BR_TABLES; t++) {
        assert_int_equal(v.count[t], n[t]);
        assert_int_equal(v.tables[t][0].len, 0);
    }
    br_arena_release(&arena);
}

/* --- No memory ------------------------------------------------------------------------------ */

static long countdown; /* number of allocations that succeed before the next failure */

static inline void *failing_alloc(size_t size)
{
    return countdown-- > 0 ? malloc(size) : NULL;
}

static inline void *failing_resize(void *p, size_t size)
{
    return countdown-- > 0 ? realloc(p, size) : NULL;
}

static const struct br_mem_hooks failing = {failing_alloc, failing_resize, free, NULL};

typedef int work_fn(void *arg);

/* Runs the work repeatedly. In the n-th run, the n-th allocation fails, until a run has no failure.
 * This run must succeed. */
static inline void with_failures(work_fn *work, void *arg)
{
    int rc = BR_ENOMEM;
    long n = 0;
    for (; n < 10000 && rc; n++) {
        br_pool_trim(host.pool);
        br_mem_set_hooks(&failing);
        countdown = n;
        rc = work(arg);
        br_mem_set_hooks(NULL);
        assert_true(rc == 0 || rc == BR_ENOMEM);
    }
    assert_int_equal(rc, 0);
    assert_true(n > 1);
}
