/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the receiver pprof with directories. The files are real files in a temporary directory. The
 * test sets the clock. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "ingest/pieces.h"
#include "receivers/pprof/read_files.h"
#include "tests/support/fault.h"
#include "tests/support/pprof_wire.h"
#include "tests/support/receiver_rig.h"
#include "tests/support/test.h"

extern const struct br_component br_pprof_receiver;

#define FOLDED "main;work 3\nmain;rest 1\n"

struct fixture {
    struct receiver_rig rig;
    char directory[64], done[80]; /* paths; `done` is a directory inside `directory` */
};

static const char *path_of(const struct fixture *f, const char *name)
{
    static char path[300];
    (void)snprintf(path, sizeof path, "%s/%s", f->directory, name);
    return path;
}

static void put(const struct fixture *f, const char *name, const void *data, size_t len)
{
    FILE *file = fopen(path_of(f, name), "we");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

static void put_text(const struct fixture *f, const char *name, const char *text)
{
    put(f, name, text, strlen(text));
}

static bool exists(const struct fixture *f, const char *name)
{
    return access(path_of(f, name), F_OK) == 0;
}

static const char *config(const struct fixture *f, const char *more)
{
    static char yaml[400];
    (void)snprintf(yaml, sizeof yaml,
                   "{file: {path: %s, poll_interval: 1s, labels: {service_name: batch}%s}}",
                   f->directory, more);
    return yaml;
}

static void start(struct fixture *f, const char *more)
{
    receiver_rig_start(&f->rig, &br_pprof_receiver, config(f, more));
}

static void end(struct fixture *f)
{
    receiver_rig_drain(&f->rig);
    assert_true(f->rig.drained);
    receiver_rig_end(&f->rig);
}

static void make_directory(struct fixture *f)
{
    (void)snprintf(f->directory, sizeof f->directory, "/tmp/braid-directory-XXXXXX");
    assert_non_null(mkdtemp(f->directory));
    (void)snprintf(f->done, sizeof f->done, "%s/done", f->directory);
    assert_int_equal(mkdir(f->done, 0700), 0);
}

static void empty(const char *directory)
{
    DIR *dir = opendir(directory);
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir))
        (void)unlinkat(dirfd(dir), e->d_name, 0);
    (void)closedir(dir);
}

