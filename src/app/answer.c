/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app/ask.h"
#include "base/mem.h"

#define ANSWER_DEPTH_MAX 512      /* of a tree that is printed; deeper frames are left out */
#define ANSWER_SMALLEST 0.005     /* share of the total, below which a frame is left out */
#define ANSWER_BAR 24             /* columns of a span's bar */
#define ANSWER_SPANS_MAX 1000000u /* of a trace */

/* --- Figures --------------------------------------------------------------------------------- */

struct answer_scale {
    double from; /* in ns, or in ones */
    double by;
    const char *unit;
};

static void answer_scaled(struct br_str *out, double value, const struct answer_scale *scales,
                          size_t n_scales)
{
    size_t i = 0;
    double size = value < 0 ? -value : value;
    while (i + 1 < n_scales && size < scales[i].from)
        i++;
    double shown = value / scales[i].by;
    double whole = shown < 0 ? -shown : shown;
    int digits = scales[i].by <= 1 || whole >= 100 ? 0 : whole >= 10 ? 1 : 2;
    br_str_printf(out, "%.*f%s", digits, shown, scales[i].unit);
}

void br_ask_put_amount(struct br_str *out, double value, const char *unit)
{
    static const struct answer_scale times[] = {{60e9, 60e9, " min"},
                                                {1e9, 1e9, " s"},
                                                {1e6, 1e6, " ms"},
                                                {1e3, 1e3, " µs"},
                                                {0, 1, " ns"}};
    static const struct answer_scale bytes[] = {{1 << 30, 1 << 30, " GiB"},
                                                {1 << 20, 1 << 20, " MiB"},
                                                {1 << 10, 1 << 10, " KiB"},
                                                {0, 1, " B"}};
    static const struct answer_scale counts[] = {
        {1e9, 1e9, "G"}, {1e6, 1e6, "M"}, {1e4, 1e3, "k"}, {0, 1, ""}};
    if (strcmp(unit, "nanoseconds") == 0)
        answer_scaled(out, value, times, BR_COUNT(times));
    else if (strcmp(unit, "bytes") == 0)
        answer_scaled(out, value, bytes, BR_COUNT(bytes));
    else
        answer_scaled(out, value, counts, BR_COUNT(counts));
}

/* Terminals act on control characters; what is printed here comes from outside. */
static void answer_text(struct br_str *out, const char *text, size_t columns)
{
    size_t shown = 0;
    for (; *text && shown < columns; text++) {
        unsigned char c = (unsigned char)*text;
        bool c1 = c == 0xc2 && (unsigned char)text[1] >= 0x80 && (unsigned char)text[1] < 0xa0;
        if (c1)
            text++;
        br_str_putc(out, c < 0x20 || c == 0x7f || c1 ? '?' : (char)c);
        shown += (c & 0xc0) != 0x80;
    }
    while ((*text & 0xc0) == 0x80)
        br_str_putc(out, *text++);
    if (*text)
        br_str_puts(out, "…");
}

static size_t answer_columns(const char *text)
{
    size_t columns = 0;
    for (; *text; text++)
        columns += (*text & 0xc0) != 0x80;
    return columns;
}

/* Text in a column of that width; right: at its right edge. */
static void answer_cell(struct br_str *out, const char *text, size_t width, bool right)
{
    size_t columns = answer_columns(text), gap = columns < width ? width - columns : 0;
    if (right)
        br_str_printf(out, "%*s", (int)gap, "");
    answer_text(out, text, columns > width ? width - 1 : width);
    if (!right)
        br_str_printf(out, "%*s", (int)gap, "");
    br_str_puts(out, "  ");
}

static void answer_amount_cell(struct br_str *out, double value, const char *unit, size_t width)
{
    struct br_str text = {0};
    br_ask_put_amount(&text, value, unit);
    answer_cell(out, text.data ? text.data : "", width, true);
    br_str_release(&text);
}

