/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The k8s_attributes processor. Pods have the form of the Kubernetes API, and the expected
 * attributes are those of the Collector's k8sattributesprocessor.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "core/authenticator.h"
#include "processors/k8s_attributes/enrich.h"
#include "processors/k8s_attributes/watch.h"
#include "tests/support/fault.h"
#include "tests/support/node_rig.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_k8s_attributes_processor;

/* --- Pods ------------------------------------------------------------------------------------- */

#define POD(name, uid, ip, more_metadata, more_spec, more_status)                                  \
    "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"ns\",\"uid\":\"" uid                     \
    "\",\"creationTimestamp\":\"2026-01-02T03:04:05Z\"" more_metadata                              \
    "},\"spec\":{\"nodeName\":\"node-1\"" more_spec "},\"status\":{\"podIP\":\"" ip                \
    "\",\"startTime\":\"2026-01-02T03:04:06Z\"" more_status "}}"
#define PLAIN(name, uid, ip) POD(name, uid, ip, "", "", "")
#define OWNER(kind, name, uid)                                                                     \
    ",\"ownerReferences\":[{\"kind\":\"" kind "\",\"name\":\"" name "\",\"uid\":\"" uid "\"}]"
#define CONTAINERS                                                                                 \
    ",\"containers\":[{\"name\":\"app\",\"image\":\"ghcr.io:443/org/shop:1.2@sha256:ab\"},"        \
    "{\"name\":\"proxy\",\"image\":\"envoy\"}]"
#define STATUSES                                                                                   \
    ",\"containerStatuses\":[{\"name\":\"app\",\"containerID\":\"containerd://c1\"},"              \
    "{\"name\":\"proxy\",\"containerID\":\"containerd://c2\"}]"

static struct k8s_object *read_object(const struct k8s_rules *rules, const json_t *json,
                                      bool deleted)
{
    struct k8s_object *object;
    assert_int_equal(k8s_object_read(rules, json, deleted, &object), 0);
    return object;
}

/* Reads an object, and returns its attributes as "key=value" in lines. */
static const char *attributes_of_kind(enum k8s_kind kind, const char *yaml, const char *json)
{
    static char text[4096];
    struct br_str out = {.data = text, .cap = sizeof text, .fixed = true};
    struct br_arena arena = {0};
    struct k8s_rules rules = {0};
    json_t *object = json_loads(json, 0, NULL);
    text[0] = '\0';
    assert_non_null(object);
    const struct k8s_config *config = rig_config(&br_k8s_attributes_processor, yaml, &arena);
    assert_int_equal(k8s_rules_init(&rules, config, kind), 0);
    struct k8s_object *pod = read_object(&rules, object, false);
    for (uint32_t i = 0; i < pod->n_attributes; i++)
        br_str_printf(&out, "%s=%s\n", k8s_object_text(pod, pod->attributes[i].key),
                      k8s_object_text(pod, pod->attributes[i].value));
    for (uint32_t i = 0; i < pod->n_containers; i++)
        br_str_printf(&out, "%s: %s %s %s\n", k8s_object_text(pod, pod->containers[i].name),
                      k8s_object_text(pod, pod->containers[i].image),
                      k8s_object_text(pod, pod->containers[i].tag),
                      k8s_object_text(pod, pod->containers[i].id));
    br_free(pod);
    k8s_rules_release(&rules);
    json_decref(object);
    br_arena_release(&arena);
    return text;
}

static const char *attributes_of(const char *yaml, const char *json)
{
    return attributes_of_kind(K8S_POD, yaml, json);
}

#define BASE                                                                                       \
    "k8s.namespace.name=ns\nk8s.pod.name=web-5d4f8c7b9-x\nk8s.pod.uid=u1\n"                        \
    "k8s.pod.start_time=2026-01-02T03:04:05Z\nk8s.node.name=node-1\n"

static void pods_have_attributes(void **state)
{
    (void)state;
    static const char deployed[] = POD("web-5d4f8c7b9-x", "u1", "10.0.0.1",
                                       ",\"labels\":{\"pod-template-hash\":\"5d4f8c7b9\"}" OWNER(
                                           "ReplicaSet", "web-5d4f8c7b9", "r1"),
                                       CONTAINERS, STATUSES);
    assert_string_equal(attributes_of("{}", deployed),
                        BASE "k8s.deployment.name=web\napp: ghcr.io:443/org/shop 1.2 c1\n"
                             "proxy: envoy latest c2\n");
    /* a ReplicaSet without a deployment */
    assert_string_equal(
        attributes_of(
            "extract: {metadata: [k8s.deployment.name, k8s.replicaset.name, "
            "k8s.replicaset.uid, k8s.pod.ip, service.namespace]}",
            POD("p", "u1", "10.0.0.1", OWNER("ReplicaSet", "web-5d4f8c7b9", "r1"), "", "")),
        "service.namespace=ns\nk8s.pod.ip=10.0.0.1\nk8s.replicaset.name=web-5d4f8c7b9\n"
        "k8s.replicaset.uid=r1\n");
    assert_string_equal(
        attributes_of("extract: {metadata: [k8s.job.name, k8s.cronjob.name, k8s.statefulset.name]}",
                      POD("p", "u1", "10.0.0.1", OWNER("Job", "report-29455864", "j1"), "", "")),
        "k8s.job.name=report-29455864\nk8s.cronjob.name=report\n");
    /* the digits are not the time at which the pod was created, so no CronJob made the Job */
    assert_string_equal(
        attributes_of("extract: {metadata: [k8s.job.name, k8s.cronjob.name]}",
                      POD("p", "u1", "10.0.0.1", OWNER("Job", "report-20260102", "j1"), "", "")),
        "k8s.job.name=report-20260102\n");
    assert_string_equal(
        attributes_of("extract: {metadata: [k8s.statefulset.name, k8s.statefulset.uid, "
                      "k8s.pod.hostname]}",
                      POD("db-0", "u1", "10.0.0.1", OWNER("StatefulSet", "db", "s1"),
                          ",\"hostname\":\"db-0\"", "")),
        "k8s.pod.hostname=db-0\nk8s.statefulset.name=db\nk8s.statefulset.uid=s1\n");
}

/* Source: opentelemetry.io/docs/specs/semconv/non-normative/k8s-attributes, "How service.name
 * should be calculated". */
