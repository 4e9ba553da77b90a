# SPDX-License-Identifier: Apache-2.0
"""The line about allocation failures anywhere in the process."""

import gzip
import http.client
import os
import pathlib
import subprocess

import card
import clients
import otlp
from braid import Braid, exporter, pipelines, until
from card import Figure, line
from otlp import PROFILES, TRACES
from sink import Sink

SOURCE = pathlib.Path(__file__).parent / "starve.c"
SAMPLES = 60
TRIES = 5
RETRY = {"retry_on_failure": {"initial_interval": "50ms"}, "timeout": "1s"}


class Scene:
    """Starts, serves each kind of request, and ends, while allocations fail."""

    def __init__(self, folder):
        self.folder, self.n = folder, 0
        self.library, self.count = folder / "starve.so", folder / "count"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", self.library, SOURCE], check=True)
        self.sink = Sink()
        self.config = pipelines(
            {**exporter("grpc", self.sink, **RETRY), **exporter("proto", self.sink, **RETRY)},
            processors={"memory_limiter": {"limit_mib": 200, "check_interval": "1s"}, "join": {},
                        "batch": {"timeout": "10ms"}})

    def run(self, at, n):
        """Returns the result: "no start" (with an error message), "well", or a description of the
        fault."""
        self.n += 1
        env = {"LD_PRELOAD": str(self.library), "STARVE_AT": str(at), "STARVE_FOR": str(n), "STARVE_COUNT": str(self.count)}
        server = Braid(self.config, self.folder / str(self.n), "--shutdown-timeout", "15s", env=env)
        try:
            return self._serve(server)
        except AssertionError as error:
            code = server.process.poll()
            if code == 1 and server.log().strip():
                return "no start"
            return f"allocation {at}: exit code {code}, {str(error).strip().splitlines()[-1][:100]}"
        finally:
            server.kill()

    def _serve(self, server):
        traces = otlp.trace_request(5)
        kinds = [lambda: clients.http(server.http, TRACES.path, traces.SerializeToString()),
                 lambda: clients.http(server.http, TRACES.path, otlp.to_json(traces), otlp.JSON),
                 lambda: clients.http(server.http, PROFILES.path, gzip.compress(otlp.profile_request(5).SerializeToString()),
                                      headers={"content-encoding": "gzip"}),
                 lambda: clients.grpc(server.grpc, TRACES, traces.SerializeToString()),
                 lambda: clients.http(server.address("metrics", node=None), "/metrics", None, None, method="GET")]

        def taken(send):
            try:
                return send().ok
            except (OSError, http.client.HTTPException):
                return False
        for send in kinds:
            until(lambda: any(taken(send) for _ in range(TRIES)), "an answer", 20)
        server.stop()
        return "well"


@line(21, "allocation failures anywhere in the process, libraries included (at start, while serving, at the end)",
      "0 crashes; Braid either reports why it does not start, or serves requests again")
def starved(folder, fast):
    scene = Scene(folder)
    try:
        if scene.run(0, 0) != "well":
            raise RuntimeError("it does not run with memory either")
        total = int(scene.count.read_text())
        samples = card.OPTIONS.get("samples") or SAMPLES
        step = max(1, total // samples)
        outcomes = [scene.run(at, n) for at in range(1, total, step) for n in (1, 50)]
        bad = [each for each in outcomes if each not in ("well", "no start")]
        return Figure(f"{len(outcomes)} runs, in each of which 1 or 50 of about {total} allocations failed: {len(bad)} missed the target"
                      f"{' (' + bad[0] + ')' if bad else ''}; in {outcomes.count('no start')}, Braid did not start and reported why",
                      not bad and os.path.exists(scene.count))
    finally:
        scene.sink.close()
