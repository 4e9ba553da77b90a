/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/load_balancing/resolver.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

#define LINE_SIZE 512

/* One lookup of the backends, which runs in a thread. */
struct load_balancing_lookup {
    struct br_work work;
    /* resolver that gets the result; NULL: the resolver was stopped */
    struct load_balancing_resolver *resolver;
    const struct load_balancing_resolver_config *config;
    struct load_balancing_names found;
    char why[256]; /* error message; empty: the lookup has not failed */
};

/* --- Lists of names --------------------------------------------------------------------------- */

static void resolver_names_release(struct load_balancing_names *names)
{
    for (uint32_t i = 0; i < names->count; i++)
        br_free(names->items[i]);
    br_free(names->items);
    *names = (struct load_balancing_names){0};
}

static bool resolver_names_add(struct load_balancing_names *names, const char *name)
{
    char *copy = br_strdup(name);
    if (!copy || br_grow(&names->items, &names->cap, (size_t)names->count + 1, sizeof *names->items,
                         LOAD_BALANCING_BACKENDS_MAX)) {
        br_free(copy);
        return false;
    }
    names->items[names->count++] = copy;
    return true;
}

static int resolver_compare(const void *left, const void *right)
{
    char *const *a = left, *const *b = right;
    return strcmp(*a, *b);
}

/* Sorts a list and removes duplicates. */
static void resolver_names_sort(struct load_balancing_names *names)
{
    uint32_t n = 0;
    if (names->count)
        qsort(names->items, names->count, sizeof *names->items, resolver_compare);
    for (uint32_t i = 0; i < names->count; i++) {
        if (n && strcmp(names->items[i], names->items[n - 1]) == 0)
            br_free(names->items[i]);
        else
            names->items[n++] = names->items[i];
    }
    names->count = n;
}

static bool resolver_names_equal(const struct load_balancing_names *left,
                                 const struct load_balancing_names *right)
{
    bool equal = left->count == right->count;
    for (uint32_t i = 0; i < left->count && equal; i++)
        equal = strcmp(left->items[i], right->items[i]) == 0;
    return equal;
}

/* --- In a thread ------------------------------------------------------------------------------ */

static void resolver_fail(struct load_balancing_lookup *lookup, const char *what, const char *why)
{
    (void)snprintf(lookup->why, sizeof lookup->why, "%s: %s", what, why);
}

/* Adds an address in the text form of the Collector's resolver, because the points on the ring
 * depend on the text. */
