/* SPDX-License-Identifier: Apache-2.0 */
#include "net/server_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/mem.h"

#define BACKLOG 1024
#define SOCKET_MODE 0600 /* file mode of a unix socket */
#define PASSED_FIRST 3   /* SD_LISTEN_FDS_START */
#define PASSED_MAX 256
#define ADDRESSES_MAX (1u << 20)
#define ACCEPTS_PER_EVENT 64
#define PUT_OFF_MS 100
/* milliseconds until the next accept if descriptors are exhausted; shorter than PUT_OFF_MS,
 * because idle connections are being closed */
#define SHED_MS 10
#define SHED_AT_ONCE 4
/* TCP_USER_TIMEOUT in milliseconds: closes the connection of a client that has disappeared */
#define UNACKNOWLEDGED_MS 30000
/* TCP_NOTSENT_LOWAT: bytes of unsent output that the kernel buffers per connection */
#define UNSENT_BYTES (8 << 10)
/* KEEPALIVE_...: the defaults of the listeners of Go, which the Collector uses */
#define KEEPALIVE_IDLE_S 15
#define KEEPALIVE_INTERVAL_S 15
#define KEEPALIVE_PROBES 9

/* The message that hands an accepted connection to another worker. */
struct handover {
    struct br_message message;
    struct br_net_server *server;
    struct br_arrival arrival;
};

static void listener_on_handover(struct br_message *message, struct br_loop *loop)
{
    struct handover *handover = br_container_of(message, struct handover, message);
    (void)loop;
    br_server_take(handover->server, &handover->arrival);
    br_free(handover);
}

/* Returns the server with the fewest connections. Servers with the same number of connections
 * are selected round-robin. */
static struct br_net_server *listener_choose(struct br_listener *listener)
{
    struct br_net_server *best = NULL;
    unsigned least = 0;
    for (unsigned i = 0; i < listener->n_targets; i++) {
        struct br_net_server *server =
            listener->targets[(listener->next + i) % listener->n_targets];
        unsigned load = server ? br_server_load(server) : 0;
        if (server && (!best || load < least)) {
            best = server;
            least = load;
        }
    }
    listener->next++;
    return best;
}

/* Returns the server at which the search for an idle connection begins: the server that has
 * published the earliest time of a last request. If no server has published a time, because all
 * connections are still being handed over, the search begins at the server with the most
 * connections. */
static struct br_net_server *listener_oldest(const struct br_listener *listener)
{
    struct br_net_server *best = NULL;
    uint64_t best_ns = UINT64_MAX;
    for (unsigned i = 0; i < listener->n_targets; i++) {
        struct br_net_server *server = listener->targets[i];
        uint64_t oldest_ns = server ? br_server_oldest_ns(server) : UINT64_MAX;
        if (server && (!best || oldest_ns < best_ns ||
                       (oldest_ns == best_ns && br_server_load(server) > br_server_load(best)))) {
            best = server;
            best_ns = oldest_ns;
        }
    }
    return best;
}

void br_listener_hand_over(struct br_net_server *server, const struct br_arrival *arrival)
{
    struct br_loop *loop = br_server_loop(server);
    if (!arrival->n_visited)
        br_server_add_load(server, 1);
    struct handover *handover = br_malloc(sizeof *handover);
    if (handover) {
        *handover = (struct handover){
            .message.run = listener_on_handover, .server = server, .arrival = *arrival};
        if (br_loop_post(loop, &handover->message))
            return;
        br_free(handover);
    }
    if (!arrival->n_visited)
        br_server_uncount(server, &arrival->address);
    close(arrival->fd);
}

static unsigned listener_connections(const struct br_listener *listener)
{
    unsigned n = 0;
    for (unsigned i = 0; i < listener->n_targets; i++)
        n += listener->targets[i] ? br_server_load(listener->targets[i]) : 0;
    return n;
}