static void names_of_services(void **state)
{
    (void)state;
    static const char yaml[] =
        "extract: {metadata: [service.name, service.version], otel_annotations: true}";
    static const struct {
        const char *pod, *attributes;
    } cases[] = {
        {PLAIN("p", "u1", "10.0.0.1"), "service.name=p\n"},
        {POD("p", "u1", "10.0.0.1", OWNER("ReplicaSet", "web-5d4", "r1"), "", ""),
         "service.name=web-5d4\n"},
        {POD("p", "u1", "10.0.0.1",
             ",\"labels\":{\"pod-template-hash\":\"5d4\"}" OWNER("ReplicaSet", "web-5d4", "r1"), "",
             ""),
         "service.name=web\n"},
        {POD("p", "u1", "10.0.0.1", OWNER("DaemonSet", "agent", "d1"), "", ""),
         "service.name=agent\n"},
        {POD("p", "u1", "10.0.0.1", OWNER("Job", "report-29455864", "j1"), "", ""),
         "service.name=report\n"},
        {POD("p", "u1", "10.0.0.1",
             ",\"labels\":{\"app.kubernetes.io/name\":\"shop\",\"app.kubernetes.io/"
             "version\":\"7\"}" OWNER("DaemonSet", "agent", "d1"),
             "", ""),
         "service.name=shop\nservice.version=7\n"},
        {POD("p", "u1", "10.0.0.1",
             ",\"labels\":{\"app.kubernetes.io/name\":\"shop\",\"app.kubernetes.io/instance\":"
             "\"shop-eu\"}",
             "", ""),
         "service.name=shop-eu\n"},
        {POD("p", "u1", "10.0.0.1",
             ",\"labels\":{\"app.kubernetes.io/name\":\"shop\"},\"annotations\":{"
             "\"resource.opentelemetry.io/service.name\":\"cart\"}",
             "", ""),
         "service.name=cart\n"},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++)
        assert_string_equal(attributes_of(yaml, cases[i].pod), cases[i].attributes);
}

#define META(name, uid, more) "{\"metadata\":{\"name\":\"" name "\",\"uid\":\"" uid "\"" more "}}"
#define CONTROLLER(kind, name, uid, controller)                                                    \
    ",\"ownerReferences\":[{\"kind\":\"" kind "\",\"name\":\"" name "\",\"uid\":\"" uid            \
    "\",\"controller\":" controller "}]"

static void other_objects_have_attributes(void **state)
{
    (void)state;
    static const char labels[] = ",\"labels\":{\"team\":\"blue\"},\"annotations\":{\"cost\":\"7\"}";
    static const struct {
        enum k8s_kind kind;
        const char *yaml, *attributes;
    } cases[] = {
        {K8S_NAMESPACE,
         "extract: {labels: [{key: team, from: namespace}, {key: team, from: node}], annotations: "
         "[{key: cost, from: namespace, tag_name: cost}]}",
         "k8s.namespace.labels.team=blue\ncost=7\n"},
        {K8S_NODE,
         "extract: {metadata: [k8s.node.uid], labels: [{key_regex: '(.*)', from: node, tag_name: "
         "'node.$1'}], annotations: [{key: cost, from: node}]}",
         "k8s.node.uid=u1\nnode.team=blue\nk8s.node.annotations.cost=7\n"},
        {K8S_DEPLOYMENT,
         "extract: {labels: [{key: team, from: deployment}, {key: team}], annotations: [{key: "
         "cost, "
         "from: deployment}]}",
         "k8s.deployment.label.team=blue\nk8s.deployment.annotation.cost=7\n"},
        {K8S_CRONJOB, "extract: {labels: [{key: team, from: cronjob}]}",
         "k8s.cronjob.label.team=blue\n"},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        char json[512];
        (void)snprintf(json, sizeof json, META("n", "u1", "%s"), labels);
        assert_string_equal(attributes_of_kind(cases[i].kind, cases[i].yaml, json),
                            cases[i].attributes);
    }
    assert_string_equal(
        attributes_of_kind(K8S_REPLICASET,
                           "extract: {metadata: [k8s.deployment.name, k8s.deployment.uid]}",
                           META("web-5d4", "r1", CONTROLLER("Deployment", "web", "d1", "true"))),
        "k8s.deployment.name=web\nk8s.deployment.uid=d1\n");
    assert_string_equal(
        attributes_of_kind(K8S_REPLICASET, "extract: {metadata: [k8s.deployment.uid]}",
                           META("web-5d4", "r1", CONTROLLER("Deployment", "web", "d1", "false"))),
        "");
    assert_string_equal(
        attributes_of_kind(K8S_JOB, "extract: {metadata: [k8s.cronjob.name, k8s.cronjob.uid]}",
                           META("report-1", "j1", CONTROLLER("CronJob", "report", "c1", "true"))),
        "k8s.cronjob.name=report\nk8s.cronjob.uid=c1\n");
}

static void labels_and_annotations(void **state)
{
    (void)state;
    static const char json[] =
        POD("p", "u1", "10.0.0.1",
            ",\"labels\":{\"team\":\"blue\",\"app.kubernetes.io/component\":\"mysql\"},"
            "\"annotations\":{\"resource.opentelemetry.io/service.name\":\"shop\",\"commit\":"
            "\"abc\"}",
            "", "");
    assert_string_equal(attributes_of("extract: {metadata: [k8s.pod.name], labels: [{key: team}, "
                                      "{key: team, tag_name: t, from: pod}, {key: none}], "
                                      "annotations: [{key: commit}]}",
                                      json),
                        "k8s.pod.name=p\nk8s.pod.labels.team=blue\nt=blue\n"
                        "k8s.pod.annotations.commit=abc\n");
    assert_string_equal(
        attributes_of("extract: {metadata: [k8s.pod.name], labels: [{key_regex: "
                      "'app.kubernetes.io/(.*)', tag_name: 'x.${1}'}], otel_annotations: true}",
                      json),
        "k8s.pod.name=p\nx.component=mysql\nservice.name=shop\n");
    assert_string_equal(attributes_of("extract: {metadata: [k8s.pod.name], labels: [{key_regex: "
                                      "'te.*'}]}",
                                      json),
                        "k8s.pod.name=p\nk8s.pod.labels.team=blue\n");
}

/* --- The watch -------------------------------------------------------------------------------- */