static void remove_directory(struct fixture *f)
{
    empty(f->done);
    (void)rmdir(f->done);
    empty(f->directory);
    assert_int_equal(rmdir(f->directory), 0);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    make_directory(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    remove_directory(*state);
    free(*state);
    return 0;
}

static double files(struct fixture *f, const char *result)
{
    char labels[64];
    (void)snprintf(labels, sizeof labels, "receiver=\"pprof\",result=\"%s\"", result);
    return fake_host_metric(f->rig.h, "braid_receiver_pprof_files", labels);
}

/* --- Formats ---------------------------------------------------------------------------------- */

/* At 100 Hz, a count stands for 10 ms. */
static void test_folded_text(void **state)
{
    struct fixture *f = *state;
    put_text(f, "a.folded", FOLDED);
    start(f, "");
    fake_host_advance(f->rig.h, 2000);
    assert_int_equal(f->rig.n, 1);
    receiver_rig_expect_in(&f->rig, "service.name=batch");
    receiver_rig_expect_in(&f->rig, "main;rest 10000000\nmain;work 30000000\n");
    assert_true(exists(f, "a.folded"));
    assert_float_equal(files(f, "ok"), 1, 0);
    assert_float_equal(fake_host_metric(f->rig.h, "otelcol_receiver_accepted_profile_samples",
                                        "receiver=\"pprof\",sample_type=\"cpu:nanoseconds\","
                                        "transport=\"file\""),
                       2, 0);
    end(f);
}

static void test_sample_rate(void **state)
{
    struct fixture *f = *state;
    put_text(f, "a.folded", FOLDED);
    start(f, ", sample_rate: 1000");
    fake_host_advance(f->rig.h, 2000);
    receiver_rig_expect_in(&f->rig, "main;rest 1000000\nmain;work 3000000\n");
    end(f);
}

static void copy(const struct fixture *f, const char *from, const char *name)
{
    static char data[65536];
    FILE *file = fopen(from, "re");
    assert_non_null(file);
    size_t n = fread(data, 1, sizeof data, file);
    assert_true(n > 0 && n < sizeof data);
    (void)fclose(file);
    put(f, name, data, n);
}

/* The totals printed by `go tool pprof` are in tests/data/pprof/cpu.txt. */
static void test_pprof_of_go(void **state)
{
    struct fixture *f = *state;
    copy(f, "tests/data/pprof/cpu.pb.gz", "cpu.pb.gz");
    start(f, "");
    fake_host_advance(f->rig.h, 2000);
    assert_int_equal(f->rig.n, 1);
    receiver_rig_expect_in(&f->rig, "profile samples count");
    receiver_rig_expect_in(&f->rig, "profile cpu nanoseconds");
    end(f);
}

static void test_speedscope(void **state)
{
    struct fixture *f = *state;
    put_text(
        f, "a.json",
        "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"shared\":"
        "{\"frames\":[{\"name\":\"main\"}]},\"profiles\":[{\"type\":\"sampled\",\"name\":\"p\","
        "\"unit\":\"milliseconds\",\"startValue\":0,\"endValue\":7,\"samples\":[[0]],"
        "\"weights\":[7]}]}");
    start(f, "");
    fake_host_advance(f->rig.h, 2000);
    receiver_rig_expect_in(&f->rig, "main 7");
    end(f);
}

/* --- When files are read ---------------------------------------------------------------------- */

static void append(const struct fixture *f, const char *name, const char *text)
{
    FILE *file = fopen(path_of(f, name), "ae");
    assert_non_null(file);
    assert_int_equal(fputs(text, file) >= 0, 1);
    assert_int_equal(fclose(file), 0);
}

static void test_a_file_is_read_when_it_stops_changing(void **state)
{
    struct fixture *f = *state;
    start(f, ", after: delete");
    put_text(f, "a", "main;work");
    fake_host_advance(f->rig.h, 1000); /* first scan */
    for (int i = 0; i < 5; i++) {
        append(f, "a", ";deeper");
        fake_host_advance(f->rig.h, 1000);
        assert_int_equal(f->rig.n, 0);
    }
    append(f, "a", " 2\n");
    fake_host_advance(f->rig.h, 1000);
    assert_int_equal(f->rig.n, 0);
    fake_host_advance(f->rig.h, 1000);
    assert_int_equal(f->rig.n, 1);
    receiver_rig_expect_in(&f->rig, "main;work;deeper;deeper;deeper;deeper;deeper 20000000\n");
    assert_false(exists(f, "a"));
    end(f);
}

/* While load shedding (extension adaptive) is active at any step, files are not read. */
static void test_files_wait_while_profiles_are_shed(void **state)
{
    struct fixture *f = *state;
    start(f, ", after: delete");
    br_shed_set(&f->rig.h->host, BR_SHED_HALF, 0);
    put_text(f, "a", "main;work 2\n");
    fake_host_advance(f->rig.h, 20000);
    assert_int_equal(f->rig.n, 0);
    br_shed_set(&f->rig.h->host, BR_SHED_NONE, 0);
    fake_host_advance(f->rig.h, 2000);
    assert_int_equal(f->rig.n, 1);
    assert_false(exists(f, "a"));
    end(f);
}

static void test_an_empty_file_is_not_read(void **state)
{
    struct fixture *f = *state;
    start(f, ", after: delete");
    put_text(f, "a", "");
    fake_host_advance(f->rig.h, 5000);
    assert_true(exists(f, "a"));
    assert_true(files(f, "ok") == 0 && files(f, "failed") == 0);
    end(f);
}

static void test_ignored_files(void **state)
{
    struct fixture *f = *state;
    put_text(f, ".hidden", FOLDED);
    put_text(f, "a.tmp", FOLDED);
    put_text(f, "a.part", FOLDED);
    assert_int_equal(symlink(".hidden", path_of(f, "link")), 0);
    assert_int_equal(mkfifo(path_of(f, "fifo"), 0600), 0);
    start(f, ", after: delete");
    fake_host_advance(f->rig.h, 5000);
    assert_int_equal(f->rig.n, 0);
    assert_true(files(f, "ok") == 0 && files(f, "failed") == 0);
    assert_int_equal(rename(path_of(f, "a.tmp"), "/tmp/braid-directory-x"), 0);
    assert_int_equal(rename("/tmp/braid-directory-x", path_of(f, "a.folded")), 0);
    fake_host_advance(f->rig.h, 2000);
    assert_int_equal(f->rig.n, 1);
    end(f);
}

/* --- After reading ---------------------------------------------------------------------------- */

static void test_a_file_is_read_again_after_a_change(void **state)
{
    struct fixture *f = *state;
    put_text(f, "a", FOLDED);
    start(f, "");
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(f->rig.n, 1);
    append(f, "a", "main 5\n");
    fake_host_advance(f->rig.h, 3000);
    assert_int_equal(f->rig.n, 2);
    end(f);
}

/* After a restart, only new and changed files are read. */
static void test_a_restart_reads_no_file_twice(void **state)
{
    struct fixture *f = *state;
    put_text(f, "a", FOLDED);
    put_text(f, "b %\n\xff", FOLDED);
    put(f, "c", "\x01", 1); /* not a profile; the error is reported again after a restart */
    start(f, "");
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(f->rig.n, 2);
    end(f);
    put_text(f, "d", FOLDED);
    start(f, "");
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(f->rig.n, 1);
    assert_float_equal(files(f, "failed"), 1, 0);
    append(f, "a", "main 5\n");
    fake_host_advance(f->rig.h, 3000);
    assert_int_equal(f->rig.n, 2);
    end(f);
    /* a crash left an incomplete line at the end of the list */
    append(f, ".braid-taken", "1 2 3 4 5 a");
    start(f, "");
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(f->rig.n, 0);
    end(f);
    start(f, ""); /* the incomplete line is ignored again */
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(f->rig.n, 0);
    end(f);
}

static void count_line(void *arg, const char *name, const struct pprof_file_state *state)
{
    unsigned *n = arg;
    (*n)++;
    assert_string_equal(name, "a");
    assert_int_equal(state->identity.size, 1);
    assert_int_equal(state->mark.hash, 5);
}

/* Each line of the list of files that were read consists of five numbers and a name, separated by
 * single spaces. Lines of any other form are ignored. */
static void test_invalid_lines_of_the_list(void **state)
{
    static const char *const lines[] = {
        "1 2 3 4 5 a\n",  " 2 3 4 5 a\n", "1  3 4 5 a\n", "1 2 3 4  a\n",   "1 2 3 4 5\n",
        "1 2 3 4 5 \n",   "1 2 3 4\n",    "\n",           "1 2 3 4 x5 a\n", "-1 2 3 4 5 a\n",
        "1 2 3 4 5x a\n", " \n",          "1 2 3 4 5 a\n"};
    struct fixture *f = *state;
    struct pprof_read_files *list = NULL;
    struct br_err err = {0};
    unsigned n = 0;
    for (size_t i = 0; i < BR_COUNT(lines); i++)
        append(f, "list", lines[i]);
    assert_int_equal(pprof_read_files_open(path_of(f, "list"), &list, &err), 0);
    assert_true(pprof_read_files_load(list, count_line, &n));
    assert_int_equal(n, 2);
    assert_int_equal(pprof_read_files_lines(list), BR_COUNT(lines));
    pprof_read_files_close(list);
    assert_int_equal(unlink(path_of(f, "list")), 0);
}

/* Names of deleted files are removed from the list. */
static void test_the_list_is_rewritten(void **state)
{
    struct fixture *f = *state;
    char name[32];
    struct stat before, after;
    put_text(f, "a", FOLDED);
    for (unsigned i = 0; i < 2000; i++) {
        (void)snprintf(name, sizeof name, "1 %u 3 0 0 gone%u\n", i, i);
        append(f, ".braid-taken", name);
    }
    assert_int_equal(stat(path_of(f, ".braid-taken"), &before), 0);
    for (int n = 0; n < 2; n++) {
        start(f, "");
        fake_host_advance(f->rig.h, 10000);
        assert_int_equal(f->rig.n, n == 0);
        end(f);
        assert_int_equal(stat(path_of(f, ".braid-taken"), &after), 0);
        assert_true(after.st_size < 100 && before.st_size > 20000);
    }
}

static void test_path_of_the_list(void **state)
{
    struct fixture *f = *state;
    char more[128];
    put_text(f, "a", FOLDED);
    (void)snprintf(more, sizeof more, ", state: %s/list", f->done);
    for (int n = 0; n < 2; n++) {
        start(f, more);
        fake_host_advance(f->rig.h, 10000);
        assert_int_equal(f->rig.n, n == 0);
        end(f);
    }
    assert_true(exists(f, "done/list"));
    assert_false(exists(f, ".braid-taken"));
}

/* If a file of folded text grows, lines that were counted before are not counted again. */
static void test_folded_text_that_grows(void **state)
{
    struct fixture *f = *state;
    put_text(f, "a", FOLDED);
    start(f, "");
    fake_host_advance(f->rig.h, 10000);
    receiver_rig_expect_in(&f->rig, "main;rest 10000000\nmain;work 30000000\n");
    append(f, "a", "main;later 2\n");
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(f->rig.n, 2);
    receiver_rig_expect_in(&f->rig, "main;later 20000000\n");
    assert_false(receiver_rig_has_bytes(&f->rig, "work"));
    end(f);
    append(f, "a", "main;last 1"); /* a line without a line end; then the receiver is restarted */
    start(f, "");
    fake_host_advance(f->rig.h, 10000);
    receiver_rig_expect_in(&f->rig, "main;last 10000000\n");
    assert_false(receiver_rig_has_bytes(&f->rig, "later"));
    /* the value of the line is now 17, of which 1 was counted */
    append(f, "a", "7\nmain;more 1\nmain;cut");
    fake_host_advance(f->rig.h, 10000);
    receiver_rig_expect_in(&f->rig, "main;last 160000000\nmain;more 10000000\n");
    /* the last line of the file was incomplete, so it was not counted before */
    append(f, "a", "ting 3\nmain;x 5");
    fake_host_advance(f->rig.h, 10000);
    receiver_rig_expect_in(&f->rig, "main;cutting 30000000\nmain;x 50000000\n");
    /* a further digit, so the value becomes 50; the line was already counted */
    append(f, "a", "0 2\nmain;end 1\n");
    fake_host_advance(f->rig.h, 10000);
    receiver_rig_expect_in(&f->rig, "main;end 10000000\n");
    assert_float_equal(files(f, "failed"), 0, 0);
    put_text(f, "a", "main;other 4\n" FOLDED); /* another file with the same name */
    fake_host_advance(f->rig.h, 10000);
    receiver_rig_expect_in(&f->rig,
                           "main;other 40000000\nmain;rest 10000000\nmain;work 30000000\n");
    end(f);
}

static void rename_to(const struct fixture *f, const char *from, const char *to)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s/%s", f->directory, from);
    assert_int_equal(rename(path, path_of(f, to)), 0);
}

