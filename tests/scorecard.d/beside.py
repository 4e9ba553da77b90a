# SPDX-License-Identifier: Apache-2.0
"""Measures a healthy client's latency beside one slow peer, very many of them, and a backend that
is down."""

import contextlib
import multiprocessing
import socket
import statistics
import time

import clients
import otlp
from bombs import MIB
from braid import Braid, pipelines, until
from card import Figure, joined, line
from memory import peers
from otlp import TRACES

ROUNDS, REQUESTS = 11, 200
TURN_MS = 5  # longest allowed loop iteration; a request that arrives during one waits for its end
UNFINISHED = 26 * MIB
QUEUED = 60 * MIB
TRICKLING = 800
CONFIG = {"limit_mib": 1000, "check_interval": "1s"}
HEAD = b"POST /v1/traces HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-protobuf\r\nContent-Length: %d\r\n\r\n"


def started(folder, exporters):
    return Braid(pipelines(exporters, processors={"memory_limiter": CONFIG}, workers=1), folder, "--shutdown-timeout", "1s")


class Healthy:
    """A client with a persistent connection, and the latency of each of its small requests."""

    BODY = otlp.trace_request(1).SerializeToString()

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.waited = []

    def ask(self):
        begun = time.perf_counter()
        self.socket.sendall(HEAD % len(self.BODY) + self.BODY)
        good = self.socket.recv(65536).startswith(b"HTTP/1.1 200")
        self.waited.append(time.perf_counter() - begun if good else float("inf"))

    def percentile(self, n):
        """Returns the median of all rounds' percentiles, since other load on the machine comes in
        bursts."""
        rounds = (sorted(self.waited[at:at + REQUESTS]) for at in range(0, len(self.waited), REQUESTS))
        return statistics.median(each[REQUESTS * n // 100] for each in rounds) * 1000


def compared(name, alone, beside):
    """Both are measured alternately, so that other load on the machine affects both."""
    calm, busy = Healthy(alone.http), Healthy(beside.http)
    with calm.socket, busy.socket:
        for _ in range(ROUNDS * REQUESTS):
            calm.ask()
            busy.ask()
            time.sleep(0.001)
    p50, p99 = ((calm.percentile(n), busy.percentile(n)) for n in (50, 99))
    return Figure(f"{name}: p50 {p50[0]:.2f} and {p50[1]:.2f} ms, p99 {p99[0]:.2f} and {p99[1]:.2f} ms",
                  p50[1] <= 2 * p50[0] and p99[1] <= max(2 * p99[0], TURN_MS))


@contextlib.contextmanager
def unfinished(server):
    """A request whose body stops after 26 MB."""
    host, port = server.http.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 60) as peer:
        peer.sendall(HEAD % (60 * MIB) + bytes(UNFINISHED))
        until(lambda: server.metrics()["braid_memory_bytes"]['holder="requests"'] >= UNFINISHED, "the body to be taken")
        yield


def trickle(address, begun, over):
    """Sends bodies one byte now and then."""
    made = list(peers(TRICKLING, address, lambda peer: peer.sendall(HEAD % 999999)))
    while not over.wait(0.2):
        for each in made:
            with contextlib.suppress(OSError):
                each.send(b"x", socket.MSG_DONTWAIT)
        begun.set()


@contextlib.contextmanager
def trickling(server):
    """Runs in a separate process: otherwise it shares a lock with the healthy client."""
    begun, over = multiprocessing.Event(), multiprocessing.Event()
    process = multiprocessing.Process(target=trickle, args=(server.http, begun, over), daemon=True)
    process.start()
    try:
        assert begun.wait(60)
        yield
    finally:
        over.set()
        process.join(60)


def queued(server):
    """Sends requests for a backend that refuses connections, until 60 MB are queued."""
    body = otlp.trace_request(5000, size=200).SerializeToString()
    for n in range(QUEUED // len(body) + 1):
        clients.http(server.http, TRACES.path, body).expect_ok()


@line(29, "a healthy client while another client stops in the middle of a body of 26 MB; also while 800 connections send "
      "slowly; with a backend that refuses connections and 60 MB queued",
      "p50 latency at most twice that of an idle server; p99 latency (the median of eleven rounds of 200 requests) at "
      "most twice that of an idle server, or 5 ms, one loop iteration")
def beside(folder, fast):
    figures = []
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        dead = {"otlp": {"endpoint": "127.0.0.1:%d" % nobody.getsockname()[1], "tls": {"insecure": True},
                         "retry_on_failure": {"max_elapsed_time": "0s"}, "sending_queue": {"queue_size": 1_000_000}}}
        alone, server, down = (started(folder / name, exporters) for name, exporters in
                               (("alone", {"nop": {}}), ("beside", {"nop": {}}), ("down", dead)))
        quiet = started(folder / "quiet", dead)
        try:
            with unfinished(server):
                figures.append(compared("stopped body", alone, server))
                with trickling(server):
                    figures.append(compared("and 800 slow connections", alone, server))
            queued(down)
            figures.append(compared("backend unreachable", quiet, down))
            return joined(*figures)
        finally:
            for each in (alone, server, down, quiet):
                each.kill()
