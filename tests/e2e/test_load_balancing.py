# SPDX-License-Identifier: Apache-2.0
"""The exporter load_balancing: spans and samples of a trace meet at one backend, which is the one
that the Collector chooses, and a backend that ends takes nothing with it."""

import bisect
import collections
import time
import zlib

import grpc
import pytest

import clients
import otlp
import peers
import profile_view
from braid import exporter, pipelines, until
from otlp import PROFILES, TRACES
from sink import ACCEPT, BUSY

N_TRACES = 120
START = 1_700_000_000_000_000_000


def trace_id(n):
    return (n + 1).to_bytes(8, "big") + (n * 2654435761 % 2**64).to_bytes(8, "little")


def span_id(n):
    return (n + 1).to_bytes(8, "big")


def spans(numbers):
    """Two spans of each trace, in two resources."""
    request = otlp.traces.ExportTraceServiceRequest()
    for part in range(2):
        resource = request.resource_spans.add()
        resource.resource.attributes.append(otlp.attribute("service.name", f"shop-{part}"))
        scope = resource.scope_spans.add()
        for n in numbers:
            scope.spans.add(trace_id=trace_id(n), span_id=span_id(2 * n + part), name=f"span {n}",
                            start_time_unix_nano=START, end_time_unix_nano=START + 10**9)
    return request


def samples(numbers, unlinked=0):
    """One sample with the value n + 1 for each trace, and samples without a link."""
    request = otlp.profile_request(0, service="shop-0")
    profile = request.resource_profiles[0].scope_profiles[0].profiles[0]
    for n in numbers:
        request.dictionary.link_table.add(trace_id=trace_id(n), span_id=span_id(2 * n))
        profile.samples.add(stack_index=1, link_index=len(request.dictionary.link_table) - 1, values=[n + 1])
    for _ in range(unlinked):
        profile.samples.add(stack_index=1, values=[1_000_000])
    return request


class Ring:
    """The Collector's ring, from its documentation: 36,000 positions, 100 points per backend, CRC-32."""

    def __init__(self, endpoints):
        owners = {}
        for endpoint in sorted(endpoints):
            for i in range(100):
                owners.setdefault(zlib.crc32(endpoint.encode() + bytes([i])) % 36_000, endpoint)
        self.positions = sorted(owners)
        self.owners = [owners[position] for position in self.positions]

    def owner(self, key):
        at = bisect.bisect_left(self.positions, zlib.crc32(key) % 36_000)
        return self.owners[at % len(self.owners)]


def balancing(resolver, **options):
    otlp_options = {"tls": {"insecure": True}, "compression": "none",
                    "retry_on_failure": {"initial_interval": "100ms", "max_interval": "200ms"}, **options}
    return {"load_balancing": {"protocol": {"otlp": otlp_options}, "resolver": resolver}}


def received_spans(sink):
    return collections.Counter(span.span_id for _, _, span in sink.items(TRACES))


def linked_samples(sink):
    """Returns (trace id, sum of the values, attributes) of each sample with a link."""
    for view in profile_view.samples(*(call.message for call in sink.of(PROFILES))):
        if view["link"]:
            yield bytes.fromhex(view["link"][0]), sum(view["values"]), view["attributes"]


def values(sink):
    return sum(sum(view["values"]) for view in profile_view.samples(*(call.message for call in sink.of(PROFILES))))


def send(server, *requests):
    with grpc.insecure_channel(server.grpc, clients.LOCAL) as channel:
        for request in requests:
            signal = TRACES if hasattr(request, "resource_spans") else PROFILES
            clients.grpc(None, signal, request.SerializeToString(), channel=channel).expect_ok()


