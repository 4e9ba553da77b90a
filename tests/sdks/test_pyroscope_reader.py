# SPDX-License-Identifier: Apache-2.0
"""Which of several equal strings Pyroscope uses to find a sample's span, by its own code; the
stand-in behaves the same."""

import pytest

import ingest
import pprof
import pyroscope_reader
from pyroscope import PUSH_PATH, Pyroscope

SPAN, TYPE = "1112131415161718", "process_cpu:cpu:nanoseconds::"
ALL, OF_SPAN = 40_000_000, 10_000_000


def push(strings, key, others=None):
    """Returns a pprof with these strings; the first sample names the span by the string with index
    `key`."""
    profile = pprof.parse(ingest.make_pprof(values=((OF_SPAN, ), (ALL - OF_SPAN, )), labels=others))
    first = len(profile.string_table)
    profile.string_table.extend([*strings, SPAN])
    profile.sample[0].label.add(key=first + key, str=first + len(strings))
    request = ingest.push_request(({"__name__": "process_cpu", "service_name": "shop"},
                                   [(profile.SerializeToString(), "")]))
    pyroscope = Pyroscope()
    try:
        answer = ingest.http1(pyroscope.address, PUSH_PATH, request.SerializeToString(),
                              {"content-type": "application/proto"})
        assert answer.code == 200
    finally:
        pyroscope.close()
    return pyroscope


@pytest.mark.parametrize("strings, key, others, found", [
    (["span_id"], 0, {}, True),
    (["span_id"], 0, {"region": "eu"}, True),
    (["span_id", "span_id"], 0, {}, False),
    (["span_id", "span_id"], 0, {"region": "eu"}, False),
    (["span_id", "span_id"], 1, {}, False),
    (["span_id", "span_id"], 1, {"region": "eu"}, True),
    (["profile_id"], 0, {}, True),
    (["profile_id", "profile_id"], 0, {}, True),
    (["profile_id", "profile_id"], 1, {}, False),
    (["span_id", "profile_id"], 1, {}, True),
    (["span_id", "profile_id", "span_id"], 1, {}, False),
], ids=str)
def test_string_that_selects_the_span(strings, key, others, found):
    """With a duplicate name the totals are right, but the span has no samples. It is found only if
    a sample has another label and the span's label uses the last duplicate: the server then
    writes the strings anew."""
    pyroscope = push(strings, key, others)
    expected = {(TYPE, ""): ALL, **({(TYPE, SPAN): OF_SPAN} if found else {})}
    stacks = pyroscope_reader.stacks(pyroscope)
    assert pyroscope_reader.totals(stacks) == expected == pyroscope_reader.totals_of_stored(pyroscope.stored())
    assert stacks[TYPE, ""] == {("work", "main"): OF_SPAN, ("main", ): ALL - OF_SPAN}
    assert not found or stacks[TYPE, SPAN] == {("work", "main"): OF_SPAN}
