# SPDX-License-Identifier: Apache-2.0
"""A fleet behind Kafka: two writers, and three readers with the join in one consumer group.

The writers set `sending_queue::wait_for_result`: a client is answered when the brokers have the data.
The readers commit an offset when the backend has the data, also of requests that the join and
`tail_sampling` hold."""

import re
import subprocess
import threading
import time

import clients
import kafka
import otlp
import peers
from braid import until
from load import POLICIES, Sampling
from members import RETRY, Member, configured, otlp_exporter
from network import Loopback
from otlp import PROFILES, TRACES

PARTITIONS = 4
POLL_S = 0.1
KAFKA_START_S = 60
DECISION_WAIT = "1500ms"  # more than `hold` of the join: samples whose spans are held by the join pass it
# One broker, which is also the controller
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=CLIENT://{host}:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=CLIENT://{host}:{port}
listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=CLIENT
controller.listener.names=CONTROLLER
log.dirs={logs}
num.partitions={partitions}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


class Mock:
    """librdkafka's mock cluster, which listens only on loopback."""

    can_cut = False
    session = "4s"  # a rebalance takes one second less

    def __init__(self):
        self._cluster = kafka.Cluster()
        self.brokers = self._cluster.brokers.split(",")
        for topic in ("otlp_spans", "otlp_profiles"):
            self._cluster.do("topic", topic, PARTITIONS)

    def close(self):
        self._cluster.close()


