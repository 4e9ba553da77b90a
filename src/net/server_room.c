/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room for connections. A connection that comes when there are as many as there may be takes the
 * place of the one that has been without a request for the longest, whichever worker has it; where
 * all have one, it is refused.
 *
 * A worker looks among its own connections only. It tells the others since when the first of them
 * has had no new request: none of its idle ones is older. So an arrival begins where that is the
 * longest ago, goes round the workers, passes by those that cannot have an older idle one than was
 * found, and returns to the oldest. Where that has gone or has a request by then, a second round
 * takes the first that is idle.
 */
#include <string.h>

#include "base/mem.h"
#include "net/server_internal.h"

#define LOOK_AT_MOST 4096 /* streams, for one that can go */
#define SPARE_CONNECTIONS 8 /* of a server on a worker: probes and scrapes get through */

/* --- The order -------------------------------------------------------------------------------- */

/* Where nothing limits connections, requests do not pay for the order of those of all workers. */
static bool server_room_has_limit(const struct br_net_server *server)
{
    return server->listener->max || server->listener->max_per_address;
}

static uint64_t server_room_since(const struct br_list *list)
{
    const struct br_stream *stream = br_container_of(list, struct br_stream, link);
    const struct br_peer *peer = stream->owner;
    return peer->since_ns;
}

static void server_room_tell_oldest(struct br_net_server *server)
{
    const struct br_list *list = &server->streams;
    uint64_t oldest_ns = br_list_empty(list) ? UINT64_MAX : server_room_since(list->next);
    atomic_store_explicit(&server->oldest_ns, oldest_ns, memory_order_relaxed);
}

void br_server_put_last(struct br_net_server *server, struct br_stream *stream)
{
    struct br_peer *peer = stream->owner;
    br_list_remove(&stream->link);
    br_list_append(&server->streams, &stream->link);
    if (!server_room_has_limit(server))
        return;
    peer->since_ns = uv_hrtime();
    server_room_tell_oldest(server);
}

void br_server_forget(struct br_net_server *server, struct br_stream *stream)
{
    br_list_remove(&stream->link);
    if (server_room_has_limit(server))
        server_room_tell_oldest(server);
}

/* --- On a worker ------------------------------------------------------------------------------ */

static bool server_room_same_address(const struct br_address *address,
                                     const struct br_address *other)
{
    return address->known && other->known &&
           memcmp(address->bytes, other->bytes, sizeof address->bytes) == 0;
}

static bool server_room_may_go(const struct br_stream *stream, const struct br_address *address)
{
    const struct br_peer *peer = stream->owner;
    if (stream->closing || (address && !server_room_same_address(&peer->address, address)))
        return false;
    return stream->shut || br_server_stream_idle(stream);
}

/* The connection that has been idle for the longest; of `address`, unless that is NULL. */
static struct br_stream *server_room_oldest(struct br_net_server *server,
                                            const struct br_address *address)
{
    unsigned looked_at = 0;
    for (struct br_list *list = server->streams.next; list != &server->streams; list = list->next) {
        struct br_stream *stream = br_container_of(list, struct br_stream, link);
        if (++looked_at > LOOK_AT_MOST)
            return NULL;
        if (server_room_may_go(stream, address))
            return stream;
    }
    return NULL;
}

static void server_room_close(struct br_stream *stream)
{
    if (stream->conn && !stream->shut)
        stream->conn->ops->shutdown(stream->conn);
    br_stream_close_for(stream, BR_END_ROOM, "it made room for another one");
}

/* --- Places of an address --------------------------------------------------------------------- */

