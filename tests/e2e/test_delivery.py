# SPDX-License-Identifier: Apache-2.0
"""Delivery if one destination is slow, rejects requests or is unavailable: the other destinations
are not affected, late acknowledgements mean that the data was delivered, and the ledger balances
at every scrape."""

import random
import threading

import grpc
import pytest
from grpc import StatusCode

import clients
import otlp
from braid import exporter, pipelines, until
from otlp import TRACES
from sink import BUSY, REFUSE, Reply

ITEM_ENTRIES = ("received", "sent", "rejected", "dropped", "held")


def body(n_items, first):
    return otlp.request_of(TRACES, n_items, first=first).SerializeToString()


def ids(sink):
    return [int.from_bytes(span.span_id, "big") for _, _, span in sink.items(TRACES)]


class Accounts:
    """One scrape: the accounts of the ledger and of each exporter, which must all balance."""

    def __init__(self, server, kind="traces"):
        self._metrics, self._kind = server.metrics(), kind
        self.ledger = self._read("braid_ledger")

    def _read(self, prefix, *labels):
        labels += (f'signal="{self._kind}"',)
        account = {entry: sum(value for text, value in self._metrics.get(f"{prefix}_{entry}", {}).items()
                              if all(label in text for label in labels)) for entry in ITEM_ENTRIES}
        assert account["received"] == sum(account.values()) - account["received"], (prefix, labels, account)
        assert min(account.values()) >= 0, account
        return account

    def of(self, name):
        return self._read("braid_exporter", f'exporter="{name}"')

    def sent(self, name):
        """Returns the Collector's counter, which grows when all records of an item have a result."""
        return self._metrics["otelcol_exporter_sent_spans"][f'exporter="{name}"']


def test_a_full_disk_does_not_affect_another_exporter(braid, new_sink, tmp_path):
    """Also without a queue, and behind a batch whose senders have been answered: it would keep
    sixteen batches waiting."""
    good, full = new_sink(), tmp_path / "full.json"
    full.symlink_to("/dev/full")
    server = braid(pipelines(
        {"file": {"path": str(full)}, **exporter("grpc", good, "/good")}, signals=["traces"],
        processors={"batch": {"timeout": "5ms", "send_batch_size": 10}}, fanout={"hold_size": 20_000}))
    channel = grpc.insecure_channel(server.grpc, clients.LOCAL)
    for n in range(100):
        clients.grpc(None, TRACES, body(10, 1 + 10 * n), channel=channel).expect_ok()
    good.wait(TRACES, 1000)
    assert sorted(ids(good)) == list(range(1, 1001))
    until(lambda: Accounts(server).ledger["held"] == 0, "the last answer")
    assert Accounts(server).of("file")["sent"] == 0 and Accounts(server).of("file")["dropped"] > 0
    channel.close()
    server.kill()  # it would retry until shutdown_timeout


def test_a_hanging_destination_does_not_affect_another_exporter(braid, new_sink):
    """The exporter does not have a queue. The sender waits for a while at first, and is then informed that one
    destination is slow."""
    good, bad, gate = new_sink(), new_sink(), threading.Event()
    bad.reply = Reply(hold=gate)
    server = braid(pipelines({**exporter("grpc", bad, "/bad", timeout="0", sending_queue={"enabled": False}),
                              **exporter("grpc", good, "/good")}, signals=["traces"]))
    channel = grpc.insecure_channel(server.grpc, clients.LOCAL)
    for n in range(20):
        answer = clients.grpc(None, TRACES, body(5, 1 + 5 * n), channel=channel).expect_ok()
        heard = TRACES.response.FromString(answer.body).partial_success
        assert "otlp/bad" in heard.error_message and heard.rejected_spans == 0
    good.wait(TRACES, 100)
    assert sorted(ids(good)) == list(range(1, 101))
    gate.set()
    bad.wait(TRACES, 100)
    assert sorted(ids(bad)) == list(range(1, 101))
    until(lambda: Accounts(server).of("otlp/bad")["held"] == 0, "what it had")
    assert Accounts(server).of("otlp/bad")["sent"] == 100
    channel.close()