/* Sets the modification time of a file. */
static void touch(const struct fixture *f, const char *name, time_t seconds)
{
    const struct timespec times[] = {{seconds, 0}, {seconds, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path_of(f, name), times, 0), 0);
}

/* Log rotation renames files and starts a new file under the first name. */
static void test_a_renamed_file_is_the_same_file(void **state)
{
    struct fixture *f = *state;
    put_text(f, "a", FOLDED);
    copy(f, "tests/data/pprof/cpu.pb.gz", "b.pb.gz");
    start(f, "");
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(f->rig.n, 2);
    for (unsigned again = 0; again < 2; again++) { /* first while running, then after a restart */
        rename_to(f, "b.pb.gz", "c.pb.gz");
        rename_to(f, "a", "a.1");
        fake_host_advance(f->rig.h, 10000);
        rename_to(f, "a.1", "a.2");
        /* a new file with the name and the content that the first file had */
        put_text(f, "a.1", FOLDED);
        fake_host_advance(f->rig.h, 10000);
        assert_int_equal(f->rig.n, again ? 1 : 3);
        receiver_rig_expect_in(&f->rig, "main;rest 10000000\nmain;work 30000000\n");
        append(f, "a.2", "main;later 2\n"); /* the renamed file grows */
        fake_host_advance(f->rig.h, 10000);
        assert_int_equal(f->rig.n, again ? 2 : 4);
        receiver_rig_expect_in(&f->rig, "main;later 20000000\n");
        assert_false(receiver_rig_has_bytes(&f->rig, "work"));
        end(f);
        rename_to(f, "a.2", "a");
        rename_to(f, "a.1", "done/a");
        rename_to(f, "c.pb.gz", "b.pb.gz");
        start(f, "");
        fake_host_advance(f->rig.h, 10000);
        assert_int_equal(f->rig.n, 0);
    }
    assert_float_equal(files(f, "failed"), 0, 0);
    end(f);
}

