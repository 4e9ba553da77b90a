/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/jfr_shape.h"

#include <stdio.h>

#include "base/mem.h"
#include "tests/support/jfr_made.h"

#define TICKS 1000000000u

struct field {
    const char *name;
    enum jfr_shape_type type;
    bool pool, array;
};

static const struct {
    enum jfr_shape_type id;
    const char *name;
    struct field fields[8];
} classes[] = {
    {JFR_BYTE, "byte", {{0}}},
    {JFR_INT, "int", {{0}}},
    {JFR_LONG, "long", {{0}}},
    {JFR_STRING, "java.lang.String", {{0}}},
    {JFR_THREAD,
     "java.lang.Thread",
     {{"osName", JFR_STRING, false, false},
      {"javaName", JFR_STRING, false, false},
      {"javaThreadId", JFR_LONG, false, false}}},
    {JFR_STATE, "jdk.types.ThreadState", {{"name", JFR_STRING, false, false}}},
    {JFR_TRACE, "jdk.types.StackTrace", {{"frames", JFR_FRAME, false, true}}},
    {JFR_FRAME,
     "jdk.types.StackFrame",
     {{"method", JFR_METHOD, true, false}, {"lineNumber", JFR_INT, false, false}}},
    {JFR_METHOD,
     "jdk.types.Method",
     {{"type", JFR_CLASS, true, false}, {"name", JFR_SYMBOL, true, false}}},
    {JFR_CLASS,
     "java.lang.Class",
     {{"extra", JFR_BYTE, false, true}, {"name", JFR_SYMBOL, true, false}}},
    {JFR_SYMBOL, "jdk.types.Symbol", {{"string", JFR_STRING, false, false}}},
    {JFR_SAMPLE,
     "jdk.ExecutionSample",
     {{"startTime", JFR_LONG, false, false},
      {"sampledThread", JFR_THREAD, true, false},
      {"stackTrace", JFR_TRACE, true, false},
      {"state", JFR_STATE, true, false},
      {"contextId", JFR_LONG, false, false},
      {"spanId", JFR_LONG, false, false},
      {"spanName", JFR_LONG, false, false}}},
    {JFR_ALLOC,
     "jdk.ObjectAllocationOutsideTLAB",
     {{"stackTrace", JFR_TRACE, true, false}, {"allocationSize", JFR_LONG, false, false}}},
    {JFR_SETTING,
     "jdk.ActiveSetting",
     {{"id", JFR_LONG, false, false},
      {"name", JFR_STRING, false, false},
      {"value", JFR_STRING, false, false}}},
};

void jfr_shape_latin1(struct wire *w, unsigned c, size_t len)
{
    wire_byte(w, 5);
    wire_number(w, len);
    uint8_t *text = malloc(len + 1);
    if (!text)
        abort();
    memset(text, (int)c, len);
    wire_raw(w, text, len);
    free(text);
}

void jfr_shape_text(struct wire *w, const char *text)
{
    wire_byte(w, 3);
    wire_number(w, strlen(text));
    wire_raw(w, text, strlen(text));
}

void jfr_shape_pooled(struct wire *w, uint64_t id)
{
    wire_byte(w, 2);
    wire_number(w, id);
}

void jfr_shape_pool(struct jfr_shape *s, enum jfr_shape_type type, unsigned n)
{
    wire_number(&s->pools, type);
    wire_number(&s->pools, n);
    s->n_pools++;
}

struct wire *jfr_shape_open(struct jfr_shape *s, enum jfr_shape_type type)
{
    wire_clear(&s->event);
    wire_number(&s->event, type);
    return &s->event;
}

/* Writes the length of `body`, and then the bytes of `body`. The length counts its own bytes,
 * too. */
static void put_sized(struct wire *w, const struct wire *body)
{
    size_t size = body->len + 1;
    for (size_t n = 1; size >> 7 * n; n++)
        size = body->len + n + 1;
    wire_number(w, size);
    wire_raw(w, body->data, body->len);
}

void jfr_shape_close(struct jfr_shape *s)
{
    put_sized(&s->events, &s->event);
}