def test_records_of_a_trace_meet_at_the_collectors_owner(braid, new_sink):
    """Three gateways with the join behind a balancer: each gateway finds the span of every sample."""
    sinks = [new_sink() for _ in range(3)]
    gateways = [braid(pipelines(exporter("grpc", sink), processors={"join": {"hold": "1s"}})) for sink in sinks]
    endpoints = [gateway.grpc for gateway in gateways]
    front = braid(pipelines(balancing({"static": {"hostnames": endpoints}})))
    send(front, spans(range(N_TRACES)), samples(range(N_TRACES), unlinked=10))
    until(lambda: sum(len(sink.items(TRACES)) for sink in sinks) >= 2 * N_TRACES, "the spans")
    total = sum(range(1, N_TRACES + 1)) + 10 * 1_000_000
    until(lambda: sum(map(values, sinks)) >= total, "the samples")
    assert sum(map(values, sinks)) == total
    ring, used = Ring(endpoints), 0
    for endpoint, sink in zip(endpoints, sinks):
        mine = {n for n in range(N_TRACES) if ring.owner(trace_id(n)) == endpoint}
        used += bool(mine)
        assert received_spans(sink) == collections.Counter(span_id(2 * n + part) for n in mine for part in range(2))
        joined = list(linked_samples(sink))
        assert sorted((trace, value) for trace, value, _ in joined) == sorted((trace_id(n), n + 1) for n in mine)
        for trace, value, attributes in joined:
            assert attributes["span.name"][0] == f"span {value - 1}"
    assert used == 3
    metrics = front.metrics()
    assert sum(metrics["otelcol_loadbalancer_num_backends"].values()) == 3
    outcomes = metrics["otelcol_loadbalancer_backend_outcome"]
    assert sum(value for labels, value in outcomes.items() if 'success="true"' in labels) >= 6
    assert front.stop()["traces"]["sent"] == 2 * N_TRACES


def test_samples_without_a_link_go_by_process(braid, new_sink):
    sinks = [new_sink() for _ in range(3)]
    front = braid(pipelines(balancing({"static": {"hostnames": [sink.grpc for sink in sinks]}})))
    ring = Ring([sink.grpc for sink in sinks])
    expected = collections.Counter()
    for n in range(20):
        request = samples((), unlinked=n + 1)
        instance = f"pod-{n}"
        request.resource_profiles[0].resource.attributes.append(otlp.attribute("service.instance.id", instance))
        expected[ring.owner(instance.encode())] += (n + 1) * 1_000_000
        send(front, request)
    until(lambda: sum(map(values, sinks)) >= expected.total(), "the samples")
    assert collections.Counter({sink.grpc: values(sink) for sink in sinks}) == expected


@pytest.mark.parametrize("n_backends", [1, 3])
def test_routing_by_service(braid, new_sink, n_backends):
    sinks = [new_sink() for _ in range(n_backends)]
    config = balancing({"static": {"hostnames": [sink.grpc for sink in sinks]}})
    config["loadbalancing"] = {**config.pop("load_balancing"), "routing_key": "service",
                               "sending_queue": {"queue_size": 500}}
    front = braid(pipelines(config))
    send(front, spans(range(30)))
    until(lambda: sum(len(sink.items(TRACES)) for sink in sinks) >= 60, "the spans")
    assert set(front.metrics()["otelcol_exporter_queue_capacity"].values()) == {500}
    ring = Ring([sink.grpc for sink in sinks])
    for sink in sinks:
        for resource, _, _ in sink.items(TRACES):
            service = otlp.attributes_of(resource.attributes)["service.name"]
            assert ring.owner(service.encode()) == sink.grpc


def test_a_backend_that_ends_delays_nobody_else(braid, new_sink):
    """Its data waits for it, and arrives when it is back."""
    sinks = [new_sink() for _ in range(3)]
    front = braid(pipelines(balancing({"static": {"hostnames": [sink.grpc for sink in sinks]}})))
    ring = Ring([sink.grpc for sink in sinks])
    of = {sink.grpc: {n for n in range(N_TRACES) if ring.owner(trace_id(n)) == sink.grpc} for sink in sinks}
    sinks[0].reply = BUSY
    for n in range(N_TRACES):
        send(front, spans([n]))
    for sink in sinks[1:]:
        until(lambda sink=sink: len(sink.items(TRACES)) >= 2 * len(of[sink.grpc]), "the spans of the others")
    before = received_spans(sinks[0])
    sinks[0].reply = ACCEPT
    calls = len(sinks[0].calls)
    until(lambda: len(received_spans(sinks[0])) == 2 * len(of[sinks[0].grpc]) and len(sinks[0].calls) > calls,
          "the spans of the first")
    assert len(before) <= 2 * len(of[sinks[0].grpc])
    assert front.stop()["traces"]["sent"] == 2 * N_TRACES


