/* SPDX-License-Identifier: Apache-2.0 */
#include "app/query_command.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/decimal.h"
#include "base/mem.h"
#include "query/id.h"

#define QUERY_URL "http://localhost:3200"
#define QUERY_TIMEOUT_MS 60000
#define QUERY_WIDTH 100
#define QUERY_EXIT_USAGE 2
#define QUERY_PARAMETERS_MAX 24

const char br_query_command_help[] =
    "Shows spans, traces and flame graphs of a running Braid that stores data (exporter store,\n"
    "extension query).\n"
    "\n"
    "Usage: braid query COMMAND [OPTIONS]\n"
    "\n"
    "Commands:\n"
    "  spans                         list slow spans with the CPU time of each\n"
    "  trace TRACE                   show the spans of a trace as a waterfall\n"
    "  profile SELECTION             show the flame graph of the selected samples as a tree\n"
    "  top SELECTION                 list the functions with the largest values\n"
    "  diff --baseline SELECTOR --comparison SELECTOR    compare functions of two selections\n"
    "\n"
    "Selections:\n"
    "  --span TRACE/SPAN             samples of a span; ids are hex or base64\n"
    "  --scope self|subtree|trace    with --span: also those of child spans (subtree, the "
    "default),\n"
    "                                or of the whole trace\n"
    "  --trace TRACE                 samples of a trace\n"
    "  --query SELECTOR              samples of matching series: service{label=\"value\", ...}\n"
    "\n"
    "Options:\n"
    "  --url URL                     address of the query API (default $BRAID_URL or\n"
    "                                http://localhost:3200)\n"
    "                                $BRAID_AUTHORIZATION: credentials, such as \"Bearer TOKEN\"\n"
    "  --time-range D                the last D, such as 30m (default 1h); or use --start and "
    "--end\n"
    "  --service NAME, --name NAME, --min-duration D, --status error, --q TRACEQL\n"
    "                                spans: list only matching spans\n"
    "  --sort duration|start|cpu     spans: order of the list\n"
    "  --type ID                     profile type, such as process_cpu:cpu:nanoseconds\n"
    "  --limit N                     largest number of lines of the result; no limit for trace\n"
    "  --json                        print the response of the API\n"
    "  --pprof FILE                  profile: write the selected samples to FILE as pprof\n"
    "\n"
    "Examples:\n"
    "  braid query spans --service checkout --min-duration 500ms\n"
    "  braid query profile --span 5b8aa5a2d2c872e8321cf37308d69df2/051581bf3cb55c13\n"
    "  braid query diff --baseline 'shop{version=\"1\"}' --comparison 'shop{version=\"2\"}'\n";

enum query_verb { QUERY_SPANS, QUERY_TRACE, QUERY_PROFILE, QUERY_TOP, QUERY_DIFF };

struct query_parameter {
    const char *name, *value;
};

struct query_args {
    enum query_verb verb;
    char trace[33], span[17]; /* ids in hexadecimal; empty if not given */
    const char *url, *scope, *selector, *baseline, *comparison, *pprof;
    const char *authorization; /* value of the header Authorization; NULL: not sent */
    bool json;
    size_t lines; /* largest number of lines of a printed tree */
    struct query_parameter parameters[QUERY_PARAMETERS_MAX];
    size_t n_parameters;
};

static int query_usage_error(const char *problem, const char *arg)
{
    (void)fprintf(stderr, "braid query: %s%s%s; see braid query --help\n", problem, arg ? " " : "",
                  arg ? arg : "");
    return QUERY_EXIT_USAGE;
}

/* --- Arguments -------------------------------------------------------------------------------- */

static void query_set(struct query_args *args, const char *name, const char *value)
{
    for (size_t i = 0; i < args->n_parameters; i++) {
        if (strcmp(args->parameters[i].name, name) == 0) {
            args->parameters[i].value = value;
            return;
        }
    }
    if (args->n_parameters < QUERY_PARAMETERS_MAX)
        args->parameters[args->n_parameters++] = (struct query_parameter){name, value};
}

