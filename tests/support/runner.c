/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/runner.h"

#include "base/mem.h"

#include <errno.h>
#include <fnmatch.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME_MAX_LEN 160

/* Exit codes of a suite's process. */
enum { SUITE_PASSED, SUITE_FAILED, SUITE_EMPTY = 77 };

static struct {
    const char *suite, *filter, *mode;
    bool lists;
    size_t n_selected;
} run;

/* One test in one variant. cmocka passes it to the setup function as the initial state. */
struct variant {
    const struct CMUnitTest *test;
    test_enter_fn enter;
    unsigned number;
    char name[NAME_MAX_LEN];
};

bool test_mode_is(const char *word)
{
    return run.mode && strcmp(run.mode, word) == 0;
}

struct CMUnitTest test_if(bool supported, struct CMUnitTest test)
{
    if (!supported)
        test.test_func = NULL;
    return test;
}

static int enter_variant(void **state)
{
    const struct variant *v = *state;
    v->enter(v->number);
    *state = v->test->initial_state;
    return v->test->setup_func ? v->test->setup_func(state) : 0;
}

static bool selects(const char *name)
{
    return !run.filter || fnmatch(run.filter, name, 0) == 0;
}

static unsigned count_variants(test_enter_fn enter)
{
    unsigned n = 0;
    while (enter && enter(n))
        n++;
    return enter ? n : 1;
}

int test_run(const struct CMUnitTest *tests, size_t n_tests, CMFixtureFunction setup,
             CMFixtureFunction teardown, test_enter_fn enter)
{
    unsigned n_variants = count_variants(enter);
    struct CMUnitTest *chosen = calloc(n_tests * n_variants, sizeof *chosen);
    struct variant *variants = calloc(n_tests * n_variants, sizeof *variants);
    if (!chosen || !variants)
        abort();
    size_t n = 0;
    for (unsigned number = 0; number < n_variants; number++) {
        for (size_t i = 0; i < n_tests; i++) {
            if (!selects(tests[i].name))
                continue;
            if (!tests[i].test_func) {
                (void)fprintf(stderr, "%s: not supported by this machine\n", tests[i].name);
                continue;
            }
            struct variant *v = &variants[n];
            chosen[n] = tests[i];
            if (enter) {
                (void)snprintf(v->name, sizeof v->name, "%s (%s)", tests[i].name, enter(number));
                v->test = &tests[i];
                v->enter = enter;
                v->number = number;
                chosen[n].name = v->name;
                chosen[n].initial_state = v;
                chosen[n].setup_func = enter_variant;
            }
            n++;
        }
    }
    for (size_t i = 0; run.lists && i < n; i++)
        printf("%s: %s\n", run.suite, chosen[i].name);
    run.n_selected += n;
    int failed = 0;
    if (n > 0 && !run.lists)
        failed = _cmocka_run_group_tests(run.suite, chosen, n, setup, teardown);
    free(variants);
    free(chosen);
    return failed;
}

static int run_suite(const struct test_suite *suite)
{
    run.suite = suite->name;
    int failed = suite->run();
    if (failed)
        return SUITE_FAILED;
    return run.n_selected > 0 || run.mode ? SUITE_PASSED : SUITE_EMPTY;
}

/* A suite that runs in a separate process. A crash, a limit or an allocator hook of a suite
 * therefore does not affect the other suites. The output of the process is kept until it ends, so
 * that lines of several suites are not mixed. */
struct job {
    const struct test_suite *suite;
    pid_t process; /* 0: none */
    FILE *output;
};

static void start_job(struct job *job, const struct test_suite *suite)
{
    *job = (struct job){.suite = suite, .output = tmpfile()};
    if (!job->output)
        abort();
    (void)fflush(NULL);
    job->process = fork();
    if (job->process < 0)
        abort();
    if (job->process > 0)
        return;
    if (dup2(fileno(job->output), STDOUT_FILENO) < 0 ||
        dup2(fileno(job->output), STDERR_FILENO) < 0)
        abort();
    int code = run_suite(suite);
    exit(code); /* calls exit, so that the leak check of the sanitizer runs */
}

/* Prints the output of a suite that ended. Returns its exit code. */
static int end_job(struct job *job, int status)
{
    char bytes[4096];
    size_t n;
    rewind(job->output);
    while ((n = fread(bytes, 1, sizeof bytes, job->output)) > 0)
        (void)fwrite(bytes, 1, n, stdout);
    (void)fclose(job->output);
    job->process = 0;
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    printf("suite %s: ended by signal %d\n", job->suite->name, WTERMSIG(status));
    return SUITE_FAILED;
}

