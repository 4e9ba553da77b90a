/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `perf script` prints of a recording: for each sample a line of what it is of,
 *
 *     comm 123/124 [001] 17174.794111:   10101010 cpu-clock:
 *
 * a line for each frame, the leaf first, and an empty one. Which fields there are depends on how it
 * was called; the thread's number and the event have to be. Source: tools/perf/builtin-script.c.
 */
#include <ctype.h>
#include <string.h>

#include "base/mem.h"
#include "profile/timed.h"

#define FRAMES_MAX (1u << 20)
#define EVENT_MAX 128u /* bytes of an event's name */
#define NS_PER_S UINT64_C(1000000000)
#define DEFAULT_RATE 1000.0

struct perf {
    const struct br_profile_source *source;
    struct br_build *build;
    struct br_arena *scratch;
    struct br_timed timed;
    const char *p, *end;
    size_t line;                          /* from 1 */
    uint32_t thread_name, thread_id, pid; /* keys */
    uint32_t *stack;
    uint32_t n_stack, cap_stack;
};

struct span {
    const char *p, *end;
};

/* What a sample's first line says. */
struct perf_head {
    struct span comm, event, rest; /* `rest`: a frame on the same line */
    uint64_t pid, tid, time_ns, period;
    bool has_pid, has_time, has_period;
};

/* --- Words ------------------------------------------------------------------------------------ */

static struct span perf_word(struct span *t)
{
    while (t->p < t->end && (*t->p == ' ' || *t->p == '\t'))
        t->p++;
    struct span word = {t->p, t->p};
    while (word.end < t->end && *word.end != ' ' && *word.end != '\t')
        word.end++;
    t->p = word.end;
    return word;
}

/* The digits that `*p` begins with; false where there are none, or more than fit. */
static bool perf_digits(const char **p, const char *end, uint64_t *ret)
{
    const char *start = *p;
    uint64_t n = 0;
    for (; *p < end && isdigit((unsigned char)**p); ++*p)
        if (__builtin_mul_overflow(n, 10u, &n) ||
            __builtin_add_overflow(n, (uint64_t)(**p - '0'), &n))
            return false;
    *ret = n;
    return *p > start;
}

/* "124" or "123/124". */
static bool perf_thread(struct span word, struct perf_head *h)
{
    const char *p = word.p;
    h->has_pid = false;
    if (!perf_digits(&p, word.end, &h->tid))
        return false;
    if (p < word.end && *p == '/') {
        p++;
        h->pid = h->tid;
        h->has_pid = true;
        if (!perf_digits(&p, word.end, &h->tid))
            return false;
    }
    return p == word.end;
}

/* "17174.794111:", of up to nine digits behind the point. */
static bool perf_time(struct span word, uint64_t *ret_ns)
{
    const char *p = word.p;
    uint64_t s, ns = 0, unit = NS_PER_S / 10;
    if (!perf_digits(&p, word.end, &s) || p == word.end || *p++ != '.' ||
        s > UINT64_MAX / NS_PER_S - 1)
        return false;
    for (; p < word.end && isdigit((unsigned char)*p); p++, unit /= 10)
        ns += unit * (uint64_t)(*p - '0');
    *ret_ns = s * NS_PER_S + ns;
    return word.end - p == 1 && *p == ':';
}

static bool perf_cpu(struct span word)
{
    return word.end - word.p > 2 && word.p[0] == '[' && word.end[-1] == ']' &&
           isdigit((unsigned char)word.p[1]);
}

/* What follows the thread. */
static bool perf_event(struct span t, struct perf_head *h)
{
    struct span word = perf_word(&t);
    if (perf_cpu(word))
        word = perf_word(&t);
    h->has_time = perf_time(word, &h->time_ns);
    if (h->has_time)
        word = perf_word(&t);
    const char *p = word.p;
    h->has_period = perf_digits(&p, word.end, &h->period) && p == word.end;
    if (h->has_period)
        word = perf_word(&t);
    if (word.end - word.p < 2 || word.end[-1] != ':' || (size_t)(word.end - word.p) > EVENT_MAX)
        return false;
    h->event = (struct span){word.p, word.end - 1};
    h->rest = t;
    return true;
}

/* A thread's name may have blanks, and words that look like numbers. */
static bool perf_head(struct span line, struct perf_head *h)
{
    struct span t = line;
    const char *start = NULL;
    unsigned n = 0;
    for (struct span word = perf_word(&t); word.p < word.end && n < 16; word = perf_word(&t), n++) {
        if (start && perf_thread(word, h) && perf_event(t, h)) {
            h->comm = (struct span){start, word.p};
            while (h->comm.end > start && h->comm.end[-1] == ' ')
                h->comm.end--;
            return true;
        }
        start = start ? start : word.p;
    }
    return false;
}

