# SPDX-License-Identifier: Apache-2.0
"""What the official SDKs send arrives complete, through every exporter and coding."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import clients
import otlp
import profile_view
from braid import EXPORTERS, exporter, pipelines

HERE = pathlib.Path(__file__).parent / "clients"
BUILD = pathlib.Path(__file__).parents[2] / "build"
GO = os.environ.get("GO_CLIENTS", str(BUILD / "clients"))
PYTHON = [sys.executable, str(HERE / "python_sdk.py")]

TRACE_CLIENTS = {
    "python-grpc": lambda braid, coding: [*PYTHON, "grpc", braid.grpc, coding],
    "python-http": lambda braid, coding: [*PYTHON, "http", braid.http, coding],
    "node-json": lambda braid, coding:
    ["node", str(HERE / "node" / "scene.js"), braid.http, coding],
    "go-grpc": lambda braid, coding:
    [GO, "traces", "-endpoint", braid.grpc, "-compression", coding],
}
PROFILE_TRANSPORTS = ("grpc", "proto", "json")

BATCH = {"batch": {"timeout": "50ms"}}


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def send_traces(client, braid, coding="none"):
    """Runs a client; returns the (trace id, span id) that it printed."""
    return {
        tuple(json.loads(line))
        for line in run(TRACE_CLIENTS[client](braid, coding)).splitlines()
    }


def send_profiles(transport, braid, coding="none"):
    """Runs the Go client; returns the request that it printed."""
    endpoint = braid.grpc if transport == "grpc" else braid.http
    printed = run(
        [GO, "profiles", "-endpoint", endpoint, "-transport", transport, "-compression", coding])
    return otlp.from_json(otlp.PROFILES.request, printed)


def check_scene(spans, language, sent):
    """The scene of clients/README.md."""
    assert {(span.trace_id.hex(), span.span_id.hex()) for _, _, span in spans} == sent
    assert len({trace for trace, _ in sent}) == 1
    for resource, scope, span in spans:
        attributes = otlp.attributes_of(resource.attributes)
        assert attributes["service.name"] == f"shop-{language}"
        assert attributes["service.version"] == "1.2.3"
        assert (scope.name, scope.version) == ("scene", "0.1")
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
    by_name = {}
    for _, _, span in spans:
        by_name.setdefault(span.name, []).append(span)
    [root], [charge], ticks = (by_name.pop(name)
                               for name in ("POST /checkout", "charge card", "tick"))
    assert not by_name

    assert (root.kind, root.parent_span_id, root.status.code) == (2, b"", 1)
    assert otlp.attributes_of(root.attributes) == {
        "http.route": "/checkout", "http.response.status_code": 503, "cart.total": 12.5,
        "cart.paid": True, "cart.items": ["apple", "pear"], "note": "naïve ✓"}
    [link] = root.links
    assert (link.trace_id, link.span_id) == ((1).to_bytes(16, "big"), (2).to_bytes(8, "big"))
    assert otlp.attributes_of(link.attributes) == {"link.kind": "batch"}

    assert (charge.kind, charge.parent_span_id) == (3, root.span_id)
    assert (charge.status.code, charge.status.message) == (2, "card declined")
    [event] = charge.events
    assert (event.name, otlp.attributes_of(event.attributes)) == ("retry", {"attempt": 2})
    assert event.time_unix_nano > 0

    assert sorted(otlp.attributes_of(tick.attributes)["n"] for tick in ticks) == list(range(100))
    assert all((tick.kind, tick.parent_span_id, tick.status.code) == (1, root.span_id, 0)
               for tick in ticks)


@pytest.mark.parametrize("processors", [None, BATCH], ids=["direct", "batch"])
@pytest.mark.parametrize("kind", EXPORTERS)
@pytest.mark.parametrize("client", TRACE_CLIENTS)
def test_traces(braid, sink, client, kind, processors):
    server = braid(pipelines(exporter(kind, sink), processors=processors))
    sent = send_traces(client, server)
    check_scene(sink.wait(otlp.TRACES, 102), client.split("-")[0], sent)
    server.stop()


@pytest.mark.parametrize("client", TRACE_CLIENTS)
def test_compressed_by_the_client(braid, sink, client):
    server = braid(pipelines(exporter("grpc", sink)))
    sent = send_traces(client, server, "gzip")
    check_scene(sink.wait(otlp.TRACES, 102), client.split("-")[0], sent)


@pytest.mark.parametrize("processors", [None, BATCH], ids=["direct", "batch"])
@pytest.mark.parametrize("kind", EXPORTERS)
@pytest.mark.parametrize("transport", PROFILE_TRANSPORTS)
def test_profiles(braid, sink, transport, kind, processors):
    server = braid(pipelines(exporter(kind, sink), processors=processors))
    sent = send_profiles(transport, server, "gzip" if processors else "none")
    assert len(profile_view.samples(sent)) == 23
    sink.wait(otlp.PROFILES, 23)
    arrived = [call.message for call in sink.of(otlp.PROFILES)]
    assert profile_view.samples(*arrived) == profile_view.samples(sent)
    server.stop()


@pytest.mark.parametrize("transport", PROFILE_TRANSPORTS)
def test_profiles_leave_with_attributes_inline(braid, sink, transport):
    """Collectors before 0.161 and Pyroscope cannot follow key_strindex in a resource."""
    server = braid(pipelines(exporter("grpc", sink)))
    send_profiles(transport, server)
    sink.wait(otlp.PROFILES, 23)
    for call in sink.of(otlp.PROFILES):
        for resource in call.message.resource_profiles:
            assert {"service.name", "process.pid", "process.command_args"} == set(
                otlp.attributes_of(resource.resource.attributes))
            assert otlp.attributes_of(
                resource.resource.attributes)["process.command_args"] == ["shop", "--fast"]
            assert otlp.attributes_of(
                resource.scope_profiles[0].scope.attributes).keys() == {"scope.key"}


@pytest.mark.parametrize("coding", ["none", "gzip", "zstd", "deflate"])
@pytest.mark.parametrize("kind", ["proto", "json"])
@pytest.mark.parametrize("signal", otlp.SIGNALS, ids=str)
def test_http_codings_of_the_exporter(braid, sink, tap, signal, kind, coding):
    check_coding(braid, sink, tap, signal, kind, coding)
    [call] = sink.of(signal)
    assert call.headers.get("content-encoding", "none") == coding
    assert call.headers["content-type"] == (otlp.JSON if kind == "json" else otlp.PROTOBUF)


@pytest.mark.parametrize("coding", ["none", "gzip"])
@pytest.mark.parametrize("signal", otlp.SIGNALS, ids=str)
def test_grpc_codings_of_the_exporter(braid, sink, tap, signal, coding):
    check_coding(braid, sink, tap, signal, "grpc", coding)


def test_zstd_over_grpc(braid, sink, tap):
    """grpcio knows no zstd, so one Braid sends it to another."""
    second = braid(pipelines(exporter("grpc", sink)))
    check_coding(braid, sink, tap, otlp.TRACES, "grpc", "zstd", far=second)


def check_coding(braid, sink, tap, signal, kind, coding, far=None):
    """What arrives is what was sent, and few bytes cross the wire when they are compressed."""
    wire = tap(getattr(far or sink, "grpc" if kind == "grpc" else "http"))
    server = braid(pipelines(exporter(kind, wire, compression=coding)))
    request = otlp.request_of(signal, 20, size=10_000)
    clients.grpc(server.grpc, signal, request.SerializeToString()).expect_ok()
    sink.wait(signal, 20)
    [call] = sink.of(signal)
    if signal is otlp.TRACES:
        assert call.message == request
    else:
        assert profile_view.samples(call.message) == profile_view.samples(request)
    size = request.ByteSize()
    assert wire.n_sent < size / 4 if coding != "none" else wire.n_sent >= size
