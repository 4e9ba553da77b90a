# SPDX-License-Identifier: Apache-2.0
"""Selected spans against the rest: the parameters selection_* of /api/braid/slow, and /api/braid/differences.
Expected values are arithmetic. Times are in ms."""

import pytest

import otlp
from braid import pipelines, until
from calls import Requests, parts_of, serve, span
from query_api import QueryApi
from shop import MS, START

CHECKOUT, PRICE, OTHER = ("checkout", "POST /checkout"), ("pricing", "POST /price"), ("mail", "send")


def requests():
    """Three requests of 100 ms, and two of 1000 ms that begin 5 s later."""
    made = Requests()
    for _ in range(3):
        made.add(CHECKOUT, 0, 100, span(PRICE, 10, 90, samples=2))
    for _ in range(2):
        made.add(CHECKOUT, 5000, 6000, span(PRICE, 5010, 5970, samples=50))
    made.add(OTHER, 5000, 6000)
    return made


RANGE = {"start": START // MS - 1000, "end": START // MS + 1000}
WIDE = {"start": START // MS - 1000, "end": START // MS + 10000}
OF = {"service": CHECKOUT[0], "name": CHECKOUT[1]}


@pytest.fixture
def start(braid, tmp_path):
    return lambda made: serve(braid, tmp_path, made)


@pytest.mark.parametrize("filters", [OF, {**OF, "q": "{ duration > 1ms }"}, {"q": '{ name = "POST /checkout" }'},
                                     {"service": "checkout", "roots": "true"}])
@pytest.mark.parametrize("selection", [
    {"selection_min_duration": "500ms"}, {"selection_start": START + 5000 * MS},
    {"selection_min_duration": "500ms", "selection_max_duration": "1000ms", "selection_end": START + 5000 * MS}])
def test_selected_requests_are_compared_with_all_others(start, filters, selection):
    answer = start(requests()).braid("slow", **WIDE, **filters, **selection)
    assert answer["slow"]["spans"] == answer["slow"]["compared"] == 2
    assert answer["typical"]["spans"] == answer["typical"]["compared"] == 3
    assert (answer["slow"]["median_duration_ns"], answer["typical"]["median_duration_ns"]) == (1000 * MS, 100 * MS)
    assert parts_of(answer)[PRICE] == (80, 960)
    assert answer["cut"] is None


def test_the_samples_of_the_selection_are_compared(start):
    """The local subtree of POST /price is the span itself: 50 samples of 10 ms on one side, 2 on the other."""
    made = requests()
    answer = start(made).braid("slow", **WIDE, service=PRICE[0], name=PRICE[1], selection_min_duration="500ms")
    assert (answer["slow"]["cpu_ns_per_span"], answer["typical"]["cpu_ns_per_span"]) == (500 * MS, 20 * MS)
    function = next(each for each in answer["functions"] if each["name"] == PRICE[1])
    assert (function["slow_per_span"], function["typical_per_span"]) == (500 * MS, 20 * MS)


def test_the_number_of_bars_can_be_limited(start):
    """The graph of all bars has total, main, and both functions."""
    made = requests()
    made.add(PRICE, 0, 100, samples=1, stack="other work")
    api = start(made)
    params = {**WIDE, "service": PRICE[0], "name": PRICE[1], "selection_min_duration": "500ms"}
    names = api.braid("slow", **params)["flamebearer"]["names"]
    assert {"total", "main", PRICE[1], "other work"} <= set(names)
    names = api.braid("slow", **params, max_nodes=3)["flamebearer"]["names"]
    assert "other" in names and "other work" not in names


def test_parts_below_selected_requests(start):
    answer = start(requests()).braid("slow", **WIDE, service=PRICE[0], name=PRICE[1], of_service=CHECKOUT[0],
                                     of_name=CHECKOUT[1], selection_min_duration="500ms")
    assert (answer["slow"]["spans"], answer["typical"]["spans"]) == (2, 3)
    assert answer["slow"]["cpu_ns_per_span"] == 500 * MS


@pytest.mark.parametrize("selection, why", [
    ({"selection_min_duration": "1h"}, "there are no spans in the selection"),
    ({"selection_max_duration": "1h"}, "all spans are in the selection")])
def test_an_empty_side(start, selection, why):
    answer = start(requests()).braid("slow", **WIDE, **OF, **selection)
    assert answer["why_empty"] == why
    assert min(answer["slow"]["spans"], answer["typical"]["spans"]) == 0


@pytest.mark.parametrize("path, params, error", [
    ("slow", {}, "missing parameter: set service and name (of the operation), or a selection"),
    ("slow", {"service": "a"}, "missing parameter: set service and name (of the operation), or a selection"),
    ("slow", {"of_service": "a", "of_name": "b", "selection_start": 1},
     "missing parameter: of_service and of_name also need service and name"),
    ("differences", {}, "missing parameter: set selection_start, selection_end, selection_min_duration or "
                        "selection_max_duration"),
    ("differences", {"selection_start": "x"}, "invalid selection_start"),
    ("differences", {"selection_max_duration": "x"}, "invalid selection_max_duration"),
    ("differences", {"selection_start": 1, "limit": 501}, "limit")])
def test_errors(api, path, params, error):
    code, answer = api.refused(f"/api/braid/{path}", **params)
    assert code == 400
    assert error in answer["error"]


@pytest.mark.parametrize("filters", [{}, {"q": "{ true }"}])
def test_the_heat_map_has_cpu_time_by_cell(start, filters):
    """In the heat map, each sample of 10 ms belongs to the cell of its span, not to those of the spans above it."""
    api = start(requests())
    answer = api.braid("heat", **WIDE, **filters, cpu="true")
    steps, bounds = answer["steps"], answer["durations_ns"]
    found = {}
    for at, cpu in enumerate(answer["cpu_ns"]):
        for duration in (80, 100, 960, 1000):
            if bounds[at // steps] <= duration * MS < bounds[at // steps + 1] and answer["spans"][at]:
                found[duration] = found.get(duration, 0) + cpu / MS
    assert found == {80: 3 * 2 * 10, 100: 0, 960: 2 * 50 * 10, 1000: 0}
    assert sum(answer["cpu_ns"]) == (3 * 2 + 2 * 50) * 10 * MS and answer["why_no_cpu"] is None
    assert api.braid("heat", **WIDE, **filters)["cpu_ns"] is None


def test_cpu_time_of_very_many_spans_is_not_computed(start):
    made = Requests()
    for _ in range(20001):
        made.add(OTHER, 0, 1)
    answer = start(made).braid("heat", **WIDE, cpu="true")
    assert answer["total"]["spans"] == 20001 and answer["cpu_ns"] is None
    assert answer["why_no_cpu"].startswith("CPU time is computed for at most 20000 spans")


# --- Attributes --------------------------------------------------------------------------------------------------


@pytest.fixture
def api(braid, tmp_path):
    return QueryApi(braid(pipelines({"store": {"directory": str(tmp_path / "data")}}, processors={"join": {}},
                                    extensions={"query": {"endpoint": "127.0.0.1:0"}})))


def send(api, spans, resource=()):
    """Stores spans: (duration in ms, attributes, status code)."""
    request = otlp.traces.ExportTraceServiceRequest()
    made = request.resource_spans.add()
    made.resource.attributes.append(otlp.attribute("service.name", "shop"))
    made.resource.attributes.extend(otlp.attribute(*each) for each in resource)
    scope = made.scope_spans.add()
    before = api.braid("status")["store"]["spans"]
    for number, (duration, attributes, status) in enumerate(spans, before + 1):
        one = scope.spans.add(trace_id=number.to_bytes(16, "big"), span_id=number.to_bytes(8, "big"), name="buy",
                              start_time_unix_nano=START, end_time_unix_nano=START + duration * MS)
        one.status.code = status
        one.attributes.append(otlp.attribute("id", f"id{number}"))
        one.attributes.extend(otlp.attribute(*each) for each in attributes)
    api.send(request)
    until(lambda: api.braid("status")["store"]["spans"] == before + len(spans), "all spans")


def differences(api, **params):
    answer = api.braid("differences", **RANGE, **params)
    found = {(each["attribute"], each["value"]): (each["selected"], each["rest"]) for each in answer["attributes"]}
    for each in answer["attributes"]:
        for side in ("selected", "rest"):
            read = answer[side]["read"]
            assert each[f"{side}_share"] == pytest.approx(each[side] / read if read else 0, rel=1e-5)
    distances = [abs(each["selected_share"] - each["rest_share"]) for each in answer["attributes"]]
    assert distances == sorted(distances, reverse=True)
    return answer, found


@pytest.mark.parametrize("filters", [{}, {"q": "{ true }"}, {"q": '{ span.id != "x" }'}, {"service": "shop"}])
def test_values_that_differ_come_first(api, filters):
    send(api, [(900, [("region", "eu"), ("tier", "gold")], 2)] * 3 + [(900, [("region", "us"), ("tier", "gold")], 0)]
         + [(10, [("region", "eu"), ("tier", "gold")], 0)] + [(10, [("region", "us"), ("tier", "gold")], 0)] * 5)
    answer, found = differences(api, **filters, selection_min_duration="500ms")
    assert answer["selected"] == {"spans": 4, "read": 4} and answer["rest"] == {"spans": 6, "read": 6}
    assert found == {("status", "error"): (3, 0), ("status", "unset"): (1, 6), ("span.region", "eu"): (3, 1),
                     ("span.region", "us"): (1, 5), ("span.tier", "gold"): (4, 6), ("name", "buy"): (4, 6),
                     ("kind", "unspecified"): (4, 6), ("resource.service.name", "shop"): (4, 6),
                     ("statusMessage", ""): (4, 6), ("instrumentation:name", ""): (4, 6),
                     ("instrumentation:version", ""): (4, 6)}
    assert {found_at for found_at in list(found)[:2]} == {("status", "error"), ("status", "unset")}
    assert answer["values"] == len(found)
    assert answer["cut"] is None


def test_the_limit(api):
    send(api, [(900, [], 0)] * 2 + [(10, [], 0)] * 2)
    answer, found = differences(api, selection_min_duration="500ms", limit=2)
    assert len(found) == 2 and answer["values"] > 2


@pytest.mark.parametrize("key, value", [
    ("plain", "text"), ("with space", 'quo"te'), ("back", "a\\b"), ("unicode", "käse\u2603"), ("new", "a\nb"), ("whole", 7),
    ("real", 1.5), ("yes", True), ("no", False), ("negative", -3)])
def test_the_condition_selects_the_spans_with_the_value(api, key, value):
    send(api, [(900, [(key, value)], 0)] * 2 + [(10, [], 0)] * 3)
    answer, _ = differences(api, selection_min_duration="500ms")
    first = answer["attributes"][0]
    assert (first["selected"], first["rest"]) == (2, 0) and key in first["attribute"]
    assert len(api.braid("spans", **RANGE, q="{ " + first["condition"] + " }")["spans"]) == 2


def test_resources_and_sides_without_spans(api):
    send(api, [(900, [], 0)] * 2, resource=[("host.name", "a")])
    send(api, [(10, [], 0)] * 3, resource=[("host.name", "b")])
    _, found = differences(api, selection_min_duration="500ms")
    assert found["resource.host.name", "a"] == (2, 0) and found["resource.host.name", "b"] == (0, 3)
    answer, found = differences(api, selection_min_duration="1h")
    assert answer["selected"] == {"spans": 0, "read": 0} and answer["rest"] == {"spans": 5, "read": 5}
    assert found["resource.host.name", "a"] == (0, 2)


@pytest.mark.parametrize("filters", [{}, {"q": "{ duration > 0ms }"}])
def test_of_many_spans_some_are_read(api, filters):
    """Half of the rest has a certain value. Of 2,000 spans, 500 at equal distances are read."""
    send(api, [(900, [], 0)] * 3 + [(10, [("half", "a" if i < 1000 else "b")], 0) for i in range(2000)])
    answer, found = differences(api, **filters, selection_min_duration="500ms")
    assert answer["selected"] == {"spans": 3, "read": 3} and answer["rest"] == {"spans": 2000, "read": 500}
    assert found["name", "buy"] == (3, 500)
    assert found["span.half", "a"][1] + found["span.half", "b"][1] == 500
    assert abs(found["span.half", "a"][1] - 250) <= 50
