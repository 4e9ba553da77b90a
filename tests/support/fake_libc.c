/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/fake_libc.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

struct fake_libc fake_libc = {.threads_left = INT_MAX};

int clock_gettime(clockid_t id, struct timespec *ret)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int rc = real(id, ret);
    ret->tv_sec += (time_t)(fake_libc.skipped_ms / 1000);
    ret->tv_nsec += (long)(fake_libc.skipped_ms % 1000) * 1000000;
    if (ret->tv_nsec >= 1000000000) {
        ret->tv_nsec -= 1000000000;
        ret->tv_sec++;
    }
    return rc;
}

int pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*run)(void *), void *arg)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return atomic_fetch_sub(&fake_libc.threads_left, 1) > 0 ? real(id, attributes, run, arg)
                                                            : EAGAIN;
}

static struct addrinfo *make_address(uint32_t address, const char *port, struct addrinfo *next)
{
    struct addrinfo *ai = calloc(1, sizeof *ai);
    struct sockaddr_in *in = calloc(1, sizeof *in);
    if (!ai || !in)
        abort();
    *in = (struct sockaddr_in){.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(address),
                               .sin_port = htons((uint16_t)strtoul(port, NULL, 10))};
    *ai = (struct addrinfo){.ai_family = AF_INET,
                            .ai_socktype = SOCK_STREAM,
                            .ai_addr = (void *)in,
                            .ai_addrlen = sizeof *in,
                            .ai_next = next};
    return ai;
}

int getaddrinfo(const char *name, const char *port, const struct addrinfo *hints,
                struct addrinfo **ret)
{
    if (!fake_libc.resolve) {
        int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
        *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
        return real(name, port, hints, ret);
    }
    uint32_t addresses[FAKE_ADDRESSES_MAX];
    int n = fake_libc.resolve(name, addresses);
    if (n < 0)
        return n;
    *ret = NULL;
    while (n-- > 0)
        *ret = make_address(addresses[n], port, *ret);
    return 0;
}

void freeaddrinfo(struct addrinfo *ai)
{
    if (!fake_libc.resolve) {
        void (*real)(struct addrinfo *);
        *(void **)&real = dlsym(RTLD_NEXT, "freeaddrinfo");
        real(ai);
        return;
    }
    while (ai) {
        struct addrinfo *next = ai->ai_next;
        free(ai->ai_addr);
        free(ai);
        ai = next;
    }
}
