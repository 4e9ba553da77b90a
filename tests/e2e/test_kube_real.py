# SPDX-License-Identifier: Apache-2.0
"""k8s_attributes with a real Kubernetes API: permissions, pages, watches, expired versions and restarts. KUBE_APISERVER and
ETCD name the servers (harness/kube.py); test_enrichment.py has the same requests with recorded answers."""

import re
import signal as signals

import pytest

import clients
import kube
import otlp
from braid import ROOT, exporter, pipelines, until
from otlp import TRACES, attribute, attributes_of

pytestmark = pytest.mark.skipif(not (kube.KUBE_APISERVER and kube.ETCD), reason="KUBE_APISERVER and ETCD name no servers")

WAIT_S = 60
NAMESPACE, NODE = "/api/v1/namespaces/shop", "/api/v1/nodes/node-1"
SETS, DEPLOYMENTS = "/apis/apps/v1/namespaces/shop/replicasets", "/apis/apps/v1/namespaces/shop/deployments"
WORKLOAD = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {
    "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "registry:5000/shop/web:1.2"}]}}}


def rules_of_readme():
    """Returns the rules of the README's ClusterRole."""
    text = (ROOT / "processors" / "k8s_attributes" / "README.md").read_text()
    rules = re.findall(r'- \{apiGroups: \[(.*?)\], resources: \[(.*?)\], verbs: \[(.*?)\]\}', text)
    assert len(rules) == 3
    return [{"apiGroups": [group.strip('"')], "resources": resources.split(", "), "verbs": verbs.split(", ")}
            for group, resources, verbs in rules]


@pytest.fixture
def api(tmp_path):
    """A Kubernetes API with a namespace, a node, a deployment and its pod, which has the address of the test's clients."""
    server = kube.Api(tmp_path / "kube")
    server.log_in(rules_of_readme())
    server.do("POST", "/api/v1/namespaces", {"metadata": {"name": "shop", "labels": {"team": "blue"}}})
    server.do("POST", "/api/v1/nodes", {"metadata": {"name": "node-1", "labels": {"zone": "a"}}})
    deployment = server.do("POST", DEPLOYMENTS, {"metadata": {"name": "web-of-the-shop", "labels": {"tier": "front"}},
                                                 "spec": WORKLOAD})
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web-of-the-shop", "controller": True,
             "uid": deployment["metadata"]["uid"]}
    replicas = server.do("POST", SETS, {"metadata": {"name": "web-5d4", "ownerReferences": [owner]}, "spec": WORKLOAD})
    server.web = server.add_pod("web-5d4-x", "127.0.0.1", replicas | {"kind": "ReplicaSet"},
                                **{"pod-template-hash": "5d4", "app": "web"})
    server.deployment = deployment["metadata"]["uid"]
    yield server
    server.end()


