# SPDX-License-Identifier: Apache-2.0
"""The line about bad networks. It is measured by a process in a separate network namespace, which
also runs this file."""

import json
import os
import pathlib
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests" / "harness"))

import clients  # noqa: E402
import otlp  # noqa: E402
from bad_network import FAR, NEAR, BadNetwork  # noqa: E402
from braid import Braid, exporter, pipelines  # noqa: E402
from card import Figure, line  # noqa: E402
from otlp import TRACES  # noqa: E402
from sink import Sink  # noqa: E402
from tap import Tap  # noqa: E402

SENDERS, SPANS, LOAD_S, PATIENCE_S = 4, 5, 10, 60


class Senders:
    """Clients over the bad network. Each request has different spans, is sent once, and is recorded
    when it is accepted."""

    def __init__(self, address):
        self.taken, self.failed = set(), 0
        self._address, self._stop = address, threading.Event()
        self._lock, self._n = threading.Lock(), 0
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(SENDERS)]

    def _run(self):
        while not self._stop.wait(0.02):
            with self._lock:
                first, self._n = 1 + self._n * SPANS, self._n + 1
            body = otlp.trace_request(SPANS, first=first).SerializeToString()
            try:
                ok = clients.http(self._address, TRACES.path, body).ok
            except OSError:
                ok = False
            with self._lock:
                self.failed += not ok
                self.taken |= set(range(first, first + SPANS)) if ok else set()

    def start(self):
        for each in self._threads:
            each.start()
        return self

    def stop(self):
        """Stops the clients; those that wait for an answer end by themselves."""
        self._stop.set()


def far(address):
    """Returns the same port over the bad network."""
    return f"{FAR}:{address.rsplit(':', 1)[1]}"


def trouble(name, network, tap):
    """Makes one kind of trouble while there is load."""
    def hold(**what):
        for key, value in what.items():
            setattr(network, key, value)
        time.sleep(LOAD_S)
    if name == "10 % loss":
        hold(loss=0.1)
    elif name == "200 ms":
        hold(latency_s=0.1)  # in both directions
    elif name == "2 Mbit":
        hold(bits_per_s=2e6)
    elif name == "partition":
        hold(latency_s=0.02)  # so that it happens in the middle of requests
        hold(cut=True)
    elif name == "RST":
        for _ in range(LOAD_S * 2):
            time.sleep(0.5)
            tap.cut()
    else:
        network.latency_s = 0.02
        for _ in range(2):
            time.sleep(LOAD_S / 2)
            network.forget()
        time.sleep(1)
    network.good()


def connections(server):
    return sum(n for labels, n in server.metrics()["braid_server_connections"].items() if "otlp" in labels)


def measure_one(name, network, sink, folder):
    """Returns [spans accepted, lost, delivered more than once, seconds until nothing was held,
    until no connection was left]."""
    tap = Tap(sink.grpc, NEAR)
    here = {"endpoint": f"{NEAR}:0"}
    config = pipelines({"otlp": {**exporter("grpc", tap)["otlp"], "endpoint": far(tap.grpc)}}, grpc=here, http=here)
    server = Braid(config, folder)
    senders = Senders(far(server.http)).start()
    try:
        trouble(name, network, tap)
        senders.stop()
        begun, empty, closed = time.monotonic(), None, None
        while time.monotonic() - begun < PATIENCE_S + 15 and (empty is None or closed is None):
            after = time.monotonic() - begun
            empty = after if empty is None and server.ledger("traces")["held"] == 0 else empty
            closed = after if closed is None and connections(server) == 0 else closed
            time.sleep(0.2)
        arrived = [int.from_bytes(span.span_id, "big") for call in sink.of(TRACES)
                   for _, _, span in otlp.spans_of(call.message)]
        return {"taken": len(senders.taken), "lost": len(senders.taken - set(arrived)), "failed": senders.failed,
                "twice": len(arrived) - len(set(arrived)), "empty": empty, "closed": closed}
    finally:
        senders.stop()
        server.kill()
        tap.close()


KINDS = ("10 % loss", "200 ms", "2 Mbit", "partition", "RST", "half-open")


def measure_all(folder):
    network = BadNetwork()
    for n, name in enumerate(KINDS):
        sink = Sink()
        print(json.dumps({"name": name, **measure_one(name, network, sink, folder / str(n))}), flush=True)
        sink.close()


def text_of(one):
    times = " and ".join("never" if one[what] is None else f"{one[what]:.0f} s" for what in ("empty", "closed"))
    return f"{one['name']}: {one['lost']} of {one['taken']} lost, {one['twice']} delivered twice, {times}"


def is_good(one):
    return (one["taken"] > 0 and one["lost"] == 0
            and all(one[what] is not None and one[what] <= PATIENCE_S for what in ("empty", "closed")))


@line(15, "bad networks, between clients and Braid and between Braid and its backend, for 10 s each",
      "0 acknowledged spans lost; 60 s after the bad network, all spans are delivered and no connection hangs")
def bad_networks(folder, fast):
    done = subprocess.run(["unshare", "--map-root-user", "--net", sys.executable, __file__, str(folder)],
                          capture_output=True, text=True, env=os.environ)
    ones = [json.loads(each) for each in done.stdout.splitlines()]
    if done.returncode or len(ones) != len(KINDS):
        raise RuntimeError(done.stderr.strip()[-300:])
    return Figure("; ".join(map(text_of, ones)) + " (times until all spans are delivered, and until all connections are closed)",
                  all(map(is_good, ones)))


if __name__ == "__main__":
    measure_all(pathlib.Path(sys.argv[1]))