/* --- Types ------------------------------------------------------------------------------------ */

static bool perf_span_is(struct span s, const char *text)
{
    return (size_t)(s.end - s.p) == strlen(text) && memcmp(s.p, text, strlen(text)) == 0;
}

/* Software clocks count nanoseconds of the CPU. */
static bool perf_is_clock(struct span event)
{
    static const char *const clocks[] = {"cpu-clock", "task-clock"};
    const char *colon = memchr(event.p, ':', (size_t)(event.end - event.p));
    struct span name = {event.p, colon ? colon : event.end};
    for (size_t i = 0; i < BR_COUNT(clocks); i++)
        if (perf_span_is(name, clocks[i]))
            return true;
    return false;
}

/* The type of an event, made where it comes first. Returns 0, BR_ETOOBIG where there are too many,
 * or BR_ENOMEM. */
static int perf_type(struct perf *f, const struct perf_head *h, uint32_t *ret)
{
    struct br_timed *t = &f->timed;
    bool clock = perf_is_clock(h->event);
    for (uint32_t i = 0; i < t->n_types; i++)
        if (clock ? t->types[i].metric != NULL
                  : !t->types[i].metric && perf_span_is(h->event, t->types[i].type)) {
            *ret = i;
            return 0;
        }
    if (t->n_types == BR_TIMED_TYPES_MAX)
        return BR_ETOOBIG;
    struct br_timed_type *type = &t->types[t->n_types];
    double rate = f->source->sample_rate > 0 ? f->source->sample_rate : DEFAULT_RATE;
    *type = (struct br_timed_type){.unit = "count", .period = 0};
    if (clock) {
        *type =
            (struct br_timed_type){.metric = "process_cpu",
                                   .type = "cpu",
                                   .unit = "nanoseconds",
                                   .period_type = "cpu",
                                   .period_unit = "nanoseconds",
                                   .period = h->has_period ? (int64_t)(h->period & INT64_MAX)
                                                           : (int64_t)((double)NS_PER_S / rate)};
        *ret = t->n_types++;
        return 0;
    }
    type->type = br_arena_strndup(f->scratch, h->event.p, (size_t)(h->event.end - h->event.p));
    *ret = t->n_types;
    t->n_types += type->type != NULL;
    return type->type ? 0 : BR_ENOMEM;
}

/* --- Frames ----------------------------------------------------------------------------------- */

/* "ffffffff81 name+0x1f (/usr/lib/libc.so.6)": names may have blanks and brackets, too. */
static bool perf_frame(struct span line, uint64_t *ret_address, struct span *name,
                       struct span *object)
{
    struct span address = perf_word(&line);
    uint64_t v = 0;
    const char *p = address.p;
    for (; p < address.end && isxdigit((unsigned char)*p) && v < UINT64_C(1) << 60; p++)
        v = v << 4 | (uint64_t)(isdigit((unsigned char)*p) ? *p - '0' : (*p | 32) - 'a' + 10);
    if (p == address.p || p < address.end)
        return false;
    *ret_address = v;
    while (line.p < line.end && *line.p == ' ')
        line.p++;
    *object = (struct span){line.end, line.end};
    const char *open = line.end > line.p && line.end[-1] == ')'
                           ? memrchr(line.p, '(', (size_t)(line.end - line.p))
                           : NULL;
    if (open) {
        *object = (struct span){open + 1, line.end - 1};
        line.end = open;
    }
    while (line.end > line.p && line.end[-1] == ' ')
        line.end--;
    *name = line;
    const char *plus = line.end > line.p ? memrchr(line.p, '+', (size_t)(line.end - line.p)) : NULL;
    if (plus && line.end - plus > 3 && plus[1] == '0' && plus[2] == 'x')
        name->end = plus;
    return true;
}

/* The address of a frame with a name would make a frame of each instruction. */
static int perf_push(struct perf *f, struct span line)
{
    struct span name, object;
    uint64_t address;
    if (!perf_frame(line, &address, &name, &object))
        return BR_EINVAL;
    bool known = name.end > name.p && !perf_span_is(name, "[unknown]");
    const struct br_build_mapping mapping = {
        .filename = br_build_string(f->build, object.p, (size_t)(object.end - object.p))};
    uint32_t text = br_build_string(f->build, name.p, (size_t)(name.end - name.p));
    const struct br_build_line made = {.function = br_build_function(f->build, text, 0, 0, 0)};
    const struct br_build_location location = {.mapping = br_build_mapping(f->build, &mapping),
                                               .address = known ? 0 : address,
                                               .lines = &made,
                                               .n_lines = name.end > name.p};
    int rc =
        br_grow(&f->stack, &f->cap_stack, (size_t)f->n_stack + 1, sizeof *f->stack, FRAMES_MAX);
    if (!rc)
        f->stack[f->n_stack++] = br_build_location(f->build, &location);
    return rc == BR_EFULL ? BR_ETOOBIG : rc;
}

