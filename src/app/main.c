/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "app/ask.h"
#include "app/components.h"
#include "app/migrate.h"
#include "app/preflight.h"
#include "app/quickstart.h"
#include "app/registry.h"
#include "app/replay.h"
#include "app/service.h"
#include "base/mem.h"
#include "commit.h"
#include "config/parts.h"

#define URIS_MAX 100
#define EXIT_USAGE 2
#define LOG_WAIT_MS 2000 /* at the end, for whoever reads the log */

static const char help[] =
    "Braid: a pipeline server for traces and profiles that joins every profile sample to its "
    "span.\n"
    "\n"
    "Usage:\n"
    "  braid                              takes traces and profiles on their usual ports, keeps "
    "the "
    "last\n"
    "                                     day and shows it at http://localhost:3200; forwards to\n"
    "                                     TEMPO_ENDPOINT and PYROSCOPE_ENDPOINT where they are "
    "set\n"
    "  braid --config FILE [--config FILE ...] [--set KEY=VALUE ...]   run\n"
    "  braid validate --config FILE       check a config: exit 0, or the errors\n"
    "  braid print-config --config FILE   show the merged, expanded config, secrets as [REDACTED]\n"
    "  braid components [--json]          what is built in\n"
    "  braid migrate FILE [--rest FILE]   convert a Collector's config; parts that Braid lacks go "
    "to "
    "the\n"
    "                                     other file, for a Collector beside it\n"
    "  braid query COMMAND ...            spans, traces and flame graphs of a running Braid\n"
    "  braid save FILE, braid open FILE   what a store keeps, as one file; and that file's page\n"
    "  braid --version | --help\n"
    "\n"
    "Options:\n"
    "  --config URI           a path, file:PATH, env:NAME or yaml:TEXT; later ones win\n"
    "  --set KEY=VALUE        one setting, as in receivers.otlp.protocols.grpc.endpoint=:4317\n"
    "  --skip-unsupported     run a Collector's config without the parts that Braid lacks, and "
    "warn\n"
    "  --accept-loss          leave out samplers, filters and the like, too, which are refused "
    "otherwise\n"
    "  --defaults             of print-config: every key of the components in use\n"
    "  --shutdown-timeout D   time to drain after SIGTERM or SIGINT (default 30s)\n"
    "  --core-dumps           let the process dump its memory, with the secrets in it, or be "
    "debugged\n"
    "  --feature-gates LIST   accepted for the Collector's sake; profiles need no gate here\n"
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
    const char *file, *rest; /* of migrate; of open, a file */
    bool json, core_dumps, defaults;
    bool quickstart; /* there is no --config */
};

static int main_usage(const char *what, const char *arg)
{
    (void)fprintf(stderr, "braid: %s%s%s; see braid --help\n", what, arg ? " " : "",
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
            (void)fprintf(stderr, "warning: --feature-gates: there is no gate \"%s\"; ignored\n",
                          name);
    }
}

/* The value of an option, from "--name=value" or the next argument; NULL when it is another option.
 */
static const char *main_value_of(const char *name, int argc, char **argv, int *index)
{
    const char *arg = argv[*index];
    size_t n = strlen(name);
    if (strncmp(arg, name, n) != 0)
        return NULL;
    if (arg[n] == '=')
        return arg + n + 1;
    if (arg[n] == '\0' && *index + 1 < argc)
        return argv[++*index];
    return NULL;
}

