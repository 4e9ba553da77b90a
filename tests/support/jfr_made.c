/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/jfr_made.h"

#include "base/mem.h"

/* Ids of the types in the recording's metadata. */
enum {
    BOOLEAN = 1,
    BYTE,
    CHAR,
    SHORT,
    INT,
    LONG,
    FLOAT,
    DOUBLE,
    STRING,
    THREAD,
    STATE,
    TRACE,
    FRAME,
    METHOD,
    CLASS,
    SYMBOL,
    SAMPLE = 101,
    MONITOR,
    OTHER,
    CPU_TIME
};

struct field {
    const char *name;
    int type;
    bool pool, array;
};

static const struct {
    int id;
    const char *name;
    struct field fields[12];
} classes[] = {
    {BOOLEAN, "boolean", {{0}}},
    {BYTE, "byte", {{0}}},
    {CHAR, "char", {{0}}},
    {SHORT, "short", {{0}}},
    {INT, "int", {{0}}},
    {LONG, "long", {{0}}},
    {FLOAT, "float", {{0}}},
    {DOUBLE, "double", {{0}}},
    {STRING, "java.lang.String", {{0}}},
    {THREAD,
     "java.lang.Thread",
     {{"osName", STRING, false, false},
      {"javaName", STRING, false, false},
      {"javaThreadId", LONG, false, false}}},
    {STATE, "jdk.types.ThreadState", {{"name", STRING, false, false}}},
    {TRACE,
     "jdk.types.StackTrace",
     {{"truncated", BOOLEAN, false, false}, {"frames", FRAME, false, true}}},
    {FRAME,
     "jdk.types.StackFrame",
     {{"method", METHOD, true, false}, {"lineNumber", INT, false, false}}},
    {METHOD, "jdk.types.Method", {{"type", CLASS, true, false}, {"name", SYMBOL, true, false}}},
    {CLASS, "java.lang.Class", {{"name", SYMBOL, true, false}}},
    {SYMBOL, "jdk.types.Symbol", {{"string", STRING, false, false}}},
    {SAMPLE,
     "jdk.ExecutionSample",
     {{"startTime", LONG, false, false},
      {"sampledThread", THREAD, true, false},
      {"stackTrace", TRACE, true, false},
      {"state", STATE, true, false},
      {"contextId", LONG, false, false},
      {"spanId", LONG, false, false},
      {"spanName", LONG, false, false},
      {"traceIdHi", LONG, false, false},
      {"traceIdLo", LONG, false, false}}},
    {MONITOR,
     "jdk.JavaMonitorEnter",
     {{"startTime", LONG, false, false},
      {"flags", SHORT, false, true}, /* readers skip unknown fields */
      {"share", DOUBLE, false, false},
      {"frame", FRAME, false, false},
      {"duration", LONG, false, false},
      {"eventThread", THREAD, true, false},
      {"stackTrace", TRACE, true, false}}},
    {OTHER, "jdk.CPULoad", {{"startTime", LONG, false, false}, {"user", FLOAT, false, false}}},
    {CPU_TIME, /* the last field may be missing in a recording */
     "jdk.CPUTimeSample",
     {{"startTime", LONG, false, false},
      {"stackTrace", TRACE, true, false},
      {"eventThread", THREAD, true, false},
      {"failed", BOOLEAN, false, false},
      {"samplingPeriod", LONG, false, false},
      {"biased", BOOLEAN, false, false}}},
};

struct maker {
    const struct jfr_made *how;
    struct wire *w;
};

static void fixed(struct wire *w, unsigned n, uint64_t v)
{
    while (n--)
        wire_byte(w, (unsigned)(v >> 8 * n) & 0xff);
}

void jfr_patch(struct wire *w, size_t at, unsigned n, uint64_t v)
{
    for (unsigned i = 0; i < n; i++)
        w->data[at + i] = (uint8_t)(v >> 8 * (n - 1 - i));
}

/* Writes an integer, of `n` bytes if it is not compressed. */
static void integer(const struct maker *m, unsigned n, uint64_t v)
{
    if (!m->how->packed) {
        fixed(m->w, n, v);
        return;
    }
    for (int i = 0; v >= 0x80 && i < 8; i++, v >>= 7)
        wire_byte(m->w, (unsigned)(v & 0x7f) | 0x80);
    wire_byte(m->w, (unsigned)v & 0xff);
}

static void ints(const struct maker *m, uint64_t v)
{
    integer(m, 4, v);
}

static void longs(const struct maker *m, uint64_t v)
{
    integer(m, 8, v);
}

/* Writes a string. `s` is ASCII. If the strings are UTF-16, `s` may also be UTF-8 text with
 * characters of Latin-1. */
