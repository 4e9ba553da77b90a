/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads and checks configuration files. The files have the format of the OpenTelemetry Collector:
 * receivers, processors, exporters, connectors, extensions, service{extensions, pipelines,
 * telemetry}. All errors are reported before anything is opened.
 */
#pragma once

#include "config/option.h"
#include "config/sources.h"
#include "config/yaml.h"
#include "pipeline/component.h"
#include "pipeline/fanout.h"

/* One configured component. */
struct br_instance {
    /* component of the instance's type; NULL for a Collector component that changes no data */
    const struct br_component *component;
    /* type and name as in the file, for example "otlp/tempo" */
    const char *id;
    /* node of the component's settings in the tree; its type may be BR_YAML_NULL */
    const struct br_yaml *node;
    const void *config; /* settings read into the component's struct */
    bool used;
};

struct br_pipeline {
    const char *id; /* signal and name as in the file, for example "traces/edge" */
    enum br_signal signal;
    /* connectors that only read data (br_component.observes) are the last ones of `processors` */
    struct br_instance **receivers, **processors, **exporters;
    size_t n_receivers, n_processors, n_exporters;
};

/* A label of target_info, made from an attribute in service::telemetry::resource. */
struct br_target_label {
    const char *name, *value; /* `value` is NULL if the label is disabled */
};

struct br_telemetry_config {
    enum br_log_level log_level;
    bool log_json;
    /* address of the metrics server, for example "localhost:8888"; NULL: no metrics server */
    const char *metrics_endpoint;
    const struct br_auth_config *metrics_auth; /* authentication of scrapes; NULL: none */
    /* additional host names that are accepted in the Host header of scrapes (net/hosts.h) */
    struct br_strings metrics_hosts;
    bool metrics_detailed; /* the metrics level is `detailed` */
    /* names of metrics end in their unit, and names of counters end in _total */
    bool metrics_suffixes;
    struct br_target_label *target; /* labels of target_info, sorted by name, without duplicates */
    size_t n_target;
};

struct br_config {
    struct br_arena arena; /* owns all memory of the configuration */
    struct br_yaml *tree;  /* the merged and expanded tree of all files */
    struct br_instance *instances;
    size_t n_instances;
    struct br_pipeline *pipelines;
    size_t n_pipelines;
    struct br_instance **extensions; /* enabled extensions, in the order of service::extensions */
    size_t n_extensions;
    unsigned workers; /* service::workers, the number of workers; 0 means auto */
    struct br_telemetry_config telemetry;
    struct br_fanout_config fanout; /* settings of service::fanout */
};

/* Loads a configuration from a tree that is already merged and expanded. The tree must outlive the
 * configuration. Returns the same codes and reports errors in the same way as br_config_load. */
int br_config_load_tree(struct br_yaml *tree, const struct br_component *const *registry,
                        struct br_config **ret, struct br_errs *errs);

/* Appends a tree as YAML, with values as they are in the file: ${...} is not expanded, and secrets
 * are not hidden. Comments are lost. Returns 0 or BR_ENOMEM. */
int br_yaml_print(const struct br_yaml *tree, const struct br_component *const *registry,
                  struct br_str *out);

/* Loads and checks a configuration. On success the caller owns `*ret` and frees it with
 * br_config_free; `errs` may contain warnings. Returns 0, or a negative code with errors in
 * `errs`. */
int br_config_load(const struct br_config_sources *sources,
                   const struct br_component *const *registry, struct br_config **ret,
                   struct br_errs *errs);
void br_config_free(struct br_config *config);

/* Appends the merged and expanded configuration as YAML. Values of secret options are printed as
 * [REDACTED]. Values of unknown keys are also printed in this form if the name of the key suggests
 * a secret (password, token, secret, authorization, api_key). Returns 0 or BR_ENOMEM. */
int br_config_print(const struct br_yaml *tree, const struct br_component *const *registry,
                    struct br_str *out);

/* Appends the effective settings as YAML: the components in use with all settings including
 * defaults, the pipelines, and the keys of `service`. Secrets are printed as [REDACTED]. Apart from
 * secrets, the YAML describes the same configuration. Returns 0 or BR_ENOMEM. */
int br_config_print_effective(struct br_config *config, const struct br_component *const *registry,
                              struct br_str *out);

/* Checks the TLS settings (net/tls.h) in `config`, the settings of a component that were read from
 * `node` with `table`. Returns 0, BR_EINVAL with errors in `errs`, or BR_ENOMEM. */
int br_config_check_tls(const struct br_option *table, const void *config,
                        const struct br_yaml *node, const char *path, struct br_arena *arena,
                        struct br_errs *errs);

/* --- Keys of `service` (service_config.c) ----------------------------------------------------- */

/* The keys of `service` configure the process: logs, metrics and the number of workers. */

/* Option tables of `service` and of `service::telemetry`. */
extern const struct br_option br_service_options[], br_telemetry_options[];

/* Reads service::telemetry; `node` may be NULL. Returns 0, or BR_EINVAL or BR_ENOMEM with errors
 * in `errs`. */
int br_telemetry_read(const struct br_yaml *node, struct br_telemetry_config *ret,
                      struct br_arena *arena, struct br_errs *errs);

/* Reads service::workers, the number of workers, from `node`. Returns the same codes as
 * br_telemetry_read. */
int br_workers_read(const struct br_yaml *node, unsigned *ret, struct br_errs *errs);

/* Returns a tree of service::telemetry that contains all keys with their effective values, or NULL
 * if memory runs out. `config` was read from `node`. */
struct br_yaml *br_telemetry_effective(const struct br_yaml *node,
                                       const struct br_telemetry_config *config,
                                       struct br_arena *arena);

/* --- Warnings (advice.c) ---------------------------------------------------------------------- */

/* Adds warnings to `errs` for settings that are valid but probably not intended:
 * - a memory_limiter after other processors
 * - an endpoint whose scheme contradicts its `tls`
 * - an exporter that sends to a receiver of the same pipeline
 * - an exporter after a failover connector whose queue hides failures
 * - a receiver without include_metadata, if a later component uses client metadata
 * - a processor that merges requests of several clients, if its metadata_keys do not contain a key
 *   that a later component uses
 * - a processor that answers requests before a durable queue has stored them */
void br_advice(const struct br_config *config, struct br_errs *errs);

/* --- Components of this build (registry.c) ---------------------------------------------------- */

/* All components of this build, sorted by kind and name. Ends with NULL. */
extern const struct br_component *const br_components[];