bool br_listener_is_full(struct br_listener *listener, const struct br_arrival *arrival)
{
    if (arrival->over_limit == BR_OVER_ADDRESS &&
        br_listener_address_count(listener, &arrival->address) > listener->max_per_address)
        return true;
    return arrival->over_limit && listener->max && listener_connections(listener) > listener->max;
}

static enum br_over_limit listener_over_limit(const struct br_listener *listener,
                                              unsigned of_address)
{
    if (listener->max_per_address && of_address > listener->max_per_address)
        return BR_OVER_ADDRESS;
    return listener->max && listener_connections(listener) >= listener->max ? BR_OVER_SERVER
                                                                            : BR_OVER_NONE;
}

static void listener_dispatch(struct br_listener *listener, struct br_arrival *arrival)
{
    struct br_net *net = listener->loop->net;
    unsigned of_address;
    bool noted = br_listener_note_address(listener, &arrival->address, &of_address);
    arrival->over_limit = listener_over_limit(listener, of_address);
    struct br_net_server *server =
        arrival->over_limit ? listener_oldest(listener) : listener_choose(listener);
    if (!server || !noted) {
        if (noted)
            br_listener_forget_address(listener, &arrival->address);
        close(arrival->fd);
        return;
    }
    if (net->connections_mark && net->n_connections >= net->connections_mark)
        br_net_shed(listener->loop, 1);
    if (br_server_loop(server) != listener->loop) {
        br_listener_hand_over(server, arrival);
        return;
    }
    br_server_add_load(server, 1);
    br_server_take(server, arrival);
}

void br_net_peer_name(const struct sockaddr_storage *addr, char *out, size_t size)
{
    char host[48] = "";
    unsigned port = 0;
    if (addr->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)addr;
        uv_ip4_name(in, host, sizeof host);
        port = ntohs(in->sin_port);
    } else if (addr->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const void *)addr;
        uv_ip6_name(in, host, sizeof host);
        port = ntohs(in->sin6_port);
    }
    if (host[0])
        (void)snprintf(out, size, "%s:%u", host, port);
    else
        (void)snprintf(out, size, "unix");
}

static struct br_client_address listener_address_of(const struct sockaddr_storage *addr)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct br_client_address address = {0};
    if (addr->ss_family == AF_INET) {
        memcpy(address.bytes, mapped, sizeof mapped);
        memcpy(address.bytes + 12, &((const struct sockaddr_in *)(const void *)addr)->sin_addr, 4);
        address.known = true;
    } else if (addr->ss_family == AF_INET6) {
        const uint8_t *ip = ((const struct sockaddr_in6 *)(const void *)addr)->sin6_addr.s6_addr;
        memcpy(address.bytes, ip, memcmp(ip, mapped, sizeof mapped) == 0 ? 16 : 8);
        address.known = true;
    }
    return address;
}

static void listener_on_acceptable(uv_poll_t *poll_handle, int status, int events);

static void listener_on_again(struct br_timer *timer)
{
    struct br_listener *listener = br_container_of(timer, struct br_listener, again);
    uv_poll_start(&listener->poll, UV_READABLE, listener_on_acceptable);
}

/* Pauses accepting after a failed accept, because the loop would otherwise retry continuously.
 * Meanwhile clients wait in the kernel's queue. */
static void listener_put_off(struct br_listener *listener, int error)
{
    if (error == EAGAIN || error == EINTR || error == ECONNABORTED)
        return;
    br_log_limited(listener->log, BR_LOG_WARN, &listener->log_limit,
                   br_host_mono_ms(&listener->loop->host), BR_LOG_EVERY_MS,
                   "cannot accept connections: %s", strerror(error));
    bool descriptors = error == EMFILE || error == ENFILE;
    if (descriptors)
        br_net_shed(listener->loop, SHED_AT_ONCE);
    if (br_host_timer(&listener->loop->host, &listener->again, descriptors ? SHED_MS : PUT_OFF_MS,
                      listener_on_again))
        uv_poll_stop(&listener->poll);
}

