# SPDX-License-Identifier: Apache-2.0
"""The exporter and the receiver `kafka`, against librdkafka's mock cluster: both signals and encodings,
keys and partitions, errors of brokers, killed processes and rebalanced groups."""

import json
import re
import subprocess
import threading
import time
from signal import SIGHUP

import pytest

import clients
import kafka
import otlp
import profile_view
from braid import BINARY, ROOT, exporter, pipelines, until
from otlp import PROFILES, TRACES
from sink import BUSY, REFUSE, Reply

TOPICS = {TRACES: "otlp_spans", PROFILES: "otlp_profiles"}
RETRY = {"retry_on_failure": {"initial_interval": "100ms", "max_interval": "200ms"}}


@pytest.fixture
def new_cluster():
    made = []

    def make(brokers=1):
        made.append(kafka.Cluster(brokers))
        for topic in TOPICS.values():
            made[-1].do("topic", topic, 4)
        return made[-1]
    yield make
    for each in made:
        each.close()


@pytest.fixture
def cluster(new_cluster):
    return new_cluster()


def writer(cluster, options=None, **more):
    """Returns a config that writes to the cluster what it receives over OTLP."""
    return pipelines({"kafka": {"brokers": cluster.brokers.split(","), **RETRY, **(options or {})}},
                     **more)


def reader(cluster, sink, options=None, queue=None, **more):
    """Returns a config that reads from the cluster and sends to the sink."""
    config = pipelines(exporter("grpc", sink, **{
        "sending_queue": {"enabled": False}, "retry_on_failure": {"enabled": False},
        **(queue or {})}), **more)
    config["receivers"] = {"kafka": {"brokers": cluster.brokers.split(","),
                                     "initial_offset": "earliest", "session_timeout": "6s",
                                     "heartbeat_interval": "500ms", **(options or {})}}
    for pipeline in config["service"]["pipelines"].values():
        pipeline["receivers"] = ["kafka"]
    return config


def trace(number, n_spans=1):
    return otlp.trace_request(n_spans, first=number)


def ids(sink, signal=TRACES):
    """Returns the number of each span that the sink has, in the order of their numbers."""
    return sorted(int.from_bytes(span.span_id, "big") for call in sink.of(signal)
                  for resource in call.message.resource_spans for scope in resource.scope_spans
                  for span in scope.spans)


def send(server, numbers):
    for number in numbers:
        clients.grpc(server.grpc, TRACES, trace(number).SerializeToString()).expect_ok()


# --- Round trips ------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("encoding", ["otlp_proto", "otlp_json"])
def test_round_trip(braid, cluster, sink, encoding, workers):
    formats = {"traces": {"encoding": encoding}, "profiles": {"encoding": encoding}}
    first = braid(writer(cluster, formats, workers=workers))
    second = braid(reader(cluster, sink, formats, workers=workers))
    for signal in (TRACES, PROFILES):
        request = otlp.request_of(signal, 5)
        clients.grpc(first.grpc, signal, request.SerializeToString()).expect_ok()
        sink.wait(signal, 5)
        assert otlp.items_of(signal, sink.of(signal)[0].message) == otlp.items_of(signal, request)
    until(lambda: first.ledger("traces")["sent"] == first.ledger("profiles")["sent"] == 5)
    # The workers join the group one after the other, and a message may be read again after a rebalance.
    until(lambda: all(second.ledger(kind)["sent"] >= 5 for kind in ("traces", "profiles")))
    first.stop()
    second.stop()


def fnv1a(key):
    """FNV-1a, 32 bits (draft-eastlake-fnv, section 2)."""
    value = 0x811C9DC5
    for byte in key:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def sarama(key, partitions):
    """Sarama's hash partitioner, the Collector's default: the remainder of the signed number, without
    its sign."""
    value = fnv1a(key)
    return abs(value - (1 << 32) if value >> 31 else value) % partitions


def meaning(signal, requests):
    """Returns the records of requests in a form that does not depend on their order and division."""
    if signal is PROFILES:
        return sorted(map(repr, profile_view.samples(*requests)))
    return sorted(repr(item) for each in requests for item in otlp.items_of(signal, each))


