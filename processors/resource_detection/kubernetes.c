/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the Kubernetes API, and the detectors k8s_api and k8snode, which use it. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "processors/resource_detection/detectors.h"

enum { ASK_NODE, ASK_CLUSTER };

/* --- The API ---------------------------------------------------------------------------------- */

void detect_kubernetes_prepare(struct detect_run *run)
{
    const struct detect_section *section = run->section;
    bool none = section->auth_type == DETECT_AUTH_NONE;
    if (br_kubernetes_exists())
        br_kubernetes_begin(&run->kubernetes, run->detection->node->host,
                            none ? NULL : section->service_account, &run->detection->node->log);
}

void detect_kubernetes_get(struct detect_run *run, const char *path)
{
    const char *authorization = br_kubernetes_authorization(&run->kubernetes);
    char origin[BR_KUBERNETES_ORIGIN_SIZE];
    /* a copy, because the token of the service account can change while the request is in
     * progress */
    const char *copy =
        authorization ? br_arena_strndup(&run->arena, authorization, strlen(authorization)) : NULL;
    const struct br_header header = {"authorization", copy};
    if (!authorization)
        detect_fail(run, "cannot read %s/token", run->section->service_account);
    else if (!copy)
        detect_fail(run, "out of memory");
    else if (!br_kubernetes_origin(origin))
        detect_fail(run, "KUBERNETES_SERVICE_HOST is too long");
    else if (detect_connect(run, 0, origin, &run->kubernetes.tls))
        detect_request(run, 0, NULL, path, &header, *copy ? 1 : 0);
}

/* --- k8s_api and k8snode ---------------------------------------------------------------------- */

static bool kubernetes_wants_node(const struct detect_run *run)
{
    return detect_wants(run, "k8s.node.uid") || detect_wants(run, "k8s.node.name") ||
           detect_wants(run, "host.id");
}

static void kubernetes_ask_cluster(struct detect_run *run)
{
    run->step = ASK_CLUSTER;
    if (detect_wants(run, "k8s.cluster.uid"))
        detect_kubernetes_get(run, "/api/v1/namespaces/kube-system");
    else
        detect_end(run);
}

static void kubernetes_begin(struct detect_run *run)
{
    const char *variable = run->section->node_from_env_var;
    const char *node = detect_variable(*variable ? variable : "K8S_NODE_NAME");
    if (!br_kubernetes_exists()) {
        detect_missing(run, "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set");
    } else if (!node) {
        detect_missing(run, "the environment variable %s does not contain the name of the node",
                       *variable ? variable : "K8S_NODE_NAME");
    } else if (!kubernetes_wants_node(run)) {
        kubernetes_ask_cluster(run);
    } else {
        char *path = br_arena_printf(&run->arena, "/api/v1/nodes/%s", node);
        run->step = ASK_NODE;
        if (path)
            detect_kubernetes_get(run, path);
        else
            detect_fail(run, "out of memory");
    }
}

static void kubernetes_on_cluster(struct detect_run *run, const struct detect_answer *answer)
{
    if (answer->status == 401 || answer->status == 403)
        br_log_write(&run->detection->node->log, BR_LOG_WARN,
                     "k8s.cluster.uid is not set: %s; allow the service account to get "
                     "namespaces/kube-system, or switch the attribute off",
                     answer->error);
    else if (answer->error) {
        detect_fail(run, "%s", answer->error);
        return;
    }
    json_t *root = answer->error ? NULL : json_loadb(answer->body, answer->len, 0, NULL);
    const json_t *metadata = json_object_get(root, "metadata");
    detect_text(run, "k8s.cluster.uid", json_string_value(json_object_get(metadata, "uid")));
    json_decref(root);
    detect_end(run);
}

static void kubernetes_on_node(struct detect_run *run, const struct detect_answer *answer)
{
    json_t *root = answer->error ? NULL : json_loadb(answer->body, answer->len, 0, NULL);
    if (!json_is_object(root)) {
        json_decref(root);
        detect_missing(run, "%s", answer->error ? answer->error : "the node is not JSON");
        return;
    }
    const json_t *metadata = json_object_get(root, "metadata");
    const json_t *info = json_object_get(json_object_get(root, "status"), "nodeInfo");
    detect_text(run, "k8s.node.uid", json_string_value(json_object_get(metadata, "uid")));
    detect_text(run, "k8s.node.name", json_string_value(json_object_get(metadata, "name")));
    detect_text(run, "host.id", json_string_value(json_object_get(info, "machineID")));
    json_decref(root);
    kubernetes_ask_cluster(run);
}

static void kubernetes_on_answer(struct detect_run *run, const struct detect_answer *answer)
{
    if (run->step == ASK_NODE)
        kubernetes_on_node(run, answer);
    else
        kubernetes_on_cluster(run, answer);
}

const struct detector detect_node = {.begin = kubernetes_begin, .on_answer = kubernetes_on_answer};
