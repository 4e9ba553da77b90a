# SPDX-License-Identifier: Apache-2.0
"""Profiles that need interpretation: times in another unit, counts of periods, samples that name several spans."""

import json
import pathlib
import time

import pytest

import clients
import otlp
import shop
from braid import pipelines, until
from otlp import PROFILES, TRACES
from shop import CPU, MS, SPAN, START, TRACE

DATA = pathlib.Path(__file__).parents[1] / "data" / "async-profiler"
RANGE = {"start": START // MS - 1000, "end": START // MS + 1000}


@pytest.fixture
def storing(braid, tmp_path):
    """A server with a join and a store."""
    return braid(pipelines({"store": {"directory": str(tmp_path / "data")}}, processors={"join": {}},
                           extensions={"query": {"endpoint": "127.0.0.1:0"}}))


def fetch(server, path, **params):
    query = "&".join(f"{key}={value}" for key, value in params.items())
    answer = clients.http(server.address("http", "extension/query"), f"/api/braid/{path}?{query}", None, None, method="GET")
    assert answer.code == 200, answer.body
    return json.loads(answer.body)


@pytest.mark.parametrize("unit", [1000, 1_000_000, 1_000_000_000], ids=["microseconds", "milliseconds", "seconds"])
def test_times_in_another_unit(braid, sink, unit):
    """The times are converted to the present, and counted; the log reports it once."""
    server = braid(pipelines({"otlp": {"endpoint": sink.grpc, "tls": {"insecure": True}}}))
    now = time.time_ns() // 1_000_000_000
    for n in range(2):
        made = shop.Profiles().add("shop", "main;work", 3)
        profile = made.request.resource_profiles[0].scope_profiles[0].profiles[0]
        profile.time_unix_nano = now * 1_000_000_000 // unit
        for sample in profile.samples:
            sample.timestamps_unix_nano[0] = now * 1_000_000_000 // unit
        clients.grpc(server.grpc, PROFILES, made.request.SerializeToString()).expect_ok()
    sink.wait(PROFILES, 6)
    for call in sink.of(PROFILES):
        profile = call.message.resource_profiles[0].scope_profiles[0].profiles[0]
        assert profile.time_unix_nano == now * 1_000_000_000
        assert {stamp for sample in profile.samples for stamp in sample.timestamps_unix_nano} == {now * 1_000_000_000}
    assert sum(server.metrics()["braid_receiver_corrected_times"].values()) == 2
    assert server.log().count("profiles have times before 1971") == 1


def test_a_profile_without_a_time(braid, sink):
    """It gets the time of its arrival, and so is visible."""
    server = braid(pipelines({"otlp": {"endpoint": sink.grpc, "tls": {"insecure": True}}}))
    made, before = shop.Profiles().add("shop", "main;work", 1), time.time_ns()
    profile = made.request.resource_profiles[0].scope_profiles[0].profiles[0]
    profile.ClearField("time_unix_nano")
    del profile.samples[0].timestamps_unix_nano[:]
    clients.grpc(server.grpc, PROFILES, made.request.SerializeToString()).expect_ok()
    sink.wait(PROFILES, 1)
    (call,) = sink.of(PROFILES)
    assert before <= call.message.resource_profiles[0].scope_profiles[0].profiles[0].time_unix_nano <= time.time_ns()


def test_counts_of_async_profiler(storing):
    """itimer:count with a period of 10 ms is CPU time: 3.03 s of it."""
    clients.http(storing.http, PROFILES.path, (DATA / "itimer.otlp").read_bytes(), "application/x-protobuf").expect_ok()

    def service():
        found = fetch(storing, "services", start=0, end=4102444800000)["services"]
        return next((each for each in found if each["name"] == "javasvc"), None)
    assert until(service)["profile_types"] == [CPU]
    profile = fetch(storing, "profile", query='%7Bservice_name%3D%22javasvc%22%7D', type=CPU, start=0, end=4102444800000)
    assert profile["flamebearer"]["numTicks"] == 3_030_000_000


def test_a_sample_of_several_spans(storing):
    """It is not attributed to any span, and join health gives the reason."""
    clients.grpc(storing.grpc, TRACES, shop.spans().SerializeToString()).expect_ok()
    made = shop.Profiles().add("shop", "main;work", 4)
    for name in ("checkout", "price"):
        made.label("span_id", SPAN[name].hex())
        made.label("trace_id", TRACE.hex())
    clients.grpc(storing.grpc, PROFILES, made.request.SerializeToString()).expect_ok()
    until(lambda: fetch(storing, "status")["store"]["samples"] >= 4, "the samples")
    health = {each["name"]: each for each in fetch(storing, "join", **RANGE)["services"]}["shop"]
    assert (health["samples"], health["samples_with_span"], health["samples_ambiguous"]) == (4, 0, 4)
    assert health["hint"].startswith("100 % of the samples name several spans at once")
    metrics = storing.metrics()
    assert sum(metrics["braid_join_samples_ambiguous"].values()) == 4
    assert sum(metrics.get("braid_join_samples_unlinked", {}).values()) == 0


def test_a_client_of_the_other_protocol(braid, sink):
    """SDKs differ in their default protocol: the answer and the log name the right port, in both
    directions."""
    server = braid(pipelines({"otlp": {"endpoint": sink.grpc, "tls": {"insecure": True}}}))
    answer = clients.http(server.grpc, TRACES.path, b"", "application/x-protobuf")
    assert answer.code == 415 and b"send OTLP over HTTP to 127.0.0.1:" in answer.body
    headers, _ = clients.raw_grpc(server.http, TRACES.method, b"", {})
    assert headers["grpc-status"] == "12" and "send OTLP over gRPC to 127.0.0.1:" in headers["grpc-message"]
    server.wait_log("this port accepts OTLP over gRPC; send OTLP over HTTP to 127.0.0.1:")
