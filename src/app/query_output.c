/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app/query_command.h"
#include "base/mem.h"

/* largest number of levels of a printed tree; deeper frames are omitted */
#define OUTPUT_DEPTH_MAX 512
/* smallest printed frame, as a share of the total; smaller frames are omitted */
#define OUTPUT_SMALLEST 0.005
#define OUTPUT_BAR 24             /* width of a span's bar, in columns */
#define OUTPUT_SPANS_MAX 1000000u /* largest trace that is printed, in spans */

/* --- Numbers --------------------------------------------------------------------------------- */

struct output_scale {
    double from; /* smallest value that is printed in this unit */
    double by;
    const char *unit;
};

static void output_scaled(struct br_str *out, double value, const struct output_scale *scales,
                          size_t n_scales)
{
    size_t i = 0;
    double size = value < 0 ? -value : value;
    while (i + 1 < n_scales && size < scales[i].from)
        i++;
    double shown = value / scales[i].by;
    double whole = shown < 0 ? -shown : shown;
    int digits = 2;
    if (scales[i].by <= 1 || whole >= 100)
        digits = 0;
    else if (whole >= 10)
        digits = 1;
    br_str_printf(out, "%.*f%s", digits, shown, scales[i].unit);
}

void br_query_output_amount(struct br_str *out, double value, const char *unit)
{
    static const struct output_scale times[] = {{60e9, 60e9, " min"},
                                                {1e9, 1e9, " s"},
                                                {1e6, 1e6, " ms"},
                                                {1e3, 1e3, " µs"},
                                                {0, 1, " ns"}};
    static const struct output_scale bytes[] = {{1 << 30, 1 << 30, " GiB"},
                                                {1 << 20, 1 << 20, " MiB"},
                                                {1 << 10, 1 << 10, " KiB"},
                                                {0, 1, " B"}};
    static const struct output_scale counts[] = {
        {1e9, 1e9, "G"}, {1e6, 1e6, "M"}, {1e4, 1e3, "k"}, {0, 1, ""}};
    if (strcmp(unit, "nanoseconds") == 0)
        output_scaled(out, value, times, BR_COUNT(times));
    else if (strcmp(unit, "bytes") == 0)
        output_scaled(out, value, bytes, BR_COUNT(bytes));
    else
        output_scaled(out, value, counts, BR_COUNT(counts));
}

/* Appends at most `columns` columns of a text. Replaces control characters, which could change the
 * state of the terminal. */
static void output_text(struct br_str *out, const char *text, size_t columns)
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

static size_t output_columns(const char *text)
{
    size_t columns = 0;
    for (; *text; text++)
        columns += (*text & 0xc0) != 0x80;
    return columns;
}

/* Appends text in a column of fixed width, aligned right if `right` is set. */
static void output_cell(struct br_str *out, const char *text, size_t width, bool right)
{
    size_t columns = output_columns(text), gap = columns < width ? width - columns : 0;
    if (right)
        br_str_printf(out, "%*s", (int)gap, "");
    output_text(out, text, columns > width ? width - 1 : width);
    if (!right)
        br_str_printf(out, "%*s", (int)gap, "");
    br_str_puts(out, "  ");
}

static void output_amount_cell(struct br_str *out, double value, const char *unit, size_t width)
{
    struct br_str text = {0};
    br_query_output_amount(&text, value, unit);
    output_cell(out, text.data ? text.data : "", width, true);
    br_str_release(&text);
}

static const char *output_string(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static double output_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* --- Spans ----------------------------------------------------------------------------------- */

static void output_cpu(struct br_str *out, const json_t *span)
{
    const json_t *profile = json_object_get(span, "profile");
    if (output_number(profile, "samples") > 0)
        output_amount_cell(out, output_number(profile, "cpu_ns"), "nanoseconds", 9);
    else
        output_cell(out, "-", 9, true);
}

static void output_start(struct br_str *out, const char *unix_ns)
{
    time_t seconds = (time_t)(strtoull(unix_ns, NULL, 10) / 1000000000u);
    struct tm when;
    char text[32] = "";
    if (localtime_r(&seconds, &when))
        (void)strftime(text, sizeof text, "%H:%M:%S", &when);
    output_cell(out, text, 8, false);
}

bool br_query_output_spans(struct br_str *out, const json_t *response)
{
    const json_t *spans = json_object_get(response, "spans");
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
        output_start(out, output_string(span, "start_unix_ns"));
        output_amount_cell(out, output_number(span, "duration_ns"), "nanoseconds", 9);
        output_cpu(out, span);
        output_cell(out, output_string(span, "service"), 20, false);
        output_cell(out, output_string(span, "name"), 36, false);
        output_text(out, output_string(span, "trace_id"), 32);
        br_str_putc(out, '/');
        output_text(out, output_string(span, "span_id"), 16);
        if (strcmp(output_string(span, "status"), "error") == 0)
            br_str_puts(out, "  error");
        br_str_putc(out, '\n');
    }
    return true;
}

