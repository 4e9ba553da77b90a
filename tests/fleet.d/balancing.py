# SPDX-License-Identifier: Apache-2.0
"""A fleet behind the exporter `load_balancing`: two balancers and three gateways with the join.

Two configurations promise that no acknowledged record is lost:
- late: balancers and gateways set `sending_queue::wait_for_result`, so that a client is answered after
  the backend has the data;
- durable: the balancers have a durable queue, and the gateways set `wait_for_result`. A client is
  answered when a balancer has written the data.
The join has no `hold` and no `profile_hold`: it would answer the requests that it holds.

With sampling, the gateways have `tail_sampling`, and two workers. A `batch` with `acknowledge: late` is
before the join, so that no processor answers requests that it holds: a client or the durable queue of a
balancer is answered after the decision."""

from braid import until
from load import POLICIES, Sampling
from members import RETRY, Member, configured, otlp_exporter

LATE = {"wait_for_result": True}
DECISION_WAIT = "500ms"  # less than the timeout of the balancers


class Balancing:
    def __init__(self, folder, network, backend, durable, sampled):
        self._folder, self._network, self._backend, self._durable = folder, network, backend, durable
        # The queues of two balancers can deliver the requests of a trace in any order
        self.sampling = Sampling(decided=not durable, in_order=not durable) if sampled else None
        self._file = folder / "gateways"
        self._listed, self.gateways = [], []
        self._balancers = [Member(f"balancer{n}", network.host(), self._balancer_config(n), folder) for n in range(2)]
        self.entrances = [each.host.endpoint for each in self._balancers]

    def start(self):
        for _ in range(3):
            self.gateways.append(self._gateway())
            self.gateways[-1].start()
        self._list(*self.gateways)
        for each in self._balancers:
            each.start()
        until(self.steady, "the balancers")

    def _gateway(self):
        name = f"gateway{sum(1 for _ in self._folder.glob('gateway*-1'))}"
        return Member(name, self._network.host(), self._gateway_config, self._folder)

    def _gateway_config(self, host):
        batch, join = {"timeout": "50ms", "acknowledge": "late"}, {"max_values": 1_000_000}
        processors = {"join": join, "batch": batch}
        if self.sampling:
            tail = {"decision_wait": DECISION_WAIT, "policies": POLICIES}
            processors = {"batch/answer": batch, "join": join, "tail_sampling": tail, "batch": batch}
        return configured(host, otlp_exporter(self._backend.grpc, sending_queue=LATE), processors=processors,
                          workers=2 if self.sampling else 1)

    def _balancer_config(self, n):
        queue = {"storage": "file_storage", "queue_size": 100_000} if self._durable else LATE
        if self.sampling:
            queue = {**queue, "num_consumers": 100}  # each request lasts for DECISION_WAIT
        storage = {"file_storage": {"directory": str(self._folder / f"queue{n}"), "create_directory": True}}
        options = {"tls": {"insecure": True}, "compression": "none", "timeout": "2s", "retry_on_failure": RETRY}
        exporter = {"load_balancing": {"protocol": {"otlp": options}, "sending_queue": queue,
                                       "resolver": {"file": {"path": str(self._file), "interval": "100ms"}}}}
        return lambda host: configured(host, exporter, extensions=storage if self._durable else None)

    def _list(self, *gateways):
        """Replaces the list of the balancers."""
        self._listed = list(gateways)
        new = self._file.with_suffix(".new")
        new.write_text("".join(f"{each.host.endpoint}\n" for each in gateways))
        new.rename(self._file)

    def steady(self):
        """Returns whether every balancer has the list, and every listed gateway runs. An event changes the
        length of the list by one at a time."""
        return all(each.alive for each in self._balancers + self._listed) and all(
            each.total("otelcol_loadbalancer_num_backends") == len(self._listed) for each in self._balancers)

    def _failures(self, gateway):
        labels = 'success="false"', f'endpoint="{gateway.host.endpoint}"'
        return sum(each.total("otelcol_loadbalancer_backend_outcome", *labels) for each in self._balancers)

    def _noticed(self, gateway, before):
        until(lambda: self._failures(gateway) > before, f"failed requests to {gateway.name}", 60)

    def added(self, changes, load):
        with changes.event("gateway added", self.steady):
            self.gateways.append(self._gateway())
            self.gateways[-1].start()
            self._list(*self.gateways)
        yield

    def stopped(self, changes, load):
        """A gateway gets SIGTERM and is removed from the list."""
        with changes.event("gateway stopped", self.steady):
            gone = self.gateways.pop(0)
            self._wait_held(gone)
            self._list(*self.gateways)
            gone.stop()
        yield

    def killed(self, changes, load):
        """A gateway is killed, removed from the list, and added after its restart."""
        lost = self.gateways[-1]
        yield from self._absent(changes, lost, "gateway killed", Member.kill)
        with changes.event("gateway restarted", self.steady):
            lost.start()
            self._list(*self.gateways)
        yield

    def frozen(self, changes, load):
        """A gateway is stopped by SIGSTOP for a while, and stays in the list."""
        lost = self.gateways[0]
        with changes.event("gateway frozen", self.steady):
            before = self._failures(lost)
            self._wait_held(lost)
            lost.freeze()
            self._noticed(lost, before)
            lost.thaw()
        yield

    def cut(self, changes, load):
        """A gateway is cut off, removed from the list, and added when it is reachable again."""
        if not self._network.can_cut:
            return
        lost = self.gateways[0]
        yield from self._absent(changes, lost, "gateway cut off", lambda each: self._network.cut(each.host))
        with changes.event("gateway reachable again", self.steady):
            self._network.heal(lost.host)
            self._list(*self.gateways)
        yield

    def entrance(self, changes, load):
        with changes.event("balancer killed", self.steady):
            self._balancers[0].kill()
            load.wait_repeated()
            self._balancers[0].start()
        yield

    def _wait_held(self, gateway):
        if self.sampling:
            gateway.wait_held()

    def _absent(self, changes, lost, name, leave):
        with changes.event(name, self.steady):
            before = self._failures(lost)
            self._wait_held(lost)
            leave(lost)
            self._noticed(lost, before)
            self._list(*(each for each in self.gateways if each is not lost))
        yield

    def watch(self, changes):
        """The list of gateways changes only by events."""

    def end(self):
        for each in self._balancers + self.gateways:
            each.end()

    def close(self):
        for each in self._balancers + self.gateways:
            each.close()
