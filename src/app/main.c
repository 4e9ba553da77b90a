/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "app/commands.h"
#include "app/config.h"
#include "app/migrate.h"
#include "app/query_command.h"
#include "app/service.h"
#include "base/mem.h"
#include "commit.h"
#include "config/parts.h"

#define URIS_MAX 100
#define EXIT_USAGE 2
/* longest wait, in ms, for the log to be written before the process ends */
#define LOG_WAIT_MS 2000

static const char help[] =
    "Braid is a pipeline server for traces and profiles. It links each profile sample to its\n"
    "span.\n"
    "\n"
    "Usage:\n"
    "  braid                                run with the built-in configuration: receive traces\n"
    "                                       and profiles on their standard ports, keep the last\n"
    "                                       day, and show it at http://localhost:3200; forward to\n"
    "                                       $TEMPO_ENDPOINT and $PYROSCOPE_ENDPOINT if set\n"
    "  braid run --config URI ...           run with a configuration; \"run\" can be omitted\n"
    "  braid validate --config URI ...      check a configuration, including certificates, ports\n"
    "                                       and files; print errors and exit with 1 if any\n"
    "  braid print-config --config URI ...  print the merged and expanded configuration, with\n"
    "                                       secrets replaced by [REDACTED]\n"
    "  braid components [--json]            list the components in this build\n"
    "  braid migrate FILE [--rest REST]     convert a configuration of the OpenTelemetry\n"
    "                                       Collector and print the result; write unsupported\n"
    "                                       parts to REST, for a Collector next to Braid\n"
    "  braid query COMMAND ...              show spans, traces and flame graphs of a running\n"
    "                                       Braid; see braid query --help\n"
    "  braid save FILE                      write stored data to a file; see braid save --help\n"
    "  braid open FILE                      show a saved file at http://localhost:3200\n"
    "  braid --version                      print the version and the commit\n"
    "  braid --help                         print this help\n"
    "\n"
    "Options:\n"
    "  Configuration (run, validate, print-config):\n"
    "    --config URI           a path, file:PATH, env:NAME or yaml:TEXT; can be repeated, and\n"
    "                           later configurations override earlier ones\n"
    "    --set KEY=VALUE        override a setting: receivers.otlp.protocols.grpc.endpoint=:4317\n"
    "    --defaults             print-config: print every setting of the components in use\n"
    "    --feature-gates LIST   accepted for compatibility with the Collector and ignored\n"
    "\n"
    "  Configurations of the OpenTelemetry Collector:\n"
    "    --skip-unsupported     run, validate: use a Collector configuration without its\n"
    "                           unsupported parts, and print a warning for each of them\n"
    "    --accept-loss          with --skip-unsupported, or migrate without --rest: also remove\n"
    "                           parts that drop, hide or protect data, such as samplers, filters\n"
    "                           and authentication; by default they are errors\n"
    "    --rest REST            migrate: the new file for the unsupported parts\n"
    "\n"
    "  Other:\n"
    "    --shutdown-timeout D   run: time to deliver queued data after SIGTERM or SIGINT\n"
    "                           (default 30s)\n"
    "    --watch-config         run: reload the configuration when its files change\n"
    "    --core-dumps           run: permit core dumps and debuggers, which can read secrets\n"
    "    --json                 components: print JSON, with every option\n"
    "\n"
    "Examples:\n"
    "  braid --config config/examples/quickstart.yaml\n"
    "  braid --config base.yaml --config site.yaml --set exporters.otlp.endpoint=tempo:4317\n"
    "  braid validate --config gateway.yaml && systemctl restart braid\n"
    "  braid migrate collector.yaml --rest metrics.yaml > braid.yaml\n"
    "  braid --config 'yaml:receivers::otlp::protocols::grpc:' --config rest.yaml\n";

enum command { RUN, VALIDATE, PRINT_CONFIG, COMPONENTS, MIGRATE, OPEN };

struct arguments {
    enum command command;
    const char *uris[URIS_MAX], *sets[URIS_MAX];
    struct br_config_sources sources;
    uint64_t shutdown_timeout_ms;
    /* `file`: argument of the commands migrate and open; `rest`: value of --rest */
    const char *file, *rest;
    bool json, core_dumps, defaults, watch_config;
    bool quickstart; /* the command line has no --config */
};

static int main_usage(const char *problem, const char *arg)
{
    (void)fprintf(stderr, "braid: %s%s%s; see braid --help\n", problem, arg ? " " : "",
                  arg ? arg : "");
    return EXIT_USAGE;
}

