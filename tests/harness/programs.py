# SPDX-License-Identifier: Apache-2.0
"""The programs of tests/sdks: runs them, and sends their recorded requests to another server."""

import json
import os
import pathlib
import socket
import subprocess

_HERE = pathlib.Path(__file__).parents[1] / "sdks"
_BUILT = pathlib.Path(os.environ.get("SDKS", pathlib.Path(__file__).parents[2] / "build" / "sdks"))
_JAVA = [f"-javaagent:{_BUILT}/java/agent-2.9.2.jar", "-cp", f"{_BUILT}/java/classes:{_BUILT}/java/*", "Scene"]

JFR_READER = str(_BUILT / "jfr-reader")
PYROSCOPE_READER = str(_BUILT / "pyroscope-reader")
PY_SPY = str(_BUILT / "python" / "bin" / "py-spy")
SECONDS = "3"
TRACE, ROOT, CHILD = "0a" * 16, "0b" * 8, "0c" * 8  # for programs without a tracer


def _agent(**options):
    """Returns the Java agent's variables and the program's."""
    return lambda env: {"PYROSCOPE_APPLICATION_NAME": "shop", "PYROSCOPE_SERVER_ADDRESS": env["PYROSCOPE"],
                        "PYROSCOPE_UPLOAD_INTERVAL": "1s", "PYROSCOPE_LABELS": "env=test,region=eu west",
                        "PYROSCOPE_PROFILER_EVENT": "itimer", **options}


# Name: command, and a function that extends its environment.
SDKS = {
    "go": ([str(_BUILT / "go")], None),
    "python": ([str(_BUILT / "python" / "bin" / "python"), str(_HERE / "python" / "scene.py")], None),
    "python-old": ([str(_BUILT / "python-old" / "bin" / "python"), str(_HERE / "python" / "scene.py")], None),
    "node": (["node", str(_HERE / "node" / "scene.js"), "new"], None),
    "node-old": (["node", str(_HERE / "node" / "scene.js"), "old"], None),
    "java-jfr": (["java", *_JAVA], _agent(PYROSCOPE_FORMAT="jfr", PYROSCOPE_PROFILER_ALLOC="64k",
                                          PYROSCOPE_PROFILER_LOCK="1ms")),
    "java-otlp": (["java", *_JAVA], _agent(PYROSCOPE_FORMAT="otlp")),
    "rust": ([str(_BUILT / "rust")], lambda env: {"TRACE_ID": TRACE, "ROOT_ID": ROOT, "CHILD_ID": CHILD}),
}


def run(name, pyroscope, otlp, requests=0):
    """Runs a program with the two addresses; returns [(trace id, span id, name)], the root first.
    requests: that many short ones instead of a slow one, with profiles at the SDK's interval (Go
    and Python)."""
    command, more = SDKS[name]
    env = {"PYROSCOPE": f"http://{pyroscope}", "OTLP": f"http://{otlp}", "SECONDS": SECONDS, "REQUESTS": str(requests)}
    env.update(more(env) if more else {})
    return _said(command, env)


def datadog(address, language):
    """Runs a program under Datadog's profiler for python or go, with the address as its agent."""
    command = {"python": [str(_BUILT / "python-datadog" / "bin" / "python"), str(_HERE / "python" / "datadog.py")],
               "go": [str(_BUILT / "datadog")]}[language]
    return _said(command, {"DD_TRACE_AGENT_URL": f"http://{address}", "DD_SERVICE": "shop", "DD_ENV": "test",
                           "DD_PROFILING_UPLOAD_INTERVAL": "1", "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
                           "DD_REMOTE_CONFIGURATION_ENABLED": "false", "DD_PROFILING_FLUSH_ON_EXIT": "true",
                           "SECONDS": SECONDS})


def serve(address, otlp):
    """Runs the Go program with net/http/pprof on the address, until its CPU was profiled twice."""
    return _said(SDKS["go"][0], {"SERVE": address, "OTLP": f"http://{otlp}"})


def _said(command, env):
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("[\"")]


def record(path):
    """Runs a program under the JDK's recorder, which writes to `path`."""
    done = subprocess.run(["java", f"-XX:StartFlightRecording=filename={path},settings=profile", "-cp",
                           f"{_BUILT}/java/classes", "Jdk"], env={**os.environ, "SECONDS": SECONDS},
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def replay(tap, address):
    """Sends the clients' requests that `tap` recorded, byte for byte, to another address. Returns
    the status codes."""
    host, port = address.rsplit(":", 1)
    codes = []
    for sent in tap.sent:
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(bytes(sent))
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as answers:
                while line := answers.readline():
                    codes.append(int(line.split()[1]))
                    length = 0
                    while (header := answers.readline().strip()):
                        name, _, value = header.partition(b":")
                        length = int(value) if name.lower() == b"content-length" else length
                    answers.read(length)
    return codes