static void listener_on_acceptable(uv_poll_t *poll_handle, int status, int events)
{
    struct br_listener *listener = poll_handle->data;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_EVENT && status == 0; i++) {
        struct sockaddr_storage addr = {0};
        socklen_t len = sizeof addr;
        int fd =
            accept4(listener->fd, (struct sockaddr *)&addr, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            listener_put_off(listener, errno);
            return;
        }
        struct br_arrival arrival = {
            .fd = fd, .address = listener_address_of(&addr), .oldest_ns = UINT64_MAX};
        br_net_peer_name(&addr, arrival.peer, sizeof arrival.peer);
        listener_dispatch(listener, &arrival);
    }
}

/* Returns true if no process listens on an existing socket file. A process that crashes leaves
 * its socket file behind. */
static bool listener_is_stale(const struct sockaddr_un *addr)
{
    struct stat st;
    if (lstat(addr->sun_path, &st) || !S_ISSOCK(st.st_mode))
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool refused = fd >= 0 && connect(fd, (const struct sockaddr *)addr, sizeof *addr) &&
                   errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return refused;
}

/* --- Sockets that are open already ------------------------------------------------------------ */

void br_net_take_passed(struct br_net *net)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    if (!pid || !count || strtol(pid, NULL, 10) != (long)getpid())
        return;
    long n = strtol(count, NULL, 10);
    net->first_passed = PASSED_FIRST;
    net->n_passed = n > 0 && n <= PASSED_MAX ? (int)n : 0;
    for (int i = 0; i < net->n_passed; i++)
        (void)fcntl(net->first_passed + i, F_SETFD, FD_CLOEXEC);
}

void br_net_keep_sockets(struct br_net *net, bool keep)
{
    net->keeps_sockets = keep;
    while (!keep && net->n_kept)
        (void)close(net->kept[--net->n_kept].fd);
    while (!keep && net->n_kept_udps)
        (void)close(net->kept_udps[--net->n_kept_udps].fd);
}

bool br_net_is_bound(int fd, const struct sockaddr *addr, socklen_t len)
{
    struct sockaddr_storage bound = {0};
    socklen_t bound_len = sizeof bound;
    if (getsockname(fd, (struct sockaddr *)&bound, &bound_len) ||
        bound.ss_family != addr->sa_family)
        return false;
    if (addr->sa_family == AF_UNIX)
        return strcmp(((const struct sockaddr_un *)(const void *)&bound)->sun_path,
                      ((const struct sockaddr_un *)(const void *)addr)->sun_path) == 0;
    if (addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const void *)&bound, *b = (const void *)addr;
        return a->sin6_port == b->sin6_port &&
               memcmp(&a->sin6_addr, &b->sin6_addr, sizeof a->sin6_addr) == 0;
    }
    return bound_len == len && memcmp(&bound, addr, len) == 0;
}

/* Returns true if a reload replaces the component of the listener `before`. */
static bool listener_is_older(const struct br_listener *before, const struct br_listener *listener)
{
    return before->fd >= 0 && before->generation != listener->generation;
}

static int listener_take_kept(struct br_net *net, unsigned index)
{
    int fd = net->kept[index].fd;
    net->kept[index] = net->kept[--net->n_kept];
    return fd;
}

/* Returns a duplicate of a socket that listens at the address, or -1. Such a socket belongs to a
 * listener that a reload replaces, or was passed by the service manager. With the duplicate, no
 * connection is refused during a reload or restart. */
static int listener_reuse(struct br_listener *listener, const struct sockaddr *addr, socklen_t len)
{
    struct br_net *net = listener->loop->net;
    struct br_list *head = br_net_listeners(net);
    for (struct br_list *l = head->next; l != head; l = l->next) {
        const struct br_listener *before = br_container_of(l, struct br_listener, link);
        if (listener_is_older(before, listener) && br_net_is_bound(before->fd, addr, len))
            return fcntl(before->fd, F_DUPFD_CLOEXEC, 0);
    }
    for (unsigned i = 0; i < net->n_kept; i++)
        if (br_net_is_bound(net->kept[i].fd, addr, len))
            return listener_take_kept(net, i);
    for (int i = 0; i < net->n_passed; i++) {
        if (br_net_is_bound(net->first_passed + i, addr, len)) {
            listener->passed = true;
            return fcntl(net->first_passed + i, F_DUPFD_CLOEXEC, 0);
        }
    }
    return -1;
}

