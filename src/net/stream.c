/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream reads and writes one socket: a server's connection or a client's.
 *
 * Server streams are served fairly. Four lists in struct br_loop contain the streams that have to
 * wait:
 * - `unread`: readable streams that were not read because this loop iteration has already read
 *   BR_ITERATION_READ_MAX bytes. These streams are read in the next iterations, oldest first.
 * - `slow_senders`: readable streams whose last SMALL_READS reads in the middle of a request had
 * less than SMALL_READ bytes each. Up to SLOW_SENDERS_PER_ITERATION of these streams are read per
 * iteration, after complete requests have been answered.
 * - `busy`: streams that have sent the output of PULLS_PER_ITERATION pulls and may have more
 * output. One busy stream continues in each later iteration. If more than BUSY_MANY streams are
 * busy, BUSY_PER_MS streams continue in each millisecond instead.
 * - `paused`: streams whose unfinished requests buffer more than their share (br_loop_set_mark).
 * Paused streams are read again when memory has been freed. One stream above its share,
 * loop->active, is still read, because a request that is never completed never frees its memory.
 * The timer loop->rotation replaces the active stream.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/net_internal.h"

#define IOV_PER_SEND 960
/* maximum number of writes per stream and iteration; a write has up to BR_WRITE_SIZE bytes */
#define SENDS_PER_ITERATION 4
/* maximum number of calls of stream_pull per server stream and iteration, so that other streams
 * are served */
#define PULLS_PER_ITERATION 2
/* replaces PULLS_PER_ITERATION for a stream with pipelined requests while many streams are busy */
#define PULLS_WHEN_MANY 1
/* if more than BUSY_MANY streams are busy, BUSY_PER_MS streams are resumed in each millisecond,
 * instead of one in each iteration */
#define BUSY_MANY 16
#define BUSY_PER_MS 8
/* maximum number of slices of an array that is kept when no output is left; a longer array is
 * freed */
#define IDLE_SLICES 16
/* if more streams than this have to wait for a read, their sockets are removed from the poller */
#define UNREAD_POLLED 256
/* number of buffered bytes of a stream above which its reads are limited to READ_LARGE_SIZE */
#define READ_LARGE_FROM (1u << 20)
#define READ_LARGE_SIZE (64u << 10)
#define SMALL_READ 1024 /* a read of fewer bytes in the middle of a request is a small read */
#define SMALL_READS 2u  /* number of consecutive small reads that make a stream a slow sender */
#define SLOW_SENDERS_PER_ITERATION 64
#define TICK_MS 20
/* bytes that an active stream must read in each tick of loop->rotation; otherwise another stream
 * replaces it */
#define ACTIVE_BYTES_MIN (64u << 10)
#define ACTIVE_TICKS_MAX 50

static void stream_on_poll(uv_poll_t *poll_handle, int status, int events);

static void stream_on_wake(struct br_conn *conn, void *owner)
{
    (void)conn;
    br_stream_wake(owner);
}

void br_stream_wake(struct br_stream *stream)
{
    bool waits = !br_list_empty(&stream->busy) && !stream->closing;
    if (br_list_empty(&stream->dirty) && !stream->freed && !waits)
        br_list_append(&stream->loop->dirty, &stream->dirty);
}

void br_stream_set_conn(struct br_stream *stream, struct br_conn *conn)
{
    stream->conn = conn;
    conn->wake = stream_on_wake;
    conn->owner = stream;
    br_stream_wake(stream);
}

static bool stream_may_read(const struct br_stream *stream)
{
    bool conn_paused = stream->conn && stream->conn->paused && !stream->half_closed;
    bool output_full = stream->server && stream->out.len > BR_OUT_MAX;
    if (stream->connecting || stream->eof || conn_paused || output_full)
        return false;
    return br_list_empty(&stream->pause);
}

/* Returns true if a stream whose read was put off must not be polled. Staying in the poller
 * costs less than leaving and re-entering it, unless many streams wait. */
static bool stream_waits_unpolled(const struct br_stream *stream)
{
    const struct br_loop *loop = stream->loop;
    return !br_list_empty(&stream->unread) &&
           (stream->sends_slowly ? loop->n_slow_senders : loop->n_unread) > UNREAD_POLLED;
}

