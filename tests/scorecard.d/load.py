# SPDX-License-Identifier: Apache-2.0
"""Shared by the lines: load, a backend that is not available yet, the memory of a process."""

import collections
import gzip
import socket
import threading

import clients
import otlp
from otlp import PROFILES, TRACES
from tap import Tap


def memory_mib(pid, what):
    """Returns VmRSS, or VmHWM: the peak."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(each.split()[1]) for each in status if each.startswith(what)) / 1024


class Late(Tap):
    """A backend that refuses connections until it is opened."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._server = socket.socket()
        self._server.bind(("127.0.0.1", 0))
        self.grpc = self.http = "127.0.0.1:%d" % self._server.getsockname()[1]
        self.n_sent = self.n_connections = 0
        self.sent, self.received, self._sockets = [], [], []

    def open(self):
        self.come_back()


class Load:
    """Clients that send requests of different kinds until they are stopped, and count the answers."""

    def __init__(self, server, n_items, clients_each=1):
        traces, profiles = (otlp.request_of(signal, n_items) for signal in (TRACES, PROFILES))
        gz = {"content-encoding": "gzip"}
        self.answers = collections.Counter()
        self.wrong = collections.Counter()  # rejections other than overload, or without a retry hint
        self.spans = 0                      # in accepted requests
        self._stop = threading.Event()
        grpc, http = server.grpc, server.http
        kinds = [
            (n_items, lambda body=traces.SerializeToString(): clients.grpc(grpc, TRACES, body)),
            (0, lambda body=profiles.SerializeToString(): clients.grpc(grpc, PROFILES, body)),
            (n_items, lambda body=otlp.to_json(traces): clients.http(http, TRACES.path, body, otlp.JSON)),
            (n_items, lambda body=gzip.compress(traces.SerializeToString(), 1):
                clients.http(http, TRACES.path, body, headers=gz)),
            (0, lambda body=gzip.compress(profiles.SerializeToString(), 1):
                clients.http(http, PROFILES.path, body, headers=gz)),
        ]
        self._kinds = [send for _, send in kinds]
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=kind, daemon=True)
                         for kind in kinds for _ in range(clients_each)]

    def _run(self, spans, send):
        while not self._stop.is_set():
            try:
                answer = send()
            except OSError as error:
                with self._lock:
                    self.wrong[type(error).__name__] += 1
                self._stop.wait(0.01)
                continue
            busy = answer.code in ("UNAVAILABLE", 503)
            hinted = answer.retry_info is not None or "retry-after" in answer.headers
            with self._lock:
                self.answers[answer.code] += 1
                self.spans += spans if answer.ok else 0
                if not answer.ok and not (busy and hinted):
                    self.wrong[answer.code] += 1

    def start(self):
        for each in self._threads:
            each.start()
        return self

    def stop(self):
        self._stop.set()
        for each in self._threads:
            each.join()
        return self

    def all_taken(self):
        """Returns whether one of each kind is accepted now."""
        return all(send().ok for send in self._kinds)
