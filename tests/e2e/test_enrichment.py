# SPDX-License-Identifier: Apache-2.0
"""Processors that change names and resources, in the running service. The output is read by the official protobuf classes,
and the expected values are computed here from the rules of the Collector's processors."""

import json
import signal as signals
import socket
import ssl
import tempfile
import threading

import pytest

import certs
import clients
import httpd
import otlp
from braid import exporter, pipelines, until
from otlp import SIGNALS, TRACES, attribute, attributes_of, items_of, samples_of, spans_of


@pytest.fixture
def through(braid, sink):
    """through(signal, processors) starts Braid with them in front of the sink."""
    return lambda signal, **processors: braid(
        pipelines(exporter("grpc", sink), signals=[signal.name], processors=processors, workers=1))


def send(server, signal, request):
    clients.grpc(server.grpc, signal, request.SerializeToString()).expect_ok()


def test_span(through, sink):
    request = otlp.trace_request(10)
    for i, (_, _, span) in enumerate(spans_of(request)):
        span.name = f"/users/{i}/orders"
    server = through(TRACES, span={"include": {"match_type": "regexp", "span_names": ["^/users/[0-4]/"]},
                                   "name": {"to_attributes": {"rules": ["^/users/(?P<user>[^/]+)"]}},
                                   "status": {"code": "Error", "description": "checked"}})
    send(server, TRACES, request)
    for i, ((_, _, before), (_, _, after)) in enumerate(zip(spans_of(request), sink.wait(TRACES, 10))):
        if i < 5:
            assert attributes_of(after.attributes) == attributes_of(before.attributes) | {"user": str(i)}
            assert (after.name, after.status.message) == ("/users/{user}/orders", "checked")
            assert after.status.code == after.status.STATUS_CODE_ERROR
            for field in ("name", "attributes", "status"):
                before.ClearField(field)
                after.ClearField(field)
        assert after == before


@pytest.mark.parametrize("signal", SIGNALS, ids=str)
def test_group_by_attrs(through, sink, signal):
    """The values of the records are found again in their resources."""
    request = otlp.request_of(signal, 12)
    if signal is TRACES:
        for i, (_, _, span) in enumerate(spans_of(request)):
            span.attributes.append(attribute("tenant", f"tenant {i % 3}"))
    else:
        tables = request.dictionary
        tables.string_table.append("tenant")
        first = len(tables.attribute_table)
        for i in range(3):
            tables.attribute_table.add(key_strindex=len(tables.string_table) - 1,
                                       value=attribute("", f"tenant {i}").value)
        for i, (_, _, sample) in enumerate(samples_of(request)):
            sample.attribute_indices.append(first + i % 3)
    server = through(signal, groupbyattrs={"keys": ["tenant"]})
    send(server, signal, request)
    arrived = sink.wait(signal, 12)
    before = items_of(signal, request)
    for i, (resource, parent, record) in enumerate(arrived):
        tenant, position = divmod(i, 4)  # groups are in the order of their first record
        original = before[3 * position + tenant]
        assert attributes_of(resource.attributes) == {"service.name": "shop", "tenant": f"tenant {tenant}"}
        if signal is TRACES:
            del original[2].attributes[-1]
        else:
            del original[2].attribute_indices[-1]
            assert parent.profile_id == original[1].profile_id
        assert record == original[2]


# --- resource_detection --------------------------------------------------------------------------

NODE = {"metadata": {"name": "node-1", "uid": "7f2b"}, "status": {"nodeInfo": {"machineID": "ec2d"}}}
DOCUMENT = {"region": "us-west-2", "accountId": "123456789012", "instanceId": "i-1234567890abcdef0",
            "availabilityZone": "us-west-2b", "imageId": "ami-5fb8c835", "instanceType": "t2.micro"}


class Metadata(httpd.Handler):
    """Answers from the server's table; other paths have status 404."""

    def answer(self):
        self.body()
        body = self.server.answers.get((self.command, self.path.split("?")[0]))
        if callable(body):
            body = body(self.headers)
        status = 404 if body is None else 200
        text = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("content-length", len(text))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT = answer


class UnixServer(httpd.Server):
    address_family = socket.AF_UNIX

    def server_bind(self):
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "localhost", 0

    def get_request(self):
        request, _ = super().get_request()
        return request, ("", 0)


@pytest.fixture
def metadata():
    """metadata(answers, tls=None, unix=None) serves the answers {(method, path): JSON, text or function of the headers}
    and returns host:port."""
    servers = []

    def serve(answers, tls=None, unix=None):
        server = UnixServer(str(unix), Metadata) if unix else httpd.Server(("127.0.0.1", 0), Metadata)
        server.answers = answers
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"127.0.0.1:{server.server_port}"
    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def with_token(answer):
    """The instance metadata service answers only requests with the session token."""
    return lambda headers: answer if headers.get("x-aws-ec2-metadata-token") == "session" else None


