/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/resource_detection/config.h"

#include <stdio.h>
#include <string.h>

#include "attribute/regex.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/mem.h"

const char *const detect_names[DETECT_KINDS + 1] = {
    [DETECT_ENV] = "env",         [DETECT_SYSTEM] = "system",   [DETECT_DOCKER] = "docker",
    [DETECT_K8S_API] = "k8s_api", [DETECT_K8SNODE] = "k8snode", [DETECT_GCP] = "gcp",
    [DETECT_EC2] = "ec2",         [DETECT_ECS] = "ecs",         [DETECT_EKS] = "eks",
    [DETECT_AZURE] = "azure",
};

/* --- Attributes ------------------------------------------------------------------------------- */

#define TOGGLE_HELP "true: the attribute is set"

static const struct br_option on_by_default[] = {
    BR_BOOL(struct detect_toggle, enabled, true, TOGGLE_HELP),
    BR_OPT_END,
};
static const struct br_option off_by_default[] = {
    BR_BOOL(struct detect_toggle, enabled, false, TOGGLE_HELP),
    BR_OPT_END,
};

/* Option row that enables or disables attribute number `index` of a detector. */
#define SWITCH(index, key, table, text)                                                            \
    {                                                                                              \
        .name = (key), .kind = BR_OPT_STRUCT, .offset = (index) * sizeof(struct detect_toggle),    \
        .sub = (table), .help = (text)                                                             \
    }
#define ON(index, key, text) SWITCH(index, key, on_by_default, text)
#define OFF(index, key, text) SWITCH(index, key, off_by_default, text)

static const struct br_option system_attributes[] = {
    OFF(0, "host.arch", "CPU architecture, such as amd64"),
    OFF(1, "host.cpu.cache.l2.size", "cache size that /proc/cpuinfo shows"),
    OFF(2, "host.cpu.family", "family of the CPU"),
    OFF(3, "host.cpu.model.id", "model number of the CPU"),
    OFF(4, "host.cpu.model.name", "model name of the CPU"),
    OFF(5, "host.cpu.stepping", "stepping of the CPU"),
    OFF(6, "host.cpu.vendor.id", "manufacturer of the CPU"),
    OFF(7, "host.id", "machine id of /etc/machine-id"),
    OFF(8, "host.interface", "names of the network interfaces"),
    OFF(9, "host.ip", "IP addresses, except loopback addresses"),
    OFF(10, "host.mac", "hardware addresses"),
    ON(11, "host.name", "name of the host, from the first of hostname_sources that has one"),
    OFF(12, "os.build_id", "BUILD_ID of /etc/os-release, or the version of the kernel"),
    OFF(13, "os.description", "names and versions of the distribution and the kernel"),
    OFF(14, "os.name", "name of the distribution"),
    ON(15, "os.type", "linux"),
    OFF(16, "os.version", "version of the distribution"),
    BR_OPT_END,
};

static const struct br_option docker_attributes[] = {
    OFF(0, "container.image.name", "image of the container in which Braid runs"),
    OFF(1, "container.name", "name of the container in which Braid runs"),
    ON(2, "host.name", "name of the Docker host"),
    ON(3, "os.type", "operating system of the Docker host"),
    BR_OPT_END,
};

static const struct br_option kubernetes_attributes[] = {
    OFF(0, "host.id", "machine id of the node"),
    ON(1, "k8s.cluster.uid", "uid of the namespace kube-system"),
    ON(2, "k8s.node.name", "name of the node"),
    ON(3, "k8s.node.uid", "uid of the node"),
    BR_OPT_END,
};