/* --- Samples ---------------------------------------------------------------------------------- */

/* Without its end, LF or CRLF. */
static bool perf_line(struct perf *f, struct span *ret)
{
    if (f->p == f->end)
        return false;
    const char *lf = memchr(f->p, '\n', (size_t)(f->end - f->p));
    *ret = (struct span){f->p, lf ? lf : f->end};
    f->p = lf ? lf + 1 : f->end;
    f->line++;
    if (ret->end > ret->p && ret->end[-1] == '\r')
        ret->end--;
    return true;
}

static bool perf_is_blank(struct span line)
{
    struct span word = perf_word(&line);
    return word.p == word.end;
}

static int perf_frames(struct perf *f, struct span rest)
{
    struct span line;
    f->n_stack = 0;
    int rc = perf_is_blank(rest) ? 0 : perf_push(f, rest);
    if (rc && rc != BR_EINVAL) /* a tracepoint's fields are no frame */
        return rc;
    for (rc = 0; !rc && perf_line(f, &line) && !perf_is_blank(line);) {
        if (*line.p != ' ' && *line.p != '\t') {
            f->p = line.p; /* without frames no empty line follows */
            f->line--;
            break;
        }
        rc = perf_push(f, line);
    }
    return rc;
}

static int perf_sample(struct perf *f, const struct perf_head *h)
{
    struct br_timed_sample sample = {.time_ns = h->has_time ? h->time_ns : 0};
    struct br_build *b = f->build;
    int rc = perf_frames(f, h->rest);
    if (rc)
        return rc;
    rc = perf_type(f, h, &sample.type);
    if (rc)
        return rc;
    bool clock = f->timed.types[sample.type].metric != NULL;
    sample.value = h->has_period ? (int64_t)(h->period & INT64_MAX)
                   : clock       ? f->timed.types[sample.type].period
                                 : 1;
    sample.stack = br_build_stack(b, f->stack, f->n_stack);
    sample.attributes[0] =
        br_build_attribute_text(b, f->thread_name, h->comm.p, (size_t)(h->comm.end - h->comm.p));
    sample.attributes[1] =
        br_build_attribute_int(b, f->thread_id, (int64_t)(h->tid & INT64_MAX), 0);
    if (h->has_pid)
        sample.attributes[2] = br_build_attribute_int(b, f->pid, (int64_t)(h->pid & INT64_MAX), 0);
    rc = br_build_rc(b);
    return rc ? rc : br_timed_add(&f->timed, &sample);
}

static int perf_read(struct perf *f, struct br_err *err)
{
    struct span line;
    struct perf_head h;
    while (perf_line(f, &line)) {
        size_t at = f->line;
        if (perf_is_blank(line) || *line.p == '#')
            continue;
        int rc = perf_head(line, &h) ? perf_sample(f, &h) : BR_EINVAL;
        if (rc == BR_EINVAL)
            return br_err_set(err, rc,
                              "line %zu: neither a sample nor a frame of one as perf script "
                              "prints them",
                              at < f->line ? f->line : at);
        if (rc == BR_ETOOBIG)
            return br_err_set(err, BR_EINVAL,
                              "line %zu: more than %u events, or frames of a sample", at,
                              f->n_stack >= FRAMES_MAX ? FRAMES_MAX : BR_TIMED_TYPES_MAX);
        if (rc)
            return br_err_set(err, rc, "it cannot be converted: %s", br_strerror(rc));
    }
    return 0;
}

bool br_perf_script_is(const char *text, size_t len)
{
    struct perf f = {.p = text, .end = text + len};
    struct span line;
    struct perf_head h;
    while (perf_line(&f, &line))
        if (!perf_is_blank(line) && *line.p != '#')
            return perf_head(line, &h) && (h.has_time || h.has_period);
    return false;
}

int br_perf_script_read(struct br_build *b, const struct br_profile_source *s,
                        struct br_arena *scratch, struct br_err *err)
{
    struct perf f = {.source = s, .build = b, .scratch = scratch, .timed.build = b};
    f.p = s->len ? (const char *)s->data : "";
    f.end = f.p + s->len;
    f.thread_name = br_build_string(b, "thread.name", 11);
    f.thread_id = br_build_string(b, "thread.id", 9);
    f.pid = br_build_string(b, "process.pid", 11);
    int rc = perf_read(&f, err);
    br_free(f.stack);
    if (rc)
        br_timed_release(&f.timed);
    return rc ? rc : br_timed_emit(&f.timed, s, scratch, err);
}