/* Two files swap their names. To do so, one of them is renamed first to a name that the receiver
 * ignores. */
static void test_swapped_names(void **state)
{
    struct fixture *f = *state;
    put_text(f, "a", "main;first 1\n");
    put_text(f, "b", "main;second 1\n");
    start(f, "");
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(f->rig.n, 2);
    rename_to(f, "a", ".a");
    rename_to(f, "b", "a");
    fake_host_advance(f->rig.h, 10000);
    rename_to(f, ".a", "b");
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(f->rig.n, 2);
    end(f);
}

static void test_a_new_time_alone_is_not_a_change(void **state)
{
    struct fixture *f = *state;
    put_text(f, "a", FOLDED);
    copy(f, "tests/data/pprof/cpu.pb.gz", "b.pb.gz");
    start(f, "");
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(f->rig.n, 2);
    touch(f, "a", 1000000);
    touch(f, "b.pb.gz", 1000000);
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(f->rig.n, 2);
    assert_float_equal(files(f, "failed"), 0, 0);
    end(f);
}

/* A new file that reuses an inode number is recognized by its size or time. */
static void test_a_reused_inode_number(void **state)
{
    struct fixture *f = *state;
    struct stat before, after;
    put_text(f, "a", "main;first 1\n");
    start(f, "");
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(stat(path_of(f, "a"), &before), 0);
    /* the file is overwritten, so it keeps its inode number; the length is also the same */
    put_text(f, "a", "main;other 1\n");
    touch(f, "a", before.st_mtim.tv_sec + 7);
    rename_to(f, "a", "b");
    assert_int_equal(stat(path_of(f, "b"), &after), 0);
    assert_true(before.st_ino == after.st_ino && before.st_size == after.st_size);
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(f->rig.n, 2);
    receiver_rig_expect_in(&f->rig, "main;other 10000000\n");
    end(f);
}

