/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The detector eks. A pod runs on EKS if its credentials were issued by EKS, or if the token issuer
 * or the version in the Kubernetes API is that of EKS. The instance is described by EC2's metadata
 * service or, if pods cannot reach that service, by the provider id of the node.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "processors/resource_detection/detectors.h"

enum { ASK_ISSUER, ASK_VERSION, ASK_NODE };

static bool eks_wants_instance(const struct detect_run *run)
{
    static const char *const keys[] = {"cloud.account.id", "cloud.availability_zone",
                                       "cloud.region",     "host.id",
                                       "host.image.id",    "host.name",
                                       "host.type"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (detect_wants(run, keys[i]))
            return true;
    return false;
}

static void eks_on_identified(struct detect_run *run)
{
    detect_text(run, "cloud.provider", "aws");
    detect_text(run, "cloud.platform", "aws_eks");
    if (eks_wants_instance(run))
        detect_ec2_ask(run);
    else
        detect_end(run);
}

static bool eks_variable_has(const char *name, const char *part)
{
    const char *value = detect_variable(name);
    return value && strstr(value, part);
}

static void eks_begin(struct detect_run *run)
{
    if (!br_kubernetes_exists()) {
        detect_missing(run, "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set");
    } else if (eks_variable_has("AWS_WEB_IDENTITY_TOKEN_FILE", "eks.amazonaws.com") ||
               eks_variable_has("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "eks-pod-identity")) {
        eks_on_identified(run);
    } else {
        run->step = ASK_ISSUER;
        detect_kubernetes_get(run, "/.well-known/openid-configuration");
    }
}

/* Returns true if the text under `key` in the answer contains `part`. */
static bool eks_answer_has(const struct detect_answer *answer, const char *key, const char *part)
{
    json_t *root = answer->error ? NULL : json_loadb(answer->body, answer->len, 0, NULL);
    const char *text = json_string_value(json_object_get(root, key));
    bool has = text && strstr(text, part);
    json_decref(root);
    return has;
}

/* Reads the zone and the instance from a provider id such as aws:///us-west-2a/i-049ca2df51. */
static void eks_read_provider(struct detect_run *run, const char *id)
{
    static const char prefix[] = "aws:///";
    const char *zone = id + sizeof prefix - 1;
    if (!id || strncmp(id, prefix, sizeof prefix - 1) != 0)
        return;
    size_t len = strcspn(zone, "/");
    char *text = len ? br_arena_strndup(&run->arena, zone, len) : NULL;
    if (!text || zone[len] != '/')
        return;
    detect_text(run, "host.id", zone + len + 1);
    detect_text(run, "cloud.availability_zone", text);
    text[len - 1] = '\0'; /* the name of a zone is the name of its region and one letter */
    detect_text(run, "cloud.region", text);
}

static void eks_on_node(struct detect_run *run, const struct detect_answer *answer)
{
    json_t *root = answer->error ? NULL : json_loadb(answer->body, answer->len, 0, NULL);
    const json_t *spec = json_object_get(root, "spec");
    const char *id = json_string_value(json_object_get(spec, "providerID"));
    if (id)
        eks_read_provider(run, id);
    json_decref(root);
    if (answer->error && detect_must_exist(run))
        detect_fail(run, "%s", answer->error);
    else
        detect_end(run);
}

/* Continues with the node's provider id, because the metadata service cannot be reached. */
static void eks_ask_node(struct detect_run *run)
{
    const char *variable = run->section->node_from_env_var;
    const char *node = *variable ? detect_variable(variable) : NULL;
    char *path = node ? br_arena_printf(&run->arena, "/api/v1/nodes/%s", node) : NULL;
    run->step = ASK_NODE;
    if (path)
        detect_kubernetes_get(run, path);
    else if (detect_must_exist(run))
        detect_fail(run, "eks::node_from_env_var does not name a variable with the node's name");
    else
        detect_end(run);
}

static void eks_on_answer(struct detect_run *run, const struct detect_answer *answer)
{
    switch (run->step) {
    case ASK_ISSUER:
        run->step = ASK_VERSION;
        if (eks_answer_has(answer, "issuer", "oidc.eks."))
            eks_on_identified(run);
        else
            detect_kubernetes_get(run, "/version");
        break;
    case ASK_VERSION:
        if (answer->error)
            detect_missing(run, "%s", answer->error);
        else if (eks_answer_has(answer, "gitVersion", "-eks-"))
            eks_on_identified(run);
        else
            detect_missing(run, "this cluster does not run on EKS");
        break;
    case ASK_NODE:
        eks_on_node(run, answer);
        break;
    case DETECT_EC2_ID:
        if (answer->error)
            eks_ask_node(run);
        else
            detect_ec2_answer(run, answer);
        break;
    case DETECT_EC2_DOCUMENT:
        if (answer->error && !detect_must_exist(run))
            /* the attributes that were already set show that this is EKS, so the detection
             * succeeds */
            detect_end(run);
        else
            detect_ec2_answer(run, answer);
        break;
    default:
        detect_ec2_answer(run, answer);
        break;
    }
}

const struct detector detect_eks = {.begin = eks_begin, .on_answer = eks_on_answer};