struct bed {
    struct node_rig rig;
    struct k8s_table *table;
    struct k8s_watches *watches;
    const char *paths[16], *bodies[16]; /* expected requests and their answers, in order */
    unsigned statuses[16];
    const char *accept; /* value of the header accept in the last request, or NULL */
    unsigned n, next;
    size_t max_bytes; /* largest size of the table; 0: unlimited */
};

#define TOO_LARGE 1 /* in place of a status: the answer is larger than the client accepts */

static struct fake_answer on_exchange(const struct br_exchange *x, void *arg)
{
    struct bed *b = arg;
    if (b->next == b->n)
        return (struct fake_answer){.never = true};
    unsigned i = b->next++;
    assert_string_equal(x->path, b->paths[i]);
    b->accept = NULL;
    for (size_t k = 0; k < x->n_headers; k++)
        if (strcmp(x->headers[k].name, "accept") == 0)
            b->accept = x->headers[k].value;
    if (b->statuses[i] == TOO_LARGE)
        return (struct fake_answer){.error = BR_EFULL};
    return (struct fake_answer){.http_status = b->statuses[i],
                                .body = b->bodies[i],
                                .len = b->bodies[i] ? strlen(b->bodies[i]) : 0};
}

static void expect_request(struct bed *b, const char *path, unsigned status, const char *body)
{
    b->paths[b->n] = path;
    b->statuses[b->n] = status;
    b->bodies[b->n++] = body;
}

static void bed_start(struct bed *b, const char *yaml)
{
    struct br_err err = {0};
    (void)setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
    (void)setenv("KUBERNETES_SERVICE_PORT", "443", 1);
    node_rig_begin(&b->rig, &br_k8s_attributes_processor, yaml);
    b->rig.h->answer = on_exchange;
    b->rig.h->answer_arg = b;
    b->table = k8s_table_new(b->rig.node.config, b->max_bytes ? b->max_bytes : SIZE_MAX);
    assert_non_null(b->table);
    if (k8s_watches_new(&b->rig.node, b->rig.node.config, b->table, &b->watches, &err))
        fail_msg("%s", err.text);
}

static void bed_end(struct bed *b)
{
    k8s_watches_free(b->watches);
    k8s_table_free(b->table);
    node_rig_end(&b->rig);
    (void)unsetenv("KUBERNETES_SERVICE_HOST");
    (void)unsetenv("KUBERNETES_SERVICE_PORT");
}

/* Returns the name of the pod with an identifier of two values at most, or "". */
static const char *pod_by(struct bed *b, int association, const char *value, const char *second)
{
    static char name[64];
    struct k8s_id id;
    k8s_id_begin(&id, association);
    k8s_id_add(&id, value, strlen(value));
    if (second)
        k8s_id_add(&id, second, strlen(second));
    k8s_table_lock(b->table);
    const struct k8s_object *pod = k8s_table_find_pod(b->table, &id);
    (void)snprintf(name, sizeof name, "%s", pod ? k8s_object_text(pod, pod->name) : "");
    k8s_table_unlock(b->table);
    return name;
}

/* Returns the value of an attribute of an object, or "". */
static const char *value_of(struct bed *b, enum k8s_kind kind, const char *key, const char *name)
{
    static char text[64];
    k8s_table_lock(b->table);
    const struct k8s_object *object = k8s_table_find(b->table, kind, key, strlen(key));
    const char *value = object ? k8s_object_attribute(object, name) : NULL;
    (void)snprintf(text, sizeof text, "%s", value ? value : "");
    k8s_table_unlock(b->table);
    return text;
}

#define LIST(version, more, pods)                                                                  \
    "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"" version "\"" more                 \
    "},\"items\":[" pods "]}"
#define EVENT(type, object) "{\"type\":\"" type "\",\"object\":" object "}\n"
#define WATCH(version)                                                                             \
    "/api/v1/pods?watch=1&allowWatchBookmarks=true&timeoutSeconds=5&resourceVersion=" version

static void pods_are_listed_and_watched(void **state)
{
    (void)state;
    struct bed b = {0};
    expect_request(&b, "/api/v1/pods?limit=250", 0,
                   LIST("5", ",\"continue\":\"next=\"", PLAIN("a", "u1", "10.0.0.1")));
    expect_request(&b, "/api/v1/pods?limit=250&continue=next%3D", 0,
                   LIST("5", "",
                        PLAIN("b", "u2", "10.0.0.2") "," POD("host", "u3", "10.0.0.9", "",
                                                             ",\"hostNetwork\":true", "")));
    expect_request(&b, WATCH("5"), 0,
                   EVENT("ADDED", PLAIN("c", "u4", "10.0.0.3"))
                       EVENT("DELETED", PLAIN("a", "u1", "10.0.0.1"))
                           EVENT("MODIFIED", PLAIN("b", "u2", "10.0.0.4"))
                               EVENT("BOOKMARK", "{\"metadata\":{\"resourceVersion\":\"9\"}}"));
    expect_request(&b, WATCH("9"), 0, NULL);
    expect_request(&b, WATCH("9"), 410, NULL);
    expect_request(&b, "/api/v1/pods?limit=250", 0, LIST("20", "", PLAIN("b", "u2", "10.0.0.4")));
    bed_start(&b, "{auth_type: none, pod_delete_grace_period: 2m}");
    fake_host_advance(b.rig.h, 10);
    assert_true(atomic_load(&b.table->is_complete));
    assert_string_equal(pod_by(&b, -1, "10.0.0.1", NULL), "a");
    assert_string_equal(pod_by(&b, -1, "10.0.0.2", NULL), "b");
    /* the address of the node is not the address of a pod */
    assert_string_equal(pod_by(&b, -1, "10.0.0.9", NULL), "");
    fake_host_advance(b.rig.h, 200);
    assert_string_equal(pod_by(&b, -1, "10.0.0.3", NULL), "c");
    assert_string_equal(pod_by(&b, -1, "10.0.0.4", NULL), "b");
    assert_string_equal(pod_by(&b, -1, "10.0.0.2", NULL), "");
    /* the deleted pod is still known during its grace period */
    assert_string_equal(pod_by(&b, -1, "10.0.0.1", NULL), "a");
    fake_host_advance(b.rig.h, 5000);
    assert_int_equal(b.next, b.n);
    bed_end(&b);
}