def service_account(tmp_path):
    """Returns the directory that a pod has, and the file with the key of the Kubernetes API."""
    account = tmp_path / "account"
    account.mkdir()
    key = certs.self_signed(account)
    (account / "server.crt").rename(account / "ca.crt")
    (account / "token").write_text("secret\n")
    return account, key


def allowed(answer):
    """The Kubernetes API answers only requests with the token."""
    return lambda headers: answer if headers.get("authorization") == "Bearer secret" else None


@pytest.mark.parametrize("signal", SIGNALS, ids=str)
def test_resource_detection(braid, sink, metadata, tmp_path, signal):
    """Detectors that use HTTP, HTTPS with a service account, and a unix socket."""
    account, key = service_account(tmp_path)
    ec2 = metadata({("PUT", "/latest/api/token"): "session",
                    ("GET", "/latest/meta-data/instance-id"): with_token(DOCUMENT["instanceId"]),
                    ("GET", "/latest/dynamic/instance-identity/document"): with_token(DOCUMENT),
                    ("GET", "/latest/meta-data/hostname"): with_token("ip-10-0-0-1")})
    api = metadata({("GET", "/api/v1/nodes/node-1"): allowed(NODE),
                    ("GET", "/api/v1/namespaces/kube-system"): allowed({"metadata": {"uid": "c1"}})}, tls=key)
    folder = tempfile.mkdtemp()  # the path of a unix socket must be short
    metadata({("GET", "/info"): {"Name": "docker-host", "OSType": "linux"}}, unix=f"{folder}/s")
    processor = {"detectors": ["env", "ec2", "k8snode", "docker", "system"], "override": False,
                 "k8snode": {"service_account": str(account)},
                 "system": {"hostname_sources": ["os"], "resource_attributes": {"host.arch": {"enabled": True}}}}
    host, port = api.split(":")
    server = braid(pipelines(exporter("grpc", sink), signals=[signal.name],
                             processors={"resourcedetection": processor}, workers=2),
                   env={"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{ec2}", "KUBERNETES_SERVICE_HOST": host,
                        "KUBERNETES_SERVICE_PORT": port, "K8S_NODE_NAME": "node-1", "DOCKER_HOST": f"unix://{folder}/s",
                        "OTEL_RESOURCE_ATTRIBUTES": "team=blue,service.name=other", "no_proxy": "*"})
    send(server, signal, otlp.request_of(signal, 3))
    for resource, *_ in sink.wait(signal, 3):
        attributes = attributes_of(resource.attributes)
        assert attributes.pop("host.arch")
        assert attributes == {
            "service.name": "shop", "team": "blue", "cloud.provider": "aws", "cloud.platform": "aws_ec2",
            "cloud.region": "us-west-2", "cloud.account.id": "123456789012", "cloud.availability_zone": "us-west-2b",
            "host.id": "i-1234567890abcdef0", "host.image.id": "ami-5fb8c835", "host.type": "t2.micro",
            "host.name": "ip-10-0-0-1", "k8s.node.name": "node-1", "k8s.node.uid": "7f2b", "k8s.cluster.uid": "c1",
            "os.type": "linux"}


def test_data_is_refused_until_the_detection_succeeds(braid, sink, metadata):
    """The Collector does not start in this case."""
    answers = {}
    ecs = metadata(answers)
    processor = {"detectors": ["ecs"], "retry": {"initial_interval": "20ms", "max_interval": "20ms"}}
    server = braid(pipelines(exporter("grpc", sink), signals=["traces"], processors={"resource_detection": processor},
                             workers=1),
                   env={"ECS_CONTAINER_METADATA_URI_V4": f"http://{ecs}/v4/abc", "no_proxy": "*"})
    server.wait_log("the detection failed and is repeated; until it succeeds, data is refused")
    answer = clients.grpc(server.grpc, TRACES, otlp.trace_request(1).SerializeToString())
    assert answer.code == "UNAVAILABLE", answer
    answers[("GET", "/v4/abc/task")] = {"TaskARN": "arn:aws:ecs:us-west-2:1:task/c/id", "Cluster": "c", "Family": "f"}
    server.wait_log("detected attributes: .*aws.ecs.task.family=f")
    send(server, TRACES, otlp.trace_request(1))
    [(resource, _, _)] = sink.wait(TRACES, 1)
    assert attributes_of(resource.attributes)["aws.ecs.cluster.arn"] == "arn:aws:ecs:us-west-2:1:cluster/c"


