/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/k8s_attributes/config.h"

#include <stdio.h>
#include <string.h>

#include "attribute/regex.h"
#include "base/err.h"
#include "base/mem.h"
#include "core/authenticator.h"
#include "egress/kubernetes.h"

const char *const k8s_metadata_names[K8S_METADATA] = {
    [K8S_NAMESPACE_NAME] = "k8s.namespace.name",
    [K8S_POD_NAME] = "k8s.pod.name",
    [K8S_POD_UID] = "k8s.pod.uid",
    [K8S_POD_HOSTNAME] = "k8s.pod.hostname",
    [K8S_POD_IP] = "k8s.pod.ip",
    [K8S_POD_START_TIME] = "k8s.pod.start_time",
    [K8S_NODE_NAME] = "k8s.node.name",
    [K8S_NODE_UID] = "k8s.node.uid",
    [K8S_CLUSTER_UID] = "k8s.cluster.uid",
    [K8S_DEPLOYMENT_NAME] = "k8s.deployment.name",
    [K8S_DEPLOYMENT_UID] = "k8s.deployment.uid",
    [K8S_REPLICASET_NAME] = "k8s.replicaset.name",
    [K8S_REPLICASET_UID] = "k8s.replicaset.uid",
    [K8S_DAEMONSET_NAME] = "k8s.daemonset.name",
    [K8S_DAEMONSET_UID] = "k8s.daemonset.uid",
    [K8S_STATEFULSET_NAME] = "k8s.statefulset.name",
    [K8S_STATEFULSET_UID] = "k8s.statefulset.uid",
    [K8S_JOB_NAME] = "k8s.job.name",
    [K8S_JOB_UID] = "k8s.job.uid",
    [K8S_CRONJOB_NAME] = "k8s.cronjob.name",
    [K8S_CRONJOB_UID] = "k8s.cronjob.uid",
    [K8S_CONTAINER_NAME] = "k8s.container.name",
    [K8S_CONTAINER_ID] = "container.id",
    [K8S_CONTAINER_IMAGE_NAME] = "container.image.name",
    [K8S_CONTAINER_IMAGE_TAG] = "container.image.tag",
    [K8S_CONTAINER_IMAGE_REPO_DIGESTS] = "container.image.repo_digests",
    [K8S_SERVICE_NAMESPACE] = "service.namespace",
    [K8S_SERVICE_NAME] = "service.name",
    [K8S_SERVICE_VERSION] = "service.version",
    [K8S_SERVICE_INSTANCE_ID] = "service.instance.id",
};

/* The attributes that are set if `metadata` is absent. */
static const enum k8s_metadata preferred[] = {
    K8S_NAMESPACE_NAME,
    K8S_POD_NAME,
    K8S_POD_UID,
    K8S_POD_START_TIME,
    K8S_DEPLOYMENT_NAME,
    K8S_NODE_NAME,
    K8S_CONTAINER_IMAGE_NAME,
    K8S_CONTAINER_IMAGE_TAG,
};

static const char *const auth_types[] = {"none", "serviceAccount", NULL};
static const char *const sources[] = {"connection", "resource_attribute", NULL};
static const char *const filter_ops[] = {"equals", "not-equals", "exists", "does-not-exist", NULL};

static const struct br_option field_options[] = {
    BR_STRING(struct k8s_field, tag_name, "",
              "name of the attribute; default: k8s.pod.labels.<key> or k8s.pod.annotations.<key> "
              "(also for namespace and node), k8s.deployment.label.<key> or "
              "k8s.deployment.annotation.<key> (also for the other kinds). With key_regex, $1 is "
              "the text of the first group"),
    BR_STRING(struct k8s_field, key, "", "key of the label or annotation"),
    BR_STRING(struct k8s_field, key_regex, "",
              "expression that whole keys must match, instead of `key`"),
    BR_ENUM(struct k8s_field, from, "pod", k8s_kind_names,
            "kind of the object that has the label or annotation"),
    BR_OPT_END,
};

static const struct br_option extract_options[] = {
    BR_STRINGS(struct k8s_extract, metadata,
               "attributes that are set; default: k8s.namespace.name, k8s.pod.name, k8s.pod.uid, "
               "k8s.pod.start_time, k8s.deployment.name, k8s.node.name, container.image.name, "
               "container.image.tag"),
    BR_LIST(struct k8s_extract, labels, struct k8s_field, field_options,
            "labels of the pod, or of its namespace, node or workload, that become attributes"),
    BR_LIST(
        struct k8s_extract, annotations, struct k8s_field, field_options,
        "annotations of the pod, or of its namespace, node or workload, that become attributes"),
    BR_BOOL(struct k8s_extract, otel_annotations, false,
            "true: an annotation resource.opentelemetry.io/x of the pod becomes the attribute x"),
    BR_BOOL(struct k8s_extract, deployment_name_from_replicaset, true,
            "true: the name of a deployment is derived from that of its ReplicaSet; false: "
            "ReplicaSets are read, which contain the name"),
    BR_OPT_END,
};