/* Updates the events for which the socket is polled, if these events have changed. */
static void stream_watch(struct br_stream *stream)
{
    int events = 0;
    if (stream->connecting || stream->full)
        events |= UV_WRITABLE;
    if (stream_may_read(stream) && !stream_waits_unpolled(stream))
        events |= UV_READABLE;
    if (events == stream->polled)
        return;
    stream->polled = events;
    if (events)
        uv_poll_start(&stream->poll, events, stream_on_poll);
    else
        uv_poll_stop(&stream->poll);
}

struct br_stream *br_stream_new(struct br_loop *loop, int fd, const struct br_stream_events *events,
                                void *owner, bool server, bool connecting)
{
    struct br_stream *stream = br_calloc(1, sizeof *stream);
    int first = connecting ? UV_WRITABLE : UV_READABLE;
    if (!stream || br_watchers_poll(loop, &stream->poll, fd, first, stream_on_poll)) {
        br_free(stream);
        close(fd);
        return NULL;
    }
    stream->loop = loop;
    stream->fd = fd;
    stream->events = events;
    stream->owner = owner;
    stream->server = server;
    stream->connecting = connecting;
    stream->polled = first;
    stream->poll.data = stream;
    stream->opened_ms = stream->read_ms = uv_now(&loop->uv);
    br_list_init(&stream->link);
    br_list_init(&stream->dirty);
    br_list_init(&stream->busy);
    br_list_init(&stream->pause);
    br_list_init(&stream->unread);
    return stream;
}

/* Only the first reason is kept, because later reasons are consequences of it. */
void br_stream_note(struct br_stream *stream, enum br_ending reason, const char *why)
{
    if (stream->reason)
        return;
    stream->reason = reason;
    (void)snprintf(stream->why, sizeof stream->why, "%.*s", (int)sizeof stream->why - 1, why);
}

void br_stream_close_for(struct br_stream *stream, enum br_ending reason, const char *why)
{
    stream->closing = true;
    br_stream_note(stream, reason, why);
    br_stream_wake(stream);
}

void br_stream_close(struct br_stream *stream, const char *why)
{
    br_stream_close_for(stream, BR_END_DONE, why);
}

static void stream_on_uv_closed(uv_handle_t *handle)
{
    br_free(handle->data);
}

static void stream_count_held(struct br_stream *stream);

static void stream_unread_end(struct br_stream *stream)
{
    if (br_list_empty(&stream->unread))
        return;
    *(stream->sends_slowly ? &stream->loop->n_slow_senders : &stream->loop->n_unread) -= 1;
    br_list_remove(&stream->unread);
}

static void stream_busy_end(struct br_stream *stream)
{
    stream->loop->n_busy -= !br_list_empty(&stream->busy);
    br_list_remove(&stream->busy);
}

/* Frees the content of a stream. The stream itself is freed when libuv has closed its handle. */
static void stream_destroy(struct br_stream *stream)
{
    if (stream->freed)
        return;
    stream->freed = true;
    stream_count_held(stream);
    if (stream->loop->active == stream)
        stream->loop->active = NULL;
    br_list_remove(&stream->dirty);
    stream_busy_end(stream);
    br_list_remove(&stream->pause);
    stream_unread_end(stream);
    uv_poll_stop(&stream->poll);
    uv_close((uv_handle_t *)&stream->poll, stream_on_uv_closed);
    stream->events->on_closed(stream, stream->why[0] ? stream->why : "closed");
    if (stream->conn)
        stream->conn->ops->free(stream->conn);
    stream->conn = NULL;
    br_tls_free(stream->tls);
    br_rope_release(&stream->out);
    close(stream->fd);
}

/* --- Reading -------------------------------------------------------------------------------- */

static int stream_feed(void *arg, const uint8_t *data, size_t len)
{
    struct br_stream *stream = arg;
    if (!stream->conn) {
        int rc = stream->events->detect(stream, data, len);
        if (rc)
            return rc == BR_EAGAIN ? 0 : rc;
        /* Process the bytes that were stored while br_stream_events.detect waited for more
         * bytes. */
        if (stream->n_first) {
            rc = stream->conn->ops->input(stream->conn, stream->first, stream->n_first,
                                          uv_now(&stream->loop->uv));
            if (rc)
                return rc;
        }
    }
    return stream->conn->ops->input(stream->conn, data, len, uv_now(&stream->loop->uv));
}

