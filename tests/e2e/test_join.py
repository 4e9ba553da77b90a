# SPDX-License-Identifier: Apache-2.0
"""The join in the binary: local roots, links that are preserved, inferred spans, counters by span
name. Joining by id is tested with the examples and with more than one worker."""

import collections
import concurrent.futures
import gzip
import pathlib
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

import clients
import otlp
import profile_view
from braid import DEADLINE_S, exporter, pipelines, until
from otlp import PROFILES, TRACES

EBPF = pathlib.Path(__file__).parents[1] / "data/ebpf"
START = 1_700_000_000_000_000_000
MS = 1_000_000
TRACE = bytes(15) + b"\x07"

# name, id, parent, from and to in ms, thread
TREE = [("query", 3, 2, 20, 30, 1), ("work", 2, 1, 10, 50, 1), ("other", 4, 1, 10, 50, 2),
        ("root", 1, None, 0, 100, 1)]


def span_id(n):
    return n.to_bytes(8, "big")


def spans(tree=TREE, failed=()):
    request = otlp.traces.ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    for key, value in {"service.name": "shop", "host.id": "h1", "process.pid": 42}.items():
        resource.resource.attributes.append(otlp.attribute(key, value))
    scope = resource.scope_spans.add()
    for name, n, parent, begin, end, thread in tree:
        span = scope.spans.add(trace_id=TRACE, span_id=span_id(n), name=name, kind=1 if parent else 2,
                               parent_span_id=span_id(parent) if parent else b"",
                               start_time_unix_nano=START + begin * MS, end_time_unix_nano=START + end * MS)
        span.attributes.append(otlp.attribute("thread.id", thread))
        span.status.code = 2 if name in failed else 0
    return request


def samples(*rows):
    """One CPU profile of (span id or None, thread, times in ms) each; a sample without times took
    10 ms."""
    request = otlp.profile_request(0, service="shop")
    tables, resource = request.dictionary, request.resource_profiles[0]
    for key, value in {"host.id": "h1", "process.pid": 42}.items():
        resource.resource.attributes.append(otlp.attribute(key, value))
    tables.string_table.append("thread.id")
    key, profile = len(tables.string_table) - 1, resource.scope_profiles[0].profiles[0]
    threads = {}
    for span, thread, times in rows:
        if thread not in threads:
            tables.attribute_table.add(key_strindex=key, value=otlp.attribute("", thread).value)
            threads[thread] = len(tables.attribute_table) - 1
        link = 0
        if span:
            tables.link_table.add(trace_id=TRACE, span_id=span_id(span))
            link = len(tables.link_table) - 1
        profile.samples.add(stack_index=1, attribute_indices=[threads[thread]], link_index=link,
                            timestamps_unix_nano=[START + at * MS for at in times], values=() if times else [10 * MS])
    return request


@pytest.fixture
def run(braid, sink):
    """run(spans, samples, **options) returns the output of a join between them, and the server."""
    def start(*steps, **options):
        server = braid(pipelines(exporter("grpc", sink), processors={"join": options}))
        for step in steps:
            signal = TRACES if hasattr(step, "resource_spans") else PROFILES
            before = len(sink.of(signal))
            clients.grpc(server.grpc, signal, step.SerializeToString()).expect_ok()
            if signal is PROFILES:
                until(lambda: len(sink.of(PROFILES)) > before, "the profiles")
        return server
    return start