static const struct test_suite *find_suite(const char *name)
{
    for (const struct test_suite *suite = test_suites; suite->name; suite++) {
        if (strcmp(suite->name, name) == 0)
            return suite;
    }
    return NULL;
}

static void print_help(const char *program)
{
    printf("usage: %s [--list] [--filter PATTERN] [--mode WORD] [SUITE...]\n"
           "\n"
           "Runs the tests of these suites, of all suites by default.\n"
           "\n"
           "  --filter PATTERN  run only tests whose name matches a pattern with * and ?\n"
           "  --list            print the names of the tests and run none\n"
           "  --mode WORD       write: replace stored expected results; times: print measurements\n"
           "  --help\n"
           "\n"
           "suites:",
           program);
    for (const struct test_suite *suite = test_suites; suite->name; suite++)
        printf(" %s", suite->name);
    printf("\n");
}

/* Returns false if one of the suites is unknown. */
static bool check_suites(char **names)
{
    for (; *names; names++) {
        if (!find_suite(*names)) {
            (void)fprintf(stderr, "unknown suite '%s'; --help lists the suites\n", *names);
            return false;
        }
    }
    return true;
}

static bool is_wanted(const struct test_suite *suite, char **names)
{
    for (char **name = names; *name; name++) {
        if (strcmp(*name, suite->name) == 0)
            return true;
    }
    return !*names;
}

#define JOBS_MAX 64

static struct {
    struct job jobs[JOBS_MAX];
    size_t n_run, n_failed;
    const char *failed[256];
} all;

static struct job *find_job(size_t n_jobs, pid_t process)
{
    for (size_t i = 0; i < n_jobs; i++) {
        if (all.jobs[i].process == process)
            return &all.jobs[i];
    }
    return NULL;
}

/* Waits until a suite ends. Returns false if no suite is running. */
static bool wait_for_job(size_t n_jobs)
{
    int status;
    pid_t process;
    do
        process = wait(&status);
    while (process < 0 && errno == EINTR);
    struct job *job = process > 0 ? find_job(n_jobs, process) : NULL;
    if (!job)
        return process > 0;
    const char *name = job->suite->name;
    int code = end_job(job, status);
    all.n_run += code != SUITE_EMPTY;
    if (code != SUITE_EMPTY && code != SUITE_PASSED && all.n_failed < BR_COUNT(all.failed))
        all.failed[all.n_failed++] = name;
    return true;
}

static int run_all(char **names)
{
    /* Uses more processes than processors, because many suites only wait for a timer. */
    size_t n_jobs = run.lists ? 1 : (size_t)get_nprocs() * 4;
    n_jobs = n_jobs < JOBS_MAX ? n_jobs : JOBS_MAX;
    for (const struct test_suite *suite = test_suites; suite->name; suite++) {
        if (!is_wanted(suite, names))
            continue;
        struct job *job;
        while (!(job = find_job(n_jobs, 0)))
            (void)wait_for_job(n_jobs);
        start_job(job, suite);
    }
    while (wait_for_job(n_jobs))
        continue;
    if (all.n_run == 0) {
        (void)fprintf(stderr, "no test matches '%s'; --list prints all names\n", run.filter);
        return 2;
    }
    if (!run.lists)
        printf("%zu of %zu suites passed\n", all.n_run - all.n_failed, all.n_run);
    for (size_t i = 0; i < all.n_failed; i++)
        printf("FAILED: %s\n", all.failed[i]);
    return all.n_failed > 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"filter", required_argument, NULL, 'f'},
                                            {"list", no_argument, NULL, 'l'},
                                            {"mode", required_argument, NULL, 'm'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'f':
            run.filter = optarg;
            break;
        case 'l':
            run.lists = true;
            break;
        case 'm':
            run.mode = optarg;
            break;
        case 'h':
            print_help(argv[0]);
            return 0;
        default:
            return 2;
        }
    }
    if (!check_suites(argv + optind))
        return 2;
    /* If a single suite is selected, it runs in the first process, as a debugger and meson's TAP
     * reader need it. */
    if (optind + 1 == argc) {
        int code = run_suite(find_suite(argv[optind]));
        if (code == SUITE_EMPTY)
            (void)fprintf(stderr, "no test matches '%s'; --list prints all names\n", run.filter);
        return code == SUITE_EMPTY ? 2 : code;
    }
    return run_all(argv + optind);
}