static void test_a_file_may_be_renamed_while_it_is_sent(void **state)
{
    struct fixture *f = *state;
    put_text(f, "a", FOLDED);
    start(f, "");
    f->rig.hold = true;
    fake_host_advance(f->rig.h, 3000);
    rename_to(f, "a", "b");
    fake_host_advance(f->rig.h, 5000);
    f->rig.hold = false;
    receiver_rig_finish(&f->rig);
    fake_host_advance(f->rig.h, 5000);
    assert_int_equal(f->rig.n, 1);
    end(f);
}

static void test_moved(void **state)
{
    struct fixture *f = *state;
    char more[128];
    put_text(f, "a", FOLDED);
    put_text(f, "done/b", "old");
    put_text(f, "b", FOLDED);
    (void)snprintf(more, sizeof more, ", after: move, move_to: %s", f->done);
    start(f, more);
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(f->rig.n, 2);
    assert_false(exists(f, "a"));
    assert_true(exists(f, "done/a"));
    /* `b` stays, because done/b exists and no file is overwritten; `b` is read only once */
    assert_true(exists(f, "b"));
    end(f);
}

static void test_invalid_files_are_kept(void **state)
{
    struct fixture *f = *state;
    put_text(f, "a", "{\"neither\": 1}");
    put(f, "b", "\x1f\x8b\x08\x00 cut", 8);
    start(f, ", after: delete");
    fake_host_advance(f->rig.h, 5000);
    assert_int_equal(f->rig.n, 0);
    assert_float_equal(files(f, "failed"), 2, 0);
    assert_true(exists(f, "a") && exists(f, "b"));
    put_text(f, "a", FOLDED);
    fake_host_advance(f->rig.h, 3000);
    assert_int_equal(f->rig.n, 1);
    assert_false(exists(f, "a"));
    end(f);
}

static void test_a_file_that_is_too_large_is_kept(void **state)
{
    struct fixture *f = *state;
    char yaml[300], text[2000];
    memset(text, 'x', sizeof text);
    memcpy(text + sizeof text - 3, " 1\n", 3);
    put(f, "a", text, sizeof text);
    (void)snprintf(yaml, sizeof yaml, "{max_profile_size: 1999, file: {path: %s, after: delete}}",
                   f->directory);
    receiver_rig_start(&f->rig, &br_pprof_receiver, yaml);
    fake_host_advance(f->rig.h, 5000);
    assert_float_equal(files(f, "failed"), 1, 0);
    assert_true(exists(f, "a"));
    put(f, "a", text + 1, sizeof text - 1);
    fake_host_advance(f->rig.h, 3000);
    assert_float_equal(files(f, "ok"), 1, 0);
    end(f);
}

/* --- The pipeline ----------------------------------------------------------------------------- */

static void test_retryable_and_permanent_errors(void **state)
{
    struct fixture *f = *state;
    put_text(f, "a", FOLDED);
    start(f, ", after: delete");
    f->rig.outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "full");
    fake_host_advance(f->rig.h, 3500);
    assert_true(f->rig.n >= 2);
    assert_true(exists(f, "a"));
    f->rig.outcome = br_outcome_reject(BR_STATUS_INVALID_ARGUMENT, "no");
    unsigned before = f->rig.n;
    fake_host_advance(f->rig.h, 10000);
    assert_int_equal(f->rig.n, before + 1);
    assert_true(exists(f, "a"));
    assert_float_equal(files(f, "failed"), 1, 0);
    end(f);
}

