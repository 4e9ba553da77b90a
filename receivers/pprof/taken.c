/* SPDX-License-Identifier: Apache-2.0 */
#include "receivers/pprof/taken.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/decimal.h"
#include "base/mem.h"

#define NUMBERS 5
/* Largest length of a line in bytes: the numbers, and a name with every byte escaped. */
#define LINE_MAX_LEN (3 * NAME_MAX + NUMBERS * 24)
#define CHUNK (8u << 10) /* number of bytes read at a time */

struct pprof_taken_log {
    char *path, *fresh; /* `fresh` is the path of the new file while the log is rewritten */
    int fd;             /* -1 if the log is closed */
    int fresh_fd;       /* file descriptor of `fresh`; -1: the log is not being rewritten */
    bool half;          /* the last line may be incomplete */
    size_t n_lines, n_fresh;
};

/* --- Lines ------------------------------------------------------------------------------------ */

/* Escapes blanks, line ends and bytes that are not printable ASCII. */
static size_t taken_escape(const char *name, char *out)
{
    char *o = out;
    for (const unsigned char *p = (const unsigned char *)name; *p; p++) {
        if (*p > ' ' && *p != '%' && *p < 0x7f) {
            *o++ = (char)*p;
            continue;
        }
        *o++ = '%';
        o = br_hex_encode(p, 1, o);
    }
    return (size_t)(o - out);
}

/* Reverses taken_escape. Returns false for invalid text. */
static bool taken_unescape(const char *text, const char *end, char out[NAME_MAX + 1])
{
    char plain[3 * NAME_MAX];
    size_t len = (size_t)(end - text);
    long n = len <= sizeof plain ? br_percent_decode(text, len, false, plain) : -1;
    if (n <= 0 || n > NAME_MAX || memchr(plain, '\0', (size_t)n))
        return false;
    memcpy(out, plain, (size_t)n);
    out[n] = '\0';
    return true;
}

/* Parses a line. Returns false if it is invalid. */
static bool taken_parse(const char *p, const char *end, char name[NAME_MAX + 1],
                        struct pprof_taken *ret)
{
    uint64_t v[NUMBERS];
    for (int i = 0; i < NUMBERS; i++)
        if (!br_decimal_read(&p, end, UINT64_MAX, &v[i]) || p == end || *p++ != ' ')
            return false;
    *ret = (struct pprof_taken){{v[0], v[1], v[2]}, {v[3], v[4]}};
    return taken_unescape(p, end, name);
}

/* --- File ------------------------------------------------------------------------------------- */

static int taken_check(int fd, const char *path, struct br_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return br_err_set(err, BR_EIO, "%s is not a regular file", path);
    if (st.st_size > (off_t)PPROF_TAKEN_FILE_MAX)
        return br_err_set(err, BR_ETOOBIG, "%s is too large for a list of files", path);
    return 0;
}

int pprof_taken_open(const char *path, struct pprof_taken_log **ret, struct br_err *err)
{
    struct pprof_taken_log *log = br_calloc(1, sizeof *log);
    if (!log)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    log->fd = log->fresh_fd = -1;
    log->path = br_strdup(path);
    log->fresh = br_malloc(strlen(path) + sizeof ".tmp");
    int rc = log->path && log->fresh ? 0 : br_err_set(err, BR_ENOMEM, "out of memory");
    if (!rc) {
        (void)stpcpy(stpcpy(log->fresh, log->path), ".tmp");
        log->fd =
            open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
        rc = log->fd < 0
                 ? br_err_set(err, BR_EIO, "%s cannot be written: %s", path, strerror(errno))
                 : taken_check(log->fd, path, err);
    }
    if (rc)
        pprof_taken_close(log);
    else
        *ret = log;
    return rc;
}

/* Calls `fn` for the complete lines in `text`. Returns their length in bytes. */
static size_t taken_hand_over(struct pprof_taken_log *log, const char *text, size_t len,
                              pprof_taken_fn *fn, void *arg)
{
    char name[NAME_MAX + 1];
    struct pprof_taken taken;
    const char *p = text, *end = text + len;
    for (const char *eol; p < end && (eol = memchr(p, '\n', (size_t)(end - p))); p = eol + 1) {
        log->n_lines++;
        if (taken_parse(p, eol, name, &taken))
            fn(arg, name, &taken);
    }
    return (size_t)(p - text);
}

bool pprof_taken_load(struct pprof_taken_log *log, pprof_taken_fn *fn, void *arg)
{
    char text[CHUNK];
    size_t len = 0;
    off_t at = 0;
    ssize_t n;
    while ((n = pread(log->fd, text + len, sizeof text - len, at)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        at += n;
        len += (size_t)n;
        size_t used = taken_hand_over(log, text, len, fn, arg);
        if (!used && len == sizeof text)
            used = len; /* The text is longer than any valid line, so all of it is skipped. */
        memmove(text, text + used, len - used);
        len -= used;
    }
    /* Ends an incomplete line, so that the next one starts on a new line. */
    return !len || write(log->fd, "%\n", 2) == 2;
}

static void taken_close(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

void pprof_taken_close(struct pprof_taken_log *log)
{
    if (!log)
        return;
    taken_close(&log->fd);
    taken_close(&log->fresh_fd);
    br_free(log->path);
    br_free(log->fresh);
    br_free(log);
}

bool pprof_taken_add(struct pprof_taken_log *log, const char *name, const struct pprof_taken *taken)
{
    char line[LINE_MAX_LEN + 2];
    int n =
        snprintf(line, sizeof line, "%llu %llu %llu %llu %llu ", (unsigned long long)taken->is.size,
                 (unsigned long long)taken->is.inode, (unsigned long long)taken->is.changed_ns,
                 (unsigned long long)taken->mark.len, (unsigned long long)taken->mark.hash);
    size_t len = (size_t)n + taken_escape(name, line + n);
    line[len++] = '\n';
    if (log->fresh_fd >= 0) {
        log->n_fresh++;
        return write(log->fresh_fd, line, len) == (ssize_t)len;
    }
    log->n_lines++;
    if (log->half && write(log->fd, "%\n", 2) != 2)
        return false;
    log->half = write(log->fd, line, len) != (ssize_t)len;
    return !log->half;
}

bool pprof_taken_is_deleted(const struct pprof_taken_log *log)
{
    struct stat st;
    return fstat(log->fd, &st) == 0 && st.st_nlink == 0;
}

size_t pprof_taken_lines(const struct pprof_taken_log *log)
{
    return log->n_lines;
}

bool pprof_taken_begin(struct pprof_taken_log *log)
{
    int fd =
        open(log->fresh, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    taken_close(&log->fresh_fd);
    log->fresh_fd = fd;
    log->n_fresh = 0;
    return fd >= 0;
}

bool pprof_taken_end(struct pprof_taken_log *log, bool whole)
{
    if (!whole || rename(log->fresh, log->path) != 0) {
        int error = errno;
        taken_close(&log->fresh_fd);
        (void)unlink(log->fresh);
        errno = error;
        return false;
    }
    taken_close(&log->fd);
    log->fd = log->fresh_fd;
    log->fresh_fd = -1;
    log->n_lines = log->n_fresh;
    log->half = false;
    return true;
}
