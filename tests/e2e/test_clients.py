# SPDX-License-Identifier: Apache-2.0
"""Data of the official SDKs arrives complete, through every exporter and compression."""

import pytest

import clients
import otlp
import profile_view
import scene
from braid import EXPORTERS, exporter, pipelines
from scene import PROFILE_TRANSPORTS, TRACE_CLIENTS

BATCH = {"batch": {"timeout": "50ms"}}


def send_profiles(transport, braid, coding="none"):
    return scene.send_profiles(transport, braid.grpc if transport == "grpc" else braid.http, coding)


@pytest.mark.parametrize("processors", [None, BATCH], ids=["direct", "batch"])
@pytest.mark.parametrize("kind", EXPORTERS)
@pytest.mark.parametrize("client", TRACE_CLIENTS)
def test_traces(braid, sink, client, kind, processors):
    server = braid(pipelines(exporter(kind, sink), processors=processors))
    sent = scene.send_traces(client, server)
    scene.check(sink.wait(otlp.TRACES, 102), client.split("-")[0], set(sent))
    server.stop()


@pytest.mark.parametrize("client", TRACE_CLIENTS)
def test_compressed_by_the_client(braid, sink, client):
    server = braid(pipelines(exporter("grpc", sink)))
    sent = scene.send_traces(client, server, "gzip")
    scene.check(sink.wait(otlp.TRACES, 102), client.split("-")[0], set(sent))


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
def test_profiles_are_exported_with_inline_attributes(braid, sink, transport):
    """Collectors before 0.161 and Pyroscope cannot resolve key_strindex in a resource."""
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
    """grpcio does not support zstd, so one Braid sends it to another."""
    second = braid(pipelines(exporter("grpc", sink)))
    check_coding(braid, sink, tap, otlp.TRACES, "grpc", "zstd", far=second)


def check_coding(braid, sink, tap, signal, kind, coding, far=None):
    """The data arrives unchanged, and compressed data takes few bytes on the wire."""
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
