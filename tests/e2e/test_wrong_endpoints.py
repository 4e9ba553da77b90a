# SPDX-License-Identifier: Apache-2.0
"""Endpoints of another protocol: one line of the log names the mistake and the fix, in the client
and, if the server is Braid, in the server. Receivers answer unknown paths with the list of
existing ones."""

import json
import socket
import subprocess
from concurrent import futures

import grpc
import pytest

import certs
import clients
import hops
import otlp
from braid import BINARY, DEADLINE_S, pipelines, until
from google.rpc import status_pb2
from otlp import TRACES

USE_HTTPS, USE_TLS = "the server speaks TLS; use https://", "the server speaks TLS; use https:// or no tls::insecure"
MAYBE_TLS = "before it sent anything; if it expects TLS, use https://"
NO_TLS = "the server does not speak TLS; use http:// or tls::insecure"
NOT_GRPC = "the server speaks HTTP/1.1, not gRPC; use its gRPC port (OTLP: 4317), or the exporter otlphttp"
NO_H2 = "does not offer HTTP/2, which gRPC requires; use its gRPC port (OTLP: 4317), or the exporter otlphttp"
ONLY_GRPC = "speaks HTTP/2 only, as gRPC ports do; use its HTTP port (OTLP: 4318), or the exporter otlp"


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    return certs.self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def servers(key):
    """Name -> host:port of servers other than Braid."""
    page = hops.redirect(404, None)
    web, secure_web = hops.Answering(page), hops.Answering(page, certificate=key)
    rpc = grpc.server(futures.ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    pem = key.read_bytes()
    credentials = grpc.ssl_server_credentials([(pem, key.with_suffix(".crt").read_bytes())])
    addresses = {"http": web.address, "https": secure_web.address,
                 "grpc": f"127.0.0.1:{rpc.add_insecure_port('127.0.0.1:0')}",
                 "grpcs": f"127.0.0.1:{rpc.add_secure_port('127.0.0.1:0', credentials)}"}
    rpc.start()
    spoken = {name: Speaking(text) for name, text in SPOKEN.items()}
    yield {**addresses, **{name: each.address for name, each in spoken.items()}}
    rpc.stop(None).wait()
    for each in (web, secure_web, *spoken.values()):
        each.close()


# First answers of servers that are not installed: Go's net/http and nginx to plaintext at a TLS
# port (nginx-h2: to the preface of HTTP/2), and an alert (RFC 8446 section 6), which OpenSSL sends.
SPOKEN = {
    "go": b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
    "nginx": b"HTTP/1.1 400 Bad Request\r\nServer: nginx\r\nContent-Length: 53\r\nConnection: close\r\n\r\n"
             b"400 The plain HTTP request was sent to HTTPS port\r\n\r\n",
    "alert": b"\x15\x03\x01\x00\x02\x02\x46",
    "silent": b"",
    "nginx-h2": b"HTTP/1.1 400 Bad Request\r\nServer: nginx\r\nContent-Length: 15\r\nConnection: close\r\n\r\n400 Bad Request",
    "no-h2": b"\x15\x03\x03\x00\x02\x02\x78",  # fatal, no_application_protocol (RFC 7301 section 3.2)
}


class Speaking(hops.Accepting):
    """A server that reads a little of each connection, sends one answer, and closes."""

    def __init__(self, text):
        self._text = text
        super().__init__()

    def _handle(self, client):
        client.settimeout(DEADLINE_S)
        client.recv(1 << 16)
        client.sendall(self._text)
        client.shutdown(socket.SHUT_WR)
        while client.recv(1 << 16):  # so that the text is read before the connection is reset
            pass


def exporters(kind, scheme, address, key):
    tls = {"ca_file": str(key.with_suffix(".crt"))}
    if kind == "otlp":
        return {"otlp": {"endpoint": address, "tls": {"insecure": True} if scheme == "http" else tls}}
    return {kind: {"endpoint": f"{scheme}://{address}", "tls": tls}}


def send(server, signal=TRACES):
    return clients.http(server.http, signal.path, otlp.request_of(signal, 3).SerializeToString())


def lines(server, words):
    return [line for line in server.log().splitlines() if words in line]


@pytest.mark.parametrize("kind, scheme, peer, words", [
    ("otlp", "http", "http", NOT_GRPC),
    ("otlp", "https", "https", NOT_GRPC),
    ("otlp", "http", "grpcs", MAYBE_TLS),
    ("otlp", "http", "https", MAYBE_TLS),
    ("otlp", "http", "go", USE_TLS),
    ("otlp", "http", "nginx", USE_TLS),
    ("otlp", "http", "alert", USE_TLS),
    ("otlp", "http", "nginx-h2", "or the exporter otlphttp; or https://, if it is nginx with TLS"),
    ("otlp", "http", "silent", MAYBE_TLS),
    ("otlp", "https", "http", NO_TLS),
    ("otlp", "https", "grpc", NO_TLS),
    ("otlp", "https", "no-h2", NO_H2),
    ("otlp", "https", "silent", "in the TLS handshake; if it does not speak TLS, use http:// or tls::insecure"),
    ("otlphttp", "http", "https", MAYBE_TLS),
    ("otlphttp", "http", "go", USE_HTTPS),
    ("otlphttp", "http", "nginx", USE_HTTPS),
    ("otlphttp", "http", "alert", USE_HTTPS),
    ("otlphttp", "http", "silent", MAYBE_TLS),
    ("otlphttp", "http", "grpc", ONLY_GRPC),
    ("otlphttp", "https", "http", NO_TLS),
    ("otlphttp", "https", "grpc", NO_TLS),
])
def test_an_exporter_names_the_mistake(braid, servers, key, kind, scheme, peer, words):
    server = braid(pipelines(exporters(kind, scheme, servers[peer], key), signals=["traces"]))
    for _ in range(3):
        send(server).expect_ok()
    until(lambda: lines(server, words), words)
    server.kill()
    assert len(lines(server, words)) == 1, server.log()
    assert f"\texporter/{kind}\t" in lines(server, words)[0]


@pytest.fixture
def receivers(braid, key):
    """{"plain", "tls"} -> a Braid with both protocols."""
    made = {}
    for name in ("plain", "tls"):
        tls = {"tls": {"cert_file": str(key), "key_file": str(key)}} if name == "tls" else {}
        made[name] = braid(pipelines({"debug": None}, signals=["traces"], grpc=tls, http=tls))
    for server in made.values():
        server.wait_log("\tready: ")  # a process that is not used would be stopped before it is ready
    return made


@pytest.mark.parametrize("kind, scheme, where, words, other", [
    ("otlp", "http", ("tls", "grpc"), USE_TLS, "this port accepts only TLS; use https://, or remove tls::insecure"),
    ("otlphttp", "http", ("tls", "http"), USE_HTTPS, "this port accepts only TLS; use https://, or remove tls::insecure"),
    ("otlp", "https", ("plain", "grpc"), NO_TLS, "this port does not accept TLS; use http:// or tls::insecure"),
    ("otlphttp", "https", ("plain", "http"), NO_TLS, "this port does not accept TLS; use http:// or tls::insecure"),
    ("otlp", "http", ("plain", "http"), "this port accepts OTLP over HTTP; send OTLP over gRPC to 127.0.0.1:",
     "this port accepts OTLP over HTTP; send OTLP over gRPC to 127.0.0.1:"),
    ("otlp", "https", ("tls", "http"), "this port accepts OTLP over HTTP; send OTLP over gRPC to 127.0.0.1:",
     "this port accepts OTLP over HTTP; send OTLP over gRPC to 127.0.0.1:"),
    ("otlphttp", "http", ("plain", "grpc"), "this port accepts OTLP over gRPC; send OTLP over HTTP to 127.0.0.1:",
     "this port accepts OTLP over gRPC; send OTLP over HTTP to 127.0.0.1:"),
])
def test_both_sides_name_the_mistake(braid, receivers, key, kind, scheme, where, words, other):
    receiver = receivers[where[0]]
    server = braid(pipelines(exporters(kind, scheme, getattr(receiver, where[1]), key), signals=["traces"]))
    for _ in range(3):
        send(server).expect_ok()
    until(lambda: lines(server, words), words)
    until(lambda: lines(receiver, other), other)
    server.kill()
    assert len(lines(server, words)) == 1, server.log()
    assert len(lines(receiver, other)) == 1, receiver.log()
    assert "127.0.0.1:" in lines(receiver, other)[0]


def test_other_clients_are_answered_in_http(receivers):
    """The message that curl and Go's client show."""
    address = receivers["tls"].http
    answer = clients.http(address, TRACES.path, b"")
    assert (answer.code, answer.body) == (400, b"this port accepts only TLS; use https://, or remove tls::insecure\n")
    host, _, port = receivers["plain"].http.rpartition(":")
    with socket.create_connection((host, int(port)), DEADLINE_S) as raw:
        raw.sendall(b"\x16\x03\x01\x00\xff")
        got = b""
        while data := raw.recv(65536):
            got += data
    assert got.startswith(b"HTTP/1.1 400 ") and b"this port does not accept TLS; use http://" in got


# --- Unknown paths


def test_unknown_paths_are_answered_with_those_that_exist(braid, sink):
    paths = {"traces_url_path": "/own/traces"}
    tree = pipelines({"debug": None}, http=paths)
    tree["receivers"]["pyroscope"] = {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}}
    tree["receivers"]["pprof"] = {"http": {"endpoint": "127.0.0.1:0"}}
    tree["service"]["pipelines"]["profiles"] = {"receivers": ["otlp", "pyroscope", "pprof"], "exporters": ["debug"]}
    server = braid(tree)
    why = "unknown path /v1/metrics; traces go to /own/traces, profiles to /v1development/profiles"
    answer = clients.http(server.http, "/v1/metrics", b"{}", otlp.JSON)
    assert answer.code == 404 and json.loads(answer.body)["message"] == why
    answer = clients.http(server.http, "/v1/metrics", b"")
    assert answer.code == 404 and status_pb2.Status.FromString(answer.body).message == why
    server.wait_log(f"\treceiver/otlp\t.*{why}")

    service = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
    answer = clients.grpc(server.grpc, TRACES, b"", method=service)
    assert answer.code == "UNIMPLEMENTED" and answer.message == (
        f"unknown path {service}; traces go to {TRACES.method}, profiles to {otlp.PROFILES.method}")

    answer = clients.http(server.address("http", "receiver/pyroscope"), '/"<b>\\', b"")
    text = json.loads(answer.body)["message"]
    assert answer.code == 404 and text.startswith('unknown path /"<b>\\; profiles go to ')
    for path in ("/push.v1.PusherService/Push", "/ingest", "/v1development/profiles"):
        assert path in text
    answer = clients.http(server.address("http", "receiver/pprof"), "/upload", b"")
    assert answer.code == 404 and answer.headers["content-type"] == "text/plain"
    assert answer.body == (b"unknown path /upload; profiles go to /v1/profiles/upload, those of Datadog's clients to "
                           b"/profiling/v1/input")


