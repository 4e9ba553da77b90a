# SPDX-License-Identifier: Apache-2.0
"""The processes of a fleet. A member keeps its address, so that it can be killed and started again."""

import signal
import urllib.error

from braid import Braid, pipelines, until

RETRY = {"initial_interval": "100ms", "max_interval": "500ms", "max_elapsed_time": "0s"}


class Member:
    """One Braid process at a fixed place. config: a function that returns the config for a host."""

    def __init__(self, name, host, config, folder):
        self.name, self.host = name, host
        self._config, self._folder, self._n = config, folder, 0
        self.server, self.frozen, self.cut = None, False, False

    def start(self):
        self._n += 1
        self.server = Braid(self._config(self.host), self._folder / f"{self.name}-{self._n}", under=self.host.under)
        self.server.wait_log("ready")
        return self

    @property
    def alive(self):
        return self.server is not None and self.server.process.poll() is None and not self.frozen and not self.cut

    def kill(self):
        self.server.kill()

    def stop(self):
        self.server.stop()

    def freeze(self):
        self.frozen = True
        self.server.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.server.process.send_signal(signal.SIGCONT)
        self.frozen = False

    def total(self, metric, *labels):
        """Returns the sum of a metric's series with all these labels; 0 while the process is busy."""
        try:
            series = self.server.metrics().get(metric, {})
        except (urllib.error.URLError, OSError):
            return 0
        return sum(value for text, value in series.items() if all(label in text for label in labels))

    def wait_held(self):
        """Waits until tail_sampling holds requests, so that an event meets traces without a decision."""
        until(lambda: self.total("braid_tail_sampling_held_bytes") > 0, f"requests that {self.name} holds", 60)

    def end(self):
        """Ends a member that runs; its exit code must be 0 and its ledger closed."""
        if self.alive:
            self.server.stop()

    def close(self):
        if self.server and not self.server.killed:
            if self.frozen:
                self.thaw()
            self.server.kill()


def configured(host, exporters, receivers=None, workers=1, **more):
    """Returns a config whose servers listen at the host."""
    config = pipelines(exporters, grpc={"endpoint": host.endpoint}, http={"endpoint": f"{host.address}:0"},
                       workers=workers, **more)
    reader = config["service"]["telemetry"]["metrics"]["readers"][0]
    reader["pull"]["exporter"]["prometheus"]["host"] = host.address
    if receivers:
        config["receivers"] = receivers
        for pipeline in config["service"]["pipelines"].values():
            pipeline["receivers"] = list(receivers)
    return config


def otlp_exporter(endpoint, **options):
    return {"otlp": {"endpoint": endpoint, "tls": {"insecure": True}, "compression": "none",
                     "retry_on_failure": RETRY, **options}}
