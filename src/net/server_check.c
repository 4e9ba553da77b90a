/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/bytes.h"
#include "net/server_internal.h"
#include "net/udp.h"

#define FREE_PORTS 1024 /* ports below this number may require root privileges */

static void server_check_place_set(struct br_server_place *place, const struct addrinfo *ai)
{
    static const uint8_t none[16];
    place->v6 = ai->ai_family == AF_INET6;
    if (place->v6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, ai->ai_addr, sizeof v6);
        memcpy(place->address, &v6.sin6_addr, 16);
        place->port = ntohs(v6.sin6_port);
    } else {
        struct sockaddr_in v4;
        memcpy(&v4, ai->ai_addr, sizeof v4);
        memcpy(place->address, &v4.sin_addr, 4);
        place->port = ntohs(v4.sin_port);
    }
    place->every_interface = memcmp(place->address, none, sizeof none) == 0;
}

/* Sets the port to 0, because the running server may already use the configured port. */
static void server_check_place_forget_port(struct sockaddr_storage *addr)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (addr->ss_family == AF_INET6) {
        memcpy(&v6, addr, sizeof v6);
        v6.sin6_port = 0;
        memcpy(addr, &v6, sizeof v6);
    } else {
        memcpy(&v4, addr, sizeof v4);
        v4.sin_port = 0;
        memcpy(addr, &v4, sizeof v4);
    }
}

/* Checks whether an address can be bound: binds a socket and closes it. Returns 0 or an errno
 * value. */
static int server_check_bind(const struct sockaddr_storage *addr, socklen_t len, bool udp)
{
    int type = (udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC;
    int fd = br_net_bind(type, (const struct sockaddr *)addr, len);
    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

/* Checks whether a server could listen at one resolved address. Returns 0 or an errno value. If
 * the port is in use, sets `taken`, which is not an error. */
static int server_check_place_try(void *arg, const struct addrinfo *ai)
{
    struct br_server_place *place = arg;
    struct sockaddr_storage addr = {0};
    memcpy(&addr, ai->ai_addr, ai->ai_addrlen);
    place->unknown = false;
    server_check_place_set(place, ai);
    int why = server_check_bind(&addr, ai->ai_addrlen, place->udp);
    place->taken = why == EADDRINUSE;
    if (place->port < FREE_PORTS)
        return place->taken ? 0 : why;
    server_check_place_forget_port(&addr);
    return server_check_bind(&addr, ai->ai_addrlen, place->udp);
}

static int server_check_address(const char *endpoint, struct br_server_place *place,
                                struct br_err *err)
{
    place->unknown = true; /* until the name is resolved and the first address is tried */
    int rc = br_net_try_addresses(endpoint, "listen on", server_check_place_try, place, err);
    place->unknown = place->unknown && rc == BR_EIO;
    return rc;
}

static int server_check_unix(const char *path, struct br_server_place *ret, struct br_err *err)
{
    char folder[sizeof ret->path];
    if (!*path || strlen(path) >= sizeof ret->path)
        return br_err_set(err, BR_EINVAL, "the path of a unix socket must have 1 to %zu bytes",
                          sizeof ret->path - 1);
    (void)snprintf(ret->path, sizeof ret->path, "%s", path);
    (void)snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    if (access(slash ? folder : ".", W_OK | X_OK))
        return br_err_set(err, BR_EIO, "cannot listen on %s: %s", path, strerror(errno));
    return 0;
}

int br_server_check(const struct br_server_config *config, struct br_server_place *ret,
                    struct br_err *err)
{
    static const char *const alpn[] = {"h2", "http/1.1", NULL};
    struct br_tls_context *tls = NULL;
    struct br_server_place place = {.port = 0};
    bool local = config->transport && br_text_starts(config->transport, "unix");
    (void)snprintf(place.name, sizeof place.name, "%s", config->name);
    int rc = config->tls ? br_tls_context_new(config->tls, true, alpn, &tls, err) : 0;
    br_tls_context_free(tls);
    if (!rc)
        rc = local ? server_check_unix(config->endpoint, &place, err)
                   : server_check_address(config->endpoint, &place, err);
    *ret = place;
    return rc;
}

int br_udp_check(const struct br_udp_config *config, struct br_server_place *ret,
                 struct br_err *err)
{
    struct br_server_place place = {.udp = true};
    (void)snprintf(place.name, sizeof place.name, "%s", config->name);
    int rc = server_check_address(config->endpoint, &place, err);
    *ret = place;
    return rc;
}

bool br_server_places_clash(const struct br_server_place *one, const struct br_server_place *other)
{
    if (one->path[0] || other->path[0])
        return strcmp(one->path, other->path) == 0;
    if (one->port != other->port || one->port == 0 || one->udp != other->udp)
        return false;
    if (one->v6 == other->v6)
        return one->every_interface || other->every_interface ||
               memcmp(one->address, other->address, 16) == 0;
    return one->v6 ? one->every_interface
                   /* a server at "::" also listens on all IPv4 interfaces */
                   : other->every_interface;
}
