# SPDX-License-Identifier: Apache-2.0
"""The configuration changes while the process runs: no request fails, and what did not change keeps its state."""

import contextlib
import copy
import http.client
import json
import pathlib
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading

import grpc
import pytest

import clients
import otlp
from braid import BINARY, DEADLINE_S, exporter, pipelines, until
from numbered import SPANS, expected, names, request
from otlp import PROFILES, TRACES
from sink import BUSY, Reply

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "scorecard.d"))
from pki import Authority  # noqa: E402


def count(server, result):
    return server.metrics()["braid_config_reloads"][f'result="{result}"']


def reload(server, config, result="success"):
    """Writes the configuration, reloads it, and waits for the result."""
    before = count(server, result)
    text = config if isinstance(config, str) else json.dumps(config, indent=2)
    server.config_path.write_text(text)
    server.process.send_signal(signal.SIGHUP)
    until(lambda: count(server, result) == before + 1, f"the reload: {result}")


def marked(config, value):
    """Returns the config with a processor that adds the attribute `mark`."""
    made = copy.deepcopy(config)
    made["processors"]["resource"] = {"attributes": [{"key": "mark", "value": value, "action": "upsert"}]}
    for pipeline in made["service"]["pipelines"].values():
        pipeline["processors"] = ["resource"]
    return made


