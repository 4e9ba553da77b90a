/* SPDX-License-Identifier: Apache-2.0 */
#include "app/commands.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "config/option.h"
#include "storage/slice.h"
#include "storage/store.h"

#define REPLAY_MISUSE 2
#define REPLAY_PATH_MAX 4096

const char br_replay_help[] =
    "Usage: braid save FILE [--directory DIRECTORY] [--time-range D]\n"
    "       braid open FILE\n"
    "\n"
    "save writes the data of a store to one file: all partitions with data of the last D\n"
    "(default: all partitions). A running Braid can use the directory at the same time.\n"
    "open shows a saved file at http://localhost:3200 under the original links, and receives\n"
    "no data.\n"
    "\n"
    "Options of save:\n"
    "  --directory DIRECTORY  directory of the store exporter (default $XDG_DATA_HOME/braid or\n"
    "                         ~/.local/share/braid)\n"
    "  --time-range D         a duration such as 15m or 2h\n";

/* This configuration receives no data. Its only pipeline creates the exporter, which opens the
 * directory of the saved data. */
static const char replay_config[] =
    "yaml:receivers: {nop: }\n"
    "exporters: {store: {directory: '%s', retention: {max_bytes: 1000GiB, max_age: 0s}}}\n"
    "extensions: {query: }\n"
    "service:\n"
    "  extensions: [query]\n"
    "  telemetry: {metrics: {level: none}, logs: {level: warn}}\n"
    "  pipelines: {traces: {receivers: [nop], exporters: [store]}}\n";

static int replay_usage_error(const char *problem, const char *arg)
{
    (void)fprintf(stderr, "braid save: %s%s%s; see braid save --help\n", problem, arg ? " " : "",
                  arg ? arg : "");
    return REPLAY_MISUSE;
}

static uint64_t replay_now_ns(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int replay_write(const char *directory, uint64_t range_ns, const char *file)
{
    struct br_err err = {0};
    struct br_slice_saved saved = {0, 0};
    char line[1200];
    uint64_t now = replay_now_ns(), from = range_ns && range_ns < now ? now - range_ns : 0;
    if (br_slice_save(directory, from, UINT64_MAX, file, &saved, &err)) {
        (void)fprintf(stderr, "braid save: %s\n", br_err_format(&err, line, sizeof line));
        return EXIT_FAILURE;
    }
    bool one = saved.n_partitions == 1;
    (void)printf("%u partition%s in %s; braid open %s shows %s\n", saved.n_partitions,
                 one ? "" : "s", file, file, one ? "it" : "them");
    if (saved.n_unread)
        (void)fprintf(stderr, "braid save: %u partition%s could not be read and %s left out\n",
                      saved.n_unread, saved.n_unread == 1 ? "" : "s",
                      saved.n_unread == 1 ? "was" : "were");
    return EXIT_SUCCESS;
}

int br_replay_save(int argc, char **argv)
{
    const char *file = NULL, *directory = NULL;
    char path[REPLAY_PATH_MAX];
    uint64_t range_ns = 0;
    for (int i = 0; i < argc; i++) {
        bool last = i + 1 == argc;
        if (strcmp(argv[i], "--directory") == 0 && !last)
            directory = argv[++i];
        else if (strcmp(argv[i], "--time-range") == 0 && !last) {
            if (!br_duration_parse(argv[++i], &range_ns))
                return replay_usage_error("--time-range must be a duration such as 15m, got",
                                          argv[i]);
        } else if (argv[i][0] != '-' && !file)
            file = argv[i];
        else
            return replay_usage_error("unknown or incomplete argument", argv[i]);
    }
    if (!file)
        return replay_usage_error("the path of the file to write is required", NULL);
    if (!directory && !br_store_default_directory(path, sizeof path))
        return replay_usage_error(
            "--directory is required, because neither XDG_DATA_HOME nor HOME is set", NULL);
    return replay_write(directory ? directory : path, range_ns, file);
}

static void replay_remove(const char *directory)
{
    DIR *dir = opendir(directory);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        (void)unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        (void)closedir(dir);
    (void)rmdir(directory);
}

static void replay_watched(sigset_t *signals)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGCHLD};
    (void)sigemptyset(signals);
    for (size_t i = 0; i < BR_COUNT(numbers); i++)
        (void)sigaddset(signals, numbers[i]);
}

/* Forwards signals to the child until the child ends. Returns the child's exit code. */
static int replay_wait(pid_t child, const sigset_t *signals)
{
    for (int status, number;;) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended < 0)
            return EXIT_FAILURE;
        if (ended == child)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (sigwait(signals, &number) == 0 && number != SIGCHLD)
            (void)kill(child, number);
    }
}

/* Prepares the child process: the child receives the terminal's Ctrl-C only through the parent,
 * and ends when the parent ends. */
static void replay_become_child(const sigset_t *before)
{
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)sigprocmask(SIG_SETMASK, before, NULL);
}

bool br_replay_fork(const char *directory, int *ret_code)
{
    sigset_t signals, before;
    (void)signal(SIGCHLD, SIG_DFL); /* sigwait does not return SIGCHLD if the signal is ignored */
    replay_watched(&signals);
    (void)sigprocmask(SIG_BLOCK, &signals, &before);
    pid_t child = fork();
    if (child == 0) {
        replay_become_child(&before);
        return true;
    }
    *ret_code = child < 0 ? EXIT_FAILURE : replay_wait(child, &signals);
    if (child < 0)
        (void)fprintf(stderr, "braid: cannot fork: %s\n", strerror(errno));
    replay_remove(directory);
    return false;
}

char *br_replay_make_directory(struct br_arena *arena, struct br_err *err)
{
    const char *base = getenv("TMPDIR");
    char *directory = br_arena_printf(arena, "%s/braid-XXXXXX", base && *base ? base : "/tmp");
    if (!directory)
        (void)br_err_set(err, BR_ENOMEM, "out of memory");
    else if (!mkdtemp(directory))
        (void)br_err_set(err, BR_EIO, "cannot create %s: %s", directory, strerror(errno));
    else
        return directory;
    return NULL;
}

/* Prints the partitions that are missing in the saved file. */
static void replay_show_list(const char *file, const char *directory)
{
    char path[REPLAY_PATH_MAX], line[256];
    if ((size_t)snprintf(path, sizeof path, "%s/" BR_SLICE_LIST, directory) >= sizeof path)
        return;
    FILE *list = fopen(path, "re");
    while (list && fgets(line, sizeof line, list)) {
        for (char *p = line; *p; p++)
            /* the file may be malicious, so only printable characters are printed */
            *p = *p < ' ' || *p > '~' ? ' ' : *p;
        (void)fprintf(stderr, "%s lacks %s\n", file, line);
    }
    if (list)
        (void)fclose(list);
}

int br_replay_open(struct br_config_sources *sources, const char *file, const char *directory,
                   const char **uri, struct br_arena *arena, struct br_err *err)
{
    int rc = br_slice_open(file, directory, err);
    if (rc)
        return rc;
    replay_show_list(file, directory);
    *uri = br_arena_printf(arena, replay_config, directory);
    if (!*uri)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    sources->uris = uri;
    sources->n_uris = 1;
    return 0;
}
