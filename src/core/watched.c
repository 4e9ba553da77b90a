/* SPDX-License-Identifier: Apache-2.0 */
#include "core/watched.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

/* The contents and the identity of the file at the last read. */
struct reading {
    char *text; /* the contents, terminated; NULL: the file was not read */
    size_t len, cap;
    struct stat stat;
    int error; /* an errno value; 0: the file was read, or has not changed */
};

/* The struct may exist after br_watched_free, until the `done` callback of the thread's work. */
struct br_watched {
    struct br_watched_config config;
    struct br_work work;
    struct br_timer timer;
    struct br_host *host;
    struct reading next; /* result of the last read in the thread */
    struct stat known;   /* identity of the file whose contents were delivered */
    struct br_log_limit log_limit;
    bool runs, freed;
};

static void watched_on_timer(struct br_timer *timer);

static bool watched_is_same(const struct stat *one, const struct stat *other)
{
    return one->st_ino == other->st_ino && one->st_dev == other->st_dev &&
           one->st_size == other->st_size &&
           memcmp(&one->st_mtim, &other->st_mtim, sizeof one->st_mtim) == 0;
}

static void watched_release(struct reading *reading)
{
    if (reading->text)
        OPENSSL_cleanse(reading->text, reading->cap);
    br_free(reading->text);
    reading->text = NULL;
}

/* Reads up to the end of an open file. Returns 0 or an errno value. */
static int watched_read_all(int fd, struct reading *reading)
{
    reading->len = 0;
    while (reading->len + 1 < reading->cap) {
        ssize_t n = read(fd, reading->text + reading->len, reading->cap - reading->len - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        if (n == 0)
            break;
        reading->len += (size_t)n;
    }
    reading->text[reading->len] = '\0';
    return 0;
}

/* Reads the file if it differs from `known`. */
static void watched_read(const char *path, const struct stat *known, struct reading *ret)
{
    *ret = (struct reading){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &ret->stat) < 0)
        ret->error = errno;
    else if (S_ISDIR(ret->stat.st_mode))
        ret->error = EISDIR;
    else if (!S_ISREG(ret->stat.st_mode))
        ret->error = EINVAL;
    else if (ret->stat.st_size > (off_t)BR_WATCHED_SIZE_MAX)
        ret->error = EFBIG;
    if (!ret->error && !watched_is_same(&ret->stat, known)) {
        /* leave space for additional bytes, because the file may be growing */
        ret->cap = (size_t)ret->stat.st_size + 4096;
        ret->text = br_malloc(ret->cap);
        ret->error = ret->text ? watched_read_all(fd, ret) : ENOMEM;
    }
    if (fd >= 0)
        close(fd);
    if (ret->error)
        watched_release(ret);
}

/* Passes new contents to the callback on_text. */
static void watched_deliver(struct br_watched *watched)
{
    struct reading *next = &watched->next;
    if (next->text) {
        watched->known = next->stat;
        watched->config.on_text(watched->config.arg, next->text, next->len);
    }
    watched_release(next);
}

static void watched_wait(struct br_watched *watched)
{
    (void)br_host_timer(watched->host, &watched->timer, BR_WATCHED_MS, watched_on_timer);
}

static void watched_on_run(struct br_work *work)
{
    struct br_watched *watched = br_container_of(work, struct br_watched, work);
    watched_read(watched->config.path, &watched->known, &watched->next);
    br_mem_flush();
}

static void watched_on_ran(struct br_work *work)
{
    struct br_watched *watched = br_container_of(work, struct br_watched, work);
    watched->runs = false;
    if (watched->freed) {
        watched_release(&watched->next);
        br_free(watched);
        return;
    }
    if (watched->next.error)
        br_log_limited(watched->config.log, BR_LOG_WARN, &watched->log_limit,
                       br_host_mono_ms(watched->host), BR_LOG_EVERY_MS,
                       "%s cannot be read, its last contents stay in use: %s", watched->config.path,
                       strerror(watched->next.error));
    watched_deliver(watched);
    watched_wait(watched);
}

static void watched_on_timer(struct br_timer *timer)
{
    struct br_watched *watched = br_container_of(timer, struct br_watched, timer);
    (void)br_host_timer_park(watched->host, timer, watched_on_timer);
    watched->work =
        (struct br_work){.run = watched_on_run, .done = watched_on_ran, .kind = BR_WORK_DISK};
    watched->runs = true;
    br_host_work(watched->host, &watched->work);
}

int br_watched_new(struct br_host *host, const struct br_watched_config *config,
                   struct br_watched **ret, struct br_err *err)
{
    struct br_watched *watched = br_calloc(1, sizeof *watched);
    if (!watched)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    watched->config = *config;
    watched->host = host;
    watched_read(config->path, &watched->known, &watched->next);
    int why = watched->next.error;
    if (why && (why == ENOMEM || !config->may_be_missing)) {
        br_free(watched);
        return br_err_set(err, why == ENOMEM ? BR_ENOMEM : BR_EIO, "%s cannot be read: %s",
                          config->path, strerror(why));
    }
    if (!br_host_timer_park(host, &watched->timer, watched_on_timer)) {
        watched_release(&watched->next);
        br_free(watched);
        return br_err_set(err, BR_ENOMEM, "out of memory");
    }
    if (why && !host->checking)
        br_warn(config->log, "%s cannot be read and is tried again every second: %s", config->path,
                strerror(why));
    watched_deliver(watched);
    watched_wait(watched);
    *ret = watched;
    return 0;
}

void br_watched_free(struct br_watched *watched)
{
    if (!watched)
        return;
    br_host_timer_stop(watched->host, &watched->timer);
    if (watched->runs) {
        br_host_work_cancel(watched->host, &watched->work);
        br_host_work_wait(watched->host, &watched->work);
    }
    watched->freed = true;
    if (!watched->runs) {
        watched_release(&watched->next);
        br_free(watched);
    }
}
