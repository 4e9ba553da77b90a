# SPDX-License-Identifier: Apache-2.0
"""A Go program that serves pprof, Braid in front of it, and the exported samples."""

import contextlib
import os
import pathlib
import subprocess

import otlp
import profile_view
from braid import DEADLINE_S, exporter, pipelines

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("GO_CLIENTS", str(ROOT / "build" / "clients"))
OFF = {name: {"enabled": False} for name in ("cpu", "allocs", "goroutine", "block", "mutex")}


@contextlib.contextmanager
def go_program(*args):
    """Runs the program; yields its host:port."""
    with subprocess.Popen([PROGRAM, "pprof", *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        try:
            address = program.stdout.readline().strip()
            assert address, "the program does not serve: build it anew"
            yield address
        finally:
            program.stdin.close()
            program.wait(DEADLINE_S)


def config(sink, receiver, **service):
    """One receiver pprof in front of the sink."""
    tree = pipelines(exporter("grpc", sink), signals=("profiles",), **service)
    tree["receivers"] = {"pprof": receiver}
    tree["service"]["pipelines"]["profiles"]["receivers"] = ["pprof"]
    return tree


def target(address, scheme="http", **labels):
    return [{"endpoint": f"{scheme}://{address}", "labels": {"service_name": "shop", **labels}}]


def samples(sink):
    """Returns all samples received so far; each request is decoded once."""
    seen = vars(sink).setdefault("seen", [])
    calls = sink.of(otlp.PROFILES)
    seen.extend(list(profile_view.View(call.message).samples()) for call in calls[len(seen):])
    return [each for request in seen for each in request]


def functions(sample):
    return [line[0] for frame in sample["frames"] for line in frame["lines"]]


def of_type(sink, kind):
    """Returns samples of (name, type): ("process_cpu", "cpu")."""
    return [each for each in samples(sink)
            if (each["scope"][1].get("pyroscope.name"), each["type"][0]) == kind]
