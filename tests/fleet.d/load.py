# SPDX-License-Identifier: Apache-2.0
"""The generator, which knows the span of each sample, and the backend, which compares."""

import collections
import heapq
import itertools
import random
import threading
import time

import grpc

import clients
import otlp
import profile_view
from braid import until
from otlp import PROFILES, TRACES
from sink import Sink

SPANS, SAMPLES = 2, 3    # of each trace
TRACES_PER_REQUEST = 4   # a request of several traces is divided among the members
NAMES = 900_000          # different span names; `join` distinguishes a million
SPAN_IDS = 16_384        # spans of different traces can have equal ids, so that a wrong join is possible
SENDERS = 4
PENDING = 40             # requests whose samples have not been sent yet
GIVE_UP_S = 30           # after the end, spans that have not arrived by then are lost
START_NS = 1_700_000_000_000_000_000
CHANNEL = [*clients.LOCAL, ("grpc.min_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 300)]


class Trace:
    """A trace and its samples: sample i belongs to span i % SPANS, and its value is a unique number."""

    def __init__(self, number, chance):
        self.id = chance.randbytes(16)
        self.span_ids = [n.to_bytes(8, "big") for n in chance.sample(range(1, SPAN_IDS + 1), SPANS)]
        self.names = [f"operation {(number * SPANS + i) % NAMES}" for i in range(SPANS)]
        self.values = range(number * SAMPLES + 1, (number + 1) * SAMPLES + 1)
        self.begun = self.spans_acknowledged = self.samples_acknowledged = None

    def expected(self, value):
        """Returns the id and the name of the span of a sample."""
        i = (value - self.values[0]) % SPANS
        return self.span_ids[i], self.names[i]


def span_request(group):
    request = otlp.traces.ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.append(otlp.attribute("service.name", "shop"))
    scope = resource.scope_spans.add()
    for trace in group:
        for span_id, name in zip(trace.span_ids, trace.names):
            scope.spans.add(trace_id=trace.id, span_id=span_id, name=name, start_time_unix_nano=START_NS,
                            end_time_unix_nano=START_NS + 1_000_000)
    return request.SerializeToString()


def sample_request(group):
    request = otlp.profile_request(0)
    profile = request.resource_profiles[0].scope_profiles[0].profiles[0]
    for trace in group:
        for value in trace.values:
            request.dictionary.link_table.add(trace_id=trace.id, span_id=trace.expected(value)[0])
            profile.samples.add(stack_index=1, link_index=len(request.dictionary.link_table) - 1, values=[value])
    return request.SerializeToString()


class Backend(Sink):
    """Counts the spans and samples that arrive, instead of keeping the requests."""

    def __init__(self, address):
        self.spans = collections.Counter()  # by trace id and span id
        self.samples = {}                   # by value: the (link, span name) of each copy
        self.first = {}                     # time of the first arrival of each span and sample
        self._counting = threading.Lock()
        super().__init__(host=address)

    def take(self, call):
        now = time.monotonic()
        if call.signal is TRACES:
            found = [((span.trace_id, span.span_id), None) for _, _, span in otlp.spans_of(call.message)]
        else:
            found = [(view["values"][0], (view["link"], view["attributes"].get("span.name", (None, ))[0]))
                     for view in profile_view.View(call.message).samples()]
        with self._counting:
            for key, sample in found:
                self.first.setdefault(key, now)
                if sample:
                    self.samples.setdefault(key, []).append(sample)
                else:
                    self.spans[key] += 1
        return self.reply

    def has_spans(self, group):
        return all((trace.id, span_id) in self.spans for trace in group for span_id in trace.span_ids)

    def has_samples(self, group):
        return all(value in self.samples for trace in group for value in trace.values)


class Load:
    """Clients that send the spans of a trace, and later its samples. A request that was not acknowledged
    is sent again, to the next entrance. after_arrival: samples are sent after the backend has their spans."""

    def __init__(self, entrances, backend, after_arrival, seed=1):
        self.traces, self.repeated, self.failure = [], 0, None
        self._entrances, self._backend, self._after_arrival = entrances, backend, after_arrival
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
                if not self._after_arrival or self._backend.has_spans(group):
                    return True, group
                if not self._stop.is_set() or time.monotonic() < self._stopped_at + GIVE_UP_S:
                    heapq.heappush(self._pending, (time.monotonic() + 0.05, next(self._ties), group))
            return len(self._pending) >= PENDING, None

    def _begin(self, channels):
        with self._lock:
            first = len(self.traces)
            group = [Trace(first + i, self._chance) for i in range(TRACES_PER_REQUEST)]
            wait_s = self._chance.random()
            begun = time.monotonic()
            for trace in group:
                trace.begun = begun
            self.traces += group
        self._send(channels, TRACES, span_request(group))
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