static void test_drain_waits_for_the_pipeline(void **state)
{
    struct fixture *f = *state;
    put_text(f, "a", FOLDED);
    start(f, ", after: delete");
    f->rig.hold = true;
    fake_host_advance(f->rig.h, 2000);
    receiver_rig_drain(&f->rig);
    assert_false(f->rig.drained);
    receiver_rig_finish(&f->rig);
    assert_true(f->rig.drained);
    assert_false(exists(f, "a"));
    receiver_rig_end(&f->rig);
}

static void test_a_file_that_changes_while_it_is_sent_is_kept(void **state)
{
    struct fixture *f = *state;
    put_text(f, "a", FOLDED);
    start(f, ", after: delete");
    f->rig.hold = true;
    fake_host_advance(f->rig.h, 2000);
    append(f, "a", "main;more 1\n");
    f->rig.hold = false;
    receiver_rig_finish(&f->rig);
    assert_true(exists(f, "a"));
    fake_host_advance(f->rig.h, 3000);
    assert_int_equal(f->rig.n, 2);
    assert_false(exists(f, "a"));
    end(f);
}

static void test_destroyed_while_a_file_is_sent(void **state)
{
    struct fixture *f = *state;
    put_text(f, "a", FOLDED);
    start(f, ", after: delete");
    f->rig.hold = true;
    fake_host_advance(f->rig.h, 2000);
    receiver_rig_end(&f->rig);
    assert_true(exists(f, "a"));
}

/* The receiver waits for a directory that was removed. */
static void test_removed_directory(void **state)
{
    struct fixture *f = *state;
    start(f, "");
    remove_directory(f);
    fake_host_advance(f->rig.h, 5000);
    assert_int_equal(mkdir(f->directory, 0700), 0);
    assert_int_equal(mkdir(f->done, 0700), 0);
    put_text(f, "a", FOLDED);
    fake_host_advance(f->rig.h, 5000);
    assert_int_equal(f->rig.n, 1);
    end(f);
}

static void test_missing_directories(void **state)
{
    struct fixture *f = *state;
    char yaml[500], error[400];
    put_text(f, "a", FOLDED);
    for (int present = 0; present < 2; present++) {
        const char *path = path_of(f, present ? "a" : "b");
        const char *why = present ? " is not a directory" : ": No such file or directory";
        (void)snprintf(yaml, sizeof yaml, "file: {path: %s}", path);
        (void)snprintf(error, sizeof error, "file::path: %s%s", path, why);
        receiver_rig_refused(&br_pprof_receiver, yaml, error);
        (void)snprintf(yaml, sizeof yaml, "file: {path: %s, after: move, move_to: %s}",
                       f->directory, path);
        (void)snprintf(error, sizeof error, "file::move_to: %s%s", path, why);
        receiver_rig_refused(&br_pprof_receiver, yaml, error);
    }
}

/* --- In a thread ------------------------------------------------------------------------------ */

static void put_large(const struct fixture *f, const char *name)
{
    struct br_str text = {0};
    while (text.len < 300u << 10)
        br_str_puts(&text, FOLDED);
    assert_false(text.failed);
    put(f, name, text.data, text.len);
    br_str_release(&text);
}

/* Scans the directory twice. Afterwards one deferred work is left, which reads the first file. */
static void wait_for_reading(struct fixture *f)
{
    struct fake_host *h = f->rig.h;
    h->threads = true;
    fake_host_advance(h, 1);
    assert_int_equal(fake_host_work(h), 1); /* the first scan */
    fake_host_advance(h, 1000);
    assert_int_equal(fake_host_work(h), 1); /* the second scan */
    assert_int_equal(h->n_works, 1);
}

/* A thread does all disk access, one operation at a time, even for small files. */
static void test_files_are_read_in_a_thread(void **state)
{
    struct fixture *f = *state;
    struct fake_host *h;
    put_large(f, "large");
    put_text(f, "small", FOLDED);
    start(f, ", after: delete");
    h = f->rig.h;
    wait_for_reading(f);
    for (unsigned n = 0; n < 2; n++) {
        assert_int_equal(h->works[0]->kind, BR_WORK_DISK);
        assert_int_equal(f->rig.n, n);
        /* no other operation starts while the first one is in progress */
        fake_host_advance(h, 5000);
        assert_int_equal(h->n_works, 1);
        assert_true(exists(f, "large") && exists(f, "small"));
        assert_int_equal(fake_host_work(h), 1);
        fake_host_iterate(h);
    }
    assert_int_equal(f->rig.n, 2);
    assert_true(exists(f, "large") && exists(f, "small"));
    for (unsigned n = 0; n < 2; n++) { /* the deferred work deletes the files */
        assert_int_equal(h->works[0]->kind, BR_WORK_DISK);
        (void)fake_host_work(h);
    }
    assert_false(exists(f, "large") || exists(f, "small"));
    assert_float_equal(files(f, "ok"), 2, 0);
    h->threads = false;
    (void)fake_host_work(h);
    end(f);
}