/* --- A trace --------------------------------------------------------------------------------- */

struct output_span {
    const json_t *json;
    uint64_t start, duration;
    /* parent, first child, last child and next sibling: index of the span plus 1; 0: none */
    size_t parent, first, last, next;
};

struct output_trace {
    struct output_span *spans;
    size_t n_spans;
    uint64_t start, end;
};

static int output_compare_starts(const void *left, const void *right)
{
    const struct output_span *a = left, *b = right;
    return a->start < b->start ? -1 : a->start > b->start;
}

/* Links each span to its parent and siblings. */
static bool output_link_spans(struct output_trace *trace)
{
    json_t *places = json_object();
    for (size_t i = 0; places && i < trace->n_spans; i++)
        (void)json_object_set_new(places, output_string(trace->spans[i].json, "span_id"),
                                  json_integer((json_int_t)i + 1));
    for (size_t i = 0; places && i < trace->n_spans; i++) {
        struct output_span *span = &trace->spans[i];
        json_t *place = json_object_get(places, output_string(span->json, "parent_id"));
        size_t parent = (size_t)json_integer_value(place);
        if (!parent || parent == i + 1)
            continue;
        struct output_span *above = &trace->spans[parent - 1];
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

static void output_bar(struct br_str *out, const struct output_trace *trace,
                       const struct output_span *span)
{
    double whole = (double)(trace->end - trace->start);
    double from = whole > 0 ? (double)(span->start - trace->start) / whole : 0;
    double share = whole > 0 ? (double)span->duration / whole : 1;
    unsigned begin = (unsigned)(from * OUTPUT_BAR), len = (unsigned)(share * OUTPUT_BAR + 0.5);
    if (begin >= OUTPUT_BAR)
        begin = OUTPUT_BAR - 1;
    if (len == 0)
        len = 1;
    if (len > OUTPUT_BAR - begin)
        len = OUTPUT_BAR - begin;
    for (unsigned i = 0; i < OUTPUT_BAR; i++)
        br_str_puts(out, i < begin || i >= begin + len ? "·" : "█");
    br_str_puts(out, "  ");
}

static void output_trace_line(struct br_str *out, const struct output_trace *trace, size_t index,
                              unsigned depth)
{
    const struct output_span *span = &trace->spans[index];
    output_amount_cell(out, (double)span->duration, "nanoseconds", 9);
    output_cpu(out, span->json);
    output_bar(out, trace, span);
    br_str_printf(out, "%*s", (int)(2 * (depth < 20 ? depth : 20)), "");
    output_text(out, output_string(span->json, "service"), 24);
    br_str_puts(out, ": ");
    output_text(out, output_string(span->json, "name"), 60);
    if (strcmp(output_string(span->json, "status"), "error") == 0)
        br_str_puts(out, "  error");
    br_str_putc(out, '\n');
}

/* Prints a span and all spans below it, depth first. Follows links instead of recursing, because
 * the recursion for a deep trace could overflow the stack. Spans whose parents form a cycle are not
 * below any root and are omitted. */
static void output_trace_tree(struct br_str *out, const struct output_trace *trace, size_t root)
{
    size_t at = root;
    unsigned depth = 0;
    for (;;) {
        output_trace_line(out, trace, at, depth);
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

static void output_fill_trace(struct output_trace *trace, const json_t *spans)
{
    size_t i;
    json_t *json;
    trace->start = UINT64_MAX;
    json_array_foreach(spans, i, json)
    {
        struct output_span *span = &trace->spans[i];
        span->json = json;
        span->start = strtoull(output_string(json, "start_unix_ns"), NULL, 10);
        span->duration = (uint64_t)output_number(json, "duration_ns");
        if (span->start < trace->start)
            trace->start = span->start;
        if (span->start + span->duration > trace->end)
            trace->end = span->start + span->duration;
    }
    qsort(trace->spans, trace->n_spans, sizeof trace->spans[0], output_compare_starts);
}

bool br_query_output_trace(struct br_str *out, const json_t *response)
{
    const json_t *spans = json_object_get(response, "spans");
    struct output_trace trace = {.n_spans = json_array_size(spans)};
    if (!json_is_array(spans) || trace.n_spans > OUTPUT_SPANS_MAX)
        return false;
    if (trace.n_spans == 0) {
        br_str_puts(out, "no spans of this trace\n");
        return true;
    }
    trace.spans = br_calloc(trace.n_spans, sizeof trace.spans[0]);
    if (!trace.spans)
        return false;
    output_fill_trace(&trace, spans);
    bool good = output_link_spans(&trace);
    br_str_printf(out, "%9s  %9s\n", "TOOK", "ON CPU");
    for (size_t i = 0; good && i < trace.n_spans; i++)
        if (!trace.spans[i].parent)
            output_trace_tree(out, &trace, i);
    br_free(trace.spans);
    return good;
}

/* --- Functions ------------------------------------------------------------------------------- */

bool br_query_output_top(struct br_str *out, const json_t *response)
{
    const json_t *functions = json_object_get(response, "functions");
    const char *unit = output_string(response, "unit");
    double total = output_number(response, "total");
    size_t i;
    json_t *function;
    if (!json_is_array(functions))
        return false;
    if (json_array_size(functions) == 0) {
        br_str_puts(out, "no samples\n");
        return true;
    }
    if (json_is_true(json_object_get(response, "average")))
        br_str_printf(out, "%s, averaged over the time range\n", output_string(response, "type"));
    br_str_printf(out, "%9s  %6s  %9s  %6s  %s\n", "SELF", "", "TOTAL", "", "FUNCTION");
    json_array_foreach(functions, i, function)
    {
        double self = output_number(function, "self"), all = output_number(function, "total");
        output_amount_cell(out, self, unit, 9);
        br_str_printf(out, "%5.1f%%  ", total > 0 ? 100 * self / total : 0);
        output_amount_cell(out, all, unit, 9);
        br_str_printf(out, "%5.1f%%  ", total > 0 ? 100 * all / total : 0);
        output_text(out, output_string(function, "name"), 120);
        br_str_putc(out, '\n');
    }
    return true;
}

/* --- Flame graphs ---------------------------------------------------------------------------- */

/* A bar of a flamebearer level: its left edge, its total and its own value. With two selections,
 * index 0 is the baseline, and index 1 is the comparison. */
struct output_frame {
    double at[2], total[2], self[2];
    const char *name;
};

struct output_flame {
    const json_t *names, *levels;
    bool difference;
    const char *unit;
    double whole[2];
    unsigned width;
    size_t lines; /* largest number of printed lines of the tree */
};

static const char *output_name(const struct output_flame *flame, double index)
{
    const char *name = json_string_value(json_array_get(flame->names, (size_t)index));
    return name ? name : "?";
}

/* Reads the bars of a level into `frames` and returns their number. The offset of a bar in the
 * response is the distance from the end of the previous bar. */
static size_t output_read_level(const struct output_flame *flame, const json_t *level,
                                struct output_frame *frames)
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
            output_name(flame, json_number_value(json_array_get(level, i * step + step - 1)));
    }
    return n;
}

static void output_frame_line(struct br_str *out, const struct output_flame *flame,
                              const struct output_frame *frame, unsigned depth)
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
        output_amount_cell(out, frame->total[0], flame->unit, 9);
        output_amount_cell(out, frame->self[0], flame->unit, 9);
    }
    br_str_printf(out, "%*s", (int)indent, "");
    output_text(out, frame->name,
                flame->width > before + indent + 16 ? flame->width - before - indent : 16);
    br_str_putc(out, '\n');
}