@pytest.mark.parametrize("signal", [TRACES, PROFILES])
def test_a_message_for_each_trace(braid, cluster, signal):
    server = braid(writer(cluster, {"partition_traces_by_id": True,
                                    "partition_profiles_by_trace_id": True}))
    request = otlp.request_of(signal, 40)
    clients.grpc(server.grpc, signal, request.SerializeToString()).expect_ok()
    until(lambda: server.ledger(str(signal))["sent"] == 40)
    found = cluster.messages(TOPICS[signal])
    assert sorted(each["key"] for each in found) == sorted(
        b"%032x" % number for number in range(1, 41))
    for each in found:
        assert each["partition"] == sarama(each["key"], 4)
    parts = [type(request).FromString(each["value"]) for each in found]
    assert meaning(signal, parts) == meaning(signal, [request])
    server.stop()


def test_samples_without_a_trace_have_the_key_of_their_process(braid, cluster):
    server = braid(writer(cluster, {"partition_profiles_by_trace_id": True}))
    request = otlp.profile_request(6, linked=False)
    request.resource_profiles[0].resource.attributes.append(
        otlp.attribute("service.instance.id", "pod-7"))
    clients.grpc(server.grpc, PROFILES, request.SerializeToString()).expect_ok()
    until(lambda: server.ledger("profiles")["sent"] == 6)
    found = cluster.messages(TOPICS[PROFILES])
    assert [each["key"] for each in found] == [b"pod-7"]
    assert found[0]["partition"] == sarama(b"pod-7", 4)
    server.stop()


# Kafka's clients: UtilsTest.testMurmur2 (org.apache.kafka.common.utils)
MURMUR2 = [("21", -973932308), ("foobar", -790332482), ("a-little-bit-long-string", -985981536),
           ("a-little-bit-longer-string", -1486304829), ("abc", 479470107)]


def test_murmur2_by_the_vectors_of_kafka(braid, cluster):
    server = braid(writer(cluster, {
        "partition_profiles_by_trace_id": True,
        "record_partitioner": {"sticky_key": {"hasher": "murmur2"}}}))
    for key, _ in MURMUR2:
        request = otlp.profile_request(1, linked=False)
        request.resource_profiles[0].resource.attributes.append(
            otlp.attribute("service.instance.id", key))
        clients.grpc(server.grpc, PROFILES, request.SerializeToString()).expect_ok()
    until(lambda: server.ledger("profiles")["sent"] == len(MURMUR2))
    found = {each["key"].decode(): each["partition"] for each in cluster.messages(TOPICS[PROFILES])}
    assert found == {key: (value & 0x7FFFFFFF) % 4 for key, value in MURMUR2}
    server.stop()


def test_metadata_becomes_headers(braid, cluster):
    first = braid(writer(cluster, {"include_metadata_keys": ["x-scope-orgid"],
                                   "record_headers": [{"name": "env", "value": "test"}],
                                   "signal_header": True},
                         grpc={"include_metadata": True}))
    body = trace(1).SerializeToString()
    clients.grpc(first.grpc, TRACES, body, metadata=(("x-scope-orgid", "acme"), )).expect_ok()
    until(lambda: first.ledger("traces")["sent"] == 1)
    assert cluster.messages(TOPICS[TRACES])[0]["headers"] == {
        "x-scope-orgid": "acme", "env": "test", "otelcol.signal": "traces"}
    first.stop()


# --- Errors of the exporter -------------------------------------------------------------------------


def test_brokers_that_are_down(braid, cluster):
    server = braid(writer(cluster, {"timeout": "500ms"}))
    cluster.do("down", 1)
    send(server, range(1, 6))
    server.wait_log(r"exporter/kafka\t.*(Connect|refused|Disconnected|down)")
    assert server.ledger("traces")["sent"] == 0
    cluster.do("up", 1)
    until(lambda: server.ledger("traces")["sent"] == 5)
    server.stop()
    values = {each["value"] for each in cluster.messages(TOPICS[TRACES])}
    assert values == {trace(number).SerializeToString() for number in range(1, 6)}


def test_a_new_leader(braid, new_cluster):
    cluster = new_cluster(3)
    server = braid(writer(cluster))
    send(server, [1])
    until(lambda: server.ledger("traces")["sent"] == 1)
    for partition in range(4):
        cluster.do("leader", TOPICS[TRACES], partition, 2)
    send(server, range(2, 12))
    for partition in range(4):
        cluster.do("leader", TOPICS[TRACES], partition, 3)
    send(server, range(12, 22))
    until(lambda: server.ledger("traces")["sent"] == 21)
    server.stop()
    assert len(cluster.messages(TOPICS[TRACES])) == 21


