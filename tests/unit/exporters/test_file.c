/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "core/shared.h"
#include "exporters/file/writer.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"
#include "wire/compression.h"

extern const struct br_component br_file_exporter;

#define TRACE(name) "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"name\":\"" name "\"}]}]}]}"
#define DAY_NS (86400ull * 1000000000)
#define NOW_NS 1767225600000000000u /* 2026-01-01T00:00:00Z */

static char directory[64];

static const char *path(const char *name)
{
    static char whole[4][512];
    static unsigned turn;
    char *out = whole[turn++ % 4];
    (void)snprintf(out, sizeof whole[0], "%s/%s", directory, name);
    return out;
}

static struct rig *start(const char *more)
{
    char yaml[512];
    (void)snprintf(yaml, sizeof yaml, "{path: %s, %s}", path("t.json"), more);
    return rig_new(&br_file_exporter, yaml);
}

static size_t contents(const char *name, char *out, size_t size)
{
    FILE *f = fopen(path(name), "r");
    if (!f)
        fail_msg("%s is missing", name);
    size_t n = fread(out, 1, size - 1, f);
    out[n] = '\0';
    (void)fclose(f);
    return n;
}

static void assert_content(const char *name, const char *want)
{
    static char text[1 << 16];
    (void)contents(name, text, sizeof text);
    assert_string_equal(text, want);
}

static void send(struct rig *r, enum br_signal signal, const char *json)
{
    rig_send(r, rig_item(r, signal, json));
    assert_int_equal(r->outcome.verdict, BR_DONE);
}