def test_an_exporter_logs_that_answer(braid, receivers, key):
    endpoint = f"http://{receivers['plain'].http}/v1/traces"
    server = braid(pipelines({"otlphttp": {"endpoint": endpoint}}, signals=["traces"]))
    send(server).expect_ok()
    server.wait_log("HTTP 404 unknown path /v1/traces/v1/traces; traces go to /v1/traces, profiles to "
                    "/v1development/profiles")
    server.wait_log("endpoint: ends in /v1/traces, which is appended again; remove it, or give whole URLs as "
                    "traces_endpoint and profiles_endpoint")


# --- Config


@pytest.mark.parametrize("exporter, words", [
    ('otlphttp: {endpoint: "http://x:4318/v1/traces"}', "ends in /v1/traces, which is appended again; remove it"),
    ('otlphttp: {endpoint: "http://x/a/v1development/profiles/"}', "ends in /v1development/profiles, which"),
    ('otlphttp: {endpoint: "http://x/otlp?key=1"}', "has a query string, to which the path of the API would be appended; give "
     "whole URLs as traces_endpoint and profiles_endpoint"),
    ('otlphttp: {endpoint: "http://x:4317"}', "port 4317 is usually OTLP over gRPC; use the exporter otlp"),
    ('otlp: {endpoint: "x:4318"}', "port 4318 is usually OTLP over HTTP; use the exporter otlphttp"),
    ('otlp: {endpoint: "http://x:4317/v1/traces"}', "has a path, which gRPC does not use; remove it: http://x:4317"),
    ('otlphttp: {traces_endpoint: "http://x/v1/traces?key=1"}', None),
    ('otlphttp: {endpoint: "http://x:4318/v1"}', None),
    ('otlp: {endpoint: "x:4317"}', None),
])
def test_validate_checks_endpoints(tmp_path, exporter, words):
    path = tmp_path / "config.yaml"
    name = exporter.partition(":")[0]
    path.write_text(f"""receivers: {{otlp: {{protocols: {{http: {{}}}}}}}}
exporters:
  {exporter}
service: {{pipelines: {{traces: {{receivers: [otlp], exporters: [{name}]}}}}}}
""")
    done = subprocess.run([BINARY, "validate", "--config", path], capture_output=True, text=True, timeout=DEADLINE_S)
    if words:
        assert f"{path}:3:" in done.stderr and words in done.stderr
    else:
        assert "endpoint" not in done.stderr