@pytest.mark.parametrize("code, reason", [(kafka.NOT_AUTHORIZED, "TOPIC_AUTHORIZATION_FAILED"),
                                          (kafka.UNKNOWN_TOPIC, "UNKNOWN_TOPIC_OR_PART")])
def test_an_error_that_an_operator_repairs(braid, cluster, code, reason):
    """A missing topic or permission is retried, because the request itself is right."""
    server = braid(writer(cluster, {"timeout": "500ms"}))
    cluster.do("topic-error", TOPICS[TRACES], code)
    send(server, [1])
    server.wait_log(rf"exporter/kafka\t.*({reason}|_UNKNOWN_TOPIC|MSG_TIMED_OUT)")
    assert server.ledger("traces")["sent"] == 0
    cluster.do("topic-error", TOPICS[TRACES], 0)
    until(lambda: server.ledger("traces")["sent"] == 1)
    server.stop()


def test_requests_above_the_limit_are_divided(braid, cluster):
    server = braid(writer(cluster, {"producer": {"max_message_bytes": 10000}}))
    request = trace(1, 100)
    assert request.ByteSize() > 20000
    clients.grpc(server.grpc, TRACES, request.SerializeToString()).expect_ok()
    until(lambda: server.ledger("traces")["sent"] == 100)
    server.stop()
    found = cluster.messages(TOPICS[TRACES])
    assert len(found) > 1
    assert max(len(each["value"]) for each in found) <= 10000
    parts = [type(request).FromString(each["value"]) for each in found]
    assert meaning(TRACES, parts) == meaning(TRACES, [request])


def test_a_broker_with_a_lower_limit(braid, cluster):
    server = braid(writer(cluster))
    cluster.do("error", kafka.PRODUCE, kafka.TOO_LARGE, 1)
    request = trace(1, 8)
    clients.grpc(server.grpc, TRACES, request.SerializeToString()).expect_ok()
    until(lambda: server.ledger("traces")["sent"] == 8)
    server.stop()
    assert len(cluster.messages(TOPICS[TRACES])) == 2  # the halves of the refused message


def test_a_span_above_the_limit_is_rejected(braid, cluster):
    server = braid(writer(cluster, {"producer": {"max_message_bytes": 10000},
                                    "sending_queue": {"enabled": False}}))
    body = otlp.trace_request(1, size=20000).SerializeToString()
    answer = clients.grpc(server.grpc, TRACES, body)
    assert answer.code == "RESOURCE_EXHAUSTED"
    assert "max_message_bytes" in answer.message
    assert server.ledger("traces")["rejected"] == 1
    server.stop()


# --- Delivery by the receiver -----------------------------------------------------------------------


def fill(cluster, numbers):
    for number in numbers:
        cluster.send(TOPICS[TRACES], trace(number).SerializeToString(), key=str(number))


def committed(cluster):
    """Returns the number of spans that were committed, for partitions that start at 0."""
    offsets = cluster.committed("otel-collector", TOPICS[TRACES], 4)
    return sum(offset for offset in offsets if offset > 0)


def test_a_killed_reader_loses_nothing(braid, cluster, sink, new_sink):
    """The backend holds back its answers, so that all messages are in the pipeline at the kill."""
    dead = new_sink()
    dead.reply = Reply(BUSY.grpc, BUSY.http, "down")
    fill(cluster, range(1, 31))
    first = braid(reader(cluster, dead))
    first.wait_log("refused: ")
    assert committed(cluster) == 0
    first.kill()
    second = braid(reader(cluster, sink))
    sink.wait(TRACES, 30)
    until(lambda: second.ledger("traces")["sent"] == 30)
    assert ids(sink) == list(range(1, 31))
    second.stop()
    assert committed(cluster) == 30


def test_what_was_committed_is_not_repeated(braid, cluster, sink):
    fill(cluster, range(1, 21))
    first = braid(reader(cluster, sink, {"autocommit": {"interval": "100ms"}}))
    sink.wait(TRACES, 20)
    until(lambda: committed(cluster) == 20)
    first.kill()
    fill(cluster, range(21, 31))
    second = braid(reader(cluster, sink))
    until(lambda: second.ledger("traces")["sent"] == 10)
    assert ids(sink) == list(range(1, 31))
    second.stop()