class Kafka:
    """A real Kafka, from its jars."""

    session = "6s"  # Kafka's minimum

    def __init__(self, folder, network, jars):
        self.can_cut = network.can_cut
        port, controller = peers.free_ports(2)
        self.brokers = [f"{network.gate}:{port}"]
        properties, logs = folder / "server.properties", folder / "kafka"
        properties.write_text(PROPERTIES.format(host=network.gate, port=port, controller=controller, logs=logs,
                                                partitions=PARTITIONS))
        java = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars.resolve()}/*"]
        storage = [*java, "kafka.tools.StorageTool"]
        uuid = subprocess.run([*storage, "random-uuid"], check=True, capture_output=True, text=True).stdout.split()[-1]
        subprocess.run([*storage, "format", "-t", uuid, "-c", properties], check=True, capture_output=True)
        self._server = peers.Peer([*java, "kafka.Kafka", properties], folder / "broker", port)
        until(lambda: "Kafka Server started" in (folder / "broker" / "log").read_text(), "Kafka", KAFKA_START_S)

    def close(self):
        self._server.stop()


class Group:
    def __init__(self, folder, network, backend, jars, sampled):
        self._folder, self._backend = folder, backend
        # A writer answers before a reader decides. The spans of a trace are in one partition.
        self.sampling = Sampling(decided=False, in_order=True) if sampled else None
        self._broker = Kafka(folder, network, jars) if jars else Mock()
        # The mock cluster cannot be reached from the namespaces of members.
        self._network = network if jars else Loopback()
        self.readers, self._stopped, self._watcher = [], threading.Event(), None
        self._writers = [Member(f"writer{n}", self._network.host(), self._writer_config, folder) for n in range(2)]
        self.entrances = [each.host.endpoint for each in self._writers]

    def start(self):
        for each in self._writers:
            each.start()
        self._make_topics()
        for _ in range(3):
            self.readers.append(self._reader())
            self.readers[-1].start()
        until(self.steady, "partitions for every reader", 60)

    def _make_topics(self):
        """Sends one record of each signal, for which Kafka creates the topics."""
        for signal in (TRACES, PROFILES):
            body = otlp.request_of(signal, 1, first=1 << 39).SerializeToString()
            until(lambda body=body, signal=signal: clients.grpc(self.entrances[0], signal, body).ok,
                  "the topics", 60)

    def _writer_config(self, host):
        exporter = {"kafka": {"brokers": self._broker.brokers, "partition_traces_by_id": True,
                              "partition_profiles_by_trace_id": True, "retry_on_failure": RETRY,
                              "sending_queue": {"wait_for_result": True}}}
        return configured(host, exporter)

    def _reader(self):
        name = f"reader{sum(1 for _ in self._folder.glob('reader*-1'))}"
        return Member(name, self._network.host(), self._reader_config, self._folder)

    def _reader_config(self, host):
        receiver = {"kafka": {"brokers": self._broker.brokers, "initial_offset": "earliest",
                              "session_timeout": self._broker.session, "heartbeat_interval": "300ms",
                              "autocommit": {"interval": "200ms"}}}
        processors = {"join": {"max_values": 1_000_000, "hold": "500ms", "profile_hold": "1s"}}
        if self.sampling:
            processors["tail_sampling"] = {"decision_wait": DECISION_WAIT, "policies": POLICIES}
        processors["batch"] = {"timeout": "100ms"}
        return configured(host, otlp_exporter(self._backend.grpc), receiver, processors=processors)

    def _partitions(self, reader):
        """Returns how many partitions a reader has, and how often this number changed."""
        log = reader.server.log() if reader.server else ""
        found = re.findall(r"(\d+) partitions (assigned|revoked)", log)
        return (int(found[-1][0]) if found and found[-1][1] == "assigned" else 0), len(found)

    def steady(self):
        """Returns whether every reader has partitions, and together they have each partition once."""
        counts = [self._partitions(each)[0] for each in self.readers if each.alive]
        return all(counts) and sum(counts) == 2 * PARTITIONS and all(each.alive for each in self._writers)

    def watch(self, changes):
        """Adds rebalances to the changes, also those that the events did not cause."""
        def run():
            last_time, last = time.monotonic(), None
            while not self._stopped.wait(POLL_S):
                steady = self.steady()
                state = [(each.name, self._partitions(each)) for each in list(self.readers)]
                now = time.monotonic()
                if not steady or state != last:
                    changes.add(last_time, now)
                last_time, last = now, state
        self._watcher = threading.Thread(target=run, daemon=True)
        self._watcher.start()

    def steady_without(self, absent):
        """Returns a function like steady() that ignores an absent reader."""
        def condition():
            counts = [self._partitions(each)[0] for each in self.readers if each is not absent]
            return all(counts) and sum(counts) == 2 * PARTITIONS
        return condition

    def added(self, changes, load):
        with changes.event("reader added", self.steady):
            self.readers.append(self._reader())
            self.readers[-1].start()
        yield

    def stopped(self, changes, load):
        with changes.event("reader stopped", self.steady):
            gone = self.readers.pop(0)
            self._wait_held(gone)
            gone.stop()
        yield

    def killed(self, changes, load):
        """A reader is killed, and restarted when the others have its partitions."""
        lost = self.readers[-1]
        with changes.event("reader killed", self.steady_without(lost)):
            self._wait_held(lost)
            lost.kill()
        yield
        with changes.event("reader restarted", self.steady):
            lost.start()
        yield

    def frozen(self, changes, load):
        """A reader is stopped by SIGSTOP until the group gives its partitions to others."""
        yield from self._absent(changes, "reader frozen", Member.freeze, Member.thaw)

    def cut(self, changes, load):
        """A reader is cut off until the group gives its partitions to others."""
        if self._broker.can_cut:
            yield from self._absent(changes, "reader cut off", self._cut, self._heal)

    def entrance(self, changes, load):
        with changes.event("writer killed", self.steady):
            self._writers[0].kill()
            load.wait_repeated()
            self._writers[0].start()
        yield

    def _wait_held(self, reader):
        if self.sampling:
            reader.wait_held()

    def _cut(self, reader):
        self._network.cut(reader.host)
        reader.cut = True

    def _heal(self, reader):
        self._network.heal(reader.host)
        reader.cut = False

    def _absent(self, changes, name, leave, come_back):
        lost = self.readers[0]
        with changes.event(name, self.steady_without(lost)):
            self._wait_held(lost)
            leave(lost)
        yield
        with changes.event(f"{name}: back", self.steady):
            come_back(lost)
        yield

    def end(self):
        for each in self._writers + self.readers:
            each.end()

    def close(self):
        self._stopped.set()
        if self._watcher:
            self._watcher.join()
        for each in self._writers + self.readers:
            each.close()
        self._broker.close()