def marks(call):
    return [attribute.value.string_value for resource in call.message.resource_spans
            for attribute in resource.resource.attributes if attribute.key == "mark"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_changed_processor(braid, sink, workers):
    config = pipelines(exporter("grpc", sink), workers=workers)
    server = braid(marked(config, "one"))
    with grpc.insecure_channel(server.grpc) as channel:
        clients.grpc(server.grpc, TRACES, request(0), channel=channel).expect_ok()
        sink.wait(TRACES, SPANS)
        assert marks(sink.of(TRACES)[-1]) == ["one"]
        reload(server, marked(config, "two"))
        clients.grpc(server.grpc, TRACES, request(1), channel=channel).expect_ok()
        sink.wait(TRACES, 2 * SPANS)
        assert marks(sink.of(TRACES)[-1]) == ["two"]
        reload(server, config)
        clients.grpc(server.grpc, TRACES, request(2), channel=channel).expect_ok()
        sink.wait(TRACES, 3 * SPANS)
        assert marks(sink.of(TRACES)[-1]) == []
    assert server.log().count("grpc listening on") == 1  # the receiver did not change
    assert server.ledger("traces")["received"] == 3 * SPANS


@pytest.mark.parametrize("wrong, error", [
    ("receivers: {otlp: {protocols: {grpc: {endpoint: 1.2.3.4:x}}}}", "endpoint"),
    ("{", "config.yaml:"),
    ("service: {pipelines: {traces: {receivers: [no], exporters: [no]}}}", "no"),
])
def test_an_invalid_configuration_changes_nothing(braid, sink, wrong, error):
    server = braid(marked(pipelines(exporter("grpc", sink)), "one"))
    clients.grpc(server.grpc, TRACES, request(0)).expect_ok()
    reload(server, wrong, "failure")
    server.wait_log(f"reload.*{error}")
    assert server.metrics()["braid_config_last_reload_successful"][""] == 0
    clients.grpc(server.grpc, TRACES, request(1)).expect_ok()
    sink.wait(TRACES, 2 * SPANS)
    assert marks(sink.of(TRACES)[-1]) == ["one"]


def test_a_port_in_use_changes_nothing(braid, sink, new_sink):
    config = pipelines(exporter("grpc", sink))
    server = braid(config)
    taken = copy.deepcopy(config)
    taken["receivers"]["otlp/more"] = {"protocols": {"grpc": {"endpoint": sink.http}}}
    taken["service"]["pipelines"]["traces"]["receivers"] = ["otlp", "otlp/more"]
    taken["exporters"] = exporter("grpc", new_sink())
    reload(server, taken, "failure")
    server.wait_log("reload.*in use")
    clients.grpc(server.grpc, TRACES, request(0)).expect_ok()
    sink.wait(TRACES, SPANS)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_exporter_is_drained_before_it_is_removed(braid, sink, new_sink, workers):
    other = new_sink()
    sink.reply = Reply(BUSY.grpc, BUSY.http, "down")
    retries = {"retry_on_failure": {"initial_interval": "50ms", "max_interval": "100ms"}}
    server = braid(pipelines(exporter("grpc", sink, **retries), workers=workers))
    for number in range(10):
        clients.grpc(server.grpc, TRACES, request(number)).expect_ok()
    reload(server, pipelines(exporter("grpc", other, "/other", **retries), workers=workers))
    clients.grpc(server.grpc, TRACES, request(10)).expect_ok()
    other.wait(TRACES, SPANS)
    sink.reply = Reply()
    sink.wait(TRACES, 10 * SPANS)
    assert names(sink) == expected(range(10)) and names(other) == expected([10])
    until(lambda: server.ledger("traces")["sent"] == 11 * SPANS)


TRACE = bytes(15) + b"\x07"
SPAN = bytes(7) + b"\x01"
START = 1_700_000_000_000_000_000
MS = 1_000_000


def joinable():
    """Returns a span, and a profile with a sample in it that has the span's id but no attributes of it."""
    trace = otlp.traces.ExportTraceServiceRequest()
    resource = trace.resource_spans.add()
    resource.resource.attributes.append(otlp.attribute("service.name", "shop"))
    resource.scope_spans.add().spans.add(trace_id=TRACE, span_id=SPAN, name="checkout", kind=2,
                                         start_time_unix_nano=START, end_time_unix_nano=START + 100 * MS)
    profile = otlp.profile_request(0, service="shop")
    profile.dictionary.link_table.add(trace_id=TRACE, span_id=SPAN)
    profile.resource_profiles[0].scope_profiles[0].profiles[0].samples.add(
        stack_index=1, link_index=len(profile.dictionary.link_table) - 1,
        timestamps_unix_nano=[START + MS], values=[10 * MS])
    return trace, profile


def span_names(request):
    return [otlp.value_of(each.value) for each in request.dictionary.attribute_table
            if request.dictionary.string_table[each.key_strindex] == "span.name"]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_table_of_the_join_stays(braid, sink, workers):
    """A sample is joined to a span that arrived before two reloads."""
    config = pipelines(exporter("grpc", sink), processors={"join": {}}, workers=workers)
    server = braid(config)
    trace, profile = joinable()
    clients.grpc(server.grpc, TRACES, trace.SerializeToString()).expect_ok()
    sink.wait(TRACES, 1)
    for timeout in ("9s", "8s"):
        changed = copy.deepcopy(config)
        changed["exporters"]["otlp"]["timeout"] = timeout
        reload(server, changed)
    clients.grpc(server.grpc, PROFILES, profile.SerializeToString()).expect_ok()
    until(lambda: sink.of(PROFILES))
    assert span_names(sink.of(PROFILES)[0].message) == ["checkout"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_durable_exporter_is_changed(braid, sink, new_sink, tmp_path, workers):
    dead = new_sink()
    dead.reply = Reply(BUSY.grpc, BUSY.http, "down")

    def config(target, timeout):
        extension = {"directory": str(tmp_path / "storage"), "create_directory": True}
        options = {"sending_queue": {"storage": "file_storage"}, "timeout": timeout,
                   "retry_on_failure": {"initial_interval": "50ms", "max_interval": "200ms"}}
        return pipelines(exporter("grpc", target, **options), extensions={"file_storage": extension}, workers=workers)
    server = braid(config(dead, "5s"))
    for number in range(20):
        clients.grpc(server.grpc, TRACES, request(number)).expect_ok()
    reload(server, config(sink, "6s"))
    clients.grpc(server.grpc, TRACES, request(20)).expect_ok()
    sink.wait(TRACES, 21 * SPANS)
    assert names(sink) == expected(range(21))
    account = until(lambda: (lambda each: each["held"] == 0 and each)(server.ledger("traces")))
    assert account["received"] == account["sent"] == 21 * SPANS
    assert account["stored"] == account["restored"]


def test_reload_by_http(braid, sink):
    config = pipelines(exporter("grpc", sink), extensions={"control": {"endpoint": "127.0.0.1:0", "token": "s3cret-s3cret-s3cret"}})
    server = braid(config)

    def post(method="POST", token="s3cret-s3cret-s3cret"):
        connection = http.client.HTTPConnection(server.address("http", "extension/control"), timeout=DEADLINE_S)
        connection.request(method, "/-/reload", headers={"authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    assert post(token="wrong")[0] == 401
    assert post("GET")[0] == 405
    assert post() == (200, '{"reloaded":true,"text":"3 components unchanged"}\n')
    server.config_path.write_text("{")
    code, text = post()
    assert code == 400 and json.loads(text)["reloaded"] is False and "config.yaml:" in json.loads(text)["text"]
    changed = copy.deepcopy(config)
    changed["extensions"]["control"]["token"] = "other-other-other-other"
    server.config_path.write_text(json.dumps(changed))
    code, text = post()
    assert code == 200 and "changed: extension/control" in json.loads(text)["text"]
    assert until(lambda: post(token="other-other-other-other")[0] == 200)


def test_a_replaced_certificate(braid, sink, tmp_path):
    """The file of a certificate is replaced under the same name. SIGHUP loads it, without an interval."""
    authority = Authority(tmp_path / "pki")
    first, second = authority.server(), authority.issue("second", ["subjectAltName=DNS:localhost,IP:127.0.0.1"])
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def install(names):
        cert.write_bytes(names.cert.read_bytes())
        key.write_bytes(names.key.read_bytes())

    def shown(server):
        context = ssl.create_default_context(cafile=authority.cert)
        host, port = server.http.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as sock, \
                context.wrap_socket(sock, server_hostname="localhost") as tls:
            return dict(pair[0] for pair in tls.getpeercert()["subject"])["commonName"]
    install(first)
    config = pipelines(exporter("grpc", sink), http={"tls": {"cert_file": str(cert), "key_file": str(key)}})
    server = braid(config)
    before = shown(server)
    install(second)
    assert shown(server) == before
    reload(server, config)
    until(lambda: shown(server) == "second", "the new certificate")
    cert.write_text("no certificate")
    reload(server, config, "failure")
    assert shown(server) == "second"


def test_watch_config(braid, sink):
    config = pipelines(exporter("grpc", sink))
    server = braid(config, "--watch-config")
    server.wait_log("ready")
    clients.grpc(server.grpc, TRACES, request(0)).expect_ok()
    changed = json.dumps(marked(config, "two"), indent=2)

    until(lambda: server.metrics()["braid_config_watched"][""] == 1)
    server.config_path.write_text(changed)
    until(lambda: count(server, "success") == 1, "the reload")
    clients.grpc(server.grpc, TRACES, request(1)).expect_ok()
    sink.wait(TRACES, 2 * SPANS)
    assert marks(sink.of(TRACES)[-1]) == ["two"]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_store_and_its_page(braid, tmp_path, workers):
    """A store cannot be open twice. While it is replaced, requests to it and to the page wait."""
    def config(hours):
        return pipelines({"store": {"directory": str(tmp_path / "data"), "retention": {"max_age": f"{hours}h"}}},
                         extensions={"query": {"endpoint": "127.0.0.1:0"}}, workers=workers)
    server = braid(config(20))
    page = server.address("http", "extension/query")
    idle = http.client.HTTPConnection(page, timeout=DEADLINE_S)
    idle.request("GET", "/ready")
    assert idle.getresponse().read()

    def ask(_):
        connection = http.client.HTTPConnection(page, timeout=DEADLINE_S)
        connection.request("GET", "/ready")
        assert connection.getresponse().status == 200
        connection.close()
    loads = [Load(over_grpc(server)), Load(ask)]
    try:
        for hours in range(21, 26):
            reload(server, config(hours))
    finally:
        for load in loads:
            load.stop()
    assert [load.failed for load in loads] == [[], []]
    assert all(load.sent for load in loads)
    account = until(lambda: (lambda each: each["held"] == 0 and each)(server.ledger("traces")))
    assert account["received"] == account["sent"] == len(loads[0].sent) * SPANS


def test_sigterm_after_a_reload_loses_nothing(braid, sink):
    server = braid(pipelines(exporter("grpc", sink)))
    for number in range(50):
        clients.grpc(server.grpc, TRACES, request(number)).expect_ok()
        if number % 10 == 9:
            server.config_path.write_text(json.dumps(pipelines(exporter("grpc", sink, timeout=f"{number}s"))))
            server.process.send_signal(signal.SIGHUP)
    account = server.stop()["traces"]
    assert account["received"] == account["sent"] == 50 * SPANS
    assert names(sink) == expected(range(50))


class Load:
    """Sends requests until it is stopped; notes each that was not accepted."""

    def __init__(self, send):
        self.send, self.sent, self.failed = send, [], []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._stop.is_set():
            number = random.randrange(1 << 60)
            try:
                self.send(number)
                self.sent.append(number)
            except Exception as error:  # noqa: BLE001: each kind of failure counts
                self.failed.append(repr(error))

    def stop(self):
        self._stop.set()
        self._thread.join()


def over_grpc(server):
    channel = grpc.insecure_channel(server.grpc)
    return lambda number: clients.grpc(server.grpc, TRACES, request(number), channel=channel).expect_ok()


def over_http(server):
    """A connection for each request."""
    return lambda number: clients.http(server.http, "/v1/traces", request(number)).expect_ok()


def over_one_connection(server):
    """As long as the server does not say "Connection: close"."""
    connection = http.client.HTTPConnection(server.http, timeout=DEADLINE_S)

    def send(number):
        connection.request("POST", "/v1/traces", request(number), {"content-type": otlp.PROTOBUF})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
    return send


@pytest.mark.parametrize("workers", [1, 2])
def test_fifty_reloads_under_load(braid, sink, new_sink, workers):
    """Receivers, processors, exporters and fan-outs change; one configuration of five is invalid."""
    other = new_sink()

    def config(number):
        made = pipelines(exporter("grpc", sink, timeout=f"{5 + number % 3}s"), workers=workers,
                         processors={"batch": {"timeout": "10ms", "send_batch_size": 50 + number % 2}},
                         http={"max_request_body_size": (20 + number % 4) << 20},
                         grpc={"max_recv_msg_size_mib": 4 + number % 3})
        if number % 7 == 3:
            made["exporters"].update(exporter("proto", other, "/other"))
            made["service"]["pipelines"]["traces"]["exporters"] = list(made["exporters"])
        return made
    server = braid(config(0))
    loads = [Load(over_grpc(server)), Load(over_grpc(server)), Load(over_http(server)),
             Load(over_one_connection(server))]
    try:
        for number in range(1, 51):
            if number % 5 == 0:
                reload(server, '{"receivers": 1}', "failure")
            else:
                reload(server, config(number))
    finally:
        for load in loads:
            load.stop()
    assert [load.failed for load in loads] == [[]] * len(loads)
    sent = [number for load in loads for number in load.sent]
    assert len(sent) > 100
    sink.wait(TRACES, len(sent) * SPANS)
    assert names(sink) == expected(sent)
    account = until(lambda: (lambda each: each["held"] == 0 and each)(server.ledger("traces")))
    assert account["received"] == account["sent"] == len(sent) * SPANS


def listening(port=0):
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    made.listen(128)
    return made


def test_sockets_of_systemd(sink, tmp_path):
    """Two processes one after the other use the sockets that their parent holds (sd_listen_fds(3)): no
    connection is refused, and the first one loses nothing."""
    with listening() as grpc_socket, listening() as http_socket:
        config = pipelines(exporter("grpc", sink), grpc={"endpoint": "127.0.0.1:%d" % grpc_socket.getsockname()[1]},
                           http={"endpoint": "127.0.0.1:%d" % http_socket.getsockname()[1]})

        def start(name):
            folder = tmp_path / name
            folder.mkdir()
            (folder / "config.yaml").write_text(json.dumps(config))
            script = (f"exec 3<&{grpc_socket.fileno()} 4<&{http_socket.fileno()}; LISTEN_PID=$$ LISTEN_FDS=2 "
                      f"exec {BINARY} --config {folder}/config.yaml 2>{folder}/log")
            made = subprocess.Popen(["bash", "-c", script], pass_fds=[grpc_socket.fileno(), http_socket.fileno()])
            until(lambda: "ready" in (folder / "log").read_text() if (folder / "log").exists() else False)
            return made, folder / "log"
        first, first_log = start("first")
        address = "127.0.0.1:%d" % http_socket.getsockname()[1]

        def send(number):
            """Retries as an exporter does: a connection that the first process had accepted without a
            request ends with that process."""
            for _ in range(100):
                with contextlib.suppress(ConnectionResetError, BrokenPipeError, http.client.RemoteDisconnected):
                    answer = clients.http(address, "/v1/traces", request(number))
                    if answer.code != 503:
                        return answer.expect_ok()
            raise AssertionError("no answer")
        load = Load(send)
        try:
            until(lambda: len(load.sent) > 20)
            first.send_signal(signal.SIGTERM)
            assert first.wait(DEADLINE_S) == 0
            second, _ = start("second")
            after = len(load.sent)
            until(lambda: len(load.sent) > after + 20)
        finally:
            load.stop()
        second.send_signal(signal.SIGTERM)
        assert second.wait(DEADLINE_S) == 0
        assert load.failed == []  # above all, no connection was refused
        assert set(names(sink)) == set(expected(load.sent))
        assert re.search(r"traces: (\d+) spans received, \1 sent, 0 rejected, 0 dropped, 0 left", first_log.read_text())
