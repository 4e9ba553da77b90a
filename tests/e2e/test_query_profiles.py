# SPDX-License-Identifier: Apache-2.0
"""Queries for profiles: from OTLP over the join and the store to Pyroscope's API, the queries by
application and Braid's API. Expected values are the arithmetic of harness/shop.py."""

import base64
import gzip
import json
import os
import pathlib
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import pytest

import otlp
import pprof
import shop
from braid import BINARY, DEADLINE_S, pipelines, until
from otlp import PROFILES, TRACES
from query_api import QueryApi
from shop import CPU, MS, SPAN, START, TRACE

GO_CLIENTS = os.environ.get("GO_CLIENTS", str(pathlib.Path(__file__).parents[2] / "build" / "clients"))
RANGE = {"start": START // MS - 1000, "end": START // MS + 1000}  # in ms
SHOP = '{service_name="shop"}'
TRACE_HEX = TRACE.hex()


@pytest.fixture
def start(braid, tmp_path):
    def begin(**join):
        return QueryApi(braid(pipelines({"store": {"directory": str(tmp_path / "data")}}, processors={"join": join},
                                     extensions={"query": {"endpoint": "127.0.0.1:0"}})))
    return begin


@pytest.fixture
def api(start):
    """A server that stores the trace of the shop and its samples."""
    made = start()
    made.send(shop.spans(), shop.samples())
    made.stored(sum(shop.COUNTS.values()))
    return made


def span_profile(api, name, **params):
    return api.braid(f"spans/{TRACE_HEX}/{SPAN[name].hex()}/profile", **params)


# --- Braid's API ------------------------------------------------------------------------------------------------------

def test_flame_graphs_of_a_span_its_subtree_and_its_trace(api):
    expected = {"self": ["price"], "subtree": ["price", "query"], "trace": ["checkout", "price", "query", "reserve"]}
    for scope, names in expected.items():
        got = span_profile(api, "price", scope=scope)
        assert shop.stacks_of(got["flamebearer"]) == shop.folded(*names)
        assert got["samples"] == sum(shop.COUNTS[name] for name in names)
        assert (got["type"], got["unit"], got["why_empty"], got["cut"]) == (CPU, "nanoseconds", None, None)
        assert got["types"] == [{"id": CPU, "name": "cpu", "unit": "nanoseconds", "samples": got["samples"],
                                 "total": got["samples"] * shop.PERIOD}]


def test_flame_graphs_of_the_spans_of_one_service_in_a_trace(api):
    for service, names in {"shop": ["checkout", "price", "query"], "stock": ["reserve"]}.items():
        got = span_profile(api, "price", scope="trace", service=service)
        assert shop.stacks_of(got["flamebearer"]) == shop.folded(*names)
        assert got["samples"] == sum(shop.COUNTS[name] for name in names)
    path = f"/api/braid/spans/{TRACE_HEX}/{SPAN['price'].hex()}/profile"
    for params in ({"scope": "trace", "service": "none"}, {"scope": "subtree", "service": "shop"}):
        code, body = api.refused(path, **params)
        assert code == 400 and "service" in str(body)


def test_a_trace_has_a_flame_graph_without_a_span(api):
    got = api.braid("profile", trace=TRACE_HEX, scope="trace")
    assert got["flamebearer"] == span_profile(api, "price", scope="trace")["flamebearer"]
    assert api.braid("profile", trace="1", scope="trace")["why_empty"] == "no samples of this trace"
    assert api.refused("/api/braid/profile", trace=TRACE_HEX, scope="self")[0] == 400
    done = subprocess.run([BINARY, "query", "profile", "--trace", TRACE_HEX, "--url", f"http://{api.address}"],
                          capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    count = sum(shop.COUNTS[name] for name in SPAN)
    assert f"{CPU} of {count} samples" in done.stdout and "checkout" in done.stdout
    assert len(done.stdout.splitlines()) > 4
    packed = base64.b64encode(bytes.fromhex(TRACE_HEX)).decode()
    as_base64 = subprocess.run([BINARY, "query", "profile", "--trace", packed, "--url", f"http://{api.address}"],
                               capture_output=True, text=True, timeout=DEADLINE_S)
    assert as_base64.stdout == done.stdout
    for number, code, lines in (("2", 0, 4), ("0", 2, 0), ("x", 2, 0)):
        done = subprocess.run([BINARY, "query", "profile", "--trace", TRACE_HEX, "--limit", number, "--url", f"http://{api.address}"],
                              capture_output=True, text=True, timeout=DEADLINE_S)
        assert (done.returncode, len(done.stdout.splitlines())) == (code, lines), done.stderr


def test_ids_are_hex_short_or_base64(api):
    expected = span_profile(api, "query")
    short, plain = TRACE_HEX.lstrip("0"), base64.b64encode(SPAN["query"]).decode()
    for trace, span in ((short, SPAN["query"].hex().upper()), (base64.b64encode(TRACE).decode(), plain)):
        path = f"spans/{urllib.parse.quote(trace, safe='')}/{urllib.parse.quote(span, safe='')}/profile"
        assert api.braid(path) == expected


def test_totals_agree_between_all_queries(api):
    spans = api.braid("spans", **RANGE, figures="subtree")["spans"]
    whole = api.braid("profile", query=SHOP, **RANGE)
    by_name = {span["name"]: span["profile"] for span in spans}
    assert set(by_name) == set(SPAN)
    for name, figures in by_name.items():
        assert figures["samples"] == shop.COUNTS[name]
        assert figures["cpu_ns"] == shop.COUNTS[name] * shop.PERIOD
        assert figures["types"] == {CPU: {"samples": shop.COUNTS[name], "value": figures["cpu_ns"]}}
        for scope, said in (("self", figures), ("subtree", figures["subtree"])):
            got = span_profile(api, name, scope=scope)
            assert (got["samples"], got["flamebearer"]["numTicks"]) == (said["samples"], said["cpu_ns"])
    assert by_name["checkout"]["subtree"]["samples"] == 6  # without the samples of the other service
    assert shop.stacks_of(whole["flamebearer"]) == shop.folded("checkout", "price", "query", None)
    assert sum(by_name[name]["cpu_ns"] for name in ("checkout", "price", "query")) + \
        5 * shop.PERIOD == whole["flamebearer"]["numTicks"]


def test_a_duration_without_a_unit_is_rejected(api):
    for key in ("min_duration", "max_duration"):
        status, answer = api.any("/api/braid/spans", **RANGE, **{key: "500"})
        assert status == 400 and f'invalid {key}: "500" has no unit; write 500ms or 500s' in json.dumps(answer).replace("\\", "")
    command = [BINARY, "query", "spans", "--url", f"http://{api.address}"]
    done = subprocess.run([*command, "--min-duration", "1.5"], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 1 and 'invalid min_duration: "1.5" has no unit; write 1.5ms or 1.5s' in done.stderr
    done = subprocess.run([*command, "--time-range", "60"], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 2 and "--time-range requires a duration with a unit, such as 30m, got 60" in done.stderr


def test_spans_are_listed_by_cpu_time(api):
    by_cpu = api.braid("spans", **RANGE, sort="cpu")["spans"]
    assert [span["name"] for span in by_cpu] == ["reserve", "query", "price", "checkout"]
    by_duration = api.braid("spans", **RANGE)["spans"]
    assert [span["name"] for span in by_duration] == ["checkout", "price", "query", "reserve"]
    first = by_duration[0]
    assert (first["trace_id"], first["span_id"], first["parent_id"]) == (TRACE_HEX, SPAN["checkout"].hex(), "")
    assert (first["kind"], first["status"], first["service"]) == ("server", "unset", "shop")
    assert (first["start_unix_ns"], first["duration_ns"]) == (str(START), 100 * MS)

    def names(**filters):
        return {span["name"] for span in api.braid("spans", **RANGE, **filters)["spans"]}
    assert names(status="error") == {"reserve"}
    assert names(roots="true") == {"checkout"}
    assert names(service="stock") == {"reserve"}
    assert names(min_duration="30ms", max_duration="50ms") == {"price", "query"}
    assert names(min_duration="0", max_duration="50ms") == {"price", "query", "reserve"}
    assert names(q='{ span.step = "query" }') == {"query"}
    assert names(q='{ name = "price" } >> { }') == {"query", "reserve"}
    assert names(limit=1) == {"checkout"}


def test_a_trace_lists_its_spans_with_cpu_time(api):
    got = api.braid(f"traces/{TRACE_HEX}")
    assert got["trace_id"] == TRACE_HEX
    assert {resource["service"] for resource in got["resources"]} == {"shop", "stock"}
    by_name = {span["name"]: span for span in got["spans"]}
    assert set(by_name) == set(SPAN)
    for name, span in by_name.items():
        assert got["resources"][span["resource"]]["service"] == span["service"]
        assert {"key": "step", "value": name} in span["attributes"]
        assert span["profile"]["samples"] == shop.COUNTS[name]
    assert by_name["price"]["profile"]["subtree"]["samples"] == 5
    assert by_name["query"]["parent_id"] == SPAN["price"].hex()
    assert api.refused("/api/braid/traces/1")[0] == 404


def test_samples_are_queried_by_span_name(api):
    for query in ('{service_name="shop",span_name="price"}', '{service_name="shop","span.name"="price"}',
                  'shop.cpu{span_name=~"pri.*"}'):
        got = api.braid("profile", query=query, **RANGE)
        assert shop.stacks_of(got["flamebearer"]) == shop.folded("price")
    line = api.braid("timeline", service="shop", name="price", **RANGE)
    assert sum(bucket["cpu_ns"] for bucket in line["buckets"]) == 2 * shop.PERIOD


def test_a_profilers_label_takes_precedence_over_the_joins(start):
    api, profiles = start(), shop.Profiles()
    profiles.add("sdk", "main;own", 3)
    profiles.label("span_name", "price")
    api.send(profiles.request)
    api.stored(3)
    got = api.braid("profile", query='{service_name="sdk",span_name="price"}', **RANGE)
    assert got["samples"] == 3


def test_functions_of_a_selection(api):
    got = api.braid("top", query=SHOP, **RANGE)
    assert got["total"] == 11 * shop.PERIOD
    assert [(function["name"], function["self"], function["total"]) for function in got["functions"]] == [
        ("gc", 5 * shop.PERIOD, 5 * shop.PERIOD), ("sql", 3 * shop.PERIOD, 3 * shop.PERIOD),
        ("price", 2 * shop.PERIOD, 5 * shop.PERIOD), ("checkout", shop.PERIOD, 6 * shop.PERIOD),
        ("main", 0, 11 * shop.PERIOD)]
    assert got["functions"][0]["file"] == "shop.go"
    by_total = api.braid("top", trace=TRACE_HEX, span=SPAN["price"].hex(), scope="subtree", sort="total", limit=2)
    assert [function["name"] for function in by_total["functions"]] == ["checkout", "main"]


def test_the_difference_of_two_spans(api):
    sides = [urllib.parse.urlencode({"trace": TRACE_HEX, "span": SPAN[name].hex()}) for name in ("price", "query")]
    got = api.braid("diff", left=sides[0], right=sides[1])
    bearer = got["flamebearer"]
    assert (bearer["leftTicks"], bearer["rightTicks"], bearer["numTicks"]) == (
        2 * shop.PERIOD, 3 * shop.PERIOD, 5 * shop.PERIOD)
    assert got["left"] == {"total": 2 * shop.PERIOD, "samples": 2}
    assert got["right"] == {"total": 3 * shop.PERIOD, "samples": 3}
    assert [bearer["names"][row[6]] for row in bearer["levels"]] == ["total", "main", "checkout", "price", "sql"]
    # offset, total and self of the left side, then of the right; sql begins behind price's self
    assert bearer["levels"][3][:6] == [0, 2 * shop.PERIOD, 2 * shop.PERIOD, 0, 3 * shop.PERIOD, 0]
    assert bearer["levels"][4][:6] == [2 * shop.PERIOD, 0, 0, 0, 3 * shop.PERIOD, 3 * shop.PERIOD]


def test_slow_spans_against_typical_ones(start):
    """20 spans of 1 to 20 times 10 ms; each has a sample in `work` for every 10 ms of its duration,
    and the slowest one four more in `retry`."""
    api, spans, profiles = start(), shop.spans(), shop.Profiles()
    for n in range(1, 21):
        trace = (0x100 + n).to_bytes(16, "big")
        spans.resource_spans[0].scope_spans[0].spans.add(
            trace_id=trace, span_id=n.to_bytes(8, "big"), name="GET /cart", kind=2, start_time_unix_nano=START,
            end_time_unix_nano=START + n * 10 * MS)
        profiles.add("shop", "main;work", n, trace, n.to_bytes(8, "big"))
    profiles.add("shop", "main;retry", 4, (0x100 + 20).to_bytes(16, "big"), (20).to_bytes(8, "big"))
    api.send(spans, profiles.request)
    api.stored(214)
    got = api.braid("slow", service="shop", name="GET /cart", **RANGE)
    # nearest rank: the 95th percentile of 20 is the 19th, the 40th and 60th the 8th and 12th
    assert (got["slow"]["spans"], got["slow"]["min_duration_ns"]) == (2, 190 * MS)
    assert (got["typical"]["spans"], got["typical"]["min_duration_ns"]) == (5, 80 * MS)
    assert got["typical"]["median_duration_ns"] == 100 * MS
    assert got["typical"]["cpu_ns_per_span"] == (8 + 9 + 10 + 11 + 12) * shop.PERIOD // 5
    assert got["slow"]["cpu_ns_per_span"] == (19 + 20 + 4) * shop.PERIOD // 2
    assert [(function["name"], function["typical_per_span"], function["slow_per_span"])
            for function in got["functions"][:2]] == [("work", 10 * shop.PERIOD, 39 * shop.PERIOD // 2),
                                                      ("retry", 0, 2 * shop.PERIOD)]
    assert got["why_empty"] is None
    assert "fewer than 5" in api.braid("slow", service="shop", name="checkout", **RANGE)["why_empty"]


def test_services_timeline_and_join_health(api):
    services = {service["name"]: service for service in api.braid("services", **RANGE)["services"]}
    assert services["shop"]["spans"] == 3 and services["stock"]["spans"] == 1
    assert {"name": "price", "spans": 1} in services["shop"]["operations"]
    assert services["shop"]["profile_types"] == [CPU]
    line = api.braid("timeline", service="shop", start=START // MS, end=START // MS + 100, points=10)
    assert (line["step_ns"], line["start_unix_ns"], len(line["buckets"])) == (10 * MS, str(START), 10)
    assert [bucket["spans"] for bucket in line["buckets"]] == [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    assert line["buckets"][1]["max_ns"] == 50 * MS
    assert sum(bucket["cpu_ns"] for bucket in line["buckets"]) == 11 * shop.PERIOD
    health = {service["name"]: service for service in api.braid("join", **RANGE)["services"]}
    assert health["shop"] == {"name": "shop", "spans": 3, "spans_with_samples": 3, "samples": 11,
                              "samples_with_span": 6, "samples_of_unknown_span": 0, "samples_ambiguous": 0, "median_skew_ns": None, "hint": None}


def test_a_trace_as_a_file_has_every_field(start):
    api = start()
    request = shop.spans()
    span = request.resource_spans[0].scope_spans[0].spans[1]
    for n in (2 ** 53, 2 ** 53 + 1, -2 ** 53 - 1):
        span.attributes.add(key=f"n{n}").value.int_value = n
    span.attributes.add(key="bytes").value.bytes_value = b"\x00\xff"
    span.attributes.add(key="list").value.array_value.values.add().double_value = 0.5
    span.trace_state, span.flags, span.dropped_attributes_count = "a=b", 0x101, 3
    event = span.events.add(time_unix_nano=START + 1, name="retry", dropped_attributes_count=1)
    event.attributes.append(otlp.attribute("reason", "late"))
    span.links.add(trace_id=TRACE, span_id=SPAN["reserve"], trace_state="c=d", flags=1)
    span.status.message = "it's \N{SNOWMAN}"
    api.send(request)
    until(lambda: api.braid("status")["store"]["spans"] == 4, "the spans")
    shown = next(each for each in api.braid(f"traces/{TRACE_HEX}")["spans"] if each["name"] == span.name)
    assert [each["value"] for each in shown["attributes"][1:4]] == [2 ** 53, str(2 ** 53 + 1), str(-2 ** 53 - 1)]
    found = otlp.from_json(TRACES.request, json.dumps(api.braid(f"traces/{TRACE_HEX}/otlp")))

    def of(message):
        return {each.span_id: (resource, scope, each) for resource, scope, each in otlp.spans_of(message)}
    assert {key: each[2] for key, each in of(found).items()} == {key: each[2] for key, each in of(request).items()}
    assert {key: each[0] for key, each in of(found).items()} == {key: each[0] for key, each in of(request).items()}
    assert api.refused("/api/braid/traces/1/otlp")[0] == 404


def call(request, n, client, server, skew, parent=b""):
    """A client span of 100 ms, and the server span of 40 ms that it called, 30 ms later by the same
    clock."""
    for k, (service, kind, begin, end) in enumerate(((client, 3, 0, 100), (server, 2, 30 + skew, 70 + skew))):
        resource = request.resource_spans.add()
        resource.resource.attributes.append(otlp.attribute("service.name", service))
        resource.scope_spans.add().spans.add(
            trace_id=TRACE, span_id=bytes([k + 1, n, 0, 0, 0, 0, 0, 1]), name="call", kind=kind,
            parent_span_id=bytes([1, n, 0, 0, 0, 0, 0, 1]) if k else parent,
            start_time_unix_nano=START + begin * MS, end_time_unix_nano=START + end * MS)


@pytest.mark.parametrize("skew, outside", [(0, 0), (-30, 0), (-130, 100), (130, 100)])
def test_clocks_are_compared_by_calls(start, skew, outside):
    api = start(infer=False)
    request = otlp.traces.ExportTraceServiceRequest()
    for n in range(3):
        call(request, n, "shop", "stock", skew)
    api.send(request)
    until(lambda: api.braid("status")["store"]["spans"] == 6, "the spans")
    samples = shop.Profiles().add("stock", "main", 1, TRACE, bytes([2, 0, 0, 0, 0, 0, 0, 1]), at=START + 500 * MS)
    api.send(samples.request)
    api.stored(1)
    health = {row["name"]: row for row in api.braid("join", **RANGE)["services"]}
    assert health["shop"]["median_skew_ns"] is None
    assert health["stock"]["median_skew_ns"] == outside * MS
    assert ("the clocks differ" in (health["stock"]["hint"] or "")) == (outside > 0)


def test_health_names_likely_causes(start):
    """Only first spans are labelled; few samples have a span. Both halves: nothing is reported if
    children have samples."""
    api = start(infer=False)
    request = otlp.traces.ExportTraceServiceRequest()
    for service in ("roots", "all", "few"):
        resource = request.resource_spans.add()
        resource.resource.attributes.append(otlp.attribute("service.name", service))
        scope = resource.scope_spans.add()
        for n in range(6):
            scope.spans.add(trace_id=TRACE, span_id=service.ljust(7).encode()[:7] + bytes([n]), name="step", kind=1 if n else 2,
                            parent_span_id=service.ljust(7).encode()[:7] + bytes([0]) if n else b"",
                            start_time_unix_nano=START, end_time_unix_nano=START + 50 * MS)
    api.send(request)
    until(lambda: api.braid("status")["store"]["spans"] == 18, "the spans")
    made = shop.Profiles()
    for service in ("roots", "all", "few"):
        made.add(service, "main", 1, TRACE, service.ljust(7).encode()[:7] + bytes([0]))
        if service != "roots":
            made.add(service, "main", 1, TRACE, service.ljust(7).encode()[:7] + bytes([1]))
    made.add("few", "main", 9)
    api.send(made.request)
    api.stored(14)
    hints = {row["name"]: row["hint"] for row in api.braid("join", **RANGE)["services"]}
    assert "none of 5 long spans below them" in hints["roots"] and hints["all"] is None
    assert hints["few"].startswith("18 % of the samples name a span")


def test_empty_answers_have_a_reason(start):
    api = start(infer=False)
    api.send(shop.spans())
    until(lambda: api.braid("status")["store"]["spans"] == 4, "the spans")
    assert "no profile of shop arrived" in span_profile(api, "query")["why_empty"]
    assert "no profiles of this service" in api.braid("join", **RANGE)["services"][0]["hint"]
    api.send(shop.Profiles().add("shop", "main;gc", 5).request)
    api.stored(5)
    assert "no span ids" in span_profile(api, "query")["why_empty"]
    assert "no span ids" in api.braid("join", **RANGE)["services"][0]["hint"]
    api.send(shop.Profiles().add("shop", "main;checkout", 1, TRACE, SPAN["checkout"]).request)
    api.stored(6)
    empty = span_profile(api, "query")
    assert '1 name "checkout", the first span of shop in this request: this span waited' in empty["why_empty"]
    assert empty["why_span"] == SPAN["checkout"].hex() and span_profile(api, "checkout")["why_span"] is None
    assert "this span is not stored" in api.braid("spans/1/1/profile")["why_empty"]
    api.send(shop.Profiles().add("stock", "main", 1, TRACE, SPAN["checkout"]).request)
    api.stored(7)
    assert span_profile(api, "reserve")["why_empty"] == \
        "no samples: this span lasted 10 ms, one sampling interval is 10 ms"


def test_a_profile_is_found_in_any_order_of_arrival(start):
    api = start()
    api.send(shop.samples())
    api.stored(sum(shop.COUNTS.values()))
    api.send(shop.spans())
    until(lambda: api.braid("status")["store"]["spans"] == 4, "the spans")
    got = span_profile(api, "checkout", scope="subtree")
    assert shop.stacks_of(got["flamebearer"]) == shop.folded("checkout", "price", "query")


def test_the_live_tail_reports_spans_as_they_arrive(start):
    api = start()
    with urllib.request.urlopen(f"http://{api.address}/api/braid/tail?service=shop", timeout=DEADLINE_S) as events:
        assert events.headers["content-type"] == "text/event-stream"
        assert events.readline().startswith(b":")
        request, now = shop.spans(), api.braid("status")["now_unix_ns"]
        api.send(as_of(request, int(now)))
        names = set()
        while names < {"checkout", "price", "query"}:
            line = events.readline()
            if line.startswith(b"data: "):
                names |= {span["name"] for span in json.loads(line[6:])}
        assert names == {"checkout", "price", "query"}


def as_of(request, start_ns):
    for resource in request.resource_spans:
        for span in resource.scope_spans[0].spans:
            span.end_time_unix_nano += start_ns - span.start_time_unix_nano
            span.start_time_unix_nano = start_ns
    return request


@pytest.mark.parametrize("filter, expected", [
    ({"roots": "true"}, {"checkout"}), ({"status": "error"}, {"reserve"}),
    ({"q": '{ name = "price" || name = "reserve" }'}, {"price", "reserve"}),
    ({"q": '{ span.step = "query" }', "service": "shop"}, {"query"})],
    ids=["roots", "status", "query", "query and service"])
def test_the_live_tail_has_the_filters_of_a_list(start, filter, expected):
    api = start()
    address = f"http://{api.address}/api/braid/tail?{urllib.parse.urlencode(filter)}"
    with urllib.request.urlopen(address, timeout=DEADLINE_S) as events:
        assert events.readline().startswith(b":")
        announced = []
        api.send(as_of(shop.spans(), int(api.braid("status")["now_unix_ns"])))
        while set(announced) < expected:
            line = events.readline()
            if line.startswith(b"data: "):
                announced += [span["name"] for span in json.loads(line[6:])]
        assert set(announced) == expected


def test_an_invalid_filter_of_the_live_tail_is_rejected(start):
    api = start()
    code, body = api.refused("/api/braid/tail", q="{ name = }")
    assert code == 400 and "1:10" in body["error"]
    assert api.refused("/api/braid/tail", status="bad")[0] == 400
    assert api.refused("/api/braid/tail", roots="maybe")[0] == 400


# --- By application ---------------------------------------------------------------------------------------------------

BY_APP = 'shop.cpu{span_id="%s"}'


def test_queries_by_application(api):
    query = BY_APP % SPAN["query"].hex()
    answers = [api.get("/api/v1/query", **{"query": query, "from": (START - 10 ** 9) // unit,
                                              "until": (START + 10 ** 9) // unit, "format": "json"})
               for unit in (1, MS, 10 ** 9)]  # in ns, ms, s
    assert answers[0]["flamebearer"]["names"] == ["total", "main", "checkout", "price", "sql"]
    for got in answers:
        assert shop.stacks_of(got["flamebearer"]) == shop.folded("query")
    plain = base64.b64encode(SPAN["query"]).decode()
    got = api.get("/api/v1/query", **{"query": BY_APP % plain, "from": START // MS - 1, "until": START // MS + 1000})
    assert shop.stacks_of(got["flamebearer"]) == shop.folded("query")
    top = api.get("/api/v1/query", **{"query": "topk(2, shop.cpu{})", "from": START // MS, "until": START // MS + 99})
    assert [function["name"] for function in top["functions"]] == ["gc", "sql"]
    assert api.refused("/api/v1/query", query="topk(0, shop.cpu{})")[0] == 400
    code, body = api.refused("/api/v1/query", query="sum(shop.cpu{})")
    assert code == 400 and body["message"].startswith("1:1: the only function is topk(")


def test_profiles_by_application_in_every_format(api):
    params = {"app": "shop", "span_id": SPAN["price"].hex(), "from": START // MS - 1000, "until": START // MS + 1000}
    expected = shop.folded("price")
    for form in ("flamegraph", "json"):
        assert shop.stacks_of(api.get("/api/v1/profile", **params, format=form)["flamebearer"]) == expected
    headers, body = api.raw("/api/v1/profile", **params, format="folded")
    assert headers["content-type"].startswith("text/plain")
    assert dict(line.rsplit(" ", 1) for line in body.decode().splitlines()) == \
        {stack: str(value) for stack, value in expected.items()}
    headers, body = api.raw("/api/v1/profile", **params, format="pprof")
    assert "attachment" in headers["content-disposition"]
    (sample,) = pprof.samples(pprof.parse(gzip.decompress(body)))
    assert (sample.type, sample.unit, sample.value) == ("cpu", "nanoseconds", 2 * shop.PERIOD)
    assert [frame[:2] for frame in sample.stack] == [(name, "shop.go") for name in ("price", "checkout", "main")]
    scope = api.get("/api/v1/profile", **params, format="speedscope")
    frames, profile = scope["shared"]["frames"], scope["profiles"][0]
    assert [[frames[frame]["name"] for frame in stack] for stack in profile["samples"]] == [["main", "checkout", "price"]]
    assert (profile["weights"], profile["unit"], profile["endValue"]) == ([2 * shop.PERIOD], "nanoseconds", 2 * shop.PERIOD)
    code, body = api.refused("/api/v1/profile", **params, format="svg")
    assert code == 400 and "flamegraph, json, pprof, speedscope, folded or tree" in body["message"]


def test_renders_of_pyroscope(api):
    times = {"from": START // MS - 1000, "until": START // MS + 1000}
    got = api.get("/pyroscope/render", query=f"{CPU}{SHOP}", **times)
    assert shop.stacks_of(got["flamebearer"]) == shop.folded("checkout", "price", "query", None)
    assert got["metadata"] == {"format": "single", "spyName": "", "sampleRate": 10 ** 9, "units": "samples",
                               "name": "cpu"}
    assert got["timeline"]["durationDelta"] == 15 and sum(got["timeline"]["samples"]) == 11 * shop.PERIOD
    three = api.get("/pyroscope/render", query=f"process_cpu:cpu:nanoseconds{SHOP}", **times)
    assert three["flamebearer"] == got["flamebearer"]
    none = api.get("/pyroscope/render", query=f'{CPU}{{service_name="none"}}', **times)
    assert none["flamebearer"] == {"names": ["total"], "levels": [[0, 0, 0, 0]], "numTicks": 0, "maxSelf": 0}
    sides = {f"{side}{key}": value for side in ("left", "right") for key, value in (
        ("From", times["from"]), ("Until", times["until"]))}
    diff = api.get("/pyroscope/render-diff", leftQuery=f"{CPU}{SHOP}", rightQuery=f'{CPU}{{service_name="stock"}}',
                     **sides)
    assert (diff["leftTicks"], diff["rightTicks"]) == (11 * shop.PERIOD, 4 * shop.PERIOD)
    assert diff["metadata"]["format"] == "double"
    assert api.get("/pyroscope/label-values", label="__name__", **times) == [CPU]
    assert api.get("/pyroscope/label-values", label="service_name", **times) == ["shop", "stock"]
    assert "service_name" in api.get("/pyroscope/label-names", **times)
    code, error = api.refused("/pyroscope/render", query="nope:x{}", **times)
    assert (code, error["code"]) == (400, "invalid_argument")
    code, error = api.refused("/pyroscope/render", query=CPU + '{service_name=1}', **times)
    assert code == 400 and "1:15: parse error" in error["message"]


def many_stacks(first, n_stacks, depth):
    """A profile in which each sample has a different stack of that many frames: n_stacks * depth
    nodes."""
    made = shop.Profiles().add("shop", "main", 1)
    tables, profile = made.request.dictionary, made.request.resource_profiles[0].scope_profiles[0].profiles[0]
    frames = [made._location(f"frame {n}") for n in range(depth - 1)]
    for n in range(first, first + n_stacks):
        tables.stack_table.add(location_indices=[*frames, made._location(f"top {n}")])
        profile.samples.add(stack_index=len(tables.stack_table) - 1, values=[shop.PERIOD], timestamps_unix_nano=[START])
    return made.request


def test_functions_are_summed_over_the_whole_tree(start):
    """20,000 nodes, more than Pyroscope shows: the 198 small bars of "frame 0" add up to its whole
    time, in each answer."""
    api = start()
    api.send(*(many_stacks(first, 99, 100) for first in (0, 99)))
    api.stored(200)
    hot = 198 * shop.PERIOD

    def own(names, levels, step, own_at):
        return sum(level[at + own_at] for level in levels for at in range(0, len(level), step)
                   if names[level[at + step - 1]] == "frame 0")
    top = api.braid("top", query=SHOP, type=CPU, **RANGE, limit=1)["functions"]
    assert [(each["name"], each["self"], each["total"]) for each in top] == [("frame 0", hot, hot)]
    bearer = api.braid("profile", query=SHOP, type=CPU, **RANGE)["flamebearer"]
    assert sum(len(level) // 4 for level in bearer["levels"]) == 198 * 100 + 2
    assert own(bearer["names"], bearer["levels"], 4, 2) == hot
    side = urllib.parse.urlencode({"query": SHOP, "type": CPU, **RANGE})
    bearer = api.braid("diff", left=side, right=side)["flamebearer"]
    assert own(bearer["names"], bearer["levels"], 7, 2) == own(bearer["names"], bearer["levels"], 7, 5) == hot


def test_totals_are_exact_above_the_most_nodes_of_a_query(start):
    """At most 262,144 nodes are added up at a time; if there are more, small stacks are shown as
    "other"."""
    api, n = start(), 2500
    api.send(*(many_stacks(first, 99, 120) for first in range(0, n, 99)), shop.Profiles().add("shop", "main;hot", 500).request)
    n_samples = -(-n // 99) * 100 + 500  # and one of `main` in each request
    api.stored(n_samples)
    total = n_samples * shop.PERIOD
    times = {"from": START // MS - 1000, "until": START // MS + 1000}
    got = api.braid("profile", query=SHOP, type=CPU, **RANGE)
    assert got["flamebearer"]["numTicks"] == total and "other" in got["cut"]
    stacks = shop.stacks_of(got["flamebearer"])
    assert sum(stacks.values()) == total and stacks["main;hot"] == 500 * shop.PERIOD
    top = api.braid("top", query=SHOP, type=CPU, **RANGE)
    assert next(each["self"] for each in top["functions"] if each["name"] == "hot") == 500 * shop.PERIOD
    assert api.get("/pyroscope/render", query=f"{CPU}{SHOP}", **times)["flamebearer"]["numTicks"] == total
    diff = api.get("/pyroscope/render-diff", leftQuery=f"{CPU}{SHOP}", rightQuery=f"{CPU}{SHOP}", **{
        f"{side}{key}": value for side in ("left", "right") for key, value in (("From", times["from"]), ("Until", times["until"]))})
    assert (diff["leftTicks"], diff["rightTicks"]) == (total, total)
    select = {"profileTypeID": CPU, "labelSelector": SHOP, "start": RANGE["start"], "end": RANGE["end"]}
    merged, packed = (answer["response"] for answer in ask_pyroscope(api, [
        ("SelectMergeStacktraces", select), ("SelectMergeProfile", select)], "proto"))
    assert int(merged["flamegraph"]["total"]) == total
    assert sum(int(sample["value"][0]) for sample in packed["sample"]) == total


def test_samples_without_a_stack_are_not_counted_as_the_roots(start):
    """Braid shows them as a bar; Pyroscope leaves them out of its flame graphs and counts them in
    its series."""
    api, no_stack = start(), 3 * shop.PERIOD
    api.send(shop.Profiles().add("shop", "", 3).add("shop", "main;hot", 2).request)
    api.stored(5)
    got = api.braid("profile", query=SHOP, type=CPU, **RANGE)
    assert shop.stacks_of(got["flamebearer"]) == {"(no stack)": no_stack, "main;hot": 2 * shop.PERIOD}
    top = api.braid("top", query=SHOP, type=CPU, **RANGE)
    assert {each["name"]: each["self"] for each in top["functions"]} == {
        "(no stack)": no_stack, "main": 0, "hot": 2 * shop.PERIOD}
    select = {"profileTypeID": CPU, "labelSelector": SHOP, **RANGE}
    merged = api.post("/querier.v1.QuerierService/SelectMergeStacktraces", select)
    assert shop.stacks_of(bearer_of(merged["flamegraph"])) == {"main;hot": 2 * shop.PERIOD}
    profile = api.post("/querier.v1.QuerierService/SelectMergeProfile", select)
    assert [int(each["value"][0]) for each in profile["sample"]] == [2 * shop.PERIOD]
    diff = api.post("/querier.v1.QuerierService/Diff", {"left": select, "right": select})
    assert int(diff["flamegraph"]["leftTicks"]) == int(diff["flamegraph"]["rightTicks"]) == 2 * shop.PERIOD
    rendered = api.get("/pyroscope/render", query=f"{CPU}{SHOP}", **{"from": RANGE["start"], "until": RANGE["end"]})
    assert rendered["flamebearer"]["numTicks"] == 2 * shop.PERIOD
    [series] = api.post("/querier.v1.QuerierService/SelectSeries", {**select, "step": 1})["series"]
    assert sum(point["value"] for point in series["points"]) == 5 * shop.PERIOD


def test_labels_are_named_as_pyroscope_names_them(start):
    """service_name has two names; a client's session id is not shown."""
    api, profiles = start(), shop.Profiles().add("shop", "main", 1).add("stock", "main", 1)
    profiles.label("__session_id__", "77e425ea48b3919f")
    api.send(profiles.request)
    api.stored(2)
    names = api.post("/querier.v1.QuerierService/LabelNames", RANGE)["names"]
    assert "__service_name__" in names and "service_name" in names and "__session_id__" not in names

    def values(name):
        return api.post("/querier.v1.QuerierService/LabelValues", {"name": name, **RANGE}).get("names", [])
    assert values("__service_name__") == values("service_name") == ["shop", "stock"]
    assert values("__session_id__") == []
    for asked_for in ({}, {"labelNames": ["__service_name__"]}):
        sets = api.post("/querier.v1.QuerierService/Series", {**RANGE, **asked_for})["labelsSet"]
        found = [{label["name"]: label["value"] for label in each["labels"]} for each in sets]
        assert sorted(each["__service_name__"] for each in found) == ["shop", "stock"]
        assert not any("__session_id__" in each for each in found)
    merged = api.post("/querier.v1.QuerierService/SelectMergeStacktraces",
                        {"profileTypeID": CPU, "labelSelector": '{__service_name__="stock"}', **RANGE})
    assert int(merged["flamegraph"]["total"]) == shop.PERIOD


def test_calls_that_pyroscope_answers_without_a_condition(api):
    select = {"profileTypeID": CPU, "labelSelector": SHOP, **RANGE}
    assert api.post("/settings.v1.SettingsService/Get", {}) == {}
    assert api.post("/querier.v1.QuerierService/AnalyzeQuery", {"query": SHOP, **RANGE}) == {}
    every = api.post("/querier.v1.QuerierService/SelectMergeSpanProfile", select)
    assert int(every["flamegraph"]["total"]) == 11 * shop.PERIOD  # without a span: all samples
    other = {**select, "profileTypeID": "wall:wall:nanoseconds:wall:nanoseconds"}
    diff = api.post("/querier.v1.QuerierService/Diff", {"left": select, "right": other})["flamegraph"]
    assert (int(diff["leftTicks"]), int(diff.get("rightTicks", 0))) == (11 * shop.PERIOD, 0)


# --- Pyroscope's client -----------------------------------------------------------------------------------------------

def ask_pyroscope(api, questions, transport, compression="none"):
    lines = "".join(json.dumps({"method": method, "request": request}) + "\n" for method, request in questions)
    done = subprocess.run([GO_CLIENTS, "pyroscope", "-endpoint", api.address, "-transport", transport,
                           "-compression", compression], input=lines, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def bearer_of(flamegraph):
    return {"names": flamegraph["names"], "numTicks": int(flamegraph.get("total", 0)),
            "maxSelf": int(flamegraph.get("maxSelf", 0)),
            "levels": [[int(value) for value in level["values"]] for level in flamegraph["levels"]]}


@pytest.mark.parametrize("transport, compression", [("proto", "none"), ("proto", "gzip"), ("json", "none")])
def test_pyroscopes_client_calls_every_method(api, transport, compression):
    times = {"start": RANGE["start"], "end": RANGE["end"]}
    select = {"profileTypeID": CPU, "labelSelector": SHOP, **times}
    at_stock = {**select, "labelSelector": '{service_name="stock"}'}
    questions = [
        ("ProfileTypes", {"start": 1000, "end": 4000}),  # the health check of Grafana's source
        ("ProfileTypes", times),
        ("LabelNames", times),
        ("LabelValues", {"name": "service_name", **times}),
        ("LabelValues", {"name": "service_name", "matchers": ['{service_name=~"st.*"}'], **times}),
        ("Series", {"matchers": [], "labelNames": ["service_name", "__profile_type__"], **times}),
        ("SelectSeries", {**select, "groupBy": ["service_name"], "step": 1}),
        ("SelectMergeStacktraces", select),
        ("SelectMergeStacktraces", {**select, "traceIdSelector": [TRACE_HEX]}),
        ("SelectMergeStacktraces", {**select, "spanSelector": [SPAN["query"].hex(), SPAN["price"].hex().upper()]}),
        ("SelectMergeStacktraces", {**select, "maxNodes": 2}),
        ("SelectMergeStacktraces", {**select, "stackTraceSelector": {"callSite": [{"name": "main"}, {"name": "gc"}]}}),
        ("SelectMergeSpanProfile", {**select, "spanSelector": [SPAN["query"].hex()]}),
        ("SelectMergeProfile", {**select, "traceIdSelector": [TRACE_HEX]}),
        ("Diff", {"left": select, "right": at_stock}),
        ("GetProfileStats", {}),
        ("SelectMergeStacktraces", {**select, "format": "PROFILE_FORMAT_PPROF"}),
    ]
    answers = ask_pyroscope(api, questions, transport, compression)
    assert all("response" in answer for answer in answers), answers
    (health, types, names, services, matched, series, line, whole, traced, spans, small, site, span, profile, diff, stats,
     packed) = (answer["response"] for answer in answers)
    assert health == {}
    assert types == {"profileTypes": [{"ID": CPU, "name": "process_cpu", "sampleType": "cpu", "sampleUnit": "nanoseconds",
                                       "periodType": "cpu", "periodUnit": "nanoseconds"}]}
    assert "service_name" in names["names"]
    assert services == {"names": ["shop", "stock"]} and matched == {"names": ["stock"]}
    assert sorted(json.dumps(labels) for labels in series["labelsSet"]) == sorted(json.dumps({"labels": [
        {"name": "__profile_type__", "value": CPU}, {"name": "service_name", "value": name}]})
        for name in ("shop", "stock"))
    (one,) = line["series"]
    assert one["labels"] == [{"name": "service_name", "value": "shop"}]
    assert sum(point["value"] for point in one["points"]) == 11 * shop.PERIOD
    # a point covers the time from the previous one up to its own time stamp: START itself, and the
    # second after
    assert [(int(point["timestamp"]) - START // MS) for point in one["points"]] == [0, 1000]
    assert shop.stacks_of(bearer_of(whole["flamegraph"])) == shop.folded("checkout", "price", "query", None)
    assert shop.stacks_of(bearer_of(traced["flamegraph"])) == shop.folded("checkout", "price", "query")
    assert shop.stacks_of(bearer_of(spans["flamegraph"])) == shop.folded("price", "query")
    # of main 11, checkout 6, price 5, gc 5, sql 3 the two largest remain
    assert shop.stacks_of(bearer_of(small["flamegraph"])) == {
        "main;checkout": shop.PERIOD, "main;checkout;other": 5 * shop.PERIOD, "main;other": 5 * shop.PERIOD}
    assert shop.stacks_of(bearer_of(site["flamegraph"])) == shop.folded(None)
    assert shop.stacks_of(bearer_of(span["flamegraph"])) == shop.folded("query")
    assert sum(int(sample["value"][0]) for sample in profile["sample"]) == 6 * shop.PERIOD
    assert int(diff["flamegraph"]["leftTicks"]) == 11 * shop.PERIOD
    assert int(diff["flamegraph"]["rightTicks"]) == 4 * shop.PERIOD
    assert all(len(level["values"]) % 7 == 0 for level in diff["flamegraph"]["levels"])
    assert stats["dataIngested"] is True
    assert sum(int(sample["value"][0]) for sample in packed["pprof"]["profile"]["sample"]) == 11 * shop.PERIOD


def spans_beside(exemplars):
    """Returns {span: (value, its label)}; each names its trace."""
    names = {SPAN[name].hex(): name for name in SPAN}
    assert {exemplar["traceId"] for exemplar in exemplars} <= {TRACE_HEX}
    labels = [{label["name"]: label["value"] for label in exemplar["labels"]} for exemplar in exemplars]
    return {names[exemplar["spanId"]]: (int(exemplar["value"]), of["span.name"]) for exemplar, of in zip(exemplars, labels)}


@pytest.mark.parametrize("transport", ["proto", "json"])
def test_heatmaps_lead_from_profiles_to_traces(api, transport):
    """Rows of a twentieth from the lowest to the highest value of a span in a step: 10 to 30 ms, or
    40 with the other service."""
    heatmap = {"profileTypeID": CPU, "labelSelector": SHOP, **RANGE, "step": 1, "queryType": "HEATMAP_QUERY_TYPE_SPAN",
               "exemplarType": "EXEMPLAR_TYPE_SPAN"}
    one, two, plain, top = (answer["response"] for answer in ask_pyroscope(api, [
        ("SelectHeatmap", heatmap), ("SelectHeatmap", {**heatmap, "labelSelector": "{}", "groupBy": ["service_name"]}),
        ("SelectHeatmap", {**heatmap, "exemplarType": "EXEMPLAR_TYPE_NONE"}),
        ("SelectHeatmap", {**heatmap, "labelSelector": "{}", "groupBy": ["service_name"], "limit": 1})], transport))
    [series] = one["series"]
    assert not series.get("labels")
    first, second = series["slots"]
    assert [int(slot["timestamp"]) - START // MS for slot in (first, second)] == [0, 1000]
    assert first["yMin"] == second["yMin"] == [(10 + row) * MS for row in range(20)]
    assert first["counts"] == [1] + 19 * [0]
    assert second["counts"] == [1 if row in (10, 19) else 0 for row in range(20)]
    assert spans_beside(first["exemplars"]) == {"checkout": (shop.PERIOD, "checkout")}
    assert spans_beside(second["exemplars"]) == {"price": (2 * shop.PERIOD, "price"), "query": (3 * shop.PERIOD, "query")}
    assert not any(slot.get("exemplars") for slot in plain["series"][0]["slots"])
    by_service = {each["labels"][0]["value"]: each["slots"] for each in two["series"]}
    assert [sum(slot["counts"]) for slot in by_service["shop"]] == [1, 2]
    [stock] = by_service["stock"]
    assert stock["yMin"][1] == 11.5 * MS and stock["counts"] == 19 * [0] + [1]
    assert [each["labels"][0]["value"] for each in top["series"]] == ["shop"]


def test_points_of_series_lead_to_spans(api):
    select = {"profileTypeID": CPU, "labelSelector": SHOP, **RANGE, "step": 1}
    with_spans, plain = (answer["response"]["series"] for answer in ask_pyroscope(api, [
        ("SelectSeries", {**select, "exemplarType": "EXEMPLAR_TYPE_SPAN"}), ("SelectSeries", select)], "proto"))
    assert [[point["value"] for point in series["points"]] for series in with_spans] == \
        [[point["value"] for point in series["points"]] for series in plain]
    assert [spans_beside(point["exemplars"]) for point in with_spans[0]["points"]] == [
        {"checkout": (shop.PERIOD, "checkout")}, {"query": (3 * shop.PERIOD, "query")}]
    assert not any(point.get("exemplars") for point in plain[0]["points"])


def test_points_and_heatmaps_lead_to_profiles(start):
    """A profile is a series' data at one time; its id leads to its flame graph."""
    api, profiles = start(), shop.Profiles()
    for stack, count, at in (("main;a", 1, 1), ("main;b", 1, 1), ("main;c", 1, 5)):
        profiles.add("shop", stack, count, at=START + at * MS)
    api.send(profiles.request)
    api.stored(3)
    select = {"profileTypeID": CPU, "labelSelector": SHOP, **RANGE}
    series, heatmap = (answer["response"]["series"][0] for answer in ask_pyroscope(api, [
        ("SelectSeries", {**select, "step": 1, "exemplarType": "EXEMPLAR_TYPE_INDIVIDUAL"}),
        ("SelectHeatmap", {**select, "step": 1, "queryType": "HEATMAP_QUERY_TYPE_INDIVIDUAL",
                           "exemplarType": "EXEMPLAR_TYPE_INDIVIDUAL"})], "proto"))
    [point] = series["points"]
    [largest] = point["exemplars"]
    assert (point["value"], int(largest["value"]), int(largest["timestamp"])) == (3 * shop.PERIOD, 2 * shop.PERIOD, START // MS + 1)
    [slot] = heatmap["slots"]
    assert slot["counts"] == [1] + 18 * [0] + [1]
    small, large = slot["exemplars"]
    assert large["profileId"] == largest["profileId"] != small["profileId"]
    graphs = [answer["response"] for answer in ask_pyroscope(api, [
        ("SelectMergeStacktraces", {**select, "profileIdSelector": ids})
        for ids in ([large["profileId"]], [small["profileId"]], [small["profileId"], large["profileId"]],
                    ["7c9e6679-7425-40de-944b-e07fc1f90ae7"])], "proto")]
    assert [int(graph["flamegraph"].get("total", 0)) // shop.PERIOD for graph in graphs] == [2, 1, 3, 0]
    assert shop.stacks_of(bearer_of(graphs[0]["flamegraph"])) == {"main;a": shop.PERIOD, "main;b": shop.PERIOD}
    [packed] = ask_pyroscope(api, [("SelectMergeProfile", {**select, "profileIdSelector": [small["profileId"]]})], "proto")
    assert [int(sample["value"][0]) for sample in packed["response"]["sample"]] == [shop.PERIOD]


def test_series_of_averages(start):
    """Samples have the time of their profile: one of 20 ms and one of 10 ms are 15 ms on average."""
    api, profiles = start(), shop.Profiles()
    for stack, at in (("main;a", 1), ("main;b", 1), ("main;a", 5)):
        profiles.add("shop", stack, 1, at=START + at * MS)
    api.send(profiles.request)
    api.stored(3)
    select = {"profileTypeID": CPU, "labelSelector": SHOP, **RANGE, "step": 1}
    average, total = (answer["response"]["series"] for answer in ask_pyroscope(api, [
        ("SelectSeries", {**select, "aggregation": "TIME_SERIES_AGGREGATION_TYPE_AVERAGE"}), ("SelectSeries", select)], "proto"))
    assert [point["value"] for point in average[0]["points"]] == [1.5 * shop.PERIOD]
    assert [point["value"] for point in total[0]["points"]] == [3 * shop.PERIOD]


def test_pyroscopes_client_receives_errors(api):
    select = {"profileTypeID": CPU, "labelSelector": SHOP, **RANGE}
    answers = ask_pyroscope(api, [
        ("SelectMergeStacktraces", {**select, "profileTypeID": "nope"}),
        ("SelectMergeStacktraces", {**select, "labelSelector": '{a="b"'}),
        ("SelectMergeStacktraces", {**select, "labelSelector": '{a=~"("}'}),
        ("SelectMergeSpanProfile", {**select, "spanSelector": ["xyz"]}),
        ("SelectMergeStacktraces", {**select, "start": 5, "end": 4}),
        ("Diff", {}),
        ("SelectSeries", {**select, "step": 0}),
        ("LabelValues", {**RANGE}),
        ("SelectHeatmap", {}),
        ("SelectHeatmap", {**select, "step": 1, "queryType": "HEATMAP_QUERY_TYPE_SPAN", "exemplarType": "EXEMPLAR_TYPE_INDIVIDUAL"}),
        ("SelectMergeStacktraces", {**select, "profileIdSelector": ["7c9e6679-7425"]}),
        ("SelectMergeStacktraces", {**select, "labelSelector": "{" * 70000}),
    ], "proto")
    assert [answer["code"] for answer in answers] == ["invalid_argument"] * 12
    assert "1:7: parse error" in answers[1]["message"]


FACTS = pathlib.Path(__file__).parents[1] / "data" / "pyroscope" / "flamegraphs.jsonl"


def named(levels, names, width):
    """Rows of bars with their names instead of numbers, whose order may differ."""
    return [[(*row[at:at + width - 1], names[row[at + width - 1]]) for at in range(0, len(row), width)] for row in levels]


def test_flame_graphs_equal_those_of_pyroscopes_code(start):
    """data/pyroscope/flamegraphs.jsonl: trees, and the output of pkg/model of grafana/pyroscope
    1.6.0 (NewFlameGraph, NewFlamegraphDiff) for them."""
    api, profiles = start(), shop.Profiles()
    facts = [json.loads(line) for line in FACTS.read_text().splitlines()]
    for n, fact in enumerate(facts):
        for side in ("left", "right"):
            profiles.add_values(f"{side}{n}", fact.get(side, {}))
    api.send(profiles.request)
    api.stored(sum(len(fact[side]) for fact in facts for side in ("left", "right") if side in fact))
    for n, fact in enumerate(facts):
        left, right = ({"profileTypeID": CPU, "labelSelector": f'{{service_name="{side}{n}"}}', "maxNodes": fact["max"],
                        **RANGE} for side in ("left", "right"))
        diff, expected = "right" in fact, fact["answer"]
        body = json.dumps({"left": left, "right": right} if diff else left).encode()
        method = "Diff" if diff else "SelectMergeStacktraces"
        request = urllib.request.Request(f"http://{api.address}/querier.v1.QuerierService/{method}", body,
                                         {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            got = json.load(answer)["flamegraph"]
        levels = [[int(value) for value in level["values"]] for level in got["levels"]]
        width = 7 if diff else 4
        assert named(levels, got["names"], width) == named(expected["levels"], expected["names"], width), fact
        for key in set(expected) - {"levels", "names"}:
            assert int(got.get(key, 0)) == expected[key], (key, fact)
        assert got["names"][0] == "total"


def test_invalid_bodies_are_rejected(api):
    path = "/querier.v1.QuerierService/SelectMergeStacktraces"

    def status(body, kind, **headers):
        request = urllib.request.Request(f"http://{api.address}{path}", body, {"content-type": kind, **headers})
        with pytest.raises(urllib.error.HTTPError) as failure:
            urllib.request.urlopen(request, timeout=DEADLINE_S)
        assert json.loads(failure.value.read())["code"]
        return failure.value.code
    assert status(b"{}", "application/x-protobuf") == 415
    assert status(b"\xff\xff", "application/proto") == 400
    assert status(b"[" * 100_000, "application/json") == 400
    assert status(b'{"labelSelector": "' + b"x" * 10_000_000 + b'"}', "application/json") == 400
    assert status(gzip.compress(bytes(10_000_000)), "application/proto", **{"content-encoding": "gzip"}) == 400


# --- Hostile ----------------------------------------------------------------------------------------------------------

HOSTILE = {
    "a regular expression without an end": '{service_name=~"(a+)+(b"}',
    "a regular expression of 5000 bytes": '{service_name=~"%s"}' % ("x" * 5000),
    "brackets in brackets": "{" * 3000,
    "65 matchers": "{%s}" % ",".join(f'a{n}="1"' for n in range(65)),
    "an unfinished string": '{service_name="' + "x" * 3000,
    "a zero byte": '{service_name="\\x00"}',
    "an id that is none": '{span_id="zz"}',
    "ids that are not matched so": '{span_id!="b7ad6b7169203331"}',
    "a type of many parts": ":".join("abcdefgh") + "{}",
}


@pytest.mark.parametrize("query", HOSTILE.values(), ids=HOSTILE)
def test_hostile_queries_are_rejected_with_a_message(start, query):
    api = start()
    for path, key in (("/api/braid/profile", "error"), ("/api/braid/top", "error"), ("/pyroscope/render", "message")):
        full = query if query.endswith("h{}") or key == "error" else CPU + query
        code, body = api.refused(path, query=full)
        assert code == 400 and body[key]
    for left in (urllib.parse.urlencode({"query": query}), "query=%zz", "", "trace=1&span=x"):
        code, body = api.refused("/api/braid/diff", left=left, right="trace=1&span=1")
        assert code == 400 and body["error"]


def test_a_slow_expression_is_stopped(start):
    api = start()
    api.send(shop.Profiles().add("a" * 60, "main", 1).request)
    api.stored(1)
    try:
        got = api.braid("profile", query='{service_name=~"(a|aa)+b"}', **RANGE)
        assert got["samples"] == 0
    except urllib.error.HTTPError as failure:
        assert failure.code in (400, 422, 503)
    assert api.braid("profile", query='{service_name=~"a+"}', **RANGE)["samples"] == 1


def test_a_query_that_needs_too_much_memory_is_rejected(braid, tmp_path):
    config = pipelines({"store": {"directory": str(tmp_path / "data")}},
                       extensions={"query": {"endpoint": "127.0.0.1:0", "max_query_memory": 1 << 20}})
    api, profiles = QueryApi(braid(config)), shop.Profiles()
    for n in range(4000):
        profiles.add("shop", ";".join(f"f{n}_{depth}" for depth in range(8)), 1)
    api.send(profiles.request)
    api.stored(4000)
    code, body = api.refused("/api/braid/profile", query=SHOP, **RANGE)
    assert code == 422 and "max_query_memory" in body["error"]
    assert api.braid("status")["store"]["samples"] == 4000
