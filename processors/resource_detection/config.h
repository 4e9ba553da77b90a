/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of the resource_detection processor. */
#pragma once

#include "config/option.h"

struct detect_toggle {
    bool enabled;
};

#define DETECT_ATTRIBUTES_MAX 24 /* largest number of attributes that one detector can switch */

enum detect_auth { DETECT_AUTH_NONE, DETECT_AUTH_SERVICE_ACCOUNT };

struct detect_env_attributes {
    struct br_strings included, excluded;
};

/* The settings of one detector. Each detector uses only some of the fields. */
struct detect_section {
    /* switches of the detector's attributes, in the order of its table of attributes */
    struct detect_toggle attributes[DETECT_ATTRIBUTES_MAX];
    struct detect_env_attributes env;
    struct br_strings hostname_sources; /* in order of preference */
    struct br_strings tags, labels;     /* expressions for the keys of tags and labels */
    bool tags_from_imds, fail_on_missing_metadata;
    int auth_type;                 /* an enum detect_auth */
    const char *node_from_env_var; /* name of the environment variable with the node's name */
    const char *service_account;   /* directory with the token and the CA of the service account */
    const char *endpoint;          /* address of the metadata service */
};

enum {
    DETECT_ENV,
    DETECT_SYSTEM,
    DETECT_DOCKER,
    DETECT_K8S_API,
    DETECT_K8SNODE,
    DETECT_GCP,
    DETECT_EC2,
    DETECT_ECS,
    DETECT_EKS,
    DETECT_AZURE,
    DETECT_KINDS
};

/* Names of the detectors, by number; ended by NULL. */
extern const char *const detect_names[DETECT_KINDS + 1];

/* The attributes that detectors can set, by detector. Each table is ended by BR_OPT_END; it is NULL
 * if the detector has no switches. */
extern const struct br_option *const detect_attributes[DETECT_KINDS];

struct detect_retry {
    uint64_t initial_interval, max_interval; /* nanoseconds */
    double multiplier, randomization_factor;
};

struct detect_config {
    struct br_strings detectors;
    bool override, fail_on_missing_metadata;
    uint64_t timeout, refresh_interval; /* nanoseconds; refresh_interval 0: never */
    struct detect_retry retry;
    struct detect_section sections[DETECT_KINDS];
};

extern const struct br_option detect_options[];

/* Returns the number of a detector, or -1 if Braid does not have it. */
int detect_kind(const char *name);

/* Checks the settings; see br_component.check. */
int detect_config_check(void *settings, const struct br_yaml *node, const char *path,
                        struct br_arena *arena, struct br_errs *errs);