def seen(sink):
    """Returns (times in ms, thread, number of the linked span or 0, the join's result) of each
    sample, in order."""
    for view in profile_view.samples(*(call.message for call in sink.of(PROFILES))):
        added = {key: value for key, (value, _) in view["attributes"].items()}
        yield ([(at - START) // MS for at in view["timestamps"]], added.pop("thread.id"),
               int(view["link"][1], 16) if view["link"] else 0, added)


def test_a_local_roots_samples_count_for_the_open_span(run, sink):
    """The service is known to send profiles when its spans arrive, so that they wait for their
    samples."""
    run(samples((9, 1, [99])), spans(),
        samples((1, 1, [5]), (1, 1, [15, 25]), (1, 2, [25]), (1, 3, [25]), (2, 1, [])), hold="1s")
    marks = {span.name: otlp.attributes_of(span.attributes) for _, _, span in sink.wait(TRACES, 4)}
    figures = {name: (each["profile.sample_count"], each["profile.inclusive_sample_count"],
                      each["profile.duration_us"], each["profile.inclusive_duration_us"])
               for name, each in marks.items()}
    assert figures == {"root": (2, 6, 20_000, 60_000), "work": (2, 3, 20_000, 30_000),
                       "query": (1, 1, 10_000, 10_000), "other": (1, 1, 10_000, 10_000)}
    assert {each["pyroscope.profile.id"] for name, each in marks.items() if name != "work"} == {span_id(1).hex()}


def test_labels_of_every_span_select_the_named_span(run, sink):
    """The profiler's clock is 20 ms ahead: only the names are right."""
    run(samples((9, 1, [99])), spans(), samples((2, 1, [45]), (1, 1, [25]), (1, 1, [35])), hold="1s")
    marks = {span.name: otlp.attributes_of(span.attributes) for _, _, span in sink.wait(TRACES, 4)}
    figures = {name: (each["profile.sample_count"], each["profile.inclusive_sample_count"])
               for name, each in marks.items() if "profile.sample_count" in each}
    assert figures == {"root": (2, 3), "work": (1, 1)}


@pytest.mark.parametrize("hold, kept", [("1s", False), ("30s", True)])
def test_shutdown_keeps_the_marks_of_sdks(run, sink, hold, kept):
    """A span that has waited loses a mark without samples. The samples of a span released early by
    SIGTERM may still go to another gateway."""
    marked = spans([("root", 1, None, 0, 100, 1)])
    marked.resource_spans[0].scope_spans[0].spans[0].attributes.append(otlp.attribute("pyroscope.profile.id", span_id(1).hex()))
    server = run(samples((9, 1, [99])), marked, hold=hold, mark="exact")
    if kept:
        server.stop()
    [(_, _, span)] = sink.wait(TRACES, 1)
    assert ("pyroscope.profile.id" in otlp.attributes_of(span.attributes)) == kept


def test_sums_are_complete_across_workers(braid, sink):
    """96 spans below one root arrive over eight connections at once, at three workers; each has one
    sample."""
    children = [(f"child {n}", n, 1, 10, 50, 1) for n in range(2, 98)]
    server = braid(pipelines(exporter("grpc", sink), processors={"join": {"hold": "2s"}}, workers=3))

    def send(signal, request):
        clients.grpc(server.grpc, signal, request.SerializeToString()).expect_ok()
    send(PROFILES, samples((98, 1, [99])))  # the service is known to send profiles
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: send(TRACES, spans(children[n * 12:(n + 1) * 12])), range(8)))
    send(TRACES, spans([("root", 1, None, 0, 100, 1)]))
    send(PROFILES, samples(*((n, 1, [15]) for n in range(2, 98))))
    marks = {span.name: otlp.attributes_of(span.attributes) for _, _, span in sink.wait(TRACES, 97)}
    assert (marks["root"]["profile.sample_count"], marks["root"]["profile.inclusive_sample_count"]) == (0, 96)
    assert marks["root"]["profile.inclusive_duration_us"] == 96 * 10_000
    assert all(marks[name]["profile.inclusive_sample_count"] == 1 for name, *_ in children)
    server.stop()


def test_one_join_in_several_pipelines(braid, sink):
    """Samples in any pipeline match spans received in any other, and are counted once."""
    config = pipelines(exporter("grpc", sink), processors={"join": None})
    config["receivers"]["otlp/more"] = {"protocols": {"grpc": {"endpoint": "127.0.0.1:0"}}}
    of = config["service"]["pipelines"]
    of |= {f"{signal}/more": {**of[signal], "receivers": ["otlp/more"]} for signal in ("traces", "profiles")}
    server = braid(config)
    ways = [server.grpc, server.address("grpc", "receiver/otlp/more")]

    def send(way, signal, request):
        clients.grpc(ways[way], signal, request.SerializeToString()).expect_ok()
    send(0, TRACES, spans(TREE[:2]))
    send(1, TRACES, spans(TREE[2:]))
    for way in range(2):
        send(way, PROFILES, samples((3, 1, [21]), (2, 1, [11]), (4, 2, [12]), (1, 1, [5])))
    sink.wait(PROFILES, 8)
    assert sorted(seen(sink), key=repr) == sorted(2 * [
        ([21], 1, 3, {"span.name": "query"}), ([11], 1, 2, {"span.name": "work"}),
        ([12], 2, 4, {"span.name": "other"}), ([5], 1, 1, {"span.name": "root"})], key=repr)
    metrics = server.metrics()
    assert sum(metrics["braid_join_spans_entered"].values()) == 4
    assert sum(metrics["braid_join_samples_joined"].values()) == 8


def test_links_are_kept_for_failed_spans(run, sink):
    """The other samples of a stack and thread become one, with all their timestamps. The ledger
    counts every sample."""
    server = run(spans(failed=["query"]), samples((3, 1, [21]), (2, 1, [11]), (2, 2, [12]), (2, 1, [13, 14])), keep={})
    work = {"span.name": "work"}
    assert sorted(seen(sink), key=repr) == [([11, 13, 14], 1, 0, work), ([12], 2, 0, work),
                                            ([21], 1, 3, {"span.name": "query"})]
    until(lambda: server.ledger("profiles")["held"] == 0, "the end of all samples")
    assert server.ledger("profiles") == {"received": 4, "sent": 3, "rejected": 0, "dropped": 1, "held": 0}
    assert sum(server.metrics()["braid_join_samples_folded"].values()) == 3


