/* SPDX-License-Identifier: Apache-2.0 */
#include "app/ask.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "app/fetch.h"
#include "base/mem.h"
#include "query/id.h"

#define ASK_URL "http://localhost:3200"
#define ASK_TIMEOUT_MS 60000
#define ASK_WIDTH 100
#define ASK_MISUSE 2
#define ASK_PARAMETERS_MAX 24

const char br_ask_help[] =
    "Usage: braid query COMMAND [OPTIONS]        asks a running Braid that keeps data (exporter "
    "store)\n"
    "\n"
    "Commands:\n"
    "  spans                         slow spans with the CPU time of each\n"
    "  trace TRACE                   the spans of a trace as a waterfall\n"
    "  profile SELECTION             the flame graph of a selection, as a tree\n"
    "  top SELECTION                 the functions that took most\n"
    "  diff --baseline SELECTOR --comparison SELECTOR    what grew and what shrank\n"
    "\n"
    "Selections:\n"
    "  --span TRACE/SPAN [--scope self|subtree|trace]    samples of a span (default: subtree)\n"
    "  --trace TRACE                                     samples of a trace\n"
    "                                (ids in hex or base64)\n"
    "  --query SELECTOR              samples of series: service{label=\"value\", ...}\n"
    "\n"
    "Options:\n"
    "  --url URL                     of the query API (default http://localhost:3200, or "
    "BRAID_URL)\n"
    "  --time-range D                the last so long (default 1h); or --start and --end\n"
    "  --service NAME, --name NAME, --min-duration D, --status error, --q TRACEQL,\n"
    "  --sort duration|start|cpu     of spans\n"
    "  --type ID                     profile type, as process_cpu:cpu:nanoseconds\n"
    "  --limit N                     lines, but for trace\n"
    "  --json                        the API's answer as it is\n"
    "  --pprof FILE                  of profile: writes the selection as pprof\n"
    "\n"
    "Examples:\n"
    "  braid query spans --service checkout --min-duration 500ms\n"
    "  braid query profile --span 5b8aa5a2d2c872e8321cf37308d69df2/051581bf3cb55c13\n"
    "  braid query diff --baseline 'shop{version=\"1\"}' --comparison 'shop{version=\"2\"}'\n";

enum ask_verb { ASK_SPANS, ASK_TRACE, ASK_PROFILE, ASK_TOP, ASK_DIFF };

struct ask_parameter {
    const char *name, *value;
};

struct ask_args {
    enum ask_verb verb;
    char trace[33], span[17]; /* hex; empty: none */
    const char *url, *scope, *selector, *baseline, *comparison, *pprof;
    bool json;
    size_t lines; /* of a tree */
    struct ask_parameter parameters[ASK_PARAMETERS_MAX];
    size_t n_parameters;
};

static int ask_misuse(const char *what, const char *arg)
{
    (void)fprintf(stderr, "braid query: %s%s%s; see braid query --help\n", what, arg ? " " : "",
                  arg ? arg : "");
    return ASK_MISUSE;
}

/* --- Arguments -------------------------------------------------------------------------------- */

static void ask_set(struct ask_args *args, const char *name, const char *value)
{
    for (size_t i = 0; i < args->n_parameters; i++) {
        if (strcmp(args->parameters[i].name, name) == 0) {
            args->parameters[i].value = value;
            return;
        }
    }
    if (args->n_parameters < ASK_PARAMETERS_MAX)
        args->parameters[args->n_parameters++] = (struct ask_parameter){name, value};
}

static void ask_write_id(char *ret, const uint8_t *id, size_t size)
{
    struct br_str hex = {.data = ret, .cap = 2 * size + 1, .fixed = true};
    br_str_hex(&hex, id, size);
}

static bool ask_read_trace(struct ask_args *args, const char *text, size_t len)
{
    uint8_t id[16];
    if (!br_id_parse(text, len, id, sizeof id))
        return false;
    ask_write_id(args->trace, id, sizeof id);
    args->span[0] = 0;
    return true;
}

