# SPDX-License-Identifier: Apache-2.0
"""Runs the binary: starts it on a config with port 0, finds its ports in its log, and stops it."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = str(pathlib.Path(os.environ.get("BRAID", ROOT / "build" / "braid")).resolve())
WORKERS = int(os.environ.get("BRAID_WORKERS", "1"))  # for pipelines() without an argument
DEADLINE_S = 30.0  # generous: sanitizer builds run on busy machines, too


def until(condition, what="the condition", deadline_s=DEADLINE_S):
    """Waits until condition() is true and returns its result."""
    end = time.monotonic() + deadline_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise AssertionError(f"waited {deadline_s:.0f} s in vain for {what}")
        time.sleep(0.01)


def exporter(kind, sink, name="", **options):
    """Returns one exporter of a config, to a sink or another object with its addresses. kind: grpc,
    proto or json."""
    if kind == "grpc":
        return {"otlp" + name: {"endpoint": sink.grpc, "tls": {"insecure": True}, **options}}
    return {"otlphttp" + name: {"endpoint": f"http://{sink.http}", "encoding": kind, **options}}


EXPORTERS = ("grpc", "proto", "json")


def pipelines(exporters, *, signals=("traces", "profiles"), grpc=None, http=None, processors=None,
              extensions=None, receiver=None, **service):
    """Returns a config with one otlp receiver on free ports, and the same pipeline for every
    signal."""
    protocols = {"grpc": {"endpoint": "127.0.0.1:0", **(grpc or {})},
                 "http": {"endpoint": "127.0.0.1:0", **(http or {})}}
    pipeline = {"receivers": ["otlp"], "processors": list(processors or {}),
                "exporters": list(exporters)}
    reader = {"pull": {"exporter": {"prometheus": {"host": "127.0.0.1", "port": 0}}}}
    return {
        "receivers": {"otlp": {"protocols": protocols, **(receiver or {})}},
        "processors": processors or {},
        "exporters": exporters,
        "extensions": extensions or {},
        "service": {"extensions": list(extensions or {}),
                    "pipelines": {kind: pipeline for kind in signals},
                    "telemetry": {"metrics": {"readers": [reader]}},
                    "workers": WORKERS, **service},
    }


def check_closed(account):
    """Checks that what came in is the sum of all results."""
    sources = account["received"] + account.get("restored", 0)
    assert 2 * sources == sum(account.values()), account
    return account


def last_words(line):
    """Returns (signal, account) of a summary line of the log at shutdown, or None."""
    found = re.search(r"\t(\w+): (\d+) (?:spans|samples) received, (.*)$", line)
    if not found:
        return None
    kind, received, rest = found.groups()
    account = {entry: int(number) for number, entry in re.findall(r"(\d+) (\w+)", rest)}
    return kind, check_closed({"received": int(received), **account})


RESULTS = ("received", "restored", "sent", "rejected", "dropped", "stored", "held")


class Braid:
    """config: YAML text, or a dict that is written as JSON, a subset of YAML; None: without
    --config. under: a program that runs the binary in its own process, as `strace -D` does."""

    def __init__(self, config, folder, *args, command=(), env=None, under=()):
        self.stopping = self.killed = False
        folder.mkdir(parents=True, exist_ok=True)
        text = config if isinstance(config, str) else json.dumps(config, indent=2)
        self.config_path = folder / "config.yaml"
        self.config_path.write_text(text)
        given = [] if config is None else ["--config", str(self.config_path)]
        self._log_path = folder / "stderr"
        self.stdout_path = folder / "stdout"
        with open(self._log_path, "wb") as err, open(self.stdout_path, "wb") as out:
            self.process = subprocess.Popen(
                [*under, BINARY, *command, *given, *args], cwd=folder,
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, env={**os.environ, **(env or {})})

    def log(self):
        return self._log_path.read_text(errors="replace")

    def wait_log(self, pattern):
        """Waits for a log line that matches, and returns the match."""
        def look():
            found = re.search(pattern, self.log(), re.MULTILINE)
            if not found and self.process.poll() is not None:
                raise AssertionError(f"exit code {self.process.returncode}:\n{self.log()}")
            return found
        return until(look, f"/{pattern}/ in the log")

    def address(self, what, node="receiver/otlp"):
        """Returns host:port of the listener `what` (grpc, http, metrics ...) of a node."""
        prefix = f"\t{re.escape(node)}\t" if node else r"\t"
        return self.wait_log(rf"{prefix}{what} listening on (\S+)").group(1)

    @property
    def grpc(self):
        return self.address("grpc")

    @property
    def http(self):
        return self.address("http")

    def metrics(self):
        """Returns a scrape: {name: {labels as text: value}}; counters without their suffix, as in
        the official parser."""
        url = f"http://{self.address('metrics', node=None)}/metrics"
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            text = answer.read().decode()
        metrics = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()
                metrics.setdefault(name.removesuffix("_total"), {})[labels or ""] = float(value)
        return metrics

    def ledger(self, kind):
        """Returns the results of a signal's records by the metrics; the account must balance."""
        metrics, label = self.metrics(), f'signal="{kind}"'
        account = {
            entry: sum(value for labels, value in metrics.get(f"braid_ledger_{entry}", {}).items()
                       if label in labels)
            for entry in RESULTS
        }
        for entry in ("restored", "stored"):  # 0 without a durable queue
            if not account[entry]:
                del account[entry]
        return check_closed(account)

    def terminate(self, number=signal.SIGTERM):
        """Sends the signal once; a second signal would end the process without waiting for queued
        data."""
        self.stopping = True
        self.process.send_signal(number)

    def exporter_ledger(self, name, kind):
        """Returns the same for the records passed to one exporter."""
        metrics, labels = self.metrics(), (f'exporter="{name}"', f'signal="{kind}"')
        account = {
            entry: sum(value for text, value in metrics.get(f"braid_exporter_{entry}", {}).items()
                       if all(label in text for label in labels))
            for entry in RESULTS
        }
        for entry in ("restored", "stored"):  # 0 without a durable queue
            if not account[entry]:
                del account[entry]
        return check_closed(account)

    def stop(self, code=0):
        """Sends SIGTERM; the process must end with `code`. Returns the results of each signal's
        records by the last lines of the log: {signal: {"received": n, ...}}."""
        expected = code
        if not self.stopping:
            self.terminate()
        try:
            code = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"did not stop after SIGTERM:\n{self.log()}") from None
        self.killed = code == expected != 0  # it has ended as expected
        assert code == expected, f"exit code {code}:\n{self.log()}"
        return dict(filter(None, map(last_words, self.log().splitlines()[-2:])))

    def kill(self):
        self.killed = True
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
