# SPDX-License-Identifier: Apache-2.0
"""Receiver pyroscope in the running service: requests as the SDKs send them, over each transport.
The resulting OTLP is read from the file exporter's output by the official classes."""

import base64
import gzip
import http.client
import itertools
import json
import pathlib
import struct
import time
import zlib

import grpc as grpcio
import pytest
import zstandard

import clients
import otlp
import pprof
import profile_view
from braid import until
from ingest import (ID, NODE, OCTETS, START_NS, STACKS, Server, check_one, chunked, config, every, flat,
                    form, http1, ingest_path, make_pprof, push_request)
from otlp import PROFILES
from pyroscope import PUSH_PATH, Pyroscope

DATA = pathlib.Path(__file__).parents[1] / "data"


@pytest.fixture
def server(braid, tmp_path):
    path = tmp_path / "profiles.json"
    return Server(braid(config(path)), path)


# --- /ingest -------------------------------------------------------------------------------------

@every
def test_python_0_8(server, send):
    """pyroscope-io before 1.0: a gzip'd pprof, declared again in Content-Encoding. For spies of
    scripting languages the real server prepends the file's name to a function's, unless its path
    is absolute."""
    path = ingest_path("shop{env=prod}", **{"from": 1767225600, "until": 1767225610},
                       format="pprof", sampleRate=100, spyName="pyspy")
    body = gzip.compress(make_pprof(time_ns=START_NS // 1000))  # its times are microseconds
    answer = send(server.address, path, body, {"Content-Type": OCTETS, "Content-Encoding": "gzip"})
    assert (answer.code, answer.body) == (200, b"")
    named = {("app.py work", "app.py main"): [10_000_000], ("app.py main", ): [30_000_000]}
    resource, profile = check_one(server.take(), "shop", stacks=named)
    assert resource == {"service.name": "shop", "env": "prod", "pyroscope_spy": "pyspy",
                        "__delta__": "false"}
    assert profile.time_unix_nano == START_NS


@every
def test_gzip_inside_gzip(server, send):
    body = gzip.compress(gzip.compress(make_pprof()))
    answer = send(server.address, ingest_path("shop", format="pprof"), body,
                  {"Content-Type": OCTETS, "Content-Encoding": "gzip"})
    assert answer.code == 200
    check_one(server.take(), "shop")


@every
def test_go(server, send):
    """pyroscope-go: a form without a format; the suffix and the session's id are kept."""
    types = {"contentions": {"units": "lock_samples", "display-name": "block_count",
                             "aggregation": "sum", "cumulative": False, "sampled": False},
             "delay": {"units": "lock_nanoseconds", "display-name": "block_duration"}}
    body = make_pprof(("contentions", "count"), ("delay", "nanoseconds"), values=((1, 10), (3, 30)))
    kind, data = form(profile=gzip.compress(body), sample_type_config=json.dumps(types).encode())
    name = "shop.api{__session_id__=abc,otel.scope.name=x,__hidden__=y}"
    path = ingest_path(name, **{"from": START_NS, "until": START_NS - 5, "units": "",
                                "aggregationType": "", "spyName": "gospy", "sampleRate": 0})
    assert send(server.address, path, data, {"Content-Type": kind}).code == 200
    first, second = flat(server.take())
    assert first[0] == second[0] == {
        "service.name": "shop.api", "__session_id__": "abc", "otel.scope.name": "x",
        "pyroscope_spy": "gospy", "__delta__": "false"}
    assert first[1:4] == ("block", "contentions", "count")
    assert second[1:4] == ("block", "delay", "nanoseconds")
    assert first[5] == {("work", "main"): [1], ("main", ): [3]}
    assert second[5] == {("work", "main"): [10], ("main", ): [30]}


@every
@pytest.mark.parametrize("as_form", [False, True], ids=["raw", "form"])
def test_node(server, send, as_form):
    """@pyroscope/nodejs: 0.6 raw, 0.4 in a form."""
    body = gzip.compress(make_pprof(("wall", "nanoseconds")))
    kind, data = form(profile=body) if as_form else ("application/octet-stream", body)
    query = {} if as_form else {"format": "pprof"}
    path = ingest_path("shop", "/pyroscope/ingest", spyName="nodespy", **query)
    assert send(server.address, path, data, {"Content-Type": kind}).code == 200
    check_one(server.take(), "shop", "wall", ("wall", "nanoseconds"))


FOLDED = b"main;work 1\nmain 3\n"


@every
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("encoding", [None, "gzip", "zstd"])
def test_folded(server, send, pack, encoding):
    """py-spy's raw output in every compression; the real server loses the content of gzip'd text."""
    data = pack(FOLDED)
    if encoding:
        data = gzip.compress(data) if encoding == "gzip" else zstandard.compress(data)
    headers = {"Content-Encoding": encoding} if encoding else {}
    path = ingest_path("shop.itimer", **{"from": "now-10s", "sampleRate": 100})
    before = time.time_ns()
    assert send(server.address, path, data, headers).code == 200
    _, profile = check_one(server.take(), "shop")  # 1 and 3 samples at 100 Hz
    assert before - 11 * 10**9 < profile.time_unix_nano < time.time_ns() - 9 * 10**9


def test_every_percent_escape(server):
    path = ingest_path("shop{process.runtime.version=17.0.15+6,a=b c/d%}")
    assert http1(server.address, path, FOLDED, {}).code == 200
    resource, _ = check_one(server.take(), "shop")
    assert resource["process.runtime.version"] == "17.0.15+6"
    assert resource["a"] == "b c/d%"


@pytest.mark.parametrize("path, body, kind, code, word", [
    ("/ingest", FOLDED, OCTETS, 400, "invalid_argument"),
    (ingest_path("my.weird.app"), FOLDED, OCTETS, 400, "invalid_argument"),
    (ingest_path("{a=b}"), FOLDED, OCTETS, 400, "invalid_argument"),
    (ingest_path("a b"), FOLDED, OCTETS, 400, "invalid_argument"),
    (ingest_path("a{b-c=d}"), FOLDED, OCTETS, 400, "invalid_argument"),
    (ingest_path("a"), b"main one\n", OCTETS, 422, "unknown"),
    (ingest_path("a", format="tree"), b"\x00\x00\x01", OCTETS, 422, "unknown"),
    (ingest_path("a", format="trie"), b"\xff", OCTETS, 422, "unknown"),
    (ingest_path("a", format="pprof"), gzip.compress(make_pprof())[:-9], OCTETS, 422, "unknown"),
    (ingest_path("a", format="pprof"), make_pprof()[:-1], OCTETS, 422, "unknown"),
    (ingest_path("a"), b"--x\r\n\r\n--x--", "multipart/form-data; boundary=x", 422, "unknown"),
    (ingest_path("a"), b"--x--", "multipart/form-data", 422, "unknown"),
    (ingest_path("a"), form(other=make_pprof())[1], "multipart/form-data; boundary=x", 422, "unknown"),
    (ingest_path("a"), *reversed(form(profile=b"no pprof")), 422, "unknown"),
    (ingest_path("a"), *reversed(form(profile=make_pprof(), prev_profile=b"x")), 422, "unknown"),
    (ingest_path("a"), *reversed(form(profile=make_pprof(), sample_type_config=b"[")), 422, "unknown"),
    (ingest_path("a", format="jfr"), *reversed(form(profile=make_pprof())), 422, "unknown"),
    (ingest_path("a", format="jfr"), *reversed(form(jfr=b"FLR\0")), 422, "unknown"),
    (ingest_path("a", format="pprof"), b"no pprof", OCTETS, 422, "unknown"),
    (ingest_path("a", format="jfr"), b"no jfr", OCTETS, 422, "unknown"),
    (ingest_path("a"), b"no form", "multipart/form-data; boundary=x", 422, "unknown"),
    (ingest_path("a", format="speedscope"), b"{}", OCTETS, 422, "unknown"),
])
@every
def test_refused(server, send, path, body, kind, code, word):
    answer = send(server.address, path, body, {"Content-Type": kind})
    assert answer.code == code
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.body)["code"] == word and json.loads(answer.body)["message"]
    assert server.requests() == []


# --- push.v1 -------------------------------------------------------------------------------------

LABELS = {"__name__": "process_cpu", "service_name": "shop", "region": "eu"}


def pushed():
    return push_request((LABELS, [(gzip.compress(make_pprof()), str(ID)),
                                  (make_pprof(labels={"span_id": "00f067aa0ba902b7"}), "")]),
                        ({"__name__": "memory"}, [(make_pprof(("inuse_space", "bytes")), "x")]))


def check_pushed(request):
    profiles = flat(request)
    assert [each[1] for each in profiles] == ["process_cpu", "process_cpu", "memory"]
    assert all(each[5] == STACKS for each in profiles)
    assert profiles[0][0] == {"service.name": "shop", "region": "eu"}
    assert profiles[2][0] == {"service.name": "unknown_service"}
    assert [each[4].profile_id for each in profiles] == [ID.bytes, b"", b""]
    links = request.dictionary.link_table
    found = {links[sample.link_index].span_id for sample in profiles[1][4].samples}
    assert found == {bytes.fromhex("00f067aa0ba902b7")}


@every
@pytest.mark.parametrize("encoding", [None, "gzip"])
def test_push_connect(server, send, encoding):
    """pyroscope-rs and so Python 1.x: proto with Content-Encoding gzip."""
    data = pushed().SerializeToString()
    headers = {"Content-Type": "application/proto", "Connect-Protocol-Version": "1"}
    if encoding:
        data, headers["Content-Encoding"] = gzip.compress(data), encoding
    answer = send(server.address, PUSH_PATH, data, headers)
    assert (answer.code, answer.body) == (200, b"")
    assert answer.headers["content-type"] == "application/proto"
    check_pushed(server.take())


@pytest.mark.parametrize("labels, marked", [({}, True), ({"__delta__": "false"}, False), ({"__delta__": "x"}, True)])
def test_cumulative_types_of_a_push_are_marked(server, labels, marked):
    """Pyroscope takes counts of Go's runtime for totals since the start, unless
    `__delta__="false"` is set."""
    series = {"__name__": "memory", "service_name": "shop", **labels}
    data = [make_pprof((kind, "bytes")) for kind in ("alloc_space", "inuse_space")]
    body = push_request((series, [(each, "") for each in data])).SerializeToString()
    assert http1(server.address, PUSH_PATH, body, {"Content-Type": "application/proto"}).code == 200
    request = server.take()
    texts, attributes = request.dictionary.string_table, request.dictionary.attribute_table
    found = {texts[profile.sample_type.type_strindex]:
             [texts[attributes[i].key_strindex] for i in profile.attribute_indices]
             for *_, profile in (each[:5] for each in flat(request))}
    assert found == {"alloc_space": ["pprof.profile.cumulative"] if marked else [], "inuse_space": []}


def test_a_bad_sample_is_dropped_alone(server):
    """As in Pyroscope: a sample that refers to a missing location, or has too few values, is left
    out of its profile and counted."""
    profile = pprof.parse(make_pprof())
    profile.sample.add(location_id=[99], value=[1] * len(profile.sample_type))
    profile.sample.add(location_id=[0], value=[1] * len(profile.sample_type))
    profile.sample.add(value=[1] * (len(profile.sample_type) + 1))
    body = push_request((LABELS, [(profile.SerializeToString(), "")])).SerializeToString()
    assert http1(server.address, PUSH_PATH, body, {"Content-Type": "application/proto"}).code == 200
    assert [each[5] for each in flat(server.take())] == [STACKS]
    failed = server.process.metrics()["otelcol_receiver_failed_profile_samples"]
    assert sum(failed.values()) == 3
    server.process.wait_log("location 99 is not in the profile")


def test_an_invalid_string_reference_loses_only_its_text(server):
    """A comment that is missing in the string table, and two functions with one id: the real
    Pyroscope (2.x) accepts both, and shows the last function of an id."""
    profile = pprof.parse(make_pprof())
    profile.comment.append(999)
    profile.string_table.append("other")
    profile.function.add(id=2, name=len(profile.string_table) - 1)
    body = push_request((LABELS, [(profile.SerializeToString(), "")])).SerializeToString()
    assert http1(server.address, PUSH_PATH, body, {"Content-Type": "application/proto"}).code == 200
    assert [each[5] for each in flat(server.take())] == [{tuple(name.replace("work", "other") for name in stack): value
                                                          for stack, value in STACKS.items()}]
    metrics = server.process.metrics()
    assert sum(metrics["braid_receiver_pprof_strays"].values()) == 2
    assert sum(metrics["otelcol_receiver_failed_profile_samples"].values()) == 0
    server.process.wait_log("2 invalid references were ignored: pprof: two functions have the id 2")


@every
@pytest.mark.parametrize("raw_name", ["rawProfile", "raw_profile"])
def test_push_connect_json(server, send, raw_name):
    tree = {"series": [{
        "labels": [{"name": name, "value": value} for name, value in LABELS.items()],
        "samples": [{raw_name: base64.b64encode(make_pprof()).decode(), "ID": str(ID)}]}]}
    answer = send(server.address, PUSH_PATH, json.dumps(tree).encode(),
                  {"Content-Type": "application/json"})
    assert (answer.code, answer.body) == (200, b"{}")
    assert answer.headers["content-type"] == "application/json"
    _, profile = check_one(server.take(), "shop")
    assert profile.profile_id == ID.bytes


@pytest.mark.parametrize("compression", [None, grpcio.Compression.Gzip], ids=["plain", "gzip"])
def test_push_grpc(server, compression):
    clients.grpc(server.address, None, pushed().SerializeToString(), method=PUSH_PATH,
                 compression=compression).expect_ok()
    check_pushed(server.take())


@every
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_push_grpc_web(server, send, packed):
    data = pushed().SerializeToString()
    body = clients.frame(gzip.compress(data) if packed else data, packed)
    headers = {"Content-Type": "application/grpc-web+proto", "X-Grpc-Web": "1"}
    if packed:
        headers["Grpc-Encoding"] = "gzip"
    answer = send(server.address, PUSH_PATH, body, headers)
    assert answer.code == 200 and answer.headers["content-type"] == "application/grpc-web+proto"
    frames = split_frames(answer.body)
    assert frames == [(0, b""), (0x80, b"grpc-status: 0\r\n")]
    check_pushed(server.take())


def split_frames(body):
    """Returns the frames of a gRPC-Web body: (flags, payload)."""
    frames = []
    while body:
        flags, size = struct.unpack(">BI", body[:5])
        assert len(body) >= 5 + size
        frames.append((flags, body[5:5 + size]))
        body = body[5 + size:]
    return frames


@pytest.mark.parametrize("series, words", [
    ([], "no profiles received"),
    ([({"service_name": "a"}, [(make_pprof(), "")])], "metric name"),
    ([(LABELS, [(b"no pprof", "")])], "samples[0]"),
])
@every
def test_push_refused(server, send, series, words):
    data = push_request(*series).SerializeToString()
    answer = send(server.address, PUSH_PATH, data, {"Content-Type": "application/proto"})
    assert answer.code == 400
    assert json.loads(answer.body)["code"] == "invalid_argument"
    assert words in json.loads(answer.body)["message"]
    refusal = clients.grpc(server.address, None, data, method=PUSH_PATH)
    assert refusal.code == "INVALID_ARGUMENT" and words in refusal.message
    frames = split_frames(send(server.address, PUSH_PATH, clients.frame(data),
                               {"Content-Type": "application/grpc-web"}).body)
    assert [flags for flags, _ in frames] == [0x80]
    assert b"grpc-status: 3\r\n" in frames[0][1]
    assert server.requests() == []


@every
def test_push_with_an_invalid_series_keeps_the_others(server, send):
    """As with the real server valid series are kept, and the answer is an error that names the
    first invalid one."""
    data = push_request((LABELS, [(make_pprof(), ""), (b"no pprof", ""), (gzip.compress(make_pprof())[:-9], "")]),
                        ({"service_name": "nameless"}, [(make_pprof(), "")]),
                        ({"__name__": "memory"}, [(make_pprof(("inuse_space", "bytes")), "")])).SerializeToString()
    answer = send(server.address, PUSH_PATH, data, {"Content-Type": "application/proto"})
    assert answer.code == 400 and json.loads(answer.body)["code"] == "invalid_argument"
    assert json.loads(answer.body)["message"].startswith("3 of the profiles were rejected")
    assert "series[0].samples[1]" in json.loads(answer.body)["message"]
    found = flat(server.take())
    assert [(each[0]["service.name"], each[1]) for each in found] == [
        ("shop", "process_cpu"), ("unknown_service", "memory")]
    assert all(each[5] == STACKS for each in found)
    refusal = clients.grpc(server.address, None, data, method=PUSH_PATH)
    assert refusal.code == "INVALID_ARGUMENT" and "series[0].samples[1]" in refusal.message
    frames = split_frames(send(server.address, PUSH_PATH, clients.frame(data),
                               {"Content-Type": "application/grpc-web"}).body)
    assert [flags for flags, _ in frames] == [0x80] and b"grpc-status: 3\r\n" in frames[0][1]
    assert len(server.requests()) == 3
    metrics = server.process.metrics()
    assert sum(metrics["otelcol_receiver_accepted_profile_samples"].values()) == 3 * 4
    assert sum(metrics["otelcol_receiver_failed_profile_samples"].values()) == 3 * 3


def test_tenants_are_not_mixed(braid, tmp_path):
    path = tmp_path / "profiles.json"
    tree = config(path, receiver={"tenant_header": "X-Org"})
    tree["processors"] = {"batch": {"timeout": "200ms", "metadata_keys": ["x-scope-orgid"]}}
    tree["service"]["pipelines"]["profiles"]["processors"] = ["batch"]
    server = Server(braid(tree), path)
    for tenant, name in (("a", "one"), ("b", "two"), ("a", "three"), (None, "four")):
        headers = {"X-Org": tenant} if tenant else {}
        assert http1(server.address, ingest_path(name), FOLDED, headers).code == 200
    until(lambda: len(server.requests()) == 3, "a batch for each tenant")
    batches = [[each[0]["service.name"] for each in flat(request)] for request in server.requests()]
    assert sorted(batches) == [["four"], ["one", "three"], ["two"]]


# --- Forwarding to Pyroscope ---------------------------------------------------------------------

BLOCK = json.dumps({"contentions": {"display-name": "block_count"}, "delay": {"display-name": "block_duration"}})


@pytest.mark.parametrize("name, types", [
    ("cpu", None), ("goroutine", None), ("heap", None), ("allocs", None), ("mutex", None), ("block", BLOCK),
    ("threadcreate", None)])
def test_pushes_are_forwarded_to_pyroscope_unchanged(braid, pyroscope, name, types):
    """Directly and through Braid the same data is stored: series, names, types, stacks, values,
    spans."""
    profile = pprof.parse((DATA / "pprof" / f"{name}.pb.gz").read_bytes())
    profile.time_nanos = time.time_ns()  # old times would be rejected
    fields = {"profile": gzip.compress(profile.SerializeToString())}
    kind, body = form(**fields, **({"sample_type_config": types.encode()} if types else {}))
    path = ingest_path("shop.api{env=prod,otel.scope.name=x,service.name=tag,__session_id__=7}", spyName="gospy")
    other = Pyroscope()
    try:
        assert http1(other.address, path, body, {"Content-Type": kind}).code == 200
        direct = other.stored()
    finally:
        other.close()
    assert direct
    exporters = {"pyroscope": {"endpoint": pyroscope.url}}
    process = braid(config(None, exporters=exporters))
    assert http1(process.address("http", NODE), path, body, {"Content-Type": kind}).code == 200
    pyroscope.wait(1)
    through = pyroscope.stored()
    assert +through == +direct


# --- OTLP, and the rest of the port --------------------------------------------------------------

@pytest.mark.parametrize("kind", ["application/x-protobuf", "application/protobuf",
                                  "application/x-protobuf; charset=utf-8", "application/json"])
@every
def test_otlp_over_http(server, send, kind):
    request = otlp.request_of(PROFILES, 2)
    data = otlp.to_json(request) if kind == otlp.JSON else request.SerializeToString()
    assert send(server.address, PROFILES.path, data, {"Content-Type": kind}).code == 200
    assert server.take() == request


def test_otlp_over_grpc(server):
    request = otlp.request_of(PROFILES, 2)
    clients.grpc(server.address, PROFILES, request.SerializeToString()).expect_ok()
    assert server.take() == request
    answer = clients.grpc(server.address, otlp.TRACES, b"")
    assert answer.code == "UNIMPLEMENTED"


@every
def test_paths_and_methods(server, send):
    assert send(server.address, "/ready", b"", {}, "GET").code == 200
    answer = send(server.address, "/ingest?name=a", b"", {}, "GET")
    assert answer.code == 405 and answer.headers["allow"] == "POST"
    assert send(server.address, PUSH_PATH, b"", {"Content-Type": "application/x-protobuf"}).code == 415
    assert send(server.address, "/v1/profiles", b"", {}).code == 404
    assert send(server.address, PUSH_PATH, b"x", {"Content-Type": "application/proto",
                                                  "Content-Encoding": "br"}).code == 501


@every
def test_an_unavailable_destination_gives_a_retryable_status(braid, tmp_path, send):
    exporters = {"otlp": {"endpoint": "127.0.0.1:1", "tls": {"insecure": True},
                          "sending_queue": {"enabled": False},
                          "retry_on_failure": {"enabled": False}}}
    server = Server(braid(config(None, exporters=exporters)), tmp_path / "none")
    answer = send(server.address, ingest_path("shop"), FOLDED, {})
    assert answer.code == 503 and int(answer.headers["retry-after"]) >= 1
    answer = send(server.address, PUSH_PATH, pushed().SerializeToString(),
                  {"Content-Type": "application/proto"})
    assert answer.code == 503 and json.loads(answer.body)["code"] == "unavailable"
    assert int(answer.headers["retry-after"]) >= 1
    refused = server.process.metrics()["otelcol_receiver_refused_profile_samples"]
    assert sum(refused.values()) == 2 + 6


def test_requests_on_one_connection(server):
    """Invalid requests do not affect the valid ones between them."""
    connection = http.client.HTTPConnection(server.address, timeout=30)
    for number in range(20):
        body = FOLDED if number % 2 else b"\xff\xfe no count"
        connection.request("POST", ingest_path(f"shop{number}"), body)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == (200 if number % 2 else 422)
    connection.close()
    names = [flat(request)[0][0]["service.name"] for request in server.requests()]
    assert names == [f"shop{number}" for number in range(1, 20, 2)]


def test_ledger_balances(server):
    for body, code in ((FOLDED, 200), (b"", 200)):
        assert http1(server.address, ingest_path("shop"), body, {}).code == code
    clients.grpc(server.address, None, pushed().SerializeToString(), method=PUSH_PATH).expect_ok()
    metrics = server.process.metrics()["otelcol_receiver_accepted_profile_samples"]
    by = {transport: sum(value for labels, value in metrics.items()
                         if f'transport="{transport}"' in labels) for transport in ("http", "grpc")}
    assert by == {"http": 2, "grpc": 6}
    assert server.process.ledger("profiles")["received"] == 8