/* Reads one option. Returns 0, or the exit code of a mistake. */
static int main_read_option(struct arguments *left, int argc, char **argv, int *index)
{
    const char *arg = argv[*index], *value;
    if ((value = main_value_of("--config", argc, argv, index))) {
        if (left->sources.n_uris == URIS_MAX)
            return main_usage("at most 100 --config are read:", value);
        left->uris[left->sources.n_uris++] = value;
    } else if ((value = main_value_of("--set", argc, argv, index))) {
        if (left->sources.n_sets == URIS_MAX)
            return main_usage("at most 100 --set are read:", value);
        left->sets[left->sources.n_sets++] = value;
    } else if ((value = main_value_of("--shutdown-timeout", argc, argv, index))) {
        uint64_t ns;
        if (!br_duration_parse(value, &ns))
            return main_usage("--shutdown-timeout must be a duration like 30s, not", value);
        left->shutdown_timeout_ms = ns / 1000000;
    } else if ((value = main_value_of("--feature-gates", argc, argv, index))) {
        main_warn_gates(value);
    } else if (left->command == MIGRATE && (value = main_value_of("--rest", argc, argv, index))) {
        left->rest = value;
    } else if ((left->command == MIGRATE || left->command == OPEN) && arg[0] != '-' &&
               !left->file) {
        left->file = arg;
    } else if (strcmp(arg, "--skip-unsupported") == 0) {
        left->sources.skip_unsupported = true;
    } else if (strcmp(arg, "--accept-loss") == 0) {
        left->sources.accept_loss = true;
    } else if (strcmp(arg, "--core-dumps") == 0) {
        left->core_dumps = true;
    } else if (strcmp(arg, "--defaults") == 0 && left->command == PRINT_CONFIG) {
        left->defaults = true;
    } else if (strcmp(arg, "--json") == 0 && left->command == COMPONENTS) {
        left->json = true;
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
        (void)fprintf(stderr, "warning: and more: the first %d are shown\n", BR_WARNINGS_MAX);
    for (size_t i = 0; i < errs->n_errors; i++)
        (void)fprintf(stderr, "%s\n", br_err_format(&errs->errors[i], line, sizeof line));
    if (errs->more)
        (void)fprintf(stderr, "and more: the first %d are shown\n", BR_ERRS_MAX);
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

/* Secrets may be in it: nobody else reads it. */
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

static int main_migrate(const struct arguments *left)
{
    struct br_errs errs = {0};
    struct br_migration result = {0};
    int code = EXIT_FAILURE;
    if (!left->file)
        return main_usage("migrate wants the Collector's config file", NULL);
    int rc = br_config_migrate(left->file, &left->sources, br_components, left->rest != NULL,
                               &result, &errs);
    main_print_errors(&errs);
    if (rc == 0)
        code = left->rest && result.rest.len ? main_write_rest(left->rest, &result.rest)
                                             : EXIT_SUCCESS;
    if (rc == 0 && left->rest && !result.rest.len)
        (void)fprintf(stderr, "nothing stays for a Collector\n");
    if (code == EXIT_SUCCESS &&
        (fputs(result.config.data ? result.config.data : "", stdout) < 0 || fflush(stdout) != 0))
        code = EXIT_FAILURE;
    br_migration_release(&result);
    br_errs_release(&errs);
    return code;
}

static void main_welcome(void *arg)
{
    const struct arguments *left = arg;
    if (left->command == OPEN)
        (void)printf("%s is at http://localhost:3200. Ctrl-C ends it.\n", left->file);
    else
        br_quickstart_welcome(&left->sources);
    (void)fflush(stdout);
}

/* Names all ports that other processes have. Returns false when it found no such port. */
static bool main_say_taken(const struct br_config *config)
{
    struct br_errs errs = {0};
    char line[1200];
    size_t count = br_preflight_taken(config, &errs);
    for (size_t i = 0; i < errs.n_errors; i++)
        br_error(NULL, "%s", br_err_format(&errs.errors[i], line, sizeof line));
    br_errs_release(&errs);
    return count > 0;
}

static int main_run(const struct br_config *config, struct arguments *left)
{
    struct br_service_options options = {
        .shutdown_timeout_ms = left->shutdown_timeout_ms,
        .on_ready = left->quickstart || left->command == OPEN ? main_welcome : NULL,
        .on_ready_arg = left};
    struct br_err err = {0};
    char line[1200];
    br_log_setup(config->telemetry.log_level, config->telemetry.log_json, 2);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)br_log_start();
    int rc = br_service_run(config, &options, &err);
    if (rc && !(err.code == BR_EIO && main_say_taken(config)))
        br_error(NULL, "%s", br_err_format(&err, line, sizeof line));
    (void)br_log_stop(LOG_WAIT_MS);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int main_load_and(struct arguments *left)
{
    struct br_errs errs = {0};
    struct br_config *config = NULL;
    int rc = br_config_load(&left->sources, br_components, &config, &errs);
    if (!rc && left->command == VALIDATE) {
        br_log_setup(BR_LOG_ERROR, false, 2);
        rc = br_preflight(config, &errs);
    }
    if (left->command == OPEN)
        errs.n_warnings = 0; /* of a config that nobody wrote */
    main_print_errors(&errs);
    br_errs_release(&errs);
    if (rc) {
        br_config_free(config);
        return EXIT_FAILURE;
    }
    bool runs = left->command == RUN || left->command == OPEN;
    int code = runs ? main_run(config, left) : EXIT_SUCCESS;
    br_config_free(config);
    return code;
}

static int main_open_in(struct arguments *left, const char *folder, struct br_arena *arena)
{
    struct br_err err = {0};
    char line[1200];
    if (!br_replay_open(&left->sources, left->file, folder, left->uris, arena, &err))
        return main_load_and(left);
    (void)fprintf(stderr, "braid: %s\n", br_err_format(&err, line, sizeof line));
    return EXIT_FAILURE;
}

/* Shows a saved file until it is told to end. */
static int main_open(struct arguments *left)
{
    struct br_arena arena;
    struct br_err err = {0};
    char line[1200];
    int code = EXIT_FAILURE;
    if (!left->file || left->sources.n_uris)
        return main_usage("open wants a file that braid save wrote, and nothing else", NULL);
    br_arena_init(&arena, 1u << 20);
    const char *folder = br_replay_folder(&arena, &err);
    if (!folder)
        (void)fprintf(stderr, "braid: %s\n", br_err_format(&err, line, sizeof line));
    else if (br_replay_fork(folder, &code))
        code = main_open_in(left, folder, &arena);
    br_arena_release(&arena);
    return code;
}

static int main_with_config(struct arguments *left)
{
    struct br_arena arena;
    int code = EXIT_FAILURE;
    br_arena_init(&arena, 1u << 20);
    left->quickstart = left->sources.n_uris == 0;
    if (left->quickstart && br_quickstart_sources(&left->sources, left->uris, &arena))
        (void)fprintf(stderr, "braid: out of memory\n");
    else
        code = left->command != PRINT_CONFIG ? main_load_and(left)
               : left->defaults              ? main_print_effective(&left->sources)
                                             : main_print_config(&left->sources);
    br_arena_release(&arena);
    return code;
}

/* Before there is a secret in memory: no core file, whoever collects them, and nobody but root
 * attaches to the process or reads its memory. */
static void main_keep_memory_private(void)
{
    static const struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_CORE, &none) || prctl(PR_SET_DUMPABLE, 0))
        (void)fprintf(stderr, "warning: core dumps cannot be switched off: %s\n", strerror(errno));
}

