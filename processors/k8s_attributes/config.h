/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of the k8s_attributes processor. */
#pragma once

#include <stdint.h>

#include "config/option.h"
#include "processors/k8s_attributes/kinds.h"

#define K8S_SOURCES_MAX 4 /* largest number of sources of an association, as in the Collector */

enum k8s_auth { K8S_AUTH_NONE, K8S_AUTH_SERVICE_ACCOUNT };
enum k8s_from { K8S_FROM_CONNECTION, K8S_FROM_RESOURCE_ATTRIBUTE };
enum k8s_filter_op { K8S_EQUALS, K8S_NOT_EQUALS, K8S_EXISTS, K8S_DOES_NOT_EXIST };

/* The attributes that `metadata` can name, by number (k8s_metadata_names). */
enum k8s_metadata {
    K8S_NAMESPACE_NAME,
    K8S_POD_NAME,
    K8S_POD_UID,
    K8S_POD_HOSTNAME,
    K8S_POD_IP,
    K8S_POD_START_TIME,
    K8S_NODE_NAME,
    K8S_NODE_UID,
    K8S_CLUSTER_UID,
    K8S_DEPLOYMENT_NAME,
    K8S_DEPLOYMENT_UID,
    K8S_REPLICASET_NAME,
    K8S_REPLICASET_UID,
    K8S_DAEMONSET_NAME,
    K8S_DAEMONSET_UID,
    K8S_STATEFULSET_NAME,
    K8S_STATEFULSET_UID,
    K8S_JOB_NAME,
    K8S_JOB_UID,
    K8S_CRONJOB_NAME,
    K8S_CRONJOB_UID,
    K8S_CONTAINER_NAME,
    K8S_CONTAINER_ID,
    K8S_CONTAINER_IMAGE_NAME,
    K8S_CONTAINER_IMAGE_TAG,
    K8S_CONTAINER_IMAGE_REPO_DIGESTS,
    K8S_SERVICE_NAMESPACE,
    K8S_SERVICE_NAME,
    K8S_SERVICE_VERSION,
    K8S_SERVICE_INSTANCE_ID,
    K8S_METADATA
};

extern const char *const k8s_metadata_names[K8S_METADATA];

/* A label or annotation that becomes an attribute. */
struct k8s_field {
    const char *tag_name, *key, *key_regex;
    int from; /* an enum k8s_kind */
};

struct k8s_filter {
    const char *key, *value;
    int op; /* an enum k8s_filter_op */
};

struct k8s_source {
    int from; /* an enum k8s_from */
    const char *name;
};

struct k8s_association {
    struct br_structs sources; /* list of struct k8s_source */
};

struct k8s_excluded {
    const char *name; /* regular expression */
};

struct k8s_extract {
    struct br_strings metadata;
    struct br_structs labels, annotations; /* lists of struct k8s_field */
    bool otel_annotations, deployment_name_from_replicaset;
    bool wants[K8S_METADATA]; /* set by the config check */
};

struct k8s_filters {
    const char *node, *node_from_env_var, *namespace;
    struct br_structs labels, fields; /* lists of struct k8s_filter */
};

struct k8s_exclude {
    struct br_structs pods; /* list of struct k8s_excluded */
};

struct k8s_config {
    int auth_type; /* an enum k8s_auth */
    const char *service_account;
    bool passthrough, wait_for_metadata;
    struct k8s_extract extract;
    struct k8s_filters filter;
    struct br_structs pod_association; /* list of struct k8s_association */
    struct k8s_exclude exclude;
    uint64_t pod_delete_grace_period; /* nanoseconds */
    /* the kinds of objects that must be read; set by the config check */
    bool reads[K8S_KINDS];
    /* of the namespaces, only kube-system must be read; set by the config check */
    bool reads_kube_system_only;
    /* keys of the client metadata that the processor reads; set by the config check */
    struct br_strings metadata_keys;
};

extern const struct br_option k8s_options[];

/* Checks the settings; see br_component.check. */
int k8s_config_check(void *settings, const struct br_yaml *node, const char *path,
                     struct br_arena *arena, struct br_errs *errs);