@pytest.mark.parametrize("processors", [None, {"batch": {"timeout": "5ms", "send_batch_size": 10}}],
                         ids=["direct", "batch"])
def test_a_full_queue_does_not_affect_another_exporter(braid, new_sink, processors):
    good, bad, gate = new_sink(), new_sink(), threading.Event()
    bad.reply = Reply(hold=gate)
    server = braid(pipelines(
        {**exporter("grpc", bad, "/bad", timeout="0", sending_queue={"queue_size": 4, "num_consumers": 1}),
         **exporter("grpc", good, "/good")},
        signals=["traces"], processors=processors, fanout={"hold_size": 100_000}))
    channel = grpc.insecure_channel(server.grpc, clients.LOCAL)
    for n in range(200):  # no request is rejected
        clients.grpc(None, TRACES, body(5, 1 + 5 * n), channel=channel).expect_ok()
    good.wait(TRACES, 1000)
    assert sorted(ids(good)) == list(range(1, 1001))
    until(lambda: Accounts(server).of("otlp/good")["held"] == 0, "the last answer")
    accounts = Accounts(server)
    assert accounts.ledger == {"received": 1000, "sent": 1000, "rejected": 0, "dropped": 0, "held": 0}
    lagging = accounts.of("otlp/bad")
    assert lagging["sent"] == 0 and lagging["held"] > 0 and lagging["dropped"] > 0
    assert lagging["dropped"] == sum(value for labels, value in server.metrics()["braid_exporter_dropped"].items()
                                     if 'reason="lagging"' in labels)
    gate.set()
    until(lambda: Accounts(server).of("otlp/bad")["held"] == 0, "what was held")
    assert len(ids(bad)) == len(set(ids(bad))) == lagging["held"]
    assert Accounts(server).of("otlp/bad")["sent"] == lagging["held"]
    assert len(good.items(TRACES)) == 1000
    channel.close()


def test_data_for_a_slow_destination_is_sent_before_shutdown(braid, new_sink):
    good, bad, gate = new_sink(), new_sink(), threading.Event()
    bad.reply = Reply(hold=gate)
    server = braid(pipelines(
        {**exporter("grpc", bad, "/bad", sending_queue={"queue_size": 2, "num_consumers": 1}),
         **exporter("grpc", good, "/good")}, signals=["traces"]))
    for n in range(20):
        clients.grpc(server.grpc, TRACES, body(5, 1 + 5 * n)).expect_ok()
    assert Accounts(server).of("otlp/bad")["held"] == 100
    server.terminate()
    server.wait_log("draining")
    gate.set()
    assert server.stop()["traces"] == {"received": 100, "sent": 100, "rejected": 0, "dropped": 0, "left": 0}
    assert sorted(ids(bad)) == sorted(ids(good)) == list(range(1, 101))


# --- Overload -----------------------------------------------------------------------------------

SCRAPES = 100
NAMES = ("otlp/slow", "otlp/mixed", "otlphttp/gone")


class Senders:
    """Threads that send spans with new ids until they are stopped, and record the acknowledged
    ones."""

    def __init__(self, server, n_threads):
        self._server, self._stop, self._lock = server, threading.Event(), threading.Lock()
        self.offered, self.acknowledged = 0, set()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(n_threads)]
        for thread in self._threads:
            thread.start()

    def _run(self, number):
        channel, chance = grpc.insecure_channel(self._server.grpc, clients.LOCAL), random.Random(number)
        first = 1 + number * 1_000_000
        while not self._stop.is_set():
            n_items = chance.randint(1, 9)
            answer = clients.grpc(None, TRACES, body(n_items, first), channel=channel)
            with self._lock:
                self.offered += n_items
                if answer.ok:
                    self.acknowledged |= set(range(first, first + n_items))
            first += n_items
        channel.close()

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize("processors", [None, {"batch": {"timeout": "20ms", "send_batch_max_size": 40,
                                                         "send_batch_size": 30}}], ids=["direct", "batch"])