static bool ask_read_span(struct ask_args *args, const char *text)
{
    uint8_t id[8];
    if (!br_id_parse(text, strlen(text), id, sizeof id))
        return false;
    ask_write_id(args->span, id, sizeof id);
    return true;
}

/* TRACE or TRACE/SPAN; base64 has slashes, too. */
static bool ask_read_ids(struct ask_args *args, const char *text)
{
    if (ask_read_trace(args, text, strlen(text)))
        return true;
    for (const char *slash = strchr(text, '/'); slash; slash = strchr(slash + 1, '/'))
        if (ask_read_trace(args, text, (size_t)(slash - text)) && ask_read_span(args, slash + 1))
            return true;
    return false;
}

/* Options that are parameters of the API under another name, or their own. */
static const struct ask_parameter ask_passed[] = {
    {"--service", "service"}, {"--name", "name"},   {"--min-duration", "min_duration"},
    {"--status", "status"},   {"--q", "q"},         {"--sort", "sort"},
    {"--type", "type"},       {"--limit", "limit"}, {"--start", "start"},
    {"--end", "end"},
};

static const char *ask_passed_name(const char *option)
{
    for (size_t i = 0; i < BR_COUNT(ask_passed); i++)
        if (strcmp(ask_passed[i].name, option) == 0)
            return ask_passed[i].value;
    return NULL;
}

/* Reads an option with a value. False when there is none of that name. */
static bool ask_read_valued(struct ask_args *args, const char *option, const char *value,
                            char *start, size_t start_size)
{
    const char *parameter = ask_passed_name(option);
    if (parameter)
        ask_set(args, parameter, value);
    else if (strcmp(option, "--url") == 0)
        args->url = value;
    else if (strcmp(option, "--scope") == 0)
        args->scope = value;
    else if (strcmp(option, "--query") == 0)
        args->selector = value;
    else if (strcmp(option, "--baseline") == 0)
        args->baseline = value;
    else if (strcmp(option, "--comparison") == 0)
        args->comparison = value;
    else if (strcmp(option, "--pprof") == 0)
        args->pprof = value;
    else if (strcmp(option, "--time-range") == 0) {
        (void)snprintf(start, start_size, "now-%s", value);
        ask_set(args, "start", start);
    } else
        return false;
    return true;
}

static int ask_read_option(struct ask_args *args, int argc, char **argv, int *index, char *start,
                           size_t start_size)
{
    const char *option = argv[*index];
    if (strcmp(option, "--json") == 0) {
        args->json = true;
        return 0;
    }
    if (*index + 1 == argc)
        return ask_misuse("unknown or incomplete argument", option);
    const char *value = argv[++*index];
    bool ids = strcmp(option, "--span") == 0 || strcmp(option, "--trace") == 0;
    size_t len = strlen(value);
    if (strcmp(option, "--time-range") == 0 && len && value[len - 1] >= '0' &&
        value[len - 1] <= '9')
        return ask_misuse("--time-range wants a duration with its unit, such as 30m, not", value);
    if (ids && !ask_read_ids(args, value))
        return ask_misuse("ids are hex or base64, TRACE or TRACE/SPAN, not", value);
    if (!ids && !ask_read_valued(args, option, value, start, start_size))
        return ask_misuse("unknown argument", option);
    return 0;
}

/* The lines of trees are counted here, other rows by the server. */
static bool ask_read_lines(struct ask_args *args)
{
    args->lines = SIZE_MAX;
    for (size_t i = 0; i < args->n_parameters; i++) {
        const char *digits = args->parameters[i].value;
        int64_t lines;
        if (strcmp(args->parameters[i].name, "limit") != 0)
            continue;
        if (!br_parse_int(digits, 10, false, &lines) || lines < 1)
            return false;
        args->lines = (size_t)lines;
    }
    return true;
}