static void main_warn_gates(const char *list)
{
    static const char known[] = "service.profilesSupport";
    char copy[1024];
    (void)snprintf(copy, sizeof copy, "%s", list);
    char *rest = copy;
    for (char *gate; (gate = strsep(&rest, ","));) {
        const char *name = gate + (*gate == '+' || *gate == '-');
        if (*name && strcmp(name, known) != 0)
            (void)fprintf(stderr, "warning: --feature-gates: unknown gate \"%s\" is ignored\n",
                          name);
    }
}

/* Returns the value of the option `name`, from "--name=value" or from the next argument. Returns
 * NULL if the current argument is another option. */
static const char *main_value_of(const char *name, char **argv, int *index)
{
    const char *arg = argv[*index];
    size_t n = strlen(name);
    if (strncmp(arg, name, n) != 0)
        return NULL;
    if (arg[n] == '=')
        return arg + n + 1;
    if (arg[n] == '\0' && argv[*index + 1])
        return argv[++*index];
    return NULL;
}

/* Reads one option. Returns 0, or the exit code for an invalid argument. */
static int main_read_option(struct arguments *args, char **argv, int *index)
{
    const char *arg = argv[*index], *value;
    if ((value = main_value_of("--config", argv, index))) {
        if (args->sources.n_uris == URIS_MAX)
            return main_usage("more than 100 --config options, at", value);
        args->uris[args->sources.n_uris++] = value;
    } else if ((value = main_value_of("--set", argv, index))) {
        if (args->sources.n_sets == URIS_MAX)
            return main_usage("more than 100 --set options, at", value);
        args->sets[args->sources.n_sets++] = value;
    } else if ((value = main_value_of("--shutdown-timeout", argv, index))) {
        uint64_t ns;
        if (!br_duration_parse(value, &ns))
            return main_usage("--shutdown-timeout must be a duration such as 30s, got", value);
        args->shutdown_timeout_ms = ns / 1000000;
    } else if ((value = main_value_of("--feature-gates", argv, index))) {
        main_warn_gates(value);
    } else if (args->command == MIGRATE && (value = main_value_of("--rest", argv, index))) {
        args->rest = value;
    } else if ((args->command == MIGRATE || args->command == OPEN) && arg[0] != '-' &&
               !args->file) {
        args->file = arg;
    } else if (strcmp(arg, "--skip-unsupported") == 0) {
        args->sources.skip_unsupported = true;
    } else if (strcmp(arg, "--accept-loss") == 0) {
        args->sources.accept_loss = true;
    } else if (strcmp(arg, "--core-dumps") == 0) {
        args->core_dumps = true;
    } else if (strcmp(arg, "--watch-config") == 0 && args->command == RUN) {
        args->watch_config = true;
    } else if (strcmp(arg, "--defaults") == 0 && args->command == PRINT_CONFIG) {
        args->defaults = true;
    } else if (strcmp(arg, "--json") == 0 && args->command == COMPONENTS) {
        args->json = true;
    } else {
        return main_usage("unknown or incomplete argument", arg);
    }
    return 0;
}

static void main_print_errors(const struct br_errs *errs)
{
    char line[1200];
    for (size_t i = 0; i < errs->n_warnings; i++)
        (void)fprintf(stderr, "warning: %s\n",
                      br_err_format(&errs->warnings[i], line, sizeof line));
    if (errs->more_warnings)
        (void)fprintf(stderr, "warning: further warnings are omitted; the first %d are shown\n",
                      BR_WARNINGS_MAX);
    for (size_t i = 0; i < errs->n_errors; i++)
        (void)fprintf(stderr, "%s\n", br_err_format(&errs->errors[i], line, sizeof line));
    if (errs->more)
        (void)fprintf(stderr, "further errors are omitted; the first %d are shown\n", BR_ERRS_MAX);
}