def test_ledger_balances_at_every_scrape_under_overload(braid, new_sink, processors):
    """A hundred scrapes under overload: queues are full; one destination rejects half of the
    requests, accepts some partially and answers others with a retryable status; one is down; and
    the slow one exceeds its limit."""
    slow, mixed, gone = new_sink(), new_sink(), new_sink()
    tick = threading.Event()
    slow.reply = Reply(hold=tick)
    mixed.script = [Reply(StatusCode.RESOURCE_EXHAUSTED, 413, "too large") if n % 5 == 0 else
                    Reply(rejected=1, message="odd") if n % 5 == 1 else
                    REFUSE if n % 5 == 2 else Reply(StatusCode.UNAVAILABLE, 503, "busy", retry_s=0.01)
                    if n % 5 == 3 else Reply() for n in range(100_000)]
    gone.reply = BUSY
    retry = {"initial_interval": "5ms", "max_interval": "20ms", "max_elapsed_time": "60ms"}
    server = braid(pipelines(
        {**exporter("grpc", slow, "/slow", timeout="20ms", retry_on_failure=retry,
                    sending_queue={"queue_size": 10, "num_consumers": 1}),
         **exporter("grpc", mixed, "/mixed", retry_on_failure=retry,
                    sending_queue={"queue_size": 200, "sizer": "items",
                                   "batch": {"flush_timeout": "10ms", "min_size": 20, "max_size": 25}}),
         **exporter("proto", gone, "/gone", retry_on_failure=retry, sending_queue={"wait_for_result": True})},
        signals=["traces"], processors=processors, workers=2, fanout={"hold_size": 50_000, "hold_time": "1s"}))
    senders = Senders(server, 4)
    try:
        for _ in range(SCRAPES):
            accounts = Accounts(server)
            for name in NAMES:
                accounts.of(name)
    finally:
        senders.stop()
    tick.set()
    until(lambda: not Accounts(server).ledger["held"], "what batch keeps")
    until(lambda: not any(Accounts(server).of(name)["held"] for name in NAMES), "the last tries")
    accounts = Accounts(server)
    assert accounts.ledger["received"] == senders.offered and accounts.ledger["held"] == 0
    assert accounts.of("otlphttp/gone")["sent"] == 0
    assert accounts.of("otlp/mixed")["dropped"] > 0
    for name in NAMES:
        assert accounts.sent(name) == accounts.of(name)["sent"]
    server.stop()


# --- Late acknowledgement -----------------------------------------------------------------------

@pytest.mark.parametrize("queue", [{}, {"batch": {"flush_timeout": "5ms"}}, {"queue_size": 2, "num_consumers": 1}],
                         ids=["default", "batch", "small"])
@pytest.mark.parametrize("behind", [{}, {"batch/early": {"timeout": "5ms"}}, {"join": {"hold": "20ms"}}],
                         ids=["alone", "early", "join"])
def test_late_acknowledgement_means_delivered(braid, sink, queue, behind):
    """kill -9 while a destination accepts some requests, delays some and rejects some: acknowledged
    data has arrived."""
    late = {"batch/late": {"timeout": "5ms", "acknowledge": "late"}}
    sink.script = [(BUSY, REFUSE, Reply())[n % 3] for n in range(30)]
    sink.reply = BUSY
    quick = {"initial_interval": "5ms", "max_elapsed_time": "30ms"}
    server = braid(pipelines(exporter("grpc", sink, sending_queue=queue, retry_on_failure=quick),
                             signals=["traces"], processors={**late, **behind}))
    senders = Senders(server, 4)
    try:
        until(lambda: not sink.script, "answers of all kinds")
        sink.script = [Reply()] * 50
        until(lambda: not sink.script, "accepted ones")
    finally:
        server.kill()
        senders.stop()
    assert senders.acknowledged
    assert senders.acknowledged <= set(ids(sink))


def test_late_acknowledgement_returns_the_rejection(braid, sink):
    sink.reply = REFUSE
    server = braid(pipelines(exporter("grpc", sink), signals=["traces"],
                             processors={"batch": {"timeout": "5ms", "acknowledge": "late"}}))
    for n in range(5):
        assert clients.grpc(server.grpc, TRACES, body(3, 1 + 3 * n)).code == "INVALID_ARGUMENT"
    assert Accounts(server).ledger == {"received": 15, "sent": 0, "rejected": 15, "dropped": 0, "held": 0}


