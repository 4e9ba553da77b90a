/* SPDX-License-Identifier: Apache-2.0 */
/* Types and functions that the files of src/net share. No other directory includes this header
 * or uses libuv. */
#pragma once

#include <stdatomic.h>
#include <uv.h>

#include "base/list.h"
#include "net/loop.h"
#include "net/tls.h"
#include "wire/conn.h"

#define BR_READ_SIZE (256u << 10)
#define BR_WRITE_SIZE (1u << 20)
/* maximum number of bytes that all server streams together read per loop iteration; only the last
 * read may exceed this limit */
#define BR_ITERATION_READ_MAX (1u << 20)
/* number of bytes of unsent output above which a server stops reading from the client */
#define BR_OUT_MAX (256u << 10)

struct br_stream;

/* largest number of sockets that br_net_keep_sockets keeps open; further sockets are closed */
#define BR_KEPT_MAX 64
#define BR_KEPT_UDPS_MAX 16 /* the same for sockets that receive packets */

struct br_net {
    struct br_list listeners;
    /* number of connections of all servers, including those that are being handed to another
     * worker */
    _Atomic unsigned n_connections;
    /* number of connections above which idle connections are evicted; 0: no limit */
    unsigned connections_mark;
    /* descriptor of the first listening socket that systemd has passed, and number of such
     * sockets */
    int first_passed, n_passed;
    /* br_net_keep_sockets: sockets of stopped servers, for the servers that replace them */
    _Atomic bool keeps_sockets;
    struct br_kept_socket {
        int fd;
        char name[160], endpoint[300]; /* as in struct br_listener */
    } kept[BR_KEPT_MAX];
    unsigned n_kept;
    struct br_list udps; /* list of struct net_udp: sockets for packets (udp.c) */
    struct br_kept_socket kept_udps[BR_KEPT_UDPS_MAX];
    unsigned n_kept_udps;
    pthread_mutex_t works_lock; /* protects `works` */
    pthread_cond_t works_ended;
    struct br_net_works works; /* numbers of work items in libuv's thread pool, by kind */
};

/* Initializes the fields of a br_net that work.c uses: `works` and its lock. */
void br_net_works_init(struct br_net *net);

/* Releases the fields of a br_net that br_net_works_init initialized. */
void br_net_works_release(struct br_net *net);

/* The reason why a server connection ended: the label `reason` of
 * braid_server_connections_closed. */
enum br_ending {
    BR_END_NONE,
    BR_END_PEER, /* the client closed the connection */
    /* the last response of the connection was sent (Connection: close, or HTTP/1.0) */
    BR_END_DONE,
    BR_END_IDLE,          /* idle_timeout or max_connection_idle was exceeded */
    BR_END_AGE,           /* max_connection_age was exceeded */
    BR_END_HANDSHAKE,     /* no protocol was detected within handshake_timeout_ms */
    BR_END_FIRST_REQUEST, /* no request arrived within first_request_timeout_ms */
    /* a request head or a frame made no progress within the request timeout */
    BR_END_SLOW_REQUEST,
    BR_END_SLOW_BODY,   /* a body arrived more slowly than min_body_rate */
    BR_END_SLOW_READER, /* the client did not read a response in time */
    BR_END_KEEPALIVE,   /* the client did not answer a PING in time */
    BR_END_EVICTED,     /* the connection was idle and was evicted in favor of a new connection */
    /* the connection was rejected at the connection limit, because no idle connection could be
     * evicted */
    BR_END_LIMIT,
    /* the client sent too many costly frames; the server has sent ENHANCE_YOUR_CALM */
    BR_END_FLOOD,
    /* the client sent malformed input, or speaks a protocol that the server does not accept */
    BR_END_PROTOCOL,
    BR_END_TLS,
    BR_END_NETWORK, /* the connection was reset or truncated, or the client became unreachable */
    BR_END_MEMORY,
    BR_END_STOP, /* the server is stopping */
    BR_ENDINGS,
};