def test_a_sample_is_joined_by_its_thread(run, sink):
    run(spans(), samples((None, 1, [15]), (None, 1, [25]), (None, 2, [26]), (None, 5, [27])), infer=True)
    inferred = {"profile.join": "inferred"}
    assert sorted(seen(sink), key=repr) == [([15], 1, 2, {"span.name": "work", **inferred}),
                                            ([25], 1, 3, {"span.name": "query", **inferred}),
                                            ([26], 2, 4, {"span.name": "other", **inferred}), ([27], 5, 0, {})]


def recorded():
    """Returns recorded requests of the eBPF profiler of a host, and {pid: time stamps of its
    samples}."""
    bodies = [gzip.decompress(path.read_bytes()) for path in sorted(EBPF.glob("*.pb.gz"))]
    times = collections.defaultdict(list)
    for body in bodies:
        for resource in PROFILES.request().FromString(body).resource_profiles:
            pid = otlp.attributes_of(resource.resource.attributes)["process.pid"]
            times[pid] += [at for scope in resource.scope_profiles for profile in scope.profiles
                           for sample in profile.samples for at in sample.timestamps_unix_nano]
    return bodies, times


def spans_of_processes(times):
    """In each process consecutive spans of half a second, each with a child of a quarter second in
    its middle, on the thread whose id is the process's. Python's spans have a different thread
    id, and the thread's name."""
    request, wanted = otlp.traces.ExportTraceServiceRequest(), {}
    begin, end = min(map(min, times.values())), max(map(max, times.values()))
    for pid, stamps in times.items():
        python = pid == max(times)
        place = {"host.id": "h1", "process.pid": pid, **({"telemetry.sdk.language": "python"} if python else {})}
        thread = {"thread.id": 1, "thread.name": "python3"} if python else {"thread.id": pid}
        resource = request.resource_spans.add()
        resource.resource.attributes.extend(otlp.attribute(*each) for each in place.items())
        scope = resource.scope_spans.add()
        for at in range(begin, end, 500 * MS):
            inner = at + 125 * MS, at + 375 * MS
            for outer in (True, False):
                number = len(wanted) + 1
                span = scope.spans.add(
                    trace_id=TRACE, span_id=span_id(number), name=f"s{number}", parent_span_id=b"" if outer else
                    span_id(number - 1), start_time_unix_nano=at if outer else inner[0],
                    end_time_unix_nano=at + 500 * MS if outer else inner[1])
                span.attributes.extend(otlp.attribute(*each) for each in thread.items())
                wanted[number] = sum(at <= stamp < at + 500 * MS and (inner[0] <= stamp < inner[1]) != outer
                                     for stamp in stamps)
    return request, wanted


def test_a_profiler_of_a_host_is_joined_by_thread_and_time(braid, sink):
    """Input recorded from the real profiler: every time stamp is attributed to the deepest span
    open on its thread."""
    bodies, times = recorded()
    request, wanted = spans_of_processes(times)
    server = braid(pipelines(exporter("grpc", sink), processors={
        "resource": {"attributes": [{"key": "host.id", "value": "h1", "action": "upsert"}]}, "join": {"infer": True}}))
    clients.grpc(server.grpc, TRACES, request.SerializeToString()).expect_ok()
    for body in bodies:
        clients.grpc(server.grpc, PROFILES, body).expect_ok()
    total = sum(map(len, times.values()))
    until(lambda: sum(len(view["timestamps"]) for view in views(sink)) == total, "all time stamps")
    got = collections.Counter()
    for view in views(sink):
        got[int(view["link"][1], 16) if view["link"] else 0] += len(view["timestamps"])
    assert got == {number: count for number, count in wanted.items() if count}


def views(sink):
    return list(profile_view.samples(*(call.message for call in sink.of(PROFILES))))


def test_counters_by_span_name(run, sink):
    server = run(spans(), samples((1, 1, [5]), (1, 1, [15, 25])), span_metrics={"enabled": True, "max_series": 2})
    with urllib.request.urlopen(f"http://{server.address('metrics', node=None)}/metrics", timeout=DEADLINE_S) as answer:
        text = answer.read().decode()
    seconds = {(sample.labels["service"], sample.labels["span_name"]): sample.value
               for family in text_string_to_metric_families(text) for sample in family.samples
               if family.name == "braid_join_span_cpu_seconds"}
    assert seconds == {("shop", "root"): 0.01, ("shop", "work"): 0.01, ("_other", "_other"): 0.01}