struct output_level {
    struct output_frame *frames;
    size_t n_frames, next; /* `next`: index of the first frame that has not been printed yet */
};

static bool output_is_large(const struct output_flame *flame, const struct output_frame *frame)
{
    return (flame->whole[0] > 0 && frame->total[0] >= OUTPUT_SMALLEST * flame->whole[0]) ||
           (flame->whole[1] > 0 && frame->total[1] >= OUTPUT_SMALLEST * flame->whole[1]);
}

/* Returns true if the bar `frame` is a child of `above`, a bar of the previous level. */
static bool output_is_under(const struct output_frame *frame, const struct output_frame *above,
                            bool difference)
{
    return frame->at[0] < above->at[0] + above->total[0] ||
           (difference && frame->at[1] < above->at[1] + above->total[1]);
}

/* Prints the tree depth first. The bars of each level are in the order of their parents. */
static void output_levels(struct br_str *out, const struct output_flame *flame,
                          struct output_level *levels, size_t n_levels)
{
    size_t depth = 0, lines = 0;
    const struct output_frame *path[OUTPUT_DEPTH_MAX];
    while (lines < flame->lines) {
        struct output_level *level = &levels[depth];
        bool take = level->next < level->n_frames &&
                    (depth == 0 || output_is_under(&level->frames[level->next], path[depth - 1],
                                                   flame->difference));
        if (!take) {
            if (depth == 0)
                return;
            depth--;
            continue;
        }
        const struct output_frame *frame = &level->frames[level->next++];
        if (output_is_large(flame, frame)) {
            output_frame_line(out, flame, frame, (unsigned)depth);
            lines++;
        }
        path[depth] = frame;
        if (depth + 1 < n_levels)
            depth++;
    }
}

