/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the output of `perf script`. Each sample consists of a line with the thread, time and
 * event:
 *
 *     comm 123/124 [001] 17174.794111:   10101010 cpu-clock:
 *
 * A line for each frame follows, leaf first, and then an empty line. The fields depend on the
 * options of perf script; the thread number and the event are required. Source:
 * tools/perf/builtin-script.c.
 */
#include <ctype.h>
#include <string.h>

#include "base/bytes.h"
#include "base/decimal.h"
#include "base/mem.h"
#include "profile/timed.h"

#define FRAMES_MAX (1u << 20)
#define EVENT_MAX 128u /* longest name of an event, in bytes */
#define NS_PER_S UINT64_C(1000000000)
#define DEFAULT_RATE 1000.0

struct perf {
    /* source (data and settings) of the current or next part; each part becomes a separate
     * request */
    struct br_profile_source source;
    struct br_build *build;
    struct br_arena *scratch;
    struct br_timed timed;
    const char *p, *end;
    size_t line;                          /* number of the current line, from 1 */
    uint32_t thread_name, thread_id, pid; /* attribute keys, as indices of strings in the builder */
    uint32_t *stack;
    uint32_t n_stack, cap_stack;
};

struct span {
    const char *p, *end;
};

/* Fields of the first line of a sample. */
struct perf_head {
    struct span comm, event,
        after_event; /* after_event: text after the event, which may be a stack frame */
    int64_t pid, tid;
    uint64_t time_ns, period;
    bool has_pid, has_time, has_period;
};

/* --- Words ------------------------------------------------------------------------------------ */

static struct span perf_script_word(struct span *span)
{
    while (span->p < span->end && (*span->p == ' ' || *span->p == '\t'))
        span->p++;
    struct span word = {span->p, span->p};
    while (word.end < span->end && *word.end != ' ' && *word.end != '\t')
        word.end++;
    span->p = word.end;
    return word;
}

/* Parses the number of a process or thread. The number is -1 if perf does not know the process
 * or thread. */
static bool perf_script_number(const char **p, const char *end, int64_t *ret)
{
    uint64_t number;
    bool unknown = *p < end && **p == '-';
    *p += unknown;
    if (!br_decimal_read(p, end, INT64_MAX, &number) || (unknown && number != 1))
        return false;
    *ret = unknown ? -1 : (int64_t)number;
    return true;
}

/* Parses "124" or "123/124". */
static bool perf_script_thread(struct span word, struct perf_head *perf_head)
{
    const char *p = word.p;
    perf_head->has_pid = false;
    if (!perf_script_number(&p, word.end, &perf_head->tid))
        return false;
    if (p < word.end && *p == '/') {
        p++;
        perf_head->pid = perf_head->tid;
        perf_head->has_pid = true;
        if (!perf_script_number(&p, word.end, &perf_head->tid))
            return false;
    }
    return p == word.end;
}

/* Parses "17174.794111:" with up to nine decimals. */
static bool perf_script_time(struct span word, uint64_t *ret_ns)
{
    const char *p = word.p;
    uint64_t s;
    if (!br_decimal_read(&p, word.end, UINT64_MAX / NS_PER_S - 1, &s) || p == word.end ||
        *p++ != '.')
        return false;
    *ret_ns = s * NS_PER_S + br_decimal_fraction(&p, word.end, NS_PER_S);
    return word.end - p == 1 && *p == ':';
}

static bool perf_script_cpu(struct span word)
{
    return word.end - word.p > 2 && word.p[0] == '[' && word.end[-1] == ']' &&
           isdigit((unsigned char)word.p[1]);
}