static void put_file(const char *name, const char *text)
{
    FILE *f = fopen(path(name), "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static unsigned count_files(void)
{
    DIR *d = opendir(directory);
    unsigned n = 0;
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    (void)closedir(d);
    return n;
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof directory, "/tmp/test_file.XXXXXX");
    return !mkdtemp(directory);
}

static int teardown(void **state)
{
    char command[96];
    (void)state;
    (void)snprintf(command, sizeof command, "rm -r %s", directory);
    return system(command);
}

/* --- Formats --------------------------------------------------------------------------------- */

static void lines(void **state)
{
    (void)state;
    static const char profiles[] = "{\"dictionary\":{\"stringTable\":[\"\"]}}";
    struct rig *r = start("");
    send(r, BR_TRACES, TRACE("a"));
    send(r, BR_PROFILES, profiles);
    send(r, BR_TRACES, "{}");
    assert_content("t.json", TRACE("a") "\n{\"dictionary\":{\"stringTable\":[\"\"]}}\n{}\n");
    rig_free(r);
}

/* Few programs that read such files support attributes by reference. The exporter therefore writes
 * these attributes inline. */
static void references(void **state)
{
    (void)state;
    assert_true(br_file_exporter.resolves);
}

/* ExportTraceServiceRequest{ResourceSpans{ScopeSpans{Span{name: "a"}}}} */
static const uint8_t wire[] = {0x0a, 0x07, 0x12, 0x05, 0x12, 0x03, 0x2a, 0x01, 'a'};

static void proto(void **state)
{
    (void)state;
    uint8_t want[2 * (4 + sizeof wire)] = {0, 0, 0, sizeof wire};
    uint8_t got[256];
    memcpy(want + 4, wire, sizeof wire);
    memcpy(want + 4 + sizeof wire, want, 4 + sizeof wire);
    struct rig *r = start("format: proto");
    send(r, BR_TRACES, TRACE("a"));
    send(r, BR_TRACES, TRACE("a"));
    rig_free(r);
    assert_int_equal(contents("t.json", (char *)got, sizeof got), sizeof want);
    assert_memory_equal(got, want, sizeof want);
}

/* In both formats, each request is compressed separately and preceded by its length. */
static void zstd(void **state)
{
    (void)state;
    for (int json = 0; json < 2; json++) {
        uint8_t got[512];
        struct br_err err;
        struct br_buf *plain;
        struct br_codec *codec = br_codec_new();
        struct rig *r = start(json ? "compression: zstd" : "compression: zstd, format: proto");
        send(r, BR_TRACES, TRACE("a"));
        size_t n = contents("t.json", (char *)got, sizeof got);
        assert_int_equal(got[0] | got[1] | got[2], 0);
        assert_int_equal(got[3], n - 4);
        assert_int_equal(
            br_decompress(codec, BR_ENCODING_ZSTD, got + 4, n - 4, 1000, r->pool, &plain, &err), 0);
        assert_int_equal(plain->len, json ? strlen(TRACE("a")) : sizeof wire);
        assert_memory_equal(plain->data, json ? (const void *)TRACE("a") : wire, plain->len);
        br_buf_unref(plain);
        rig_free(r);
        br_codec_free(codec);
    }
}

/* --- Opening --------------------------------------------------------------------------------- */

static void truncates_or_appends(void **state)
{
    (void)state;
    put_file("t.json", "old\n");
    struct rig *r = start("append: true");
    send(r, BR_TRACES, "{}");
    rig_free(r);
    assert_content("t.json", "old\n{}\n");
    r = start("rotation: {}"); /* an existing file is appended to, as in the library lumberjack */
    send(r, BR_TRACES, "{}");
    rig_free(r);
    assert_content("t.json", "old\n{}\n{}\n");
    r = start("");
    rig_free(r);
    assert_content("t.json", "");
}

static void directories(void **state)
{
    (void)state;
    char yaml[512];
    struct stat st;
    mode_t mask = umask(0);
    (void)snprintf(yaml, sizeof yaml, "{path: %s/x/y/t.json}", directory);
    assert_non_null(strstr(rig_start_error(&br_file_exporter, yaml), "x/y/t.json: No such file"));
    (void)snprintf(yaml, sizeof yaml,
                   "{path: %s/x/y/t.json, create_directory: true, "
                   "directory_permissions: 0750}",
                   directory);
    assert_string_equal(rig_start_error(&br_file_exporter, yaml), "");
    assert_int_equal(stat(path("x"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0750);
    assert_int_equal(stat(path("x/y/t.json"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    (void)umask(mask);
}

static unsigned mode_of(const char *name)
{
    struct stat st;
    assert_int_equal(stat(path(name), &st), 0);
    return st.st_mode & 0777;
}

/* Only the owner can access new files and directories. Existing files and directories keep their
 * mode. */
static void modes(void **state)
{
    static const mode_t masks[] = {0, 0022, 0777};
    char yaml[512];
    (void)state;
    mode_t mask = umask(0);
    for (size_t i = 0; i < BR_COUNT(masks); i++) {
        char name[16], file[32];
        (void)snprintf(name, sizeof name, "m%zu", i);
        (void)snprintf(file, sizeof file, "%s/t.json", name);
        (void)snprintf(yaml, sizeof yaml, "{path: %s/%s, create_directory: true}", directory, file);
        (void)umask(masks[i]);
        assert_string_equal(rig_start_error(&br_file_exporter, yaml), "");
        assert_int_equal(mode_of(name), 0700);
        assert_int_equal(mode_of(file), 0600);
        assert_int_equal(chmod(path(file), 0640), 0);
        assert_string_equal(rig_start_error(&br_file_exporter, yaml), "");
        assert_int_equal(mode_of(file), 0640);
    }
    (void)umask(mask);
}

/* All workers share one file. Two exporters cannot use the same path. */
static void shared(void **state)
{
    (void)state;
    struct rig *r = start("");
    r->host.shared = br_shared_new();
    struct file_writer_config config = {.path = path("s.json"), .owner = "file/a"};
    struct file_writer_config other = {.path = config.path, .owner = "file/b"};
    struct file_writer *a, *b;
    struct br_err err = {0};
    struct file_record record = {.data = {"a", "bc", "\n"}, .len = {1, 2, 1}};
    assert_int_equal(file_writer_open(&r->host, &config, &a, &err), 0);
    assert_int_equal(file_writer_open(&r->host, &config, &b, &err), 0);
    assert_ptr_equal(a, b);
    assert_int_equal(file_writer_open(&r->host, &other, &b, &err), BR_EINVAL);
    assert_non_null(strstr(err.text, "file/a also writes to"));
    file_writer_close(&r->host, a);
    assert_int_equal(file_writer_put(a, &record, 0), 0);
    file_writer_close(&r->host, a);
    assert_content("s.json", "abc\n");
    assert_int_equal(file_writer_open(&r->host, &other, &b, &err), 0);
    file_writer_close(&r->host, b);
    br_shared_free(r->host.shared);
    r->host.shared = NULL;
    rig_free(r);
}

struct job {
    struct file_writer *w;
    char letter;
};

static void *write_many(void *arg)
{
    const struct job *j = arg;
    char text[100];
    memset(text, j->letter, sizeof text);
    struct file_record record = {.data = {text, text, "\n"}, .len = {50, 50, 1}};
    for (int i = 0; i < 500; i++)
        if (file_writer_put(j->w, &record, NOW_NS))
            abort();
    return NULL;
}

/* Records from several threads are not mixed, even across rotations. */
static void threads(void **state)
{
    (void)state;
    struct rig *r = start("");
    struct file_writer_config config = {
        .path = path("m.json"), .owner = "file", .max_bytes = 10000};
    struct job jobs[4];
    pthread_t ids[4];
    assert_int_equal(file_writer_open(&r->host, &config, &jobs[0].w, NULL), 0);
    for (int i = 0; i < 4; i++) {
        jobs[i] = (struct job){jobs[0].w, (char)('a' + i)};
        assert_int_equal(pthread_create(&ids[i], NULL, write_many, &jobs[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(ids[i], NULL), 0);
    file_writer_close(&r->host, jobs[0].w);
    rig_free(r);
    assert_int_equal(unlink(path("t.json")), 0);
    unsigned counts[4] = {0}, files = 0;
    DIR *d = opendir(directory);
    for (const struct dirent *e; (e = readdir(d));) {
        static char text[20000];
        if (e->d_name[0] == '.')
            continue;
        size_t n = contents(e->d_name, text, sizeof text);
        assert_in_range(n, 1, 10000);
        for (size_t at = 0; at < n; at += 101) {
            for (size_t i = 0; i < 100; i++)
                assert_int_equal(text[at + i], text[at]);
            assert_int_equal(text[at + 100], '\n');
            counts[text[at] - 'a']++;
        }
        files++;
    }
    (void)closedir(d);
    for (int i = 0; i < 4; i++)
        assert_int_equal(counts[i], 500);
    assert_int_equal(files, (2000 + 98) / 99); /* a file holds 99 records of 101 bytes */
}

/* --- Rotation -------------------------------------------------------------------------------- */

static void backup_names(void **state)
{
    (void)state;
    char out[PATH_MAX];
    assert_true(file_backup_name("/a.b/traces.json", NOW_NS + 1002003004, false, out));
    assert_string_equal(out, "/a.b/traces-2026-01-01T00-00-01.002.json");
    assert_true(file_backup_name("traces", NOW_NS, false, out));
    assert_string_equal(out, "traces-2026-01-01T00-00-00.000");
    assert_true(file_backup_name("/a.b/traces", NOW_NS, false, out));
    assert_string_equal(out, "/a.b/traces-2026-01-01T00-00-00.000");
    assert_int_equal(setenv("TZ", "XXX-2", 1), 0); /* two hours east */
    tzset();
    assert_true(file_backup_name("t.json", NOW_NS, true, out));
    assert_string_equal(out, "t-2026-01-01T02-00-00.000.json");
}

static void rotation(void **state)
{
    (void)state;
    struct rig *r = start("rotation: {max_megabytes: 1}");
    static char name[400001];
    memset(name, 'x', sizeof name - 1);
    struct br_str json = {0};
    br_str_printf(&json, "{\"resourceSpans\":[{\"schemaUrl\":\"%s\"}]}", name);
    for (int i = 0; i < 3; i++)
        send(r, BR_TRACES, json.data); /* two requests fit into a MiB */
    assert_int_equal(count_files(), 2);
    for (int i = 0; i < 4; i++)
        send(r, BR_TRACES, json.data); /* this rotation is in the same millisecond */
    assert_int_equal(count_files(), 4);
    struct stat st;
    assert_int_equal(stat(path("t-2026-01-01T00-00-00.000.json"), &st), 0);
    assert_int_equal(st.st_size, 2 * (json.len + 1));
    assert_int_equal(stat(path("t-2026-01-01T00-00-00.002.json"), &st), 0);
    assert_int_equal(stat(path("t.json"), &st), 0);
    assert_int_equal(st.st_size, json.len + 1);
    assert_int_equal(mode_of("t-2026-01-01T00-00-00.000.json"), 0600);
    assert_int_equal(mode_of("t.json"), 0600);
    assert_int_equal(chmod(path("t.json"), 0640), 0);
    for (int i = 0; i < 2; i++)
        send(r, BR_TRACES, json.data);
    assert_int_equal(count_files(), 5);
    assert_int_equal(mode_of("t.json"), 0640); /* the new file keeps the mode of the old one */
    br_str_release(&json);
    rig_free(r);
}

static void pruning(void **state)
{
    static const char *const ours[] = {
        "t-2026-01-01T00-00-00.000.json", "t-2025-12-31T00-00-00.001.json",
        "t-2025-12-31T00-00-00.000-size.json", "t-2025-12-20T00-00-00.000.json",
        "t-2025-01-01T00-00-00.000.json"};
    static const char *const others[] = {
        "t.json", "t-2025-01-01.json", "u-2025-01-01T00-00-00.000.json",
        "t-2025-01-01T00-00-00.000.txt", "t-2025-01-01T00-00-00.000x.json"};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(ours); i++)
        put_file(ours[i], "");
    for (size_t i = 0; i < BR_COUNT(others); i++)
        put_file(others[i], "");
    file_backups_prune(path("t.json"), NOW_NS, false, 0, 0);
    assert_int_equal(count_files(), 10);
    file_backups_prune(path("t.json"), NOW_NS, false, 0, 20);
    assert_int_equal(count_files(), 9);
    assert_int_not_equal(access(path(ours[4]), F_OK), 0);
    file_backups_prune(path("t.json"), NOW_NS, false, 2, 0);
    assert_int_equal(count_files(), 7);
    assert_int_equal(access(path(ours[0]), F_OK), 0);
    assert_int_equal(access(path(ours[1]), F_OK), 0);
    for (size_t i = 0; i < BR_COUNT(others); i++)
        assert_int_equal(access(path(others[i]), F_OK), 0);
    file_backups_prune(path("t.json"), NOW_NS + 2 * DAY_NS, false, 100, 1);
    assert_int_equal(count_files(), 5);
}

/* --- Failures -------------------------------------------------------------------------------- */

/* If the disk is full, the sender is asked to retry, and the file does not contain an incomplete
 * line. When there is space again, writing continues. */
static void full(void **state)
{
    (void)state;
    struct rlimit before, limit;
    struct rig *r = start("");
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    send(r, BR_TRACES, TRACE("a"));
    limit = before;
    limit.rlim_cur = strlen(TRACE("a")) + 1 + 10;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int i = 0; i < 2; i++) {
        rig_send(r, rig_item(r, BR_TRACES, TRACE("b")));
        assert_int_equal(r->outcome.verdict, BR_RETRY);
        assert_int_equal(r->outcome.status, BR_STATUS_UNAVAILABLE);
        assert_non_null(strstr(r->outcome.text, "File too large"));
        assert_content("t.json", TRACE("a") "\n");
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    send(r, BR_TRACES, TRACE("c"));
    assert_content("t.json", TRACE("a") "\n" TRACE("c") "\n");
    rig_free(r);
}

/* Devices and pipes do not have a size and cannot be truncated. */
static void not_a_regular_file(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_file_exporter, "{path: /dev/full, rotation: {}}");
    rig_send(r, rig_item(r, BR_TRACES, TRACE("b")));
    assert_int_equal(r->outcome.verdict, BR_RETRY);
    assert_non_null(strstr(r->outcome.text, "/dev/full: No space left on device"));
    rig_free(r);
    r = rig_new(&br_file_exporter, "{path: /dev/null, rotation: {}}");
    send(r, BR_TRACES, TRACE("b"));
    rig_free(r);
}

/* --- FIFOs ----------------------------------------------------------------------------------- */

static struct rig *start_fifo(void)
{
    assert_int_equal(mkfifo(path("t.json"), 0600), 0);
    return start("");
}

static int read_fifo(void)
{
    int fd = open(path("t.json"), O_RDONLY | O_NONBLOCK);
    assert_true(fd >= 0);
    return fd;
}

static void fifo_has(int fd, const char *want)
{
    char got[256];
    ssize_t n = read(fd, got, sizeof got - 1);
    assert_true(n >= 0);
    got[n] = '\0';
    assert_string_equal(got, want);
}

/* If no process reads the FIFO, neither the start nor a request waits for a reader. If a process
 * reads it, the FIFO works like a file. */
static void fifo_without_reader(void **state)
{
    (void)state;
    struct rig *r = start_fifo();
    (void)signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < 2; i++) {
        rig_send(r, rig_item(r, BR_TRACES, TRACE("a")));
        assert_int_equal(r->outcome.verdict, BR_RETRY);
        assert_non_null(strstr(r->outcome.text, "t.json: no process reads"));
    }
    int fd = read_fifo();
    send(r, BR_TRACES, TRACE("b"));
    fifo_has(fd, TRACE("b") "\n");
    (void)close(fd); /* the next write detects that there is no reader */
    rig_send(r, rig_item(r, BR_TRACES, TRACE("c")));
    assert_int_equal(r->outcome.verdict, BR_RETRY);
    fd = read_fifo();
    send(r, BR_TRACES, TRACE("d"));
    fifo_has(fd, TRACE("d") "\n");
    (void)close(fd);
    rig_free(r);
}

/* A request that fits only partly into the pipe waits for the reader, and so do later requests. */
static void fifo_that_is_full(void **state)
{
    (void)state;
    enum { NAME = 100000 }; /* bytes; a pipe has room for 65,536 (pipe(7)) */
    static char json[NAME + 200], got[NAME + 200], name[NAME + 1];
    struct rig *r = start_fifo();
    int fd = read_fifo();
    memset(name, 'x', NAME);
    int len =
        snprintf(json, sizeof json,
                 "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"name\":\"%s\"}]}]}]}", name);
    rig_send(r, rig_item(r, BR_TRACES, json));
    assert_int_equal(r->n_ended, 0);
    rig_send(r, rig_item(r, BR_TRACES, TRACE("b")));
    assert_int_equal(r->n_ended, 0);
    json[len++] = '\n';
    len += snprintf(json + len, sizeof json - (size_t)len, "%s\n", TRACE("b"));
    for (int at = 0; at < len;) {
        ssize_t n = read(fd, got + at, sizeof got - (size_t)at);
        assert_true(n > 0);
        at += (int)n;
        r->now_ms += 100;
        rig_turn(r);
    }
    assert_int_equal(r->n_ended, 2);
    assert_int_equal(r->outcome.verdict, BR_DONE);
    assert_memory_equal(got, json, (size_t)len);
    (void)close(fd);
    rig_free(r);
}

/* At shutdown, a request that was only partly written to the pipe is returned to its sender as
 * retryable. */
static void fifo_that_stays_full(void **state)
{
    (void)state;
    enum { NAME = 10000 };
    static char json[NAME + 200], name[NAME + 1];
    struct rig *r = start_fifo();
    int fd = read_fifo();
    unsigned n_sent = 0;
    memset(name, 'x', NAME);
    (void)snprintf(json, sizeof json,
                   "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"name\":\"%s\"}]}]}]}",
                   name);
    do
        rig_send(r, rig_item(r, BR_TRACES, json));
    while (r->n_ended == ++n_sent && n_sent < 100 && r->outcome.verdict == BR_DONE);
    assert_in_range(n_sent, 2, 65536 / NAME + 1); /* pipe(7): 65,536 bytes */
    r->drained = true;                            /* this is the state after the shutdown timeout */
    rig_free(r);                                  /* this fails unless all items have finished */
    (void)close(fd);
}

/* --- Deleted or replaced --------------------------------------------------------------------- */

/* An acknowledged request is in the file that has the path, even if another file had this path in
 * the meantime. */
static void deleted(void **state)
{
    (void)state;
    struct rig *r = start("rotation: {}");
    send(r, BR_TRACES, TRACE("a"));
    assert_int_equal(unlink(path("t.json")), 0);
    send(r, BR_TRACES, TRACE("b"));
    assert_content("t.json", TRACE("b") "\n");
    assert_int_equal(rename(path("t.json"), path("t.old")), 0); /* as logrotate does */
    send(r, BR_TRACES, TRACE("c"));
    assert_content("t.old", TRACE("b") "\n");
    assert_content("t.json", TRACE("c") "\n");
    put_file("other", "other\n");
    assert_int_equal(rename(path("other"), path("t.json")), 0);
    send(r, BR_TRACES, TRACE("d"));
    assert_content("t.json", "other\n" TRACE("d") "\n");
    rig_free(r);
}

/* While the directory is missing and may not be created, requests are rejected. */
static void directory_deleted(void **state)
{
    (void)state;
    char yaml[512];
    for (int makes = 0; makes < 2; makes++) {
        assert_int_equal(mkdir(path("d"), 0700), 0);
        (void)snprintf(yaml, sizeof yaml, "{path: %s/d/t.json, create_directory: %s}", directory,
                       makes ? "true" : "false");
        struct rig *r = rig_new(&br_file_exporter, yaml);
        assert_int_equal(unlink(path("d/t.json")), 0);
        assert_int_equal(rmdir(path("d")), 0);
        rig_send(r, rig_item(r, BR_TRACES, TRACE("a")));
        assert_int_equal(r->outcome.verdict, makes ? BR_DONE : BR_RETRY);
        if (!makes) {
            assert_non_null(strstr(r->outcome.text, "No such file"));
            assert_int_equal(mkdir(path("d"), 0700), 0);
            send(r, BR_TRACES, TRACE("a"));
        }
        assert_content("d/t.json", TRACE("a") "\n");
        rig_free(r);
        assert_int_equal(unlink(path("d/t.json")), 0);
        assert_int_equal(rmdir(path("d")), 0);
    }
}

/* --- One file per value ---------------------------------------------------------------------- */

static struct br_work *kept_work; /* work that no thread has run yet; NULL: none */

static bool keep_work(struct br_host *host, struct br_work *work)
{
    (void)host;
    kept_work = work;
    return true;
}

/* Many requests without records wait behind a request that is being written. They do not delay the
 * drain. */
static void no_group_while_busy(void **state)
{
    (void)state;
    const char *json = TRACE("a");
    char yaml[512];
    (void)snprintf(yaml, sizeof yaml,
                   "{path: %s/*.json, group_by: {enabled: true, resource_attribute: team}}",
                   directory);
    struct rig *r = rig_new(&br_file_exporter, yaml);
    struct br_host_ops ops = *r->host.ops;
    struct br_shared *shared = br_shared_new();
    r->host.shared = shared;
    ops.work = keep_work;
    r->host.ops = &ops;
    br_consume(&r->node.input,
               rig_item(r, BR_TRACES,
                        "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":\"team\","
                        "\"value\":{\"stringValue\":\"t\"}}]},\"scopeSpans\":[{\"spans\":[{"
                        "\"name\":\"a\"}]}]}]}"));
    for (int i = 0; i < 200; i++)
        br_consume(&r->node.input, rig_item(r, BR_TRACES, json));
    r->node.draining = true;
    br_file_exporter.drain(&r->node);
    assert_non_null(kept_work);
    kept_work->run(kept_work);
    kept_work->done(kept_work);
    rig_turn(r);
    assert_true(r->drained);
    assert_int_equal(*r->host.ledger.held[BR_TRACES], 0);
    rig_free(r);
    br_shared_free(shared);
    assert_int_equal(unlink(path("t.json")), 0);
}

/* There are more files than the exporter may keep open. */
static void many_groups(void **state)
{
    (void)state;
    char yaml[512], json[256], want[600], name[32];
    (void)snprintf(yaml, sizeof yaml,
                   "{path: %s/*.json, group_by: {enabled: true, resource_attribute: team, "
                   "max_open_files: 70}}",
                   directory);
    struct rig *r = rig_new(&br_file_exporter, yaml);
    r->host.shared = br_shared_new();
    for (int i = 0; i < 200; i++) {
        (void)snprintf(json, sizeof json,
                       "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":\"team\","
                       "\"value\":{\"stringValue\":\"t%d\"}}]},\"scopeSpans\":[{\"spans\":[{"
                       "\"name\":\"a\"}]}]}]}",
                       i % 100);
        send(r, BR_TRACES, json);
        if (i >= 100) {
            (void)snprintf(name, sizeof name, "t%d.json", i % 100);
            (void)snprintf(want, sizeof want, "%s\n%s\n", json, json);
            assert_content(name, want);
        }
    }
    assert_int_equal(count_files(), 100);
    br_shared_free(r->host.shared);
    r->host.shared = NULL;
    rig_free(r);
}

static void wrong_configs(void **state)
{
    static const char *const configs[][2] = {
        {"{}", "\"path\" is missing"},
        {"{path: ''}", "x::path: must not be empty"},
        {"{path: a, format: xml}", "x::format: must be one of json, proto, got \"xml\""},
        {"{path: a, compression: gzip}", "x::compression: must be one of none, zstd"},
        {"{path: a, append: true, rotation: }", "x::append: and rotation cannot be used together"},
        {"{path: a, directory_permissions: 0755}", "needs create_directory: true"},
        {"{path: a, create_directory: true, directory_permissions: 0789}", "must be an octal mode"},
        {"{path: a, create_directory: true, directory_permissions: 7777}", "must be an octal mode"},
        {"{path: a, group_by: {enabled: true}}", "x::path: must have exactly one *"},
        {"{path: a, encoding: otlp}", "x::encoding: is not supported"},
        {"{path: a, flush_interval: 5s}", "warning: test.yaml:1:11: x::flush_interval: is read"},
    };
    (void)state;
    rig_expect_errors_in(&br_file_exporter, configs, BR_COUNT(configs));
    assert_string_equal(rig_errors(&br_file_exporter,
                                   "{path: a, rotation: {max_megabytes: 10, "
                                   "max_days: 3, max_backups: 3, localtime: true}}"),
                        "");
}

SUITE(file)
{
    const struct CMUnitTest tests[] = {
        TEST(lines),
        TEST(references),
        TEST(proto),
        TEST(zstd),
        TEST(truncates_or_appends),
        TEST(directories),
        TEST(modes),
        TEST(shared),
        TEST(threads),
        TEST(rotation),
        TEST(pruning),
        TEST(full),
        TEST(not_a_regular_file),
        TEST(fifo_without_reader),
        TEST(fifo_that_is_full),
        TEST(fifo_that_stays_full),
        TEST(deleted),
        TEST(directory_deleted),
        TEST(many_groups),
        TEST(no_group_while_busy),
        TEST(wrong_configs),
        TEST(backup_names),
    };
    return RUN(tests, NULL, NULL);
}
