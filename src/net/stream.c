/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/net_internal.h"

#define IOV_PER_SEND 1024
#define READS_PER_EVENT 4
#define RESUME_MS 20

static void on_poll(uv_poll_t *p, int status, int events);

static void on_wake(struct br_conn *c, void *owner)
{
    (void)c;
    br_stream_wake(owner);
}

void br_stream_wake(struct br_stream *s)
{
    if (br_list_empty(&s->dirty))
        br_list_append(&s->loop->dirty, &s->dirty);
}

void br_stream_set_conn(struct br_stream *s, struct br_conn *conn)
{
    s->conn = conn;
    conn->wake = on_wake;
    conn->owner = s;
    br_stream_wake(s);
}

/* Tells the poller what to wait for, when it changed. */
static void watch(struct br_stream *s)
{
    int events = 0;
    if (s->connecting || s->want_write)
        events |= UV_WRITABLE;
    if (!s->connecting && br_list_empty(&s->pause) && !(s->conn && s->conn->paused))
        events |= UV_READABLE;
    if (events == s->polled)
        return;
    s->polled = events;
    if (events)
        uv_poll_start(&s->poll, events, on_poll);
    else
        uv_poll_stop(&s->poll);
}

struct br_stream *br_stream_new(struct br_loop *loop, int fd, const struct br_stream_events *events,
                                void *owner, bool server, bool connecting)
{
    struct br_stream *s = br_calloc(1, sizeof *s);
    if (!s || uv_poll_init(&loop->uv, &s->poll, fd)) {
        br_free(s);
        close(fd);
        return NULL;
    }
    s->loop = loop;
    s->fd = fd;
    s->events = events;
    s->owner = owner;
    s->server = server;
    s->connecting = connecting;
    s->poll.data = s;
    s->opened_ms = s->read_ms = s->wrote_ms = uv_now(&loop->uv);
    br_list_init(&s->link);
    br_list_init(&s->dirty);
    br_list_init(&s->pause);
    watch(s);
    return s;
}

void br_stream_close(struct br_stream *s, const char *why)
{
    if (!s->closing) {
        s->closing = true;
        (void)snprintf(s->why, sizeof s->why, "%.*s", (int)sizeof s->why - 1, why);
    }
    br_stream_wake(s);
}

static void on_uv_closed(uv_handle_t *h)
{
    br_free(h->data);
}

/* The end of a stream; from here only libuv knows it. */
static void destroy(struct br_stream *s)
{
    if (s->freed)
        return;
    s->freed = true;
    br_list_remove(&s->dirty);
    br_list_remove(&s->pause);
    uv_poll_stop(&s->poll);
    uv_close((uv_handle_t *)&s->poll, on_uv_closed);
    s->events->on_closed(s, s->why[0] ? s->why : "closed");
    if (s->conn)
        s->conn->ops->free(s->conn);
    s->conn = NULL;
    br_tls_free(s->tls);
    br_rope_release(&s->out);
    close(s->fd);
}

/* --- Reading -------------------------------------------------------------------------------- */

static int feed(void *arg, const uint8_t *data, size_t len)
{
    struct br_stream *s = arg;
    if (!s->conn) {
        int rc = s->events->detect(s, data, len);
        if (rc)
            return rc == BR_EAGAIN ? 0 : rc;
        /* What was held back while it was not clear which protocol this is. */
        if (s->n_first) {
            rc = s->conn->ops->input(s->conn, s->first, s->n_first, uv_now(&s->loop->uv));
            if (rc)
                return rc;
        }
    }
    return s->conn->ops->input(s->conn, data, len, uv_now(&s->loop->uv));
}

/* The protocol gave up: what it still has to say goes out, then the connection ends. */
static void wind_down(struct br_stream *s, int rc)
{
    if (rc == BR_ECLOSED)
        br_stream_close(s, "the peer closed the connection");
    else
        br_stream_close(s, br_strerror(rc));
}

static bool over_mark(const struct br_loop *loop)
{
    size_t live = br_pool_live(loop->host.pool), stalled = loop->host.stalled_bytes;
    return loop->mark && live > stalled && live - stalled > loop->mark;
}

static void on_resume(struct br_timer *t)
{
    struct br_loop *loop = br_container_of(t, struct br_loop, resume);
    while (!br_list_empty(&loop->paused)) {
        struct br_stream *s = br_container_of(loop->paused.next, struct br_stream, pause);
        br_list_remove(&s->pause);
        s->granted = true;
        watch(s);
    }
}

void br_loop_resume(struct br_loop *loop)
{
    if (!br_list_empty(&loop->paused) && !over_mark(loop))
        on_resume(&loop->resume);
}