static void query_write_id(char *ret, const uint8_t *id, size_t size)
{
    struct br_str hex = {.data = ret, .cap = 2 * size + 1, .fixed = true};
    br_str_hex(&hex, id, size);
}

static bool query_read_trace(struct query_args *args, const char *text, size_t len)
{
    uint8_t id[16];
    if (!br_id_parse(text, len, id, sizeof id))
        return false;
    query_write_id(args->trace, id, sizeof id);
    args->span[0] = 0;
    return true;
}

static bool query_read_span(struct query_args *args, const char *text)
{
    uint8_t id[8];
    if (!br_id_parse(text, strlen(text), id, sizeof id))
        return false;
    query_write_id(args->span, id, sizeof id);
    return true;
}

/* Reads an argument TRACE or TRACE/SPAN. Base64 ids may contain slashes, so each slash is tried
 * as the separator. */
static bool query_read_ids(struct query_args *args, const char *text)
{
    if (query_read_trace(args, text, strlen(text)))
        return true;
    for (const char *slash = strchr(text, '/'); slash; slash = strchr(slash + 1, '/'))
        if (query_read_trace(args, text, (size_t)(slash - text)) &&
            query_read_span(args, slash + 1))
            return true;
    return false;
}

/* Command-line options that are sent as parameters of the API. `value` is the name of the
 * parameter. */
static const struct query_parameter query_parameters[] = {
    {"--service", "service"}, {"--name", "name"},   {"--min-duration", "min_duration"},
    {"--status", "status"},   {"--q", "q"},         {"--sort", "sort"},
    {"--type", "type"},       {"--limit", "limit"}, {"--start", "start"},
    {"--end", "end"},
};

static const char *query_parameter_name(const char *option)
{
    for (size_t i = 0; i < BR_COUNT(query_parameters); i++)
        if (strcmp(query_parameters[i].name, option) == 0)
            return query_parameters[i].value;
    return NULL;
}

/* Reads an option with a value. Returns false if the option is unknown. */
static bool query_read_valued(struct query_args *args, const char *option, const char *value,
                              char *start, size_t start_size)
{
    const char *parameter = query_parameter_name(option);
    if (parameter)
        query_set(args, parameter, value);
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
        query_set(args, "start", start);
    } else
        return false;
    return true;
}

static int query_read_option(struct query_args *args, int argc, char **argv, int *index,
                             char *start, size_t start_size)
{
    const char *option = argv[*index];
    if (strcmp(option, "--json") == 0) {
        args->json = true;
        return 0;
    }
    if (*index + 1 == argc)
        return query_usage_error("unknown or incomplete argument", option);
    const char *value = argv[++*index];
    bool ids = strcmp(option, "--span") == 0 || strcmp(option, "--trace") == 0;
    size_t len = strlen(value);
    if (strcmp(option, "--time-range") == 0 && len && value[len - 1] >= '0' &&
        value[len - 1] <= '9')
        return query_usage_error("--time-range requires a duration with a unit, such as 30m, got",
                                 value);
    if (ids && !query_read_ids(args, value))
        return query_usage_error("an id must be TRACE or TRACE/SPAN in hex or base64, got", value);
    if (!ids && !query_read_valued(args, option, value, start, start_size))
        return query_usage_error("unknown argument", option);
    return 0;
}

/* Reads --limit as the largest number of lines of a printed tree. This command limits the lines of
 * trees, whereas the server limits the rows of other responses. */
static bool query_read_lines(struct query_args *args)
{
    args->lines = SIZE_MAX;
    for (size_t i = 0; i < args->n_parameters; i++) {
        const char *digits = args->parameters[i].value;
        uint64_t lines;
        if (strcmp(args->parameters[i].name, "limit") != 0)
            continue;
        if (!br_decimal_parse(digits, strlen(digits), INT64_MAX, &lines) || lines < 1)
            return false;
        args->lines = (size_t)lines;
    }
    return true;
}