def test_a_detector_that_fails_at_once_prevents_the_start(braid, sink):
    server = braid(pipelines(exporter("grpc", sink), processors={"resource_detection": None}, workers=1),
                   env={"OTEL_RESOURCE_ATTRIBUTES": "wrong"})
    assert server.process.wait(30) != 0
    assert 'OTEL_RESOURCE_ATTRIBUTES must have the form key=value,key=value' in server.log()
    server.killed = True


def test_requests_wait_for_the_first_detection(braid, sink, metadata):
    arrived = threading.Event()

    def slow(_):
        arrived.wait()
        return {"TaskARN": "arn:aws:ecs:us-west-2:1:task/c/id", "Cluster": "c", "Family": "f"}
    ecs = metadata({("GET", "/v4/abc/task"): slow})
    server = braid(pipelines(exporter("grpc", sink), signals=["traces"], workers=1,
                             processors={"resource_detection": {"detectors": ["ecs"], "timeout": "1h"}}),
                   env={"ECS_CONTAINER_METADATA_URI_V4": f"http://{ecs}/v4/abc", "no_proxy": "*"})
    thread = threading.Thread(target=send, args=(server, TRACES, otlp.trace_request(2)))
    thread.start()
    until(lambda: sum(server.metrics()["otelcol_processor_incoming_items"].values()) == 2, "two spans in the processor")
    assert not sink.of(TRACES)
    arrived.set()
    for resource, *_ in sink.wait(TRACES, 2):
        assert attributes_of(resource.attributes)["aws.ecs.task.family"] == "f"
    thread.join()


# --- k8s_attributes ------------------------------------------------------------------------------

def pod(name, ip, version, **labels):
    return {"metadata": {"name": name, "namespace": "shop", "uid": f"uid of {name}", "resourceVersion": str(version),
                         "labels": labels | {"pod-template-hash": "5d4"}, "creationTimestamp": "2026-01-02T03:04:05Z",
                         "ownerReferences": [{"kind": "ReplicaSet", "name": "web-5d4", "uid": "r1", "controller": True}]},
            "spec": {"nodeName": "node-1", "containers": [{"name": "web", "image": "registry:5000/shop/web:1.2"}]},
            "status": {"podIP": ip, "podIPs": [{"ip": ip}], "phase": "Running", "startTime": "2026-01-02T03:04:06Z"}}


def metadata_of(name, uid, owner=None, **labels):
    """An object of which only the metadata was requested."""
    owners = [dict(zip(("kind", "name", "uid"), owner)) | {"controller": True}] if owner else []
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"name": name, "uid": uid, "labels": labels, "ownerReferences": owners, "resourceVersion": "10"}}


class Cluster(httpd.Handler):
    """The Kubernetes API of a cluster, with answers as the API's documentation shows them. The pods are listed in two pages,
    other objects in one. A watch request is answered with the events that have happened since the last one."""

    def do_GET(self):
        self.body()
        path, _, query = self.path.partition("?")
        query = dict(part.split("=") for part in query.split("&"))
        self.server.queries.append(query | {"path": path, "accept": self.headers.get("accept")})
        pages = self.server.pages if path == "/api/v1/pods" else self.server.others.get(path)
        if pages is None and path != "/api/v1/pods" or self.headers.get("authorization") != "Bearer secret":
            return self.reply(403, "{}")
        if "watch" in query:
            events = self.server.events.pop(path, [])
            return self.reply(200, "".join(json.dumps(event) + "\n" for event in events))
        page = 1 if query.get("continue") == "page%2F2" else 0
        more = {"continue": "page/2"} if page + 1 < len(pages) else {}
        return self.reply(200, json.dumps({"metadata": {"resourceVersion": "10"} | more, "items": pages[page]}))

    def reply(self, status, text):
        self.send_response(status)
        self.send_header("content-length", len(text))
        self.end_headers()
        self.wfile.write(text.encode())


@pytest.fixture
def cluster(tmp_path):
    """A stand-in of the Kubernetes API with two pods; the second one has the address of the test's clients."""
    account, key = service_account(tmp_path)
    server = httpd.Server(("127.0.0.1", 0), Cluster)
    server.pages = [[pod("other", "10.0.0.7", 8)], [pod("web-1", "127.0.0.1", 9, team="blue")]]
    server.others, server.events, server.queries, server.account = {}, {}, [], str(account)
    server.env = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.server_port),
                  "NODE": "node-1", "no_proxy": "*"}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("signal", SIGNALS, ids=str)