static const struct br_option gcp_attributes[] = {
    ON(0, "cloud.account.id", "id of the project"),
    ON(1, "cloud.availability_zone", "zone"),
    ON(2, "cloud.platform", "gcp_compute_engine, gcp_kubernetes_engine, gcp_cloud_run ..."),
    ON(3, "cloud.provider", "gcp"),
    ON(4, "cloud.region", "region"),
    ON(5, "faas.instance", "id of the instance of the function or service"),
    ON(6, "faas.name", "name of the function or service"),
    ON(7, "faas.version", "version of the function or service"),
    ON(8, "gcp.cloud_run.job.execution", "execution of the Cloud Run job"),
    ON(9, "gcp.cloud_run.job.task_index", "index of the task in the Cloud Run job"),
    OFF(10, "gcp.gce.instance.hostname", "host name of the instance"),
    OFF(11, "gcp.gce.instance.name", "name of the instance"),
    ON(12, "gcp.gce.instance_group_manager.name", "instance group that made the instance"),
    ON(13, "gcp.gce.instance_group_manager.region", "region of a regional instance group"),
    ON(14, "gcp.gce.instance_group_manager.zone", "zone of a zonal instance group"),
    ON(15, "host.id", "id of the instance"),
    ON(16, "host.name", "name of the instance"),
    ON(17, "host.type", "machine type"),
    ON(18, "k8s.cluster.name", "name of the GKE cluster"),
    BR_OPT_END,
};

static const struct br_option ec2_attributes[] = {
    ON(0, "cloud.account.id", "id of the AWS account"),
    ON(1, "cloud.availability_zone", "availability zone"),
    ON(2, "cloud.platform", "aws_ec2"),
    ON(3, "cloud.provider", "aws"),
    ON(4, "cloud.region", "region"),
    ON(5, "host.id", "id of the instance"),
    ON(6, "host.image.id", "id of the machine image"),
    ON(7, "host.name", "host name of the instance"),
    ON(8, "host.type", "type of the instance"),
    BR_OPT_END,
};

static const struct br_option ecs_attributes[] = {
    ON(0, "aws.ecs.cluster.arn", "ARN of the cluster"),
    ON(1, "aws.ecs.launchtype", "ec2 or fargate"),
    ON(2, "aws.ecs.task.arn", "ARN of the task"),
    ON(3, "aws.ecs.task.family", "family of the task definition"),
    ON(4, "aws.ecs.task.id", "id of the task"),
    ON(5, "aws.ecs.task.revision", "revision of the task definition"),
    ON(6, "aws.log.group.arns", "ARNs of the log groups of the other containers"),
    ON(7, "aws.log.group.names", "names of these log groups"),
    ON(8, "aws.log.stream.arns", "ARNs of the log streams of the other containers"),
    ON(9, "aws.log.stream.names", "names of these log streams"),
    ON(10, "cloud.account.id", "id of the AWS account"),
    ON(11, "cloud.availability_zone", "availability zone"),
    ON(12, "cloud.platform", "aws_ecs"),
    ON(13, "cloud.provider", "aws"),
    ON(14, "cloud.region", "region"),
    BR_OPT_END,
};

static const struct br_option eks_attributes[] = {
    OFF(0, "cloud.account.id", "id of the AWS account"),
    OFF(1, "cloud.availability_zone", "availability zone"),
    ON(2, "cloud.platform", "aws_eks"),
    ON(3, "cloud.provider", "aws"),
    OFF(4, "cloud.region", "region"),
    OFF(5, "host.id", "id of the instance"),
    OFF(6, "host.image.id", "id of the machine image"),
    OFF(7, "host.name", "host name of the instance"),
    OFF(8, "host.type", "type of the instance"),
    OFF(9, "k8s.cluster.name", "not supported"),
    BR_OPT_END,
};
#define EKS_CLUSTER_NAME 9

static const struct br_option azure_attributes[] = {
    ON(0, "azure.resource_group.name", "never set; the Collector sets it only with a feature gate"),
    ON(1, "azure.resourcegroup.name", "name of the resource group"),
    ON(2, "azure.vm.name", "name of the virtual machine"),
    ON(3, "azure.vm.scaleset.name", "name of the scale set"),
    ON(4, "azure.vm.size", "size of the virtual machine"),
    ON(5, "cloud.account.id", "id of the subscription"),
    OFF(6, "cloud.availability_zone", "availability zone"),
    ON(7, "cloud.platform", "azure.vm"),
    ON(8, "cloud.provider", "azure"),
    ON(9, "cloud.region", "region"),
    ON(10, "host.id", "id of the virtual machine"),
    ON(11, "host.name", "computer name, or the name of the virtual machine"),
    BR_OPT_END,
};