/* Help is given wherever it is asked for, behind a command too. */
static bool main_asks_for_help(int argc, char **argv)
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
    struct arguments left = {.command = RUN, .shutdown_timeout_ms = 30000};
    int i = 1;
    br_mem_tune(0);
    if (argc > 1 && strcmp(argv[1], "query") == 0) {
        if (!main_asks_for_help(argc, argv))
            return br_ask_main(argc - 2, argv + 2);
        (void)fputs(br_ask_help, stdout);
        return EXIT_SUCCESS;
    }
    if (argc > 1 && (strcmp(argv[1], "save") == 0 || strcmp(argv[1], "open") == 0)) {
        if (main_asks_for_help(argc, argv)) {
            (void)fputs(br_replay_help, stdout);
            return EXIT_SUCCESS;
        }
        if (argv[1][0] == 's')
            return br_replay_save(argc - 2, argv + 2);
    }
    if (main_asks_for_help(argc, argv)) {
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
        left.command = (enum command)c;
        i = 2;
    }
    for (; i < argc; i++) {
        int code = main_read_option(&left, argc, argv, &i);
        if (code)
            return code;
    }
    if (left.command == COMPONENTS)
        return main_list_components(left.json);
    if (left.command == MIGRATE)
        return main_migrate(&left);
    if (!left.core_dumps)
        main_keep_memory_private();
    left.sources.uris = left.uris;
    left.sources.sets = left.sets;
    return left.command == OPEN ? main_open(&left) : main_with_config(&left);
}