static void filters_and_associations(void **state)
{
    (void)state;
    struct bed b = {0};
    expect_request(&b,
                   "/api/v1/namespaces/shop/pods?limit=250&fieldSelector=status.phase%21%3DFailed"
                   "%2Cspec.nodeName%3Dnode-1&labelSelector=app%3Dweb%2C%21canary",
                   0,
                   LIST("5", "",
                        POD("a", "u1", "10.0.0.1", "", CONTAINERS,
                            STATUSES) "," PLAIN("jaeger-agent-1", "u2", "10.0.0.2")));
    bed_start(&b, "{auth_type: none, filter: {namespace: shop, node: node-1, labels: [{key: app, "
                  "value: web}, {key: canary, op: does-not-exist}], fields: [{key: status.phase, "
                  "value: Failed, op: not-equals}]}, pod_association: [{sources: [{from: "
                  "resource_attribute, name: k8s.pod.name}, {from: resource_attribute, name: "
                  "k8s.namespace.name}]}, {sources: [{from: resource_attribute, name: "
                  "container.id}]}, {sources: [{from: connection}]}]}");
    fake_host_advance(b.rig.h, 10);
    assert_string_equal(pod_by(&b, 0, "a", "ns"), "a");
    assert_string_equal(pod_by(&b, 0, "a", "other"), "");
    assert_string_equal(pod_by(&b, 1, "c2", NULL), "a");
    assert_string_equal(pod_by(&b, 2, "10.0.0.1", NULL), "a");
    /* the pod is ignored because of its name */
    assert_string_equal(pod_by(&b, 2, "10.0.0.2", NULL), "");
    bed_end(&b);
}

/* Each kind is listed and watched on its own, and the API is asked for the metadata only. */
static void other_objects_are_listed_and_watched(void **state)
{
    (void)state;
    static const char *const of_lists =
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
    static const char *const of_events =
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
    struct bed b = {0};
    expect_request(&b, "/api/v1/pods?limit=250&fieldSelector=spec.nodeName%3Dnode-1", 0,
                   LIST("5", "", PLAIN("a", "u1", "10.0.0.1")));
    expect_request(&b, "/api/v1/namespaces?limit=250", 403, NULL);
    expect_request(&b, "/api/v1/nodes?limit=250&fieldSelector=metadata.name%3Dnode-1", 0,
                   LIST("6", "", META("node-1", "n1", ",\"labels\":{\"zone\":\"a\"}")));
    bed_start(&b, "{auth_type: none, filter: {node: node-1, labels: []}, extract: {labels: [{key: "
                  "team, from: namespace}, {key: zone, from: node}]}}");
    fake_host_advance(b.rig.h, 0);
    assert_int_equal(b.next, 3);
    assert_string_equal(b.accept, of_lists);
    assert_string_equal(value_of(&b, K8S_NODE, "node-1", "k8s.node.labels.zone"), "a");
    assert_false(atomic_load(&b.table->is_complete));
    /* the watches of pods and nodes continue; then the list of namespaces is repeated */
    expect_request(&b, WATCH("5") "&fieldSelector=spec.nodeName%3Dnode-1", 0, NULL);
    expect_request(&b,
                   "/api/v1/nodes?watch=1&allowWatchBookmarks=true&timeoutSeconds=5"
                   "&resourceVersion=6&fieldSelector=metadata.name%3Dnode-1",
                   0, EVENT("MODIFIED", META("node-1", "n1", ",\"labels\":{\"zone\":\"b\"}")));
    fake_host_advance(b.rig.h, 100);
    assert_int_equal(b.next, 5);
    assert_string_equal(b.accept, of_events);
    assert_string_equal(value_of(&b, K8S_NODE, "node-1", "k8s.node.labels.zone"), "b");
    bed_end(&b);
}

/* The object that has been deleted and made again has the same name and another uid. */
static void objects_are_deleted_by_uid(void **state)
{
    (void)state;
    struct bed b = {0};
    const char *yaml = "{auth_type: none, filter: {namespace: shop}, pod_delete_grace_period: 1s, "
                       "extract: {metadata: [k8s.cluster.uid]}}";
    expect_request(&b, "/api/v1/namespaces/shop/pods?limit=250", 0, LIST("5", "", ""));
    expect_request(&b, "/api/v1/namespaces?limit=250&fieldSelector=metadata.name%3Dkube-system", 0,
                   LIST("5", "", META("kube-system", "c2", "")));
    bed_start(&b, yaml);
    fake_host_advance(b.rig.h, 0);
    struct k8s_rules rules = {0};
    assert_int_equal(k8s_rules_init(&rules, b.rig.node.config, K8S_NAMESPACE), 0);
    json_t *json = json_loads(META("kube-system", "c1", ""), 0, NULL);
    struct k8s_object *object = read_object(&rules, json, true);
    k8s_table_delete(b.table, object, 1);
    k8s_table_sweep(b.table, K8S_NAMESPACE, 2);
    assert_int_equal(k8s_table_count(b.table, K8S_NAMESPACE), 1);
    br_free(object);
    json_decref(json);
    json = json_loads(META("kube-system", "c2", ""), 0, NULL);
    object = read_object(&rules, json, true);
    k8s_table_delete(b.table, object, 1);
    k8s_table_sweep(b.table, K8S_NAMESPACE, 2);
    assert_int_equal(k8s_table_count(b.table, K8S_NAMESPACE), 0);
    br_free(object);
    json_decref(json);
    k8s_rules_release(&rules);
    bed_end(&b);
}