const struct br_option *const detect_attributes[DETECT_KINDS] = {
    [DETECT_SYSTEM] = system_attributes,
    [DETECT_DOCKER] = docker_attributes,
    [DETECT_K8S_API] = kubernetes_attributes,
    [DETECT_K8SNODE] = kubernetes_attributes,
    [DETECT_GCP] = gcp_attributes,
    [DETECT_EC2] = ec2_attributes,
    [DETECT_ECS] = ecs_attributes,
    [DETECT_EKS] = eks_attributes,
    [DETECT_AZURE] = azure_attributes,
};

/* --- Sections --------------------------------------------------------------------------------- */

#define S struct detect_section

#define ATTRIBUTES_ROW(table)                                                                      \
    {                                                                                              \
        .name = "resource_attributes", .kind = BR_OPT_STRUCT, .offset = offsetof(S, attributes),   \
        .sub = (table), .help = "attributes that the detector sets"                                \
    }
#define TAGS_HELP " that are added as attributes, as regular expressions"

static const struct br_option env_filter_options[] = {
    BR_STRINGS(struct detect_env_attributes, included,
               "keys that are used, with the wildcards * and ?; default: all"),
    BR_STRINGS(struct detect_env_attributes, excluded,
               "keys that are not used although they are included, with the wildcards * and ?"),
    BR_OPT_END,
};

static const struct br_option env_options[] = {
    {.name = "attributes",
     .kind = BR_OPT_STRUCT,
     .offset = offsetof(S, env),
     .sub = env_filter_options,
     .help = "keys of the environment variable that are used"},
    BR_OPT_END,
};

static const struct br_option system_options[] = {
    BR_STRINGS(S, hostname_sources,
               "sources of host.name in order of preference: dns, os, cname, lookup; default: "
               "[dns, os]"),
    ATTRIBUTES_ROW(system_attributes),
    BR_OPT_END,
};

static const struct br_option docker_options[] = {ATTRIBUTES_ROW(docker_attributes), BR_OPT_END};

static const char *const auth_types[] = {"none", "serviceAccount", NULL};

#define KUBERNETES_ROWS(default_help)                                                              \
    BR_ENUM(S, auth_type, "serviceAccount", auth_types,                                            \
            "credentials for the Kubernetes API: those of the pod's service account, or none"),    \
        BR_STRING(                                                                                 \
            S, node_from_env_var, "",                                                              \
            "environment variable that contains the name of the node; default: " default_help),    \
        BR_STRING(S, service_account, "/var/run/secrets/kubernetes.io/serviceaccount",             \
                  "directory that contains the token and the CA certificate of the service "       \
                  "account"),                                                                      \
        BR_IGNORED("context", "Braid does not read a kubeConfig"),                                 \
        BR_IGNORED("kube_api_qps", "few requests are sent to the Kubernetes API"),                 \
        BR_IGNORED("kube_api_burst", "few requests are sent to the Kubernetes API")

static const struct br_option kubernetes_options[] = {
    KUBERNETES_ROWS("K8S_NODE_NAME"),
    ATTRIBUTES_ROW(kubernetes_attributes),
    BR_OPT_END,
};

static const struct br_option gcp_options[] = {
    BR_STRINGS(S, labels, "not supported"),
    ATTRIBUTES_ROW(gcp_attributes),
    BR_OPT_END,
};

static const struct br_option ec2_options[] = {
    BR_STRINGS(S, tags, "keys of instance tags" TAGS_HELP "; requires tags_from_imds"),
    BR_BOOL(S, tags_from_imds, false,
            "true: tags are read from the metadata service, which must be allowed for the instance "
            "(InstanceMetadataTags)"),
    BR_BOOL(S, fail_on_missing_metadata, false,
            "true: as fail_on_missing_metadata of the processor, for this detector"),
    BR_IGNORED("max_attempts", "a failed detection is repeated as a whole"),
    BR_IGNORED("max_backoff", "a failed detection is repeated as a whole"),
    ATTRIBUTES_ROW(ec2_attributes),
    BR_OPT_END,
};

static const struct br_option ecs_options[] = {ATTRIBUTES_ROW(ecs_attributes), BR_OPT_END};

static const struct br_option eks_options[] = {
    KUBERNETES_ROWS("none"),
    ATTRIBUTES_ROW(eks_attributes),
    BR_OPT_END,
};