static bool output_tree(struct br_str *out, const struct output_flame *flame)
{
    size_t n_levels = json_array_size(flame->levels);
    struct output_level *levels = br_calloc(OUTPUT_DEPTH_MAX, sizeof *levels);
    size_t n_read = 0;
    bool good = levels != NULL;
    if (n_levels > OUTPUT_DEPTH_MAX)
        n_levels = OUTPUT_DEPTH_MAX;
    for (; n_read < n_levels && good; n_read++) {
        const json_t *level = json_array_get(flame->levels, n_read);
        levels[n_read].frames =
            br_calloc(json_array_size(level) + 1, sizeof levels[n_read].frames[0]);
        good = levels[n_read].frames != NULL;
        if (good)
            levels[n_read].n_frames = output_read_level(flame, level, levels[n_read].frames);
    }
    if (good && n_levels)
        output_levels(out, flame, levels, n_levels);
    for (size_t i = 0; i < n_read; i++)
        br_free(levels[i].frames);
    br_free(levels);
    return good;
}

static bool output_open_flame(struct output_flame *flame, const json_t *response)
{
    const json_t *bearer = json_object_get(response, "flamebearer");
    flame->names = json_object_get(bearer, "names");
    flame->levels = json_object_get(bearer, "levels");
    flame->unit = output_string(response, "unit");
    return json_is_array(flame->names) && json_is_array(flame->levels);
}

bool br_query_output_profile(struct br_str *out, const json_t *response, unsigned width,
                             size_t lines)
{
    struct output_flame flame = {.width = width, .lines = lines};
    if (!output_open_flame(&flame, response))
        return false;
    flame.whole[0] = output_number(json_object_get(response, "flamebearer"), "numTicks");
    if (flame.whole[0] <= 0) {
        const char *why = output_string(response, "why_empty");
        output_text(out, *why ? why : "no samples", 1000);
        br_str_putc(out, '\n');
        return true;
    }
    if (json_is_true(json_object_get(response, "average")))
        br_str_printf(out, "%s, averaged over the time range\n", output_string(response, "type"));
    else
        br_str_printf(out, "%s of %.0f samples\n", output_string(response, "type"),
                      output_number(response, "samples"));
    br_str_printf(out, "%6s  %9s  %9s  %s\n", "", "TOTAL", "SELF", "FUNCTION");
    return output_tree(out, &flame);
}

bool br_query_output_difference(struct br_str *out, const json_t *response, unsigned width,
                                size_t lines)
{
    struct output_flame flame = {.width = width, .lines = lines, .difference = true};
    if (!output_open_flame(&flame, response))
        return false;
    flame.whole[0] = output_number(json_object_get(response, "left"), "total");
    flame.whole[1] = output_number(json_object_get(response, "right"), "total");
    if (flame.whole[0] <= 0 || flame.whole[1] <= 0) {
        const char *empty = flame.whole[0] > 0 ? "the comparison" : "the baseline";
        bool both = flame.whole[0] <= 0 && flame.whole[1] <= 0;
        br_str_printf(out, "no samples in %s\n", both ? "either selection" : empty);
        return true;
    }
    br_str_printf(out, "%s, shares of the total\n%8s  %8s  %7s  %s\n",
                  output_string(response, "type"), "BASELINE", "NOW", "CHANGE", "FUNCTION");
    return output_tree(out, &flame);
}
