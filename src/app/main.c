/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "app/migrate.h"
#include "app/preflight.h"
#include "app/registry.h"
#include "app/service.h"
#include "base/mem.h"

#define URIS_MAX 100
#define EXIT_USAGE 2
#define LOG_WAIT_MS 2000 /* at the end, for whoever reads the log */

static const char help[] =
    "Braid: a pipeline server for traces and profiles that joins every profile sample to its "
    "span.\n"
    "\n"
    "Usage:\n"
    "  braid --config FILE [--config FILE ...] [--set KEY=VALUE ...]   run\n"
    "  braid validate --config FILE       check a config: exit 0, or the errors\n"
    "  braid print-config --config FILE   show the merged, expanded config, secrets as [REDACTED]\n"
    "  braid components [--json]          what is built in\n"
    "  braid migrate FILE [--rest FILE]   a Collector's config in, Braid's out; what stays for the\n"
    "                                     Collector goes into the other file\n"
    "  braid --version | --help\n"
    "\n"
    "Options:\n"
    "  --config URI           a path, file:PATH, env:NAME or yaml:TEXT; later ones win\n"
    "  --set KEY=VALUE        one setting, as in receivers.otlp.protocols.grpc.endpoint=:4317\n"
    "  --skip-unsupported     run a Collector's config: what Braid has not is left out, and told\n"
    "  --shutdown-timeout D   time to drain after SIGTERM or SIGINT (default 30s)\n"
    "  --core-dumps           let the process dump its memory, with the secrets in it, or be debugged\n"
    "  --feature-gates LIST   accepted for the Collector's sake; profiles need no gate here\n"
    "\n"
    "Examples:\n"
    "  braid --config config/examples/quickstart.yaml\n"
    "  braid --config base.yaml --config site.yaml --set exporters.otlp.endpoint=tempo:4317\n"
    "  braid validate --config gateway.yaml && systemctl restart braid\n"
    "  braid migrate collector.yaml --rest metrics.yaml > braid.yaml\n"
    "  braid --config 'yaml:receivers::otlp::protocols::grpc:' --config rest.yaml\n";

enum command { RUN, VALIDATE, PRINT_CONFIG, COMPONENTS, MIGRATE };

struct arguments {
    enum command command;
    const char *uris[URIS_MAX], *sets[URIS_MAX];
    struct br_config_sources sources;
    uint64_t shutdown_timeout_ms;
    const char *file, *rest; /* of migrate */
    bool json, core_dumps;
};

static int usage(const char *what, const char *arg)
{
    (void)fprintf(stderr, "braid: %s%s%s; see braid --help\n", what, arg ? " " : "",
                  arg ? arg : "");
    return EXIT_USAGE;
}

static void warn_gates(const char *list)
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
static const char *value_of(const char *name, int argc, char **argv, int *i)
{
    const char *arg = argv[*i];
    size_t n = strlen(name);
    if (strncmp(arg, name, n) != 0)
        return NULL;
    if (arg[n] == '=')
        return arg + n + 1;
    if (arg[n] == '\0' && *i + 1 < argc)
        return argv[++*i];
    return NULL;
}

