# SPDX-License-Identifier: Apache-2.0
"""Tempo's API of the extension query: OTLP is stored, and queried as Grafana's Tempo data source
does.

The trace `CHECKOUT`, whose id begins with zeros:

    0 shop      GET /cart   server   1000 ms  ok     (root)
    1   shop      charge    client    600 ms  error  attempt 1
    2     payments  charge  server    500 ms         attempt 2, an event
    3       payments  query client    100 ms
    4   shop      render    internal  200 ms

and `OTHER`, five seconds before it: one span `GET /` of `front`, 50 ms.
"""

import base64
import concurrent.futures
import datetime
import gzip
import http.client
import json
import subprocess
import time
import urllib.parse

import grpc
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service
from opentelemetry.proto.trace.v1 import trace_pb2 as otlp_trace

import clients
import otlp
import raw
import tempo
import tempopb
import wire
from braid import BINARY, DEADLINE_S, WORKERS, Braid, pipelines

MS = 1_000_000
BASE = (int(time.time()) // 10 * 10 - 60) * 1_000_000_000  # a multiple of ten seconds, so that steps begin with it
CHECKOUT = bytes.fromhex("000f7651916cd43dd8448eb211c80319")
OTHER = bytes.fromhex("5b8efff798038103d269b633813fc60c")
KINDS = otlp_trace.Span.SpanKind


def span_id(number):
    return bytes([0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, number])


def span(number, parent, name, kind, at_ms, ms, status=0, trace=CHECKOUT, **attributes):
    return otlp_trace.Span(
        trace_id=trace, span_id=span_id(number), parent_span_id=span_id(parent) if parent else b"", name=name,
        kind=kind, start_time_unix_nano=BASE + at_ms * MS, end_time_unix_nano=BASE + (at_ms + ms) * MS,
        status=otlp_trace.Status(code=status, message="card refused" if status == 2 else ""),
        attributes=[otlp.attribute(key.replace("__", "."), value) for key, value in attributes.items()])


def request():
    event = otlp_trace.Span.Event(name="exception", time_unix_nano=BASE + 157 * MS,
                                  attributes=[otlp.attribute("exception.type", "Timeout")])
    message = service.ExportTraceServiceRequest()
    for name, spans in (
            ("shop", [span(1, 0, "GET /cart", KINDS.SPAN_KIND_SERVER, 0, 1000, 1, http__status_code=200),
                      span(2, 1, "charge", KINDS.SPAN_KIND_CLIENT, 100, 600, 2, attempt=1),
                      span(5, 1, "render", KINDS.SPAN_KIND_INTERNAL, 750, 200, ok=True)]),
            ("payments", [span(3, 2, "charge", KINDS.SPAN_KIND_SERVER, 150, 500, attempt=2),
                          span(4, 3, "query", KINDS.SPAN_KIND_CLIENT, 200, 100, db__statement='select "1"')]),
            ("front", [span(9, 0, "GET /", KINDS.SPAN_KIND_SERVER, -5000, 50, trace=OTHER)])):
        part = message.resource_spans.add()
        part.resource.attributes.append(otlp.attribute("service.name", name))
        scope = part.scope_spans.add()
        scope.scope.name = "tests"
        scope.scope.attributes.append(otlp.attribute("language", "c"))
        scope.spans.extend(spans)
    message.resource_spans[2].scope_spans[0].spans[0].links.add(
        trace_id=CHECKOUT, span_id=span_id(1), attributes=[otlp.attribute("reason", "retry")])
    message.resource_spans[1].scope_spans[0].spans[0].events.append(event)
    return message


class Api:
    def __init__(self, server):
        self.server, self.address = server, server.address("http", "extension/query")

    def raw(self, path, method="GET", headers=None, body=None, **params):
        connection = http.client.HTTPConnection(self.address, timeout=DEADLINE_S)
        try:
            query = "?" + urllib.parse.urlencode(params) if params else ""
            connection.request(method, path + query, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def json(self, path, shape=None, **params):
        status, headers, body = self.raw(path, **params)
        assert status == 200, body
        assert headers["Content-Type"] == "application/json"
        answer = json.loads(body)
        return tempo.check(answer, shape) if shape else answer

    def error(self, path, status=400, **params):
        got, headers, body = self.raw(path, **params)
        assert got == status, body
        assert headers["Content-Type"].startswith("text/plain")
        return body.decode().rstrip("\n")

    def search(self, q=None, **params):
        """Returns {trace: numbers of the matched spans} of an answer."""
        if q is not None:
            params["q"] = q
        answer = self.json("/api/search", tempo.SEARCH, **{"spss": 100, **params})
        assert answer["metrics"]["completedJobs"] == answer["metrics"]["totalJobs"]
        found = {}
        for trace in answer["traces"]:
            [spans] = trace["spanSets"]
            assert trace["spanSet"] == spans and spans["matched"] == len(spans["spans"])
            name = {CHECKOUT: "checkout", OTHER: "other"}[bytes.fromhex(trace["traceID"].zfill(32))]
            found[name] = sorted(int(each["spanID"], 16) & 0xff for each in spans["spans"])
        return found


def config(folder, workers=WORKERS, **options):
    return pipelines({"store": {"directory": str(folder / "store")}},
                     extensions={"query": {"endpoint": "127.0.0.1:0", **options}}, workers=workers)


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    """The server of all tests that send no data."""
    folder = tmp_path_factory.mktemp("tempo")
    server = Braid(config(folder), folder / "braid")
    try:
        clients.grpc(server.grpc, otlp.TRACES, request().SerializeToString()).expect_ok()
        yield Api(server)
        server.stop()
    finally:
        server.kill()


def test_status_endpoints(api):
    assert api.raw("/api/echo")[::2] == (200, b"echo")
    assert api.raw("/ready")[::2] == (200, b"ready\n")
    assert api.json("/api/status/buildinfo")["version"].startswith("2.")
    assert api.raw("/api/nothing")[0] == 404
    assert api.raw("/api/search", method="DELETE")[0] == 405


def sent(trace_id):
    """Returns {span id: (service, span)} of the sent spans."""
    return {each.span_id: (part.resource.attributes[0].value.string_value, each)
            for part in request().resource_spans for scope in part.scope_spans for each in scope.spans
            if each.trace_id == trace_id}


def spans_of(resources):
    return {each.span_id: (part.resource.attributes[0].value.string_value, each)
            for part in resources for scope in part.scope_spans for each in scope.spans}


IDS = [CHECKOUT.hex(), CHECKOUT.hex().lstrip("0"), CHECKOUT.hex().upper(), urllib.parse.quote(base64.b64encode(CHECKOUT), "")]


@pytest.mark.parametrize("text", IDS, ids=["hex", "short", "upper", "base64"])
def test_returns_a_trace(api, text):
    """The whole trace is returned unchanged, in each of the four formats, read by the official
    classes."""
    status, headers, body = api.raw(f"/api/v2/traces/{text}", headers={"Accept": "application/protobuf"},
                                    start=int(BASE / 1e9) - 60, end=int(BASE / 1e9) + 60)
    assert (status, headers["Content-Type"]) == (200, "application/protobuf")
    length, at = wire.read_varint(body, 1)
    assert body[0] == 1 << 3 | 2 and at + length == len(body)  # field 1 and nothing else
    parsed = otlp_trace.TracesData.FromString(body[at:])
    assert spans_of(parsed.resource_spans) == sent(CHECKOUT)
    assert {scope.scope.name for part in parsed.resource_spans for scope in part.scope_spans} == {"tests"}

    status, headers, body = api.raw(f"/api/traces/{text}", headers={"Accept": "application/protobuf"})
    assert status == 200
    assert spans_of(otlp_trace.TracesData.FromString(body).resource_spans) == sent(CHECKOUT)

    answer = api.json(f"/api/v2/traces/{text}")
    assert set(answer) == {"trace", "metrics"} and set(answer["trace"]) == {"resourceSpans"}
    assert spans_of(json_format.ParseDict(answer["trace"], otlp_trace.TracesData()).resource_spans) == sent(CHECKOUT)

    answer = api.json(f"/api/traces/{text}")
    assert set(answer) == {"batches"}
    old = json_format.ParseDict({"resourceSpans": answer["batches"]}, otlp_trace.TracesData())
    assert spans_of(old.resource_spans) == sent(CHECKOUT)
    # As the documented script reads it: base64 ids, enums by name.
    first = answer["batches"][0]["scopeSpans"][0]["spans"][0]
    assert base64.b64decode(first["spanId"]) in sent(CHECKOUT)
    assert first["startTimeUnixNano"] == str(BASE) and first["kind"] == "SPAN_KIND_SERVER"
    assert first["status"] == {"code": "STATUS_CODE_OK"}


def test_reports_a_missing_trace(api):
    """Version 2 has the field nevertheless: the plugin fails with a nil trace. Version 1 answers
    404."""
    nothing = "11111111111111111111111111111111"
    status, _, body = api.raw(f"/api/v2/traces/{nothing}", headers={"Accept": "application/protobuf"})
    assert (status, body) == (200, b"\x0a\x00")
    assert api.json(f"/api/v2/traces/{nothing}") == {"trace": {}, "metrics": {}}
    assert api.error(f"/api/traces/{nothing}", 404) == "trace not found"
    for wrong in ("xyz", "1" * 33, "0"):
        assert "hex" in api.error(f"/api/v2/traces/{wrong}")


DOCUMENTS = """{
  resource.service.name = "shop"   # the service
  && name = "charge"
  && duration > 500ms
}"""


@pytest.mark.parametrize("q, expected", [
    ("{}", {"checkout": [1, 2, 3, 4, 5], "other": [9]}),
    (DOCUMENTS, {"checkout": [2]}),
    ('{resource.service.name="front"}', {"other": [9]}),
    ('{name="charge"}', {"checkout": [2, 3]}),
    ('{(.service.name = "payments" || .service.name = "front")}', {"checkout": [3, 4], "other": [9]}),
    ("{status = error}", {"checkout": [2]}),
    ("{nestedSetParent < 0}", {"checkout": [1], "other": [9]}),
    ("{nestedSetParent < 0 && span.http.status_code >= 200}", {"checkout": [1]}),
    ("{span.attempt = 2}", {"checkout": [3]}),
    ('{span.db.statement = "select \\"1\\""}', {"checkout": [4]}),
    ('{event.exception.type =~ "Time.*"}', {"checkout": [3]}),
    ("{span.attempt > minInt && span.attempt < maxInt}", {"checkout": [2, 3]}),
    ("{span.attempt < minInt || span.attempt > maxInt}", {}),
    ('{statusMessage = "card refused"}', {"checkout": [2]}),
    ('{rootServiceName = "shop" && kind = client}', {"checkout": [2, 4]}),
    ("{traceDuration < 1s}", {"other": [9]}),
    ('{name="GET /cart"} >> {name="query"}', {"checkout": [4]}),
    ('{name="GET /cart"} > {}', {"checkout": [2, 5]}),
    ('{name="render"} ~ {}', {"checkout": [2]}),
    ('{name="charge"} | count() = 2', {"checkout": [2, 3]}),
    ("{} | avg(duration) > 100ms", {"checkout": [1, 2, 3, 4, 5]}),
    ('{name="nowhere"}', {}),
])
def test_searches(api, q, expected):
    assert api.search(q) == expected


@pytest.mark.parametrize("params, expected", [
    ({"tags": "service.name=payments"}, {"checkout": [3, 4]}),
    ({"tags": "service.name=shop attempt=1"}, {"checkout": [2]}),
    ({"tags": 'db.statement="select \\"1\\""'}, {"checkout": [4]}),
    ({"tags": "ok=true"}, {"checkout": [5]}),
    ({"tags": "name=render"}, {"checkout": [5]}),
    ({"tags": "root.service.name=front"}, {"other": [9]}),
    ({"maxDuration": "999ms"}, {"other": [9]}),
    ({"minDuration": "1s"}, {"checkout": [1, 2, 3, 4, 5]}),
    ({}, {"checkout": [1, 2, 3, 4, 5], "other": [9]}),
])
def test_searches_by_tags(api, params, expected):
    assert api.search(**params) == expected


def test_describes_what_it_finds(api):
    """The exact format, with the queried fields as attributes."""
    second = BASE // 1_000_000_000
    answer = api.json("/api/search", tempo.SEARCH, q='{name="charge" && span.attempt > 0} | select(status, kind)',
                      limit=20, spss=1, start=second - 10, end=second + 10)
    [trace] = answer["traces"]
    assert trace["traceID"] == CHECKOUT.hex().lstrip("0")
    assert (trace["rootServiceName"], trace["rootTraceName"]) == ("shop", "GET /cart")
    assert (trace["startTimeUnixNano"], trace["durationMs"]) == (str(BASE), 1000)
    assert trace["serviceStats"] == {"shop": {"spanCount": 3, "errorCount": 1}, "payments": {"spanCount": 2}}
    [spans] = trace["spanSets"]
    assert spans["matched"] == 2
    [first] = spans["spans"]
    assert first["spanID"] == span_id(2).hex() and first["durationNanos"] == str(600 * MS)
    assert first["startTimeUnixNano"] == str(BASE + 100 * MS)
    assert tempo.attributes(first["attributes"]) == {"attempt": 1, "status": "error", "kind": "client"}


def test_respects_limits_and_ranges(api):
    second = BASE // 1_000_000_000
    assert api.search("{}", limit=1) == {"checkout": [1, 2, 3, 4, 5]}  # the newest
    assert api.search("{}", start=second - 10, end=second - 1) == {"other": [9]}
    assert api.search("{}", start=second, end=second) == {"checkout": [1, 2, 3, 4, 5]}
    assert api.search("{}", start=second + 2, end=second + 10) == {}
    assert api.search("{}", start=(second - 10) * 1000, end=(second - 1) * 1000) == {"other": [9]}
    early = {"other": [9]}
    for unit in (1_000, 1_000_000, 1_000_000_000):
        assert api.search("{}", start=(second - 10) * unit, end=(second - 1) * unit) == early
    stamp = datetime.datetime.fromtimestamp(second - 1, datetime.timezone.utc)
    assert api.search("{}", end=stamp.strftime("%Y-%m-%dT%H:%M:%SZ")) == early
    ahead = stamp.astimezone(datetime.timezone(datetime.timedelta(hours=2)))
    assert api.search("{}", end=ahead.strftime("%Y-%m-%dT%H:%M:%S.000+02:00")) == early
    assert api.search("{}", end=f"{second - 2}.5", start="now-1h") == early
    assert api.search("{}", start="now") == {} and len(api.search("{}", start="now-1h30m", end="now")) == 2
    for wrong in ("yesterday", "now-", "now-5", "now+1h", "-5", "1e9", "2026-01-01", "99999999999999999999999"):
        assert api.error("/api/search", q="{}", start=wrong).startswith("invalid start"), wrong
    assert "start must be before the end" in api.error("/api/search", q="{}", start=20, end=10)
    assert api.error("/api/search", q="{}", limit="x").startswith("invalid limit")


def test_lists_tags(api):
    answer = api.json("/api/v2/search/tags", tempo.TAGS_V2, limit=5000)
    scopes = {scope["name"]: scope["tags"] for scope in answer["scopes"]}
    assert scopes["resource"] == ["service.name"]
    assert sorted(scopes["span"]) == ["attempt", "db.statement", "http.status_code", "ok"]
    assert {"duration", "kind", "name", "rootName", "rootServiceName", "status", "statusMessage", "trace:duration",
            "span:id"} <= set(scopes["intrinsic"])
    assert scopes["event"] == ["exception.type"]
    assert scopes["instrumentation"] == ["language"]
    assert scopes["link"] == ["reason"]
    [only] = api.json("/api/v2/search/tags", tempo.TAGS_V2, scope="resource")["scopes"]
    assert only == {"name": "resource", "tags": ["service.name"]}
    old = api.json("/api/search/tags", tempo.TAGS_V1)
    assert sorted(old["tagNames"]) == ["attempt", "db.statement", "exception.type", "http.status_code", "language", "ok",
                                       "reason", "service.name"]


@pytest.mark.parametrize("tag, kind, expected", [
    ("resource.service.name", "string", ["front", "payments", "shop"]),
    (".service.name", "string", ["front", "payments", "shop"]),
    ("rootServiceName", "string", ["front", "shop"]),
    ("trace:rootName", "string", ["GET /", "GET /cart"]),
    ("statusMessage", "string", ["", "card refused"]),
    ("event:name", "string", ["exception"]),
    ("event.exception.type", "string", ["Timeout"]),
    ("instrumentation:name", "string", ["tests"]),
    ("trace:id", "string", []),
    ("name", "string", ["GET /", "GET /cart", "charge", "query", "render"]),
    ("span.attempt", "int", ["1", "2"]),
    ("span.ok", "bool", ["true"]),
    ("status", "keyword", ["error", "ok", "unset"]),
    ("kind", "keyword", ["client", "consumer", "internal", "producer", "server", "unspecified"]),
    ('span."db.statement"', "string", ['select "1"']),
    ("span.nowhere", "string", []),
    ("duration", "string", []),
])
def test_lists_values(api, tag, kind, expected):
    answer = api.json(f"/api/v2/search/tag/{urllib.parse.quote(tag)}/values", tempo.VALUES_V2, limit=5000, tag=tag)
    assert sorted(each.get("value", "") for each in answer["tagValues"]) == expected
    assert {each["type"] for each in answer["tagValues"]} <= {kind}
    old = api.json(f"/api/search/tag/{urllib.parse.quote(tag)}/values", tempo.VALUES_V1)
    assert sorted(old["tagValues"]) == expected


@pytest.mark.parametrize("tag, q, expected", [
    ("name", '{resource.service.name = "shop"}', ["GET /cart", "charge", "render"]),
    ("resource.service.name", '{name = "charge" && kind = client}', ["shop"]),
    (".service.name", '{name = "charge"}', ["payments", "shop"]),
    ("service.name", '{status = error}', ["shop"]),
    ("span.attempt", "{kind = server}", ["2"]),
    ("span.ok", "{kind = server}", []),
    ("rootName", '{name = "query"}', ["GET /cart"]),
    ("event.exception.type", '{name = "charge"}', ["Timeout"]),
    ("name", '{name = "GET /cart"} > {}', ["charge", "render"]),
    ("status", "{kind = server}", ["error", "ok", "unset"]),  # all values, as in Tempo
    # Queries that are empty, match everything, or are incomplete.
    ("span.attempt", "", ["1", "2"]),
    ("span.attempt", "{}", ["1", "2"]),
    ("span.attempt", "{ kind = }", ["1", "2"]),
])
def test_lists_values_of_matching_spans(api, tag, q, expected):
    answer = api.json(f"/api/v2/search/tag/{tag}/values", tempo.VALUES_V2, q=q)
    assert sorted(each["value"] for each in answer["tagValues"]) == expected


@pytest.mark.parametrize("q, expected", [
    ('{resource.service.name = "shop" && kind = ', ["GET /cart", "charge", "render"]),
    ('{resource.service.name = "shop" && kind = }', ["GET /cart", "charge", "render"]),
    ('{kind = && resource.service.name = "shop"}', ["GET /cart", "charge", "render"]),
    ('{(resource.service.name = "shop" && span."a b" =~', ["GET /cart", "charge", "render"]),
    ('{span.attempt > && name = "charge"', ["charge"]),
    ('{name = "a && b = " && kind = }', []),
    ("{kind = }", ["GET /", "GET /cart", "charge", "query", "render"]),
    ('{name = "charge" &&', ["GET /", "GET /cart", "charge", "query", "render"]),  # invalid query
    ("{" * 1000, ["GET /", "GET /cart", "charge", "query", "render"]),
    ('{name = "open', ["GET /", "GET /cart", "charge", "query", "render"]),
])
def test_lists_values_for_an_incomplete_query(api, q, expected):
    answer = api.json("/api/v2/search/tag/name/values", tempo.VALUES_V2, q=q)
    assert sorted(each["value"] for each in answer["tagValues"]) == expected


def test_distinguishes_values_by_type(api):
    answer = api.json("/api/v2/search/tag/.attempt/values", tempo.VALUES_V2, q="{kind = client}")
    assert answer["tagValues"] == [{"type": "int", "value": "1"}]
    answer = api.json("/api/v2/search/tag/span.ok/values", tempo.VALUES_V2, q="{kind = internal}", limit=1)
    assert answer["tagValues"] == [{"type": "bool", "value": "true"}]


def series_of(answer):
    return {tuple(sorted((key, str(value)) for key, value in tempo.attributes(each["labels"]).items())):
            {int(sample["timestampMs"]): sample["value"] for sample in each["samples"]} for each in answer["series"]}


def test_counts_over_time(api):
    """Six spans: one five seconds before BASE, one at BASE, four after it. A step ends at its time
    stamp."""
    second = BASE // 1_000_000_000
    first, before, after = (second - 10) * 1000, second * 1000, (second + 10) * 1000
    where = {"start": second - 10, "end": second + 10, "step": "10s"}

    def of(q):
        return series_of(api.json("/api/metrics/query_range", tempo.RANGE, q=q, **where))
    assert of("{} | count_over_time()") == {(("__name__", "count_over_time"),): {first: 0, before: 2, after: 4}}
    assert of("{} | rate()") == {(("__name__", "rate"),): {first: 0, before: 0.2, after: 0.4}}
    assert of('{name != "GET /"} | count_over_time() by (resource.service.name)') == {
        (("resource.service.name", "shop"),): {first: 0, before: 1, after: 2},
        (("resource.service.name", "payments"),): {first: 0, before: 0, after: 2}}
    assert of('{name="GET /cart"} >> {kind = client} | rate() by (name, span.attempt) with(exemplars=true)') == {
        (("name", "charge"), ("span.attempt", "1")): {first: 0, before: 0, after: 0.1},
        (("name", "query"), ("span.attempt", "nil")): {first: 0, before: 0, after: 0.1}}
    answer = api.json("/api/metrics/query_range", tempo.RANGE, q="{} | rate()", start=second - 10, end=second + 10)
    assert len(answer["series"][0]["samples"]) == 21  # the step is at least a second
    assert "steps" in api.error("/api/metrics/query_range", q="{} | rate()", **{**where, "step": "1ms"})
    assert "must be a metric" in api.error("/api/metrics/query_range", q="{}", **where)
    assert "/api/metrics/query_range" in api.error("/api/search", q="{} | rate()")


def exemplars_of(api, q, **params):
    """Returns (trace, value) of the exemplars of the only series."""
    second = BASE // 1_000_000_000
    where = {"start": second - 10, "end": second + 10, "step": "10s", **params}
    [only] = api.json("/api/metrics/query_range", tempo.RANGE, q=q, **where)["series"]
    found = []
    for exemplar in only.get("exemplars", []):
        labels = tempo.attributes(exemplar["labels"])
        assert sorted(labels) == ["span:id", "trace:id"] and len(labels["span:id"]) == 16
        assert BASE - 5000 * MS <= int(exemplar["timestampMs"]) * MS <= BASE + 1000 * MS
        found.append((labels["trace:id"], exemplar["value"]))
    return sorted(found)


def test_metrics_have_exemplars(api):
    """There is one exemplar for consecutive spans of a trace; counts have the value of their step."""
    checkout, other = exemplars_of(api, "{} | count_over_time()")
    assert checkout in [(CHECKOUT.hex(), 4), (CHECKOUT.hex(), 2)]  # its last span or its first one
    assert other == (OTHER.hex(), 2)
    assert exemplars_of(api, '{name="query"} | max_over_time(duration)') == [(CHECKOUT.hex(), pytest.approx(0.1))]
    assert exemplars_of(api, '{name="GET /"} | avg_over_time(duration)') == [(OTHER.hex(), pytest.approx(0.05))]
    assert exemplars_of(api, '{name="query"} | histogram_over_time(duration)') == [(CHECKOUT.hex(), 1)]
    assert exemplars_of(api, '{name="query"} | quantile_over_time(duration, .9)') == [(CHECKOUT.hex(), pytest.approx(0.1))]
    for q in ("{} | count_over_time() with(exemplars=1)", "{} | count_over_time() with(exemplars=1, sample=true)"):
        assert len(exemplars_of(api, q)) == 1
    assert len(exemplars_of(api, "{} | count_over_time()", exemplars=1)) == 1
    assert len(exemplars_of(api, "{} | count_over_time()", exemplars=0)) == 2
    assert exemplars_of(api, "{} | count_over_time() with(exemplars=false)", exemplars=5) == []
    assert len(exemplars_of(api, "{} | count_over_time() with(exemplars=true)", exemplars=1)) == 1


def test_measures_durations(api):
    """In seconds; 0.5 and 0.6 s are in the buckets up to 2^29 ns and 2^30 ns."""
    second = BASE // 1_000_000_000
    where = {"start": second, "end": second + 10}
    charge = '{name="charge"} | '
    instant = api.json("/api/metrics/query", tempo.INSTANT, q=charge + "avg_over_time(duration)", **where)
    assert instant["series"] == [{"labels": [{"key": "__name__", "value": {"stringValue": "avg_over_time"}}],
                                  "value": pytest.approx(0.55)}]
    for name, value in (("min", 0.5), ("max", 0.6), ("sum", 1.1)):
        [only] = api.json("/api/metrics/query", tempo.INSTANT, q=f"{charge}{name}_over_time(duration)", **where)["series"]
        assert only["value"] == pytest.approx(value)
    answer = api.json("/api/metrics/query", tempo.INSTANT, q=charge + "histogram_over_time(duration)", **where)
    assert {tempo.attributes(each["labels"])["__bucket"]: each["value"] for each in answer["series"]} == \
        {2 ** 29 / 1e9: 1, 2 ** 30 / 1e9: 1}
    answer = api.json("/api/metrics/query", tempo.INSTANT, q=charge + "quantile_over_time(duration, .5, 1)", **where)
    assert {tempo.attributes(each["labels"])["p"]: each["value"] for each in answer["series"]} == \
        {0.5: pytest.approx(2 ** 29 / 1e9), 1: pytest.approx(2 ** 30 / 1e9)}
    assert api.json("/api/metrics/query", tempo.INSTANT, q='{name="nowhere"} | avg_over_time(duration)', **where) \
        ["series"] == []


@pytest.mark.parametrize("path", ["/api/search", "/api/metrics/query_range"])
@pytest.mark.parametrize("q, says", [
    ("{bad", "invalid TraceQL query: 1:2: unexpected bad"),
    ("{ name = }", "invalid TraceQL query: 1:10: unexpected }"),
    ("({} | count() > 1) && {}", "invalid TraceQL query: 1:5: a pipeline in brackets is not supported"),
    ("(" * 10000, "the query nests deeper than 64"),
    ("{" + "!" * 10000 + "true}", "the query nests deeper than 64"),
    ('{name =~ "' + "(a+)+" * 400 + '"}', "a regular expression may have at most 1024 bytes"),
    ('{name =~ "(((((((((("}', "invalid regular expression"),
    ('{name = "' + "x" * 60000 + '"} | nothing', "expected '{', select(), an aggregate or a metric"),
])
def test_rejects_hostile_queries(api, path, q, says):
    assert says in api.error(path, q=q)
    assert api.raw("/ready")[0] == 200


def test_rejects_a_selector_of_10_mb(api):
    """The selector is not read completely, and is answered nevertheless."""
    for size in (100_000, 10_000_000):
        with raw.Raw(api.address, b"GET /api/search?q=%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % (b"x" * size)) as peer:
            got = bytes(peer.wait().got)
            assert got.startswith(b"HTTP/1.1 400 ") and got.endswith(b"\r\n\r\nthe query is longer than 64 KiB\n")
    assert api.raw("/ready")[0] == 200


def test_validate_names_the_missing_store(tmp_path):
    """Config errors with their place: `store` names a missing exporter, one of another kind, or one
    outside all pipelines."""
    whole = config(tmp_path)
    lacking = json.loads(json.dumps(whole))
    lacking["extensions"]["query"]["store"] = "store/other"
    other = json.loads(json.dumps(whole))
    other["exporters"]["nop"] = {}
    other["extensions"]["query"]["store"] = "nop"
    unused = json.loads(json.dumps(whole))
    unused["exporters"]["store/unused"] = unused["exporters"]["store"]
    unused["extensions"]["query"]["store"] = "store/unused"
    for tree, says in ((whole, None), (lacking, 'must name a store exporter; there is no "store/other"'),
                       (other, 'must name a store exporter that is in a pipeline, got "nop"'),
                       (unused, 'must name a store exporter that is in a pipeline, got "store/unused"')):
        (tmp_path / "config.yaml").write_text(json.dumps(tree, indent=1))
        done = subprocess.run([BINARY, "validate", "--config", str(tmp_path / "config.yaml")], capture_output=True,
                              text=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == (1 if says else 0), done.stderr
        assert not says or f"extensions::query::store: {says}" in done.stderr + done.stdout


def test_compresses_on_request(api):
    plain = api.raw("/api/v2/search/tags")
    status, headers, body = api.raw("/api/search", headers={"Accept-Encoding": "gzip"}, q="{}", spss=100)
    assert (status, headers["Content-Encoding"]) == (200, "gzip")
    assert len(json.loads(gzip.decompress(body))["traces"]) == 2
    assert plain[1]["Content-Encoding"] is None
    _, headers, _ = api.raw("/api/search", headers={"Accept-Encoding": "gzip;q=0"}, q="{}", spss=100)
    assert headers["Content-Encoding"] is None


@pytest.fixture
def channel(api):
    with grpc.insecure_channel(api.address, clients.LOCAL) as channel:
        yield channel


def streamed(channel, method, **fields):
    """Returns the only message of a call as ProtoJSON."""
    [message] = tempopb.ask(channel, method, DEADLINE_S, **fields)
    return json_format.MessageToDict(message)


def test_streams_searches(api, channel):
    """With streaming, Grafana sends queries over gRPC to the same port, and gets the same answers
    as over HTTP."""
    second = BASE // 1_000_000_000
    asked = api.json("/api/search", tempo.SEARCH, q="{name=`charge`} | select(span.attempt)", spss=1, limit=5, start=second - 10, end=second + 10)
    got = streamed(channel, "Search", Query="{name=`charge`} | select(span.attempt)", SpansPerSpanSet=1, Limit=5,
                   start=second - 10, end=second + 10)
    assert got == asked and len(got["traces"]) == 1
    assert got["traces"][0]["serviceStats"]["payments"] == {"spanCount": 2}
    assert streamed(channel, "Search", Tags={"service.name": "front"})["traces"][0]["rootTraceName"] == "GET /"
    assert len(streamed(channel, "Search", MinDurationMs=100)["traces"]) == 1
    assert streamed(channel, "Search", Query="{name=`nothing`}").get("traces", []) == []
    assert len(streamed(channel, "Search", Query="{}", end=second - 1)["traces"]) == 1


def test_streams_tags_and_values(api, channel):
    for method, path in (("SearchTags", "/api/search/tags"), ("SearchTagsV2", "/api/v2/search/tags")):
        asked = api.json(path)
        del asked["metrics"]
        assert streamed(channel, method) == asked
    [only] = streamed(channel, "SearchTagsV2", scope="resource")["scopes"]
    assert only == {"name": "resource", "tags": ["service.name"]}
    for method, path, tag in (("SearchTagValues", "/api/search/tag/{}/values", "service.name"),
                              ("SearchTagValuesV2", "/api/v2/search/tag/{}/values", "span.attempt")):
        assert streamed(channel, method, tagName=tag) == {"tagValues": api.json(path.format(tag))["tagValues"]}
    got = streamed(channel, "SearchTagValuesV2", tagName="resource.service.name", query="{span.attempt = 1}")
    assert [value["value"] for value in got["tagValues"]] == ["shop"]
    assert len(streamed(channel, "SearchTagValuesV2", tagName="resource.service.name", maxTagValues=1)["tagValues"]) == 1


def test_streams_metrics(api, channel):
    second = BASE // 1_000_000_000
    nanoseconds = {"start": (second - 10) * 10**9, "end": (second + 10) * 10**9}
    asked = api.json("/api/metrics/query_range", q="{} | count_over_time() by (name)", start=second - 10, end=second + 10, step="10s")
    got = streamed(channel, "MetricsQueryRange", query="{} | count_over_time() by (name)", step=10 * 10**9, **nanoseconds)
    for answer in (asked, got):  # zeros are omitted
        for series in answer["series"]:
            for sample in series["samples"]:
                sample["value"] = sample.get("value", 0)
    assert got == asked and got["series"][0]["exemplars"]
    asked = api.json("/api/metrics/query", q="{} | count_over_time()", start=second - 10, end=second + 10)
    assert streamed(channel, "MetricsQueryInstant", query="{} | count_over_time()", **nanoseconds) == asked


def test_streams_end_with_a_status(api, channel):
    def status(method, **fields):
        with pytest.raises(grpc.RpcError) as failure:
            tempopb.ask(channel, method, DEADLINE_S, **fields)
        return failure.value.code(), failure.value.details()
    code, details = status("Search", Query="{bad")
    assert code is grpc.StatusCode.INVALID_ARGUMENT and details.startswith("invalid TraceQL query: 1:2:")
    assert status("Search", Query="{}", start=20, end=10)[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert status("MetricsQueryRange", query="{}")[0] is grpc.StatusCode.INVALID_ARGUMENT
    call = channel.unary_stream("/tempopb.StreamingQuerier/Search")
    with pytest.raises(grpc.RpcError) as failure:
        list(call(b"\xff\xff\xff", timeout=DEADLINE_S))
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    for path in ("/tempopb.StreamingQuerier/Nothing", "/tempopb.Querier/SearchRecent", "/api/search"):
        with pytest.raises(grpc.RpcError) as failure:
            list(channel.unary_stream(path)(b"", timeout=DEADLINE_S))
        assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED, path
    assert api.raw("/tempopb.StreamingQuerier/Search", method="POST", body=b"x")[0] == 415


def test_speaks_http2(api):
    connection = clients.H2(api.address)
    headers, body = connection.request("/api/echo", {}, b"", method="GET")
    assert headers[":status"] == "200" and body == b"echo"
    headers, body = connection.request("/tempopb.StreamingQuerier/SearchTags", {**clients.GRPC_HEADERS, "grpc-encoding": "gzip"},
                                       b"\1" + len(gzip.compress(b"")).to_bytes(4, "big") + gzip.compress(b""))
    assert headers["grpc-status"] == "0" and b"service.name" in body
    headers, body = connection.request("/api/search?q=%7B%7D&spss=100", {}, b"", method="GET")
    assert headers[":status"] == "200" and len(tempo.check(json.loads(body), tempo.SEARCH)["traces"]) == 2
    connection.close()


def test_reads_all_pages(braid, tmp_path):
    """More spans than a page has, half of them with one start time: each is found once, and counted
    once."""
    server = braid(config(tmp_path))
    message = service.ExportTraceServiceRequest()
    part = message.resource_spans.add()
    part.resource.attributes.append(otlp.attribute("service.name", "many"))
    spans = part.scope_spans.add().spans
    for number in range(1, 3001):
        start = BASE + max(0, number - 1500) * 1000
        spans.add(trace_id=number.to_bytes(16, "big"), span_id=number.to_bytes(8, "big"), name="one",
                  start_time_unix_nano=start, end_time_unix_nano=start + 5,
                  attributes=[otlp.attribute("n", number)])
    clients.grpc(server.grpc, otlp.TRACES, message.SerializeToString()).expect_ok()
    api, second = Api(server), BASE // 1_000_000_000
    for q in ("{span.n > 0}", "{}", "{traceDuration >= 0}"):
        traces = api.json("/api/search", tempo.SEARCH, q=q, limit=5000)["traces"]
        assert sorted(int(trace["traceID"], 16) for trace in traces) == list(range(1, 3001)), q
        traces = api.json("/api/search", tempo.SEARCH, q=q, limit=10)["traces"]
        assert [int(trace["traceID"], 16) for trace in traces] == list(range(3000, 2990, -1)), q  # the newest
        [only] = api.json("/api/metrics/query", tempo.INSTANT, q=q + " | count_over_time()", start=second,
                          end=second + 10)["series"]
        assert only["value"] == 3000, q
    [only] = api.json("/api/metrics/query", tempo.INSTANT, q="{} | sum_over_time(span.n)", start=second,
                      end=second + 10)["series"]
    assert only["value"] == 3000 * 3001 / 2


def test_marks_truncated_results(braid, tmp_path):
    """Memory for one page of spans: the results so far are returned and marked incomplete, and are
    always right."""
    server = braid(config(tmp_path, max_query_memory=1 << 20))
    message = service.ExportTraceServiceRequest()
    part = message.resource_spans.add()
    part.resource.attributes.append(otlp.attribute("service.name", "big"))
    spans = part.scope_spans.add().spans
    for number in range(20000):
        spans.add(trace_id=OTHER, span_id=number.to_bytes(8, "big") if number else b"\xff" * 8, name="x" * 200,
                  start_time_unix_nano=BASE + number, end_time_unix_nano=BASE + number + 5)
    clients.grpc(server.grpc, otlp.TRACES, message.SerializeToString()).expect_ok()
    status, headers, body = Api(server).raw("/api/search", q="{}")
    if status == 200:
        assert json.loads(body)["metrics"]["completedJobs"] == 0 and headers["braid-cut"]
    else:
        assert status == 422 and b"max_query_memory" in body
    status, _, body = Api(server).raw(f"/api/traces/{OTHER.hex()}")
    assert status == 422 and b"max_query_memory" in body


@pytest.mark.parametrize("workers", [1, 3])
def test_answers_many_at_once(braid, tmp_path, workers):
    server = braid(config(tmp_path, workers=workers))
    clients.grpc(server.grpc, otlp.TRACES, request().SerializeToString()).expect_ok()
    api = Api(server)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: api.search("{}"), range(64)))
    assert all(answer == {"checkout": [1, 2, 3, 4, 5], "other": [9]} for answer in answers)
    assert sum(server.metrics()["braid_query_requests"].values()) == 64