def test_a_backend_can_fill_half_of_the_queue(braid, new_sink):
    """Beyond that, its data is refused and counted, and the others get theirs."""
    sinks = [new_sink() for _ in range(3)]
    front = braid(pipelines(balancing({"static": {"hostnames": [sink.grpc for sink in sinks]}},
                                      sending_queue={"queue_size": 20, "num_consumers": 2},
                                      retry_on_failure={"initial_interval": "100ms", "max_elapsed_time": "0s"})))
    ring = Ring([sink.grpc for sink in sinks])
    sinks[0].reply = BUSY
    with grpc.insecure_channel(front.grpc, clients.LOCAL) as channel:
        for n in range(N_TRACES):
            body = spans(range(40 * n, 40 * n + 40)).SerializeToString()
            # the queue is short: on a slow machine it can be full for a moment
            until(lambda body=body: clients.grpc(None, TRACES, body, channel=channel).ok, "room in the queue")
    others = sum(ring.owner(trace_id(n)) != sinks[0].grpc for n in range(40 * N_TRACES))
    until(lambda: sum(len(sink.items(TRACES)) for sink in sinks[1:]) >= 2 * others, "the spans of the others")
    sinks[0].reply = ACCEPT
    until(lambda: front.ledger("traces")["held"] == 0, "the rest")
    ledger = front.ledger("traces")
    arrived = {span for sink in sinks for span in received_spans(sink)}
    assert ledger["sent"] == len(arrived) and ledger["dropped"] == 80 * N_TRACES - len(arrived) > 0
    assert len(arrived) > 2 * others


def test_a_gateway_restarts(braid, new_sink):
    """The list is static: data waits for the gateway and arrives."""
    sinks = [new_sink() for _ in range(3)]
    config = pipelines(exporter("grpc", sinks[0]), grpc={"endpoint": f"127.0.0.1:{peers.free_ports(1)[0]}"})
    first = braid(config)
    hostnames = [first.grpc] + [sink.grpc for sink in sinks[1:]]
    front = braid(pipelines(balancing({"static": {"hostnames": hostnames}})))
    send(front, spans(range(20)))
    until(lambda: sum(len(sink.items(TRACES)) for sink in sinks) >= 40, "the first spans")
    first.stop()
    send(front, spans(range(20, N_TRACES)), samples(range(N_TRACES)))
    braid(config)
    until(lambda: len(set().union(*map(received_spans, sinks))) == 2 * N_TRACES, "the spans")
    until(lambda: sum(map(values, sinks)) == sum(range(1, N_TRACES + 1)), "the samples")
    assert sum(map(received_spans, sinks), collections.Counter()).total() == 2 * N_TRACES


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_durable_queue_keeps_the_data_of_a_backend(braid, new_sink, tmp_path, end):
    """What was acknowledged and is not at its backend when the process ends arrives after the restart."""
    sinks = [new_sink() for _ in range(3)]
    config = pipelines(balancing({"static": {"hostnames": [sink.grpc for sink in sinks]}},
                                 sending_queue={"storage": "file_storage"}),
                       extensions={"file_storage": {"directory": str(tmp_path / "queue"), "create_directory": True}})
    sinks[0].reply = BUSY
    front = braid(config)
    send(front, spans(range(N_TRACES)), samples(range(N_TRACES)))
    until(lambda: all(sink.items(TRACES) for sink in sinks[1:]), "the spans of the others")
    getattr(front, end)()
    sinks[0].reply = ACCEPT
    braid(config)
    until(lambda: len(set().union(*map(received_spans, sinks))) == 2 * N_TRACES, "the spans")
    until(lambda: sum(map(values, sinks)) >= sum(range(1, N_TRACES + 1)), "the samples")


