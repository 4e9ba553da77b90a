# SPDX-License-Identifier: Apache-2.0
"""Lines about the delivery of accepted data."""

import re
import threading
import time

import clients
import otlp
from braid import Braid, exporter, pipelines, until
from card import Figure, joined, line
from load import Late, Load
from otlp import SIGNALS, TRACES
from sink import ACCEPT, BUSY, REFUSE, Reply, Sink

SCRAPES = 100
RETRY = {"retry_on_failure": {"initial_interval": "20ms", "max_interval": "100ms", "max_elapsed_time": "500ms"}}


@line(11, "the ledger of records: received = sent + rejected + dropped + held",
      "the equation is exact in each of 100 scrapes under overload, for traces and for profiles", fast=True)
def ledger(folder, fast):
    sink = Sink()
    server = Braid(pipelines(exporter("grpc", sink, sending_queue={"queue_size": 20}, **RETRY),
                             processors={"batch": {"timeout": "10ms", "send_batch_size": 50}}, workers=2),
                   folder / "braid")
    load = Load(server, 20).start()
    exact, outcomes = {signal.name: 0 for signal in SIGNALS}, {}
    try:
        for n in range(SCRAPES):
            sink.reply = (ACCEPT, BUSY, REFUSE, Reply(rejected=1, message="one is bad"))[n // 5 % 4]
            for signal in SIGNALS:
                try:
                    outcomes[signal.name] = server.ledger(signal.name)
                    exact[signal.name] += 1
                except AssertionError:
                    pass
            time.sleep(0.02)
        load.stop()
        sink.reply = ACCEPT
        until(lambda: server.ledger("traces")["held"] == 0, "the rest")
        words = server.stop()["traces"]
        figures = [Figure(f"{name} {n} of {SCRAPES}", n == SCRAPES) for name, n in exact.items()]
        busy = all(words[each] for each in ("received", "sent", "dropped"))
        return joined(*figures, Figure("spans at exit: " + ", ".join(f"{n} {what}" for what, n in words.items()), busy))
    finally:
        load.stop()
        server.kill()
        sink.close()


@line(14, "a backend that is unreachable for 30 s and then returns",
      "0 spans lost; the order of each client is kept; all spans are delivered within 30 s after the backend returns")
def outage(folder, fast):
    sink = Sink()
    late = Late(sink.grpc)
    server = Braid(pipelines(exporter("grpc", late, sending_queue={"queue_size": 100000, "num_consumers": 1},
                                      retry_on_failure={"max_interval": "5s"})), folder / "braid")
    try:
        n, end = 0, time.monotonic() + 30
        while time.monotonic() < end:
            n += clients.grpc(server.grpc, TRACES, otlp.trace_request(1, first=n + 1).SerializeToString()).ok
            time.sleep(0.01)
        late.open()
        begun = time.monotonic()
        until(lambda: server.ledger("traces")["held"] == 0, "the last one", 120)
        took = time.monotonic() - begun
        ids = [int.from_bytes(span.span_id, "big") for call in sink.of(TRACES)
               for _, _, span in otlp.spans_of(call.message)]
        lost, ordered = n - len(set(ids)), ids == sorted(ids)
        return Figure(f"{lost} of {n} spans lost, {len(ids) - len(set(ids))} delivered twice, {'in' if ordered else 'out of'} order, "
                      f"all delivered after {took:.1f} s", lost == 0 and ordered and took <= 30)
    finally:
        server.kill()
        late.close()
        sink.close()


def stopped_under_load(folder, up):
    sink = Sink()
    late = Late(sink.grpc)
    if up:
        late.open()
    server = Braid(pipelines(exporter("grpc", late), workers=2), folder, "--shutdown-timeout", "3s")
    load = Load(server, 50).start()
    try:
        until(lambda: load.spans > 5000, "traffic")
        begun = time.monotonic()
        ends = threading.Thread(target=server.terminate)
        ends.start()
        server.process.wait(60)
        took = time.monotonic() - begun
        load.stop()
        words = server.stop()["traces"]
        arrived = len(sink.items(TRACES))
        unsaid = load.spans - arrived - words["dropped"]  # acknowledged, lost, and not reported
        late_line = re.search(r"received", server.log().splitlines()[-1]) is not None
        return Figure(f"backend {'' if up else 'un'}reachable: {load.spans} spans acknowledged, {arrived} arrived, {words['dropped']} "
                      f"reported as dropped, exit after {took:.1f} s",
                      unsaid <= 0 and took <= 4 and late_line and (not up or arrived >= load.spans)
                      and words["left"] == 0)
    finally:
        load.stop()
        server.kill()
        late.close()
        sink.close()


@line(18, "SIGTERM under load, with the backend reachable and unreachable",
      "0 acknowledged spans lost without being reported as dropped; exit within the shutdown timeout (3 s); the last log "
      "line has exact counts", fast=True)
def sigterm(folder, fast):
    return joined(stopped_under_load(folder / "up", True), stopped_under_load(folder / "down", False))