/* The table has room for two of three pods, which have the same size. */
static void full_tables(void **state)
{
    (void)state;
    struct bed b = {0};
    const char *yaml = "{auth_type: none, pod_delete_grace_period: 10ms}";
    expect_request(&b, "/api/v1/pods?limit=250", 0, LIST("5", "", PLAIN("a", "u1", "10.0.0.1")));
    bed_start(&b, yaml);
    fake_host_advance(b.rig.h, 0);
    size_t size = b.table->bytes;
    bed_end(&b);

    b = (struct bed){.max_bytes = 2 * size + size / 2};
    expect_request(&b, "/api/v1/pods?limit=250", 0,
                   LIST("5", "",
                        PLAIN("a", "u1", "10.0.0.1") "," PLAIN("b", "u2", "10.0.0.2") "," PLAIN(
                            "c", "u3", "10.0.0.3")));
    expect_request(&b, WATCH("5"), 0, EVENT("DELETED", PLAIN("a", "u1", "10.0.0.1")));
    expect_request(&b, WATCH("5"), 0, NULL);
    expect_request(&b, WATCH("5"), 0, EVENT("MODIFIED", PLAIN("c", "u3", "10.0.0.3")));
    bed_start(&b, yaml);
    fake_host_advance(b.rig.h, 0);
    assert_int_equal(k8s_table_count(b.table, K8S_POD), 2);
    assert_int_equal(b.table->bytes, 2 * size);
    assert_string_equal(pod_by(&b, -1, "10.0.0.1", NULL), "a");
    assert_string_equal(pod_by(&b, -1, "10.0.0.3", NULL), "");
    const char *labels = "processor=\"k8s_attributes\",resource=\"pods\"";
    assert_true(fake_host_metric(b.rig.h, "braid_k8s_attributes_ignored_objects", labels) == 1);
    assert_true(fake_host_metric(b.rig.h, "braid_k8s_attributes_objects", labels) == 2);
    /* the deleted pod makes room for a pod that changes */
    fake_host_advance(b.rig.h, 400);
    assert_int_equal(b.next, b.n);
    assert_string_equal(pod_by(&b, -1, "10.0.0.1", NULL), "");
    assert_string_equal(pod_by(&b, -1, "10.0.0.3", NULL), "c");
    assert_int_equal(b.table->bytes, 2 * size);
    bed_end(&b);
}

/* An ERROR event with the code 410 starts a new list; with another code, that list is delayed like
 * after a failure. */
static void errors_of_watches(void **state)
{
    (void)state;
    static const char *const codes[] = {"410", "500"};
    for (size_t i = 0; i < BR_COUNT(codes); i++) {
        struct bed b = {0};
        char event[256];
        (void)snprintf(event, sizeof event,
                       EVENT("ERROR", "{\"kind\":\"Status\",\"status\":\"Failure\",\"code\":%s}"),
                       codes[i]);
        expect_request(&b, "/api/v1/pods?limit=250", 0,
                       LIST("5", "", PLAIN("a", "u1", "10.0.0.1")));
        expect_request(&b, WATCH("5"), 0, event);
        expect_request(&b, "/api/v1/pods?limit=250", 0,
                       LIST("7", "", PLAIN("b", "u2", "10.0.0.2")));
        bed_start(&b, "auth_type: none");
        fake_host_advance(b.rig.h, 200);
        assert_int_equal(b.next, 2);
        fake_host_advance(b.rig.h, 1000);
        assert_int_equal(b.next, 3);
        assert_string_equal(pod_by(&b, -1, "10.0.0.2", NULL), "b");
        bed_end(&b);
    }
}

/* A list request then asks for half of the objects, and a watch is replaced by a list. */
static void answers_that_are_too_large(void **state)
{
    (void)state;
    struct bed b = {0};
    expect_request(&b, "/api/v1/pods?limit=250", TOO_LARGE, NULL);
    expect_request(&b, "/api/v1/pods?limit=125", TOO_LARGE, NULL);
    expect_request(&b, "/api/v1/pods?limit=62", 0, LIST("5", "", PLAIN("a", "u1", "10.0.0.1")));
    expect_request(&b, WATCH("5"), TOO_LARGE, NULL);
    expect_request(&b, "/api/v1/pods?limit=62", 0, LIST("9", "", PLAIN("b", "u2", "10.0.0.2")));
    bed_start(&b, "auth_type: none");
    fake_host_advance(b.rig.h, 10);
    fake_host_advance(b.rig.h, 1000);
    fake_host_advance(b.rig.h, 2000);
    assert_string_equal(pod_by(&b, -1, "10.0.0.1", NULL), "a");
    fake_host_advance(b.rig.h, 200);
    fake_host_advance(b.rig.h, 1000);
    assert_int_equal(b.next, b.n);
    assert_string_equal(pod_by(&b, -1, "10.0.0.2", NULL), "b");
    bed_end(&b);
}

/* A pod with a label longer than K8S_TEXTS_MAX is counted as ignored. Its deletion is not. */
static void objects_that_are_too_large(void **state)
{
    (void)state;
    struct bed b = {0};
    struct br_str label = {0}, changed = {0}, deleted = {0};
    for (unsigned i = 0; i <= K8S_TEXTS_MAX; i++)
        br_str_putc(&label, 'x');
    static const char event[] =
        "{\"type\":\"%s\",\"object\":{\"metadata\":{\"name\":\"a\","
        "\"namespace\":\"ns\",\"uid\":\"u1\",\"labels\":{\"l\":\"%s\"}}}}\n";
    br_str_printf(&changed, event, "MODIFIED", label.data);
    br_str_printf(&deleted, event, "DELETED", label.data);
    assert_false(label.failed || changed.failed || deleted.failed);
    expect_request(&b, "/api/v1/pods?limit=250", 0, LIST("5", "", PLAIN("a", "u1", "10.0.0.1")));
    expect_request(&b, WATCH("5"), 0, changed.data);
    expect_request(&b, WATCH("5"), 0, deleted.data);
    expect_request(&b, WATCH("5"), 0, NULL);
    bed_start(&b,
              "{auth_type: none, pod_delete_grace_period: 10ms, extract: {labels: [{key: l}]}}");
    fake_host_advance(b.rig.h, 110);
    const char *labels = "processor=\"k8s_attributes\",resource=\"pods\"";
    assert_true(fake_host_metric(b.rig.h, "braid_k8s_attributes_ignored_objects", labels) == 1);
    assert_string_equal(pod_by(&b, -1, "10.0.0.1", NULL), "a");
    fake_host_advance(b.rig.h, 300);
    assert_int_equal(b.next, b.n);
    assert_true(fake_host_metric(b.rig.h, "braid_k8s_attributes_ignored_objects", labels) == 1);
    fake_host_advance(b.rig.h, 300);
    assert_string_equal(pod_by(&b, -1, "10.0.0.1", NULL), "");
    bed_end(&b);
    br_str_release(&label);
    br_str_release(&changed);
    br_str_release(&deleted);
}

