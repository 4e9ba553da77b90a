# SPDX-License-Identifier: Apache-2.0
"""The line about hours of mixed load, with faults at random times.

Three exporters receive all data: two with a queue in memory, which give up after 5 s, and one with a
durable queue, whose backend disappears and returns and which never gives up.
"""

import collections
import contextlib
import os
import pathlib
import random
import re
import sys
import threading
import time

import card
import clients
import otlp
from braid import Braid, exporter, pipelines, until
from card import Figure, line
from load import Load, memory_mib
from otlp import SIGNALS, TRACES
from sink import ACCEPT, BUSY, REFUSE, Reply, Sink
from tap import Tap

RETRY = {"retry_on_failure": {"initial_interval": "50ms", "max_interval": "1s", "max_elapsed_time": "5s"}}
FOREVER = {"retry_on_failure": {"initial_interval": "50ms", "max_interval": "1s"}}
LIMIT = {"memory_limiter": {"limit_mib": 200, "check_interval": "1s"}}
DURABLE_SPANS = 5  # per request
WARM_UP_S = 5
ROUND_S = 20  # load with faults; then a pause, and figures
REST_S = 25  # a worker releases memory after 20 s without work; scrapes count as work


def slope_per_hour(samples):
    """Returns the least squares slope over (seconds, MiB)."""
    n = len(samples)
    at, mib = (sum(each[i] for each in samples) / n for i in (0, 1))
    spread = sum((each[0] - at) ** 2 for each in samples)
    return sum((each[0] - at) * (each[1] - mib) for each in samples) / spread * 3600 if spread else 0.0


class Disturbance:
    """Calls `disturb` again and again, after random times, until it is stopped."""

    def __init__(self, seed, pause_s):
        self.n = 0
        self._random, self._pause_s = random.Random(seed), pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while not self._stop.wait(self._random.uniform(*self._pause_s)):
            self.n += 1
            self.disturb()

    def start(self):
        self._thread.start()
        return self

    def stop(self):
        self._stop.set()
        self._thread.join()


class Outages(Disturbance):
    """Lets the backend of the durable queue disappear and return, at random times: connections are
    refused, or nothing is answered, or everything is answered with a retryable error."""

    def __init__(self, sink, tap):
        super().__init__(5, (1, 4))
        self._sink, self._tap = sink, tap

    def disturb(self):
        how, hang = self._random.choice(("gone", "silent", "busy")), threading.Event()
        if how == "gone":
            self._tap.leave()
        self._sink.reply = {"gone": ACCEPT, "silent": Reply(hold=hang), "busy": BUSY}[how]
        self._stop.wait(self._random.uniform(1, 6))
        hang.set()
        self._sink.reply = ACCEPT
        if how == "gone":
            self._tap.come_back()


class Faults(Disturbance):
    """Causes faults one after the other, while there is load; the backends work again afterwards."""

    def __init__(self, sinks, taps):
        super().__init__(26, (0.2, 2))
        self._sinks, self._taps = sinks, taps

    def disturb(self):
        sink, hang = self._random.choice(self._sinks), threading.Event()
        kind = self._random.choice((ACCEPT, BUSY, REFUSE, Reply(rejected=1, message="one is bad"), "cut", "hang"))
        if kind == "cut":
            self._random.choice(self._taps).cut()
        sink.reply = Reply(hold=hang) if kind == "hang" else ACCEPT if kind == "cut" else kind
        self._stop.wait(self._random.uniform(0.2, 2))
        hang.set()
        sink.reply = ACCEPT


class DurableLoad:
    """Clients of the durable pipeline. Every span has an id of its own, so a lost one is noticed."""

    def __init__(self, server, first):
        self.next = first
        self.acknowledged = set()
        self._lock, self._stop = threading.Lock(), threading.Event()
        grpc, http = (server.address(each, "receiver/otlp/durable") for each in ("grpc", "http"))
        ways = (lambda body: clients.grpc(grpc, TRACES, body), lambda body: clients.http(http, TRACES.path, body))
        self._threads = [threading.Thread(target=self._run, args=(each,), daemon=True) for each in ways]

    def _run(self, send):
        while not self._stop.wait(0.02):
            with self._lock:
                first, self.next = self.next, self.next + DURABLE_SPANS
            body = otlp.trace_request(DURABLE_SPANS, first=first).SerializeToString()
            with contextlib.suppress(OSError):
                if send(body).ok:
                    self.acknowledged.update(range(first, first + DURABLE_SPANS))

    def start(self):
        for each in self._threads:
            each.start()
        return self

    def stop(self):
        self._stop.set()
        for each in self._threads:
            each.join()


