# SPDX-License-Identifier: Apache-2.0
"""Compares what the clients sent with what the backend received."""

import collections
import contextlib
import time

from braid import until

DRAIN_S = 60


class Changes:
    """The intervals in which the membership of the fleet changed."""

    def __init__(self):
        self._times, self.events = [], collections.Counter()

    def add(self, begun, ended):
        self._times.append((begun, ended))

    @contextlib.contextmanager
    def event(self, name, steady):
        """An event that changes the membership; the change ends when steady() is true."""
        begun = time.monotonic()
        yield
        until(steady, f"a steady fleet after the event `{name}`", 90)
        self.add(begun, time.monotonic())
        self.events[name] += 1

    def overlap(self, begun, ended):
        return any(first <= ended and begun <= last for first, last in list(self._times))


def missing(load, backend):
    """Returns the acknowledged spans and samples that the backend does not have."""
    spans = [(trace.id, span_id) for trace in load.traces if trace.spans_acknowledged for span_id in trace.span_ids]
    samples = [value for trace in load.complete() for value in trace.values]
    return ([each for each in spans if each not in backend.spans],
            [each for each in samples if each not in backend.samples])


def wrong(trace, value, copies):
    """Returns the copies of a sample that name another span than their own."""
    span_id, name = trace.expected(value)
    link = trace.id.hex(), span_id.hex()
    return [copy for copy in copies if copy[0] != link or copy[1] not in (None, name)]


class Verdict:
    def __init__(self, load, backend, changes):
        with contextlib.suppress(AssertionError):
            until(lambda: not any(missing(load, backend)), "all acknowledged records", DRAIN_S)
        self.lost_spans, self.lost_samples = missing(load, backend)
        self.wrong, self.unjoined = [], []
        self.settled = self.straddling = self.straddling_joined = self.straddling_traces = 0
        self.traces = load.complete()
        self.events, self.repeated = changes.events, load.repeated
        self.twice = (sum(n - 1 for n in backend.spans.values()) +
                      sum(len(copies) - 1 for copies in backend.samples.values()))
        for trace in self.traces:
            self._judge(trace, backend, changes)

    def _judge(self, trace, backend, changes):
        keys = [*trace.values, *((trace.id, span_id) for span_id in trace.span_ids)]
        ended = max([trace.samples_acknowledged, *(backend.first.get(key, 0) for key in keys)])
        straddles = changes.overlap(trace.begun, ended)
        self.straddling_traces += straddles
        for value in trace.values:
            copies = backend.samples.get(value, [])
            self.wrong += wrong(trace, value, copies)
            joined = any(name for _, name in copies)
            if straddles:
                self.straddling += 1
                self.straddling_joined += joined
            else:
                self.settled += 1
                self.unjoined += [] if joined else [value]

    @property
    def good(self):
        faults = self.lost_spans, self.lost_samples, self.wrong, self.unjoined
        return not any(faults) and self.settled > 0 and self.straddling > 0

    def lines(self):
        n, share = len(self.traces), 100 * self.straddling_traces / max(1, len(self.traces))
        part = 100 * self.straddling_joined / max(1, self.straddling)
        yield "events: " + ", ".join(f"{count} {name}" for name, count in sorted(self.events.items()))
        yield f"traces: {n:,} acknowledged; {self.repeated:,} requests sent again by their client"
        yield f"lost: {len(self.lost_spans)} spans, {len(self.lost_samples)} samples"
        yield f"delivered again: {self.twice:,} spans and samples"
        yield f"joined to another span: {len(self.wrong)} samples"
        yield (f"traces that straddled no change: {n - self.straddling_traces:,}, "
               f"{self.settled - len(self.unjoined):,} of {self.settled:,} samples joined")
        yield (f"traces that straddled a change: {self.straddling_traces:,} ({share:.1f} %), "
               f"{self.straddling_joined:,} of {self.straddling:,} samples joined ({part:.1f} %)")
