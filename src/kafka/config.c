/* SPDX-License-Identifier: Apache-2.0 */
#include "kafka/kafka.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/memory.h"
#include "base/str.h"

/* librdkafka 2.6.1, in the number format of rd_kafka_version() */
#define SCRAM_VERSION 0x020601ff

static const struct br_option sasl_options[] = {
    BR_STRING(struct br_kafka_sasl, username, NULL, "user name"),
    BR_SECRET(struct br_kafka_sasl, password, "password"),
    BR_STRING(struct br_kafka_sasl, mechanism, NULL, "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"),
    BR_IGNORED("aws_msk", "the mechanism AWS_MSK_IAM_OAUTHBEARER is not supported"),
    BR_IGNORED("oauthbearer_token_source", "the mechanism OAUTHBEARER is not supported"),
    BR_IGNORED("version", "the client library chooses the version of the SASL handshake"),
    BR_OPT_END,
};

const struct br_option br_kafka_auth_options[] = {
    BR_PRESENT(struct br_kafka_auth, sasl, struct br_kafka_sasl, sasl_options,
               "user name and password; absent: no SASL"),
    BR_VALUE(struct br_kafka_auth, kerberos, "not supported"),
    BR_OPT_END,
};

static const struct br_option retry_options[] = {
    BR_IGNORED("max", "the client library repeats a failed request until it succeeds"),
    BR_DURATION(struct br_kafka_metadata_retry, backoff, "250ms",
                "pause before a failed request to the cluster is repeated"),
    BR_OPT_END,
};

const struct br_option br_kafka_metadata_options[] = {
    BR_IGNORED("full", "the client library requests only the topics that are in use"),
    BR_DURATION(struct br_kafka_metadata, refresh_interval, "10m",
                "interval at which the lists of topics and brokers are updated"),
    BR_STRUCT(struct br_kafka_metadata, retry, retry_options, "how failed requests are repeated"),
    BR_OPT_END,
};

/* --- Checks ------------------------------------------------------------------------------------
 */

static void config_check_sasl(const struct br_kafka_sasl *sasl, const struct br_yaml *node,
                              const char *path, struct br_errs *errs)
{
    static const char *const known[] = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"};
    static const char *const lacked[] = {"OAUTHBEARER", "AWS_MSK_IAM_OAUTHBEARER"};
    const struct br_yaml *block = br_yaml_get(br_yaml_get(node, "auth"), "sasl");
    const char *mechanism = sasl->mechanism ? sasl->mechanism : "";
    bool is_known = false, is_lacked = false;
    char at[256];
    (void)snprintf(at, sizeof at, "%s::auth::sasl::mechanism", path);
    for (size_t i = 0; i < BR_COUNT(known); i++)
        is_known = is_known || strcmp(mechanism, known[i]) == 0;
    for (size_t i = 0; i < BR_COUNT(lacked); i++)
        is_lacked = is_lacked || strcmp(mechanism, lacked[i]) == 0;
    if (!is_known)
        (void)(is_lacked ? br_errs_lack : br_errs_add)(
            errs, br_yaml_get(block, "mechanism"), at,
            "must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, got \"%s\"", mechanism);
    (void)snprintf(at, sizeof at, "%s::auth::sasl", path);
    if (!sasl->username || !sasl->username[0])
        br_errs_add_key(errs, block, at, "username", "is required");
    if (!sasl->password.text || !sasl->password.text[0])
        br_errs_add_key(errs, block, at, "password", "is required");
}

/* Warns about SCRAM with librdkafka before 2.6.1, which sends the client's nonce twice in its last
 * message. Since Kafka 4.0, brokers compare the whole nonce, as RFC 5802 (section 5.1) requires. */
static void config_check_scram(const struct br_kafka_sasl *sasl, const struct br_yaml *node,
                               const char *path, struct br_errs *errs)
{
    char at[256];
    if (!sasl->mechanism || strncmp(sasl->mechanism, "SCRAM-", 6) != 0 ||
        rd_kafka_version() >= SCRAM_VERSION)
        return;
    (void)snprintf(at, sizeof at, "%s::auth::sasl::mechanism", path);
    br_errs_warn(errs, br_yaml_get(br_yaml_get(br_yaml_get(node, "auth"), "sasl"), "mechanism"), at,
                 "SCRAM fails with brokers of Kafka 4.0 or later, because librdkafka is %s; use "
                 "librdkafka 2.6.1 or later, or PLAIN over TLS",
                 rd_kafka_version_str());
}

