# SPDX-License-Identifier: Apache-2.0
"""The figures of services and operations: /api/braid/operations. Expected values are arithmetic."""

import pytest

import otlp
import shop
from braid import pipelines, until
from query_api import QueryApi
from shop import MS, START

SECOND = 1000 * MS
MINUTE = 60 * SECOND
AROUND = {"start": START - SECOND, "end": START + SECOND}


@pytest.fixture
def start(braid, tmp_path):
    def begin(**query):
        return QueryApi(braid(pipelines({"store": {"directory": str(tmp_path / "data")}}, processors={"join": {}},
                                        extensions={"query": {"endpoint": "127.0.0.1:0", **query}})))
    return begin


def spans_of(service, spans):
    """Returns a request with spans (name, start in ns, duration in ns, is an error) of one service."""
    request = otlp.traces.ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.append(otlp.attribute("service.name", service))
    scope = resource.scope_spans.add()
    for number, (name, begin, duration, failed) in enumerate(spans, 1):
        span = scope.spans.add(trace_id=number.to_bytes(16, "big"), span_id=(begin + number).to_bytes(8, "big"), name=name,
                               start_time_unix_nano=begin, end_time_unix_nano=begin + duration)
        span.status.code = 2 if failed else 0
    return request


def stored_spans(api, count):
    until(lambda: api.braid("status")["store"]["spans"] >= count, f"{count} spans")


