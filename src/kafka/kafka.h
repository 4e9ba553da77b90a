/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The code that the `kafka` exporter and the `kafka` receiver share: the settings of a client, and
 * a handle of librdkafka.
 *
 * librdkafka performs I/O in its own threads and puts events into a queue. When the queue contains
 * events, the handle wakes the worker, which processes the events without blocking. The callbacks
 * for errors and logs therefore run in the worker, not in a thread of librdkafka.
 */
#pragma once

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/option.h"
#include "net/tls.h"
#include "net/wake.h"
#include "pipeline/component.h"

/* --- Settings (config.c) ---------------------------------------------------------------------- */

struct br_kafka_sasl {
    const char *username, *mechanism;
    struct br_secret password;
};

struct br_kafka_auth {
    struct br_kafka_sasl *sasl; /* NULL: no SASL */
    /* NULL: absent; otherwise an error, because Kerberos is not supported */
    const struct br_yaml *kerberos;
};

struct br_kafka_metadata_retry {
    uint64_t backoff; /* in nanoseconds */
};

struct br_kafka_metadata {
    uint64_t refresh_interval; /* in nanoseconds */
    struct br_kafka_metadata_retry retry;
};

/* The Collector's configkafka.ClientConfig. The config structs of the exporter and of the receiver
 * contain this struct. */
struct br_kafka_config {
    struct br_strings brokers; /* host:port of each broker; empty list: localhost:9092 */
    const char *protocol_version, *client_id, *rack_id;
    struct br_kafka_auth auth;
    struct br_tls_config *tls; /* NULL: no TLS */
    struct br_kafka_metadata metadata;
    uint64_t conn_idle_timeout, dial_timeout; /* in nanoseconds */
};

extern const struct br_option br_kafka_auth_options[];
extern const struct br_option br_kafka_metadata_options[];

#define BR_KAFKA_AT(type, field, member)                                                           \
    (offsetof(type, field) + offsetof(struct br_kafka_config, member))

/* Option rows for a config struct `type` whose member `field` is a struct br_kafka_config. */
#define BR_KAFKA_ROWS(type, field)                                                                 \
    {.name = "brokers",                                                                            \
     .kind = BR_OPT_STRINGS,                                                                       \
     .offset = BR_KAFKA_AT(type, field, brokers),                                                  \
     .help = "host:port of brokers to ask first; default: localhost:9092"},                        \
        {.name = "protocol_version",                                                               \
         .kind = BR_OPT_STRING,                                                                    \
         .offset = BR_KAFKA_AT(type, field, protocol_version),                                     \
         .help = "version of brokers before 0.10; newer brokers report their versions"},           \
        {.name = "client_id",                                                                      \
         .kind = BR_OPT_STRING,                                                                    \
         .offset = BR_KAFKA_AT(type, field, client_id),                                            \
         .def.string = "otel-collector",                                                           \
         .help = "client id, for quotas and the logs of brokers"},                                 \
        {.name = "rack_id",                                                                        \
         .kind = BR_OPT_STRING,                                                                    \
         .offset = BR_KAFKA_AT(type, field, rack_id),                                              \
         .help = "rack of this client, to read from replicas in the same rack"},                   \
        {.name = "auth",                                                                           \
         .kind = BR_OPT_STRUCT,                                                                    \
         .offset = BR_KAFKA_AT(type, field, auth),                                                 \
         .sub = br_kafka_auth_options,                                                             \
         .help = "authentication with the brokers"},                                               \
        {.name = "tls",                                                                            \
         .kind = BR_OPT_PRESENT,                                                                   \
         .offset = BR_KAFKA_AT(type, field, tls),                                                  \
         .sub = br_tls_client_options,                                                             \
         .size = sizeof(struct br_tls_config),                                                     \
         .help = "TLS settings; absent: connections without TLS"},                                 \
        {.name = "metadata",                                                                       \
         .kind = BR_OPT_STRUCT,                                                                    \
         .offset = BR_KAFKA_AT(type, field, metadata),                                             \
         .sub = br_kafka_metadata_options,                                                         \
         .help = "requests for the cluster's topics and brokers"},                                 \
        {.name = "conn_idle_timeout",                                                              \
         .kind = BR_OPT_DURATION,                                                                  \
         .offset = BR_KAFKA_AT(type, field, conn_idle_timeout),                                    \
         .def.string = "9m",                                                                       \
         .help = "close a connection that was unused for this time"},                              \
        {.name = "dial_timeout",                                                                   \
         .kind = BR_OPT_DURATION,                                                                  \
         .offset = BR_KAFKA_AT(type, field, dial_timeout),                                         \
         .def.string = "10s",                                                                      \
         .help = "time limit to open a connection, at least one second"},                          \
        BR_IGNORED("use_leader_epoch", "the client library decides whether to use leader epochs"), \
    {                                                                                              \
        .name = "resolve_canonical_bootstrap_servers_only", .kind = BR_OPT_IGNORED,                \
        .help = "the client library resolves names as they are written"                            \
    }