/* A scan is done in parts of a limited number of files. In the end, all files are read. */
static void test_many_files(void **state)
{
    struct fixture *f = *state;
    enum { N = 12000, PART = 256 };
    struct fake_host *h;
    char name[32];
    for (unsigned i = 0; i < N; i++) {
        (void)snprintf(name, sizeof name, "f%u", i);
        put_text(f, name, "a;b 1\n");
    }
    start(f, "");
    h = f->rig.h;
    f->rig.quiet = true;
    h->threads = true;
    fake_host_advance(h, 1);
    unsigned n_parts = 0;
    for (; h->n_works; n_parts++)
        (void)fake_host_work(h);
    assert_in_range(n_parts, N / PART, N / PART + 1);
    h->threads = false;
    fake_host_advance(h, 1000);
    assert_int_equal(f->rig.n, N);
    fake_host_advance(h, 5000);
    end(f);
    start(f, ""); /* no file is read twice */
    f->rig.quiet = true;
    fake_host_advance(f->rig.h, 5000);
    assert_int_equal(f->rig.n, 0);
    end(f);
}

/* If the list of files that were read is deleted, it is written again. Otherwise all files would be
 * read again after a restart. */
static void test_a_deleted_list_is_written_again(void **state)
{
    struct fixture *f = *state;
    put_text(f, "a", FOLDED);
    start(f, "");
    fake_host_advance(f->rig.h, 3000);
    assert_int_equal(unlink(path_of(f, ".braid-taken")), 0);
    fake_host_advance(f->rig.h, 3000);
    end(f);
    start(f, "");
    fake_host_advance(f->rig.h, 5000);
    assert_int_equal(f->rig.n, 0);
    end(f);
}

/* Writes a pprof of 4 MiB that repeats one stack. Returns its number of samples. */
static unsigned put_pprof(const struct fixture *f, const char *name)
{
    struct wire w = {0};
    unsigned n = 64;
    pprof_wire_write(&w, &(struct pprof_wire){.types = {{"samples", "count"}},
                                              .n_types = 1,
                                              .samples = {{"work", {1}, 64}}});
    for (; w.len < 4u << 20; n++) {
        size_t sample = wire_open(&w, 2);
        wire_varint(&w, 1, 1);
        wire_varint(&w, 2, n);
        wire_close(&w, sample);
    }
    put(f, name, w.data, w.len);
    wire_free(&w);
    return n;
}

/* A large file is sent in several pieces, one per loop iteration. The file is deleted after the
 * last piece. */
static void test_large_files_are_sent_in_pieces(void **state)
{
    struct fixture *f = *state;
    unsigned pieces = put_pprof(f, "large") / (BR_PIECE_BYTES / BR_PIECE_SAMPLE_BYTES);
    start(f, ", after: delete");
    f->rig.quiet = true;
    wait_for_reading(f);
    assert_int_equal(fake_host_work(f->rig.h), 1);
    f->rig.h->threads = false;
    assert_int_equal(f->rig.n, 0);
    (void)br_host_iterate(&f->rig.h->host);
    assert_int_equal(f->rig.n, 1);
    assert_true(exists(f, "large"));
    fake_host_advance(f->rig.h, 1000);
    assert_in_range(f->rig.n, pieces, 2 * pieces);
    assert_false(exists(f, "large"));
    assert_float_equal(files(f, "ok"), 1, 0);
    end(f);
}

static void test_destroyed_while_pieces_are_sent(void **state)
{
    struct fixture *f = *state;
    put_pprof(f, "large");
    start(f, ", after: delete");
    f->rig.quiet = true;
    wait_for_reading(f);
    (void)fake_host_work(f->rig.h);
    (void)br_host_iterate(&f->rig.h->host);
    receiver_rig_end(&f->rig);
    assert_int_equal(f->rig.n, 1);
    assert_true(exists(f, "large"));
}

static void test_drain_waits_for_files(void **state)
{
    struct fixture *f = *state;
    put_large(f, "large");
    start(f, ", after: delete");
    wait_for_reading(f);
    receiver_rig_drain(&f->rig);
    assert_false(f->rig.drained);
    (void)fake_host_work(f->rig.h);
    fake_host_iterate(f->rig.h);
    assert_int_equal(f->rig.n, 1);
    assert_false(f->rig.drained);
    (void)fake_host_work(f->rig.h); /* the file is deleted */
    assert_true(f->rig.drained);
    assert_false(exists(f, "large"));
    receiver_rig_end(&f->rig);
}