static const struct br_option azure_options[] = {
    BR_STRINGS(S, tags, "names of tags of the virtual machine" TAGS_HELP),
    BR_STRING(S, endpoint, "http://169.254.169.254", "address of the metadata service"),
    ATTRIBUTES_ROW(azure_attributes),
    BR_OPT_END,
};

#undef S

/* --- The processor ---------------------------------------------------------------------------- */

static const struct br_option retry_options[] = {
    BR_IGNORED("enabled", "a failed detection is always repeated"),
    BR_DURATION(struct detect_retry, initial_interval, "1s", "delay before the first repetition"),
    BR_DOUBLE(struct detect_retry, randomization_factor, 0.5, 0, 1,
              "largest random change of a delay, as a fraction of the delay"),
    BR_DOUBLE(struct detect_retry, multiplier, 2, 1, 1000,
              "factor by which each delay is longer than the previous one"),
    BR_DURATION(struct detect_retry, max_interval, "30s", "longest delay"),
    BR_IGNORED("max_elapsed_time", "a failed detection is repeated until it succeeds"),
    BR_OPT_END,
};

#define SECTION(key, number, table, text)                                                          \
    {                                                                                              \
        .name = (key), .kind = BR_OPT_STRUCT,                                                      \
        .offset = offsetof(struct detect_config, sections[number]), .sub = (table), .help = (text) \
    }
#define NO_CLIENT "requests to metadata services do not use this setting"
#define NO_DETECTOR "Braid does not have this detector"

const struct br_option detect_options[] = {
    BR_STRINGS(struct detect_config, detectors,
               "detectors in order of precedence: env, system, docker, k8s_api, k8snode, gcp, ec2, "
               "ecs, eks, azure; default: env"),
    BR_BOOL(struct detect_config, override, true,
            "true: a detected attribute replaces one that the resource already has"),
    BR_DURATION(struct detect_config, timeout, "5s", "time limit of a detection"),
    BR_DURATION(struct detect_config, refresh_interval, "0s",
                "interval at which the detection is repeated; 0: never"),
    BR_BOOL(struct detect_config, fail_on_missing_metadata, false,
            "true: a metadata service that does not answer is an error; false: its detector then "
            "sets no attributes"),
    BR_STRUCT(struct detect_config, retry, retry_options, "repetition of a failed detection"),
    SECTION("env", DETECT_ENV, env_options, "settings of the detector env"),
    SECTION("system", DETECT_SYSTEM, system_options, "settings of the detector system"),
    SECTION("docker", DETECT_DOCKER, docker_options, "settings of the detector docker"),
    SECTION("k8s_api", DETECT_K8S_API, kubernetes_options, "settings of the detector k8s_api"),
    SECTION("k8snode", DETECT_K8SNODE, kubernetes_options,
            "settings of the detector k8snode, an older name of k8s_api"),
    SECTION("gcp", DETECT_GCP, gcp_options, "settings of the detector gcp"),
    SECTION("ec2", DETECT_EC2, ec2_options, "settings of the detector ec2"),
    SECTION("ecs", DETECT_ECS, ecs_options, "settings of the detector ecs"),
    SECTION("eks", DETECT_EKS, eks_options, "settings of the detector eks"),
    SECTION("azure", DETECT_AZURE, azure_options, "settings of the detector azure"),
    BR_IGNORED("akamai", NO_DETECTOR),
    BR_IGNORED("aks", NO_DETECTOR),
    BR_IGNORED("alibaba_ecs", NO_DETECTOR),
    BR_IGNORED("azureappservice", NO_DETECTOR),
    BR_IGNORED("azurecontainerapps", NO_DETECTOR),
    BR_IGNORED("azurefunctions", NO_DETECTOR),
    BR_IGNORED("consul", NO_DETECTOR),
    BR_IGNORED("digitalocean", NO_DETECTOR),
    BR_IGNORED("elasticbeanstalk", NO_DETECTOR),
    BR_IGNORED("heroku", NO_DETECTOR),
    BR_IGNORED("hetzner", NO_DETECTOR),
    BR_IGNORED("ibmcloud_classic", NO_DETECTOR),
    BR_IGNORED("ibmcloud_vpc", NO_DETECTOR),
    BR_IGNORED("kubeadm", NO_DETECTOR),
    BR_IGNORED("lambda", NO_DETECTOR),
    BR_IGNORED("nova", NO_DETECTOR),
    BR_IGNORED("openshift", NO_DETECTOR),
    BR_IGNORED("oraclecloud", NO_DETECTOR),
    BR_IGNORED("scaleway", NO_DETECTOR),
    BR_IGNORED("tencent_cvm", NO_DETECTOR),
    BR_IGNORED("upcloud", NO_DETECTOR),
    BR_IGNORED("vultr", NO_DETECTOR),
    BR_IGNORED("auth", NO_CLIENT),
    BR_IGNORED("compression", NO_CLIENT),
    BR_IGNORED("compression_params", NO_CLIENT),
    BR_IGNORED("cookies", NO_CLIENT),
    BR_IGNORED("dialer_middleware", NO_CLIENT),
    BR_IGNORED("endpoint", NO_CLIENT),
    BR_IGNORED("force_attempt_http2", NO_CLIENT),
    BR_IGNORED("headers", NO_CLIENT),
    BR_IGNORED("http2_ping_timeout", NO_CLIENT),
    BR_IGNORED("http2_read_idle_timeout", NO_CLIENT),
    BR_IGNORED("idle_conn_timeout", NO_CLIENT),
    BR_IGNORED("keepalive", NO_CLIENT),
    BR_IGNORED("max_conns_per_host", NO_CLIENT),
    BR_IGNORED("max_idle_conns", NO_CLIENT),
    BR_IGNORED("max_idle_conns_per_host", NO_CLIENT),
    BR_IGNORED("middlewares", NO_CLIENT),
    BR_IGNORED("proxy_url", NO_CLIENT),
    BR_IGNORED("read_buffer_size", NO_CLIENT),
    BR_IGNORED("tls", NO_CLIENT),
    BR_IGNORED("write_buffer_size", NO_CLIENT),
    BR_OPT_END,
};

