/* SPDX-License-Identifier: Apache-2.0 */
#include "app/service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app/graph.h"
#include "app/telemetry.h"
#include "base/mem.h"
#include "base/memory.h"
#include "base/str.h"
#include "config/parts.h"
#include "core/shared.h"
#include "net/client.h"
#include "net/hosts.h"
#include "net/server.h"
#include "net/udp.h"

#define PLACES_MAX 10000 /* largest number of servers in a configuration */
#define POOL_BYTES (1u << 20)

struct preflight {
    struct br_host host;
    struct br_memory memory;
    struct br_server_place *places;
    size_t n_places;
    uint32_t cap_places;
    const struct br_config *config;
    /* receives an error for each port in use by another process; NULL if ports are not checked */
    struct br_errs *used_ports;
    /* receives a warning for each host name that cannot be resolved; NULL if that is an error */
    struct br_errs *unknown_hosts;
};

static uint64_t preflight_mono_ms(struct br_host *host)
{
    (void)host;
    return 0;
}

static uint64_t preflight_unix_ns(struct br_host *host)
{
    struct timespec now = {0};
    (void)host;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t preflight_cpu_ns(struct br_host *host)
{
    (void)host;
    return 0;
}

/* --- Servers and clients without effect ------------------------------------------------------- */

static void preflight_server_stop(struct br_server *server, void (*on_stopped)(void *arg),
                                  void *arg)
{
    (void)server;
    on_stopped(arg);
}

static void preflight_server_free(struct br_server *server)
{
    br_free(server);
}

static unsigned preflight_server_port(struct br_server *server)
{
    (void)server;
    return 0;
}

static void preflight_client_send(struct br_client *client, struct br_exchange *exchange)
{
    (void)client;
    (void)exchange;
}

static void preflight_client_free(struct br_client *client)
{
    br_free(client);
}

static const struct br_server_ops preflight_server_ops = {
    preflight_server_stop, preflight_server_free, preflight_server_port};
static const struct br_client_ops preflight_client_ops = {
    preflight_client_send, preflight_client_send, preflight_client_free, NULL};

/* --- Ports in use ---------------------------------------------------------------------------- */

/* Searches the protocols in the settings for the endpoint of `what`, for example "grpc". If the
 * endpoint exists, appends the path of its key to `path` and returns true. */
static bool preflight_find_key(const struct br_option *table, const char *settings,
                               const char *what, struct br_str *path)
{
    for (const struct br_option *option = table; option && option->name; option++) {
        const void *section = settings + option->offset;
        size_t before = path->len;
        if (option->kind == BR_OPT_PRESENT) {
            memcpy(&section, settings + option->offset, sizeof section);
            if (!section)
                continue;
        } else if (option->kind != BR_OPT_STRUCT) {
            continue;
        }
        br_str_printf(path, "::%s", option->name);
        const struct br_option *row = option->sub;
        while (row && row->name && strcmp(row->name, "endpoint") != 0)
            row++;
        if (strcmp(option->name, what) == 0 && row && row->name) {
            br_str_puts(path, "::endpoint");
            return true;
        }
        if (preflight_find_key(option->sub, section, what, path))
            return true;
        if (!path->failed) {
            path->len = before;
            path->data[before] = '\0';
        }
    }
    return false;
}

/* Returns the component to which a server belongs, or NULL for the metrics server. The name of a
 * server begins with the kind and the id of the component: "receiver/otlp/edge grpc". */
static const struct br_instance *preflight_owner(const struct br_config *config, const char *name)
{
    for (size_t i = 0; i < config->n_instances; i++) {
        const struct br_instance *instance = &config->instances[i];
        char whole[160];
        if (!instance->component)
            continue;
        int len = snprintf(whole, sizeof whole, "%s/%s ", br_kind_name(instance->component->kind),
                           instance->id);
        if (len > 0 && (size_t)len < sizeof whole && strncmp(name, whole, (size_t)len) == 0)
            return instance;
    }
    return NULL;
}

/* Returns the node at a path. If the node does not exist, returns the last node on the path that
 * exists. */
static const struct br_yaml *preflight_node(const struct br_yaml *tree, const char *path)
{
    const struct br_yaml *node = tree;
    char key[256];
    while (node && *path) {
        const char *end = strstr(path, "::");
        size_t len = end ? (size_t)(end - path) : strlen(path);
        (void)snprintf(key, sizeof key, "%.*s", (int)len, path);
        const struct br_yaml *next = br_yaml_get(node, key);
        if (!next || !next->line)
            break;
        node = next;
        path += len + (end ? 2 : 0);
    }
    return node;
}

#define METRICS "service::telemetry::metrics"

/* Appends an argument for --set that selects another port. The keys in the argument are separated
 * by dots, or by "::" if an id contains a dot. */
static void preflight_put_set(const char *path, const char *endpoint, struct br_str *out)
{
    enum { SHIFT = 10000 };
    const char *colon = strrchr(endpoint, ':');
    unsigned long port = colon ? strtoul(colon + 1, NULL, 10) : 0;
    bool dotted = !strchr(path, '.');
    for (const char *p = path; *p; p++) {
        bool separator = dotted && p[0] == ':' && p[1] == ':';
        br_str_putc(out, separator ? '.' : *p);
        p += separator;
    }
    int host = colon ? (int)(colon - endpoint) : 0;
    port = port + SHIFT <= 65535 ? port + SHIFT : port - SHIFT;
    if (strcmp(path, METRICS "::readers") == 0)
        br_str_printf(out, "='[{pull: {exporter: {prometheus: {host: \"%.*s\", port: %lu}}}}]'",
                      host, endpoint, port);
    else
        br_str_printf(out, "=%.*s:%lu", host, endpoint, port);
}

/* Returns the path of the key that contains the endpoint of the protocol `what`. `name` is the name
 * of the server. The path is in `path`, or is a constant. */
static const char *preflight_key(const struct preflight *preflight, const char *name,
                                 const char *what, struct br_str *path)
{
    const struct br_instance *owner = preflight_owner(preflight->config, name);
    if (owner) {
        br_str_printf(path, "%s::%s", br_kind_section(owner->component->kind), owner->id);
        if (!preflight_find_key(owner->component->options, owner->config, what, path))
            br_str_puts(path, "::endpoint");
        return path->failed ? "" : path->data;
    }
    return br_yaml_get(preflight_node(preflight->config->tree, METRICS), "readers")
               ? METRICS "::readers"
               : METRICS "::address";
}

/* Reports that the endpoint of the protocol `what` is in use. `name` is the name of the server. */
static void preflight_report_used(struct preflight *preflight, const char *name, const char *what,
                                  const char *endpoint)
{
    struct br_str path = {.max = 2048}, set = {.max = 4096};
    const char *key = preflight_key(preflight, name, what, &path);
    const struct br_yaml *node = preflight_node(preflight->config->tree, key);
    preflight_put_set(key, endpoint, &set);
    br_errs_add(preflight->used_ports, node, key,
                "%s: address already in use by another process; set another with --set %s",
                endpoint, set.failed ? "" : set.data);
    br_str_release(&path);
    br_str_release(&set);
}

/* Warns that this machine cannot resolve the host name of the protocol `what`. */
static void preflight_warn_unknown(struct preflight *preflight, const char *name, const char *what,
                                   const struct br_err *err)
{
    struct br_str path = {.max = 2048};
    const char *key = preflight_key(preflight, name, what, &path);
    br_errs_warn(preflight->unknown_hosts, preflight_node(preflight->config->tree, key), key,
                 "this machine %s; Braid starts only on a machine that can resolve the name",
                 err->text);
    br_str_release(&path);
}

static int preflight_take(struct preflight *preflight, const struct br_server_place *place,
                          const char *endpoint, struct br_err *err)
{
    for (size_t i = 0; i < preflight->n_places; i++)
        if (br_server_places_clash(&preflight->places[i], place))
            return br_err_set(err, BR_EINVAL, "%s is already used by %s", endpoint,
                              preflight->places[i].name);
    if (br_grow(&preflight->places, &preflight->cap_places, preflight->n_places + 1,
                sizeof *preflight->places, PLACES_MAX))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    preflight->places[preflight->n_places++] = *place;
    return 0;
}

/* Takes the place of a server or socket that was checked with the result `rc`. Returns 0, or a
 * negative code with `err` set, which then names `what`. */
static int preflight_take_checked(struct preflight *p, int rc, const struct br_server_place *place,
                                  const char *name, const char *what, const char *endpoint,
                                  struct br_err *err)
{
    if (rc && place->unknown && p->unknown_hosts && err) {
        preflight_warn_unknown(p, name, what, err);
        *err = (struct br_err){0};
        return 0;
    }
    if (!rc && p->used_ports && place->taken)
        preflight_report_used(p, name, what, endpoint);
    if (!rc)
        rc = preflight_take(p, place, endpoint, err);
    if (rc)
        br_err_prefix(err, "%s: ", what);
    return rc;
}

static int preflight_serve(struct br_host *host, const struct br_server_config *config,
                           struct br_handler *service, struct br_server **ret, struct br_err *err)
{
    struct preflight *p = br_container_of(host, struct preflight, host);
    struct br_server_place place;
    (void)service;
    int rc = br_server_check(config, &place, err);
    rc = preflight_take_checked(p, rc, &place, config->name, config->what, config->endpoint, err);
    if (rc)
        return rc;
    struct br_server *server = br_calloc(1, sizeof *server);
    if (!server)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    server->ops = &preflight_server_ops;
    *ret = server;
    return 0;
}

static void preflight_udp_close(struct br_udp *udp)
{
    br_free(udp);
}

static const struct br_udp_ops preflight_udp_ops = {preflight_udp_close};

static int preflight_receive(struct br_host *host, const struct br_udp_config *config,
                             br_udp_fn *fn, void *arg, struct br_udp **ret, struct br_err *err)
{
    struct preflight *p = br_container_of(host, struct preflight, host);
    struct br_server_place place;
    (void)fn;
    (void)arg;
    int rc = br_udp_check(config, &place, err);
    rc = preflight_take_checked(p, rc, &place, config->name, config->what, config->endpoint, err);
    if (rc)
        return rc;
    struct br_udp *udp = br_calloc(1, sizeof *udp);
    if (!udp)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    udp->ops = &preflight_udp_ops;
    *ret = udp;
    return 0;
}

static int preflight_connect(struct br_host *host, const struct br_client_config *config,
                             struct br_client **ret, struct br_err *err)
{
    (void)host;
    int rc = br_client_check(config, err);
    if (rc)
        return rc;
    struct br_client *client = br_calloc(1, sizeof *client);
    if (!client)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    client->ops = &preflight_client_ops;
    *ret = client;
    return 0;
}

static const struct br_host_ops preflight_ops = {
    .mono_ms = preflight_mono_ms,
    .unix_ns = preflight_unix_ns,
    .cpu_ns = preflight_cpu_ns,
    .serve = preflight_serve,
    .connect = preflight_connect,
    .receive = preflight_receive,
};

static void preflight_snapshot(void *arg, void (*done)(struct br_metrics *sum, void *done_arg),
                               void *done_arg)
{
    (void)arg;
    (void)done;
    (void)done_arg;
}

static int preflight_telemetry(struct preflight *preflight, const struct br_config *config,
                               struct br_errs *errs)
{
    const struct br_hosts hosts = {config->telemetry.metrics_endpoint, NULL,
                                   &config->telemetry.metrics_hosts};
    struct br_telemetry *telemetry = NULL;
    struct br_err err = {0};
    if (!hosts.endpoint)
        return 0;
    int rc = br_telemetry_new(&preflight->host, &hosts, &config->telemetry, preflight_snapshot,
                              preflight, &telemetry, &err);
    if (rc)
        br_errs_add(errs, br_yaml_get(br_yaml_get(config->tree, "service"), "telemetry"), NULL,
                    "%s", err.text);
    br_telemetry_free(telemetry);
    return rc;
}

static int preflight_run(const struct br_config *config, struct br_errs *errs,
                         struct br_errs *used_ports, struct br_errs *unknown_hosts)
{
    struct preflight p = {
        .config = config, .used_ports = used_ports, .unknown_hosts = unknown_hosts};
    struct br_pool *pool = br_pool_new(POOL_BYTES);
    struct br_shared *shared = br_shared_new();
    int rc = pool && shared ? br_host_init(&p.host, &preflight_ops, pool) : BR_ENOMEM;
    if (rc) {
        br_errs_add(errs, NULL, NULL, "out of memory");
    } else {
        p.host.checking = true;
        p.host.shared = shared;
        br_host_set_memory(&p.host, &p.memory);
        rc = br_graph_check(config, &p.host, errs);
        int telemetry = preflight_telemetry(&p, config, errs);
        rc = rc ? rc : telemetry;
        br_host_release(&p.host);
    }
    br_shared_free(shared);
    br_pool_free(pool);
    br_free(p.places);
    return rc;
}

int br_preflight(const struct br_config *config, bool elsewhere, struct br_errs *errs)
{
    return preflight_run(config, errs, NULL, elsewhere ? errs : NULL);
}

size_t br_preflight_taken(const struct br_config *config, struct br_errs *errs)
{
    struct br_errs others = {0};
    size_t before = errs->n_errors;
    (void)preflight_run(config, &others, errs, NULL);
    br_errs_release(&others);
    return errs->n_errors - before;
}
