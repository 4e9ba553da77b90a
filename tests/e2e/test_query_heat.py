# SPDX-License-Identifier: Apache-2.0
"""Numbers of spans by time and duration: /api/braid/heat. Expected values are arithmetic."""

import pytest

import otlp
from braid import pipelines, until
from query_api import QueryApi
from shop import MS, START

SECOND = 1000 * MS
# name, start in seconds after START, duration in ms, status
SPANS = [("fast", 0, 1, 0), ("fast", 1, 1, 0), ("fast", 5, 2, 2), ("slow", 5, 100, 0), ("slow", 9, 1000, 2), ("slow", 9, 1000, 1)]
RANGE = {"start": START, "end": START + 10 * SECOND - 1, "points": 10}


@pytest.fixture
def api(braid, tmp_path):
    api = QueryApi(braid(pipelines({"store": {"directory": str(tmp_path / "data")}}, processors={"join": {}},
                                   extensions={"query": {"endpoint": "127.0.0.1:0"}})))
    request = otlp.traces.ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.append(otlp.attribute("service.name", "shop"))
    scope = resource.scope_spans.add()
    for number, (name, at, duration, status) in enumerate(SPANS, 1):
        begin = START + at * SECOND
        span = scope.spans.add(trace_id=number.to_bytes(16, "big"), span_id=number.to_bytes(8, "big"), name=name,
                               start_time_unix_nano=begin, end_time_unix_nano=begin + duration * MS)
        span.status.code = status
        span.attributes.append(otlp.attribute("number", str(number)))
        if number == 2:
            span.parent_span_id = (1).to_bytes(8, "big")
    api.send(request)
    until(lambda: api.braid("status")["store"]["spans"] == len(SPANS), "all spans")
    return api


def cells(answer, kind="spans"):
    """Returns the cells that are not empty: step, bounds of the duration, number."""
    assert len(answer[kind]) == answer["steps"] * max(0, len(answer["durations_ns"]) - 1)
    return [(at % answer["steps"], *answer["durations_ns"][at // answer["steps"]:][:2], number)
            for at, number in enumerate(answer[kind]) if number]


def test_each_span_is_in_the_cell_of_its_start_and_duration(api):
    answer = api.braid("heat", **RANGE)
    assert (answer["step_ns"], answer["steps"], answer["cut"]) == (SECOND, 10, None)
    assert answer["total"] == {"spans": 6, "errors": 2}
    assert len(answer["durations_ns"]) - 1 <= 40 and answer["durations_ns"] == sorted(answer["durations_ns"])
    expected = {}
    for _, step, duration, _ in SPANS:
        expected[step, duration] = expected.get((step, duration), 0) + 1
    found = cells(answer)
    assert len(found) == len(expected)
    for (step, duration), number in expected.items():
        assert [n for at, low, high, n in found if at == step and low <= duration * MS < high] == [number]
    assert [(step, number) for step, _, _, number in cells(answer, "errors")] == [(5, 1), (9, 1)]


@pytest.mark.parametrize("params, numbers", [
    ({"name": "slow"}, {4, 5, 6}), ({"service": "shop", "name": "fast"}, {1, 2, 3}), ({"service": "none"}, set()),
    ({"status": "error"}, {3, 5}), ({"status": "ok"}, {6}), ({"roots": "true"}, {1, 3, 4, 5, 6}),
    ({"min_duration": "2ms", "max_duration": "100ms"}, {3, 4}), ({"q": "{ duration > 50ms }"}, {4, 5, 6}),
    ({"q": '{ span.number = "3" }'}, {3}), ({"q": "{ duration > 50ms }", "status": "error"}, {5}),
])
def test_the_spans_are_those_of_the_list(api, params, numbers):
    listed = api.braid("spans", start=RANGE["start"], end=RANGE["end"], **params)["spans"]
    assert {int(span["trace_id"], 16) for span in listed} == numbers
    answer = api.braid("heat", **RANGE, **params)
    assert answer["total"]["spans"] == sum(answer["spans"]) == len(numbers)
    assert answer["total"]["errors"] == sum(answer["errors"]) == len(numbers & {3, 5})


def test_a_cell_selects_its_spans_in_the_list(api):
    """The list contains as many spans as the cell if it has the bounds of the cell."""
    answer = api.braid("heat", **RANGE)
    for step, low, high, number in cells(answer):
        begin = START + step * SECOND
        box = {"start": begin, "end": begin + SECOND - 1, "min_duration": f"{low}ns", "max_duration": f"{high - 1}ns"}
        assert len(api.braid("spans", **box)["spans"]) == number


def test_rows_are_merged_until_they_fit(api):
    answer = api.braid("heat", **RANGE, rows=2)
    assert len(answer["durations_ns"]) <= 3
    assert sum(answer["spans"]) == 6