def test_k8s_attributes(braid, sink, cluster, signal):
    """The pod is found by the address of the client, and by an attribute of the resource."""
    processor = {"service_account": cluster.account, "filter": {"node_from_env_var": "NODE"},
                 "wait_for_metadata": True, "extract": {"labels": [{"tag_name": "team", "key": "team"}]},
                 "pod_association": [{"sources": [{"from": "resource_attribute", "name": "k8s.pod.uid"}]},
                                     {"sources": [{"from": "connection"}]}]}
    server = braid(pipelines(exporter("grpc", sink), signals=[signal.name],
                             processors={"k8sattributes": processor}, workers=2), env=cluster.env)
    server.wait_log("listed 2 pods")
    send(server, signal, otlp.request_of(signal, 2))
    expected = {"service.name": "shop", "k8s.namespace.name": "shop", "k8s.pod.name": "web-1",
                "k8s.pod.uid": "uid of web-1", "k8s.pod.start_time": "2026-01-02T03:04:05Z", "k8s.node.name": "node-1",
                "k8s.deployment.name": "web", "container.image.name": "registry:5000/shop/web",
                "container.image.tag": "1.2", "team": "blue"}
    for resource, *_ in sink.wait(signal, 2):
        assert attributes_of(resource.attributes) == expected
    assert cluster.queries[0] == {"path": "/api/v1/pods", "accept": None, "limit": "250",
                                  "fieldSelector": "spec.nodeName%3Dnode-1"}
    assert cluster.queries[1]["continue"] == "page%2F2"

    cluster.events["/api/v1/pods"] = [{"type": "ADDED", "object": pod("new", "10.0.0.9", 11)}]
    until(lambda: any(query.get("resourceVersion") == "11" for query in cluster.queries), "a watch after the event")
    request = otlp.request_of(signal, 1)
    first = (request.resource_spans if signal is TRACES else request.resource_profiles)[0]
    first.resource.attributes.append(attribute("k8s.pod.uid", "uid of new"))
    send(server, signal, request)
    resource, *_ = sink.wait(signal, 3)[-1]
    assert attributes_of(resource.attributes)["k8s.pod.name"] == "new"
    assert sum(server.metrics()["braid_k8s_attributes_resources"].values()) >= 2


# One node reads the Kubernetes API for all pipelines. The reload removes the pipeline with this node, or the other one.
@pytest.mark.parametrize("removed", ("traces/a", "traces/b"))
def test_a_reload_that_removes_a_pipeline_keeps_the_watch(braid, sink, cluster, removed):
    config = pipelines(exporter("grpc", sink), signals=["traces/a", "traces/b"], processors={"k8sattributes": {
        "service_account": cluster.account,
        "pod_association": [{"sources": [{"from": "resource_attribute", "name": "k8s.pod.uid"}]}]}})
    server = braid(config, env=cluster.env)
    server.wait_log("listed 2 pods")
    del config["service"]["pipelines"][removed]
    server.config_path.write_text(json.dumps(config))
    server.process.send_signal(signals.SIGHUP)
    until(lambda: server.metrics()["braid_config_reloads"].get('result="success"') == 1, "the reload")
    cluster.pages[1].append(pod("new", "10.0.0.9", 11))
    cluster.events["/api/v1/pods"] = [{"type": "ADDED", "object": pod("new", "10.0.0.9", 11)}]
    request = otlp.request_of(TRACES, 1)
    request.resource_spans[0].resource.attributes.append(attribute("k8s.pod.uid", "uid of new"))

    def found():
        send(server, TRACES, request)
        return any(attributes_of(resource.attributes).get("k8s.pod.name") == "new" for resource, *_ in sink.items(TRACES))
    until(found, "the new pod")