/* Reads one option. Returns 0, or the exit code of a mistake. */
static int read_option(struct arguments *a, int argc, char **argv, int *i)
{
    const char *arg = argv[*i], *value;
    if ((value = value_of("--config", argc, argv, i))) {
        if (a->sources.n_uris == URIS_MAX)
            return usage("at most 100 --config are read:", value);
        a->uris[a->sources.n_uris++] = value;
    } else if ((value = value_of("--set", argc, argv, i))) {
        if (a->sources.n_sets == URIS_MAX)
            return usage("at most 100 --set are read:", value);
        a->sets[a->sources.n_sets++] = value;
    } else if ((value = value_of("--shutdown-timeout", argc, argv, i))) {
        uint64_t ns;
        if (!br_duration_parse(value, &ns))
            return usage("--shutdown-timeout must be a duration like 30s, not", value);
        a->shutdown_timeout_ms = ns / 1000000;
    } else if ((value = value_of("--feature-gates", argc, argv, i))) {
        warn_gates(value);
    } else if (a->command == MIGRATE && (value = value_of("--rest", argc, argv, i))) {
        a->rest = value;
    } else if (a->command == MIGRATE && arg[0] != '-' && !a->file) {
        a->file = arg;
    } else if (strcmp(arg, "--skip-unsupported") == 0) {
        a->sources.skip_unsupported = true;
    } else if (strcmp(arg, "--core-dumps") == 0) {
        a->core_dumps = true;
    } else if (strcmp(arg, "--json") == 0 && a->command == COMPONENTS) {
        a->json = true;
    } else {
        return usage("unknown or incomplete argument", arg);
    }
    return 0;
}

static void print_errors(const struct br_errs *errs)
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

static const char *signals_of(const struct br_component *c)
{
    return c->signals == BR_BOTH_SIGNALS              ? "traces, profiles"
           : c->signals == BR_SIGNAL_BIT(BR_TRACES)   ? "traces"
           : c->signals == BR_SIGNAL_BIT(BR_PROFILES) ? "profiles"
                                                      : "-";
}

static void component_json(struct br_str *out, const struct br_component *c)
{
    br_str_puts(out, "{\"kind\":");
    br_str_json(out, br_kind_name(c->kind), strlen(br_kind_name(c->kind)));
    br_str_puts(out, ",\"name\":");
    br_str_json(out, c->name, strlen(c->name));
    if (c->alias) {
        br_str_puts(out, ",\"alias\":");
        br_str_json(out, c->alias, strlen(c->alias));
    }
    br_str_printf(out, ",\"signals\":[%s%s%s]", c->signals & 1 ? "\"traces\"" : "",
                  c->signals == BR_BOTH_SIGNALS ? "," : "", c->signals & 2 ? "\"profiles\"" : "");
    br_str_puts(out, ",\"stability\":");
    br_str_json(out, c->stability, strlen(c->stability));
    br_str_puts(out, ",\"help\":");
    br_str_json(out, c->help, strlen(c->help));
    br_str_puts(out, "}");
}

static int list_components(bool json)
{
    struct br_str out = {0};
    for (size_t i = 0; br_components[i] && json; i++) {
        br_str_puts(&out, i ? ",\n" : "[");
        component_json(&out, br_components[i]);
    }
    if (json)
        (void)printf("%s]\n", out.data ? out.data : "[");
    else
        (void)printf("%-10s %-22s %-10s %-17s %-12s %s\n", "KIND", "NAME", "ALIAS", "SIGNALS",
                     "STABILITY", "");
    for (size_t i = 0; br_components[i] && !json; i++) {
        const struct br_component *c = br_components[i];
        (void)printf("%-10s %-22s %-10s %-17s %-12s %s\n", br_kind_name(c->kind), c->name,
                     c->alias ? c->alias : "", signals_of(c), c->stability, c->help);
    }
    br_str_release(&out);
    return 0;
}