class Scene:
    """The server, its backends, and the relays between them."""

    def __init__(self, folder):
        self.sinks = [Sink(), Sink()]
        self.durable = Sink()
        self.taps = [Tap(self.sinks[0].grpc), Tap(self.sinks[1].http), Tap(self.durable.grpc)]
        self.server = Braid(self.config(folder), folder / "braid")

    def config(self, folder):
        exporters = {**exporter("grpc", self.taps[0], timeout="2s", **RETRY),
                     **exporter("proto", self.taps[1], timeout="2s", **RETRY)}
        made = pipelines(exporters, processors={**LIMIT, "batch": {"timeout": "50ms"}}, workers=2)
        made["extensions"] = {"file_storage": {"directory": str(folder / "queue"), "create_directory": True}}
        made["exporters"].update(exporter("grpc", self.taps[2], "/durable", timeout="2s", **FOREVER,
                                          sending_queue={"storage": "file_storage", "queue_size": 100000}))
        made["receivers"]["otlp/durable"] = made["receivers"]["otlp"]
        made["service"]["extensions"] = ["file_storage"]
        for signal in SIGNALS:
            made["service"]["pipelines"][signal.name + "/durable"] = {
                "receivers": ["otlp/durable"], "processors": ["memory_limiter"], "exporters": ["otlp/durable"]}
        return made

    def drained(self):
        accounts = [self.server.ledger(signal.name) for signal in SIGNALS]
        return all(each["held"] + each.get("stored", 0) - each.get("restored", 0) == 0 for each in accounts)

    def rest(self):
        """Waits until everything is sent; then there are no connections and no load."""
        until(self.drained, "all to be sent", 180)
        for tap in self.taps:
            tap.cut()
            tap.sent.clear()
            tap.received.clear()
        for sink in (*self.sinks, self.durable):
            sink.calls.clear()
        time.sleep(REST_S)

    def close(self):
        self.server.kill()
        for each in (*self.taps, *self.sinks, self.durable):
            each.close()


def one_round(scene, tally, seconds=ROUND_S):
    server = scene.server
    durable = DurableLoad(server, tally["durable"] + 1).start()
    load = Load(server, 50).start()
    faults, outages = Faults(scene.sinks, scene.taps[:2]).start(), Outages(scene.durable, scene.taps[2]).start()
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for signal in SIGNALS:
                tally["scrapes"] += 1
                with contextlib.suppress(AssertionError):
                    server.ledger(signal.name)
                    tally["exact"] += 1
            time.sleep(0.5)
    finally:
        for each in (load, durable, faults, outages):
            each.stop()
    until(scene.drained, "all to be sent", 180)
    arrived = {int.from_bytes(span.span_id, "big") for call in scene.durable.of(TRACES)
               for _, _, span in otlp.spans_of(call.message)}
    tally["lost"] += len(durable.acknowledged - arrived)
    tally["durable"] = durable.next - 1
    tally["acknowledged"] += len(durable.acknowledged)
    tally["faults"] += faults.n
    tally["outages"] += outages.n
    tally["requests"] += sum(load.answers.values())
    scene.rest()


def descriptors(scene):
    """Returns how many descriptors the server has at rest, without connections to the backends."""
    for tap in scene.taps:
        tap.cut()
    counts = []
    for _ in range(20):  # the server closes its ends
        time.sleep(0.1)
        counts.append(len(os.listdir(f"/proc/{scene.server.process.pid}/fd")))
    return min(counts)


def wakeups(server, seconds=10):
    """Returns how often the threads wake up in a second: at rest only timers wake them."""
    def switches():
        tasks = pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()
        return sum(int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", (each / "status").read_text(), re.M)[1])
                   for each in tasks)
    first = switches()
    time.sleep(seconds)
    return (switches() - first) / seconds


@line(26, "soak test: mixed load with random faults, and a durable queue whose backend disappears and returns",
      "resident memory at rest grows by less than 1 MiB an hour; the numbers of descriptors, and of wakeups by timers, "
      "are as at the beginning; the ledger is exact in all scrapes; the durable queue loses nothing")
def soak(folder, fast):
    minutes = card.minutes(3)
    scene = Scene(folder)
    tally, samples = collections.Counter(), []
    try:
        one_round(scene, tally, WARM_UP_S)
        before, idle, begun = descriptors(scene), wakeups(scene.server), time.monotonic()
        while time.monotonic() - begun < 60 * minutes:
            one_round(scene, tally)
            samples.append((time.monotonic() - begun, memory_mib(scene.server.process.pid, "VmRSS")))
            print(f"        {samples[-1][0]:.0f} s: {samples[-1][1]:.1f} MiB, {descriptors(scene)} descriptors, "
                  f"{dict(tally)}", file=sys.stderr, flush=True)
        settled = samples[len(samples) // 4:]  # the first rounds fill caches that are kept
        grown, more, idle_after = slope_per_hour(settled), descriptors(scene) - before, wakeups(scene.server)
        scene.server.stop()
        return Figure(f"{minutes} min: {grown:+.1f} MiB an hour ({samples[0][1]:.0f} MiB first, {samples[-1][1]:.0f} MiB last); "
                      f"{more:+d} descriptors; {idle:.1f} wakeups a second at rest first, {idle_after:.1f} last; "
                      f"exact in {tally['exact']} of {tally['scrapes']} scrapes; {tally['lost']} of {tally['acknowledged']} "
                      f"durable spans lost in {tally['outages']} outages; {tally['requests']} requests, {tally['faults']} faults",
                      grown < 1 and more <= 0 and idle_after <= idle + 1 and tally["lost"] == 0
                      and tally["exact"] == tally["scrapes"])
    finally:
        scene.close()
