# SPDX-License-Identifier: Apache-2.0
"""The generator, which knows the span of each sample and whether its trace is sampled, and the backend,
which records what arrives.

With sampling, an attribute of a span decides: a trace is kept if a span has the mark `keep`, or if no span
has the mark `drop`. The marks of the two spans are:

| traces   | first span | second span | decision of a member that receives only the second span |
|----------|------------|-------------|---------------------------------------------------------|
| unmarked | -          | -           | the same                                                |
| marked   | keep       | drop        | dropped instead of kept                                 |
| dropped  | drop       | -           | kept instead of dropped                                 |

The second spans of half of the traces are sent after the first spans were acknowledged."""

import collections
import heapq
import itertools
import random
import threading
import time
import typing

import grpc

import clients
import otlp
import profile_view
from braid import until
from otlp import PROFILES, TRACES
from sink import Sink

SPANS, SAMPLES = 2, 3    # of each trace
FIRST_VALUE = 1_000      # smallest value of a sample: the sum of two values is not the value of a third sample
TRACES_PER_REQUEST = 4   # a request of several traces is divided among the members
NAMES = 900_000          # different span names; `join` distinguishes a million
SPAN_IDS = 16_384        # spans of different traces can have equal ids, so that a wrong join is possible
SENDERS = 4
PENDING = 40             # requests whose samples have not been sent yet
PENDING_SAMPLED = 100    # the same with sampling: each of them waits longer
GIVE_UP_S = 30           # after the end, spans that have not arrived by then are lost
START_NS = 1_700_000_000_000_000_000
CHANNEL = [*clients.LOCAL, ("grpc.min_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 300)]

MARK = "sampling"  # key of the attribute that decides
MARKS = {"unmarked": (None, None), "marked": ("keep", "drop"), "dropped": ("drop", None)}
POLICIES = [{"name": "marked", "type": "string_attribute", "string_attribute": {"key": MARK, "values": ["keep"]}},
            {"name": "unmarked", "type": "string_attribute",
             "string_attribute": {"key": MARK, "values": ["drop"], "invert_match": True}}]
STACK = "work "  # prefix of the name of a trace's function; only samples of one trace can be merged


class Sampling(typing.NamedTuple):
    """How a fleet samples. decided: clients are answered after the decision. in_order: the spans of a trace
    reach its member in the order in which they were sent."""

    decided: bool
    in_order: bool


class Trace:
    """A trace and its samples: sample i belongs to span i % SPANS, and its value is a unique number.
    split: the second span is sent after the first was acknowledged."""

    def __init__(self, number, chance, sampling):
        self.number = number
        kind = list(MARKS)[number % len(MARKS)] if sampling else "unmarked"
        self.marks, self.dropped = MARKS[kind], kind == "dropped"
        self.split = bool(sampling and sampling.in_order and number // len(MARKS) % 2)
        # Every member decides alike about the spans that it receives
        self.certain = not self.split or kind == "unmarked"
        self.id = chance.randbytes(16)
        self.span_ids = [n.to_bytes(8, "big") for n in chance.sample(range(1, SPAN_IDS + 1), SPANS)]
        self.names = [f"operation {(number * SPANS + i) % NAMES}" for i in range(SPANS)]
        self.values = range(number * SAMPLES + FIRST_VALUE, (number + 1) * SAMPLES + FIRST_VALUE)
        self.begun = self.spans_acknowledged = self.samples_acknowledged = None

    def expected(self, value):
        """Returns the id and the name of the span of a sample."""
        i = (value - self.values[0]) % SPANS
        return self.span_ids[i], self.names[i]

    def keys(self, certain=False):
        """Returns the keys of the spans that are kept; certain: only of those that every member keeps."""
        if self.dropped:
            return []
        return [(self.id, span_id) for span_id in self.span_ids[:1 if certain and not self.certain else SPANS]]


def span_request(spans):
    """Returns a request with spans: pairs of a trace and the number of a span."""
    request = otlp.traces.ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.append(otlp.attribute("service.name", "shop"))
    scope = resource.scope_spans.add()
    for trace, i in spans:
        span = scope.spans.add(trace_id=trace.id, span_id=trace.span_ids[i], name=trace.names[i],
                               start_time_unix_nano=START_NS, end_time_unix_nano=START_NS + 1_000_000)
        if trace.marks[i]:
            span.attributes.append(otlp.attribute(MARK, trace.marks[i]))
    return request.SerializeToString()


def add_stack(tables, name):
    """Adds a stack with one function; returns its index."""
    tables.string_table.append(name)
    tables.function_table.add(name_strindex=len(tables.string_table) - 1)
    tables.location_table.add(mapping_index=1).lines.add(function_index=len(tables.function_table) - 1)
    tables.stack_table.add(location_indices=[len(tables.location_table) - 1])
    return len(tables.stack_table) - 1


def sample_request(group):
    request = otlp.profile_request(0)
    tables, profile = request.dictionary, request.resource_profiles[0].scope_profiles[0].profiles[0]
    for trace in group:
        stack = add_stack(tables, f"{STACK}{trace.number}")
        for value in trace.values:
            tables.link_table.add(trace_id=trace.id, span_id=trace.expected(value)[0])
            profile.samples.add(stack_index=stack, link_index=len(tables.link_table) - 1, values=[value])
    return request.SerializeToString()


class Copy(typing.NamedTuple):
    """A sample as it arrived. name: the attribute span.name, or None."""

    time: float
    value: int
    link: tuple
    name: str


def copies_of(message, now):
    """Yields the number of the trace and the copy of each sample of the generator."""
    for view in profile_view.View(message).samples():
        function = view["frames"][0]["lines"][0][0]
        if function.startswith(STACK):
            name = view["attributes"].get("span.name", (None, ))[0]
            yield int(function.removeprefix(STACK)), Copy(now, sum(view["values"]), view["link"], name)


class Backend(Sink):
    """Records the spans and samples that arrive, instead of keeping the requests."""

    def __init__(self, address):
        self.spans = collections.defaultdict(list)    # times of the arrivals, by trace id and span id
        self.samples = collections.defaultdict(list)  # copies, by the number of the trace
        self._counting = threading.Lock()
        super().__init__(host=address)

    def take(self, call):
        now = time.monotonic()
        if call.signal is TRACES:
            found = [(self.spans, (span.trace_id, span.span_id), now) for _, _, span in otlp.spans_of(call.message)]
        else:
            found = [(self.samples, number, copy) for number, copy in copies_of(call.message, now)]
        with self._counting:
            for arrived, key, what in found:
                arrived[key].append(what)
        return self.reply

    def has(self, keys):
        return all(key in self.spans for key in keys)

    def sum(self, trace):
        """Returns the sum of the values of the samples of a trace that have arrived."""
        return sum(copy.value for copy in self.samples.get(trace.number, []))

    def last_first(self, trace):
        """Returns when the last of the trace's spans and samples arrived for the first time; 0 if none has."""
        spans = [self.spans[key][0] for key in trace.keys() if key in self.spans]
        return max([*spans, *(copy.time for copy in self.samples.get(trace.number, [])[:1])], default=0)


class Load:
    """Clients that send the spans of a trace, and later its samples. A request that was not acknowledged
    is sent again, to the next entrance. The samples of a kept trace are sent after the backend has its spans,
    those of a dropped trace after its spans were acknowledged."""

    def __init__(self, entrances, backend, changes, sampling, seed=1):
        self.traces, self.repeated, self.failure = [], 0, None
        self.sampling = sampling
        self._entrances, self._backend, self._changes = entrances, backend, changes
        self._chance, self._lock, self._stop = random.Random(seed), threading.Lock(), threading.Event()
        self._pending, self._ties, self._stopped_at = [], itertools.count(), 0.0
        self._threads = [threading.Thread(target=self._run, args=(n, ), daemon=True) for n in range(SENDERS)]

    def start(self):
        for each in self._threads:
            each.start()
        return self

    def stop(self):
        """Stops after the samples of all traces whose spans arrive have been sent."""
        self._stopped_at = time.monotonic()
        self._stop.set()
        for each in self._threads:
            each.join()

    def complete(self):
        return [trace for trace in list(self.traces) if trace.samples_acknowledged]

    def wait(self, count):
        """Waits until so many further traces have begun and are complete."""
        now = time.monotonic()
        until(lambda: sum(trace.begun > now for trace in self.complete()) >= count or self.failure,
              f"{count} traces", 120)
        if self.failure:
            raise self.failure

    def wait_repeated(self):
        """Waits until a client has to send a request again."""
        before = self.repeated
        until(lambda: self.repeated > before, "a request that is sent again", 60)

    def _run(self, n):
        channels = [grpc.insecure_channel(each, CHANNEL) for each in self._entrances]
        channels = channels[n % len(channels):] + channels[:n % len(channels)]
        try:
            while self._step(channels):
                pass
        except Exception as failure:  # reported by wait() and by the program
            self.failure = failure
        for each in channels:
            each.close()

    def _step(self, channels):
        due, group = self._next()
        if group:
            self._send(channels, PROFILES, sample_request(group))
            now = time.monotonic()
            for trace in group:
                trace.samples_acknowledged = now
            return True
        if self._stop.is_set() and not self._pending:
            return False
        if self._stop.is_set() or due:
            time.sleep(0.01)
            return True
        self._begin(channels)
        return True

    def _next(self):
        """Returns whether enough requests wait, and a group of traces whose samples are due."""
        with self._lock:
            for _ in range(len(self._pending)):
                due, _, group = self._pending[0]
                if due > time.monotonic():
                    break
                heapq.heappop(self._pending)
                if all(self._arrived(trace) for trace in group):
                    return True, group
                if not self._stop.is_set() or time.monotonic() < self._stopped_at + GIVE_UP_S:
                    heapq.heappush(self._pending, (time.monotonic() + 0.05, next(self._ties), group))
            return len(self._pending) >= (PENDING_SAMPLED if self.sampling else PENDING), None

    def _arrived(self, trace):
        """Returns whether the backend has the spans of the trace, as far as they can be expected."""
        changed = self._changes.overlap(trace.begun, time.monotonic())
        return self._backend.has(trace.keys(certain=changed))

    def _begin(self, channels):
        with self._lock:
            first = len(self.traces)
            group = [Trace(first + i, self._chance, self.sampling) for i in range(TRACES_PER_REQUEST)]
            wait_s = self._chance.random()
            begun = time.monotonic()
            for trace in group:
                trace.begun = begun
            self.traces += group
        later = [(trace, i) for trace in group if trace.split for i in range(1, SPANS)]
        self._send(channels, TRACES, span_request((trace, i) for trace in group for i in range(SPANS)
                                                  if (trace, i) not in later))
        if later:
            self._send(channels, TRACES, span_request(later))
        now = time.monotonic()
        for trace in group:
            trace.spans_acknowledged = now
        with self._lock:
            heapq.heappush(self._pending, (now + wait_s, next(self._ties), group))

    def _send(self, channels, signal, body):
        channels.append(channels.pop(0))  # the entrances take turns
        while not self._acknowledged(clients.grpc(None, signal, body, channel=channels[0]), signal):
            with self._lock:
                self.repeated += 1
            channels.append(channels.pop(0))
            time.sleep(0.05)

    @staticmethod
    def _acknowledged(answer, signal):
        if answer.code == "INVALID_ARGUMENT":
            raise AssertionError(answer)
        if not answer.ok:
            return False
        return not getattr(signal.response.FromString(answer.body).partial_success, signal.rejected)