/* Returns a duplicate of the socket of a listener with the same name and endpoint, or -1. Needed
 * for port 0, where any port is used. */
static int listener_reuse_named(struct br_listener *listener, const char *endpoint)
{
    struct br_net *net = listener->loop->net;
    for (unsigned i = 0; i < net->n_kept; i++)
        if (strcmp(net->kept[i].name, listener->name) == 0 &&
            strcmp(net->kept[i].endpoint, endpoint) == 0)
            return listener_take_kept(net, i);
    struct br_list *head = br_net_listeners(net);
    for (struct br_list *l = head->next; l != head; l = l->next) {
        const struct br_listener *before = br_container_of(l, struct br_listener, link);
        if (listener_is_older(before, listener) && strcmp(before->name, listener->name) == 0 &&
            strcmp(before->endpoint, endpoint) == 0)
            return fcntl(before->fd, F_DUPFD_CLOEXEC, 0);
    }
    return -1;
}

static int listener_listen_unix(struct br_listener *listener, const char *path, struct br_err *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (!*path || strlen(path) >= sizeof addr.sun_path)
        return br_err_set(err, BR_EINVAL, "the path of a unix socket must have 1 to %zu bytes",
                          sizeof addr.sun_path - 1);
    memcpy(addr.sun_path, path, strlen(path) + 1);
    listener->fd = listener_reuse(listener, (const struct sockaddr *)&addr, sizeof addr);
    if (listener->fd >= 0) {
        memcpy(listener->path, path, strlen(path) + 1);
        return 0;
    }
    listener->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* On Linux, bind gives the file the mode of the socket, so the file never has another mode. */
    if (listener->fd >= 0)
        (void)fchmod(listener->fd, SOCKET_MODE);
    int rc = listener->fd < 0 ? -1 : bind(listener->fd, (struct sockaddr *)&addr, sizeof addr);
    if (rc && listener->fd >= 0 && errno == EADDRINUSE) {
        if (listener_is_stale(&addr) && unlink(path) == 0)
            rc = bind(listener->fd, (struct sockaddr *)&addr, sizeof addr);
        else
            errno = EADDRINUSE;
    }
    if (!rc) {
        memcpy(listener->path, path, strlen(path) + 1);
        /* the umask may have removed some of the owner's permissions from the file */
        (void)chmod(path, SOCKET_MODE);
    }
    if (rc || listen(listener->fd, BACKLOG))
        return br_err_set(err, BR_EIO, "cannot listen on %s: %s", path, strerror(errno));
    return 0;
}

/* Sets TCP options on the listening socket. On Linux, accepted connections inherit these options
 * (tcp(7)). */
static void listener_set_tcp_options(int fd)
{
    int one = 1, idle = KEEPALIVE_IDLE_S, interval = KEEPALIVE_INTERVAL_S,
        probes = KEEPALIVE_PROBES, unsent = UNSENT_BYTES;
    unsigned gone_ms = UNACKNOWLEDGED_MS;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &gone_ms, sizeof gone_ms);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

static int listener_listen_on(void *arg, const struct addrinfo *ai)
{
    struct br_listener *listener = arg;
    listener->fd = listener_reuse(listener, ai->ai_addr, ai->ai_addrlen);
    if (listener->fd >= 0) {
        listener_set_tcp_options(listener->fd);
        int flags = fcntl(listener->fd, F_GETFL) | O_NONBLOCK;
        return fcntl(listener->fd, F_SETFL, flags) ? errno : 0;
    }
    listener->fd =
        br_net_bind(SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, ai->ai_addr, ai->ai_addrlen);
    if (listener->fd < 0)
        return errno;
    listener_set_tcp_options(listener->fd);
    if (listen(listener->fd, BACKLOG) == 0)
        return 0;
    int why = errno;
    close(listener->fd);
    listener->fd = -1;
    return why;
}