static int query_check_args(struct query_args *args)
{
    if (args->verb == QUERY_TRACE && !args->trace[0])
        return query_usage_error("trace requires the id of a trace", NULL);
    if ((args->verb == QUERY_PROFILE || args->verb == QUERY_TOP) && !args->trace[0] &&
        !args->selector)
        return query_usage_error("a selection is required: --span, --trace or --query", NULL);
    if (args->verb == QUERY_DIFF && (!args->baseline || !args->comparison))
        return query_usage_error("diff requires --baseline and --comparison", NULL);
    if (!query_read_lines(args))
        return query_usage_error("--limit requires a number of lines, at least 1", NULL);
    if (args->pprof && args->verb != QUERY_PROFILE)
        return query_usage_error("--pprof is only for profile", NULL);
    return 0;
}

static int query_read(struct query_args *args, int argc, char **argv, char *start,
                      size_t start_size)
{
    static const char *const verbs[] = {"spans", "trace", "profile", "top", "diff"};
    size_t verb = 0;
    while (argc > 0 && verb < BR_COUNT(verbs) && strcmp(argv[0], verbs[verb]) != 0)
        verb++;
    if (argc == 0 || verb == BR_COUNT(verbs))
        return query_usage_error(argc ? "unknown command"
                                      : "a command is required: spans, trace, profile, top or diff",
                                 argc ? argv[0] : NULL);
    args->verb = (enum query_verb)verb;
    for (int i = 1; i < argc; i++) {
        int code = 0;
        if (argv[i][0] != '-' && args->verb == QUERY_TRACE && !args->trace[0]) {
            if (!query_read_ids(args, argv[i]))
                return query_usage_error("an id must be hex or base64, got", argv[i]);
        } else {
            code = query_read_option(args, argc, argv, &i, start, start_size);
        }
        if (code)
            return code;
    }
    return query_check_args(args);
}

/* --- The request ----------------------------------------------------------------------------- */

/* Appends percent-encoded text. Encodes all characters except the unreserved characters of RFC
 * 3986. */
static void query_put_encoded(struct br_str *out, const char *text)
{
    static const char unreserved[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (strchr(unreserved, c))
            br_str_putc(out, (char)c);
        else
            br_str_printf(out, "%%%02X", c);
    }
}

static void query_put_parameter(struct br_str *out, const char *name, const char *value)
{
    br_str_putc(out, strchr(out->data, '?') ? '&' : '?');
    br_str_puts(out, name);
    br_str_putc(out, '=');
    query_put_encoded(out, value);
}

/* Appends one selection of a comparison as the parameter `name`. The value of the parameter is an
 * encoded query string. */
static void query_put_compared(struct br_str *out, const char *name, const char *selector)
{
    struct br_str inner = {0};
    br_str_puts(&inner, "query=");
    query_put_encoded(&inner, selector);
    query_put_parameter(out, name, inner.data ? inner.data : "");
    if (inner.failed)
        out->failed = true;
    br_str_release(&inner);
}

static void query_put_selection(struct br_str *out, const struct query_args *args)
{
    if (args->selector) {
        query_put_parameter(out, "query", args->selector);
        return;
    }
    query_put_parameter(out, "trace", args->trace);
    if (args->span[0])
        query_put_parameter(out, "span", args->span);
    const char *scope = args->span[0] ? "subtree" : "trace";
    query_put_parameter(out, "scope", args->scope ? args->scope : scope);
}

static void query_put_path(struct br_str *out, const struct query_args *args)
{
    static const char *const paths[] = {"spans", "traces/", "profile", "top", "diff"};
    br_str_puts(out, "/api/braid/");
    br_str_puts(out, paths[args->verb]);
    if (args->verb == QUERY_TRACE)
        br_str_puts(out, args->trace);
    if (args->verb == QUERY_PROFILE || args->verb == QUERY_TOP)
        query_put_selection(out, args);
    if (args->verb == QUERY_DIFF) {
        query_put_compared(out, "left", args->baseline);
        query_put_compared(out, "right", args->comparison);
    }
    for (size_t i = 0; i < args->n_parameters; i++)
        query_put_parameter(out, args->parameters[i].name, args->parameters[i].value);
    if (args->pprof)
        query_put_parameter(out, "format", "pprof");
}