/* Stops reading from a stream that has to end. A client's stream is closed at once. A server's
 * stream sends its pending output before it is closed. */
static void stream_wind_down(struct br_stream *stream, enum br_ending reason, const char *why)
{
    if (!stream->server) {
        br_stream_close(stream, why);
        return;
    }
    br_stream_note(stream, reason, why);
    stream->ending = true;
}

/* Returns the error text for the protocol that the peer was detected to speak, or NULL. */
static const char *stream_complaint(const struct br_stream *stream)
{
    return stream->complaints ? stream->complaints[stream->guess] : NULL;
}

/* Answers a peer of another protocol with an HTTP/1.1 response, because most tools display such
 * a response. */
static void stream_answer_complaint(struct br_stream *stream, const char *complaint)
{
    char text[512];
    int len = snprintf(text, sizeof text,
                       "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n"
                       "Connection: close\r\nContent-Length: %zu\r\n\r\n%s\n",
                       strlen(complaint) + 1, complaint);
    struct br_buf *buf = br_buf_new(stream->loop->host.pool, (size_t)len);
    if (buf && !br_buf_append(&buf, text, (size_t)len, (size_t)len))
        (void)br_rope_add(&stream->out, buf, buf->data, buf->len);
    br_buf_unref(buf);
}

/* Guesses the peer's protocol from its first bytes. Returns true if the stream must end because
 * of the peer's protocol. */
static bool stream_guess(struct br_stream *stream, const uint8_t *data, size_t len)
{
    if (!stream->complaints || stream->guess != BR_GUESS_NOTHING)
        return false;
    stream->guess = br_guess(data, len);
    const char *complaint = stream_complaint(stream);
    if (!complaint)
        return false;
    if (stream->conn)
        stream->conn->why = complaint;
    if (stream->server) {
        stream_answer_complaint(stream, complaint);
        stream->events->on_complaint(stream, complaint);
    }
    stream_wind_down(stream, stream->tls ? BR_END_TLS : BR_END_PROTOCOL, complaint);
    br_stream_wake(stream);
    return true;
}

/* Returns why the peer closed the stream, as text. A server that closes before it has sent a
 * byte probably expects another protocol. */
static const char *stream_why_closed(struct br_stream *stream, const char *otherwise)
{
    const char *complaint = stream_complaint(stream);
    if (complaint && stream->conn)
        stream->conn->why = complaint;
    return complaint ? complaint : otherwise;
}

/* Handles the end of the input. The peer has closed its side, but an HTTP/1.1 client may still
 * wait for its responses. */
static void stream_on_eof(struct br_stream *stream, bool cut_off)
{
    const char *why = stream_why_closed(stream, "the peer closed the connection");
    stream->eof = true;
    if (stream->conn && !stream->half_closed && !stream->ending && !cut_off) {
        stream->conn->ops->eof(stream->conn);
        if (stream->server && !stream->conn->ops->finished(stream->conn)) {
            br_stream_wake(stream);
            return;
        }
    }
    /* After our half-close, all output has been sent, and the peer has closed its side only in
     * response to that. */
    br_stream_close_for(stream, stream->half_closed ? BR_END_DONE : BR_END_PEER, why);
}

/* --- Memory of unfinished requests -------------------------------------------------------------
 */

static size_t stream_large_part(size_t held)
{
    return held > BR_HELD_SMALL ? held : 0;
}

static void stream_count_held(struct br_stream *stream)
{
    struct br_loop *loop = stream->loop;
    size_t now = stream->server && stream->conn && !stream->freed
                     ? stream->conn->ops->held(stream->conn)
                     : 0;
    loop->held += now - stream->held;
    loop->held_large += stream_large_part(now) - stream_large_part(stream->held);
    loop->n_large +=
        (unsigned)(stream_large_part(now) > 0) - (unsigned)(stream_large_part(stream->held) > 0);
    stream->held = now;
}

static bool stream_over_mark(const struct br_loop *loop)
{
    return loop->mark && loop->held > loop->mark;
}

/* Returns how many bytes a connection may buffer while all connections together exceed the limit of
 * the loop (br_loop_set_mark). If any connection is large, at least one connection exceeds the
 * returned share. */
