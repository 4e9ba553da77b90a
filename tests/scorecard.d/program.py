# SPDX-License-Identifier: Apache-2.0
"""Lines about the program as a whole: fuzzing, sanitizers, secrets."""

import os
import re
import stat
import subprocess

import clients
import otlp
from braid import BINARY, Braid, exporter, pipelines, until
from card import Figure, joined, line
from otlp import SIGNALS, TRACES
from sink import REFUSE, Sink

CANARY = "canary-5c0re-d41d8cd9"


def tests_run(*suites, **environment):
    """Returns the last line of tests/run."""
    done = subprocess.run(["tests/run", *suites], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env={**os.environ, **environment})
    last = done.stdout.strip().splitlines()[-1]
    return Figure(f"{' '.join(suites)}: {last}", done.returncode == 0)


@line(4, "fuzzing of all parsers of external data; each fuzz target starts with its corpus",
      "60 s for each fuzz target, 0 crashes, leaks or timeouts")
def fuzzing(folder, fast):
    return tests_run("fuzz", FUZZ_SECONDS="60")


def valgrind():
    """Runs valgrind over the unit tests of build/."""
    tool = "valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite"
    done = subprocess.run(["meson", "test", "-C", "build", "-t", "100", "--no-rebuild", "--wrapper", tool],
                          capture_output=True, text=True, stdin=subprocess.DEVNULL)
    n = {what: int(n) for what, n in re.findall(r"^(Ok|Fail|Timeout):\s+(\d+)", done.stdout, re.MULTILINE)}
    return Figure(f"Valgrind: {n.get('Ok', 0)} of {sum(n.values())} programs", done.returncode == 0 and n.get("Ok", 0) > 0)


def analyzer():
    """Runs gcc's analyzer over the product."""
    if not os.path.exists("build-analyzer"):
        subprocess.run(["meson", "setup", "build-analyzer", "-Dc_args=-fanalyzer"], capture_output=True, check=True)
    done = subprocess.run(["ninja", "-C", "build-analyzer", "braid"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    found = re.findall(r"\[-Wanalyzer-([a-z-]+)\]", done.stdout)
    return Figure(f"-fanalyzer: {len(found)} reports{' (' + ', '.join(sorted(set(found))) + ')' if found else ''}",
                  done.returncode == 0 and not found)


@line(22, "all tests, run with sanitizers",
      "0 reports of ASan, UBSan, TSan and Valgrind; 0 warnings of -fanalyzer")
def sanitizers(folder, fast):
    return joined(tests_run("asan", "e2e"), tests_run("tsan-all", "tsan"), valgrind(), analyzer())


def secretive(sink, folder):
    key = folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-keyout", key, "-out", folder / "cert.pem", "-days", "1", "-subj", "/CN=localhost"],
                   check=True, capture_output=True)
    header = {"headers": {"x-token": CANARY}}
    exporters = {**exporter("grpc", sink, **header), **exporter("json", sink, **header),
                 "file": {"path": str(folder / "out.json")}, "debug": {"verbosity": "detailed"}}
    tls = {"cert_file": str(folder / "cert.pem"), "key_pem": key.read_text()}
    config = pipelines(
        exporters, extensions={"control": {"endpoint": "127.0.0.1:0", "token": CANARY, "tls": tls}},
        processors={"redaction": {"hash_function": "hmac-sha256", "hmac_key": CANARY * 2}})
    config["service"]["telemetry"]["logs"] = {"level": "trace"}
    return config, "".join(key.read_text().splitlines()[1:3])


@line(25, "secrets in the configuration and in headers",
      "a test secret is found in 0 places: logs, metrics, responses, exported data, printed configuration, a core file; "
      "written files have mode 0600", fast=True)
def secrets(folder, fast):
    sink = Sink()
    config, key = secretive(sink, folder)
    server = Braid(config, folder / "braid")
    try:
        metrics = f"{server.address('metrics', node=None)}"
        seen = {"answers": [], "dumpable": b""}
        for reply in (sink.reply, REFUSE):
            sink.reply = reply
            for signal in SIGNALS:
                for kind in ("", "x" * 20):
                    body = otlp.request_of(signal, 1).SerializeToString() + kind.encode()
                    seen["answers"].append(repr(clients.grpc(server.grpc, signal, body)))
                    seen["answers"].append(repr(clients.http(server.http, signal.path, body)))
        seen["metrics"] = clients.http(metrics, "/metrics", None, None, method="GET").body
        until(lambda: server.ledger("traces")["held"] == 0, "the end")
        pid = server.process.pid
        cores = re.search(r"Max core file size +(\d+) +(\d+)", open(f"/proc/{pid}/limits").read()).groups()
        server.stop()
        seen["log"], seen["stdout"] = server.log(), server.stdout_path.read_bytes()
        seen["file"] = (folder / "out.json").read_bytes()
        seen["sent"] = [call.raw for call in sink.calls]
        printed = subprocess.run([BINARY, "print-config", "--config", folder / "braid" / "config.yaml"],
                                 capture_output=True)
        seen["printed config"] = printed.stdout + printed.stderr
        found = [where for where, text in seen.items() if CANARY in str(text) or key[:40] in str(text)]
        mode = stat.S_IMODE((folder / "out.json").stat().st_mode)
        arrived = sum(call.headers.get("x-token") == CANARY for call in sink.of(TRACES))
        return Figure(f"found in {len(found)} of {len(seen) - 1} places{' ' + ', '.join(found) if found else ''} "
                      f"({arrived} requests had it in a header); limit of core files {cores[1]} bytes; "
                      f"mode {mode:04o}", not found and mode == 0o600 and cores == ("0", "0") and arrived > 0)
    finally:
        server.kill()
        sink.close()
