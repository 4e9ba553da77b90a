# SPDX-License-Identifier: Apache-2.0
"""The recipes of docs/using/recipes.md: their files and commands, taken from the page and run
unchanged, and checks of the data that Braid stores.

Every program has the same service: GET /checkout is a span with a child `price`, which computes in
match_coupons, and a child `wait for stock`, which sleeps; GET /report is a span with an error. Both
compute in render themselves. The answers list the spans with the CPU time that each used itself, as
the program measured it."""

import concurrent.futures
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request

import shop
from braid import BINARY, ROOT, until

PAGE = pathlib.Path(__file__).parents[2] / "docs/using/recipes.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
FILE = re.compile(r"`([\w./-]+\.\w+)`[^`]*$")
FUNCTIONS = {"price": "match_coupons", "wait for stock": None, "GET /checkout": "render", "GET /report": "render"}
CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
PORTS = ("receivers.otlp.protocols.grpc", "receivers.otlp.protocols.http", "receivers.pyroscope.protocols.http",
         "extensions.query")


def section(heading):
    """Returns the text under a heading of the page, with its subsections."""
    text = PAGE.read_text()
    begin = re.search(rf"^(#+) {re.escape(heading)}$", text, re.M)
    assert begin, f"docs/using/recipes.md has no heading {heading}"
    end = re.search(rf"^#{{1,{len(begin[1])}}} ", text[begin.end():], re.M)
    return text[begin.end():begin.end() + end.start()] if end else text[begin.end():]


def files(text):
    """Returns name -> content of each code block whose paragraph above ends with the name of a
    file; and the shell blocks, in order."""
    found, commands = {}, []
    for fence in FENCE.finditer(text):
        above = text[:fence.start()].rstrip().rsplit("\n\n", 1)[-1]
        name = FILE.search(above)
        if fence[1] == "sh":
            commands.append(fence[2])
        elif name:
            found[name[1]] = fence[2]
    return found, commands


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Service:
    """A recipe's service: its files in a directory, its commands run there, the last of them in the
    foreground."""

    def __init__(self, heading, folder, otlp, pyroscope, env=None, address=None):
        written, commands = files(section(heading))
        assert commands, f"docs/using/recipes.md, {heading}: no sh block"
        for name, content in written.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        self.address = f"127.0.0.1:{free_port()}"
        self.log = folder / "log"
        script = "set -e\n" + "\n".join(commands).rstrip()
        # The last command replaces the shell, so that it gets the signals.
        lines = script.rsplit("\n", 1)
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", f"{lines[0]}\nexec {lines[1]}"], cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "BRAID_REPOSITORY": str(ROOT), "LISTEN": self.address, "OTEL_EXPORTER_OTLP_ENDPOINT": otlp,
                     "PYROSCOPE_SERVER_ADDRESS": pyroscope, **(env or {})})
        until(self._listens, f"{heading} to listen", 300)

    def _listens(self):
        assert self.process.poll() is None, self.log.read_text()
        host, port = self.address.split(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    def get(self, path):
        """Returns (status, JSON) of a request."""
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as answer:
            return answer.code, json.load(answer)

    def get_together(self, *paths):
        with concurrent.futures.ThreadPoolExecutor(len(paths)) as pool:
            return list(pool.map(self.get, paths))

    def stop(self):
        """Ends it as an orchestrator does, and waits until it has sent the rest."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
        return self.process.returncode


def quickstart(braid, folder):
    """Runs `braid` without a config, on free ports."""
    free = [f"--set={where}.endpoint=127.0.0.1:0" for where in PORTS]
    return braid(None, *free, "--set=service.telemetry.metrics.level=none", "--set=service.telemetry.logs.level=info",
                 env={"XDG_DATA_HOME": str(folder), "TEMPO_ENDPOINT": "", "PYROSCOPE_ENDPOINT": ""})


def addresses(server):
    return f"http://{server.http}", "http://" + server.address("http", node="receiver/pyroscope")


# --- Stored data ------------------------------------------------------------------------------------------------------

def ask(server, *words):
    """Returns the answer of `braid query`, or None if it is empty."""
    url = "http://" + server.address("http", node="extension/query")
    done = subprocess.run([BINARY, "query", *words, "--url", url, "--json"], capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout) if done.returncode == 0 else None


def seconds_of(server, span, function=None, profile_type=CPU):
    """Returns the CPU seconds of a span itself by its flame graph, in total or with a function in
    the stack."""
    profile = ask(server, "profile", "--span", f"{span['trace_id']}/{span['span_id']}", "--scope", "self", "--type", profile_type)
    stacks = shop.stacks_of(profile["flamebearer"]) if profile else {}
    return sum(value for stack, value in stacks.items() if function is None or function in stack) / 1e9


def faults(server, spans, profile_type=CPU, period=0.01, sleeping=0):
    """Returns the faults in the flame graphs of spans, as (whether it is an inexact figure, text).
    Each must have its function with the CPU time that it used, up to a twentieth and a sample; a
    span that sleeps has at most `sleeping` seconds."""
    found = []
    for span in spans:
        used, function = span["cpu_seconds"], FUNCTIONS[span["name"]]
        whole = seconds_of(server, span, None, profile_type)
        if function is None:
            if whole > sleeping:
                found.append((False, f"{span}: {whole} s"))
            continue
        for got in (whole, seconds_of(server, span, function, profile_type)):
            if abs(got - used) > used / 20 + period:
                found.append((used / 2 < got < used * 2, f"{span}: {got} s"))
    return found


def run(server, service):
    """Sends concurrent requests and stops the service. Returns the spans that the answers list,
    once they are stored."""
    answers = service.get_together("/checkout", "/checkout", "/report") + service.get_together("/checkout", "/report")
    assert [status for status, _ in answers] == [200, 200, 500, 200, 500]
    assert service.stop() == 0, service.log.read_text()
    spans = [span for _, listed in answers for span in listed]
    assert len(spans) == 3 * 3 + 2

    def stored():
        found = ask(server, "spans", "--limit", "100")
        ids = {span["span_id"] for span in found["spans"]} if found else set()
        return all(span["span_id"] in ids for span in spans)
    until(stored, "the spans")
    failed = ask(server, "spans", "--status", "error")["spans"]
    assert {span["name"] for span in failed} == {"GET /report"}
    return spans


def measure(server, spans, **how):
    """Waits until the profiles are stored, of which a span may have several, and the flame graphs
    are right. Returns the faults that remain at the deadline."""
    left = []

    def right():
        left[:] = faults(server, spans, **how)
        return not left
    try:
        until(right, "the profiles")
    except AssertionError:
        assert left and all(is_inexact for is_inexact, _ in left), "\n".join(text for _, text in left)
    return left


def check(server, start, **how):
    """Runs the service that `start` starts, and compares the flame graphs with the CPU time that
    the program measured.

    A profiler's timer and the CPU clock of a thread disagree when a hypervisor takes the processor
    away. A figure that is only inexact is therefore measured again, twice."""
    for _ in range(3):
        left = measure(server, run(server, start()), **how)
        if not left:
            return
        print("\n".join(text for _, text in left))
    raise AssertionError("inexact three times: " + "\n".join(text for _, text in left))