static void test_destroyed_while_a_file_is_read(void **state)
{
    struct fixture *f = *state;
    put_large(f, "large");
    start(f, ", after: delete");
    wait_for_reading(f);
    receiver_rig_end(&f->rig);
    assert_int_equal(f->rig.n, 0);
    assert_true(exists(f, "large"));
}

/* If the profile of a file was accepted, the file is deleted. If no thread has deleted the file
 * before the receiver is destroyed, the receiver deletes it. */
static void test_destroyed_before_a_file_is_deleted(void **state)
{
    struct fixture *f = *state;
    put_text(f, "a", FOLDED);
    start(f, ", after: delete");
    wait_for_reading(f);
    (void)fake_host_work(f->rig.h);
    fake_host_iterate(f->rig.h);
    assert_int_equal(f->rig.n, 1);
    assert_true(exists(f, "a"));
    receiver_rig_end(&f->rig);
    assert_false(exists(f, "a"));
}

static void large_without_memory(void *arg)
{
    struct fixture *f = arg;
    fault_stop();
    put_large(f, "a");
    start(f, ", after: delete");
    f->rig.h->threads = true;
    f->rig.quiet = true;
    fault_start();
    fake_host_advance(f->rig.h, 3000);
    (void)fake_host_work(f->rig.h);
    fake_host_iterate(f->rig.h);
    fault_stop();
    f->rig.h->threads = false;
    fake_host_advance(f->rig.h, 60000);
    assert_int_equal(f->rig.n, 1);
    assert_false(exists(f, "a"));
    end(f);
}

static void test_large_files_without_memory(void **state)
{
    fault_each("a large file", large_without_memory, *state);
}

static void without_memory(void *arg)
{
    struct fixture *f = arg;
    put_text(f, "a", FOLDED);
    if (!receiver_rig_try(&f->rig, &br_pprof_receiver, config(f, ", after: delete"))) {
        assert_true(fault_failed());
        return;
    }
    f->rig.quiet = true;
    fault_start();
    fake_host_advance(f->rig.h, 3000);
    fault_stop();
    assert_true(fault_failed() || f->rig.n == 1);
    fake_host_advance(f->rig.h, 60000);
    assert_int_equal(f->rig.n, 1); /* the profile was retried after the lack of memory */
    assert_false(exists(f, "a"));
    end(f);
}

static void test_no_memory(void **state)
{
    fault_each("a directory", without_memory, *state);
}

SUITE(pprof_directory)
{
    const struct CMUnitTest tests[] = {
        TEST(test_folded_text),
        TEST(test_sample_rate),
        TEST(test_pprof_of_go),
        TEST(test_speedscope),
        TEST(test_a_file_is_read_when_it_stops_changing),
        TEST(test_files_wait_while_profiles_are_shed),
        TEST(test_an_empty_file_is_not_read),
        TEST(test_ignored_files),
        TEST(test_a_file_is_read_again_after_a_change),
        TEST(test_a_restart_reads_no_file_twice),
        TEST(test_the_list_is_rewritten),
        TEST(test_path_of_the_list),
        TEST(test_invalid_lines_of_the_list),
        TEST(test_folded_text_that_grows),
        TEST(test_a_renamed_file_is_the_same_file),
        TEST(test_swapped_names),
        TEST(test_a_new_time_alone_is_not_a_change),
        TEST(test_a_reused_inode_number),
        TEST(test_a_file_may_be_renamed_while_it_is_sent),
        TEST(test_moved),
        TEST(test_invalid_files_are_kept),
        TEST(test_a_file_that_is_too_large_is_kept),
        TEST(test_retryable_and_permanent_errors),
        TEST(test_drain_waits_for_the_pipeline),
        TEST(test_a_file_that_changes_while_it_is_sent_is_kept),
        TEST(test_destroyed_while_a_file_is_sent),
        TEST(test_removed_directory),
        TEST(test_missing_directories),
        TEST(test_files_are_read_in_a_thread),
        TEST(test_many_files),
        TEST(test_a_deleted_list_is_written_again),
        TEST(test_large_files_are_sent_in_pieces),
        TEST(test_destroyed_while_pieces_are_sent),
        TEST(test_drain_waits_for_files),
        TEST(test_destroyed_while_a_file_is_read),
        TEST(test_destroyed_before_a_file_is_deleted),
        TEST(test_large_files_without_memory),
        TEST(test_no_memory),
    };
    return RUN(tests, NULL, NULL);
}