bool br_listener_note_address(struct br_listener *listener, const struct br_address *address,
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

unsigned br_listener_address_count(struct br_listener *listener, const struct br_address *address)
{
    pthread_mutex_lock(&listener->lock);
    uintptr_t n = (uintptr_t)br_map_get(listener->addresses, address->bytes, sizeof address->bytes);
    pthread_mutex_unlock(&listener->lock);
    return (unsigned)n;
}

void br_listener_forget_address(struct br_listener *listener, const struct br_address *address)
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

/* --- From worker to worker -------------------------------------------------------------------- */

static void server_room_refuse(struct br_net_server *server, const struct br_arrival *arrival,
                               enum br_ending why, const char *text)
{
    br_server_drop(server, arrival, why);
    br_log_limited(server->config.log, BR_LOG_WARN, &server->refusals, uv_now(&server->loop->uv),
                   BR_LOG_EVERY_MS, "%s: a connection of %s was refused: %s", server->config.what,
                   arrival->peer, text);
}

bool br_server_refuse_over(struct br_net_server *server, const struct br_arrival *arrival)
{
    if (br_server_load(server) <= SPARE_CONNECTIONS || !br_pool_is_over(server->loop->host.pool))
        return false;
    server_room_refuse(server, arrival, BR_END_MEMORY, "the memory limit is reached");
    return true;
}

/* Who is asked after `server`: itself, when what it has is the oldest; NULL after the last. */
static struct br_net_server *server_room_next(const struct br_net_server *server,
                                              struct br_arrival *arrival)
{
    const struct br_listener *listener = server->listener;
    unsigned n = listener->n_targets, at = server->loop->host.worker, asked = arrival->n_asked;
    unsigned end = asked < n ? n : 2 * n;
    while (++arrival->n_asked < end) {
        struct br_net_server *other = listener->targets[(at + arrival->n_asked - asked) % n];
        if (other && br_server_oldest_ns(other) <= arrival->oldest_ns)
            return other;
    }
    if (end > n || arrival->oldest_ns == UINT64_MAX)
        return NULL;
    arrival->oldest_ns = UINT64_MAX; /* nobody is passed by in the second round */
    return listener->targets[arrival->oldest_at];
}

bool br_server_find_room(struct br_net_server *server, const struct br_arrival *arrival)
{
    bool of_address = arrival->room == BR_ROOM_NONE_OF_ADDRESS;
    struct br_stream *stream = server_room_oldest(server, of_address ? &arrival->address : NULL);
    struct br_arrival next = *arrival;
    struct br_net_server *other = server;
    if (stream && server_room_since(&stream->link) < next.oldest_ns) {
        next.oldest_ns = server_room_since(&stream->link);
        next.oldest_at = server->loop->host.worker;
    }
    if (!stream || arrival->n_asked < server->listener->n_targets)
        other = server_room_next(server, &next);
    if (other == server) {
        server_room_close(stream);
        return true;
    }
    if (other) {
        br_server_uncount(server, &arrival->address);
        br_listener_hand_over(other, &next);
    } else {
        server_room_refuse(server, arrival, BR_END_LIMIT,
                           "there are as many as there may be, and none is idle");
    }
    return false;
}

/* --- Descriptors ------------------------------------------------------------------------------ */

/* Asks a server of another worker for descriptors. */
struct plea {
    struct br_message message;
    struct br_net_server *server;
    unsigned count;
};

static void server_room_shed(struct br_net_server *server, unsigned count)
{
    struct br_stream *stream;
    while (count-- && (stream = server_room_oldest(server, NULL)))
        server_room_close(stream);
}

static void server_room_on_plea(struct br_message *message, struct br_loop *loop)
{
    struct plea *p = br_container_of(message, struct plea, message);
    (void)loop;
    server_room_shed(p->server, p->count);
    br_free(p);
}

static void server_room_ask(struct br_loop *here, struct br_net_server *server, unsigned count)
{
    if (br_server_loop(server) == here) {
        server_room_shed(server, count);
        return;
    }
    struct plea *p = br_malloc(sizeof *p);
    if (!p)
        return;
    *p = (struct plea){.message.run = server_room_on_plea, .server = server, .count = count};
    if (!br_loop_post(br_server_loop(server), &p->message))
        br_free(p);
}

static unsigned server_room_most_load(const struct br_list *listeners)
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
    unsigned most = server_room_most_load(listeners);
    for (struct br_list *list = listeners->next; list != listeners; list = list->next) {
        struct br_listener *of = br_container_of(list, struct br_listener, link);
        for (unsigned i = 0; i < of->n_targets; i++) {
            struct br_net_server *server = of->targets[i];
            if (server && br_server_load(server) && br_server_load(server) >= most - most / 2)
                server_room_ask(here, server, count);
        }
    }
}