/* Checks conditions that the option table cannot express, and adds errors and warnings to `errs`.
 * `node` is the component's map in the config, and `path` is the place of this map. */
void br_kafka_check(const struct br_kafka_config *config, const struct br_yaml *node,
                    const char *path, struct br_errs *errs);

/* A configuration of librdkafka that is being filled in. */
struct br_kafka_conf {
    rd_kafka_conf_t *conf; /* the configuration; NULL: memory was short */
    int rc;                /* 0, or the error code for the first rejected property */
    struct br_err *err;    /* receives the message of the first rejected property; may be NULL */
};

/* Creates a configuration with the settings of the client. The caller owns conf->conf.
 * br_kafka_conf_end reports the errors. */
void br_kafka_conf_begin(struct br_kafka_conf *conf, const struct br_kafka_config *config,
                         struct br_err *err);

/* Sets a property of librdkafka to a printf-style string of less than 512 bytes. */
void br_kafka_set(struct br_kafka_conf *conf, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Sets a property of librdkafka to a string of any length. */
void br_kafka_set_text(struct br_kafka_conf *conf, const char *name, const char *value);

/* Returns 0 if librdkafka has accepted all properties. Otherwise frees the configuration, and
 * returns BR_EINVAL or BR_ENOMEM with a message in conf->err. */
int br_kafka_conf_end(struct br_kafka_conf *conf);

/* Converts nanoseconds to milliseconds. The result is at least `least` and at most `most`. */
unsigned br_kafka_ms(uint64_t ns, unsigned least, unsigned most);

/* Returns the size in bytes of one worker's buffers. This is the soft memory limit divided by
 * `divisor` and by the number of workers, but at least `least` and at most `most`. */
size_t br_kafka_budget(const struct br_host *host, size_t divisor, size_t least, size_t most);

/* --- Handle (handle.c) ------------------------------------------------------------------------ */

struct br_kafka {
    struct br_node *node;
    rd_kafka_t *rk;           /* NULL: not open */
    rd_kafka_queue_t *events; /* the event queue that the worker processes */
    struct br_wake *wake;     /* NULL: the worker only polls, driven by `timer` */
    struct br_timer timer;
    void (*serve)(struct br_kafka *kafka);
    struct br_log_limit limit;
    char reason[160]; /* the last error that librdkafka reported; may be empty */
};

/* Opens a handle. Takes `conf`, which br_kafka_conf_end has accepted. The worker calls `serve` when
 * the queue may contain events, and at least once a second. Returns 0, or BR_EINVAL or BR_ENOMEM
 * with a message in `err`. */
int br_kafka_open(struct br_kafka *kafka, struct br_node *node, rd_kafka_type_t type,
                  rd_kafka_conf_t *conf, void (*serve)(struct br_kafka *kafka), struct br_err *err);

/* Makes the worker call `serve` again soon. */
void br_kafka_again(struct br_kafka *kafka);

/* Makes the worker call `serve` also when `queue`, another queue of the handle, receives events. */
void br_kafka_watch(struct br_kafka *kafka, rd_kafka_queue_t *queue);

/* Closes a handle, and waits until the threads of librdkafka have ended. Does not make a consumer
 * leave its group. The handle can be opened again. Accepts a zeroed handle. */
void br_kafka_close(struct br_kafka *kafka);

/* --- Outcomes (outcome.c) --------------------------------------------------------------------- */

/* Returns the outcome of a message from the error that librdkafka reports. `reason` is the cause of
 * a timeout, such as the last error of a connection; it may be "".
 *
 * | error | outcome |
 * | ----- | ------- |
 * | none | BR_DONE |
 * | the message or its batch is too large | BR_REJECT with RESOURCE_EXHAUSTED: the request is
 * divided | | the broker or the library rejects the record or the topic's name | BR_REJECT | |
 * missing authorization | BR_RETRY with PERMISSION_DENIED | | all others, such as timeouts, missing
 * topics and missing leaders | BR_RETRY |
 */
struct br_outcome br_kafka_outcome(rd_kafka_resp_err_t error, const char *reason);