static void unset_variables(void **state)
{
    (void)state;
    struct k8s_watches *watches = NULL;
    struct node_rig rig;
    struct br_err err = {0};
    (void)unsetenv("BRAID_TEST_NODE");
    node_rig_begin(&rig, &br_k8s_attributes_processor,
                   "filter: {node_from_env_var: BRAID_TEST_NODE}");
    struct k8s_table *table = k8s_table_new(rig.node.config, SIZE_MAX);
    assert_int_equal(k8s_watches_new(&rig.node, rig.node.config, table, &watches, &err), BR_EINVAL);
    assert_non_null(strstr(err.text, "BRAID_TEST_NODE is not set"));
    k8s_table_free(table);
    node_rig_end(&rig);
}

static void failures_are_repeated(void **state)
{
    (void)state;
    struct bed b = {0};
    expect_request(&b, "/api/v1/pods?limit=250", 500, NULL);
    expect_request(&b, "/api/v1/pods?limit=250", 0, "no JSON");
    expect_request(&b, "/api/v1/pods?limit=250", 0, LIST("5", "", PLAIN("a", "u1", "10.0.0.1")));
    bed_start(&b, "auth_type: none");
    fake_host_advance(b.rig.h, 10);
    assert_int_equal(b.next, 1);
    fake_host_advance(b.rig.h, 1000);
    assert_int_equal(b.next, 2);
    fake_host_advance(b.rig.h, 2000);
    assert_string_equal(pod_by(&b, -1, "10.0.0.1", NULL), "a");
    fake_host_advance(b.rig.h, 61000); /* a watch that never ends is repeated */
    bed_end(&b);
}

/* --- Resources -------------------------------------------------------------------------------- */

/* An object of the Kubernetes API; the last element of a list has no JSON. */
struct thing {
    enum k8s_kind kind;
    const char *json;
};

static void put_thing(struct k8s_table *table, const struct k8s_config *config,
                      const struct thing *thing)
{
    struct k8s_rules rules = {0};
    json_t *json = json_loads(thing->json, 0, NULL);
    assert_non_null(json);
    assert_int_equal(k8s_rules_init(&rules, config, thing->kind), 0);
    struct k8s_object *object = read_object(&rules, json, false);
    assert_int_equal(k8s_table_put(table, object), 0);
    k8s_rules_release(&rules);
    json_decref(json);
}

static void put_any(struct br_str *out, struct br_any any)
{
    struct br_value element;
    if (any.type == BR_VALUE_INT)
        br_str_printf(out, "%lld", (long long)any.number);
    else if (any.type == BR_VALUE_STRING)
        br_str_add(out, any.data, any.len);
    else if (any.type == BR_VALUE_LIST && br_value_next(any.data, any.data + any.len, &element)) {
        br_str_putc(out, '[');
        put_any(out, br_any_read(element));
        br_str_putc(out, ']');
    }
}

/* Adds the attributes of a cluster with these objects to a resource. The resource and the result
 * are "key=value" in lines; a value that is a number is an int. */
static const char *enriched(const struct thing *things, const char *yaml, const char *client,
                            const char *resource)
{
    static char text[4096];
    struct br_str out = {.data = text, .cap = sizeof text, .fixed = true};
    struct br_arena arena;
    struct br_attributes list = {.arena = &arena};
    br_arena_init(&arena, 0);
    const struct k8s_config *config = rig_config(&br_k8s_attributes_processor, yaml, &arena);
    struct k8s_table *table = k8s_table_new(config, SIZE_MAX);
    for (const struct thing *thing = things; thing->json; thing++)
        if (config->reads[thing->kind])
            put_thing(table, config, thing);
    assert_true(br_attributes_read(&list, BR_RESOURCE_ATTRIBUTES, NULL, 0));
    for (const char *p = resource; *p; p += strcspn(p, "\n") + 1) {
        size_t key_len = strcspn(p, "="), len = strcspn(p + key_len + 1, "\n");
        struct br_value value;
        assert_true(br_value_string(p + key_len + 1, len, &arena, &value));
        if (strspn(p + key_len + 1, "0123456789") == len)
            assert_true(br_value_convert(value, BR_VALUE_INT, &arena, &value));
        br_attributes_put(&list, p, key_len, value);
    }
    text[0] = '\0';
    (void)k8s_enrich(table, config, client, &list);
    for (uint32_t i = 0; i < list.count; i++) {
        br_str_printf(&out, "%.*s=", (int)list.pieces[i].key_len, (const char *)list.pieces[i].key);
        put_any(&out, br_any_read(list.pieces[i].value));
        br_str_putc(&out, '\n');
    }
    br_attributes_release(&list);
    k8s_table_free(table);
    br_arena_release(&arena);
    return text;
}

#define DIGEST "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define LABELLED(name, uid, team, more)                                                            \
    META(name, uid, ",\"labels\":{\"team\":\"" team "\",\"kind\":\"" name "\"}" more)

/* A pod of a deployment, one of a CronJob, and the objects to which they belong. */
static const struct thing things[] = {
    {K8S_POD,
     POD("web-5d4-x", "u1", "10.0.0.1",
         ",\"labels\":{\"pod-template-hash\":\"5d4\"}" OWNER("ReplicaSet", "web-5d4", "r1"),
         ",\"containers\":[{\"name\":\"app\",\"image\":\"shop/web:1.2@" DIGEST
         "\"},{\"name\":\"proxy\",\"image\":\"envoy\"}]",
         ",\"containerStatuses\":[{\"name\":\"app\",\"containerID\":\"containerd://c1\","
         "\"restartCount\":2,\"imageID\":\"shop/web@" DIGEST
         "\"},{\"name\":\"proxy\",\"containerID\":\"containerd://c2\",\"restartCount\":0,"
         "\"imageID\":\"registry:5000/envoy@" DIGEST "\"}]")},
    {K8S_POD, POD("report-1-y", "u2", "10.0.0.2", OWNER("Job", "report-1", "j1"), "", "")},
    {K8S_POD, POD("agent-z", "u3", "10.0.0.3", OWNER("DaemonSet", "agent", "d1"), "", "")},
    {K8S_NAMESPACE, LABELLED("ns", "n1", "blue", ",\"annotations\":{\"cost\":\"7\"}")},
    {K8S_NAMESPACE, META("kube-system", "cluster-1", "")},
    {K8S_NODE, LABELLED("node-1", "node-uid", "red", "")},
    {K8S_REPLICASET,
     LABELLED("web-5d4", "r1", "rs", CONTROLLER("Deployment", "web-long", "dep1", "true"))},
    {K8S_DEPLOYMENT, LABELLED("web-long", "dep1", "green", "")},
    {K8S_DAEMONSET, LABELLED("agent", "d1", "ds", "")},
    {K8S_JOB, LABELLED("report-1", "j1", "job", CONTROLLER("CronJob", "report", "cj1", "true"))},
    {K8S_CRONJOB, LABELLED("report", "cj1", "cron", "")},
    {.json = NULL},
};

