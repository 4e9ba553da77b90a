# SPDX-License-Identifier: Apache-2.0
"""The line about hours of mixed load, with faults at random times."""

import contextlib
import os
import random
import threading
import time

import card
from braid import Braid, exporter, pipelines, until
from card import Figure, line
from load import Load, memory_mib
from otlp import SIGNALS
from sink import ACCEPT, BUSY, REFUSE, Reply, Sink
from tap import Tap

RETRY = {"retry_on_failure": {"initial_interval": "50ms", "max_interval": "1s", "max_elapsed_time": "5s"}}
LIMIT = {"memory_limiter": {"limit_mib": 200, "check_interval": "1s"}}
ROUND_S = 20  # load with faults; then a pause, and figures
REST_S = 25  # a worker releases memory after 20 s without work; scrapes count as work


def slope_per_hour(samples):
    """Returns the least squares slope over (seconds, MiB)."""
    n = len(samples)
    at, mib = (sum(each[i] for each in samples) / n for i in (0, 1))
    spread = sum((each[0] - at) ** 2 for each in samples)
    return sum((each[0] - at) * (each[1] - mib) for each in samples) / spread * 3600 if spread else 0.0


class Faults:
    """Causes faults one after the other, while there is load; the backends work again afterwards."""

    def __init__(self, sinks, taps):
        self.n = 0
        self._sinks, self._taps, self._random = sinks, taps, random.Random(26)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while not self._stop.wait(self._random.uniform(0.2, 2)):
            self.n += 1
            sink, hang = self._random.choice(self._sinks), threading.Event()
            kind = self._random.choice((ACCEPT, BUSY, REFUSE, Reply(rejected=1, message="one is bad"), "cut", "hang"))
            if kind == "cut":
                self._random.choice(self._taps).cut()
            sink.reply = Reply(hold=hang) if kind == "hang" else ACCEPT if kind == "cut" else kind
            self._stop.wait(self._random.uniform(0.2, 2))
            hang.set()
            sink.reply = ACCEPT

    def start(self):
        self._thread.start()
        return self

    def stop(self):
        self._stop.set()
        self._thread.join()


def one_round(server, sinks, taps, tally):
    load, faults = Load(server, 50).start(), Faults(sinks, taps).start()
    try:
        end = time.monotonic() + ROUND_S
        while time.monotonic() < end:
            for signal in SIGNALS:
                tally["scrapes"] += 1
                with contextlib.suppress(AssertionError):
                    server.ledger(signal.name)
                    tally["exact"] += 1
            time.sleep(0.5)
    finally:
        load.stop()
        faults.stop()
    until(lambda: all(server.ledger(signal.name)["held"] == 0 for signal in SIGNALS), "all to be sent", 120)
    tally["faults"] += faults.n
    tally["requests"] += sum(load.answers.values())
    for sink in sinks:
        sink.calls.clear()
    for tap in taps:
        tap.sent.clear()
        tap.received.clear()
    time.sleep(REST_S)


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


@line(26, "soak test: mixed load with random faults",
      "resident memory at rest grows by less than 1 MiB an hour; the number of descriptors is unchanged; "
      "the ledger is exact in all scrapes")
def soak(folder, fast):
    minutes = card.minutes(3)
    sinks = [Sink(), Sink()]
    taps = [Tap(sinks[0].grpc), Tap(sinks[1].http)]
    exporters = {**exporter("grpc", taps[0], timeout="2s", **RETRY), **exporter("proto", taps[1], timeout="2s", **RETRY)}
    server = Braid(pipelines(exporters, processors={**LIMIT, "batch": {"timeout": "50ms"}}, workers=2), folder / "braid")
    tally, samples = {"scrapes": 0, "exact": 0, "faults": 0, "requests": 0}, []
    try:
        server.metrics()
        before, begun = descriptors(server), time.monotonic()
        while time.monotonic() - begun < 60 * minutes:
            one_round(server, sinks, taps, tally)
            samples.append((time.monotonic() - begun, memory_mib(server.process.pid, "VmRSS")))
        settled = samples[len(samples) // 4:]  # the first rounds fill caches that are kept
        grown = slope_per_hour(settled)
        for each in taps:
            each.close()
        time.sleep(5)
        after = descriptors(server)
        server.stop()
        return Figure(f"{minutes} min: {grown:+.1f} MiB an hour ({samples[0][1]:.0f} MiB first, {samples[-1][1]:.0f} MiB last); "
                      f"{after - before:+d} descriptors; exact in {tally['exact']} of {tally['scrapes']} scrapes; "
                      f"{tally['requests']} requests, {tally['faults']} faults",
                      grown < 1 and after <= before and tally["exact"] == tally["scrapes"])
    finally:
        server.kill()
        for each in taps + sinks:
            each.close()