def test_a_stop_commits(braid, cluster, sink):
    fill(cluster, range(1, 11))
    first = braid(reader(cluster, sink, {"autocommit": {"interval": "1h"}}))
    until(lambda: first.ledger("traces")["sent"] == 10)
    first.stop()
    assert committed(cluster) == 10


def test_a_backend_that_is_down_for_a_while(braid, cluster, sink):
    sink.reply = Reply(BUSY.grpc, BUSY.http, "down")
    fill(cluster, range(1, 21))
    server = braid(reader(cluster, sink))
    server.wait_log("refused: ")
    sink.reply = Reply()
    until(lambda: server.ledger("traces")["sent"] == 20)
    assert ids(sink)[-20:] == sorted(ids(sink))[-20:]
    assert set(ids(sink)) == set(range(1, 21))
    metrics = server.metrics()["braid_receiver_kafka_messages"]
    assert metrics['receiver="kafka",result="delivered"'] == 20
    assert metrics['receiver="kafka",result="refused"'] > 0
    server.stop()
    assert committed(cluster) == 20


def test_a_rejected_message_is_passed_over(braid, cluster, sink):
    sink.reply = REFUSE
    fill(cluster, range(1, 4))
    server = braid(reader(cluster, sink))
    server.wait_log("rejected: ")
    until(lambda: server.ledger("traces")["rejected"] == 3)
    server.stop()
    assert committed(cluster) == 3


def test_an_unreadable_message_is_passed_over(braid, cluster, sink):
    cluster.send(TOPICS[TRACES], b"\xff\xff\xff", key="1")
    cluster.send(TOPICS[TRACES], trace(1).SerializeToString(), key="1")
    server = braid(reader(cluster, sink))
    sink.wait(TRACES, 1)
    server.wait_log(r"otlp_spans partition \d offset 0: cannot be read: ")
    metrics = server.metrics()["braid_receiver_kafka_messages"]
    assert metrics['receiver="kafka",result="unreadable"'] == 1
    server.stop()
    assert committed(cluster) == 2


def test_two_members_share_the_partitions(braid, cluster, sink, new_sink):
    """A second member joins and takes half of the partitions; then the first one is killed."""
    other, often = new_sink(), {"autocommit": {"interval": "100ms"}}
    first = braid(reader(cluster, sink, often))
    first.wait_log("partitions assigned")
    fill(cluster, range(1, 21))
    sink.wait(TRACES, 20)
    until(lambda: committed(cluster) == 20)
    second = braid(reader(cluster, other, often))
    second.wait_log("4 partitions assigned")  # two of each topic
    fill(cluster, range(21, 61))
    until(lambda: set(ids(sink)) | set(ids(other)) == set(range(1, 61)))
    assert len(ids(sink)) + len(ids(other)) == 60
    assert ids(other)
    first.kill()
    fill(cluster, range(61, 81))
    until(lambda: set(ids(sink)) | set(ids(other)) == set(range(1, 81)), deadline_s=60)
    second.stop()


def test_a_partition_is_given_away_after_its_messages(braid, cluster, sink, new_sink):
    """While the backend delays its answers, the first member does not give up its partitions. (The
    mock cluster accepts no offsets then, so the messages are repeated; Kafka accepts them.)"""
    other = new_sink()
    first = braid(reader(cluster, sink))
    first.wait_log("partitions assigned")
    answering = threading.Event()
    sink.reply = Reply(hold=answering)
    fill(cluster, range(1, 9))
    until(lambda: first.ledger("traces")["held"] == 8)
    second = braid(reader(cluster, other))
    second.wait_log("ready")
    time.sleep(2)
    assert "revoked" not in first.log()
    answering.set()
    first.wait_log("revoked")
    second.wait_log("partitions assigned")
    assert set(ids(sink)) | set(ids(other)) == set(range(1, 9))
    first.stop()
    second.stop()


