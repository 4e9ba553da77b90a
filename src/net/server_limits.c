/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Enforces connection limits. A new connection at the limit replaces the connection that has gone
 * longest without a request, on any worker. If every connection has a request in progress, the new
 * connection is rejected.
 *
 * A worker only examines its own connections. Each worker publishes in `oldest_ns` the time of the
 * last request of its first connection. No idle connection of the worker had its last request
 * before the published time.
 *
 * The search begins at the worker with the earliest published time and visits the other workers in
 * turn. The search skips workers that cannot have an idle connection older than the oldest
 * connection found so far. The search ends at the worker that owns the oldest idle connection. If
 * that connection was closed meanwhile or has a request, a second round evicts the first idle
 * connection that it finds.
 */
#include <string.h>

#include "base/mem.h"
#include "net/server_internal.h"

/* maximum number of streams that are examined in search of an idle connection */
#define LOOK_AT_MOST 4096
/* number of connections per server and worker that are accepted even above the memory limit, so
 * that health probes are still answered */
#define SPARE_CONNECTIONS 8

/* --- The order of eviction -------------------------------------------------------------------- */

/* Returns true if connections are limited. Without a limit, the order of eviction across workers
 * is not needed, and requests do not update the order. */
static bool server_limit_is_set(const struct br_net_server *server)
{
    return server->listener->max || server->listener->max_per_address;
}

static uint64_t server_limit_since(const struct br_list *list)
{
    const struct br_stream *stream = br_container_of(list, struct br_stream, link);
    const struct br_peer *peer = stream->owner;
    return peer->since_ns;
}

static void server_limit_publish_oldest(struct br_net_server *server)
{
    const struct br_list *list = &server->streams;
    uint64_t oldest_ns = br_list_empty(list) ? UINT64_MAX : server_limit_since(list->next);
    atomic_store_explicit(&server->oldest_ns, oldest_ns, memory_order_relaxed);
}

void br_server_put_last(struct br_net_server *server, struct br_stream *stream)
{
    struct br_peer *peer = stream->owner;
    br_list_remove(&stream->link);
    br_list_append(&server->streams, &stream->link);
    if (!server_limit_is_set(server))
        return;
    peer->since_ns = uv_hrtime();
    server_limit_publish_oldest(server);
}

void br_server_forget(struct br_net_server *server, struct br_stream *stream)
{
    br_list_remove(&stream->link);
    if (server_limit_is_set(server))
        server_limit_publish_oldest(server);
}

/* --- Eviction on one worker ------------------------------------------------------------------- */

static bool server_limit_same_address(const struct br_client_address *address,
                                      const struct br_client_address *other)
{
    return address->known && other->known &&
           memcmp(address->bytes, other->bytes, sizeof address->bytes) == 0;
}

static bool server_limit_is_evictable(const struct br_stream *stream,
                                      const struct br_client_address *address)
{
    const struct br_peer *peer = stream->owner;
    if (stream->closing || (address && !server_limit_same_address(&peer->address, address)))
        return false;
    return stream->half_closed || br_server_stream_idle(stream);
}

/* Returns the connection that has been idle longest, or NULL. If `address` is not NULL, only
 * connections from that address are considered. */
static struct br_stream *server_limit_oldest(struct br_net_server *server,
                                             const struct br_client_address *address)
{
    unsigned looked_at = 0;
    for (struct br_list *list = server->streams.next; list != &server->streams; list = list->next) {
        struct br_stream *stream = br_container_of(list, struct br_stream, link);
        if (++looked_at > LOOK_AT_MOST)
            return NULL;
        if (server_limit_is_evictable(stream, address))
            return stream;
    }
    return NULL;
}

static void server_limit_close(struct br_stream *stream)
{
    if (stream->conn && !stream->half_closed)
        stream->conn->ops->shutdown(stream->conn);
    br_stream_close_for(stream, BR_END_EVICTED, "evicted while idle, in favor of a new connection");
}

/* --- Connections per address ------------------------------------------------------------------ */

bool br_listener_note_address(struct br_listener *listener, const struct br_client_address *address,
                              unsigned *ret)
{
    *ret = 0;
    if (!listener->max_per_address || !address->known)
        return true;
    pthread_mutex_lock(&listener->lock);
    uintptr_t n =
        (uintptr_t)br_map_get(listener->addresses, address->bytes, sizeof address->bytes) + 1;
    int rc =
        br_map_put(listener->addresses, address->bytes, sizeof address->bytes, (void *)n, NULL);
    pthread_mutex_unlock(&listener->lock);
    *ret = (unsigned)n;
    return rc == 0;
}

unsigned br_listener_address_count(struct br_listener *listener,
                                   const struct br_client_address *address)
{
    pthread_mutex_lock(&listener->lock);
    uintptr_t n = (uintptr_t)br_map_get(listener->addresses, address->bytes, sizeof address->bytes);
    pthread_mutex_unlock(&listener->lock);
    return (unsigned)n;
}