/* Parses the fields that follow the thread in the first line of a sample. */
static bool perf_script_event(struct span span, struct perf_head *perf_head)
{
    struct span word = perf_script_word(&span);
    if (perf_script_cpu(word))
        word = perf_script_word(&span);
    perf_head->has_time = perf_script_time(word, &perf_head->time_ns);
    if (perf_head->has_time)
        word = perf_script_word(&span);
    perf_head->has_period =
        br_decimal_parse(word.p, (size_t)(word.end - word.p), UINT64_MAX, &perf_head->period);
    if (perf_head->has_period)
        word = perf_script_word(&span);
    if (word.end - word.p < 2 || word.end[-1] != ':' || (size_t)(word.end - word.p) > EVENT_MAX)
        return false;
    perf_head->event = (struct span){word.p, word.end - 1};
    perf_head->after_event = span;
    return true;
}

/* Parses the first line of a sample. The name of the thread may contain blanks and words that
 * look like numbers. */
static bool perf_script_head(struct span line, struct perf_head *perf_head)
{
    struct span span = line;
    const char *start = NULL;
    unsigned n = 0;
    for (struct span word = perf_script_word(&span); word.p < word.end && n < 16;
         word = perf_script_word(&span), n++) {
        if (start && perf_script_thread(word, perf_head) && perf_script_event(span, perf_head)) {
            perf_head->comm = (struct span){start, word.p};
            while (perf_head->comm.end > start && perf_head->comm.end[-1] == ' ')
                perf_head->comm.end--;
            return true;
        }
        start = start ? start : word.p;
    }
    return false;
}

/* --- Types ------------------------------------------------------------------------------------ */

static bool perf_script_span_is(struct span span, const char *text)
{
    return br_bytes_are(span.p, (size_t)(span.end - span.p), text);
}

/* Returns true for software clocks, which count nanoseconds of CPU time. */
static bool perf_script_is_clock(struct span event)
{
    static const char *const clocks[] = {"cpu-clock", "task-clock"};
    const char *colon = memchr(event.p, ':', (size_t)(event.end - event.p));
    struct span name = {event.p, colon ? colon : event.end};
    for (size_t i = 0; i < BR_COUNT(clocks); i++)
        if (perf_script_span_is(name, clocks[i]))
            return true;
    return false;
}

/* Returns in `ret` the type for an event, which is added at its first use. Returns 0, BR_ETOOBIG
 * if there are too many types, or BR_ENOMEM. */
static int perf_script_type(struct perf *perf, const struct perf_head *perf_head, uint32_t *ret)
{
    struct br_timed *timed = &perf->timed;
    bool clock = perf_script_is_clock(perf_head->event);
    for (uint32_t i = 0; i < timed->n_types; i++)
        if (clock ? timed->types[i].metric != NULL
                  : !timed->types[i].metric &&
                        perf_script_span_is(perf_head->event, timed->types[i].type)) {
            *ret = i;
            return 0;
        }
    if (timed->n_types == BR_TIMED_TYPES_MAX)
        return BR_ETOOBIG;
    struct br_timed_type *type = &timed->types[timed->n_types];
    double rate = perf->source.sample_rate > 0 ? perf->source.sample_rate : DEFAULT_RATE;
    *type = (struct br_timed_type){.unit = "count", .period = 0};
    if (clock) {
        *type = (struct br_timed_type){.metric = "process_cpu",
                                       .type = "cpu",
                                       .unit = "nanoseconds",
                                       .period_type = "cpu",
                                       .period_unit = "nanoseconds",
                                       .period = perf_head->has_period
                                                     ? (int64_t)(perf_head->period & INT64_MAX)
                                                     : (int64_t)((double)NS_PER_S / rate)};
        *ret = timed->n_types++;
        return 0;
    }
    type->type = br_arena_strndup(perf->scratch, perf_head->event.p,
                                  (size_t)(perf_head->event.end - perf_head->event.p));
    *ret = timed->n_types;
    timed->n_types += type->type != NULL;
    return type->type ? 0 : BR_ENOMEM;
}

/* --- Frames ----------------------------------------------------------------------------------- */

