/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library for LD_PRELOAD that simulates a disk that does not respond. STALL_PATH and the other
 * names are environment variables. A call does not return while the file STALL_WHILE exists, if the
 * path of its file contains STALL_PATH. If STALL_PATH ends in $, the path must end with the text
 * before the $. STALL_CALLS lists the affected calls, separated by commas. When the first call
 * waits, the library creates the file STALL_SEEN.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define FDS 4096

static int is_there(const char *path)
{
    return syscall(SYS_access, path, F_OK) == 0;
}

static int is_named(const char *call)
{
    const char *calls = getenv("STALL_CALLS");
    size_t len = strlen(call);
    for (const char *at = calls; at && (at = strstr(at, call)); at += len)
        if ((at == calls || at[-1] == ',') && (at[len] == ',' || at[len] == '\0'))
            return 1;
    return 0;
}

static int is_stalled(const char *path)
{
    const char *piece = getenv("STALL_PATH");
    size_t len = piece ? strlen(piece) : 0, path_len = strlen(path);
    if (!len || piece[len - 1] != '$')
        return len && strstr(path, piece);
    return path_len >= len - 1 && memcmp(path + path_len - (len - 1), piece, len - 1) == 0;
}

static void stall_while(const char *call)
{
    const char *gate = getenv("STALL_WHILE"), *seen = getenv("STALL_SEEN");
    if (!gate || !is_named(call))
        return;
    while (is_there(gate)) {
        const struct timespec ten_ms = {0, 10000000};
        if (seen && !is_there(seen)) {
            long fd = syscall(SYS_openat, AT_FDCWD, seen, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
            if (fd >= 0)
                (void)syscall(SYS_close, fd);
        }
        (void)syscall(SYS_nanosleep, &ten_ms, NULL);
    }
}

static void stall_path(const char *call, const char *path)
{
    if (is_stalled(path))
        stall_while(call);
}

/* For each descriptor, whether the path of its file matches STALL_PATH. The paths cannot be read
 * from /proc/self/fd, because the process may not be dumpable. */
static _Atomic char is_ours[FDS];

static void stall_fd(const char *call, int fd)
{
    if (fd >= 0 && fd < FDS && is_ours[fd])
        stall_while(call);
}

static int note_open(int fd, const char *path)
{
    if (fd >= 0 && fd < FDS)
        is_ours[fd] = is_stalled(path) != 0;
    return fd;
}

#define NEXT(name) __typeof__(name) *next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

int fdatasync(int fd)
{
    NEXT(fdatasync);
    stall_fd("fdatasync", fd);
    return next(fd);
}

ssize_t writev(int fd, const struct iovec *pieces, int n)
{
    NEXT(writev);
    stall_fd("writev", fd);
    return next(fd, pieces, n);
}

ssize_t write(int fd, const void *data, size_t len)
{
    NEXT(write);
    stall_fd("write", fd);
    return next(fd, data, len);
}

ssize_t pwrite64(int fd, const void *data, size_t len, off64_t at)
{
    NEXT(pwrite64);
    stall_fd("pwrite", fd);
    return next(fd, data, len, at);
}

ssize_t pread64(int fd, void *data, size_t len, off64_t at)
{
    NEXT(pread64);
    stall_fd("pread", fd);
    return next(fd, data, len, at);
}

ssize_t pread(int fd, void *data, size_t len, off_t at)
{
    NEXT(pread);
    stall_fd("pread", fd);
    return next(fd, data, len, at);
}

int stat(const char *path, struct stat *st)
{
    NEXT(stat);
    stall_path("stat", path);
    return next(path, st);
}

int stat64(const char *path, struct stat64 *st)
{
    NEXT(stat64);
    stall_path("stat", path);
    return next(path, st);
}

int fstatat64(int folder, const char *path, struct stat64 *st, int flags)
{
    NEXT(fstatat64);
    stall_fd("stat", folder);
    return next(folder, path, st, flags);
}

int unlink(const char *path)
{
    NEXT(unlink);
    stall_path("unlink", path);
    return next(path);
}

int close(int fd)
{
    NEXT(close);
    if (fd >= 0 && fd < FDS)
        is_ours[fd] = 0;
    return next(fd);
}

DIR *opendir(const char *path)
{
    NEXT(opendir);
    stall_path("opendir", path);
    DIR *folder = next(path);
    if (folder)
        (void)note_open(dirfd(folder), path);
    return folder;
}

FILE *fopen(const char *path, const char *mode)
{
    NEXT(fopen);
    stall_path("fopen", path);
    return next(path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
    NEXT(fopen64);
    stall_path("fopen", path);
    return next(path, mode);
}

int open(const char *path, int flags, ...)
{
    NEXT(openat);
    mode_t mode = 0;
    va_list more;
    va_start(more, flags);
    if (flags & (O_CREAT | __O_TMPFILE))
        mode = va_arg(more, mode_t);
    va_end(more);
    stall_path("open", path);
    return note_open(next(AT_FDCWD, path, flags, mode), path);
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));