static size_t stream_fair_share(const struct br_loop *loop)
{
    size_t small = loop->held - loop->held_large;
    size_t left = small < loop->mark ? loop->mark - small : 0;
    size_t share = loop->n_large ? left / loop->n_large : left;
    return share > BR_HELD_SMALL ? share : BR_HELD_SMALL;
}

static bool stream_holds_too_much(const struct br_stream *stream)
{
    return stream_over_mark(stream->loop) && stream->held > stream_fair_share(stream->loop);
}

static void stream_unpause(struct br_stream *stream)
{
    br_list_remove(&stream->pause);
    stream->resumed_ms = uv_now(&stream->loop->uv);
    stream_watch(stream);
}

static void stream_on_rotation(struct br_timer *timer);

static void stream_activate(struct br_loop *loop, struct br_stream *stream)
{
    loop->active = stream;
    loop->active_ticks = 0;
    loop->active_bytes = 0;
    if (!loop->rotation.slot)
        (void)br_host_timer(&loop->host, &loop->rotation, TICK_MS, stream_on_rotation);
}

static void stream_activate_next(struct br_loop *loop)
{
    loop->active = NULL;
    while (!loop->active && !br_list_empty(&loop->paused)) {
        struct br_stream *stream = br_container_of(loop->paused.next, struct br_stream, pause);
        stream_unpause(stream);
        if (stream_holds_too_much(stream))
            stream_activate(loop, stream);
    }
}

/* Replaces the active stream if it reads too little. A stream stays active while it reads at
 * least ACTIVE_BYTES_MIN in each tick, for at most ACTIVE_TICKS_MAX ticks. */
static void stream_on_rotation(struct br_timer *timer)
{
    struct br_loop *loop = br_container_of(timer, struct br_loop, rotation);
    bool used = loop->active_bytes >= ACTIVE_BYTES_MIN && ++loop->active_ticks < ACTIVE_TICKS_MAX;
    loop->active_bytes = 0;
    if (!loop->active || !used)
        stream_activate_next(loop);
    if (loop->active || !br_list_empty(&loop->paused))
        (void)br_host_timer(&loop->host, &loop->rotation, TICK_MS, stream_on_rotation);
}

void br_loop_resume(struct br_loop *loop)
{
    while (!br_list_empty(&loop->paused) && !stream_over_mark(loop))
        stream_unpause(br_container_of(loop->paused.next, struct br_stream, pause));
    if (loop->active && !stream_holds_too_much(loop->active))
        stream_activate_next(loop);
}

/* Pauses a stream that buffers more than stream_fair_share, unless it is the active stream or
 * becomes the active stream. Returns true if the stream may not be read now. */
static bool stream_hold_back(struct br_stream *stream)
{
    struct br_loop *loop = stream->loop;
    if (!stream->server || stream->half_closed || stream == loop->active ||
        !stream_holds_too_much(stream))
        return false;
    if (!loop->active)
        stream_activate(loop, stream);
    /* If the timer does not run, a paused stream might never be resumed. */
    if (loop->active == stream || !loop->rotation.slot)
        return false;
    br_list_append(&loop->paused, &stream->pause);
    *loop->n_pauses += 1;
    return true;
}

/* Returns the error text for input that failed: the text from TLS or the protocol, or otherwise
 * the text for the error code. */
static const char *stream_error_text(const struct br_stream *stream, int rc,
                                     const struct br_err *err)
{
    if (err->text[0])
        return err->text;
    if (stream->conn && stream->conn->why)
        return stream->conn->why;
    return br_strerror(rc);
}

static enum br_ending stream_ending_of(int rc, const struct br_err *err)
{
    if (rc == BR_ENOMEM)
        return BR_END_MEMORY;
    return err->text[0] ? BR_END_TLS : BR_END_PROTOCOL;
}

void br_stream_receive(struct br_stream *stream, const uint8_t *data, size_t len)
{
    struct br_err err = {0};
    if (stream_guess(stream, data, len))
        return;
    int rc = stream->tls ? br_tls_input(stream->tls, data, len, stream_feed, stream, &err)
                         : stream_feed(stream, data, len);
    if (rc == BR_ECLOSED && stream->tls)
        stream_on_eof(stream, false);
    else if (rc)
        stream_wind_down(stream, stream_ending_of(rc, &err), stream_error_text(stream, rc, &err));
    /* input can cause output: responses, acknowledgements, window updates */
    br_stream_wake(stream);
    if (!stream->closing)
        stream->events->on_progress(stream);
}