/* The names of attributes and the order of precedence are those of the Collector's processor. */
static void objects_of_resources(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *client, *resource, *expected;
    } cases[] = {
        /* namespace and node of the pod */
        {"extract: {metadata: [k8s.pod.name, k8s.node.uid, k8s.cluster.uid], labels: [{key: team, "
         "from: namespace}, {key: team, from: node, tag_name: node.team}], annotations: [{key: "
         "cost, "
         "from: namespace}]}",
         "10.0.0.1", "",
         "k8s.pod.name=web-5d4-x\nk8s.cluster.uid=cluster-1\nk8s.namespace.labels.team=blue\n"
         "k8s.namespace.annotations.cost=7\nk8s.node.uid=node-uid\nnode.team=red\n"},
        /* the pod is unknown, but its namespace and node are named */
        {"extract: {metadata: [k8s.pod.name, k8s.node.uid, service.namespace], labels: [{key: "
         "team, "
         "from: namespace}]}",
         "10.0.0.9", "k8s.namespace.name=ns\nk8s.node.name=node-1\n",
         "k8s.namespace.name=ns\nk8s.node.name=node-1\nk8s.namespace.labels.team=blue\n"
         "service.namespace=ns\nk8s.node.uid=node-uid\n"},
        /* by default, the deployment is derived from the name of the ReplicaSet */
        {"extract: {metadata: [k8s.deployment.name]}", "10.0.0.1", "", "k8s.deployment.name=web\n"},
        {"extract: {metadata: [k8s.deployment.name], deployment_name_from_replicaset: false}",
         "10.0.0.1", "", "k8s.deployment.name=web-long\n"},
        {"extract: {metadata: [k8s.deployment.name, k8s.deployment.uid]}", "10.0.0.1", "",
         "k8s.deployment.name=web-long\nk8s.deployment.uid=dep1\n"},
        {"extract: {metadata: [k8s.pod.name], labels: [{key: team, from: deployment}, {key: team, "
         "from: replicaset}, {key: kind, from: deployment, tag_name: kind}, {key: kind, from: "
         "replicaset, tag_name: kind}]}",
         "10.0.0.1", "",
         "k8s.pod.name=web-5d4-x\nk8s.deployment.label.team=green\nkind=web-long\n"
         "k8s.replicaset.label.team=rs\n"},
        {"extract: {metadata: [k8s.cronjob.name, k8s.cronjob.uid], labels: [{key: team, from: "
         "job}, "
         "{key: team, from: cronjob}]}",
         "10.0.0.2", "",
         "k8s.cronjob.name=report\nk8s.cronjob.uid=cj1\nk8s.job.label.team=job\n"
         "k8s.cronjob.label.team=cron\n"},
        {"extract: {metadata: [k8s.daemonset.name], labels: [{key: team, from: daemonset}]}",
         "10.0.0.3", "", "k8s.daemonset.name=agent\nk8s.daemonset.label.team=ds\n"},
        /* an attribute of the resource is kept, and names a deployment without a pod */
        {"extract: {metadata: [k8s.pod.name], labels: [{key: team, from: deployment}]}", "10.0.0.9",
         "k8s.deployment.uid=dep1\n", "k8s.deployment.uid=dep1\nk8s.deployment.label.team=green\n"},
        {"extract: {metadata: [k8s.node.uid]}", "10.0.0.1", "k8s.node.uid=mine\n",
         "k8s.node.uid=mine\n"},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++)
        assert_string_equal(enriched(things, cases[i].yaml, cases[i].client, cases[i].resource),
                            cases[i].expected);
}

#define CONTAINER_YAML                                                                             \
    "extract: {metadata: [k8s.container.name, container.id, container.image.name, "                \
    "container.image.tag, container.image.repo_digests, service.version, service.instance.id]}"

static void containers_of_resources(void **state)
{
    (void)state;
    static const char image[] = "container.image.name=shop/web\ncontainer.image.tag=1.2\n"
                                "service.version=1.2@" DIGEST "\n";
    static const char instance[] = "service.instance.id=ns.web-5d4-x.app\n";
    static const char digest[] = "container.image.repo_digests=[docker.io/shop/web@" DIGEST "]\n";
    static const struct {
        const char *resource, *id;
        bool has_digest;
    } cases[] = {
        {"k8s.container.name=app\n", "container.id=c1\n", true},
        {"k8s.container.name=app\nk8s.container.restart_count=2\n", "container.id=c1\n", true},
        /* an earlier run of the container, whose id is unknown */
        {"k8s.container.name=app\nk8s.container.restart_count=1\n", "", false},
    };
    char expected[1024];
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        (void)snprintf(expected, sizeof expected, "%s%s%s%s%s", cases[i].resource, image,
                       cases[i].id, instance, cases[i].has_digest ? digest : "");
        assert_string_equal(enriched(things, CONTAINER_YAML, "10.0.0.1", cases[i].resource),
                            expected);
    }
    /* the container is named by its id */
    assert_string_equal(enriched(things, CONTAINER_YAML, "10.0.0.1", "container.id=c2\n"),
                        "container.id=c2\nk8s.container.name=proxy\ncontainer.image.name=envoy\n"
                        "container.image.tag=latest\nservice.instance.id=ns.web-5d4-x.proxy\n"
                        "container.image.repo_digests=[registry:5000/envoy@" DIGEST "]\n");
    /* one of two containers is not named */
    assert_string_equal(enriched(things, CONTAINER_YAML, "10.0.0.1", ""), "");
}