static const struct br_option filter_options[] = {
    BR_STRING(struct k8s_filter, key, "", "key of the label, or name of the field"),
    BR_STRING(struct k8s_filter, value, "", "value of the label or field"),
    BR_ENUM(struct k8s_filter, op, "equals", filter_ops, "comparison"),
    BR_OPT_END,
};

static const struct br_option filters_options[] = {
    BR_STRING(struct k8s_filters, node, "", "only pods on the node of this name"),
    BR_STRING(struct k8s_filters, node_from_env_var, "",
              "environment variable with the name of the node, instead of `node`"),
    BR_STRING(struct k8s_filters, namespace, "", "only pods of this namespace"),
    BR_LIST(struct k8s_filters, labels, struct k8s_filter, filter_options,
            "only pods with these labels"),
    BR_LIST(struct k8s_filters, fields, struct k8s_filter, filter_options,
            "only pods with these fields: equals or not-equals"),
    BR_OPT_END,
};

static const struct br_option source_options[] = {
    BR_ENUM(struct k8s_source, from, "connection", sources,
            "connection: the IP address of the client; resource_attribute: the attribute `name`"),
    BR_STRING(struct k8s_source, name, "", "name of the resource attribute"),
    BR_OPT_END,
};

static const struct br_option association_options[] = {
    BR_LIST(struct k8s_association, sources, struct k8s_source, source_options,
            "values that the resource and the pod must have in common, at most 4"),
    BR_OPT_END,
};

static const struct br_option excluded_options[] = {
    BR_STRING(struct k8s_excluded, name, "", "expression that a part of the pod's name matches"),
    BR_OPT_END,
};

static const struct br_option exclude_options[] = {
    BR_LIST(struct k8s_exclude, pods, struct k8s_excluded, excluded_options,
            "pods that are ignored; default: jaeger-agent and jaeger-collector"),
    BR_OPT_END,
};

const struct br_option k8s_options[] = {
    BR_ENUM(struct k8s_config, auth_type, "serviceAccount", auth_types,
            "credentials for the Kubernetes API: those of the pod's service account, or none"),
    BR_STRING(struct k8s_config, service_account, BR_KUBERNETES_ACCOUNT,
              "directory that contains the token and the CA certificate of the service account"),
    BR_BOOL(struct k8s_config, passthrough, false,
            "true: only k8s.pod.ip is set, to the address of the client; the Kubernetes API is not "
            "used"),
    BR_STRUCT(struct k8s_config, extract, extract_options, "attributes that are set"),
    BR_STRUCT(struct k8s_config, filter, filters_options, "pods that are watched"),
    BR_LIST(struct k8s_config, pod_association, struct k8s_association, association_options,
            "ways to find the pod of a resource, tried in order; default: by k8s.pod.ip, ip, the "
            "address of the client, or host.name if that is an address"),
    BR_STRUCT(struct k8s_config, exclude, exclude_options, "pods that are ignored"),
    BR_BOOL(struct k8s_config, wait_for_metadata, false,
            "true: data is refused until all pods and other objects have been listed"),
    BR_DURATION(struct k8s_config, pod_delete_grace_period, "2m",
                "time for which a deleted pod or other object is still found"),
    BR_IGNORED("wait_for_metadata_timeout", "the objects are listed again until that succeeds"),
    BR_IGNORED("watch_sync_period", "all changes are read from the Kubernetes API"),
    BR_IGNORED("context", "there is no kubeConfig of which a context could be chosen"),
    BR_IGNORED("kube_api_qps", "few requests are sent to the Kubernetes API"),
    BR_IGNORED("kube_api_burst", "few requests are sent to the Kubernetes API"),
    BR_OPT_END,
};

/* --- Checks ----------------------------------------------------------------------------------- */

struct checking {
    const struct br_yaml *node;
    const char *path;
    struct br_errs *errs;
};

static void k8s_check_pattern(const struct checking *checking, const char *section,
                              const char *pattern)
{
    struct br_regex regex = {0};
    char why[BR_REGEX_WHY_SIZE];
    pcre2_code *code = NULL;
    if (br_regex_compile(&regex, pattern, &code, why) == BR_EINVAL)
        (void)br_errs_add_key(checking->errs, checking->node, checking->path, section,
                              "\"%s\" is not a valid regular expression: %s", pattern, why);
    pcre2_code_free(code);
    br_regex_release(&regex);
}

static void k8s_check_metadata(struct k8s_extract *extract, const struct checking *checking)
{
    for (size_t i = 0; i < BR_COUNT(preferred) && !extract->metadata.count; i++)
        extract->wants[preferred[i]] = true;
    for (size_t i = 0; i < extract->metadata.count; i++) {
        const char *name = extract->metadata.items[i];
        bool known = strcmp(name, "container.image.tags") == 0; /* only a feature gate sets it */
        for (size_t k = 0; k < K8S_METADATA; k++)
            if (strcmp(name, k8s_metadata_names[k]) == 0)
                known = extract->wants[k] = true;
        if (!known)
            (void)br_errs_add_key(checking->errs, checking->node, checking->path, "extract",
                                  "metadata: \"%s\" is not an attribute that this processor sets",
                                  name);
    }
}