@pytest.fixture
def enrich(braid, sink, api):
    """enrich(extract) starts Braid with access to the API, and with wait_for_metadata."""
    def start(extract, **options):
        processor = {"service_account": str(api.account), "wait_for_metadata": True, "extract": extract,
                     "pod_association": [{"sources": [{"from": "resource_attribute", "name": "k8s.pod.uid"}]},
                                         {"sources": [{"from": "connection"}]}], **options}
        return braid(pipelines(exporter("grpc", sink), signals=["traces"], workers=2,
                               processors={"k8s_attributes": processor}),
                     env={"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port), "no_proxy": "*"})
    return start


def resource_after(server, sink, uid=None):
    """Sends one span, and returns the attributes of its resource."""
    request, before = otlp.trace_request(1), len(sink.of(TRACES))
    if uid:
        request.resource_spans[0].resource.attributes.append(attribute("k8s.pod.uid", uid))
    clients.grpc(server.grpc, TRACES, request.SerializeToString()).expect_ok()
    resource, *_ = sink.wait(TRACES, before + 1)[-1]
    return attributes_of(resource.attributes)


def becomes(server, sink, key, value, uid=None):
    """Waits until the attribute has the value."""
    return until(lambda: resource_after(server, sink, uid).get(key) == value, f"{key}={value}", WAIT_S)


EXTRACT = {"metadata": ["k8s.pod.name", "k8s.namespace.name", "k8s.deployment.name", "k8s.deployment.uid", "k8s.node.name",
                        "k8s.node.uid", "k8s.cluster.uid", "container.id"],
           "labels": [{"key": "team", "from": "namespace", "tag_name": "team"}, {"key": "zone", "from": "node"},
                      {"key": "tier", "from": "deployment"}]}


def test_attributes_and_changes(api, enrich, sink):
    """All objects are read with the README's permissions; changes arrive as events, and deleted pods end."""
    server = enrich(EXTRACT, pod_delete_grace_period="1s")
    server.wait_log("listed 1 deployments")
    until(lambda: server.metrics() and "listed 1 pods" in server.log() and "namespaces" in server.log(), "the lists")
    expected = {"service.name": "shop", "k8s.pod.name": "web-5d4-x", "k8s.namespace.name": "shop",
                "k8s.deployment.name": "web-of-the-shop", "k8s.deployment.uid": api.deployment, "k8s.node.name": "node-1",
                "k8s.node.uid": api.do("GET", NODE)["metadata"]["uid"], "container.id": "c1", "team": "blue",
                "k8s.cluster.uid": api.do("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"],
                "k8s.node.labels.zone": "a", "k8s.deployment.label.tier": "front"}
    assert resource_after(server, sink) == expected

    api.do("PATCH", NAMESPACE, {"metadata": {"labels": {"team": "green"}}})
    api.do("PATCH", NODE, {"metadata": {"labels": {"zone": "b"}}})
    becomes(server, sink, "team", "green")
    becomes(server, sink, "k8s.node.labels.zone", "b")
    uid = api.add_pod("later", "10.0.0.9")
    becomes(server, sink, "k8s.pod.name", "later", uid)
    api.do("DELETE", "/api/v1/namespaces/shop/pods/later?gracePeriodSeconds=0")
    becomes(server, sink, "k8s.pod.name", None, uid)

    requests = api.audit()
    assert {status for _, status in requests} == {200}
    for plural in ("pods", "namespaces", "nodes", "replicasets", "deployments"):
        assert any(f"/{plural}?watch=1" in uri for uri, _ in requests), plural
    # a bookmark advances the version of a watch although no object of the kind has changed
    versions = lambda: {re.search(r"resourceVersion=(\d+)", uri)[1] for uri, _ in api.audit() if "/deployments?watch=1" in uri}
    until(lambda: len(versions()) > 1, "a bookmark", 120)


def test_pages(api, enrich, sink):
    uids = [api.add_pod(f"pod-{i}", f"10.1.{i // 100}.{i % 100}") for i in range(300)]
    server = enrich({"metadata": ["k8s.pod.name"]})
    server.wait_log("listed 301 pods")
    assert resource_after(server, sink, uids[299])["k8s.pod.name"] == "pod-299"
    lists = [uri for uri, _ in api.audit() if "/pods?limit=250" in uri]
    assert len(lists) == 2 and "continue=" in lists[1]


def test_missing_permissions(api, enrich, sink):
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles/braid"
    api.do("PATCH", roles, {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]})
    server = enrich(EXTRACT, wait_for_metadata=False)
    server.wait_log("cannot read namespaces: the Kubernetes API answered with status 403; the service account needs")
    server.wait_log("listed 1 pods")
    assert "team" not in resource_after(server, sink)
    api.do("PATCH", roles, {"rules": rules_of_readme()})
    becomes(server, sink, "team", "blue")


def test_restarts_and_expired_versions(api, enrich, sink):
    """While Braid is stopped, objects change and the API restarts, so the API no longer knows Braid's versions."""
    server = enrich(EXTRACT, pod_delete_grace_period="1s")
    server.wait_log("listed 1 deployments")
    gone = api.add_pod("gone", "10.0.0.9")
    becomes(server, sink, "k8s.pod.name", "gone", gone)

    api.stop()
    server.wait_log("cannot read pods")
    assert resource_after(server, sink)["k8s.pod.name"] == "web-5d4-x"  # objects are still known
    api.start()
    api.do("PATCH", NAMESPACE, {"metadata": {"labels": {"team": "green"}}})
    becomes(server, sink, "team", "green")

    server.process.send_signal(signals.SIGSTOP)
    api.do("DELETE", "/api/v1/namespaces/shop/pods/gone?gracePeriodSeconds=0")
    new = api.add_pod("new", "10.0.0.10")
    for i in range(3):
        api.do("PATCH", NAMESPACE, {"metadata": {"labels": {"team": f"red {i}".replace(" ", "-")}}})
    api.stop()
    api.start()
    before = len(api.audit())
    server.process.send_signal(signals.SIGCONT)
    becomes(server, sink, "k8s.pod.name", "new", new)
    becomes(server, sink, "team", "red-2")
    becomes(server, sink, "k8s.pod.name", None, gone)
    assert any("/pods?limit=250" in uri for uri, _ in api.audit()[before:]), "the pods were listed again"
