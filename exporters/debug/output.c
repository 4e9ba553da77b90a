/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/debug/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "core/shared.h"

#define STUCK_MS 1000 /* how long a reader may keep a worker waiting */

struct debug_output {
    pthread_mutex_t lock;
    int fd;
    bool own;
    bool waits; /* it is no file: whoever reads it may not */
    bool stuck; /* nobody has read it for STUCK_MS */
    int error; /* errno of opening */
};

static void *make(const void *path)
{
    struct debug_output *o = br_calloc(1, sizeof *o);
    if (!o)
        return NULL;
    (void)pthread_mutex_init(&o->lock, NULL);
    if (strcmp(path, "stdout") == 0) {
        o->fd = STDOUT_FILENO;
    } else if (strcmp(path, "stderr") == 0) {
        o->fd = STDERR_FILENO;
    } else {
        o->fd = br_file_open(path, O_APPEND);
        o->own = true;
        o->error = o->fd < 0 ? errno : 0;
    }
    struct stat st;
    o->waits = fstat(o->fd, &st) == 0 && !S_ISREG(st.st_mode);
    return o;
}

static void release(void *thing)
{
    struct debug_output *o = thing;
    if (o->own && o->fd >= 0)
        (void)close(o->fd);
    (void)pthread_mutex_destroy(&o->lock);
    br_free(o);
}

int debug_output_open(struct br_host *host, const char *path, struct debug_output **ret,
                      struct br_err *err)
{
    char name[512];
    (void)snprintf(name, sizeof name, "debug output %s", path);
    struct debug_output *o = br_shared_get(host, name, make, path);
    if (!o)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    if (o->error) {
        int rc =
            br_err_set(err, BR_EIO, "output_paths: cannot open %s: %s", path, strerror(o->error));
        debug_output_close(host, o);
        return rc;
    }
    *ret = o;
    return 0;
}

void debug_output_close(struct br_host *host, struct debug_output *o)
{
    br_shared_put(host, o, release);
}

/* Waits for a reader, once: whoever does not read for STUCK_MS holds nobody up from then on, until it
 * reads again. */
static int wait_writable(struct debug_output *o)
{
    struct pollfd p = {.fd = o->fd, .events = POLLOUT};
    int n = poll(&p, 1, o->stuck ? 0 : STUCK_MS);
    if (n < 0 && errno == EINTR)
        return 0;
    o->stuck = n == 0;
    return o->stuck ? EAGAIN : 0;
}

/* A pipe that has room has room for PIPE_BUF bytes, and takes no more without waiting. */
static int put(struct debug_output *o, const char *text, size_t len)
{
    while (len) {
        int error = o->waits ? wait_writable(o) : 0;
        if (error)
            return error;
        ssize_t n = write(o->fd, text, o->waits && len > PIPE_BUF ? PIPE_BUF : len);
        if (n >= 0) {
            text += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) {
            o->waits = true;
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

int debug_output_write(struct debug_output *o, const char *text, size_t len)
{
    (void)pthread_mutex_lock(&o->lock);
    int error = put(o, text, len);
    (void)pthread_mutex_unlock(&o->lock);
    return error;
}