static const char *answer_string(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static double answer_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* --- Spans ----------------------------------------------------------------------------------- */

static void answer_cpu(struct br_str *out, const json_t *span)
{
    const json_t *profile = json_object_get(span, "profile");
    if (answer_number(profile, "samples") > 0)
        answer_amount_cell(out, answer_number(profile, "cpu_ns"), "nanoseconds", 9);
    else
        answer_cell(out, "-", 9, true);
}

static void answer_start(struct br_str *out, const char *unix_ns)
{
    time_t seconds = (time_t)(strtoull(unix_ns, NULL, 10) / 1000000000u);
    struct tm when;
    char text[32] = "";
    if (localtime_r(&seconds, &when))
        (void)strftime(text, sizeof text, "%H:%M:%S", &when);
    answer_cell(out, text, 8, false);
}

bool br_ask_put_spans(struct br_str *out, const json_t *answer)
{
    const json_t *spans = json_object_get(answer, "spans");
    size_t i;
    json_t *span;
    if (!json_is_array(spans))
        return false;
    if (json_array_size(spans) == 0)
        br_str_puts(out, "no spans\n");
    else
        br_str_printf(out, "%-8s  %9s  %9s  %-20s  %-36s  %s\n", "START", "TOOK", "ON CPU",
                      "SERVICE", "SPAN", "TRACE/SPAN");
    json_array_foreach(spans, i, span)
    {
        answer_start(out, answer_string(span, "start_unix_ns"));
        answer_amount_cell(out, answer_number(span, "duration_ns"), "nanoseconds", 9);
        answer_cpu(out, span);
        answer_cell(out, answer_string(span, "service"), 20, false);
        answer_cell(out, answer_string(span, "name"), 36, false);
        answer_text(out, answer_string(span, "trace_id"), 32);
        br_str_putc(out, '/');
        answer_text(out, answer_string(span, "span_id"), 16);
        if (strcmp(answer_string(span, "status"), "error") == 0)
            br_str_puts(out, "  error");
        br_str_putc(out, '\n');
    }
    return true;
}

/* --- A trace --------------------------------------------------------------------------------- */

struct answer_span {
    const json_t *json;
    uint64_t start, duration;
    size_t parent, first, last, next; /* indices + 1; 0: none */
};

struct answer_trace {
    struct answer_span *spans;
    size_t n_spans;
    uint64_t start, end;
};

static int answer_compare_starts(const void *left, const void *right)
{
    const struct answer_span *a = left, *b = right;
    return a->start < b->start ? -1 : a->start > b->start;
}

/* Each span behind its parent. By each pair, which is enough for what a person reads in a terminal;
 * the ids are looked up in an object of their own. */
static bool answer_link_spans(struct answer_trace *trace)
{
    json_t *places = json_object();
    for (size_t i = 0; places && i < trace->n_spans; i++)
        (void)json_object_set_new(places, answer_string(trace->spans[i].json, "span_id"),
                                  json_integer((json_int_t)i + 1));
    for (size_t i = 0; places && i < trace->n_spans; i++) {
        struct answer_span *span = &trace->spans[i];
        json_t *place = json_object_get(places, answer_string(span->json, "parent_id"));
        size_t parent = (size_t)json_integer_value(place);
        if (!parent || parent == i + 1)
            continue;
        struct answer_span *above = &trace->spans[parent - 1];
        span->parent = parent;
        if (above->last)
            trace->spans[above->last - 1].next = i + 1;
        else
            above->first = i + 1;
        above->last = i + 1;
    }
    json_decref(places);
    return places != NULL;
}

static void answer_bar(struct br_str *out, const struct answer_trace *trace,
                       const struct answer_span *span)
{
    double whole = (double)(trace->end - trace->start);
    double from = whole > 0 ? (double)(span->start - trace->start) / whole : 0;
    double share = whole > 0 ? (double)span->duration / whole : 1;
    unsigned begin = (unsigned)(from * ANSWER_BAR), len = (unsigned)(share * ANSWER_BAR + 0.5);
    if (begin >= ANSWER_BAR)
        begin = ANSWER_BAR - 1;
    if (len == 0)
        len = 1;
    if (len > ANSWER_BAR - begin)
        len = ANSWER_BAR - begin;
    for (unsigned i = 0; i < ANSWER_BAR; i++)
        br_str_puts(out, i < begin || i >= begin + len ? "·" : "█");
    br_str_puts(out, "  ");
}

static void answer_trace_line(struct br_str *out, const struct answer_trace *trace, size_t index,
                              unsigned depth)
{
    const struct answer_span *span = &trace->spans[index];
    answer_amount_cell(out, (double)span->duration, "nanoseconds", 9);
    answer_cpu(out, span->json);
    answer_bar(out, trace, span);
    br_str_printf(out, "%*s", (int)(2 * (depth < 20 ? depth : 20)), "");
    answer_text(out, answer_string(span->json, "service"), 24);
    br_str_puts(out, ": ");
    answer_text(out, answer_string(span->json, "name"), 60);
    if (strcmp(answer_string(span->json, "status"), "error") == 0)
        br_str_puts(out, "  error");
    br_str_putc(out, '\n');
}

/* Depth first by links alone: a trace may be deeper than any stack of ours. A span in a circle of
 * parents has no root, and is not reached. */
static void answer_trace_tree(struct br_str *out, const struct answer_trace *trace, size_t root)
{
    size_t at = root;
    unsigned depth = 0;
    for (;;) {
        answer_trace_line(out, trace, at, depth);
        if (trace->spans[at].first) {
            at = trace->spans[at].first - 1;
            depth++;
            continue;
        }
        while (at != root && !trace->spans[at].next) {
            at = trace->spans[at].parent - 1;
            depth--;
        }
        if (at == root)
            return;
        at = trace->spans[at].next - 1;
    }
}

static void answer_fill_trace(struct answer_trace *trace, const json_t *spans)
{
    size_t i;
    json_t *json;
    trace->start = UINT64_MAX;
    json_array_foreach(spans, i, json)
    {
        struct answer_span *span = &trace->spans[i];
        span->json = json;
        span->start = strtoull(answer_string(json, "start_unix_ns"), NULL, 10);
        span->duration = (uint64_t)answer_number(json, "duration_ns");
        if (span->start < trace->start)
            trace->start = span->start;
        if (span->start + span->duration > trace->end)
            trace->end = span->start + span->duration;
    }
    qsort(trace->spans, trace->n_spans, sizeof trace->spans[0], answer_compare_starts);
}

bool br_ask_put_trace(struct br_str *out, const json_t *answer)
{
    const json_t *spans = json_object_get(answer, "spans");
    struct answer_trace trace = {.n_spans = json_array_size(spans)};
    if (!json_is_array(spans) || trace.n_spans > ANSWER_SPANS_MAX)
        return false;
    if (trace.n_spans == 0) {
        br_str_puts(out, "no spans of this trace\n");
        return true;
    }
    trace.spans = br_calloc(trace.n_spans, sizeof trace.spans[0]);
    if (!trace.spans)
        return false;
    answer_fill_trace(&trace, spans);
    bool good = answer_link_spans(&trace);
    br_str_printf(out, "%9s  %9s\n", "TOOK", "ON CPU");
    for (size_t i = 0; good && i < trace.n_spans; i++)
        if (!trace.spans[i].parent)
            answer_trace_tree(out, &trace, i);
    br_free(trace.spans);
    return good;
}

/* --- Functions ------------------------------------------------------------------------------- */

bool br_ask_put_top(struct br_str *out, const json_t *answer)
{
    const json_t *functions = json_object_get(answer, "functions");
    const char *unit = answer_string(answer, "unit");
    double total = answer_number(answer, "total");
    size_t i;
    json_t *function;
    if (!json_is_array(functions))
        return false;
    if (json_array_size(functions) == 0) {
        br_str_puts(out, "no samples\n");
        return true;
    }
    if (json_is_true(json_object_get(answer, "average")))
        br_str_printf(out, "%s, average over the time\n", answer_string(answer, "type"));
    br_str_printf(out, "%9s  %6s  %9s  %6s  %s\n", "SELF", "", "TOTAL", "", "FUNCTION");
    json_array_foreach(functions, i, function)
    {
        double self = answer_number(function, "self"), all = answer_number(function, "total");
        answer_amount_cell(out, self, unit, 9);
        br_str_printf(out, "%5.1f%%  ", total > 0 ? 100 * self / total : 0);
        answer_amount_cell(out, all, unit, 9);
        br_str_printf(out, "%5.1f%%  ", total > 0 ? 100 * all / total : 0);
        answer_text(out, answer_string(function, "name"), 120);
        br_str_putc(out, '\n');
    }
    return true;
}

/* --- Flame graphs ---------------------------------------------------------------------------- */

/* A bar of one level of a flamebearer: its columns from the left edge, and its figures; for a
 * difference those of the right side, too. */
struct answer_frame {
    double at[2], total[2], self[2];
    const char *name;
};

struct answer_flame {
    const json_t *names, *levels;
    bool difference;
    const char *unit;
    double whole[2];
    unsigned width;
    size_t lines; /* the most of the tree */
};

static const char *answer_name(const struct answer_flame *flame, double index)
{
    const char *name = json_string_value(json_array_get(flame->names, (size_t)index));
    return name ? name : "?";
}

/* Reads the bars of a level into `frames`; each starts where the one before it ended, and its
 * offset. Returns their number. */
static size_t answer_read_level(const struct answer_flame *flame, const json_t *level,
                                struct answer_frame *frames)
{
    size_t sides = flame->difference ? 2 : 1, step = 3 * sides + 1;
    size_t n = json_array_size(level) / step;
    double end[2] = {0, 0};
    for (size_t i = 0; i < n; i++) {
        for (size_t side = 0; side < sides; side++) {
            size_t base = i * step + 3 * side;
            frames[i].at[side] = end[side] + json_number_value(json_array_get(level, base));
            frames[i].total[side] = json_number_value(json_array_get(level, base + 1));
            frames[i].self[side] = json_number_value(json_array_get(level, base + 2));
            end[side] = frames[i].at[side] + frames[i].total[side];
        }
        frames[i].name =
            answer_name(flame, json_number_value(json_array_get(level, i * step + step - 1)));
    }
    return n;
}

static void answer_frame_line(struct br_str *out, const struct answer_flame *flame,
                              const struct answer_frame *frame, unsigned depth)
{
    unsigned before = flame->difference ? 42 : 30;
    unsigned indent = 2 * (depth < 30 ? depth : 30);
    double share[2];
    for (int side = 0; side < 2; side++)
        share[side] = flame->whole[side] > 0 ? 100 * frame->total[side] / flame->whole[side] : 0;
    if (flame->difference) {
        br_str_printf(out, "%7.1f%%  %7.1f%%  %+7.1f  ", share[0], share[1], share[1] - share[0]);
    } else {
        br_str_printf(out, "%5.1f%%  ", share[0]);
        answer_amount_cell(out, frame->total[0], flame->unit, 9);
        answer_amount_cell(out, frame->self[0], flame->unit, 9);
    }
    br_str_printf(out, "%*s", (int)indent, "");
    answer_text(out, frame->name,
                flame->width > before + indent + 16 ? flame->width - before - indent : 16);
    br_str_putc(out, '\n');
}

struct answer_level {
    struct answer_frame *frames;
    size_t n_frames, next; /* the first that is not printed yet */
};

static bool answer_is_large(const struct answer_flame *flame, const struct answer_frame *frame)
{
    return (flame->whole[0] > 0 && frame->total[0] >= ANSWER_SMALLEST * flame->whole[0]) ||
           (flame->whole[1] > 0 && frame->total[1] >= ANSWER_SMALLEST * flame->whole[1]);
}

/* Whether a bar lies under one of the level above. */
static bool answer_is_under(const struct answer_frame *frame, const struct answer_frame *above,
                            bool difference)
{
    return frame->at[0] < above->at[0] + above->total[0] ||
           (difference && frame->at[1] < above->at[1] + above->total[1]);
}

/* Depth first over levels, each of which lies in the order of its parents. */
static void answer_levels(struct br_str *out, const struct answer_flame *flame,
                          struct answer_level *levels, size_t n_levels)
{
    size_t depth = 0, lines = 0;
    const struct answer_frame *path[ANSWER_DEPTH_MAX];
    while (lines < flame->lines) {
        struct answer_level *level = &levels[depth];
        bool take = level->next < level->n_frames &&
                    (depth == 0 || answer_is_under(&level->frames[level->next], path[depth - 1],
                                                   flame->difference));
        if (!take) {
            if (depth == 0)
                return;
            depth--;
            continue;
        }
        const struct answer_frame *frame = &level->frames[level->next++];
        if (answer_is_large(flame, frame)) {
            answer_frame_line(out, flame, frame, (unsigned)depth);
            lines++;
        }
        path[depth] = frame;
        if (depth + 1 < n_levels)
            depth++;
    }
}

static bool answer_tree(struct br_str *out, const struct answer_flame *flame)
{
    size_t n_levels = json_array_size(flame->levels);
    struct answer_level *levels = br_calloc(ANSWER_DEPTH_MAX, sizeof *levels);
    size_t n_read = 0;
    bool good = levels != NULL;
    if (n_levels > ANSWER_DEPTH_MAX)
        n_levels = ANSWER_DEPTH_MAX;
    for (; n_read < n_levels && good; n_read++) {
        const json_t *level = json_array_get(flame->levels, n_read);
        levels[n_read].frames =
            br_calloc(json_array_size(level) + 1, sizeof levels[n_read].frames[0]);
        good = levels[n_read].frames != NULL;
        if (good)
            levels[n_read].n_frames = answer_read_level(flame, level, levels[n_read].frames);
    }
    if (good && n_levels)
        answer_levels(out, flame, levels, n_levels);
    for (size_t i = 0; i < n_read; i++)
        br_free(levels[i].frames);
    br_free(levels);
    return good;
}

static bool answer_open_flame(struct answer_flame *flame, const json_t *answer)
{
    const json_t *bearer = json_object_get(answer, "flamebearer");
    flame->names = json_object_get(bearer, "names");
    flame->levels = json_object_get(bearer, "levels");
    flame->unit = answer_string(answer, "unit");
    return json_is_array(flame->names) && json_is_array(flame->levels);
}

bool br_ask_put_profile(struct br_str *out, const json_t *answer, unsigned width, size_t lines)
{
    struct answer_flame flame = {.width = width, .lines = lines};
    if (!answer_open_flame(&flame, answer))
        return false;
    flame.whole[0] = answer_number(json_object_get(answer, "flamebearer"), "numTicks");
    if (flame.whole[0] <= 0) {
        const char *why = answer_string(answer, "why_empty");
        answer_text(out, *why ? why : "no samples", 1000);
        br_str_putc(out, '\n');
        return true;
    }
    if (json_is_true(json_object_get(answer, "average")))
        br_str_printf(out, "%s, average over the time\n", answer_string(answer, "type"));
    else
        br_str_printf(out, "%s of %.0f samples\n", answer_string(answer, "type"),
                      answer_number(answer, "samples"));
    br_str_printf(out, "%6s  %9s  %9s  %s\n", "", "TOTAL", "SELF", "FUNCTION");
    return answer_tree(out, &flame);
}

bool br_ask_put_difference(struct br_str *out, const json_t *answer, unsigned width, size_t lines)
{
    struct answer_flame flame = {.width = width, .lines = lines, .difference = true};
    if (!answer_open_flame(&flame, answer))
        return false;
    flame.whole[0] = answer_number(json_object_get(answer, "left"), "total");
    flame.whole[1] = answer_number(json_object_get(answer, "right"), "total");
    if (flame.whole[0] <= 0 || flame.whole[1] <= 0) {
        br_str_printf(out, "no samples in %s\n",
                      flame.whole[0] > 0   ? "the comparison"
                      : flame.whole[1] > 0 ? "the baseline"
                                           : "either selection");
        return true;
    }
    br_str_printf(out, "%s, shares of the total\n%8s  %8s  %7s  %s\n",
                  answer_string(answer, "type"), "BASELINE", "NOW", "CHANGE", "FUNCTION");
    return answer_tree(out, &flame);
}