/* Returns the start of the parentheses at the end of a frame, or NULL. Names of functions and
 * files may contain parentheses as well. */
static const char *perf_script_object(struct span frame)
{
    const char *last = NULL;
    unsigned depth = 0;
    if (frame.p == frame.end || frame.end[-1] != ')')
        return NULL;
    for (const char *p = frame.end; p > frame.p; p--) {
        depth += p[-1] == ')';
        if (p[-1] != '(')
            continue;
        last = last ? last : p - 1;
        if (--depth == 0)
            return p - 1;
    }
    return last;
}

/* Parses "ffffffff81 name+0x1f (/usr/lib/libc.so.6)". Names may contain blanks and parentheses. */
static bool perf_script_frame(struct span line, uint64_t *ret_address, struct span *name,
                              struct span *object)
{
    struct span address = perf_script_word(&line);
    uint64_t v = 0;
    const char *p = address.p;
    for (; p < address.end && br_hex_value(*p) >= 0 && v < UINT64_C(1) << 60; p++)
        v = v << 4 | (uint64_t)br_hex_value(*p);
    if (p == address.p || p < address.end)
        return false;
    *ret_address = v;
    while (line.p < line.end && *line.p == ' ')
        line.p++;
    *object = (struct span){line.end, line.end};
    const char *open = perf_script_object(line);
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

/* Reads a line and removes its line ending (LF or CRLF). */
static bool perf_script_line(struct perf *perf, struct span *ret)
{
    if (perf->p == perf->end)
        return false;
    const char *lf = memchr(perf->p, '\n', (size_t)(perf->end - perf->p));
    *ret = (struct span){perf->p, lf ? lf : perf->end};
    perf->p = lf ? lf + 1 : perf->end;
    perf->line++;
    if (ret->end > ret->p && ret->end[-1] == '\r')
        ret->end--;
    return true;
}

static bool perf_script_is_blank(struct span line)
{
    struct span word = perf_script_word(&line);
    return word.p == word.end;
}

static bool perf_script_is_indented(struct span line)
{
    return line.p < line.end && (*line.p == ' ' || *line.p == '\t');
}

/* Parses a line printed by "-F +srcline" below a frame: "server.c:42", or "??:0" if the line is
 * unknown. */
static bool perf_script_srcline(struct span line, struct span *file, int64_t *ret_line)
{
    static const char more[] = " (discriminator ";
    uint64_t number;
    while (line.p < line.end && (*line.p == ' ' || *line.p == '\t'))
        line.p++;
    const char *open = perf_script_object(line);
    if (open && open > line.p && (size_t)(line.end - open) > sizeof more - 2 &&
        memcmp(open - 1, more, sizeof more - 1) == 0)
        line.end = open - 1;
    const char *colon = line.end > line.p && isdigit((unsigned char)line.end[-1])
                            ? memrchr(line.p, ':', (size_t)(line.end - line.p))
                            : NULL;
    if (!colon || colon == line.p)
        return false;
    *file = (struct span){line.p, colon};
    bool read = br_decimal_parse(colon + 1, (size_t)(line.end - colon) - 1, INT32_MAX, &number);
    *ret_line = read ? (int64_t)number : 0;
    return read;
}

/* Reads the next line if it is the source line of the previous frame. */
static void perf_script_read_srcline(struct perf *perf, struct span *file, int64_t *ret_line)
{
    struct perf before = *perf;
    struct span line, name, object;
    uint64_t address;
    bool found = perf_script_line(perf, &line) && perf_script_is_indented(line) &&
                 perf_script_srcline(line, file, ret_line) &&
                 !perf_script_frame(line, &address, &name, &object);
    if (!found) {
        perf->p = before.p;
        perf->line = before.line;
    }
    if (!found || perf_script_span_is(*file, "??")) {
        *file = (struct span){perf->p, perf->p};
        *ret_line = 0;
    }
}

/* Adds a frame. A frame with a name gets no address, because otherwise each instruction would be
 * a separate frame. */
static int perf_script_push(struct perf *perf, struct span line)
{
    struct span name, object;
    uint64_t address;
    if (!perf_script_frame(line, &address, &name, &object))
        return BR_EINVAL;
    bool known = name.end > name.p && !perf_script_span_is(name, "[unknown]");
    const struct br_build_mapping mapping = {
        .filename = br_build_string(perf->build, object.p, (size_t)(object.end - object.p))};
    struct span file;
    int64_t number;
    perf_script_read_srcline(perf, &file, &number);
    uint32_t text = br_build_string(perf->build, name.p, (size_t)(name.end - name.p));
    uint32_t path = br_build_string(perf->build, file.p, (size_t)(file.end - file.p));
    const struct br_build_line made = {.function = br_build_function(perf->build, text, 0, path, 0),
                                       .line = number};
    const struct br_build_location location = {.mapping = br_build_mapping(perf->build, &mapping),
                                               .address = known ? 0 : address,
                                               .lines = &made,
                                               .n_lines = name.end > name.p};
    int rc = br_grow(&perf->stack, &perf->cap_stack, (size_t)perf->n_stack + 1, sizeof *perf->stack,
                     FRAMES_MAX);
    if (!rc)
        perf->stack[perf->n_stack++] = br_build_location(perf->build, &location);
    return rc == BR_EFULL ? BR_ETOOBIG : rc;
}

/* --- Samples ---------------------------------------------------------------------------------- */

static int perf_script_frames(struct perf *perf, struct span after_event)
{
    struct span line;
    perf->n_stack = 0;
    int rc = perf_script_is_blank(after_event) ? 0 : perf_script_push(perf, after_event);
    /* BR_EINVAL is not an error here: the text is not a frame but the fields of a tracepoint */
    if (rc && rc != BR_EINVAL)
        return rc;
    for (rc = 0; !rc && perf_script_line(perf, &line) && !perf_script_is_blank(line);) {
        if (!perf_script_is_indented(line)) {
            /* Read the line again as the head of the next sample: a sample without frames has no
             * empty line. */
            perf->p = line.p;
            perf->line--;
            break;
        }
        rc = perf_script_push(perf, line);
    }
    return rc;
}

static int perf_script_sample(struct perf *perf, const struct perf_head *perf_head)
{
    struct br_timed_sample sample = {.time_ns = perf_head->has_time ? perf_head->time_ns : 0};
    struct br_build *build = perf->build;
    int rc = perf_script_frames(perf, perf_head->after_event);
    if (rc)
        return rc;
    rc = perf_script_type(perf, perf_head, &sample.type);
    if (rc)
        return rc;
    bool clock = perf->timed.types[sample.type].metric != NULL;
    if (perf_head->has_period)
        sample.value = (int64_t)(perf_head->period & INT64_MAX);
    else
        sample.value = clock ? perf->timed.types[sample.type].period : 1;
    sample.stack = br_build_stack(build, perf->stack, perf->n_stack);
    sample.attributes[0] =
        br_build_attribute_text(build, perf->thread_name, perf_head->comm.p,
                                (size_t)(perf_head->comm.end - perf_head->comm.p));
    sample.attributes[1] = br_build_attribute_int(build, perf->thread_id, perf_head->tid, 0);
    if (perf_head->has_pid)
        sample.attributes[2] = br_build_attribute_int(build, perf->pid, perf_head->pid, 0);
    rc = br_build_rc(build);
    return rc ? rc : br_timed_add(&perf->timed, &sample);
}

static void perf_script_keys(struct perf *perf)
{
    perf->thread_name = br_build_string(perf->build, "thread.name", 11);
    perf->thread_id = br_build_string(perf->build, "thread.id", 9);
    perf->pid = br_build_string(perf->build, "process.pid", 11);
}

/* Completes a part, which becomes a separate request, if enough samples have been read. */
static int perf_script_divide(struct perf *perf, struct br_err *err)
{
    const struct br_profile_parts *parts = perf->source.parts;
    if (!parts || (perf->timed.count < parts->stacks && br_build_made(perf->build) < parts->bytes))
        return 0;
    int rc = br_timed_emit(&perf->timed, &perf->source, perf->scratch, err);
    if (rc)
        return rc;
    rc = parts->take(parts->arg);
    if (rc)
        return br_err_set(err, rc, "a part cannot be converted: %s", br_strerror(rc));
    perf->source.profile_id = NULL;
    perf_script_keys(perf);
    return 0;
}

/* Finds the first and last time of the file, which are needed to convert times before the first
 * part is written. Classifies lines in the same way as perf_script_read and perf_script_frames. */
static void perf_script_find_clock(const struct perf *perf, struct br_timed *timed)
{
    struct perf lookahead = *perf;
    struct span line;
    struct perf_head perf_head;
    bool inside = false;
    timed->has_clock = true;
    timed->clock_first_ns = UINT64_MAX;
    while (perf_script_line(&lookahead, &line)) {
        bool blank = perf_script_is_blank(line);
        if (inside && !blank && perf_script_is_indented(line))
            continue; /* the line is a frame, not the head of a sample */
        inside = !blank && *line.p != '#' && perf_script_head(line, &perf_head);
        if (!inside)
            continue;
        uint64_t time_ns = perf_head.has_time ? perf_head.time_ns : 0;
        if (time_ns < timed->clock_first_ns)
            timed->clock_first_ns = time_ns;
        if (time_ns > timed->clock_last_ns)
            timed->clock_last_ns = time_ns;
    }
}

static int perf_script_read(struct perf *perf, struct br_err *err)
{
    struct span line;
    struct perf_head perf_head;
    while (perf_script_line(perf, &line)) {
        size_t at = perf->line;
        if (perf_script_is_blank(line) || *line.p == '#')
            continue;
        int rc =
            perf_script_head(line, &perf_head) ? perf_script_sample(perf, &perf_head) : BR_EINVAL;
        if (rc == BR_EINVAL)
            return br_err_set(err, rc,
                              "line %zu: neither a sample nor a frame in the format of perf script",
                              at < perf->line ? perf->line : at);
        if (rc == BR_ETOOBIG)
            return br_err_set(err, BR_EINVAL,
                              "line %zu: more than %u events, or frames in a sample", at,
                              perf->n_stack >= FRAMES_MAX ? FRAMES_MAX : BR_TIMED_TYPES_MAX);
        if (rc)
            return br_err_set(err, rc, "cannot be converted: %s", br_strerror(rc));
        rc = perf_script_divide(perf, err);
        if (rc)
            return rc;
    }
    return 0;
}

bool br_perf_script_is(const char *text, size_t len)
{
    struct perf perf = {.p = text, .end = br_mem_end(text, len)};
    struct span line;
    struct perf_head perf_head;
    while (perf_script_line(&perf, &line))
        if (!perf_script_is_blank(line) && *line.p != '#')
            return perf_script_head(line, &perf_head) &&
                   (perf_head.has_time || perf_head.has_period);
    return false;
}

int br_perf_script_read(struct br_build *build, const struct br_profile_source *source,
                        struct br_arena *scratch, struct br_err *err)
{
    struct perf perf = {
        .source = *source, .build = build, .scratch = scratch, .timed.build = build};
    perf.p = source->len ? (const char *)source->data : "";
    perf.end = perf.p + source->len;
    if (source->parts)
        perf_script_find_clock(&perf, &perf.timed);
    perf_script_keys(&perf);
    int rc = perf_script_read(&perf, err);
    br_free(perf.stack);
    if (rc)
        br_timed_release(&perf.timed);
    return rc ? rc : br_timed_emit(&perf.timed, &perf.source, scratch, err);
}
