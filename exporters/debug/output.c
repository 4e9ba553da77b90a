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

#define STUCK_MS 1000 /* milliseconds that a thread waits for the reader of an output */

struct debug_output {
    pthread_mutex_t lock;
    int fd;
    bool own;
    bool waits; /* the output is not a regular file, so its reader may block a write */
    bool stuck; /* the reader of the output has not read for STUCK_MS */
    int error;  /* errno with which the file could not be opened */
};

static void *debug_output_make(const void *path)
{
    struct debug_output *output = br_calloc(1, sizeof *output);
    if (!output)
        return NULL;
    (void)pthread_mutex_init(&output->lock, NULL);
    if (strcmp(path, "stdout") == 0) {
        output->fd = STDOUT_FILENO;
    } else if (strcmp(path, "stderr") == 0) {
        output->fd = STDERR_FILENO;
    } else {
        output->fd = br_file_open(path, O_APPEND | O_NONBLOCK | O_NOCTTY);
        output->own = true;
        output->error = output->fd < 0 ? errno : 0;
    }
    struct stat st;
    output->waits = fstat(output->fd, &st) == 0 && !S_ISREG(st.st_mode);
    return output;
}

static void debug_output_release(void *thing)
{
    struct debug_output *output = thing;
    if (output->own && output->fd >= 0)
        (void)close(output->fd);
    (void)pthread_mutex_destroy(&output->lock);
    br_free(output);
}

int debug_output_open(struct br_host *host, const char *path, struct debug_output **ret,
                      struct br_err *err)
{
    char name[512];
    (void)snprintf(name, sizeof name, "debug output %s", path);
    struct debug_output *output = br_shared_get(host, name, debug_output_make, path);
    if (!output)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    if (output->error) {
        int rc = br_err_set(err, BR_EIO, "output_paths: cannot open %s: %s", path,
                            strerror(output->error));
        debug_output_close(host, output);
        return rc;
    }
    *ret = output;
    return 0;
}

void debug_output_close(struct br_host *host, struct debug_output *output)
{
    br_shared_put(host, output, debug_output_release);
}

/* Waits up to STUCK_MS for the reader of an output. After a timeout, later writes do not wait
 * until the output has room again. */
static int debug_output_wait_writable(struct debug_output *output)
{
    struct pollfd p = {.fd = output->fd, .events = POLLOUT};
    int n = poll(&p, 1, output->stuck ? 0 : STUCK_MS);
    if (n < 0 && errno == EINTR)
        return 0;
    output->stuck = n == 0;
    return output->stuck ? EAGAIN : 0;
}

/* Writes a text. An output that may block receives pieces of PIPE_BUF bytes: a writable pipe
 * accepts a piece of this size without blocking. */
static int debug_output_put(struct debug_output *output, const char *text, size_t len)
{
    while (len) {
        int error = output->waits ? debug_output_wait_writable(output) : 0;
        if (error)
            return error;
        ssize_t n = write(output->fd, text, output->waits && len > PIPE_BUF ? PIPE_BUF : len);
        if (n >= 0) {
            text += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) {
            output->waits = true;
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

int debug_output_write(struct debug_output *output, const char *text, size_t len)
{
    (void)pthread_mutex_lock(&output->lock);
    int error = debug_output_put(output, text, len);
    (void)pthread_mutex_unlock(&output->lock);
    return error;
}
