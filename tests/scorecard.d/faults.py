# SPDX-License-Identifier: Apache-2.0
"""Lines about backends that reject, disks and files that fail, and clients that disturb others."""

import os
import pathlib
import re
import subprocess

from braid import BINARY
from card import Figure, joined, line
from conform import ROOT, pytest


def checks(folder, what, paths, names=""):
    good, n = pytest(folder, *paths, *(["-k", names] if names else []))
    return Figure(f"{what} {good} of {n} checks", good == n > 0)


def store_checks(what, pattern):
    """Runs the tests of the store's faults whose names match."""
    program = pathlib.Path(BINARY).resolve().parent / "tests" / "unit" / "storage"
    done = subprocess.run([program, "--filter", pattern, "store_faults"], cwd=ROOT, capture_output=True, text=True)
    n = int(re.search(r"(\d+) test\(s\) run", done.stdout + done.stderr)[1])
    good = int((re.search(r"PASSED +\] (\d+)", done.stdout + done.stderr) or ["", 0])[1])
    return Figure(f"{what} {good} of {n} checks", good == n > 0 and done.returncode == 0)


@line(30, "a Pyroscope that rejects requests: 429, one invalid profile among others, responses without a name "
      "(and the real server, if PYROSCOPE names its binary: burst, invalid profile, restart)",
      "every profile is stored once", fast=True)
def refusals(folder, fast):
    figures = [checks(folder, "stand-in", ["tests/e2e/test_pyroscope_exporter.py"], "refused or busy or bad or given_up")]
    if os.environ.get("PYROSCOPE"):
        figures.append(checks(folder, "real server", ["tests/e2e/test_pyroscope_real.py"]))
    return joined(*figures)


@line(31, "reads of the store's files that fail once or twice, or permanently",
      "single failures have no effect; during permanent failures, only the affected data is unavailable, responses "
      "report it, and no file is renamed", fast=True)
def errors(folder, fast):
    return joined(store_checks("once or twice", "*transient*"), store_checks("for long", "*permanent*"))


@line(32, "while the store writes, the open database, its log, a sealed database, the directory or its lock are deleted",
      "all acknowledged data is stored; no second process can use the directory", fast=True)
def deleted(folder, fast):
    return joined(store_checks("deleted", "*deleted*"), store_checks("taken by another process", "*directory_replaced*"))


@line(33, "SIGTERM while a thread waits for a disk",
      "the process ends within --shutdown-timeout and a second, and reports the remaining data")
def stalled(folder, fast):
    return checks(folder, "in all", ["tests/e2e/test_stalled_disks.py"], "shutdown")


@line(34, "query clients that do not read their responses, and waiting live tails",
      "other queries are answered and requests are accepted")
def readers(folder, fast):
    return checks(folder, "in all", ["tests/e2e/test_query_readers.py"])


@line(35, "web pages of other origins that write to a receiver",
      "their requests are rejected, except for the origins in cors", fast=True)
def pages(folder, fast):
    return checks(folder, "in all", ["tests/e2e/test_web_pages.py"])