static int ask_check(struct ask_args *args)
{
    if (args->verb == ASK_TRACE && !args->trace[0])
        return ask_misuse("trace wants the id of a trace", NULL);
    if ((args->verb == ASK_PROFILE || args->verb == ASK_TOP) && !args->trace[0] && !args->selector)
        return ask_misuse("a selection is wanted: --span, --trace or --query", NULL);
    if (args->verb == ASK_DIFF && (!args->baseline || !args->comparison))
        return ask_misuse("diff wants --baseline and --comparison", NULL);
    if (!ask_read_lines(args))
        return ask_misuse("--limit wants a number of lines, from 1 on", NULL);
    if (args->pprof && args->verb != ASK_PROFILE)
        return ask_misuse("--pprof belongs to profile", NULL);
    return 0;
}

static int ask_read(struct ask_args *args, int argc, char **argv, char *start, size_t start_size)
{
    static const char *const verbs[] = {"spans", "trace", "profile", "top", "diff"};
    size_t verb = 0;
    while (argc > 0 && verb < BR_COUNT(verbs) && strcmp(argv[0], verbs[verb]) != 0)
        verb++;
    if (argc == 0 || verb == BR_COUNT(verbs))
        return ask_misuse(argc ? "unknown command"
                               : "a command is wanted: spans, trace, profile, "
                                 "top or diff",
                          argc ? argv[0] : NULL);
    args->verb = (enum ask_verb)verb;
    for (int i = 1; i < argc; i++) {
        int code = 0;
        if (argv[i][0] != '-' && args->verb == ASK_TRACE && !args->trace[0]) {
            if (!ask_read_ids(args, argv[i]))
                return ask_misuse("an id is hex or base64, not", argv[i]);
        } else {
            code = ask_read_option(args, argc, argv, &i, start, start_size);
        }
        if (code)
            return code;
    }
    return ask_check(args);
}

/* --- The request ----------------------------------------------------------------------------- */

/* RFC 3986: all but the unreserved characters. */
static void ask_put_encoded(struct br_str *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("-._~", c) != NULL;
        if (plain)
            br_str_putc(out, (char)c);
        else
            br_str_printf(out, "%%%02X", c);
    }
}

static void ask_put_parameter(struct br_str *out, const char *name, const char *value)
{
    br_str_putc(out, strchr(out->data, '?') ? '&' : '?');
    br_str_puts(out, name);
    br_str_putc(out, '=');
    ask_put_encoded(out, value);
}

/* One side of a difference is a query string of its own, inside a parameter. */
static void ask_put_side(struct br_str *out, const char *name, const char *selector)
{
    struct br_str inner = {0};
    br_str_puts(&inner, "query=");
    ask_put_encoded(&inner, selector);
    ask_put_parameter(out, name, inner.data ? inner.data : "");
    if (inner.failed)
        out->failed = true;
    br_str_release(&inner);
}

static void ask_put_selection(struct br_str *out, const struct ask_args *args)
{
    if (args->selector) {
        ask_put_parameter(out, "query", args->selector);
        return;
    }
    ask_put_parameter(out, "trace", args->trace);
    if (args->span[0])
        ask_put_parameter(out, "span", args->span);
    ask_put_parameter(out, "scope",
                      args->scope     ? args->scope
                      : args->span[0] ? "subtree"
                                      : "trace");
}

static void ask_put_path(struct br_str *out, const struct ask_args *args)
{
    static const char *const paths[] = {"spans", "traces/", "profile", "top", "diff"};
    br_str_puts(out, "/api/braid/");
    br_str_puts(out, paths[args->verb]);
    if (args->verb == ASK_TRACE)
        br_str_puts(out, args->trace);
    if (args->verb == ASK_PROFILE || args->verb == ASK_TOP)
        ask_put_selection(out, args);
    if (args->verb == ASK_DIFF) {
        ask_put_side(out, "left", args->baseline);
        ask_put_side(out, "right", args->comparison);
    }
    for (size_t i = 0; i < args->n_parameters; i++)
        ask_put_parameter(out, args->parameters[i].name, args->parameters[i].value);
    if (args->pprof)
        ask_put_parameter(out, "format", "pprof");
}

