/* SPDX-License-Identifier: Apache-2.0 */
#include "net/machine.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Copies a name without a dot at its end. Returns 0, or -1 if the name is empty or too long. */
static int machine_copy(const char *name, char ret[BR_MACHINE_NAME_SIZE])
{
    size_t len = strlen(name);
    while (len && name[len - 1] == '.')
        len--;
    if (!len || len >= BR_MACHINE_NAME_SIZE)
        return -1;
    memcpy(ret, name, len);
    ret[len] = '\0';
    return 0;
}

bool br_machine_name(char ret[BR_MACHINE_NAME_SIZE])
{
    /* gethostname may leave out the terminator if the name is too long */
    char name[BR_MACHINE_NAME_SIZE + 1] = "";
    return gethostname(name, BR_MACHINE_NAME_SIZE) == 0 && machine_copy(name, ret) == 0;
}

static struct addrinfo *machine_resolve(const char *name, int flags)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags};
    struct addrinfo *found = NULL;
    return getaddrinfo(name, NULL, &hints, &found) == 0 ? found : NULL;
}

int br_machine_canonical(const char *name, bool qualified, char ret[BR_MACHINE_NAME_SIZE])
{
    struct addrinfo *found = machine_resolve(name, AI_CANONNAME);
    int rc = found && found->ai_canonname ? machine_copy(found->ai_canonname, ret) : -1;
    if (found)
        freeaddrinfo(found);
    return rc == 0 && qualified && !strchr(ret, '.') ? -1 : rc;
}

int br_machine_reverse(const char *name, char ret[BR_MACHINE_NAME_SIZE])
{
    struct addrinfo *found = machine_resolve(name, 0);
    int rc = -1;
    for (const struct addrinfo *at = found; at && rc; at = at->ai_next) {
        char host[NI_MAXHOST];
        if (getnameinfo(at->ai_addr, at->ai_addrlen, host, sizeof host, NULL, 0, NI_NAMEREQD) == 0)
            rc = machine_copy(host, ret);
    }
    if (found)
        freeaddrinfo(found);
    return rc;
}

/* Writes an IP address as text. Returns false for loopback addresses. */
static bool machine_address(const struct sockaddr *address, char ret[INET6_ADDRSTRLEN])
{
    if (address->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, address, sizeof v4);
        return ntohl(v4.sin_addr.s_addr) >> 24 != 127 &&
               inet_ntop(AF_INET, &v4.sin_addr, ret, INET6_ADDRSTRLEN);
    }
    struct sockaddr_in6 v6;
    memcpy(&v6, address, sizeof v6);
    return !IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) &&
           inet_ntop(AF_INET6, &v6.sin6_addr, ret, INET6_ADDRSTRLEN);
}

/* Writes a hardware address in the form of IEEE 802. Returns false if the address is empty or
 * longer than 8 bytes. */
static bool machine_hardware(const struct sockaddr *address, char ret[32])
{
    struct sockaddr_ll link;
    memcpy(&link, address, sizeof link);
    if (!link.sll_halen || link.sll_halen > 8)
        return false;
    for (unsigned i = 0; i < link.sll_halen; i++)
        (void)snprintf(ret + (size_t)3 * i, 4, "%02X-", link.sll_addr[i]);
    ret[3 * link.sll_halen - 1] = '\0';
    return true;
}

int br_machine_interfaces(void (*fn)(void *arg, const struct br_interface *interface), void *arg)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all))
        return -1;
    for (const struct ifaddrs *at = all; at; at = at->ifa_next) {
        int family = at->ifa_addr ? at->ifa_addr->sa_family : AF_UNSPEC;
        char address[INET6_ADDRSTRLEN], hardware[32];
        struct br_interface interface = {.name = at->ifa_name,
                                         .external = (at->ifa_flags & IFF_UP) &&
                                                     !(at->ifa_flags & IFF_LOOPBACK)};
        if (family == AF_PACKET && machine_hardware(at->ifa_addr, hardware))
            interface.hardware = hardware;
        if ((family == AF_INET || family == AF_INET6) && machine_address(at->ifa_addr, address))
            interface.address = address;
        if (family == AF_PACKET || interface.address)
            fn(arg, &interface);
    }
    freeifaddrs(all);
    return 0;
}