def brief(answer):
    return [(row["kind"], row["service"], row["name"], row["spans"], row["errors"], row["cpu_ns"] // MS)
            for row in answer["operations"]]


def near(got, expected, answer):
    assert abs(got - expected) <= expected * answer["percentile_error"]


OWN = {"checkout": 10, "price": 20, "query": 30, "reserve": 40}  # ms
SUBTREE = {"checkout": 60, "price": 50, "query": 30, "reserve": 40}  # with the spans below of the same service
OUTSIDE = ("outside", "shop", "", 0, 0, 50)
ROWS = {name: ("operation", service, name, 1, int(name == "reserve"), OWN[name]) for name, _, service, _, _ in shop.TREE}


# The join names the span of a sample only if the span arrives first. Otherwise, only the ids lead to the span.
@pytest.mark.parametrize("spans_first", (True, False))
def test_cpu_time_belongs_to_the_operation_of_the_sample(start, spans_first):
    api = start()
    for request in (shop.spans(), shop.samples()) if spans_first else (shop.samples(), shop.spans()):
        api.send(request)
    api.stored(sum(shop.COUNTS.values()))
    stored_spans(api, len(shop.TREE))
    answer = api.braid("operations", **AROUND)
    assert brief(answer) == [ROWS["checkout"], ROWS["price"], OUTSIDE, ROWS["reserve"], ROWS["query"]]
    assert answer["total"] == {"spans": 4, "errors": 1, "samples": 15, "cpu_ns": 150 * MS}
    assert answer["total_before"] == {"spans": 0, "errors": 0, "samples": 0, "cpu_ns": 0}
    assert (answer["cut"], answer["left_out"], answer["before_complete"]) == (None, 0, False)
    by_name = {row["name"]: row for row in answer["operations"]}
    assert (by_name[""]["samples"], by_name[""]["subtree_cpu_ns"], by_name[""]["steps"]) == (5, 50 * MS, [])
    for name, _, _, begin, end in shop.TREE:
        row = by_name[name]
        assert (row["samples"], row["subtree_cpu_ns"]) == (shop.COUNTS[name], SUBTREE[name] * MS)
        assert row["max_ns"] == (end - begin) * MS and sum(row["steps"]) == 1
        for percentile in ("p50_ns", "p95_ns", "p99_ns"):
            near(row[percentile], (end - begin) * MS, answer)


@pytest.mark.parametrize("spans_first", (True, False))
def test_many_spans_are_added_up_without_their_descendants(start, spans_first):
    """A query with 2 MiB of memory keeps 8192 spans."""
    api = start(max_query_memory=2 << 20)
    api.send(spans_of("filler", [("idle", START + n, MS, False) for n in range(9000)]))
    for request in (shop.spans(), shop.samples()) if spans_first else (shop.samples(), shop.spans()):
        api.send(request)
    api.stored(sum(shop.COUNTS.values()))
    stored_spans(api, 9000 + len(shop.TREE))
    answer = api.braid("operations", **AROUND)
    assert brief(answer) == [OUTSIDE, ROWS["reserve"], ROWS["query"], ROWS["price"], ROWS["checkout"],
                             ("operation", "filler", "idle", 9000, 0, 0)]
    assert {row["subtree_cpu_ns"] for row in answer["operations"]} == {None}
    assert answer["total"]["cpu_ns"] == 150 * MS and answer["cut"] is None


def test_samples_of_spans_that_are_not_stored_have_their_own_row(start):
    api = start()
    api.send(shop.samples())
    api.stored(sum(shop.COUNTS.values()))
    answer = api.braid("operations", **AROUND)
    assert brief(answer) == [("unknown", "shop", "", 0, 0, 60), ("outside", "shop", "", 0, 0, 50), ("unknown", "stock", "", 0, 0, 40)]
    assert answer["total"]["cpu_ns"] == 150 * MS


def test_one_operation_uses_98_percent_of_the_cpu(start):
    """A span that began before the time range of its samples counts, too."""
    api = start()
    price, other = START - 10 * SECOND, START
    api.send(spans_of("pricing", [("POST /price", price, 11 * SECOND, False)]), spans_of("cart", [("GET /cart", other, MS, False)]))
    stored_spans(api, 2)
    made = shop.Profiles()
    made.add("pricing", "main;match_coupons", 98, (1).to_bytes(16, "big"), (price + 1).to_bytes(8, "big"), START)
    made.add("cart", "main;list", 2, (1).to_bytes(16, "big"), (other + 1).to_bytes(8, "big"), START)
    api.send(made.request)
    api.stored(100)
    answer = api.braid("operations", start=START, end=START + SECOND)
    assert brief(answer) == [("operation", "pricing", "POST /price", 0, 0, 980), ("operation", "cart", "GET /cart", 1, 0, 20)]
    assert answer["operations"][0]["cpu_ns"] / answer["total"]["cpu_ns"] == 0.98


def test_percentiles_steps_and_the_range_before(start):
    """Spans of 1 to 100 ms, one each 36 seconds, and in the hour before spans of 2 to 200 ms."""
    api, step = start(), 36 * SECOND
    hour = 100 * step
    later = [("GET /", START + i * step, (i + 1) * MS, i % 10 == 0) for i in range(100)]
    earlier = [("GET /", START - hour + i * step, 2 * (i + 1) * MS, i % 20 == 0) for i in range(100)]
    api.send(spans_of("web", later), spans_of("web", earlier), spans_of("web", [("old", START - 2 * hour, MS, False)]))
    stored_spans(api, 201)
    answer = api.braid("operations", start=START, end=START + hour - 1, points=10)
    assert [answer[key] for key in ("start_unix_ns", "end_unix_ns", "before_unix_ns", "step_ns", "before_complete")] == \
        [str(START), str(START + hour), str(START - hour), hour // 10, True]
    row, = answer["operations"]
    assert row["steps"] == [10] * 10
    for figures, spans, errors, unit in ((row, 100, 10, MS), (row["before"], 100, 5, 2 * MS)):
        assert (figures["spans"], figures["errors"], figures["max_ns"]) == (spans, errors, 100 * unit)
        near(figures["p50_ns"], 50 * unit, answer)
        near(figures["p95_ns"], 95 * unit, answer)
        near(figures["p99_ns"], 99 * unit, answer)
    assert answer["total_before"]["spans"] == 100


def test_rows_are_filtered_by_words_and_limited(start):
    api = start()
    api.send(shop.spans(), shop.samples())
    api.stored(sum(shop.COUNTS.values()))
    whole = api.braid("operations", **AROUND)
    every = [row["name"] for row in whole["operations"]]
    for text, names in (("SHOP pri", ["price"]), ("re", ["reserve"]), ("stock", ["reserve"]), (" ", every), ("stock price", []),
                        ("e", [name for name in every if name])):
        answer = api.braid("operations", **AROUND, filter=text)
        assert [row["name"] for row in answer["operations"]] == names, text
        assert (answer["total"], answer["left_out"]) == (whole["total"], 0)
    answer = api.braid("operations", **AROUND, limit=2)
    assert answer["operations"] == whole["operations"][:2] and answer["left_out"] == 3
    assert api.refused("/api/braid/operations", limit=10001)[0] == 400
    assert api.refused("/api/braid/operations", start=2, end=1)[0] == 400
    assert api.any("/api/braid/operations", filter="e " * 128)[0] == 200
    assert api.refused("/api/braid/operations", filter="e " * 129)[0] == 400


# "checkout" is the parent of "price", and "price" of "query", which is the parent of "checkout".
def test_spans_that_are_their_own_ancestors_count_once(start):
    api, request = start(), shop.spans()
    [checkout] = [span for span in request.resource_spans[0].scope_spans[0].spans if span.name == "checkout"]
    checkout.parent_span_id = shop.SPAN["query"]
    api.send(request, shop.samples())
    api.stored(sum(shop.COUNTS.values()))
    stored_spans(api, len(shop.TREE))
    rows = {row["name"]: row["subtree_cpu_ns"] // MS for row in api.braid("operations", **AROUND)["operations"]}
    assert {name: rows[name] for name in OWN} == {"checkout": 60, "price": 60, "query": 60, "reserve": 40}


def test_too_many_operations_have_one_row(start):
    api = start()
    api.send(spans_of("web", [(f"operation {number}", START, MS, False) for number in range(10050)]))
    stored_spans(api, 10050)
    answer = api.braid("operations", **AROUND, limit=10000)
    assert answer["total"]["spans"] == 10050 and answer["left_out"] == 1
    assert answer["operations"][0] == {**answer["operations"][0], "kind": "rest", "spans": 50}
    assert "there are more operations" in answer["cut"]


def test_a_query_that_is_cut_says_so(start):
    api = start(max_query_memory=1 << 20)
    api.send(spans_of("web", [(f"operation {number}", START, MS, False) for number in range(5000)]))
    stored_spans(api, 5000)
    status, answer = api.any("/api/braid/operations", **AROUND)
    assert status == 422 or answer["cut"], answer
