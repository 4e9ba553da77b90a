# SPDX-License-Identifier: Apache-2.0
"""Lines about durable queues and a process that dies."""

import json
import os
import pathlib
import random
import subprocess
import tempfile
import time
import xml.etree.ElementTree as xml

import clients
from braid import BINARY
from card import Figure, joined, line
from conform import ROOT
from durable_bed import DOWN, Numbers, arrived, backend, config, missing, request, running
from faults import checks
from otlp import TRACES
from sink import Reply

ROUNDS = 200
CONSUMERS = 10  # requests that the exporter sends at the same time
POISON = pathlib.Path(__file__).parent / "poison.c"


def repeated(sink):
    numbers = arrived(sink)
    return len(numbers) - len(set(numbers))


@line(5, "kill -9 at random times; in half of the rounds, the backend is unreachable",
      "0 acknowledged requests lost; only requests that were being sent at the kill may arrive twice (at most 10 for "
      "each kill)")
def killed(folder, fast):
    rng, acknowledged, first, twice = random.Random(5), set(), 1, [0]
    with backend() as sink:
        for n in range(ROUNDS):
            sink.reply = DOWN if n % 2 else Reply()
            with running(config(sink, folder / "queue"), folder / "braid") as server:
                load = Numbers(server.grpc, first)
                time.sleep(rng.uniform(0.05, 0.5))
                server.kill()
                load.stop()
            acknowledged |= set(load.acknowledged)
            twice.append(repeated(sink))
            first = load.next
        sink.reply = Reply()
        with running(config(sink, folder / "queue"), folder / "braid") as server:
            lost = missing(server, sink, acknowledged, 60)
        twice.append(repeated(sink))
    each = [after - before for before, after in zip(twice, twice[1:])]
    many = sum(n > CONSUMERS for n in each)
    return Figure(f"{ROUNDS} kills: {lost} of {len(acknowledged)} acknowledged requests lost; {twice[-1]} arrived twice, at most "
                  f"{max(each)} for one kill; {many} kills with more than {CONSUMERS}",
                  lost == 0 and len(acknowledged) > ROUNDS and many == 0)


# --- 10


@line(10, "a stored request that ends the process whenever it is read",
      "after it has ended the process 3 times, it is moved to the quarantine directory; all other requests are delivered", fast=True)
def poison(folder, fast):
    library = folder / "poison.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-fno-builtin", "-o", library, POISON], check=True)
    env = {"LD_PRELOAD": str(library), "POISON": "deadly-tenant"}
    setter = {"headers_setter": {"headers": [{"key": "x-tenant", "from_context": "x-tenant"}]}}
    deaths, codes = 0, []
    with backend(DOWN) as sink:
        made = config(sink, folder / "queue", out={"auth": {"authenticator": "headers_setter"}},
                      grpc={"include_metadata": True}, extensions=setter)
        with running(made, folder / "first") as server:
            for n in range(1, 8):
                tenant = "deadly-tenant" if n == 4 else "other"
                clients.grpc(server.grpc, TRACES, request(n), [("x-tenant", tenant)]).expect_ok()
            server.kill()
        sink.reply = Reply()
        while deaths < 10:
            with running(made, folder / f"again{deaths}", env=env) as server:
                end = time.monotonic() + 10
                while server.process.poll() is None and set(arrived(sink)) != {1, 2, 3, 5, 6, 7} and time.monotonic() < end:
                    time.sleep(0.02)
                time.sleep(0.2)
                code = server.process.poll()
                if code is None:
                    break
            codes.append(code)
            deaths += 1
        kept = len(list((folder / "queue" / "quarantine").glob("*")))
        others = len({1, 2, 3, 5, 6, 7} & set(arrived(sink)))
    return Figure(f"the process ended {deaths} times, then {kept} request in quarantine; {others} of 6 other requests delivered",
                  deaths == 3 and kept == 1 and others == 6 and 4 not in arrived(sink) and all(code < 0 for code in codes))


# --- 9


@line(9, "a log of 64 KiB that is damaged at every byte: either the byte is changed, or the log ends before it",
      "0 crashes; only the damaged record is lost; each loss is counted (if the format version in the header is damaged, "
      "the log may be refused)")
def corrupted(folder, fast):
    tool = pathlib.Path(BINARY).resolve().parent / "tests" / "support" / "wal_tool"
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="scorecard-", dir=memory) as directory:
        done = subprocess.run([tool, directory], capture_output=True, text=True)
    if done.returncode:
        return Figure(f"the tool ended with {done.returncode}: {done.stderr[-200:]}", False)
    n = json.loads(done.stdout)
    bad = n["more_than_one"] + n["wrong"] + n["uncounted"] + n["early"]
    return Figure(f"{n['flips']} changed bytes: for {n['lost']}, the record that contains the byte was lost; for {n['refused']} in the "
                  f"header, the log was refused; {n['cuts']} cuts; in {bad} cases, more was lost or a loss was not counted", bad == 0 and n["refused"] <= 16)


# --- 24


@line(24, "the web page in Chromium, with markup and scripts in all texts that it shows; requests with a foreign Host or "
      "Origin",
      "no script in a text runs, and no text is interpreted as markup; requests with a foreign Host or Origin are "
      "rejected")
def page(folder, fast):
    out = folder / "page"
    subprocess.run(["tests/page/run", "test_hostile.js"], cwd=ROOT, env={**os.environ, "PAGE_OUT": str(out)},
                   capture_output=True, stdin=subprocess.DEVNULL)
    cases = list(xml.parse(out / "page.xml").getroot().iter("testcase"))
    good = sum(len(case) == 0 for case in cases)
    return joined(Figure(f"in Chromium {good} of {len(cases)} checks", good == len(cases) > 0),
                  checks(folder, "origins", ["tests/e2e/test_web_pages.py"]),
                  checks(folder, "hosts", ["tests/e2e/test_service.py"], "host"))