/* --- Checks ----------------------------------------------------------------------------------- */

int detect_kind(const char *name)
{
    for (int i = 0; i < DETECT_KINDS; i++)
        if (strcmp(detect_names[i], name) == 0)
            return i;
    return -1;
}

static const struct br_yaml *detect_section_of(const struct br_yaml *node, int kind,
                                               const char *key)
{
    const struct br_yaml *section = br_yaml_get(node, detect_names[kind]);
    const struct br_yaml *at = br_yaml_get(section, key);
    if (at)
        return at;
    return section ? section : node;
}

/* Returns true if `detectors` lists a detector, whose settings are then checked. */
static bool detect_is_listed(const struct detect_config *config, int kind)
{
    for (size_t i = 0; i < config->detectors.count; i++)
        if (detect_kind(config->detectors.items[i]) == kind)
            return true;
    return false;
}

/* Adds an error for a detector that Braid does not have. The error is at the entry of the list, so
 * that --skip-unsupported removes only the entry. If Braid has none of the detectors, the error is
 * at the processor. */
static void detect_refuse(const struct detect_config *config, size_t index,
                          const struct br_yaml *node, const char *path, struct br_errs *errs)
{
    const struct br_yaml *list = br_yaml_get(node, "detectors");
    bool some = false;
    char at[256];
    for (int kind = 0; kind < DETECT_KINDS; kind++)
        some = some || detect_is_listed(config, kind);
    bool entry = some && list && list->type == BR_YAML_SEQ && index < list->count;
    (void)snprintf(at, sizeof at, "%s::detectors[%zu]", path, index);
    (void)br_errs_lack(errs, entry ? list->items[index] : list, entry ? at : path,
                       "the detector \"%s\" is not supported; supported are env, system, docker, "
                       "k8s_api, k8snode, gcp, ec2, ecs, eks and azure",
                       config->detectors.items[index]);
}

