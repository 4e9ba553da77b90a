# SPDX-License-Identifier: Apache-2.0
"""Compares what the clients sent with what the backend received."""

import collections
import contextlib
import itertools
import time

from braid import until
from load import SAMPLES

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


def missing(load, backend, changes):
    """Returns the acknowledged spans that the backend does not have although they are kept, and the traces
    whose samples it does not have. A span of a trace that straddles a change is only missing if every member
    keeps it."""
    spans = [key for trace in load.traces if trace.spans_acknowledged
             for key in trace.keys(certain=straddles(trace, backend, changes)) if not backend.has([key])]
    return spans, [trace for trace in load.complete() if backend.sum(trace) < sum(trace.values)]


def straddles(trace, backend, changes):
    """Returns whether the fleet changed before all records of the trace had arrived."""
    ended = trace.samples_acknowledged or time.monotonic()
    return changes.overlap(trace.begun, max(ended, backend.last_first(trace)))


def names_by_value(trace):
    """Returns the possible names of samples without a link, by their values. Samples that have lost their
    links are merged if they have the same name."""
    names = {}
    for count in range(1, len(trace.values) + 1):
        for values in itertools.combinations(trace.values, count):
            named = {trace.expected(value)[1] for value in values}
            names[sum(values)] = (None, *named) if len(named) == 1 else (None, )
    return names


def is_wrong(trace, copy):
    """Returns whether a copy names another span than its own."""
    if copy.link is None:
        return copy.name not in names_by_value(trace).get(copy.value, ())
    if copy.value not in trace.values:
        return True
    span_id, name = trace.expected(copy.value)
    return copy.link != (trace.id.hex(), span_id.hex()) or copy.name not in (None, name)


DROPPED_SPANS, LOST_SPANS = "spans of dropped traces arrived", "spans of kept traces were lost"
DROPPED_LINKS, LOST_LINKS = "samples of dropped traces kept their links", "samples of kept traces lost their links"


class Sampled:
    """Compares the decisions about traces with those that the generator expects. A copy or a span that
    differs is a fault unless two members could decide differently about its trace: the fleet changed between
    the beginning of the trace and the arrival."""

    def __init__(self, load, backend, changes):
        self._backend, self._changes, self._sampling = backend, changes, load.sampling
        self.faults, self.traces = collections.Counter(), collections.Counter()
        # records about which two members decided, and those of them that do not follow the first decision
        self.possible, self.other = collections.Counter(), collections.Counter()
        self.overtaking = 0
        for trace in load.traces:
            self.traces["dropped" if trace.dropped else "kept"] += 1
            if trace.spans_acknowledged:
                self._judge_spans(trace)
        for trace in load.complete():
            for copy in backend.samples.get(trace.number, []):
                self._judge_sample(trace, copy, changes.overlap(trace.begun, copy.time))

    def _judge_spans(self, trace):
        if trace.dropped:
            for span_id in trace.span_ids:
                for arrived in self._backend.spans.get((trace.id, span_id), []):
                    self._count(DROPPED_SPANS, trace.split and self._changes.overlap(trace.begun, arrived))
        if straddles(trace, self._backend, self._changes):
            uncertain = trace.keys()[len(trace.keys(certain=True)):]
            self.possible[LOST_SPANS] += len(uncertain)
            self.possible[DROPPED_SPANS] += trace.dropped and trace.split
            self.other[LOST_SPANS] += sum(not self._backend.has([key]) for key in uncertain)

    def _judge_sample(self, trace, copy, changed):
        what = DROPPED_LINKS if trace.dropped else LOST_LINKS
        excused = changed and (trace.dropped or not trace.certain)
        self.possible[what] += excused
        if trace.dropped != bool(copy.link):
            return  # as decided
        if trace.dropped and not copy.name and not self._sampling.decided and not changed:
            self.overtaking += 1  # the sample arrived before the spans of its trace
        else:
            self._count(what, excused)

    def _count(self, what, excused):
        (self.other if excused else self.faults)[what] += 1

    def lines(self):
        yield f"sampling: {self.traces['kept']:,} traces kept, {self.traces['dropped']:,} dropped"
        yield "wrong: " + (", ".join(f"{n:,} {what}" for what, n in sorted(self.faults.items())) or "nothing")
        for what, n in sorted(self.possible.items()):
            yield f"decided by two members: {self.other[what]:,} of {n:,} {what}"
        if not self._sampling.decided:
            yield f"samples that overtook the spans of a dropped trace: {self.overtaking:,}"


class Verdict:
    def __init__(self, load, backend, changes):
        with contextlib.suppress(AssertionError):
            until(lambda: not any(missing(load, backend, changes)), "all acknowledged records", DRAIN_S)
        self.lost_spans, self.lost_samples = missing(load, backend, changes)
        self.wrong, self.unjoined, self.inexact = [], [], []
        self.settled = self.straddling = self.straddling_joined = self.straddling_traces = 0
        self.traces, self.total = load.complete(), 0
        self.events, self.repeated = changes.events, load.repeated
        self.twice = sum(len(times) - 1 for times in backend.spans.values())
        for trace in self.traces:
            self._judge(trace, backend, changes)
        self.sampled = Sampled(load, backend, changes) if load.sampling else None

    def _judge(self, trace, backend, changes):
        copies, expected = backend.samples.get(trace.number, []), sum(trace.values)
        times, rest = divmod(sum(copy.value for copy in copies), expected)
        self.total += expected
        self.inexact += [trace] if rest else []
        self.twice += SAMPLES * max(0, times - 1)
        self.wrong += [copy for copy in copies if is_wrong(trace, copy)]
        straddling = straddles(trace, backend, changes)
        self.straddling_traces += straddling
        if not trace.dropped:
            self._judge_join(trace, copies, straddling)

    def _judge_join(self, trace, copies, straddling):
        for value in trace.values:
            joined = any(copy.name for copy in copies if copy.value == value)
            if straddling:
                self.straddling += 1
                self.straddling_joined += joined
            else:
                self.settled += 1
                self.unjoined += [] if joined else [value]

    @property
    def good(self):
        faults = self.lost_spans, self.lost_samples, self.wrong, self.unjoined, self.inexact
        return (not any(faults) and self.settled > 0 and self.straddling > 0 and
                not (self.sampled and self.sampled.faults))

    def lines(self):
        n, share = len(self.traces), 100 * self.straddling_traces / max(1, len(self.traces))
        part = 100 * self.straddling_joined / max(1, self.straddling)
        yield "events: " + ", ".join(f"{count} {name}" for name, count in sorted(self.events.items()))
        yield f"traces: {n:,} acknowledged; {self.repeated:,} requests sent again by their client"
        yield f"lost: {len(self.lost_spans)} spans, samples of {len(self.lost_samples)} traces"
        yield f"sum of the values: {self.total:,}, wrong for {len(self.inexact)} traces"
        yield f"delivered again: {self.twice:,} spans and samples"
        yield f"joined to another span: {len(self.wrong)} samples"
        yield (f"traces that straddled no change: {n - self.straddling_traces:,}, "
               f"{self.settled - len(self.unjoined):,} of {self.settled:,} samples joined")
        yield (f"traces that straddled a change: {self.straddling_traces:,} ({share:.1f} %), "
               f"{self.straddling_joined:,} of {self.straddling:,} samples joined ({part:.1f} %)")
        if self.sampled:
            yield from self.sampled.lines()