static int print_config(const struct br_config_sources *sources)
{
    struct br_arena arena;
    struct br_errs errs = {0};
    struct br_yaml *tree = NULL;
    struct br_str out = {0};
    br_arena_init(&arena, 64u << 20);
    int rc = br_config_merge(sources, &arena, &tree, &errs);
    if (!rc)
        rc = br_config_print(tree, br_components, &out);
    print_errors(&errs);
    if (!rc && out.data)
        (void)fputs(out.data, stdout);
    br_str_release(&out);
    br_errs_release(&errs);
    br_arena_release(&arena);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Secrets may be in it: nobody else reads it. */
static int write_rest(const char *path, const struct br_str *text)
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

static int migrate(const struct arguments *a)
{
    struct br_errs errs = {0};
    struct br_migration result = {0};
    int code = EXIT_FAILURE;
    if (!a->file)
        return usage("migrate wants the Collector's config file", NULL);
    int rc = br_config_migrate(a->file, &a->sources, br_components, &result, &errs);
    print_errors(&errs);
    if (rc == 0)
        code = a->rest && result.rest.len ? write_rest(a->rest, &result.rest) : EXIT_SUCCESS;
    if (rc == 0 && !result.rest.len)
        (void)fprintf(stderr, "nothing stays for a Collector\n");
    if (code == EXIT_SUCCESS && (fputs(result.config.data ? result.config.data : "", stdout) < 0 ||
                                 fflush(stdout) != 0))
        code = EXIT_FAILURE;
    br_migration_release(&result);
    br_errs_release(&errs);
    return code;
}

static int run(const struct br_config *config, const struct arguments *a)
{
    struct br_service_options options = {.shutdown_timeout_ms = a->shutdown_timeout_ms};
    struct br_err err = {0};
    char line[1200];
    br_log_setup(config->telemetry.log_level, config->telemetry.log_json, 2);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)br_log_start();
    int rc = br_service_run(config, &options, &err);
    if (rc)
        br_error(NULL, "%s", br_err_format(&err, line, sizeof line));
    (void)br_log_stop(LOG_WAIT_MS);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int load_and(const struct arguments *a)
{
    struct br_errs errs = {0};
    struct br_config *config = NULL;
    int rc = br_config_load(&a->sources, br_components, &config, &errs);
    if (!rc && a->command == VALIDATE) {
        br_log_setup(BR_LOG_ERROR, false, 2);
        rc = br_preflight(config, &errs);
    }
    print_errors(&errs);
    br_errs_release(&errs);
    if (rc) {
        br_config_free(config);
        return EXIT_FAILURE;
    }
    int code = a->command == RUN ? run(config, a) : EXIT_SUCCESS;
    br_config_free(config);
    return code;
}

/* Before there is a secret in memory: no core file, whoever collects them, and nobody but root attaches
 * to the process or reads its memory. */
static void keep_memory_private(void)
{
    static const struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_CORE, &none) || prctl(PR_SET_DUMPABLE, 0))
        (void)fprintf(stderr, "warning: core dumps cannot be switched off: %s\n", strerror(errno));
}

/* Help is given wherever it is asked for, behind a command too. */
static bool asks_for_help(int argc, char **argv)
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
    struct arguments a = {.command = RUN, .shutdown_timeout_ms = 30000};
    int i = 1;
    br_mem_tune();
    if (argc < 2 || asks_for_help(argc, argv)) {
        (void)fputs(help, argc < 2 ? stderr : stdout);
        return argc < 2 ? EXIT_USAGE : EXIT_SUCCESS;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-v") == 0) {
        (void)puts("braid " BR_VERSION);
        return EXIT_SUCCESS;
    }
    if (argv[1][0] != '-') {
        static const char *const names[] = {"run", "validate", "print-config", "components",
                                            "migrate"};
        size_t c = 0;
        while (c < BR_COUNT(names) && strcmp(argv[1], names[c]) != 0)
            c++;
        if (c == BR_COUNT(names))
            return usage("unknown command", argv[1]);
        a.command = (enum command)c;
        i = 2;
    }
    for (; i < argc; i++) {
        int code = read_option(&a, argc, argv, &i);
        if (code)
            return code;
    }
    if (a.command == COMPONENTS)
        return list_components(a.json);
    if (a.command == MIGRATE)
        return migrate(&a);
    if (a.sources.n_uris == 0 && a.sources.n_sets == 0)
        return usage("at least one --config is needed", NULL);
    if (!a.core_dumps)
        keep_memory_private();
    a.sources.uris = a.uris;
    a.sources.sets = a.sets;
    return a.command == PRINT_CONFIG ? print_config(&a.sources) : load_and(&a);
}