static void read_some(struct br_stream *s)
{
    struct br_loop *loop = s->loop;
    for (int i = 0; i < READS_PER_EVENT && !s->closing; i++) {
        /* Above the mark this connection waits; but not for ever, because what frees memory may be
         * the rest of a message that is half here. */
        if (s->server && !s->granted && over_mark(loop)) {
            br_list_append(&loop->paused, &s->pause);
            if (!loop->resume.slot)
                (void)br_host_timer(&loop->host, &loop->resume, RESUME_MS, on_resume);
            return;
        }
        s->granted = false;
        if (s->conn && s->conn->paused)
            return;
        ssize_t n = recv(s->fd, loop->read_buffer, BR_READ_SIZE, 0);
        if (n < 0) {
            if (errno != EAGAIN && errno != EINTR)
                br_stream_close(s, strerror(errno));
            return;
        }
        if (n == 0) {
            if (s->conn && !s->shut)
                s->conn->ops->eof(s->conn);
            br_stream_close(s, "the peer closed the connection");
            return;
        }
        s->read_ms = uv_now(&loop->uv);
        if (s->shut)
            continue; /* lingering: read and forget */
        struct br_err err = {0};
        int rc = s->tls ? br_tls_input(s->tls, loop->read_buffer, (size_t)n, feed, s, &err)
                        : feed(s, loop->read_buffer, (size_t)n);
        if (rc) {
            if (err.text[0])
                br_stream_close(s, err.text);
            wind_down(s, rc);
        }
        br_stream_wake(s); /* acknowledgements, window updates, what they made room for */
        if (!s->closing)
            s->events->on_progress(s);
        if ((size_t)n < BR_READ_SIZE)
            return;
    }
}

/* --- Writing -------------------------------------------------------------------------------- */

/* Asks the protocol for more to send. */
static int pull(struct br_stream *s)
{
    struct br_pool *pool = s->loop->host.pool;
    if (!s->tls)
        return s->conn ? s->conn->ops->output(s->conn, &s->out, BR_WRITE_SIZE) : 0;
    if (s->conn && br_tls_ready(s->tls)) {
        struct br_rope plain = {0};
        int rc = s->conn->ops->output(s->conn, &plain, BR_WRITE_SIZE);
        if (!rc && plain.len)
            rc = br_tls_send(s->tls, &plain);
        br_rope_release(&plain);
        if (rc) {
            (void)br_tls_output(s->tls, pool, &s->out); /* the alert */
            return rc;
        }
    }
    return br_tls_output(s->tls, pool, &s->out);
}

/* Sends once. 1: everything went out; 0: the socket is full; -1: it is broken. */
static int send_once(struct br_stream *s)
{
    struct iovec iov[IOV_PER_SEND];
    uint32_t n = 0;
    size_t bytes = 0;
    for (; n < s->out.n && n < IOV_PER_SEND && bytes < BR_WRITE_SIZE; n++) {
        iov[n].iov_base = (void *)(uintptr_t)s->out.v[n].data;
        iov[n].iov_len = s->out.v[n].len;
        bytes += iov[n].iov_len;
    }
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n};
    ssize_t sent = sendmsg(s->fd, &msg, MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    s->wrote_ms = uv_now(&s->loop->uv);
    br_rope_drop(&s->out, (size_t)sent);
    return (size_t)sent == bytes ? 1 : 0;
}

static void flush(struct br_stream *s)
{
    s->want_write = false;
    while (!s->connecting) {
        if (s->out.len < BR_WRITE_SIZE && pull(s)) {
            br_stream_close(s, "no memory, or the protocol is broken");
            break;
        }
        if (s->out.len == 0)
            break;
        int rc = send_once(s);
        if (rc < 0) {
            br_rope_release(&s->out);
            br_stream_close(s, strerror(errno));
            break;
        }
        if (rc == 0) {
            s->want_write = true;
            break;
        }
    }
    if (!s->closing && !s->connecting && s->conn && s->out.len == 0 &&
        s->conn->ops->finished(s->conn)) {
        if (s->tls) {
            br_tls_close(s->tls);
            if (br_tls_output(s->tls, s->loop->host.pool, &s->out) == 0 && s->out.len)
                (void)send_once(s);
        }
        /* The peer reads our last words before it learns that we do not listen: half-close, and let
         * the server's sweep end it. */
        if (s->server && !s->shut && shutdown(s->fd, SHUT_WR) == 0)
            s->shut = true;
        else if (!s->server)
            br_stream_close(s, "done");
    }
}

void br_loop_flush(struct br_loop *loop)
{
    struct br_list now;
    br_list_init(&now);
    while (!br_list_empty(&loop->dirty))
        br_list_append(&now, br_list_shift(&loop->dirty));
    struct br_list *l;
    while ((l = br_list_shift(&now))) {
        struct br_stream *s = br_container_of(l, struct br_stream, dirty);
        flush(s);
        if (s->closing)
            destroy(s);
        else
            watch(s);
    }
}

static void on_poll(uv_poll_t *p, int status, int events)
{
    struct br_stream *s = p->data;
    if (s->freed)
        return;
    if (s->connecting) {
        int error = 0;
        socklen_t len = sizeof error;
        getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &len);
        if (error || status < 0) {
            br_stream_close(s, error ? strerror(error) : uv_strerror(status));
            return;
        }
        s->connecting = false;
        s->events->on_progress(s);
        br_stream_wake(s);
        return;
    }
    if (status < 0) {
        br_stream_close(s, uv_strerror(status));
        return;
    }
    if (events & UV_READABLE)
        read_some(s);
    if (events & UV_WRITABLE)
        br_stream_wake(s);
    if (!s->closing)
        watch(s);
}
