/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a checked, constant description of the service from config files. The Collector's config
 * file: receivers, processors, exporters, connectors, extensions, service{extensions, pipelines,
 * telemetry}. All errors come before anything listens.
 */
#pragma once

#include "config/option.h"
#include "config/sources.h"
#include "config/yaml.h"
#include "pipeline/component.h"
#include "pipeline/fanout.h"

/* One configured component. */
struct br_instance {
    const struct br_component *component; /* NULL: one of the Collector's that changes no data */
    const char *id;                       /* "otlp/tempo", as the user spelled it */
    const struct br_yaml *node;           /* its settings; may be a NULL node */
    const void *config;                   /* the component's struct, filled */
    bool used;
};

struct br_pipeline {
    const char *id; /* "traces/edge" */
    enum br_signal signal;
    struct br_instance **receivers, **processors, **exporters;
    size_t n_receivers, n_processors, n_exporters;
};

/* An attribute of service::telemetry::resource, as a label of target_info. */
struct br_target_label {
    const char *name, *value; /* value NULL: there is no such label */
};

struct br_telemetry_config {
    enum br_log_level log_level;
    bool log_json;
    const char
        *metrics_endpoint; /* "localhost:8888"; NULL when level is none or no reader is wanted */
    struct br_strings metrics_hosts; /* that the endpoint answers to besides (net/hosts.h) */
    bool metrics_detailed;           /* the level */
    bool metrics_suffixes;           /* names end in their unit, and those of counters in _total */
    struct br_target_label *target;  /* sorted by name, each once */
    size_t n_target;
};

struct br_config {
    struct br_arena arena; /* holds everything below */
    struct br_yaml *tree;  /* merged and expanded */
    struct br_instance *instances;
    size_t n_instances;
    struct br_pipeline *pipelines;
    size_t n_pipelines;
    struct br_instance **extensions; /* in the order of service::extensions */
    size_t n_extensions;
    unsigned workers; /* service::workers, 1 by default; 0 is auto */
    struct br_telemetry_config telemetry;
    struct br_fanout_config fanout; /* service::fanout */
};

/* Does what br_config_load does with a tree that was merged and expanded, which is borrowed for
 * the configuration's life. */
int br_config_load_tree(struct br_yaml *tree, const struct br_component *const *registry,
                        struct br_config **ret, struct br_errs *errs);

/* Prints a config as br_config_print does, but as the file had it: what ${...} brought is ${...}
 * again, and nothing is hidden. Comments are lost. */
int br_yaml_print(const struct br_yaml *tree, const struct br_component *const *registry,
                  struct br_str *out);

/* Loads a config, from its sources to the checked description. On success the caller owns `*ret`
 * and frees it with br_config_free; warnings may be in `errs` then too. Returns 0, or a negative
 * code with errors in `errs`. */
int br_config_load(const struct br_config_sources *sources,
                   const struct br_component *const *registry, struct br_config **ret,
                   struct br_errs *errs);
void br_config_free(struct br_config *config);

/* Appends the merged, expanded config as YAML; every value that an option table calls a secret is
 * printed as [REDACTED]; so are values under keys that no table knows when their name sounds secret
 * (password, token, secret, authorization, api_key). Returns 0 or BR_ENOMEM. */
int br_config_print(const struct br_yaml *tree, const struct br_component *const *registry,
                    struct br_str *out);

/* Appends the effective settings as YAML that reads as the same configuration: every component in
 * use with all its keys, defaults included, the pipelines, and the service's own keys. Secrets
 * as br_config_print has them. Returns 0 or BR_ENOMEM. */
int br_config_print_effective(struct br_config *config, const struct br_component *const *registry,
                              struct br_str *out);

/* Checks what a component's settings, read by its table from `node`, say about TLS (net/tls.h),
 * each block at its place. Returns 0, BR_EINVAL with errors added, or BR_ENOMEM. */
int br_config_check_tls(const struct br_option *table, const void *config,
                        const struct br_yaml *node, const char *path, struct br_arena *arena,
                        struct br_errs *errs);