static void string(const struct maker *m, const char *s)
{
    size_t n = strlen(s), units = 0;
    if (!m->how->utf16) {
        wire_byte(m->w, 3);
        ints(m, n);
        wire_raw(m->w, s, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        units += ((uint8_t)s[i] & 0xc0) != 0x80;
    wire_byte(m->w, 4);
    ints(m, units);
    for (size_t i = 0; i < n; i++) {
        unsigned c = (uint8_t)s[i];
        if (c >= 0xc0)
            c = (c & 0x1f) << 6 | ((uint8_t)s[++i] & 0x3f);
        integer(m, 2, c);
    }
}

/* Writes the length of `body`, and then the bytes of `body`. */
static void sized(const struct maker *m, const struct wire *body)
{
    size_t at = m->w->len, size;
    /* the length counts the bytes of the length itself, too */
    for (size = body->len + 1;; size++) {
        m->w->len = at;
        ints(m, size);
        if (m->w->len - at + body->len == size)
            break;
    }
    wire_raw(m->w, body->data, body->len);
}

/* --- Metadata --------------------------------------------------------------------------------- */

struct texts {
    char v[256][32];
    size_t n;
};

static uint64_t text(struct texts *t, const char *s)
{
    size_t i = 0;
    while (i < t->n && strcmp(t->v[i], s) != 0)
        i++;
    if (i == t->n)
        strncpy(t->v[t->n++], s, sizeof t->v[0] - 1);
    return i;
}

static uint64_t number_text(struct texts *t, int v)
{
    char digits[12], *p = digits + sizeof digits - 1;
    *p = '\0';
    for (; v; v /= 10)
        *--p = (char)('0' + v % 10);
    return text(t, p);
}

static void pair(const struct maker *m, uint64_t key, uint64_t value)
{
    ints(m, key);
    ints(m, value);
}

static void field_element(const struct maker *m, struct texts *t, const struct field *f)
{
    ints(m, text(t, "field"));
    ints(m, 2u + f->pool + f->array);
    pair(m, text(t, "name"), text(t, f->name));
    pair(m, text(t, "class"), number_text(t, f->type));
    if (f->pool)
        pair(m, text(t, "constantPool"), text(t, "true"));
    if (f->array)
        pair(m, text(t, "dimension"), text(t, "1"));
    ints(m, 0);
}

static void elements(const struct maker *m, struct texts *t)
{
    ints(m, text(t, "root"));
    ints(m, 0);
    ints(m, 2);
    ints(m, text(t, "metadata"));
    ints(m, 0);
    size_t n_classes = BR_COUNT(classes) - !m->how->cpu_time;
    ints(m, n_classes);
    for (size_t i = 0; i < n_classes; i++) {
        uint64_t n = 0;
        while (classes[i].fields[n].name)
            n++;
        ints(m, text(t, "class"));
        ints(m, 2);
        pair(m, text(t, "id"), number_text(t, classes[i].id));
        pair(m, text(t, "name"), text(t, classes[i].name));
        ints(m, n);
        for (size_t k = 0; k < n; k++)
            field_element(m, t, &classes[i].fields[k]);
    }
    ints(m, text(t, "region"));
    ints(m, 1);
    pair(m, text(t, "locale"), text(t, "en"));
    ints(m, 0);
}

static void metadata(const struct maker *m)
{
    struct wire tree = {0}, body = {0};
    struct texts *t = calloc(1, sizeof *t);
    if (!t)
        abort();
    const struct maker in_tree = {m->how, &tree}, in_body = {m->how, &body};
    elements(&in_tree, t);
    for (int i = 0; i < 4; i++)
        longs(&in_body, 0);
    ints(&in_body, t->n);
    for (size_t i = 0; i < t->n; i++)
        string(&in_body, t->v[i]);
    wire_raw(&body, tree.data, tree.len);
    sized(m, &body);
    free(t);
    free(tree.data);
    free(body.data);
}

/* --- Pools ------------------------------------------------------------------------------------ */

static void pool(const struct maker *m, int type, uint64_t n)
{
    longs(m, (uint64_t)type);
    ints(m, n);
}

static void first_pools(const struct maker *m)
{
    pool(m, THREAD, 1);
    longs(m, 1);
    string(m, "native");
    wire_byte(m->w, 2); /* an index into the pool of strings */
    longs(m, 1);
    longs(m, 7);
    pool(m, STRING, 1);
    longs(m, 1);
    if (m->how->utf16) {
        string(m, "\xc3\xbc");
    } else {
        wire_byte(m->w, 5); /* Latin-1 */
        ints(m, 1);
        wire_byte(m->w, 0xfc);
    }
    pool(m, STATE, 2);
    longs(m, 1);
    string(m, "STATE_RUNNABLE");
    longs(m, 2);
    string(m, "STATE_SLEEPING");
    pool(m, SYMBOL, 4);
    const char *const symbols[] = {"a/B", "run", "a/B$$Lambda$14.0x00000008", "main"};
    for (uint64_t i = 0; i < 4; i++) {
        longs(m, i + 1);
        string(m, symbols[i]);
    }
}

static void frame(const struct maker *m, uint64_t method, uint64_t line)
{
    longs(m, method);
    ints(m, line);
}

static void later_pools(const struct maker *m)
{
    pool(m, CLASS, 2);
    for (uint64_t i = 1; i <= 2; i++) {
        longs(m, i);
        longs(m, i * 2 - 1);
    }
    pool(m, METHOD, 2);
    for (uint64_t i = 1; i <= 2; i++) {
        longs(m, i);
        longs(m, i);
        longs(m, i * 2);
    }
    pool(m, TRACE, 2);
    longs(m, 1);
    wire_byte(m->w, 0);
    ints(m, 2);
    frame(m, 1, 12);
    frame(m, 2, 0);
    longs(m, 0xffffffffffffff02); /* ids need not be consecutive */
    wire_byte(m->w, 1);
    ints(m, 1);
    frame(m, 2, 0);
}

typedef void pools_fn(const struct maker *m);

/* `back` is the distance in bytes to the earlier checkpoint; 0: this is the first. */
static void checkpoint(const struct maker *m, uint64_t n_pools, pools_fn *first, pools_fn *later,
                       size_t back)
{
    struct wire body = {0};
    const struct maker in = {m->how, &body};
    longs(&in, 1);
    longs(&in, 0);
    longs(&in, 0);
    longs(&in, (uint64_t) - (int64_t)back);
    wire_byte(&body, 1);
    ints(&in, n_pools);
    if (first)
        first(&in);
    if (later)
        later(&in);
    sized(m, &body);
    free(body.data);
}

/* --- Events ----------------------------------------------------------------------------------- */

static void sample(const struct maker *m)
{
    struct wire body = {0};
    const struct maker in = {m->how, &body};
    const uint64_t v[] = {
        SAMPLE, 350, 1, 1, 1, 5, 0x1122334455667788, 9, 0x0102030405060708, 0x090a0b0c0d0e0f10};
    for (size_t i = 0; i < BR_COUNT(v); i++)
        longs(&in, v[i]);
    sized(m, &body);
    free(body.data);
}

static void monitor(const struct maker *m)
{
    struct wire body = {0};
    const struct maker in = {m->how, &body};
    longs(&in, MONITOR);
    longs(&in, 400);
    ints(&in, 2); /* flags */
    integer(&in, 2, 300);
    integer(&in, 2, 1);
    fixed(&body, 8, 0x3ff0000000000000);
    frame(&in, 1, 1);
    longs(&in, 5);
    longs(&in, 1);
    longs(&in, 0xffffffffffffff02);
    sized(m, &body);
    free(body.data);
}

static void cpu_time(const struct maker *m)
{
    struct wire body = {0};
    const struct maker in = {m->how, &body};
    longs(&in, CPU_TIME);
    longs(&in, 400);
    longs(&in, 0xffffffffffffff02);
    longs(&in, 1);
    wire_byte(&body, 0);
    longs(&in, 20);
    wire_byte(&body, 1);
    sized(m, &body);
    free(body.data);
}

static void load(const struct maker *m)
{
    struct wire body = {0};
    const struct maker in = {m->how, &body};
    longs(&in, OTHER);
    longs(&in, 300);
    fixed(&body, 4, 0x3f800000);
    sized(m, &body);
    free(body.data);
}

void jfr_made(struct wire *w, const struct jfr_made *how)
{
    struct wire c = {0};
    const struct maker m = {how, &c};
    const uint64_t numbers[] = {0, 0, 0, 1000000000, 500000000, 100, 1000000};
    wire_raw(&c, "FLR\0\0\2\0\1", 8);
    for (size_t i = 0; i < BR_COUNT(numbers); i++)
        fixed(&c, 8, numbers[i]);
    fixed(&c, 4, how->packed);
    load(&m);
    sample(&m);
    size_t first = c.len;
    if (how->split)
        checkpoint(&m, 4, first_pools, NULL, 0);
    monitor(&m);
    if (how->cpu_time)
        cpu_time(&m);
    jfr_patch(&c, 16, 8, c.len);
    if (how->split)
        checkpoint(&m, 3, NULL, later_pools, c.len - first);
    else
        checkpoint(&m, 7, first_pools, later_pools, 0);
    jfr_patch(&c, 24, 8, c.len);
    metadata(&m);
    jfr_patch(&c, 8, 8, c.len);
    wire_raw(w, c.data, c.len);
    free(c.data);
}

void jfr_made_labels(struct wire *w)
{
    const char *const strings[] = {"user", "x", "GET /"};
    const uint64_t ids[] = {7, 8, 9};
    size_t entry = wire_open(w, 1);
    wire_varint(w, 1, 5);
    size_t context = wire_open(w, 2), label = wire_open(w, 1);
    wire_varint(w, 1, 7);
    wire_varint(w, 2, 8);
    wire_close(w, label);
    wire_close(w, context);
    wire_close(w, entry);
    for (size_t i = 0; i < BR_COUNT(strings); i++) {
        entry = wire_open(w, 2);
        wire_varint(w, 1, ids[i]);
        wire_str(w, 2, strings[i]);
        wire_close(w, entry);
    }
}