def test_a_long_resource_for_many_backends(braid, sink):
    """Each of 48 backends gets a copy of the resource, which is too much for one change of the request."""
    host, port = sink.grpc.rsplit(":", 1)
    names = {"".join(c.upper() if n >> i & 1 else c for i, c in enumerate("localhost")) for n in range(48)}
    front = braid(pipelines(balancing({"static": {"hostnames": [f"{name}:{port}" for name in names]}})))
    request = spans(range(60))
    for resource in request.resource_spans:
        resource.resource.attributes.append(otlp.attribute("long", "x" * 1_000_000))
    send(front, request)
    until(lambda: len(received_spans(sink)) == 120, "the spans")
    assert received_spans(sink).total() == 120
    assert front.ledger("traces")["dropped"] == 0


def test_a_gateway_that_leaves_loses_nothing(braid, new_sink, tmp_path):
    """A gateway ends and is removed from the file. Everything that was acknowledged arrives once, but for
    requests in flight, and later requests meet at the new owners."""
    sinks = [new_sink() for _ in range(3)]
    gateways = [braid(pipelines(exporter("grpc", sink))) for sink in sinks]
    endpoints = [gateway.grpc for gateway in gateways]
    listed = tmp_path / "backends"
    listed.write_text("# gateways\n" + "".join(f"{endpoint}\n" for endpoint in endpoints))
    front = braid(pipelines(balancing({"file": {"path": str(listed), "interval": "100ms"}})))
    until(lambda: sum(front.metrics()["otelcol_loadbalancer_num_backends"].values()) == 3, "the backends")
    for n in range(N_TRACES):
        if n == N_TRACES // 3:
            gateways[0].stop()
        if n == 2 * N_TRACES // 3:
            listed.write_text("".join(f"{endpoint}\n" for endpoint in endpoints[1:]))
        send(front, spans([n]), samples([n]))
    expected = {span_id(2 * n + part) for n in range(N_TRACES) for part in range(2)}
    until(lambda: set().union(*map(received_spans, sinks)) == expected, "the spans")
    total = sum(range(1, N_TRACES + 1))
    until(lambda: sum(map(values, sinks)) == total, "the samples")
    time.sleep(0.3)
    assert sum(map(received_spans, sinks), collections.Counter()).total() == 2 * N_TRACES
    assert sum(map(values, sinks)) == total
    until(lambda: sum(front.metrics()["otelcol_loadbalancer_num_backends"].values()) == 2, "the backends")
    new, last = Ring(endpoints[1:]), range(1000, 1040)
    send(front, spans(last))
    until(lambda: sum(len(sink.items(TRACES)) for sink in sinks) >= 2 * (N_TRACES + len(last)), "the last spans")
    for endpoint, sink in zip(endpoints[1:], sinks[1:]):
        got = {span for span in received_spans(sink) if int.from_bytes(span, "big") >= 2000}
        assert got == {span_id(2 * n + part) for n in last for part in range(2) if new.owner(trace_id(n)) == endpoint}


def test_dns(braid, sink):
    """The addresses of a name; requests wait until the name is resolved."""
    host, port = sink.grpc.rsplit(":", 1)
    front = braid(pipelines(balancing({"dns": {"hostname": "localhost", "port": int(port), "interval": "200ms"}})))
    send(front, spans(range(10)))
    sink.wait(TRACES, 20)
    resolutions = front.metrics()["otelcol_loadbalancer_num_resolutions"]
    assert any('resolver="dns"' in labels and 'success="true"' in labels and value for labels, value in resolutions.items())


def test_requests_wait_for_the_first_backend(braid, sink, tmp_path):
    listed = tmp_path / "backends"
    front = braid(pipelines(balancing({"file": {"path": str(listed), "interval": "100ms"}})))
    send(front, spans(range(10)))
    front.wait_log("the list of backends stays as it is")
    listed.write_text(sink.grpc)
    sink.wait(TRACES, 20)
    assert front.stop()["traces"]["sent"] == 20