/* An object that does not fit into memory is not in the table, and nothing of it is counted. */
static void objects_without_memory(void **state)
{
    (void)state;
    struct br_arena arena = {0};
    struct k8s_rules rules = {0};
    bool failed = true;
    const struct k8s_config *config =
        rig_config(&br_k8s_attributes_processor,
                   "extract: {labels: [{key_regex: '(.*)', tag_name: 'x.$1'}]}", &arena);
    json_t *json = json_loads(things[0].json, 0, NULL);
    assert_int_equal(k8s_rules_init(&rules, config, K8S_POD), 0);
    for (unsigned long n = 1; failed; n++) {
        struct k8s_table *table = k8s_table_new(config, SIZE_MAX);
        fault_nth(n);
        struct k8s_object *object;
        int rc = k8s_object_read(&rules, json, false, &object);
        rc = rc ? rc : k8s_table_put(table, object);
        failed = fault_nth_stop();
        assert_true(failed || rc == 0);
        assert_int_equal(k8s_table_count(table, K8S_POD), rc ? 0 : 1);
        assert_true(rc ? table->bytes == 0 : table->bytes > 0);
        k8s_table_free(table);
    }
    k8s_rules_release(&rules);
    json_decref(json);
    br_arena_release(&arena);
}

/* The kinds that are read are exactly those that the config needs. */
static void kinds_that_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *kinds; /* the plurals, each followed by a blank */
    } cases[] = {
        {"{}", "pods "},
        {"extract: {metadata: [k8s.cronjob.name, k8s.deployment.name, service.name]}", "pods "},
        {"extract: {metadata: [k8s.node.uid]}", "pods nodes "},
        {"extract: {metadata: [k8s.cluster.uid]}", "pods namespaces "},
        {"extract: {metadata: [k8s.deployment.uid]}", "pods replicasets "},
        {"extract: {deployment_name_from_replicaset: false}", "pods replicasets "},
        {"extract: {labels: [{key: a, from: deployment}]}", "pods replicasets deployments "},
        {"extract: {annotations: [{key: a, from: statefulset}]}", "pods statefulsets "},
        {"extract: {metadata: [k8s.cronjob.uid]}", "pods jobs "},
        {"extract: {labels: [{key: a, from: cronjob}]}", "pods jobs cronjobs "},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_arena arena = {0};
        struct br_str kinds = {0};
        const struct k8s_config *config =
            rig_config(&br_k8s_attributes_processor, cases[i].yaml, &arena);
        for (unsigned kind = 0; kind < K8S_KINDS; kind++)
            if (config->reads[kind])
                br_str_printf(&kinds, "%s ", k8s_kinds[kind].plural);
        assert_string_equal(kinds.data, cases[i].kinds);
        br_str_release(&kinds);
        br_arena_release(&arena);
    }
}

/* --- Items ------------------------------------------------------------------------------------ */

#define S(k, v) "{\"key\":\"" k "\",\"value\":{\"stringValue\":\"" v "\"}}"
#define SPANS(attributes)                                                                          \
    "{\"resourceSpans\":[{\"resource\":{\"attributes\":[" attributes                               \
    "]},\"scopeSpans\":[{\"spans\":[{\"name\":\"a\"}]}]}]}"

static void addresses_of_clients(void **state)
{
    (void)state;
    struct rig *r = rig_new(&br_k8s_attributes_processor, "passthrough: true");
    const struct br_strings *keys = br_k8s_attributes_processor.metadata_keys(r->node.config);
    assert_int_equal(keys->count, 1);
    assert_string_equal(keys->items[0], BR_ADDRESS_KEY);
    struct br_item *item = rig_item(r, BR_TRACES, SPANS(S("a", "b")));
    item->metadata = BR_ADDRESS_KEY "\00010.0.0.1\0\0";
    rig_send(r, item);
    assert_string_equal(r->out.data, SPANS(S("a", "b") "," S("k8s.pod.ip", "10.0.0.1")));
    item = rig_item(r, BR_TRACES, SPANS(S("k8s.pod.ip", "10.0.0.2")));
    item->metadata = BR_ADDRESS_KEY "\00010.0.0.1\0\0";
    rig_send(r, item);
    assert_string_equal(r->out.data, SPANS(S("k8s.pod.ip", "10.0.0.2")));
    assert_string_equal(rig_run(r, BR_TRACES, SPANS(S("a", "b"))), SPANS(S("a", "b")));
    rig_free(r);
}

static void no_memory(void **state)
{
    (void)state;
    const struct rig_shortage shortage = {
        .component = &br_k8s_attributes_processor,
        .yaml = "{passthrough: true}",
        .signal = BR_TRACES,
        .json = SPANS(S("a", "b")),
        .expected = SPANS(S("a", "b")),
    };
    (void)rig_run_short(&shortage);
}

static void configs(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"extract: {metadata: [k8s.pod.nam]}",
         "\"k8s.pod.nam\" is not an attribute that this processor sets"},
        {"extract: {labels: [{tag_name: a}]}", "needs either key or key_regex"},
        {"extract: {labels: [{key: a, from: service}]}", "must be one of pod, namespace, node"},
        {"extract: {labels: [{key_regex: '('}]}", "is not a valid regular expression"},
        {"pod_association: [{sources: []}]", "must have 1 to 4 sources"},
        {"pod_association: [{sources: [{from: resource_attribute}]}]", "needs a name"},
        {"filter: {fields: [{key: a, op: exists}]}", "op must be equals or not-equals, got exists"},
        {"auth_type: kubeConfig", "must be one of none, serviceAccount"},
    };
    rig_expect_errors_in(&br_k8s_attributes_processor, cases, BR_COUNT(cases));
}

SUITE(k8s_attributes)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(pods_have_attributes),
        cmocka_unit_test(names_of_services),
        cmocka_unit_test(other_objects_have_attributes),
        cmocka_unit_test(labels_and_annotations),
        cmocka_unit_test(pods_are_listed_and_watched),
        cmocka_unit_test(filters_and_associations),
        cmocka_unit_test(other_objects_are_listed_and_watched),
        cmocka_unit_test(objects_are_deleted_by_uid),
        cmocka_unit_test(full_tables),
        cmocka_unit_test(errors_of_watches),
        cmocka_unit_test(answers_that_are_too_large),
        cmocka_unit_test(objects_that_are_too_large),
        cmocka_unit_test(unset_variables),
        cmocka_unit_test(failures_are_repeated),
        cmocka_unit_test(objects_of_resources),
        cmocka_unit_test(containers_of_resources),
        cmocka_unit_test(objects_without_memory),
        cmocka_unit_test(kinds_that_are_read),
        cmocka_unit_test(addresses_of_clients),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(configs),
    };
    return RUN(tests, NULL, NULL);
}