@pytest.mark.parametrize("signal", SIGNALS, ids=str)
def test_attributes_of_other_objects(braid, sink, cluster, signal):
    """The namespace, the node and the deployment of the pod give attributes, also after they have changed."""
    namespaces = "/api/v1/namespaces"
    cluster.others = {namespaces: [[metadata_of("shop", "n1", team="red", owner_team="shop")]],
                      "/api/v1/nodes": [[metadata_of("node-1", "node uid", zone="a")]],
                      "/apis/apps/v1/replicasets": [[metadata_of("web-5d4", "r1", ("Deployment", "web-long", "d1"))]],
                      "/apis/apps/v1/deployments": [[metadata_of("web-long", "d1", tier="front")]]}
    extract = {"metadata": ["k8s.pod.name", "k8s.node.uid", "k8s.deployment.name", "k8s.deployment.uid"],
               "labels": [{"key": "team", "tag_name": "team"}, {"key": "team", "tag_name": "team", "from": "namespace"},
                          {"key_regex": "owner_(.*)", "tag_name": "owner.$$1", "from": "namespace"},
                          {"key": "zone", "from": "node"}, {"key": "tier", "from": "deployment"}]}
    processor = {"service_account": cluster.account, "wait_for_metadata": True, "extract": extract,
                 "pod_association": [{"sources": [{"from": "resource_attribute", "name": "k8s.pod.uid"}]},
                                     {"sources": [{"from": "connection"}]}]}
    server = braid(pipelines(exporter("grpc", sink), signals=[signal.name],
                             processors={"k8s_attributes": processor}, workers=2), env=cluster.env)
    for kind in ("pods", "namespaces", "nodes", "replicasets", "deployments"):
        server.wait_log(f"listed [12] {kind}")
    send(server, signal, otlp.request_of(signal, 1))
    [(resource, *_)] = sink.wait(signal, 1)
    expected = {"service.name": "shop", "k8s.pod.name": "web-1", "k8s.node.uid": "node uid", "k8s.deployment.uid": "d1",
                "k8s.deployment.name": "web-long", "team": "blue", "owner.team": "shop", "k8s.node.labels.zone": "a",
                "k8s.deployment.label.tier": "front"}
    assert attributes_of(resource.attributes) == expected
    lists = {query["path"]: query["accept"] for query in cluster.queries if "watch" not in query}
    assert lists.pop("/api/v1/pods") is None
    assert set(lists.values()) == {"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"}
    assert set(lists) == set(cluster.others)

    changed = metadata_of("shop", "n1", team="green")
    changed["metadata"]["resourceVersion"] = "12"
    cluster.events[namespaces] = [{"type": "MODIFIED", "object": changed}]
    until(lambda: any(query["path"] == namespaces and query.get("resourceVersion") == "12" for query in cluster.queries),
          "a watch after the event")
    request = otlp.request_of(signal, 1)
    first = (request.resource_spans if signal is TRACES else request.resource_profiles)[0]
    first.resource.attributes.extend([attribute("k8s.pod.uid", "unknown"), attribute("k8s.namespace.name", "shop")])
    send(server, signal, request)
    resource, *_ = sink.wait(signal, 2)[-1]
    assert attributes_of(resource.attributes) == {"service.name": "shop", "k8s.pod.uid": "unknown", "team": "green",
                                                  "k8s.namespace.name": "shop"}
    assert server.metrics()["braid_k8s_attributes_objects"]


def test_missing_permissions_are_named(braid, sink, cluster):
    """The objects that may be read are used although others may not be read."""
    extract = {"labels": [{"key": "team", "from": "namespace", "tag_name": "team"}]}
    server = braid(pipelines(exporter("grpc", sink), signals=["traces"], workers=1, processors={
        "k8s_attributes": {"service_account": cluster.account, "extract": extract}}), env=cluster.env)
    server.wait_log("cannot read namespaces: the Kubernetes API answered with status 403; the service account needs the "
                    "permissions list and watch")
    server.wait_log("listed 2 pods")
    send(server, TRACES, otlp.trace_request(1))
    [(resource, _, _)] = sink.wait(TRACES, 1)
    assert attributes_of(resource.attributes)["k8s.pod.name"] == "web-1"


def test_data_is_refused_until_the_pods_are_listed(braid, sink, cluster):
    pages, cluster.pages = cluster.pages, None  # the connection of each request is closed
    server = braid(pipelines(exporter("grpc", sink), signals=["traces"], workers=1, processors={
        "k8s_attributes": {"service_account": cluster.account, "wait_for_metadata": True}}), env=cluster.env)
    server.wait_log("cannot read pods")
    answer = clients.grpc(server.grpc, TRACES, otlp.trace_request(1).SerializeToString())
    assert answer.code == "UNAVAILABLE", answer
    cluster.pages = pages
    server.wait_log("listed 2 pods")
    send(server, TRACES, otlp.trace_request(1))
    [(resource, _, _)] = sink.wait(TRACES, 1)
    assert attributes_of(resource.attributes)["k8s.pod.name"] == "web-1"


def test_passthrough(braid, sink):
    """An agent sets the address, with which a gateway finds the pod."""
    server = braid(pipelines(exporter("grpc", sink), signals=["traces"], workers=1,
                             processors={"k8s_attributes": {"passthrough": True}}))
    send(server, TRACES, otlp.trace_request(1))
    [(resource, _, _)] = sink.wait(TRACES, 1)
    assert attributes_of(resource.attributes) == {"service.name": "shop", "k8s.pod.ip": "127.0.0.1"}