def test_a_reload_changes_the_receiver(braid, cluster, sink, tmp_path):
    """The receiver that is replaced leaves the group, so that its successor gets all partitions."""
    config = reader(cluster, sink)
    server = braid(config)
    server.wait_log("8 partitions assigned")
    fill(cluster, range(1, 11))
    sink.wait(TRACES, 10)
    config["receivers"]["kafka"]["client_id"] = "other"
    path, = tmp_path.rglob("config.yaml")
    path.write_text(json.dumps(config))
    server.process.send_signal(SIGHUP)
    server.wait_log("reloaded .*changed: receiver/kafka")
    until(lambda: server.log().count("8 partitions assigned") == 2)
    fill(cluster, range(11, 21))
    until(lambda: set(ids(sink)) == set(range(1, 21)))  # Kafka may repeat messages
    server.stop()
    assert committed(cluster) == 20


# --- Examples ---------------------------------------------------------------------------------------


def test_the_examples_join_across_kafka(braid, cluster, sink):
    """Spans and samples that different processes sent are joined behind Kafka."""
    folder, metrics = ROOT / "config" / "examples", "service.telemetry.metrics.readers"
    reader_port = "[{pull: {exporter: {prometheus: {host: 127.0.0.1, port: 0}}}}]"

    def start(name):
        text = (folder / name).read_text().replace("kafka:9092", cluster.brokers)
        for place in ("http://tempo:4317", "http://pyroscope:4040"):
            text = text.replace(place, f"http://{sink.grpc}")
        text = re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", text)
        return braid(text, f"--set={metrics}={reader_port}", "--set=service.workers=1")
    writers = [start("kafka-writer.yaml") for _ in range(2)]
    readers = [start("kafka-reader.yaml") for _ in range(2)]
    for each in readers:
        each.wait_log("4 partitions assigned")
    spans, samples = otlp.trace_request(20), otlp.profile_request(20)
    clients.grpc(writers[0].grpc, TRACES, spans.SerializeToString()).expect_ok()
    clients.grpc(writers[1].grpc, PROFILES, samples.SerializeToString()).expect_ok()
    until(lambda: len(sink.items(TRACES)) == 20, deadline_s=60)
    until(lambda: len(profile_view.samples(*(call.message for call in sink.of(PROFILES)))) == 20)
    found = profile_view.samples(*(call.message for call in sink.of(PROFILES)))
    assert all("span.name" in repr(sample) for sample in found)
    for each in writers + readers:
        each.stop()


# --- Checks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind, options, error", [
    ("receivers", {"group_rebalance_strategies": ["sticky"]}, "must be range, roundrobin or"),
    ("receivers", {"group_rebalance_strategies": ["range", "cooperative-sticky"]},
     "cannot be combined"),
    ("receivers", {"traces": {"topics": ["^otlp_.*"]}}, "regular expressions are not supported"),
    ("receivers", {"heartbeat_interval": "10s"}, "must be shorter than session_timeout"),
    ("receivers", {"group_id": ""}, "must not be empty"),
    ("exporters", {"producer": {"required_acks": "2"}}, "must be all, -1, 0 or 1"),
    ("exporters", {"auth": {"sasl": {"mechanism": "PLAIN", "username": "a"}}},
     "auth::sasl::password: is required"),
    ("exporters", {"auth": {"sasl": {"mechanism": "OAUTHBEARER", "username": "a", "password": "b"}}},
     "must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"),
    ("exporters", {"tls": {"ca_file": "/nowhere/ca.pem"}}, "/nowhere/ca.pem"),
    ("exporters", {"tls": {"server_name_override": "b"}}, "is not supported for Kafka"),
    ("exporters", {"brokers": ["a:1,b:2"]}, "must be a list of host:port"),
    ("exporters", {"record_partitioner": {"sticky_key": {}, "round_robin": {}}}, "not both"),
])
def test_validate_finds_errors(tmp_path, kind, options, error):
    other = "exporters" if kind == "receivers" else "receivers"
    config = {kind: {"kafka": options}, other: {"nop": {}},
              "service": {"pipelines": {"traces": {kind: ["kafka"], other: ["nop"]}}}}
    done = subprocess.run([BINARY, "validate", "--config", "yaml:" + json.dumps(config)],
                          cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert error in done.stderr


def test_validate_warns_about_another_strategy(braid, cluster, sink):
    config = reader(cluster, sink, {"group_rebalance_strategies": ["cooperative-sticky"]})
    server = braid(config)
    server.wait_log("with cooperative-sticky, the spans and samples of a trace can reach different")
    fill(cluster, range(1, 6))
    sink.wait(TRACES, 5)
    server.stop()