/* Returns the maximum size of the next read. Large bodies are stored in fresh memory, where page
 * faults take longer than the copy. Smaller reads let other streams be served between the page
 * faults. */
static size_t stream_read_size(const struct br_stream *stream)
{
    return stream->server && stream->held > READ_LARGE_FROM ? READ_LARGE_SIZE : BR_READ_SIZE;
}

/* Reads once from the socket. Returns false if nothing more can be read now. */
static bool stream_read_once(struct br_stream *stream)
{
    struct br_loop *loop = stream->loop;
    if (stream->closing || !stream_may_read(stream) || stream_hold_back(stream))
        return false;
    size_t size = stream_read_size(stream);
    ssize_t n = recv(stream->fd, loop->read_buffer, size, 0);
    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            br_stream_close_for(stream, BR_END_NETWORK, stream_why_closed(stream, strerror(errno)));
        return false;
    }
    if (n == 0) {
        /* Over TLS, a close without close_notify may be a truncation of the data. */
        stream_on_eof(stream, stream->tls != NULL);
        return false;
    }
    stream->read_ms = uv_now(&loop->uv);
    if (stream->server)
        loop->read_bytes += (size_t)n;
    if (stream == loop->active)
        loop->active_bytes += (size_t)n;
    if (!stream->half_closed && !stream->ending)
        br_stream_receive(stream, loop->read_buffer, (size_t)n);
    stream_count_held(stream);
    stream->n_small_reads = stream->held && n < SMALL_READ ? stream->n_small_reads + 1 : 0;
    return (size_t)n == size;
}

/* Puts off a read if this iteration has read BR_ITERATION_READ_MAX bytes, or if reads of other
 * streams are still put off. The reads of slow senders are always put off. Returns true if the read
 * was put off. */
static bool stream_waits_to_read(struct br_stream *stream)
{
    struct br_loop *loop = stream->loop;
    if (!br_list_empty(&stream->unread))
        return true;
    bool sends_slowly = stream->n_small_reads >= SMALL_READS;
    bool full = loop->n_unread || loop->read_bytes >= BR_ITERATION_READ_MAX;
    if (!stream->server || (!sends_slowly && !full))
        return false;
    stream->sends_slowly = sends_slowly;
    br_list_append(sends_slowly ? &loop->slow_senders : &loop->unread, &stream->unread);
    *(sends_slowly ? &loop->n_slow_senders : &loop->n_unread) += 1;
    return true;
}

static void stream_read_waiting(struct br_list *waiting)
{
    struct br_stream *stream = br_container_of(waiting->next, struct br_stream, unread);
    stream_unread_end(stream);
    (void)stream_read_once(stream);
    /* wakes the stream: its socket must be polled again, or the stream must be closed */
    br_stream_wake(stream);
}

void br_loop_read_unread(struct br_loop *loop)
{
    while (loop->read_bytes < BR_ITERATION_READ_MAX && loop->n_unread)
        stream_read_waiting(&loop->unread);
}

void br_loop_read_slow_senders(struct br_loop *loop)
{
    for (int i = 0; i < SLOW_SENDERS_PER_ITERATION && loop->n_slow_senders &&
                    loop->read_bytes < BR_ITERATION_READ_MAX;
         i++)
        stream_read_waiting(&loop->slow_senders);
    loop->read_bytes = 0;
}

/* Handles a socket error. A client first reads the input that arrived before the error. The
 * input is often a response that the server sent before it had read the whole request. */
static void stream_on_broken(struct br_stream *stream, int error)
{
    while (!stream->server && !stream->connecting && stream_read_once(stream))
        ;
    const char *why = error ? strerror(error) : "the connection failed";
    br_stream_close_for(stream, BR_END_NETWORK,
                        stream->connecting ? why : stream_why_closed(stream, why));
}

/* --- Writing -------------------------------------------------------------------------------- */

/* Returns the maximum number of bytes of unsent output. The maximum is smaller for servers,
 * because servers have many clients and some of these do not read. */
static size_t stream_out_max(const struct br_stream *stream)
{
    return stream->server ? BR_OUT_MAX : BR_WRITE_SIZE;
}