/* --- The response ---------------------------------------------------------------------------- */

static unsigned query_width(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 60)
        return QUERY_WIDTH;
    return size.ws_col;
}

static bool query_put_response(struct br_str *out, const struct query_args *args,
                               const json_t *response)
{
    unsigned width = query_width();
    switch (args->verb) {
    case QUERY_SPANS:
        return br_query_output_spans(out, response);
    case QUERY_TRACE:
        return br_query_output_trace(out, response);
    case QUERY_PROFILE:
        return br_query_output_profile(out, response, width, args->lines);
    case QUERY_TOP:
        return br_query_output_top(out, response);
    case QUERY_DIFF:
        break;
    }
    return br_query_output_difference(out, response, width, args->lines);
}

static int query_print(const struct query_args *args, const struct br_fetched *fetched)
{
    struct br_str out = {0};
    json_t *response = json_loadb((const char *)fetched->data, fetched->len, 0, NULL);
    bool good = response && query_put_response(&out, args, response) && !out.failed;
    const char *cut = response ? json_string_value(json_object_get(response, "cut")) : NULL;
    if (good && out.data)
        good = fwrite(out.data, 1, out.len, stdout) == out.len && fflush(stdout) == 0;
    else if (!good)
        (void)fprintf(
            stderr,
            "braid query: the response has an unknown structure; is the server another version?\n");
    if (good && cut)
        (void)fprintf(stderr, "the result is incomplete: %s\n", cut);
    json_decref(response);
    br_str_release(&out);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int query_write_file(const char *path, const struct br_fetched *fetched)
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

/* Prints the error in a response. The body of the response is {"error": "..."} or plain text. */
static int query_print_error(const struct br_fetched *fetched)
{
    json_t *response = json_loadb((const char *)fetched->data, fetched->len, 0, NULL);
    const char *why = json_string_value(json_object_get(response, "error"));
    (void)fprintf(stderr, "braid query: %u: %.400s\n", fetched->status,
                  why ? why : (const char *)fetched->data);
    json_decref(response);
    return EXIT_FAILURE;
}

static int query_print_response(const struct query_args *args, const struct br_fetched *fetched)
{
    if (fetched->status != 200)
        return query_print_error(fetched);
    if (args->pprof)
        return query_write_file(args->pprof, fetched);
    if (!args->json)
        return query_print(args, fetched);
    bool good = fwrite(fetched->data, 1, fetched->len, stdout) == fetched->len &&
                fputc('\n', stdout) != EOF && fflush(stdout) == 0;
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int query_run(const struct query_args *args)
{
    struct br_str path = {0};
    struct br_fetched fetched = {0};
    struct br_err err = {0};
    char line[1200];
    int code = EXIT_FAILURE;
    query_put_path(&path, args);
    if (path.failed)
        (void)fprintf(stderr, "braid query: the selection is too long\n");
    else if (br_fetch(args->url, path.data, args->authorization, QUERY_TIMEOUT_MS, &fetched,
                      &err) == 0)
        code = query_print_response(args, &fetched);
    else
        (void)fprintf(stderr,
                      "braid query: %s\n  (is a Braid with the query extension running there? "
                      "\"braid\" starts one, --url selects another)\n",
                      br_err_format(&err, line, sizeof line));
    br_fetched_release(&fetched);
    br_str_release(&path);
    return code;
}

int br_query_command_run(int argc, char **argv)
{
    const char *url = getenv("BRAID_URL");
    const char *authorization = getenv("BRAID_AUTHORIZATION");
    struct query_args args = {.url = url && *url ? url : QUERY_URL,
                              .authorization =
                                  authorization && *authorization ? authorization : NULL};
    char start[64];
    int code = query_read(&args, argc, argv, start, sizeof start);
    return code ? code : query_run(&args);
}