static void config_check_tls(const struct br_tls_config *tls, const struct br_yaml *node,
                             const char *path, struct br_errs *errs)
{
    const struct br_yaml *block = br_yaml_get(node, "tls");
    char at[256];
    (void)snprintf(at, sizeof at, "%s::tls", path);
    if (tls->server_name_override)
        br_errs_add_key(errs, block, at, "server_name_override",
                        "is not supported for Kafka: the certificate must have the broker's name");
    if (tls->max_version && tls->max_version[0])
        br_errs_warn(errs, br_yaml_get(block, "max_version"), at,
                     "max_version has no effect for Kafka");
    if (tls->reload_interval)
        br_errs_warn(errs, br_yaml_get(block, "reload_interval"), at,
                     "reload_interval has no effect for Kafka: files are read at the start");
}

void br_kafka_check(const struct br_kafka_config *config, const struct br_yaml *node,
                    const char *path, struct br_errs *errs)
{
    char host[256];
    unsigned port;
    for (size_t i = 0; i < config->brokers.count; i++)
        if (!br_endpoint_parse(config->brokers.items[i], host, &port) &&
            strpbrk(config->brokers.items[i], ", /"))
            br_errs_add_key(errs, node, path, "brokers", "must be a list of host:port, got \"%s\"",
                            config->brokers.items[i]);
    if (config->auth.sasl) {
        config_check_sasl(config->auth.sasl, node, path, errs);
        config_check_scram(config->auth.sasl, node, path, errs);
    }
    if (config->auth.kerberos && config->auth.kerberos->type != BR_YAML_NULL)
        br_errs_lack(errs, config->auth.kerberos, path, "auth::kerberos is not supported");
    if (config->tls && !config->tls->insecure)
        config_check_tls(config->tls, node, path, errs);
}

/* --- Properties --------------------------------------------------------------------------------
 */

void br_kafka_set_text(struct br_kafka_conf *conf, const char *name, const char *value)
{
    char text[256];
    if (conf->rc || !conf->conf)
        return;
    if (rd_kafka_conf_set(conf->conf, name, value, text, sizeof text) != RD_KAFKA_CONF_OK)
        conf->rc = br_err_set(conf->err, BR_EINVAL, "the Kafka client rejects %s: %s", name, text);
}