void br_listener_forget_address(struct br_listener *listener,
                                const struct br_client_address *address)
{
    if (!listener->max_per_address || !address->known)
        return;
    pthread_mutex_lock(&listener->lock);
    uintptr_t n = (uintptr_t)br_map_get(listener->addresses, address->bytes, sizeof address->bytes);
    if (n > 1)
        (void)br_map_put(listener->addresses, address->bytes, sizeof address->bytes,
                         (void *)(n - 1), NULL);
    else
        (void)br_map_remove(listener->addresses, address->bytes, sizeof address->bytes);
    pthread_mutex_unlock(&listener->lock);
}

/* --- The search across workers ---------------------------------------------------------------- */

static void server_limit_refuse(struct br_net_server *server, const struct br_arrival *arrival,
                                enum br_ending why, const char *text)
{
    br_server_drop(server, arrival, why);
    br_log_limited(server->config.log, BR_LOG_WARN, &server->refusals, uv_now(&server->loop->uv),
                   BR_LOG_EVERY_MS, "%s: rejected a connection from %s: %s", server->config.what,
                   arrival->peer, text);
}

bool br_server_refuse_over(struct br_net_server *server, const struct br_arrival *arrival)
{
    if (br_server_load(server) <= SPARE_CONNECTIONS || !br_pool_is_over(server->loop->host.pool))
        return false;
    server_limit_refuse(server, arrival, BR_END_MEMORY, "the memory limit is reached");
    return true;
}

/* Returns the server that the search visits after `server`, or NULL if the search is over.
 * Returns `server` itself if that server has the oldest idle connection. */
static struct br_net_server *server_limit_next(const struct br_net_server *server,
                                               struct br_arrival *arrival)
{
    const struct br_listener *listener = server->listener;
    unsigned n = listener->n_targets, at = server->loop->host.worker, asked = arrival->n_visited;
    unsigned end = asked < n ? n : 2 * n;
    while (++arrival->n_visited < end) {
        struct br_net_server *other = listener->targets[(at + arrival->n_visited - asked) % n];
        if (other && br_server_oldest_ns(other) <= arrival->oldest_ns)
            return other;
    }
    if (end > n || arrival->oldest_ns == UINT64_MAX)
        return NULL;
    arrival->oldest_ns = UINT64_MAX; /* the second round skips no worker */
    return listener->targets[arrival->oldest_at];
}

bool br_server_evict_idle(struct br_net_server *server, const struct br_arrival *arrival)
{
    bool of_address = arrival->over_limit == BR_OVER_ADDRESS;
    struct br_stream *stream = server_limit_oldest(server, of_address ? &arrival->address : NULL);
    struct br_arrival next = *arrival;
    struct br_net_server *other = server;
    if (stream && server_limit_since(&stream->link) < next.oldest_ns) {
        next.oldest_ns = server_limit_since(&stream->link);
        next.oldest_at = server->loop->host.worker;
    }
    if (!stream || arrival->n_visited < server->listener->n_targets)
        other = server_limit_next(server, &next);
    if (stream && other == server) {
        server_limit_close(stream);
        return true;
    }
    if (other) {
        br_server_uncount(server, &arrival->address);
        br_listener_hand_over(other, &next);
    } else {
        server_limit_refuse(server, arrival, BR_END_LIMIT,
                            "the connection limit is reached and no connection is idle");
    }
    return false;
}

/* --- Descriptors ------------------------------------------------------------------------------ */

/* Requests a server of another worker to close `count` idle connections. */
struct close_request {
    struct br_message message;
    struct br_net_server *server;
    unsigned count;
};

static void server_limit_shed(struct br_net_server *server, unsigned count)
{
    struct br_stream *stream;
    while (count-- && (stream = server_limit_oldest(server, NULL)))
        server_limit_close(stream);
}

static void server_limit_on_close_request(struct br_message *message, struct br_loop *loop)
{
    struct close_request *p = br_container_of(message, struct close_request, message);
    (void)loop;
    server_limit_shed(p->server, p->count);
    br_free(p);
}

static void server_limit_shed_on(struct br_loop *here, struct br_net_server *server, unsigned count)
{
    if (br_server_loop(server) == here) {
        server_limit_shed(server, count);
        return;
    }
    struct close_request *p = br_malloc(sizeof *p);
    if (!p)
        return;
    *p = (struct close_request){
        .message.run = server_limit_on_close_request, .server = server, .count = count};
    if (!br_loop_post(br_server_loop(server), &p->message))
        br_free(p);
}

static unsigned server_limit_most_load(const struct br_list *listeners)
{
    unsigned most = 0;
    for (const struct br_list *list = listeners->next; list != listeners; list = list->next) {
        const struct br_listener *of = br_container_of(list, struct br_listener, link);
        for (unsigned i = 0; i < of->n_targets; i++) {
            unsigned load = of->targets[i] ? br_server_load(of->targets[i]) : 0;
            most = load > most ? load : most;
        }
    }
    return most;
}

void br_net_shed(struct br_loop *here, unsigned count)
{
    struct br_list *listeners = br_net_listeners(here->net);
    unsigned most = server_limit_most_load(listeners);
    for (struct br_list *list = listeners->next; list != listeners; list = list->next) {
        struct br_listener *of = br_container_of(list, struct br_listener, link);
        for (unsigned i = 0; i < of->n_targets; i++) {
            struct br_net_server *server = of->targets[i];
            if (server && br_server_load(server) && br_server_load(server) >= most - most / 2)
                server_limit_shed_on(here, server, count);
        }
    }
}
