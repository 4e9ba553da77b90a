# SPDX-License-Identifier: Apache-2.0
"""The line about SIGHUP, by which the configuration is loaded again."""

import contextlib
import copy
import json
import signal
import ssl
import threading
import time

import grpc as grpcio

import clients
import otlp
from braid import Braid, exporter, pipelines, until
from card import Figure, line
from load import Load
from otlp import TRACES
from pki import Authority
from sink import Sink

ROUNDS = 50
PAUSE_S = 0.3
HEADER = "x-round"
BAD = ("receivers: [", '{"receivers": {"otlp": {"protocls": {}}}}', '{"service": {"pipelines": {"traces": {"exporters": ["no"]}}}}')


class Kept:
    """A client that sends all of its requests on one connection."""

    def __init__(self, server):
        self.sent = self.failed = 0
        self._channel = grpcio.insecure_channel(server.grpc, clients.LOCAL)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        body = otlp.trace_request(1).SerializeToString()
        while not self._stop.wait(0.01):
            self.sent += 1
            self.failed += not clients.grpc("", TRACES, body, channel=self._channel).ok

    def stop(self):
        self._stop.set()
        self._thread.join()
        self._channel.close()


class Scene:
    def __init__(self, folder):
        self.sink, self.folder = Sink(), folder
        self.authority, self.n_certificates = Authority(folder / "ca"), 0
        self.tls = {}  # part of the configuration
        self.renew()
        self.config = pipelines(exporter("grpc", self.sink), processors={"batch": {"timeout": "10ms"}}, workers=2)
        self.config["receivers"]["otlp/tls"] = {"protocols": {"http": {"endpoint": "127.0.0.1:0", "tls": self.tls}}}
        for pipeline in self.config["service"]["pipelines"].values():
            pipeline["receivers"] = ["otlp", "otlp/tls"]
        self.server = Braid(self.config, folder / "braid")
        # Later configurations name the ports that the first one was given.
        for node, protocol in (("otlp", "grpc"), ("otlp", "http"), ("otlp/tls", "http")):
            address = self.server.address(protocol, f"receiver/{node}")
            self.config["receivers"][node]["protocols"][protocol]["endpoint"] = address

    def renew(self):
        """Makes a new certificate, in files that only the next configuration names."""
        made = self.authority.issue(f"server{self.n_certificates}", ["subjectAltName=IP:127.0.0.1", "extendedKeyUsage=serverAuth"])
        self.n_certificates += 1
        self.cert = made.cert
        self.tls.update(cert_file=str(made.cert), key_file=str(made.key))

    def serves_new_certificate(self):
        host, port = self.server.address("http", "receiver/otlp/tls").rsplit(":", 1)
        with contextlib.suppress(OSError):
            return ssl.get_server_certificate((host, int(port))).strip() == self.cert.read_text().strip()
        return False

    def load(self, text):
        (self.folder / "braid" / "config.yaml").write_text(text)
        self.server.process.send_signal(signal.SIGHUP)
        time.sleep(PAUSE_S)

    def changed(self, n):
        """Returns the configuration with another header of the exporter."""
        made = copy.deepcopy(self.config)
        made["exporters"]["otlp"]["headers"] = {HEADER: str(n)}
        return json.dumps(made)

    def arrived_with(self, n):
        return any(call.headers.get(HEADER) == str(n) for call in self.sink.of(TRACES)[-50:])

    def close(self):
        self.server.kill()
        self.sink.close()


def seen(condition):
    with contextlib.suppress(AssertionError):
        return until(condition, "the effect of a reload", 10)
    return False


@line(19, "SIGHUP (reloading the configuration) under load: changed settings, invalid configurations, new certificates",
      "0 failed requests; if a configuration is invalid, the old one stays in use; all other changes take effect")
def reloads(folder, fast):
    scene = Scene(folder)
    load, kept = Load(scene.server, 20).start(), Kept(scene.server)
    missed = 0
    try:
        last = scene.changed(0)
        for n in range(ROUNDS):
            if n % 5 == 3:
                scene.load(BAD[n // 5 % len(BAD)])
                continue
            if n % 5 == 4:
                scene.renew()
            last = scene.changed(n)
            scene.load(last)
            if "SIGHUP has no effect" in scene.server.log():
                return Figure("skipped: this version reads its configuration only at startup", False, skipped=True)
            missed += not seen(lambda n=n: scene.arrived_with(n))
            missed += n % 5 == 4 and not seen(scene.serves_new_certificate)
        for each in (load, kept):
            each.stop()
        bad = sum(n for code, n in load.answers.items() if code not in ("OK", 200))
        bad += sum(n for kind, n in load.wrong.items() if kind not in load.answers) + kept.failed
        n = sum(load.answers.values()) + kept.sent
        up = scene.server.process.poll() is None
        return Figure(f"{ROUNDS} signals: {bad} of {n} requests failed; {missed} changes without effect; "
                      f"{scene.n_certificates - 1} new certificates; "
                      f"{'still running' if up else 'ended'}", bad == 0 and missed == 0 and up and n > 1000)
    finally:
        for each in (load, kept):
            each.stop()
        scene.close()