/* --- The answer ------------------------------------------------------------------------------ */

static unsigned ask_width(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 60)
        return ASK_WIDTH;
    return size.ws_col;
}

static bool ask_put_answer(struct br_str *out, const struct ask_args *args, const json_t *answer)
{
    unsigned width = ask_width();
    switch (args->verb) {
    case ASK_SPANS:
        return br_ask_put_spans(out, answer);
    case ASK_TRACE:
        return br_ask_put_trace(out, answer);
    case ASK_PROFILE:
        return br_ask_put_profile(out, answer, width, args->lines);
    case ASK_TOP:
        return br_ask_put_top(out, answer);
    case ASK_DIFF:
        break;
    }
    return br_ask_put_difference(out, answer, width, args->lines);
}

static int ask_print(const struct ask_args *args, const struct br_fetched *fetched)
{
    struct br_str out = {0};
    json_t *answer = json_loadb((const char *)fetched->data, fetched->len, 0, NULL);
    bool good = answer && ask_put_answer(&out, args, answer) && !out.failed;
    const char *cut = answer ? json_string_value(json_object_get(answer, "cut")) : NULL;
    if (good && out.data)
        good = fwrite(out.data, 1, out.len, stdout) == out.len && fflush(stdout) == 0;
    else if (!good)
        (void)fprintf(stderr, "braid query: the answer is not what this version understands\n");
    if (good && cut)
        (void)fprintf(stderr, "this is not all: %s\n", cut);
    json_decref(answer);
    br_str_release(&out);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int ask_write_file(const char *path, const struct br_fetched *fetched)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    bool good = file && fwrite(fetched->data, 1, fetched->len, file) == fetched->len;
    if (file && fclose(file) != 0)
        good = false;
    if (!good)
        (void)fprintf(stderr, "braid query: %s cannot be written\n", path);
    else
        (void)fprintf(stderr, "%zu bytes in %s\n", fetched->len, path);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* What the server says is wrong: {"error": "..."}, or text. */
static int ask_refused(const struct br_fetched *fetched)
{
    json_t *answer = json_loadb((const char *)fetched->data, fetched->len, 0, NULL);
    const char *why = json_string_value(json_object_get(answer, "error"));
    (void)fprintf(stderr, "braid query: %u: %.400s\n", fetched->status,
                  why ? why : (const char *)fetched->data);
    json_decref(answer);
    return EXIT_FAILURE;
}

static int ask_use(const struct ask_args *args, const struct br_fetched *fetched)
{
    if (fetched->status != 200)
        return ask_refused(fetched);
    if (args->pprof)
        return ask_write_file(args->pprof, fetched);
    if (!args->json)
        return ask_print(args, fetched);
    bool good = fwrite(fetched->data, 1, fetched->len, stdout) == fetched->len &&
                fputc('\n', stdout) != EOF && fflush(stdout) == 0;
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int ask_ask(const struct ask_args *args)
{
    struct br_str path = {0};
    struct br_fetched fetched = {0};
    struct br_err err = {0};
    char line[1200];
    int code = EXIT_FAILURE;
    ask_put_path(&path, args);
    if (path.failed)
        (void)fprintf(stderr, "braid query: the selection is too long\n");
    else if (br_fetch(args->url, path.data, ASK_TIMEOUT_MS, &fetched, &err) == 0)
        code = ask_use(args, &fetched);
    else
        (void)fprintf(stderr,
                      "braid query: %s\n  (is a Braid with the extension query there? "
                      "`braid` starts one; --url names another)\n",
                      br_err_format(&err, line, sizeof line));
    br_fetched_release(&fetched);
    br_str_release(&path);
    return code;
}

int br_ask_main(int argc, char **argv)
{
    const char *url = getenv("BRAID_URL");
    struct ask_args args = {.url = url && *url ? url : ASK_URL};
    char start[64];
    int code = ask_read(&args, argc, argv, start, sizeof start);
    return code ? code : ask_ask(&args);
}
