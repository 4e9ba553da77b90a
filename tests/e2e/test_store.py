# SPDX-License-Identifier: Apache-2.0
"""The exporter `store` in a process that is killed, and in a second process with the same
directory."""

import json
import subprocess
import threading
import urllib.error
import urllib.request

from braid import BINARY, DEADLINE_S, Braid, pipelines, until

START = 1_767_225_600_000_000_000


def config(folder):
    return pipelines({"store": {"directory": str(folder / "data"), "partition": {"rows": 1000}}},
                     extensions={"query": {"endpoint": "127.0.0.1:0"}})


def trace_id(number):
    return f"{number + 1:032x}"


def request(number):
    """One trace of two spans."""
    spans = [{"traceId": trace_id(number), "spanId": f"{2 * number + part + 1:016x}", "name": f"part {part}", "kind": 2,
              "startTimeUnixNano": str(START + number), "endTimeUnixNano": str(START + number + 1000)} for part in (0, 1)]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}).encode()


def post(server, number):
    asked = urllib.request.Request(f"http://{server.http}/v1/traces", request(number), {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=DEADLINE_S) as answer:
        return answer.status


def spans_of(server, number):
    """Returns how many spans of a trace are found."""
    address = server.address("http", "extension/query")
    try:
        with urllib.request.urlopen(f"http://{address}/api/traces/{trace_id(number)}", timeout=DEADLINE_S) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        assert error.code == 404
        return 0
    return sum(len(scope["spans"]) for batch in found["batches"] for scope in batch["scopeSpans"])


def test_acknowledged_data_survives_kill_9(tmp_path):
    acknowledged, number = [], 0
    for turn in range(3):
        server = Braid(config(tmp_path), tmp_path / str(turn))
        server.address("http", "extension/query")
        enough = threading.Event()

        def send():
            nonlocal number
            while True:
                try:
                    post(server, number)
                except (OSError, urllib.error.URLError):
                    number += 1
                    return
                acknowledged.append(number)
                number += 1
                if len(acknowledged) >= 60 * (turn + 1):
                    enough.set()

        sender = threading.Thread(target=send)
        sender.start()
        assert enough.wait(4 * DEADLINE_S)
        server.kill()
        sender.join()
    server = Braid(config(tmp_path), tmp_path / "last")
    assert [number for number in acknowledged if spans_of(server, number) != 2] == []
    lost = set(range(number)) - set(acknowledged)
    assert {spans_of(server, number) for number in lost} <= {0, 2}
    assert server.metrics()["braid_store_damaged_partitions"]['exporter="store"'] == 0
    server.stop()


def test_a_second_process_fails_with_the_pid_of_the_first(tmp_path):
    server = Braid(config(tmp_path), tmp_path / "first")
    server.address("http", "extension/query")
    (tmp_path / "second.yaml").write_text(json.dumps(config(tmp_path)))
    second = subprocess.run([BINARY, "--config", str(tmp_path / "second.yaml")], capture_output=True, text=True,
                            timeout=DEADLINE_S, check=False)
    assert second.returncode not in (0, -11)
    assert f"is in use by process {server.process.pid}" in second.stderr
    post(server, 1)
    until(lambda: spans_of(server, 1) == 2, "the trace")
    server.stop()