static void k8s_check_fields(const struct br_structs *fields, const struct checking *checking)
{
    const struct k8s_field *field = fields->items;
    for (size_t i = 0; i < fields->count; i++, field++) {
        if (!*field->key == !*field->key_regex)
            (void)br_errs_add_key(checking->errs, checking->node, checking->path, "extract",
                                  "a label or annotation needs either key or key_regex");
        if (*field->key_regex)
            k8s_check_pattern(checking, "extract", field->key_regex);
    }
}

static void k8s_check_associations(const struct k8s_config *config, const struct checking *checking)
{
    const struct k8s_association *association = config->pod_association.items;
    for (size_t i = 0; i < config->pod_association.count; i++, association++) {
        const struct k8s_source *source = association->sources.items;
        if (!association->sources.count || association->sources.count > K8S_SOURCES_MAX)
            (void)br_errs_add_key(checking->errs, checking->node, checking->path, "pod_association",
                                  "an association must have 1 to %d sources", K8S_SOURCES_MAX);
        for (size_t k = 0; k < association->sources.count; k++)
            if (source[k].from == K8S_FROM_RESOURCE_ATTRIBUTE && !*source[k].name)
                (void)br_errs_add_key(checking->errs, checking->node, checking->path,
                                      "pod_association", "a resource_attribute needs a name");
    }
}

/* Sets which kinds of objects must be read. Pods refer to ReplicaSets and Jobs, and only these
 * refer to deployments and CronJobs. */
static void k8s_set_reads(struct k8s_config *config)
{
    const struct br_structs *lists[] = {&config->extract.labels, &config->extract.annotations};
    const bool *wants = config->extract.wants;
    bool *reads = config->reads;
    reads[K8S_POD] = true;
    for (size_t i = 0; i < BR_COUNT(lists); i++) {
        const struct k8s_field *field = lists[i]->items;
        for (size_t k = 0; k < lists[i]->count; k++)
            reads[field[k].from] = true;
    }
    config->reads_kube_system_only = wants[K8S_CLUSTER_UID] && !reads[K8S_NAMESPACE];
    reads[K8S_NAMESPACE] = reads[K8S_NAMESPACE] || wants[K8S_CLUSTER_UID];
    reads[K8S_NODE] = reads[K8S_NODE] || wants[K8S_NODE_UID];
    reads[K8S_REPLICASET] =
        reads[K8S_REPLICASET] || reads[K8S_DEPLOYMENT] || wants[K8S_DEPLOYMENT_UID] ||
        (wants[K8S_DEPLOYMENT_NAME] && !config->extract.deployment_name_from_replicaset);
    reads[K8S_JOB] = reads[K8S_JOB] || reads[K8S_CRONJOB] || wants[K8S_CRONJOB_UID];
}

/* Returns true if the address of the client can identify the pod. By default, it does. */
static bool k8s_reads_address(const struct k8s_config *config)
{
    const struct k8s_association *association = config->pod_association.items;
    for (size_t i = 0; i < config->pod_association.count; i++, association++) {
        const struct k8s_source *source = association->sources.items;
        for (size_t k = 0; k < association->sources.count; k++)
            if (source[k].from == K8S_FROM_CONNECTION)
                return true;
    }
    return config->pod_association.count == 0;
}

int k8s_config_check(void *settings, const struct br_yaml *node, const char *path,
                     struct br_arena *arena, struct br_errs *errs)
{
    struct k8s_config *config = settings;
    const struct checking checking = {node, path, errs};
    const struct k8s_excluded *excluded = config->exclude.pods.items;
    const struct k8s_filter *filter = config->filter.fields.items;
    size_t before = errs->n_errors;
    config->metadata_keys.items = br_arena_alloc(arena, sizeof *config->metadata_keys.items);
    if (!config->metadata_keys.items)
        return BR_ENOMEM;
    config->metadata_keys.items[0] = BR_ADDRESS_KEY;
    config->metadata_keys.count = k8s_reads_address(config);
    k8s_check_metadata(&config->extract, &checking);
    k8s_set_reads(config);
    k8s_check_fields(&config->extract.labels, &checking);
    k8s_check_fields(&config->extract.annotations, &checking);
    k8s_check_associations(config, &checking);
    for (size_t i = 0; i < config->exclude.pods.count; i++)
        k8s_check_pattern(&checking, "exclude", excluded[i].name);
    for (size_t i = 0; i < config->filter.fields.count; i++)
        if (filter[i].op > K8S_NOT_EQUALS)
            (void)br_errs_add_key(errs, node, path, "filter",
                                  "fields: op must be equals or not-equals, got %s",
                                  filter_ops[filter[i].op]);
    return errs->n_errors > before ? BR_EINVAL : 0;
}