static bool resolver_add_address(struct load_balancing_names *names, const struct sockaddr *address,
                                 const char *port)
{
    char host[INET6_ADDRSTRLEN], name[LINE_SIZE];
    bool six = address->sa_family == AF_INET6;
    const void *bytes =
        six ? (const void *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr
            : (const void *)&((const struct sockaddr_in *)(const void *)address)->sin_addr;
    if (!inet_ntop(address->sa_family, bytes, host, sizeof host))
        return false;
    (void)snprintf(name, sizeof name, "%s%s%s%s%s", six ? "[" : "", host, six ? "]" : "",
                   port ? ":" : "", port ? port : "");
    return resolver_names_add(names, name);
}

static void resolver_look_up(struct load_balancing_lookup *lookup)
{
    const struct load_balancing_dns *dns = lookup->config->dns;
    const char *port = dns->port && *dns->port ? dns->port : NULL;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(dns->hostname, NULL, &hints, &found);
    if (rc) {
        resolver_fail(lookup, dns->hostname, rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
        return;
    }
    for (const struct addrinfo *at = found; at; at = at->ai_next)
        if (!resolver_add_address(&lookup->found, at->ai_addr, port))
            resolver_fail(lookup, dns->hostname, "out of memory, or too many addresses");
    freeaddrinfo(found);
}

/* Reads a file that contains one backend per line. Empty lines and lines that begin with # are
 * ignored. */
static void resolver_read_file(struct load_balancing_lookup *lookup)
{
    const char *path = lookup->config->file->path;
    char line[LINE_SIZE];
    FILE *file = fopen(path, "re");
    if (!file) {
        resolver_fail(lookup, path, strerror(errno));
        return;
    }
    while (fgets(line, sizeof line, file)) {
        char *name = line + strspn(line, " \t");
        bool whole = strchr(line, '\n') || feof(file);
        name[strcspn(name, " \t\r\n")] = '\0';
        if (!*name || *name == '#')
            continue;
        if (!whole || !resolver_names_add(&lookup->found, name)) {
            resolver_fail(lookup, path, "a line is too long, or there are too many lines");
            break;
        }
    }
    if (ferror(file))
        resolver_fail(lookup, path, strerror(errno));
    (void)fclose(file);
    if (!lookup->found.count && !*lookup->why)
        resolver_fail(lookup, path, "contains no backend");
}

static void resolver_run(struct br_work *work)
{
    struct load_balancing_lookup *lookup =
        br_container_of(work, struct load_balancing_lookup, work);
    if (lookup->config->dns)
        resolver_look_up(lookup);
    else
        resolver_read_file(lookup);
    resolver_names_sort(&lookup->found);
}

/* --- In the worker ---------------------------------------------------------------------------- */

static void resolver_count(double *metric)
{
    if (metric)
        *metric += 1;
}

/* Replaces the list of backends with `found`, and empties `found` on success. */
static int resolver_apply(struct load_balancing_resolver *resolver,
                          struct load_balancing_names *found, struct br_err *err)
{
    int rc = load_balancing_set_backends(resolver->balancer, (const char *const *)found->items,
                                         found->count, err);
    if (rc)
        return rc;
    resolver_names_release(&resolver->names);
    resolver->names = *found;
    *found = (struct load_balancing_names){0};
    resolver_count(resolver->n_updates);
    if (resolver->n_backends)
        *resolver->n_backends = resolver->names.count;
    return 0;
}

static void resolver_warn(struct load_balancing_resolver *resolver, const char *why)
{
    resolver_count(resolver->failed);
    br_node_warn(resolver->balancer->node, &resolver->limit,
                 "the list of backends stays as it is (%u): %s", resolver->names.count, why);
}

static void resolver_on_next(struct br_timer *timer);
static void resolver_on_timeout(struct br_timer *timer);

/* Applies the result of a lookup and counts the lookup. A late lookup was already counted at the
 * timeout. */
static void resolver_use(struct load_balancing_resolver *resolver,
                         struct load_balancing_lookup *lookup)
{
    struct br_err err = {0};
    if (*lookup->why) {
        if (!resolver->late)
            resolver_warn(resolver, lookup->why);
        return;
    }
    if (!resolver_names_equal(&resolver->names, &lookup->found) &&
        resolver_apply(resolver, &lookup->found, &err))
        resolver_warn(resolver, err.text);
    else if (!resolver->late)
        resolver_count(resolver->succeeded);
}

static void resolver_done(struct br_work *work)
{
    struct load_balancing_lookup *lookup =
        br_container_of(work, struct load_balancing_lookup, work);
    struct load_balancing_resolver *resolver = lookup->resolver;
    if (resolver) {
        const struct load_balancing_resolver_config *config = resolver->config;
        struct br_host *host = resolver->balancer->node->host;
        uint64_t interval = config->dns ? config->dns->interval : config->file->interval;
        resolver->lookup = NULL;
        br_host_timer_stop(host, &resolver->timeout);
        resolver_use(resolver, lookup);
        load_balancing_expire(resolver->balancer);
        (void)br_host_timer(host, &resolver->next, interval / 1000000, resolver_on_next);
    }
    resolver_names_release(&lookup->found);
    br_free(lookup);
}

/* Starts a lookup. If memory is short, skips this lookup and tries again after the interval. */
static void resolver_begin(struct load_balancing_resolver *resolver)
{
    struct br_host *host = resolver->balancer->node->host;
    const struct load_balancing_resolver_config *config = resolver->config;
    uint64_t interval = config->dns ? config->dns->interval : config->file->interval;
    struct load_balancing_lookup *lookup = br_calloc(1, sizeof *lookup);
    resolver->late = false;
    if (!lookup) {
        (void)br_host_timer(host, &resolver->next, interval / 1000000, resolver_on_next);
        return;
    }
    lookup->resolver = resolver;
    lookup->config = config;
    lookup->work =
        (struct br_work){.run = resolver_run, .done = resolver_done, .kind = BR_WORK_DISK};
    resolver->lookup = lookup;
    if (config->dns)
        (void)br_host_timer(host, &resolver->timeout, config->dns->timeout / 1000000,
                            resolver_on_timeout);
    br_host_work(host, &lookup->work);
}

static void resolver_on_next(struct br_timer *timer)
{
    struct load_balancing_resolver *resolver =
        br_container_of(timer, struct load_balancing_resolver, next);
    (void)br_host_timer_park(resolver->balancer->node->host, timer, resolver_on_next);
    resolver_begin(resolver);
}

/* Counts a late lookup as failed. The lookup cannot be cancelled, and its result is still used when
 * it ends. */
static void resolver_on_timeout(struct br_timer *timer)
{
    struct load_balancing_resolver *resolver =
        br_container_of(timer, struct load_balancing_resolver, timeout);
    resolver->late = true;
    resolver_warn(resolver, "no answer to the DNS query within the timeout");
    load_balancing_expire(resolver->balancer);
}

/* --- Life ------------------------------------------------------------------------------------ */

static double *resolver_metric(const struct load_balancing_resolver *resolver,
                               enum br_metric_type type, const char *name, const char *success)
{
    const struct br_node *node = resolver->balancer->node;
    struct br_str labels = {.max = 1024};
    const char *kind = resolver->config->dns ? "dns" : "file";
    br_label(&labels, "exporter", node->id);
    br_label(&labels, "resolver", resolver->config->fixed ? "static" : kind);
    if (success)
        br_label(&labels, "success", success);
    double *metric = br_metric(node->host->metrics, type, name, labels.data ? labels.data : "");
    br_str_release(&labels);
    return metric;
}

static void resolver_make_metrics(struct load_balancing_resolver *resolver)
{
    if (resolver->balancer->node->host->worker != 0)
        return;
    resolver->n_backends =
        resolver_metric(resolver, BR_GAUGE, "otelcol_loadbalancer_num_backends", NULL);
    resolver->n_updates =
        resolver_metric(resolver, BR_COUNTER, "otelcol_loadbalancer_num_backend_updates", NULL);
    resolver->succeeded =
        resolver_metric(resolver, BR_COUNTER, "otelcol_loadbalancer_num_resolutions", "true");
    resolver->failed =
        resolver_metric(resolver, BR_COUNTER, "otelcol_loadbalancer_num_resolutions", "false");
}

static int resolver_set_fixed(struct load_balancing_resolver *resolver, struct br_err *err)
{
    const struct br_strings *hostnames = &resolver->config->fixed->hostnames;
    struct load_balancing_names names = {0};
    int rc = 0;
    for (size_t i = 0; i < hostnames->count && !rc; i++)
        if (!resolver_names_add(&names, hostnames->items[i]))
            rc = br_err_set(err, BR_ENOMEM, "out of memory");
    resolver_names_sort(&names);
    if (!rc)
        rc = resolver_apply(resolver, &names, err);
    if (!rc)
        resolver_count(resolver->succeeded);
    resolver_names_release(&names);
    return rc;
}

int load_balancing_resolver_start(struct load_balancing_resolver *resolver,
                                  struct load_balancing *balancer,
                                  const struct load_balancing_resolver_config *config,
                                  struct br_err *err)
{
    struct br_host *host = balancer->node->host;
    resolver->balancer = balancer;
    resolver->config = config;
    resolver_make_metrics(resolver);
    if (config->fixed)
        return resolver_set_fixed(resolver, err);
    if (!br_host_timer_park(host, &resolver->next, resolver_on_next))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    if (!host->checking)
        resolver_begin(resolver);
    return 0;
}

void load_balancing_resolver_stop(struct load_balancing_resolver *resolver)
{
    if (!resolver->balancer)
        return;
    struct br_host *host = resolver->balancer->node->host;
    br_host_timer_stop(host, &resolver->next);
    br_host_timer_stop(host, &resolver->timeout);
    if (resolver->lookup) {
        resolver->lookup->resolver = NULL;
        br_host_work_cancel(host, &resolver->lookup->work);
        br_host_work_wait(host, &resolver->lookup->work);
    }
    resolver_names_release(&resolver->names);
}