static int main_list_components(bool json)
{
    struct br_str out = {0};
    if (json)
        br_components_json(&out, br_components);
    else
        br_components_table(&out, br_components);
    bool good = !out.failed && fputs(out.data, stdout) >= 0 && fflush(stdout) == 0;
    br_str_release(&out);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int main_print_config(const struct br_config_sources *sources)
{
    struct br_arena arena;
    struct br_errs errs = {0};
    struct br_yaml *tree = NULL;
    struct br_str out = {0};
    br_arena_init(&arena, 64u << 20);
    int rc = br_config_merge(sources, &arena, &tree, &errs);
    if (!rc)
        rc = br_config_print(tree, br_components, &out);
    main_print_errors(&errs);
    if (!rc && out.data)
        (void)fputs(out.data, stdout);
    br_str_release(&out);
    br_errs_release(&errs);
    br_arena_release(&arena);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int main_print_effective(const struct br_config_sources *sources)
{
    struct br_errs errs = {0};
    struct br_config *config = NULL;
    struct br_str out = {0};
    int rc = br_config_load(sources, br_components, &config, &errs);
    if (!rc && br_config_print_effective(config, br_components, &out))
        rc = br_errs_no_memory(&errs);
    main_print_errors(&errs);
    if (!rc && (fputs(out.data, stdout) < 0 || fflush(stdout) != 0))
        rc = BR_EIO;
    br_str_release(&out);
    br_errs_release(&errs);
    br_config_free(config);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Writes the configuration for the Collector. Only the owner of the file can read it, because the
 * configuration may contain secrets. */
static int main_write_rest(const char *path, const struct br_str *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    bool good = f && fwrite(text->data, 1, text->len, f) == text->len;
    int why = errno;
    if (f && fclose(f) != 0 && good) {
        why = errno;
        good = false;
    }
    if (!good)
        (void)fprintf(stderr, "braid: %s cannot be written: %s\n", path, strerror(why));
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int main_migrate(const struct arguments *args)
{
    struct br_errs errs = {0};
    struct br_migration result = {0};
    int code = EXIT_FAILURE;
    if (!args->file)
        return main_usage("migrate requires the path of a Collector configuration", NULL);
    int rc = br_config_migrate(args->file, &args->sources, br_components, args->rest != NULL,
                               &result, &errs);
    main_print_errors(&errs);
    if (rc == 0)
        code = args->rest && result.rest.len ? main_write_rest(args->rest, &result.rest)
                                             : EXIT_SUCCESS;
    if (rc == 0 && args->rest && !result.rest.len)
        (void)fprintf(stderr, "no pipeline stays in a Collector; %s was not written\n", args->rest);
    if (code == EXIT_SUCCESS &&
        (fputs(result.config.data ? result.config.data : "", stdout) < 0 || fflush(stdout) != 0))
        code = EXIT_FAILURE;
    br_migration_release(&result);
    br_errs_release(&errs);
    return code;
}

static void main_welcome(void *arg)
{
    const struct arguments *args = arg;
    if (args->command == OPEN)
        (void)printf("%s is shown at http://localhost:3200; press Ctrl-C to stop\n", args->file);
    else
        br_quickstart_welcome(&args->sources);
    (void)fflush(stdout);
}

/* Logs an error for each port that another process uses. Returns false if all ports are free. */
static bool main_report_used_ports(const struct br_config *config)
{
    struct br_errs errs = {0};
    char line[1200];
    size_t count = br_preflight_taken(config, &errs);
    for (size_t i = 0; i < errs.n_errors; i++)
        br_error(NULL, "%s", br_err_format(&errs.errors[i], line, sizeof line));
    br_errs_release(&errs);
    return count > 0;
}

static int main_run(const struct br_config *config, struct arguments *args)
{
    struct br_service_options options = {
        .shutdown_timeout_ms = args->shutdown_timeout_ms,
        .sources = args->command == RUN ? &args->sources : NULL,
        .watch_config = args->watch_config,
        .on_ready = args->quickstart || args->command == OPEN ? main_welcome : NULL,
        .on_ready_arg = args};
    struct br_err err = {0};
    char line[1200];
    br_log_setup(config->telemetry.log_level, config->telemetry.log_json, 2);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)br_log_start();
    int rc = br_service_run(config, &options, &err);
    if (rc && !(err.code == BR_EIO && main_report_used_ports(config)))
        br_error(NULL, "%s", br_err_format(&err, line, sizeof line));
    (void)br_log_stop(LOG_WAIT_MS);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int main_load(struct arguments *args)
{
    struct br_errs errs = {0};
    struct br_config *config = NULL;
    int rc = br_config_load(&args->sources, br_components, &config, &errs);
    if (!rc && args->command == VALIDATE) {
        br_log_setup(BR_LOG_ERROR, false, 2);
        rc = br_preflight(config, true, &errs);
    }
    if (args->command == OPEN)
        /* Warnings are not shown, because the user did not write this configuration. */
        errs.n_warnings = 0;
    main_print_errors(&errs);
    br_errs_release(&errs);
    if (rc) {
        br_config_free(config);
        return EXIT_FAILURE;
    }
    bool runs = args->command == RUN || args->command == OPEN;
    int code = runs ? main_run(config, args) : EXIT_SUCCESS;
    br_config_free(config);
    return code;
}

static int main_show_file(struct arguments *args, const char *directory, struct br_arena *arena)
{
    struct br_err err = {0};
    char line[1200];
    if (!br_replay_open(&args->sources, args->file, directory, args->uris, arena, &err))
        return main_load(args);
    (void)fprintf(stderr, "braid: %s\n", br_err_format(&err, line, sizeof line));
    return EXIT_FAILURE;
}

/* Runs `braid open`: shows a saved file until SIGTERM or SIGINT. */
static int main_open(struct arguments *args)
{
    struct br_arena arena;
    struct br_err err = {0};
    char line[1200];
    int code = EXIT_FAILURE;
    if (!args->file || args->sources.n_uris)
        return main_usage("open requires one file written by braid save, and no --config", NULL);
    br_arena_init(&arena, 1u << 20);
    const char *directory = br_replay_make_directory(&arena, &err);
    if (!directory)
        (void)fprintf(stderr, "braid: %s\n", br_err_format(&err, line, sizeof line));
    else if (br_replay_fork(directory, &code))
        code = main_show_file(args, directory, &arena);
    br_arena_release(&arena);
    return code;
}

static int main_with_config(struct arguments *args)
{
    struct br_arena arena;
    int code = EXIT_FAILURE;
    br_arena_init(&arena, 1u << 20);
    args->quickstart = args->sources.n_uris == 0;
    if (args->quickstart && br_quickstart_sources(&args->sources, args->uris, &arena))
        (void)fprintf(stderr, "braid: out of memory\n");
    else if (args->command != PRINT_CONFIG)
        code = main_load(args);
    else if (args->defaults)
        code = main_print_effective(&args->sources);
    else
        code = main_print_config(&args->sources);
    br_arena_release(&arena);
    return code;
}

/* Disables core dumps. Also prevents other processes, except those of root, from attaching a
 * debugger or reading memory. Must be called before the configuration is read, because the
 * configuration may contain secrets. */
static void main_keep_memory_private(void)
{
    static const struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_CORE, &none) || prctl(PR_SET_DUMPABLE, 0))
        (void)fprintf(stderr, "warning: cannot disable core dumps: %s\n", strerror(errno));
}

/* Returns true if any argument is --help or -h, or if the first argument is "help". */
static bool main_wants_help(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "help") == 0)
        return true;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    struct arguments args = {.command = RUN, .shutdown_timeout_ms = 30000};
    int i = 1;
    br_mem_tune(0);
    if (argc > 1 && strcmp(argv[1], "query") == 0) {
        if (!main_wants_help(argc, argv))
            return br_query_command_run(argc - 2, argv + 2);
        (void)fputs(br_query_command_help, stdout);
        return EXIT_SUCCESS;
    }
    if (argc > 1 && (strcmp(argv[1], "save") == 0 || strcmp(argv[1], "open") == 0)) {
        if (main_wants_help(argc, argv)) {
            (void)fputs(br_replay_help, stdout);
            return EXIT_SUCCESS;
        }
        if (argv[1][0] == 's')
            return br_replay_save(argc - 2, argv + 2);
    }
    if (main_wants_help(argc, argv)) {
        (void)fputs(help, stdout);
        return EXIT_SUCCESS;
    }
    if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-v") == 0)) {
        (void)puts("braid " BR_VERSION " (commit " BR_COMMIT ")");
        return EXIT_SUCCESS;
    }
    if (argc > 1 && argv[1][0] != '-') {
        static const char *const names[] = {"run",        "validate", "print-config",
                                            "components", "migrate",  "open"};
        size_t c = 0;
        while (c < BR_COUNT(names) && strcmp(argv[1], names[c]) != 0)
            c++;
        if (c == BR_COUNT(names))
            return main_usage("unknown command", argv[1]);
        args.command = (enum command)c;
        i = 2;
    }
    for (; i < argc; i++) {
        int code = main_read_option(&args, argv, &i);
        if (code)
            return code;
    }
    if (args.command == COMPONENTS)
        return main_list_components(args.json);
    if (args.command == MIGRATE)
        return main_migrate(&args);
    if (!args.core_dumps)
        main_keep_memory_private();
    args.sources.uris = args.uris;
    args.sources.sets = args.sets;
    return args.command == OPEN ? main_open(&args) : main_with_config(&args);
}
