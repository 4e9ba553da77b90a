# SPDX-License-Identifier: Apache-2.0
"""Slow spans against typical ones, across services: /api/braid/slow divides the durations of both into parts. The
spans and samples of the tests are made so that the parts can be computed by hand.

Five requests of an operation are divided as follows, sorted by duration: the fifth is slow (95th percentile), the
second and the third are typical (40th to 60th). Times are in ms."""

import pytest

from calls import CLIENT, CONSUMER, INTERNAL, PRODUCER, Requests, parts_of, serve, span
from shop import MS, START

RANGE = {"start": START // MS - 1000, "end": START // MS + 1000}


@pytest.fixture
def start(braid, tmp_path):
    return lambda made: serve(braid, tmp_path, made)


def compare(api, operation, of=None):
    more = {"of_service": of[0], "of_name": of[1]} if of else {}
    answer = api.braid("slow", service=operation[0], name=operation[1], **more, **RANGE)
    for side in ("typical", "slow"):
        assert sum(part[f"{side}_ns"] for part in answer["parts"]) == answer[side]["mean_duration_ns"]
    for part in answer["parts"]:
        assert part["delta_ns"] == part["slow_ns"] - part["typical_ns"]
    return answer


def part_of(answer, key):
    return next(part for part in answer["parts"] if key in (part["kind"], (part["service"], part["name"])))


CHECKOUT, PRICE = ("checkout", "POST /checkout"), ("pricing", "POST /price")
COUPONS = ("pricing", "apply coupons")


def add_checkout(made, duration):
    """A request that waits for the service `pricing` and for a database. `pricing` uses CPU time in a function."""
    returned = duration - 40
    made.add(CHECKOUT, 0, duration,
             span(("checkout", "price cart"), 10, returned,
                  span(PRICE, 12, returned - 2,
                       span(COUPONS, 15, returned - 5, kind=INTERNAL, samples=duration // 10 - 6, stack="match_coupons")),
                  kind=CLIENT),
             span(("checkout", "SELECT cart"), returned, returned + 20, kind=CLIENT),
             samples=1)


def test_the_time_is_found_in_another_service_and_in_its_function(start):
    """Twenty requests: 2 of 1000 and 1200 ms are slow, and 5 of 100 ms are typical."""
    made = Requests()
    for duration in [90] * 7 + [100] * 5 + [110] * 6 + [1000, 1200]:
        add_checkout(made, duration)
    api = start(made)

    whole = compare(api, CHECKOUT)
    assert (whole["typical"]["compared"], whole["typical"]["mean_duration_ns"]) == (5, 100 * MS)
    assert (whole["slow"]["compared"], whole["slow"]["mean_duration_ns"]) == (2, 1100 * MS)
    # POST /price: 12 to 58 ms; 12 to 958 and 12 to 1158 ms. The client span around it is not a part.
    assert parts_of(whole) == {PRICE: (46, 1046), ("checkout", "SELECT cart"): (20, 20), "cpu": (10, 10),
                               "unexplained": (24, 24)}
    assert part_of(whole, PRICE)["delta_ns"] == 1000 * MS
    # Standard error of 946 and 1146 ms: their standard deviation of 141 ms, divided by the square root of 2
    assert part_of(whole, PRICE)["noise_ns"] == pytest.approx(200 * MS, abs=10)
    assert part_of(whole, "cpu")["noise_ns"] == 3 * 10 * MS // 2  # three samples in two spans
    assert part_of(whole, PRICE)["slow_calls"] == 1

    pricing = compare(api, PRICE, of=CHECKOUT)
    assert (pricing["typical"]["compared"], pricing["slow"]["compared"]) == (5, 2)
    assert pricing["slow"]["mean_duration_ns"] == part_of(whole, PRICE)["slow_ns"]
    assert parts_of(pricing) == {COUPONS: (40, 1040), "cpu": (0, 0), "unexplained": (6, 6)}
    function = pricing["functions"][0]
    assert function["name"] == "match_coupons"
    assert (function["typical_per_span"], function["slow_per_span"]) == (40 * MS, (940 + 1140) // 2 * MS)
    assert function["delta"] > function["noise"]
    # Twice the Poisson error: 4 samples per typical span, 104 per slow span, of which there are 5 and 2
    assert function["noise"] / MS == pytest.approx(2 * 10 * (4 / 5 + 104 / 2) ** .5, abs=.001)
    assert pricing["sample"] == {"typical": 2 * MS, "slow": 5 * MS}

    coupons = compare(api, COUPONS, of=CHECKOUT)
    assert parts_of(coupons) == {"cpu": (40, 1040), "unexplained": (0, 0)}
    # Without `of`, the slow spans of the operation itself are compared; here they are the same spans.
    assert parts_of(compare(api, PRICE)) == parts_of(pricing)


def test_parallel_children_are_not_counted_twice(start):
    made, root = Requests(), ("shop", "GET /")
    a, b = ("one", "A"), ("two", "B")
    # At each moment the request waits for the span that ends last.
    made.add_five(root, lambda: made.add(root, 0, 100, span(a, 10, 60), span(b, 30, 80)),
                  lambda: made.add(root, 0, 1000, span(a, 10, 960), span(b, 30, 500)))
    answer = compare(start(made), root)
    assert parts_of(answer) == {a: (20, 950), b: (50, 0), "cpu": (0, 0), "unexplained": (30, 50)}
    assert part_of(answer, b)["slow_calls"] == 1
    assert answer["why_empty"] == "the compared spans have no samples"


def test_missing_spans_are_unexplained_or_part_of_the_call(start):
    """The server span of a call is missing in the slow request, and the parent of another server span."""
    made, root, call = Requests(), ("shop", "GET /stock"), ("shop", "call stock")
    made.add_five(root, lambda: made.add(root, 0, 100),
                  lambda: made.add(root, 0, 1000, span(call, 100, 900, kind=CLIENT)))
    made.add(("stock", "GET /items"), 10, 90)  # its parent is missing, so this is another request
    answer = compare(start(made), root)
    assert parts_of(answer) == {call: (0, 800), "cpu": (0, 0), "unexplained": (100, 200)}


def test_clock_skew_and_children_that_outlast_their_parents(start):
    made, early, late = Requests(), ("shop", "GET /early"), ("shop", "GET /late")
    remote, job = ("stock", "GET /items"), ("mail", "send")

    def skewed(duration, shift):
        """The server's clock differs; its span lasts 20 ms less than the client's."""
        return lambda: made.add(early, 0, duration, span(("shop", "GET"), 10, duration - 10, span(
            remote, 20 + shift, duration - 20 + shift), kind=CLIENT))
    made.add_five(early, skewed(100, 5000), skewed(1000, -3000))

    def outlasted(duration):
        """The client gives up 40 ms before the end of its server. A consumer works after the end of the request."""
        return lambda: made.add(late, 0, duration, span(("shop", "GET"), 10, duration - 50, span(
            remote, 12, duration + 90), kind=CLIENT), span(("shop", "publish"), duration - 20, duration - 10, span(
                job, duration - 15, duration + 5000, kind=CONSUMER), kind=PRODUCER))
    made.add_five(late, outlasted(100), outlasted(1000))
    api = start(made)
    assert parts_of(compare(api, early)) == {remote: (60, 960), "cpu": (0, 0), "unexplained": (40, 40)}
    assert parts_of(compare(api, late)) == {remote: (38, 938), job: (5, 5), "cpu": (0, 0), "unexplained": (57, 57)}


def test_own_spans_and_calls_within_a_service(start):
    """An internal span with calls below it is a part of the request; one without calls has a part of its own. A
    server span below a client span is a call, even if both are of one service."""
    made, root, leaf, inner, self_call = Requests(), ("shop", "GET /"), ("shop", "render"), ("shop", "load"), ("shop", "GET /load")

    def request(duration, samples):
        return lambda: made.add(root, 0, duration,
                                span(inner, 10, duration - 40,
                                     span(("shop", "GET"), 20, duration - 50,
                                          span(self_call, 25, duration - 55, samples=7), kind=CLIENT),
                                     kind=INTERNAL, samples=samples),
                                span(leaf, duration - 40, duration - 20, kind=INTERNAL, samples=2))
    made.add_five(root, request(100, 1), request(1000, 3))
    answer = compare(start(made), root)
    # The samples of `load` are CPU time of the request; those of `render` and `GET /load` belong to these.
    assert parts_of(answer) == {self_call: (20, 920), leaf: (20, 20), "cpu": (10, 30), "unexplained": (50, 30)}
    assert answer["typical"]["cpu_ns_per_span"] == (1 + 7 + 2) * 10 * MS  # of the local subtree


def test_cpu_time_is_limited_to_the_time_that_no_operation_covers(start):
    made, root, remote = Requests(), ("shop", "GET /"), ("stock", "GET /items")
    made.add_five(root, lambda: made.add(root, 0, 100, span(remote, 10, 90), samples=5),
                  lambda: made.add(root, 0, 1000, span(remote, 10, 910), samples=4))
    answer = compare(start(made), root)
    assert parts_of(answer) == {remote: (80, 900), "cpu": (20, 40), "unexplained": (0, 60)}


def test_off_cpu_time_without_the_time_in_other_services(start):
    made, root, remote = Requests(), ("shop", "GET /"), ("stock", "GET /items")
    profile = made.profiles._profile("shop")
    for kind in (profile.sample_type, profile.period_type):
        kind.type_strindex = made.profiles._string("off_cpu")
    made.add_five(root, lambda: made.add(root, 0, 100, span(remote, 10, 50), samples=6),
                  lambda: made.add(root, 0, 1000, span(remote, 10, 50), samples=90))
    answer = compare(start(made), root)
    assert parts_of(answer) == {remote: (40, 40), "cpu": (0, 0), "off_cpu": (20, 860), "unexplained": (40, 100)}


def test_calls_are_counted_and_limited(start):
    """The slow request calls a service 30 times. Ten of these calls are compared."""
    made, root, remote = Requests(), ("shop", "GET /"), ("stock", "GET /item")
    made.add_five(root, lambda: made.add(root, 0, 100, span(remote, 10, 20)),
                  lambda: made.add(root, 0, 1000, *(span(remote, n * 30, n * 30 + 10) for n in range(30))))
    api = start(made)
    whole = compare(api, root)
    assert parts_of(whole)[remote] == (10, 300)
    assert (part_of(whole, remote)["typical_calls"], part_of(whole, remote)["slow_calls"]) == (1, 30)
    assert whole["cut"] is None
    calls = compare(api, remote, of=root)
    assert (calls["typical"]["compared"], calls["slow"]["compared"]) == (2, 10)
    assert parts_of(calls) == {"cpu": (0, 0), "unexplained": (10, 10)}
    assert calls["cut"] == "only 10 child spans of each request are compared"


def test_many_operations_are_summarised(start):
    made, root = Requests(), ("shop", "GET /")
    made.add_five(root, lambda: made.add(root, 0, 100, *(span(("stock", f"op {n}"), n, n + 1) for n in range(25))),
                  lambda: made.add(root, 0, 1000, *(span(("stock", f"op {n}"), n * 40, n * 40 + 10 + n) for n in range(25))))
    answer = compare(start(made), root)
    assert [part["kind"] for part in answer["parts"]] == ["operation"] * 20 + ["cpu", "other", "unexplained"]
    assert answer["parts"][0]["name"] == "op 24"
    assert part_of(answer, "other")["slow_ns"] == sum(10 + n for n in range(5)) * MS
    assert part_of(answer, "unexplained")["slow_ns"] == (1000 - sum(10 + n for n in range(25))) * MS


def test_refusals_and_absent_operations(start):
    made, root = Requests(), ("shop", "GET /")
    made.add_five(root, lambda: made.add(root, 0, 100), lambda: made.add(root, 0, 1000))
    api = start(made)
    code, answer = api.refused("/api/braid/slow", service="shop", name="GET /", of_service="shop")
    assert (code, answer) == (400, {"error": "missing parameter: set both of_service and of_name, or neither"})
    absent = compare(api, ("stock", "GET /items"), of=root)
    assert absent["why_empty"] == "neither the slow nor the typical requests have spans of this operation"
    assert (absent["typical"]["compared"], absent["slow"]["compared"]) == (0, 0)
    none = compare(api, ("stock", "GET /items"))
    assert none["why_empty"] == "this operation has no spans in this time range"
    assert parts_of(none) == {"cpu": (0, 0), "unexplained": (0, 0)}