def test_late_acknowledgement_waits_for_each_destination(braid, new_sink):
    """One of two destinations is slow: data is not acknowledged before it has arrived there, too."""
    good, bad, gate = new_sink(), new_sink(), threading.Event()
    bad.reply = Reply(hold=gate)
    server = braid(pipelines(
        {**exporter("grpc", bad, "/bad", sending_queue={"queue_size": 1, "num_consumers": 1}),
         **exporter("grpc", good, "/good")}, signals=["traces"],
        processors={"batch": {"timeout": "0", "acknowledge": "late"}}))
    answers = []
    threads = [threading.Thread(target=lambda n=n: answers.append(
        clients.grpc(server.grpc, TRACES, body(5, 1 + 5 * n)))) for n in range(6)]
    for thread in threads:
        thread.start()
    good.wait(TRACES, 30)
    assert not answers
    gate.set()
    for thread in threads:
        thread.join()
    assert all(answer.ok for answer in answers)
    assert sorted(ids(bad)) == sorted(ids(good)) == list(range(1, 31))


# --- Queues of batches --------------------------------------------------------------------------

def test_warns_how_much_a_queue_of_batches_may_hold(braid, sink):
    server = braid(pipelines(exporter("grpc", sink), signals=["traces"], processors={"batch": {}}))
    server.wait_log(r"exporter/otlp\t.*1000 requests.*8192 spans.*8192000 spans")


def test_tenants_are_not_mixed_in_a_queue(braid, sink):
    batch = {"flush_timeout": "50ms", "partition": {"metadata_keys": ["x-tenant"]}}
    server = braid(pipelines(exporter("grpc", sink, sending_queue={"batch": batch}), signals=["traces"],
                             grpc={"include_metadata": True}))
    for n in range(12):
        clients.grpc(server.grpc, TRACES, body(1, 1 + n), metadata=[("x-tenant", "abc"[n % 3])]).expect_ok()
    sink.wait(TRACES, 12)
    for call in sink.of(TRACES):
        numbers = {int.from_bytes(span.span_id, "big") % 3 for _, _, span in otlp.spans_of(call.message)}
        assert len(numbers) == 1


def test_batch_sizes_use_the_queues_unit(braid, sink):
    """A span of some hundred bytes fills a batch of 100 bytes, but not one of 100 spans."""
    server = braid(pipelines(exporter("grpc", sink, sending_queue={
        "sizer": "bytes", "queue_size": 1 << 20, "batch": {"flush_timeout": "1h", "min_size": 100}})))
    clients.grpc(server.grpc, TRACES, body(1, 1)).expect_ok()
    sink.wait(TRACES, 1)


@pytest.mark.parametrize("signal", otlp.SIGNALS, ids=lambda signal: signal.name)
def test_empty_requests_are_counted(braid, sink, signal):
    server = braid(pipelines(exporter("grpc", sink)))
    clients.grpc(server.grpc, signal, b"").expect_ok()
    clients.http(server.http, signal.path, b"").expect_ok()
    empty = server.metrics()["braid_ledger_empty_requests"]
    assert sum(n for labels, n in empty.items() if f'signal="{signal.name}"' in labels) == 2
    assert server.ledger(signal.name)["received"] == 0


@pytest.mark.parametrize("acknowledge, unanswered", [("early", 0), ("late", 5)])
def test_acknowledged_and_undelivered_data_is_counted(braid, sink, acknowledge, unanswered):
    """braid_ledger_held - braid_ledger_unanswered."""
    server = braid(pipelines(exporter("grpc", sink), processors={"batch": {"timeout": "1h",
                                                                           "acknowledge": acknowledge}}))
    answers = []
    request = threading.Thread(target=lambda: answers.append(clients.grpc(server.grpc, TRACES, body(5, 1))))
    request.start()
    until(lambda: server.ledger("traces")["held"] == 5, "the spans")
    if not unanswered:
        request.join()

    def count():
        metrics = server.metrics()["braid_ledger_unanswered"]
        return sum(value for labels, value in metrics.items() if 'signal="traces"' in labels)

    assert count() == unanswered
    server.terminate()
    request.join()
    answers[0].expect_ok()
    sink.wait(TRACES, 5)