struct br_loop {
    struct br_host host;
    struct br_net *net;
    uv_loop_t uv;
    uv_prepare_t prepare;
    uv_timer_t timer;
    uv_async_t doorbell;
    uint64_t timer_due;
    pthread_mutex_t lock; /* protects `mailbox` and `n_mail` */
    struct br_list mailbox;
    unsigned n_mail;
    struct br_list dirty; /* streams to flush: each has output, or has to be closed */
    struct br_list busy;  /* server streams that may have more output; see stream.c */
    unsigned n_busy;
    /* time, in milliseconds by uv_now, at which a stream in `busy` was last resumed */
    uint64_t busy_resumed_ms;
    /* server streams that are not read because they buffer more than their share of `mark`
     * (br_loop_set_mark) (br_loop_set_mark) */
    struct br_list paused;
    /* the one stream that is read although it buffers more than its share of `mark`
     * (br_loop_set_mark); NULL: there is no such stream */
    struct br_stream *active;
    /* server streams that are readable and will be read in a later iteration */
    struct br_list unread;
    unsigned n_unread;
    struct br_list slow_senders; /* readable server streams that send a request in small pieces */
    unsigned n_slow_senders;
    size_t read_bytes; /* number of bytes that server streams have read in this iteration */
    struct br_timer rotation;
    /* number of times that the timer `rotation` has expired since `active` became the active
     * stream */
    unsigned active_ticks;
    /* number of bytes that `active` has read since the timer `rotation` last expired */
    size_t active_bytes;
    size_t mark; /* upper limit for `held`, in bytes; see br_loop_set_mark */
    /* number of bytes that the unfinished requests of all server streams buffer */
    size_t held;
    /* number of bytes in `held` that belong to streams which buffer more than BR_HELD_SMALL */
    size_t held_large;
    unsigned n_large; /* number of streams that buffer more than BR_HELD_SMALL */
    double *n_pauses;
    int watchable; /* libuv's table has entries for descriptors below this number */
    /* work.c: work items that wait for a free thread */
    struct br_list works_waiting[BR_WORK_KINDS];
    /* work.c: number of work items that were given to libuv and are not finished */
    unsigned n_works[BR_WORK_KINDS];
    /* buffer of BR_READ_SIZE bytes for reads from sockets */
    uint8_t *read_buffer;
};

struct br_loop *br_loop_of(struct br_host *host);

/* Callbacks by which a stream reports events to its owner. */
struct br_stream_events {
    /* Called on server streams without a protocol, when the first plaintext bytes arrive or ALPN
     * has selected a protocol. Sets `stream->conn` and returns 0; returns BR_EAGAIN to wait for
     * more bytes, or an error code that closes the stream. */
    int (*detect)(struct br_stream *stream, const uint8_t *data, size_t len);
    /* Called when the stream has connected, and whenever the peer has sent bytes. */
    void (*on_progress)(struct br_stream *stream);
    /* Called just before the stream is freed. `why` is never NULL. */
    void (*on_closed)(struct br_stream *stream, const char *why);
    /* Called on server streams whose peer speaks a protocol that the server does not accept.
     * `complaint` is the error text that was sent to the peer. */
    void (*on_complaint)(struct br_stream *stream, const char *complaint);
};

struct br_stream {
    struct br_loop *loop;
    const struct br_stream_events *events;
    void *owner;
    struct br_conn *conn; /* protocol of the connection; owned */
    struct br_tls *tls;   /* TLS state of the connection; owned; NULL for plaintext */
    uv_poll_t poll;
    int fd;
    int polled;            /* bits of the events that `poll` watches: UV_READABLE, UV_WRITABLE */
    struct br_rope out;    /* bytes to write to the socket */
    struct br_list link;   /* entry in a list of the stream's owner */
    struct br_list dirty;  /* entry in loop->dirty */
    struct br_list busy;   /* entry in loop->busy */
    struct br_list pause;  /* entry in loop->paused */
    struct br_list unread; /* entry in loop->unread, or in loop->slow_senders if `sends_slowly` */
    bool sends_slowly;
    /* number of consecutive reads of less than SMALL_READ bytes in the middle of a request */
    unsigned n_small_reads;
    /* the part of loop->held that belongs to this stream: number of bytes that its unfinished
     * requests buffer */
    size_t held;
    uint8_t first[24];
    unsigned n_first;
    /* Error texts, indexed by enum br_guess. If the entry for the protocol of the peer is a text,
     * the stream ends with this error; if the entry is NULL, the protocol is accepted. A client
     * uses the entry BR_GUESS_NOTHING if the server closes before it has sent a byte. */
    const char *const *complaints;
    enum br_guess guess;
    /* the stream belongs to a server: loop->mark applies to the stream, and the stream is
     * half-closed before it is closed */
    bool server;
    bool connecting;
    /* the socket accepts no more output; `writing` measures how long the socket has accepted
     * nothing */
    bool full;
    bool eof;    /* the peer has closed its side of the connection */
    bool ending; /* the stream ends when all output is sent; input is ignored */
    /* all output is sent and our side of the connection is shut down; input is discarded */
    bool half_closed;
    bool close_notify; /* TLS close_notify was requested */
    bool closing, freed;
    enum br_ending reason; /* why the stream ends: the first reason passed to br_stream_note */
    char why[160];         /* text that describes `reason` */
    struct br_progress writing;
    /* times in milliseconds by uv_now; `resumed_ms` is the time when the stream was last removed
     * from loop->paused */
    uint64_t opened_ms, read_ms, half_closed_ms, resumed_ms;
};

/* Makes a stream on the non-blocking socket `fd`, which the stream then owns. Returns NULL and
 * closes `fd` if memory is short or libuv cannot watch the descriptor. */