static void put_pair(struct wire *w, struct wire *texts, unsigned *n_texts, unsigned key,
                     const char *value)
{
    wire_number(w, key);
    wire_number(w, *n_texts);
    jfr_shape_text(texts, value);
    ++*n_texts;
}

/* Indices of the names in the metadata that are always the same. */
enum { ROOT, METADATA, CLASS, FIELD, ID, NAME, POOL, DIMENSION };

static void put_field(struct wire *w, struct wire *texts, unsigned *n_texts, const struct field *f)
{
    char type[12];
    (void)snprintf(type, sizeof type, "%d", (int)f->type);
    wire_number(w, FIELD);
    wire_number(w, 2u + f->pool + f->array);
    put_pair(w, texts, n_texts, NAME, f->name);
    put_pair(w, texts, n_texts, CLASS, type);
    if (f->pool)
        put_pair(w, texts, n_texts, POOL, "true");
    if (f->array)
        put_pair(w, texts, n_texts, DIMENSION, "1");
    wire_number(w, 0);
}

static void put_classes(struct wire *w, struct wire *texts, unsigned *n_texts)
{
    for (size_t i = 0; i < BR_COUNT(classes); i++) {
        char id[12];
        unsigned n = 0;
        while (classes[i].fields[n].name)
            n++;
        (void)snprintf(id, sizeof id, "%d", (int)classes[i].id);
        wire_number(w, CLASS);
        wire_number(w, 2);
        put_pair(w, texts, n_texts, ID, id);
        put_pair(w, texts, n_texts, NAME, classes[i].name);
        wire_number(w, n);
        for (unsigned k = 0; k < n; k++)
            put_field(w, texts, n_texts, &classes[i].fields[k]);
    }
}

static void put_metadata(struct wire *w)
{
    static const char *const first[] = {"root", "metadata", "class",        "field",
                                        "id",   "name",     "constantPool", "dimension"};
    struct wire texts = {0}, tree = {0}, body = {0};
    unsigned n_texts = 0;
    for (; n_texts < BR_COUNT(first); n_texts++)
        jfr_shape_text(&texts, first[n_texts]);
    wire_raw(&tree, (const uint8_t[]){ROOT, 0, 1, METADATA, 0, BR_COUNT(classes)}, 6);
    put_classes(&tree, &texts, &n_texts);
    wire_raw(&body, (const uint8_t[]){0, 0, 0, 0}, 4); /* the fields type, start, duration and id */
    wire_number(&body, n_texts);
    wire_raw(&body, texts.data, texts.len);
    wire_raw(&body, tree.data, tree.len);
    put_sized(w, &body);
    wire_free(&texts);
    wire_free(&tree);
    wire_free(&body);
}

static void put_pools(struct wire *w, const struct jfr_shape *s)
{
    struct wire body = {0};
    /* the fields type, start, duration, delta and kind */
    wire_raw(&body, (const uint8_t[]){1, 0, 0, 0, 1}, 5);
    wire_number(&body, s->n_pools);
    wire_raw(&body, s->pools.data, s->pools.len);
    put_sized(w, &body);
    wire_free(&body);
}

void jfr_shape_chunk(struct jfr_shape *s)
{
    static const uint8_t zeros[8 * 7];
    struct wire c = {0};
    wire_raw(&c, "FLR\0\0\2\0\1", 8);
    wire_raw(&c, zeros, sizeof zeros);
    wire_raw(&c, "\0\0\0\1", 4); /* compressed integers */
    jfr_patch(&c, 8 + 8 * 6, 8, TICKS);
    wire_raw(&c, s->events.data, s->events.len);
    jfr_patch(&c, 16, 8, c.len);
    put_pools(&c, s);
    jfr_patch(&c, 24, 8, c.len);
    put_metadata(&c);
    jfr_patch(&c, 8, 8, c.len);
    wire_raw(&s->whole, c.data, c.len);
    wire_free(&c);
    wire_clear(&s->events);
    wire_clear(&s->pools);
    s->n_pools = 0;
}

void jfr_shape_free(struct jfr_shape *s)
{
    wire_free(&s->events);
    wire_free(&s->pools);
    wire_free(&s->event);
    wire_free(&s->whole);
}