static void listener_note_port(struct br_listener *listener, char *shown, size_t size)
{
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof addr;
    if (getsockname(listener->fd, (struct sockaddr *)&addr, &len))
        return;
    /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): getsockname has set the port. */
    listener->port = ntohs(addr.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&addr)->sin6_port
                                                      : ((struct sockaddr_in *)&addr)->sin_port);
    br_net_peer_name(&addr, shown, size);
}

/* Resolves "host:port". `ret_order` receives the address families in the order in which to try
 * them. */
static int listener_resolve(const char *endpoint, struct addrinfo **ret, int ret_order[2],
                            struct br_err *err)
{
    char host[256], port_text[8];
    unsigned port;
    if (!br_endpoint_parse(endpoint, host, &port))
        return br_err_set(err, BR_EINVAL, "\"%s\" must be host:port", endpoint);
    (void)snprintf(port_text, sizeof port_text, "%u", port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    int rc = getaddrinfo(host[0] ? host : NULL, port_text, &hints, ret);
    if (rc)
        return br_err_set(err, BR_EIO, "cannot resolve %s: %s", host, gai_strerror(rc));
    /* Like Go's listener: prefer IPv4 if a name has IPv4 and IPv6 addresses; listen on IPv6 and
     * IPv4 if the host means all interfaces. */
    bool every = !host[0] || strcmp(host, "::") == 0;
    ret_order[0] = every ? AF_INET6 : AF_INET;
    ret_order[1] = every ? AF_INET : AF_INET6;
    return 0;
}

int br_net_try_addresses(const char *endpoint, const char *verb, br_address_fn *attempt, void *arg,
                         struct br_err *err)
{
    struct addrinfo *found = NULL;
    int order[2], why = EAFNOSUPPORT;
    int rc = listener_resolve(endpoint, &found, order, err);
    if (rc)
        return rc;
    for (int i = 0; i < 2 && why; i++)
        for (struct addrinfo *ai = found; ai && why; ai = ai->ai_next)
            if (ai->ai_family == order[i])
                why = attempt(arg, ai);
    freeaddrinfo(found);
    if (why)
        return br_err_set(err, BR_EIO, "cannot %s %s: %s%s", verb, endpoint, strerror(why),
                          why == EADDRINUSE
                              ? " (by another process, or twice in the config); set another port"
                              : "");
    return 0;
}

static int listener_listen_tcp(struct br_listener *listener, const char *endpoint,
                               struct br_err *err)
{
    listener->fd = listener_reuse_named(listener, endpoint);
    if (listener->fd >= 0)
        return 0;
    return br_net_try_addresses(endpoint, "listen on", listener_listen_on, listener, err);
}

int br_net_bind(int type, const struct sockaddr *addr, socklen_t len)
{
    int one = 1, zero = 0;
    int fd = socket(addr->sa_family, type, 0);
    if (fd < 0)
        return -1;
    if (type & SOCK_STREAM)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (addr->sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(fd, addr, len) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static void listener_free(struct br_listener *listener)
{
    br_map_free(listener->addresses, NULL);
    pthread_mutex_destroy(&listener->lock);
    br_free(listener);
}

/* Removes the file of a unix socket, unless another listener or the service manager has the socket,
 * too. */
static void listener_unlink(const struct br_listener *listener)
{
    struct br_list *head = br_net_listeners(listener->loop->net);
    bool shared = listener->passed || !listener->path[0];
    for (struct br_list *l = head->next; l != head && !shared; l = l->next) {
        const struct br_listener *other = br_container_of(l, struct br_listener, link);
        shared = other != listener && strcmp(other->path, listener->path) == 0;
    }
    if (!shared)
        (void)unlink(listener->path);
}

int br_listener_open(struct br_loop *loop, const struct br_server_config *config,
                     struct br_listener **ret, struct br_err *err)
{
    struct br_listener *listener = br_calloc(1, sizeof *listener);
    if (!listener)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    bool local = config->transport && br_text_starts(config->transport, "unix");
    listener->fd = -1;
    listener->loop = loop;
    listener->generation = loop->host.generation;
    pthread_mutex_init(&listener->lock, NULL);
    listener->max = config->max_connections;
    listener->max_per_address = config->max_connections_per_address;
    (void)snprintf(listener->name, sizeof listener->name, "%s", config->name);
    (void)snprintf(listener->endpoint, sizeof listener->endpoint, "%s", config->endpoint);
    if (listener->max_per_address && !(listener->addresses = br_map_new(ADDRESSES_MAX))) {
        listener_free(listener);
        return br_err_set(err, BR_ENOMEM, "out of memory");
    }
    int rc = local ? listener_listen_unix(listener, config->endpoint, err)
                   : listener_listen_tcp(listener, config->endpoint, err);
    if (!rc &&
        br_watchers_poll(loop, &listener->poll, listener->fd, UV_READABLE, listener_on_acceptable))
        rc = br_err_set(err, BR_EIO, "cannot watch the socket of %s", config->endpoint);
    if (rc) {
        if (listener->fd >= 0)
            close(listener->fd);
        listener_unlink(listener);
        listener_free(listener);
        return rc;
    }
    listener->log = config->log;
    char shown[80];
    (void)snprintf(shown, sizeof shown, "%s", config->endpoint);
    if (!local)
        listener_note_port(listener, shown, sizeof shown);
    listener->poll.data = listener;
    listener->open = true;
    br_list_append(br_net_listeners(loop->net), &listener->link);
    br_info(config->log, "%s listening on %s%s", config->what, shown, config->tls ? " (TLS)" : "");
    *ret = listener;
    return 0;
}

struct br_listener *br_listener_find(struct br_net *net, const char *name)
{
    struct br_list *head = br_net_listeners(net);
    /* Search backwards: the last listener with the name is in use, and earlier ones were replaced
     * by a reload. */
    for (struct br_list *list = head->prev; list != head; list = list->prev) {
        struct br_listener *listener = br_container_of(list, struct br_listener, link);
        if (strcmp(listener->name, name) == 0)
            return listener;
    }
    return NULL;
}

static void listener_on_closed(uv_handle_t *handle)
{
    struct br_listener *listener = handle->data;
    close(listener->fd);
    listener_unlink(listener);
    listener->path[0] = '\0';
    listener->fd = -1;
    if (listener->n_targets == 0)
        listener_free(listener);
}

static void listener_keep(struct br_listener *listener)
{
    struct br_net *net = listener->loop->net;
    int fd = net->keeps_sockets && net->n_kept < BR_KEPT_MAX
                 ? fcntl(listener->fd, F_DUPFD_CLOEXEC, 0)
                 : -1;
    if (fd < 0)
        return;
    struct br_kept_socket *kept = &net->kept[net->n_kept++];
    kept->fd = fd;
    memcpy(kept->name, listener->name, sizeof kept->name);
    memcpy(kept->endpoint, listener->endpoint, sizeof kept->endpoint);
    listener->passed = true;
}

void br_listener_stop(struct br_listener *listener)
{
    if (!listener->open)
        return;
    listener->open = false;
    br_host_timer_stop(&listener->loop->host, &listener->again);
    uv_poll_stop(&listener->poll);
    listener_keep(listener);
    uv_close((uv_handle_t *)&listener->poll, listener_on_closed);
}

void br_listener_leave(struct br_listener *listener, struct br_net_server *server)
{
    unsigned left = 0;
    for (unsigned i = 0; i < listener->n_targets; i++) {
        if (listener->targets[i] == server)
            listener->targets[i] = NULL;
        left += listener->targets[i] != NULL;
    }
    if (left)
        return;
    listener->n_targets = 0;
    br_list_remove(&listener->link);
    if (listener->open)
        br_listener_stop(listener);
    else if (listener->fd < 0)
        listener_free(listener);
}