struct br_stream *br_stream_new(struct br_loop *loop, int fd, const struct br_stream_events *events,
                                void *owner, bool server, bool connecting);

/* Marks a stream to be flushed at the end of the loop iteration. */
void br_stream_wake(struct br_stream *stream);

/* Sets the protocol of a stream. After this call, the stream owns `conn`. */
void br_stream_set_conn(struct br_stream *stream, struct br_conn *conn);

/* Decrypts bytes received from the peer and passes them to the protocol. */
void br_stream_receive(struct br_stream *stream, const uint8_t *data, size_t len);

/* Closes and frees a stream at the end of the loop iteration. `why` is passed to on_closed. May
 * be called at any time, and more than once. */
void br_stream_close(struct br_stream *stream, const char *why);
void br_stream_close_for(struct br_stream *stream, enum br_ending reason, const char *why);

/* Stores the reason why the stream ends. Only the first call for a stream has an effect. */
void br_stream_note(struct br_stream *stream, enum br_ending reason, const char *why);

/* Writes as much output as the socket accepts, then closes and frees the stream at once. Must
 * not be called from a callback of the same stream. */
void br_stream_end(struct br_stream *stream, const char *why);

/* Flushes the streams in loop->dirty, and frees the streams that are closing. */
void br_loop_flush(struct br_loop *loop);

/* Reads the streams in loop->unread, oldest first, until this iteration has read
 * BR_ITERATION_READ_MAX bytes. The limit lets output be sent between reads. Without the limit,
 * one iteration could read from hundreds of streams before any data is forwarded, and memory
 * would grow. */
void br_loop_read_unread(struct br_loop *loop);

/* Reads up to SLOW_SENDERS_PER_ITERATION streams of loop->slow_senders, oldest first, within
 * BR_ITERATION_READ_MAX, and then resets loop->read_bytes. Called after complete requests have
 * been answered, because reading a thousand fragments takes milliseconds and completes no
 * request. */
void br_loop_read_slow_senders(struct br_loop *loop);

/* Lets busy streams send again. Resumes one stream per iteration, or up to BUSY_PER_MS streams
 * per millisecond if more than BUSY_MANY are busy. Returns true if a stream was resumed. */
bool br_loop_resume_busy(struct br_loop *loop);

/* Returns true if more than BUSY_MANY streams are busy. br_loop_resume_busy then resumes streams
 * once per millisecond and not in every iteration. */
bool br_loop_has_many_busy(const struct br_loop *loop);

void br_loop_resume(struct br_loop *loop);

/* The functions below implement host->ops. br_net_serve is in server.c, br_net_connect in client.c,
 * and the other functions are in work.c. */
int br_net_serve(struct br_host *host, const struct br_server_config *config,
                 struct br_handler *service, struct br_server **ret, struct br_err *err);
int br_net_connect(struct br_host *host, const struct br_client_config *config,
                   struct br_client **ret, struct br_err *err);
bool br_net_work(struct br_host *host, struct br_work *work);
void br_net_work_cancel(struct br_host *host, struct br_work *work);
void br_net_work_wait(struct br_host *host, struct br_work *work);

/*
 * Makes libuv allocate memory with br_malloc. Must be called before the first loop is made. See
 * watchers.c, which also handles the growth of libuv's table of descriptors.
 */
void br_watchers_init(void);

/* Initializes loop->uv. Returns 0, BR_ENOMEM, or BR_EIO if descriptors are exhausted. */
int br_watchers_start(struct br_loop *loop);

/* Starts to watch a descriptor that the loop does not watch yet; `fn` is called for its events,
 * beginning with the next loop iteration. Returns 0, BR_ENOMEM, or BR_EIO if the descriptor cannot
 * be polled. After a failure `poll` must not be passed to uv_close. */
int br_watchers_poll(struct br_loop *loop, uv_poll_t *poll, int fd, int events, uv_poll_cb fn);

/* Returns how many work items of `kind` one worker may have in the thread pool at the same time, if
 * there are `n_workers` workers. The sum of these numbers over all workers leaves one thread of the
 * pool for name resolution. */
unsigned br_net_works_max(unsigned n_workers, enum br_work_kind kind);

/* Sets the environment variable UV_THREADPOOL_SIZE to the number of threads that br_net_works_max
 * implies, unless the user has set it. Must be called before the first work item. */
void br_net_size_pool(unsigned n_workers);
struct sockaddr;
/* Returns true if the socket is bound to the address, whose length is `len`. */
bool br_net_is_bound(int fd, const struct sockaddr *addr, socklen_t len);

/* Writes "host:port" of an address, or "unix". */
void br_net_peer_name(const struct sockaddr_storage *addr, char *out, size_t size);

struct br_listener;
struct br_list *br_net_listeners(struct br_net *net);