/* Moves output from the protocol to `stream->out`, and encrypts it if the stream uses TLS. */
static int stream_pull(struct br_stream *stream)
{
    struct br_pool *pool = stream->loop->host.pool;
    /* `max` is positive: the caller pulls only if `out` contains less than a quarter of the
     * maximum. */
    size_t max = stream_out_max(stream) - stream->out.len;
    if (!stream->tls)
        return stream->conn
                   ? stream->conn->ops->output(stream->conn, &stream->out, stream_out_max(stream))
                   : 0;
    if (stream->conn && br_tls_ready(stream->tls)) {
        struct br_rope plain = {0};
        int rc = stream->conn->ops->output(stream->conn, &plain, max);
        if (!rc && plain.len)
            rc = br_tls_send(stream->tls, &plain);
        br_rope_release(&plain);
        if (rc) {
            /* appends the TLS alert, so that the peer receives the reason */
            (void)br_tls_output(stream->tls, pool, &stream->out);
            return rc;
        }
    }
    return br_tls_output(stream->tls, pool, &stream->out);
}

/* Writes to the socket once. Returns 1 if all was written, 0 if the socket is full, -1 on error. */
static int stream_send_once(struct br_stream *stream)
{
    struct iovec iov[IOV_PER_SEND];
    uint32_t n = 0;
    size_t bytes = 0;
    for (; n < stream->out.count && n < IOV_PER_SEND && bytes < BR_WRITE_SIZE; n++) {
        iov[n].iov_base = (void *)(uintptr_t)stream->out.slices[n].data;
        iov[n].iov_len = stream->out.slices[n].len;
        bytes += iov[n].iov_len;
    }
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n};
    ssize_t sent = sendmsg(stream->fd, &msg, MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    br_progress_add(&stream->writing, (size_t)sent, uv_now(&stream->loop->uv));
    br_rope_drop(&stream->out, (size_t)sent);
    return (size_t)sent == bytes ? 1 : 0;
}

/* Returns the maximum number of pulls per iteration. If conn->paused is set, the connection has
 * more pipelined requests, which are answered after the current output. */
static unsigned stream_pulls_max(const struct br_stream *stream)
{
    bool more = stream->conn && stream->conn->paused;
    return more && stream->loop->n_busy > BUSY_MANY ? PULLS_WHEN_MANY : PULLS_PER_ITERATION;
}

/* Returns true if the stream has to wait for a later iteration. One pull can contain the
 * responses to thousands of pipelined requests. */
static bool stream_must_yield(struct br_stream *stream, unsigned n_pulls)
{
    if (!stream->server || stream->closing || stream->half_closed ||
        n_pulls < stream_pulls_max(stream))
        return false;
    if (br_list_empty(&stream->busy)) {
        br_list_append(&stream->loop->busy, &stream->busy);
        stream->loop->n_busy++;
    }
    br_list_remove(&stream->dirty); /* the pull may have added the stream to loop->dirty again */
    return true;
}

static void stream_await_writable(struct br_stream *stream)
{
    stream->full = true;
    br_progress_start(&stream->writing, uv_now(&stream->loop->uv));
}

/* Writes until all output is sent, the socket is full, or other streams must be served first.
 * After SENDS_PER_ITERATION writes the stream waits for its socket as if the socket were full. */
static void stream_send_all(struct br_stream *stream)
{
    for (unsigned n_pulls = 0; !stream->connecting && !stream->full; n_pulls++) {
        if (stream->out.len == 0 && stream_must_yield(stream, n_pulls))
            return;
        if (stream->out.len < stream_out_max(stream) / 4 && stream_pull(stream)) {
            br_stream_close_for(stream, BR_END_MEMORY, "out of memory, or the protocol failed");
            return;
        }
        if (stream->out.len == 0)
            return;
        if (n_pulls == SENDS_PER_ITERATION) {
            stream_await_writable(stream);
            return;
        }
        int rc = stream_send_once(stream);
        if (rc < 0) {
            int error = errno;
            br_rope_release(&stream->out);
            stream_on_broken(stream, error);
            return;
        }
        if (rc == 0)
            stream_await_writable(stream);
    }
}