static void detect_check_detectors(const struct detect_config *config, const struct br_yaml *node,
                                   const char *path, struct br_errs *errs)
{
    for (size_t i = 0; i < config->detectors.count; i++)
        if (detect_kind(config->detectors.items[i]) < 0)
            detect_refuse(config, i, node, path, errs);
    for (size_t i = 0; i < config->detectors.count; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(config->detectors.items[i], config->detectors.items[k]) == 0)
                (void)br_errs_add(errs, br_yaml_get(node, "detectors"), path,
                                  "the detector \"%s\" is listed twice; remove one of them",
                                  config->detectors.items[i]);
}

static void detect_check_patterns(const struct br_strings *patterns, int kind,
                                  const struct br_yaml *node, const char *path,
                                  struct br_errs *errs)
{
    struct br_regex regex = {0};
    for (size_t i = 0; i < patterns->count; i++) {
        char why[BR_REGEX_WHY_SIZE];
        pcre2_code *pattern = NULL;
        if (br_regex_compile(&regex, patterns->items[i], &pattern, why) == BR_EINVAL)
            (void)br_errs_add(errs, detect_section_of(node, kind, "tags"), path,
                              "%s::tags[%zu] is not a valid regular expression: %s",
                              detect_names[kind], i, why);
        pcre2_code_free(pattern);
    }
    br_regex_release(&regex);
}

static void detect_check_sources(const struct br_strings *sources, const struct br_yaml *node,
                                 const char *path, struct br_errs *errs)
{
    static const char *const known[] = {"dns", "os", "cname", "lookup"};
    for (size_t i = 0; i < sources->count; i++) {
        bool valid = false;
        for (size_t k = 0; k < BR_COUNT(known); k++)
            valid = valid || strcmp(sources->items[i], known[k]) == 0;
        if (!valid)
            (void)br_errs_add(errs, detect_section_of(node, DETECT_SYSTEM, "hostname_sources"),
                              path,
                              "system::hostname_sources: must be dns, os, cname or lookup, "
                              "got \"%s\"",
                              sources->items[i]);
    }
}

int detect_config_check(void *settings, const struct br_yaml *node, const char *path,
                        struct br_arena *arena, struct br_errs *errs)
{
    struct detect_config *config = settings;
    struct detect_section *sections = config->sections;
    size_t before = errs->n_errors;
    if (!config->detectors.count && !br_yaml_get(node, "detectors")) {
        config->detectors.items = br_arena_alloc(arena, sizeof *config->detectors.items);
        if (!config->detectors.items)
            return BR_ENOMEM;
        config->detectors.items[config->detectors.count++] = detect_names[DETECT_ENV];
    }
    if (!config->detectors.count)
        (void)br_errs_add_key(errs, node, path, "detectors", "must name at least one detector");
    detect_check_detectors(config, node, path, errs);
    detect_check_sources(&sections[DETECT_SYSTEM].hostname_sources, node, path, errs);
    if (detect_is_listed(config, DETECT_EC2))
        detect_check_patterns(&sections[DETECT_EC2].tags, DETECT_EC2, node, path, errs);
    if (detect_is_listed(config, DETECT_AZURE))
        detect_check_patterns(&sections[DETECT_AZURE].tags, DETECT_AZURE, node, path, errs);
    if (detect_is_listed(config, DETECT_EC2) && sections[DETECT_EC2].tags.count &&
        !sections[DETECT_EC2].tags_from_imds)
        (void)br_errs_lack(errs, detect_section_of(node, DETECT_EC2, "tags"), path,
                           "ec2::tags requires tags_from_imds: true, because tags are read only "
                           "from the metadata service");
    if (detect_is_listed(config, DETECT_GCP) && sections[DETECT_GCP].labels.count)
        (void)br_errs_lack(errs, detect_section_of(node, DETECT_GCP, "labels"), path,
                           "gcp::labels is not supported, because the metadata service does not "
                           "have them");
    if (detect_is_listed(config, DETECT_EKS) &&
        sections[DETECT_EKS].attributes[EKS_CLUSTER_NAME].enabled)
        (void)br_errs_lack(errs, detect_section_of(node, DETECT_EKS, "resource_attributes"), path,
                           "eks::resource_attributes::k8s.cluster.name is not supported, because "
                           "only EC2's API has the name; set it with the resource processor");
    if (!config->timeout)
        (void)br_errs_add_key(errs, node, path, "timeout", "must be more than 0");
    return errs->n_errors > before ? BR_EINVAL : 0;
}
