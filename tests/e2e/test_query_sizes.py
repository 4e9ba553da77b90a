# SPDX-License-Identifier: Apache-2.0
"""Answers about more spans than a list shows: each is exact, or marked as truncated. Expected
values are arithmetic on the numbers of the spans."""

import struct

import pytest

import otlp
from braid import pipelines
from query_api import QueryApi

N = 25_000
START = 1_800_000_000_000_000_000
MS = 1_000_000
RANGE = {"start": START // 10**9 - 10, "end": START // 10**9 + 3600}
CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"


def trace_id(n):
    return struct.pack(">QQ", 7, n + 1)


def span_id(n):
    return struct.pack(">Q", n + 1)


def spans(numbers, service="shop", name=lambda n: "work", trace=trace_id, parent=lambda n: b"", attributes=lambda n: {}):
    """Span n begins n ms after the start and takes n + 1 microseconds."""
    request = otlp.traces.ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.append(otlp.attribute("service.name", service))
    scope = resource.scope_spans.add()
    for n in numbers:
        span = scope.spans.add(trace_id=trace(n), span_id=span_id(n), parent_span_id=parent(n), name=name(n), kind=2,
                               start_time_unix_nano=START + n * MS, end_time_unix_nano=START + n * MS + (n + 1) * 1000)
        for key, value in attributes(n).items():
            span.attributes.append(otlp.attribute(key, value))
    return request


def samples(rows, service="shop", trace=trace_id):
    """A CPU sample for each (span, milliseconds)."""
    request = otlp.profile_request(0, service=service)
    tables, profile = request.dictionary, request.resource_profiles[0].scope_profiles[0].profiles[0]
    for n, ms in rows:
        tables.link_table.add(trace_id=trace(n), span_id=span_id(n))
        profile.samples.add(stack_index=1, link_index=len(tables.link_table) - 1, values=[ms * MS],
                            timestamps_unix_nano=[START + n * MS])
    return request


@pytest.fixture
def start(braid, tmp_path):
    """start(**options of the query API): a server whose store is empty."""
    def begin(**query):
        return QueryApi(braid(pipelines({"store": {"directory": str(tmp_path / "data")}},
                                     extensions={"query": {"endpoint": "127.0.0.1:0", "query_timeout": "120s", **query}})))
    return begin


def send_in_parts(api, count, **how):
    for begin in range(0, count, 5000):
        api.send(spans(range(begin, min(begin + 5000, count)), **how))


@pytest.fixture
def api(start):
    """N spans of one operation in as many traces. Span 5 has the most CPU time, then 4, 3, 2 and 1:
    these are the oldest and shortest. Each of the slowest twentieth has 1 ms."""
    made = start()
    send_in_parts(made, N, attributes=lambda n: {"number": n, "mail": "a@example.org" if n == 3 else "none"})
    slow = [(n, 1) for n in range(N * 95 // 100 - 1, N)]
    made.send(samples([(n, 100 + n) for n in range(1, 6)] + slow))
    made.stored(5 + len(slow))
    return made


def test_slow_against_typical_uses_every_span(api):
    got = api.braid("slow", service="shop", name="work", **RANGE)
    assert (got["slow"]["spans"], got["typical"]["spans"]) == (N // 20 + 1, N // 5 + 1)
    assert got["slow"]["min_duration_ns"] == N * 95 // 100 * 1000
    assert (got["slow"]["cpu_ns_per_span"], got["typical"]["cpu_ns_per_span"]) == (MS, 0)
    assert [each["span_id"] for each in got["slow"]["examples"]] == [span_id(N - 1 - i).hex() for i in range(5)]
    assert (got["why_empty"], got["cut"]) == (None, None)


def test_spans_with_the_most_cpu_time_are_first(api):
    got = api.braid("spans", sort="cpu", limit=6, **RANGE)
    assert [each["span_id"] for each in got["spans"]] == [span_id(n).hex() for n in (5, 4, 3, 2, 1, N - 1)]
    assert [each["profile"]["cpu_ns"] for each in got["spans"]] == [105 * MS, 104 * MS, 103 * MS, 102 * MS, 101 * MS, MS]
    assert got["cut"] is None
    among = api.braid("spans", sort="cpu", limit=2, q="{ span.number > 1 && span.number < 5 }", **RANGE)
    assert [each["span_id"] for each in among["spans"]] == [span_id(n).hex() for n in (4, 3)]


@pytest.mark.parametrize("sort", ["duration", "start"])
@pytest.mark.parametrize("query", ["{ span.number < 3 }", "{ span.number < 3 } | count() > 0"])
def test_a_query_finds_spans_among_all(api, sort, query):
    got = api.braid("spans", q=query, sort=sort, limit=2, **RANGE)
    assert [each["span_id"] for each in got["spans"]] == [span_id(n).hex() for n in (2, 1)]
    assert got["cut"] is None
    narrow = api.braid("spans", q=query, sort=sort, max_duration="2us", **RANGE)
    assert [each["span_id"] for each in narrow["spans"]] == [span_id(n).hex() for n in (1, 0)]


def pages_of(api, **params):
    """Returns the span ids of all pages, in the order of the list."""
    found, after = [], ""
    while after is not None:
        got = api.braid("spans", limit=1000, after=after, **params, **RANGE)
        assert got["cut"] is None and len(got["spans"]) <= 1000
        found += [each["span_id"] for each in got["spans"]]
        after = got["next"]
    return found


def test_a_list_continues_beyond_spans_that_are_equal(start):
    """4,000 spans have one start and one duration, and 10 spans are longer. A quarter has errors."""
    api, count = start(), 4010
    request = spans(range(count), attributes=lambda n: {"number": n})
    for n, span in enumerate(request.resource_spans[0].scope_spans[0].spans):
        span.start_time_unix_nano = START
        span.end_time_unix_nano = START + (1 if n < 4000 else 2) * MS
        span.status.code = 2 if n % 4 == 0 else 1
    api.send(request)
    api.send(samples([(n, 1) for n in range(0, 1500)]))
    api.stored(1500)
    everything, longest = {span_id(n).hex() for n in range(count)}, {span_id(n).hex() for n in range(4000, count)}
    for params in ({}, {"sort": "start"}, {"sort": "cpu"}, {"q": "{ span.number >= 0 }"}):
        found = pages_of(api, **params)
        assert len(found) == count and set(found) == everything, params
        if "sort" not in params:
            assert set(found[:10]) == longest
        if params.get("sort") == "cpu":
            assert set(found[:1500]) == {span_id(n).hex() for n in range(1500)}
    for status, numbers in (("error", range(0, count, 4)), ("ok", [n for n in range(count) if n % 4])):
        found = pages_of(api, status=status)
        assert len(found) == len(numbers) and set(found) == {span_id(n).hex() for n in numbers}
    for text in ("x", "00", "0" * 82):
        code, body = api.any("/api/braid/spans", after=text, **RANGE)
        assert code == 400 and f'must be "next" of a response, got "{text[:80]}"' in body["error"]


def test_privacy_reads_every_span_and_profiles(api):
    got = api.braid("privacy", **RANGE)
    assert [(each["key"], each["kind"], each["count"], each["span_id"]) for each in got["found"]] == [
        ("mail", "mail address", 1, span_id(3).hex())]
    assert (got["looked_at"]["spans"], got["looked_at"]["series"]) == (N, 1)
    assert got["looked_at"]["functions"] > 0 and got["cut"] is None


def test_timeline_and_join_health_count_every_span(api):
    assert sum(bucket["spans"] for bucket in api.braid("timeline", **RANGE)["buckets"]) == N
    assert [each["spans"] for each in api.braid("join", **RANGE)["services"]] == [N]


def test_every_service_lists_its_operations(start):
    """One of the services has more operations than one answer lists."""
    api = start()
    api.send(spans(range(10_001), service="a", name=lambda n: f"operation {n}"))
    api.send(spans(range(1500), service="b", name=lambda n: f"operation {n}"))
    api.send(spans(range(2), service="c", name=lambda n: f"operation {n}"))
    got = api.braid("services", **RANGE)
    assert [(each["name"], each["spans"], len(each["operations"])) for each in got["services"]] == [
        ("a", 10_001, 10_000), ("b", 1500, 1500), ("c", 2, 2)]
    assert got["cut"] == "there are more operations than one response can list"


def test_a_trace_of_50_000_spans_is_complete(start):
    api, count = start(), 50_000
    send_in_parts(api, count, trace=lambda n: trace_id(0), parent=lambda n: span_id(0) if n else b"")
    api.send(samples([(n, 2) for n in range(1, count, 5)], trace=lambda n: trace_id(0)))
    api.stored(count // 5)
    got = api.braid(f"traces/{trace_id(0).hex()}")
    assert len(got["spans"]) == count and got["cut"] is None
    assert got["spans"][0]["profile"]["subtree"]["cpu_ns"] == count // 5 * 2 * MS
    assert got["spans"][1]["profile"]["cpu_ns"] == 2 * MS
    [row] = api.braid("spans", roots="true", figures="subtree", **RANGE)["spans"]
    assert row["profile"]["subtree"]["cpu_ns"] == count // 5 * 2 * MS


def test_memory_of_series_depends_on_steps_not_on_spans(start):
    api, count = start(max_query_memory=4 << 20), 60_000
    for begin in range(0, count, 10_000):
        api.send(samples([(n, 1) for n in range(begin, begin + 10_000)]))
    api.stored(count)
    got = api.post("/querier.v1.QuerierService/SelectSeries", {
        "profileTypeID": CPU, "labelSelector": "{}", "start": str(START // MS), "end": str(START // MS + count), "step": 10})
    points = got["series"][0]["points"]
    assert sum(float(point["value"]) for point in points) == count * MS
    assert len(points) == count // 10_000 + 1  # one sample lies at the start of the first step


@pytest.mark.parametrize("timeout_ms", [1, 2, 4, 8, 16])
def test_a_query_that_takes_too_long_is_stopped(start, timeout_ms):
    api = start(query_timeout=f"{timeout_ms}ms")
    send_in_parts(api, 10_000, attributes=lambda n: {"number": n})
    code, body = api.any("/api/braid/spans", q="{ span.number >= 0 }", **RANGE)
    assert code == 504 or (code == 200 and (body["cut"] or len(body["spans"]) == 100)), body
