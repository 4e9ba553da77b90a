/* SPDX-License-Identifier: Apache-2.0 */
#include "app/preflight.h"

#include <string.h>
#include <time.h>

#include "app/graph.h"
#include "app/telemetry.h"
#include "base/mem.h"
#include "base/memory.h"
#include "core/shared.h"
#include "net/client.h"
#include "net/hosts.h"
#include "net/server.h"

#define PLACES_MAX 10000 /* as many as a config file can hold */
#define POOL_BYTES (1u << 20)

struct preflight {
    struct br_host host;
    struct br_memory memory;
    struct br_server_place *places;
    size_t n_places;
    uint32_t cap_places;
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

/* --- Servers and clients that do nothing ------------------------------------------------------ */

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

static int preflight_take(struct preflight *preflight, const struct br_server_place *place,
                          const char *endpoint, struct br_err *err)
{
    for (size_t i = 0; i < preflight->n_places; i++)
        if (br_server_places_clash(&preflight->places[i], place))
            return br_err_set(err, BR_EINVAL, "%s is where %s listens already", endpoint,
                              preflight->places[i].name);
    if (br_grow(&preflight->places, &preflight->cap_places, preflight->n_places + 1,
                sizeof *preflight->places, PLACES_MAX))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    preflight->places[preflight->n_places++] = *place;
    return 0;
}

static int preflight_serve(struct br_host *host, const struct br_server_config *config,
                           struct br_handler *service, struct br_server **ret, struct br_err *err)
{
    struct preflight *p = br_container_of(host, struct preflight, host);
    struct br_server_place place;
    (void)service;
    int rc = br_server_check(config, &place, err);
    if (!rc)
        rc = preflight_take(p, &place, config->endpoint, err);
    if (rc) {
        br_err_prefix(err, "%s: ", config->what);
        return rc;
    }
    struct br_server *server = br_calloc(1, sizeof *server);
    if (!server)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    server->ops = &preflight_server_ops;
    *ret = server;
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

int br_preflight(const struct br_config *config, struct br_errs *errs)
{
    struct preflight p = {.n_places = 0};
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