void br_kafka_set(struct br_kafka_conf *conf, const char *name, const char *fmt, ...)
{
    char value[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(value, sizeof value, fmt, args);
    va_end(args);
    br_kafka_set_text(conf, name, value);
}

static void config_set_if(struct br_kafka_conf *conf, const char *name, const char *value)
{
    if (value && value[0])
        br_kafka_set_text(conf, name, value);
}

unsigned br_kafka_ms(uint64_t ns, unsigned least, unsigned most)
{
    uint64_t ms = ns / 1000000;
    if (ms < least)
        return least;
    return ms > most ? most : (unsigned)ms;
}

size_t br_kafka_budget(const struct br_host *host, size_t divisor, size_t least, size_t most)
{
    size_t soft = host->memory ? br_memory_soft(host->memory) : SIZE_MAX;
    size_t share = soft / divisor / (host->n_workers ? host->n_workers : 1);
    if (share < least)
        return least;
    return share > most ? most : share;
}

static void config_set_brokers(struct br_kafka_conf *conf, const struct br_strings *brokers)
{
    struct br_str list = {.max = 65536};
    for (size_t i = 0; i < brokers->count; i++) {
        if (i)
            br_str_putc(&list, ',');
        br_str_puts(&list, brokers->items[i]);
    }
    if (list.failed)
        conf->rc = br_err_set(conf->err, BR_ENOMEM, "out of memory");
    else
        br_kafka_set_text(conf, "bootstrap.servers", list.len ? list.data : "localhost:9092");
    br_str_release(&list);
}

/* Loads the certificates and keys once with Braid's own code, because its error messages name the
 * file, and librdkafka's do not. */
static void config_try_tls(struct br_kafka_conf *conf, const struct br_tls_config *tls)
{
    struct br_tls_context *context = NULL;
    int rc = br_tls_context_new(tls, false, NULL, &context, conf->err);
    br_tls_context_free(context);
    if (rc && !conf->rc)
        conf->rc = rc;
}

static void config_set_tls(struct br_kafka_conf *conf, const struct br_tls_config *tls)
{
    struct br_str suites = {.max = 4096};
    config_try_tls(conf, tls);
    config_set_if(conf, "ssl.ca.location", tls->ca_file);
    config_set_if(conf, "ssl.ca.pem", tls->ca_pem.text);
    config_set_if(conf, "ssl.certificate.location", tls->cert_file);
    config_set_if(conf, "ssl.certificate.pem", tls->cert_pem.text);
    config_set_if(conf, "ssl.key.location", tls->key_file);
    config_set_if(conf, "ssl.key.pem", tls->key_pem.text);
    if (tls->insecure_skip_verify)
        br_kafka_set_text(conf, "enable.ssl.certificate.verification", "false");
    else
        br_kafka_set_text(conf, "ssl.endpoint.identification.algorithm", "https");
    for (size_t i = 0; i < tls->cipher_suites.count; i++) {
        if (i)
            br_str_putc(&suites, ':');
        br_str_puts(&suites, tls->cipher_suites.items[i]);
    }
    config_set_if(conf, "ssl.cipher.suites", suites.len ? suites.data : NULL);
    br_str_release(&suites);
}

static void config_set_security(struct br_kafka_conf *conf, const struct br_kafka_config *config)
{
    bool tls = config->tls && !config->tls->insecure;
    const struct br_kafka_sasl *sasl = config->auth.sasl;
    if (tls)
        config_set_tls(conf, config->tls);
    if (sasl) {
        config_set_if(conf, "sasl.mechanism", sasl->mechanism);
        config_set_if(conf, "sasl.username", sasl->username);
        config_set_if(conf, "sasl.password", sasl->password.text);
        br_kafka_set_text(conf, "security.protocol", tls ? "sasl_ssl" : "sasl_plaintext");
    } else if (tls) {
        br_kafka_set_text(conf, "security.protocol", "ssl");
    }
}

void br_kafka_conf_begin(struct br_kafka_conf *conf, const struct br_kafka_config *config,
                         struct br_err *err)
{
    *conf = (struct br_kafka_conf){.conf = rd_kafka_conf_new(), .err = err};
    config_set_brokers(conf, &config->brokers);
    config_set_if(conf, "client.id", config->client_id);
    config_set_if(conf, "client.rack", config->rack_id);
    br_kafka_set_text(conf, "log.queue", "true");
    br_kafka_set_text(conf, "client.software.name", "braid");
    br_kafka_set_text(conf, "client.software.version", BR_VERSION);
    br_kafka_set(conf, "topic.metadata.refresh.interval.ms", "%u",
                 br_kafka_ms(config->metadata.refresh_interval, 1000, 3600000));
    br_kafka_set(conf, "retry.backoff.ms", "%u",
                 br_kafka_ms(config->metadata.retry.backoff, 1, 300000));
    br_kafka_set(conf, "reconnect.backoff.max.ms", "%u", 2000u);
    br_kafka_set(conf, "connections.max.idle.ms", "%u",
                 br_kafka_ms(config->conn_idle_timeout, 1000, 2147483647));
    br_kafka_set(conf, "socket.connection.setup.timeout.ms", "%u",
                 br_kafka_ms(config->dial_timeout, 1000, 2147483647));
    br_kafka_set_text(conf, "socket.keepalive.enable", "true");
    config_set_security(conf, config);
}

int br_kafka_conf_end(struct br_kafka_conf *conf)
{
    if (!conf->rc && !conf->conf)
        conf->rc = br_err_set(conf->err, BR_ENOMEM, "out of memory");
    if (conf->rc && conf->conf) {
        rd_kafka_conf_destroy(conf->conf);
        conf->conf = NULL;
    }
    return conf->rc;
}
