/* SPDX-License-Identifier: Apache-2.0 */
#include "receivers/pprof/read_files.h"

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
/* Largest length of a line of the list, in bytes: a line consists of NUMBERS numbers and a name,
 * in which every byte may be escaped. */
#define LINE_MAX_LEN (3 * NAME_MAX + NUMBERS * 24)
#define CHUNK (8u << 10) /* number of bytes read at a time */

struct pprof_read_files {
    /* `path`: path of the list; `fresh`: path of the file to which the new content is written
     * before it replaces the list */
    char *path, *fresh;
    int fd;       /* file descriptor of the list; -1: the list is closed */
    int fresh_fd; /* file descriptor of `fresh`; -1 unless the list is being rewritten */
    bool half;    /* true if the last line may be incomplete */
    size_t n_lines, n_fresh;
};

/* --- Lines ------------------------------------------------------------------------------------ */

/* Escapes blanks, line ends and bytes that are not printable ASCII. */
static size_t read_files_escape(const char *name, char *out)
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

/* Reverses read_files_escape. Returns false for invalid text. */
static bool read_files_unescape(const char *text, const char *end, char out[NAME_MAX + 1])
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

/* Parses a line. Returns false if the line is invalid. */
static bool read_files_parse(const char *p, const char *end, char name[NAME_MAX + 1],
                             struct pprof_file_state *ret)
{
    uint64_t v[NUMBERS];
    for (int i = 0; i < NUMBERS; i++)
        if (!br_decimal_read(&p, end, UINT64_MAX, &v[i]) || p == end || *p++ != ' ')
            return false;
    *ret = (struct pprof_file_state){{v[0], v[1], v[2]}, {v[3], v[4]}};
    return read_files_unescape(p, end, name);
}

/* --- File ------------------------------------------------------------------------------------- */

static int read_files_check(int fd, const char *path, struct br_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return br_err_set(err, BR_EIO, "%s is not a regular file", path);
    if (st.st_size > (off_t)PPROF_READ_FILES_BYTES_MAX)
        return br_err_set(err, BR_ETOOBIG, "%s is too large for a list of files", path);
    return 0;
}

int pprof_read_files_open(const char *path, struct pprof_read_files **ret, struct br_err *err)
{
    struct pprof_read_files *list = br_calloc(1, sizeof *list);
    if (!list)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    list->fd = list->fresh_fd = -1;
    list->path = br_strdup(path);
    list->fresh = br_malloc(strlen(path) + sizeof ".tmp");
    int rc = list->path && list->fresh ? 0 : br_err_set(err, BR_ENOMEM, "out of memory");
    if (!rc) {
        (void)stpcpy(stpcpy(list->fresh, list->path), ".tmp");
        list->fd =
            open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
        rc = list->fd < 0
                 ? br_err_set(err, BR_EIO, "%s cannot be written: %s", path, strerror(errno))
                 : read_files_check(list->fd, path, err);
    }
    if (rc)
        pprof_read_files_close(list);
    else
        *ret = list;
    return rc;
}

/* Calls `fn` for the complete lines in `text` that are valid. Returns the length of all complete
 * lines in bytes. */
static size_t read_files_call(struct pprof_read_files *list, const char *text, size_t len,
                              pprof_read_files_fn *fn, void *arg)
{
    char name[NAME_MAX + 1];
    struct pprof_file_state state;
    const char *p = text, *end = text + len;
    for (const char *eol; p < end && (eol = memchr(p, '\n', (size_t)(end - p))); p = eol + 1) {
        list->n_lines++;
        if (read_files_parse(p, eol, name, &state))
            fn(arg, name, &state);
    }
    return (size_t)(p - text);
}

bool pprof_read_files_load(struct pprof_read_files *list, pprof_read_files_fn *fn, void *arg)
{
    char text[CHUNK];
    size_t len = 0;
    off_t at = 0;
    ssize_t n;
    while ((n = pread(list->fd, text + len, sizeof text - len, at)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        at += n;
        len += (size_t)n;
        size_t used = read_files_call(list, text, len, fn, arg);
        if (!used && len == sizeof text)
            used = len; /* The text is longer than any valid line, so all of it is skipped. */
        memmove(text, text + used, len - used);
        len -= used;
    }
    /* Terminates an incomplete last line, so that the next line does not continue it. */
    return !len || write(list->fd, "%\n", 2) == 2;
}

static void read_files_close(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

void pprof_read_files_close(struct pprof_read_files *list)
{
    if (!list)
        return;
    read_files_close(&list->fd);
    read_files_close(&list->fresh_fd);
    br_free(list->path);
    br_free(list->fresh);
    br_free(list);
}

bool pprof_read_files_add(struct pprof_read_files *list, const char *name,
                          const struct pprof_file_state *state)
{
    char line[LINE_MAX_LEN + 2];
    int n = snprintf(
        line, sizeof line, "%llu %llu %llu %llu %llu ", (unsigned long long)state->identity.size,
        (unsigned long long)state->identity.inode, (unsigned long long)state->identity.changed_ns,
        (unsigned long long)state->mark.len, (unsigned long long)state->mark.hash);
    size_t len = (size_t)n + read_files_escape(name, line + n);
    line[len++] = '\n';
    if (list->fresh_fd >= 0) {
        list->n_fresh++;
        return write(list->fresh_fd, line, len) == (ssize_t)len;
    }
    list->n_lines++;
    if (list->half && write(list->fd, "%\n", 2) != 2)
        return false;
    list->half = write(list->fd, line, len) != (ssize_t)len;
    return !list->half;
}

bool pprof_read_files_is_deleted(const struct pprof_read_files *list)
{
    struct stat st;
    return fstat(list->fd, &st) == 0 && st.st_nlink == 0;
}

size_t pprof_read_files_lines(const struct pprof_read_files *list)
{
    return list->n_lines;
}

bool pprof_read_files_begin(struct pprof_read_files *list)
{
    int fd =
        open(list->fresh, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    read_files_close(&list->fresh_fd);
    list->fresh_fd = fd;
    list->n_fresh = 0;
    return fd >= 0;
}

bool pprof_read_files_end(struct pprof_read_files *list, bool whole)
{
    if (!whole || rename(list->fresh, list->path) != 0) {
        int error = errno;
        read_files_close(&list->fresh_fd);
        (void)unlink(list->fresh);
        errno = error;
        return false;
    }
    read_files_close(&list->fd);
    list->fd = list->fresh_fd;
    list->fresh_fd = -1;
    list->n_lines = list->n_fresh;
    list->half = false;
    return true;
}