/* Ends a stream whose output is sent. A server only shuts down its own side and lets the peer
 * read: closing with unread input would reset the connection and discard the last response. The
 * server's sweep closes the socket later. */
static void stream_half_close(struct br_stream *stream)
{
    if (stream->server && !stream->eof && shutdown(stream->fd, SHUT_WR) == 0) {
        stream->half_closed = true;
        stream->half_closed_ms = uv_now(&stream->loop->uv);
    } else {
        br_stream_close(stream, stream->why[0] ? stream->why : "done");
    }
}

static bool stream_is_done(const struct br_stream *stream)
{
    if (stream->closing || stream->connecting || stream->half_closed ||
        !br_list_empty(&stream->busy))
        return false;
    if (!stream->ending && !(stream->conn && stream->conn->ops->finished(stream->conn)))
        return false;
    /* a client need not send its remaining output on a finished connection */
    return stream->out.len == 0 || !stream->server;
}

static void stream_flush(struct br_stream *stream)
{
    if (stream->conn && stream->conn->cut) {
        br_stream_close_for(stream, BR_END_EVICTED,
                            "closed to free the memory of its unread responses");
        return;
    }
    stream_send_all(stream);
    if (stream->out.len == 0 && stream->out.cap > IDLE_SLICES)
        br_rope_release(&stream->out);
    /* a response ends its request, even an incomplete request, and so changes the number of
     * buffered bytes */
    stream_count_held(stream);
    if (!stream_is_done(stream))
        return;
    if (stream->tls && !stream->close_notify) {
        stream->close_notify = true;
        br_tls_close(stream->tls);
        stream_send_all(stream);
        if (stream->server && stream->out.len)
            return;
    }
    if (!stream->closing)
        stream_half_close(stream);
}

void br_stream_end(struct br_stream *stream, const char *why)
{
    br_stream_close(stream, why);
    stream_flush(stream);
    stream_destroy(stream);
}

void br_loop_flush(struct br_loop *loop)
{
    struct br_list now;
    br_list_init(&now);
    while (!br_list_empty(&loop->dirty))
        br_list_append(&now, br_list_shift(&loop->dirty));
    struct br_list *list;
    while ((list = br_list_shift(&now))) {
        struct br_stream *stream = br_container_of(list, struct br_stream, dirty);
        stream_flush(stream);
        if (stream->closing)
            stream_destroy(stream);
        else
            stream_watch(stream);
    }
}

bool br_loop_has_many_busy(const struct br_loop *loop)
{
    return loop->n_busy > BUSY_MANY;
}

bool br_loop_resume_busy(struct br_loop *loop)
{
    bool many = br_loop_has_many_busy(loop), any = false;
    if (many && loop->busy_resumed_ms == uv_now(&loop->uv))
        return false;
    loop->busy_resumed_ms = uv_now(&loop->uv);
    for (int i = 0; i < (many ? BUSY_PER_MS : 1) && !br_list_empty(&loop->busy); i++) {
        struct br_stream *stream = br_container_of(loop->busy.next, struct br_stream, busy);
        stream_busy_end(stream);
        br_stream_wake(stream);
        any = true;
    }
    return any;
}

static int stream_socket_error(const struct br_stream *stream)
{
    int error = 0;
    socklen_t len = sizeof error;
    return getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &error, &len) ? errno : error;
}

static void stream_on_connected(struct br_stream *stream, int status)
{
    int error = stream_socket_error(stream);
    if (error || status < 0) {
        br_stream_close(stream, error ? strerror(error) : uv_strerror(status));
        return;
    }
    stream->connecting = false;
    stream->events->on_progress(stream);
    br_stream_wake(stream);
}

static void stream_on_poll(uv_poll_t *poll_handle, int status, int events)
{
    struct br_stream *stream = poll_handle->data;
    if (stream->freed || stream->closing)
        return;
    if (stream->connecting) {
        stream_on_connected(stream, status);
        return;
    }
    if (status < 0) { /* after an error, libuv has stopped polling the socket */
        stream_on_broken(stream, stream_socket_error(stream));
        return;
    }
    if ((events & UV_READABLE) && !stream_waits_to_read(stream))
        (void)stream_read_once(stream);
    if (events & UV_WRITABLE) {
        stream->full = false;
        br_stream_wake(stream);
    }
    if (!stream->closing)
        stream_watch(stream);
}
