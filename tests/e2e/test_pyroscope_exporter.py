# SPDX-License-Identifier: Apache-2.0
"""The pyroscope exporter against a stand-in that follows the real server's rules."""

import collections
import gzip
import pathlib
import re
import socket
import struct
import time

import pytest

import clients
import otlp
import pprof
from braid import pipelines, until
from otlp import PROFILES, attribute
from pyroscope import Key, Pyroscope

NOW = time.time_ns
DATA = pathlib.Path(__file__).parents[1] / "data"


class Request:
    """Builds a profiles request and its dictionary's indices."""

    def __init__(self):
        self.message = PROFILES.request()
        tables = self.message.dictionary
        tables.string_table.append("")
        for table in (tables.mapping_table, tables.location_table, tables.function_table,
                      tables.link_table, tables.attribute_table, tables.stack_table):
            table.add()

    def text(self, value):
        table = self.message.dictionary.string_table
        if value not in table:
            table.append(value)
        return list(table).index(value)

    def stack(self, names):
        """Functions, leaf first."""
        tables, locations = self.message.dictionary, []
        for name in names:
            tables.function_table.add(name_strindex=self.text(name),
                                      filename_strindex=self.text(name + ".go"))
            location = tables.location_table.add()
            location.lines.add(function_index=len(tables.function_table) - 1, line=7)
            locations.append(len(tables.location_table) - 1)
        tables.stack_table.add(location_indices=locations)
        return len(tables.stack_table) - 1

    def attribute(self, key, value, unit=""):
        table = self.message.dictionary.attribute_table
        table.add(key_strindex=self.text(key), value=attribute("", value).value,
                  unit_strindex=self.text(unit))
        return len(table) - 1

    def link(self, trace_id, span_id):
        table = self.message.dictionary.link_table
        table.add(trace_id=bytes.fromhex(trace_id), span_id=bytes.fromhex(span_id))
        return len(table) - 1

    def scope(self, resource, scope=None):
        profiles = self.message.resource_profiles.add()
        profiles.resource.attributes.extend(attribute(*each) for each in resource.items())
        made = profiles.scope_profiles.add()
        made.scope.attributes.extend(attribute(*each) for each in (scope or {}).items())
        return made

    def profile(self, scope, kind, period=("", ""), interval=0, at=None):
        made = scope.profiles.add(time_unix_nano=NOW() if at is None else at, period=interval)
        for value_type, (name, unit) in ((made.sample_type, kind), (made.period_type, period)):
            value_type.type_strindex, value_type.unit_strindex = self.text(name), self.text(unit)
        return made


CPU = ("cpu", "nanoseconds")


def cpu_request(n=1, service="shop", at=None, resource=None, **sample):
    """n CPU profiles of one sample each, in separate resources; sample i has the value i + 1."""
    request = Request()
    stack = request.stack(["leaf", "root"])
    for i in range(n):
        scope = request.scope({"service.name": f"{service}-{i}" if n > 1 else service,
                               **(resource or {})})
        profile = request.profile(scope, CPU, CPU, 10_000_000, at)
        profile.samples.add(stack_index=stack, values=[i + 1], **sample)
    return request


STACK = (("leaf", "leaf.go", 7), ("root", "root.go", 7))
CPU_TYPE = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"


@pytest.fixture
def through(braid, pyroscope):
    """through(**options) starts Braid with the exporter in front of the stand-in."""
    def start(**options):
        options = {"endpoint": pyroscope.url, **options}
        return braid(pipelines({"pyroscope": options}, signals=["profiles"], workers=1, http={"include_metadata": True}))
    return start


def send(server, request, headers=None):
    message = request.message if isinstance(request, Request) else request
    clients.http(server.http, PROFILES.path, message.SerializeToString(),
                 headers=headers).expect_ok()


def of_service(stored, name="service_name"):
    """Returns {service: sum of values}."""
    sums = collections.Counter()
    for key, value in stored.items():
        sums[dict(key.labels)[name]] += value
    return dict(sums)


def test_cpu_profile_equals_an_sdks_push(through, pyroscope):
    request = cpu_request()
    send(through(), request)
    [push] = pyroscope.wait(1)
    assert push.headers["content-encoding"] == "gzip"
    assert pprof.types(push.profile) == ([CPU], CPU, 10_000_000, "")
    assert pyroscope.stored() == {
        Key(frozenset({"service_name": "shop"}.items()), CPU_TYPE, STACK, "", ""): 1}


def host_request(processes, at):
    """A request as a profiler of a whole host sends it: a Resource for each process, all of one
    time, whose samples have only time stamps. Process i has i + 1 of them, at 19 Hz."""
    request = Request()
    for i, name in enumerate(processes):
        scope = request.scope({"container.id": f"c{i}", "process.pid": 100 + i,
                               **({"process.executable.name": name} if name else {})})
        profile = request.profile(scope, ("samples", "count"), CPU, PERIOD, at)
        profile.profile_id = bytes([i + 1]) * 16
        profile.samples.add(stack_index=request.stack([f"leaf_{i % 2}", "root"]),
                            timestamps_unix_nano=[at + 10**6 * k for k in range(i + 1)])
    return request


PERIOD = 52_631_578


def test_processes_of_a_host_stay_distinct(through, pyroscope):
    """Their series would be equal, and Pyroscope keeps only one profile of a series and time. A
    request sent again by a client is still stored once."""
    request = host_request(["java", "java", "postgres", None, "java"], NOW())
    server = through()
    for _ in range(2):
        send(server, request)
    pyroscope.wait(10)
    assert of_service(pyroscope.stored()) == {
        "unknown_service:java": (1 + 2 + 5) * PERIOD, "unknown_service:postgres": 3 * PERIOD,
        "unknown_service": 4 * PERIOD}
    by_function = collections.Counter()
    for key, value in pyroscope.stored().items():
        by_function[key.stack[0][0]] += value
    assert by_function == {"leaf_0": (1 + 3 + 5) * PERIOD, "leaf_1": (2 + 4) * PERIOD}


def recorded(tables, resource, sample, period):
    """Returns (service, stack) and CPU time of one sample of a profiler that counts by time stamps."""
    texts = tables.string_table
    name = {each.key: each.value.string_value for each in resource.attributes}.get("process.executable.name")
    stack = []
    for index in tables.stack_table[sample.stack_index].location_indices:
        location = tables.location_table[index]
        lines = [(tables.function_table[line.function_index], line.line) for line in location.lines]
        stack += [(texts[function.name_strindex], texts[function.filename_strindex], line)
                  for function, line in lines] or [("", "", location.address)]
    return ((f"unknown_service:{name}" if name else "unknown_service", tuple(stack)),
            len(sample.timestamps_unix_nano) * period)


def just_now(body):
    """Returns the same bytes with current times, which have eight bytes each: Pyroscope rejects any
    older than an hour."""
    profiles = [profile for resource in PROFILES.request().FromString(body).resource_profiles
                for scope in resource.scope_profiles for profile in scope.profiles]
    times = {profile.time_unix_nano for profile in profiles} | {
        at for profile in profiles for sample in profile.samples for at in sample.timestamps_unix_nano}
    later = NOW() - max(times)
    moved = {struct.pack("<Q", at): struct.pack("<Q", at + later) for at in times}
    return re.sub(b"|".join(map(re.escape, moved)), lambda found: moved[found[0]], body)


def test_recording_of_a_host_profiler(through, pyroscope):
    """Input recorded from the real profiler: every process, function and address has its recorded
    CPU time."""
    wanted, n_profiles = collections.Counter(), 0
    server = through()
    for path in sorted((DATA / "ebpf").glob("*.pb.gz")):
        body = just_now(gzip.decompress(path.read_bytes()))
        request = PROFILES.request()
        request.ParseFromString(body)
        for resource in request.resource_profiles:
            for profile in [each for scope in resource.scope_profiles for each in scope.profiles]:
                n_profiles += 1
                for sample in profile.samples:
                    key, value = recorded(request.dictionary, resource.resource, sample, profile.period)
                    wanted[key] += value
        clients.http(server.http, PROFILES.path, body).expect_ok()
    assert n_profiles == 14 and {service for service, _ in wanted} == {
        "unknown_service", "unknown_service:shop", "unknown_service:cart", "unknown_service:python3.11"}
    pyroscope.wait(n_profiles)
    kept = collections.Counter()
    for key, value in pyroscope.stored().items():
        assert key.type == CPU_TYPE
        kept[dict(key.labels)["service_name"], key.stack] += value
    assert kept == wanted


def test_counted_cpu_samples_become_cpu_time(through, pyroscope):
    """A profiler that counts: 3 samples by value, 2 by time stamps, at 20 ms each."""
    request = Request()
    profile = request.profile(request.scope({"service.name": "shop"}), ("samples", "count"), CPU,
                              20_000_000)
    profile.samples.add(stack_index=request.stack(["a"]), values=[3])
    profile.samples.add(stack_index=request.stack(["b"]), timestamps_unix_nano=[5, 6])
    send(through(), request)
    pyroscope.wait(1)
    assert {(key.type, key.stack[0][0]): value for key, value in pyroscope.stored().items()} == {
        (CPU_TYPE, "a"): 60_000_000, (CPU_TYPE, "b"): 40_000_000}


def test_off_cpu_values_are_added_up(through, pyroscope):
    request = Request()
    profile = request.profile(request.scope({}), ("off_cpu", "nanoseconds"))
    profile.samples.add(stack_index=request.stack(["wait"]), values=[5, 7, 30],
                        timestamps_unix_nano=[1, 2, 3])
    send(through(), request)
    pyroscope.wait(1)
    assert {key.type: value for key, value in pyroscope.stored().items()} == {
        "off_cpu:off_cpu:nanoseconds::": 42}


HEAP = [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"),
        ("inuse_space", "bytes")]


def heap_request(shift=0):
    """A heap profile of Go as a Pyroscope client pushed it: three samples of four types. With
    `shift` the second type's samples begin with another stack."""
    request = Request()
    scope = request.scope({"service.name": "shop", "region": "eu", "__session_id__": "a1"},
                          {"pyroscope.name": "memory", "pprof.scope.sample_type_order": [0, 1, 2, 3],
                           "pprof.scope.default_sample_type": "inuse_space"})
    stacks = [request.stack(names) for names in (["a", "r"], ["b", "r"], ["c", "r"])]
    size = [request.attribute("bytes", 512 << i, "bytes") for i in range(3)]
    at = NOW()
    for t, kind in enumerate(HEAP):
        profile = request.profile(scope, kind, ("space", "bytes"), 524288, at)
        for i in range(3):
            which = (i + shift) % 3 if t == 1 else i
            profile.samples.add(stack_index=stacks[which], attribute_indices=[size[which]],
                                values=[100 * t + which + 1])
    return request


def heap_multiset():
    frames = {name: ((name, f"{name}.go", 7), ("r", "r.go", 7)) for name in "abc"}
    return collections.Counter(
        pprof.Sample(kind, unit, frames[name], 100 * t + i + 1, (("bytes", 512 << i, "bytes"), ))
        for t, (kind, unit) in enumerate(HEAP) for i, name in enumerate("abc"))


def test_types_of_one_pprof_are_pushed_as_one(through, pyroscope):
    send(through(), heap_request())
    [push] = pyroscope.wait(1)
    assert pprof.types(push.profile) == (HEAP, ("space", "bytes"), 524288, "inuse_space")
    assert pprof.samples(push.profile) == heap_multiset()
    assert push.labels == {"__name__": "memory", "service_name": "shop", "region": "eu",
                           "__session_id__": "a1"}


def test_types_with_different_samples_are_pushed_separately(through, pyroscope):
    send(through(), heap_request(shift=1))
    pushes = pyroscope.wait(3)
    assert sorted(pprof.types(push.profile)[0] for push in pushes) == sorted([HEAP[:1], HEAP[1:2], HEAP[2:]])
    assert sum((pprof.samples(push.profile) for push in pushes),
               collections.Counter()) == heap_multiset()


TRACE, SPAN = "0102030405060708090a0b0c0d0e0f10", "1112131415161718"


@pytest.mark.parametrize("labels, kept", [
    ({}, {"span_id": SPAN, "trace_id": TRACE}),
    ({"span_id": SPAN.upper(), "trace_id": TRACE}, {"span_id": SPAN.upper(), "trace_id": TRACE}),
    ({"profile_id": SPAN}, {"profile_id": SPAN, "trace_id": TRACE}),
    ({"span_id": "ff" * 8}, {"span_id": SPAN, "trace_id": TRACE}),
    ({"span_id": "no hex"}, {"span_id": SPAN, "trace_id": TRACE}),
], ids=["none", "the same", "Ruby's name", "another span", "no id"])
def test_links_become_labels(through, pyroscope, labels, kept):
    request = cpu_request()
    [sample] = [sample for _, _, sample in otlp.samples_of(request.message)]
    sample.link_index = request.link(TRACE, SPAN)
    sample.attribute_indices.extend(request.attribute(*each) for each in labels.items())
    send(through(), request)
    [push] = pyroscope.wait(1)
    assert pprof.labels_of(push.profile, push.profile.sample[0]) == tuple(sorted(kept.items()))
    [key] = pyroscope.stored()
    assert (key.span_id, key.trace_id) == (SPAN, TRACE)


def test_strings_are_unique(through, pyroscope):
    """Pyroscope looks a name up once: a label whose key is a second copy of the string is not
    found. Here the dictionary contains the names of the ids, used by an attribute that is left
    out, and twice."""
    request = cpu_request()
    request.message.dictionary.string_table.extend(["span_id", "trace_id", "span_id"])
    [sample] = [sample for _, _, sample in otlp.samples_of(request.message)]
    sample.attribute_indices.append(request.attribute("span_id", "ee" * 8))
    sample.link_index = request.link(TRACE, SPAN)
    send(through(), request)
    [push] = pyroscope.wait(1)
    strings = list(push.profile.string_table)
    assert sorted(set(strings)) == sorted(strings)
    [key] = pyroscope.stored()
    assert (key.span_id, key.trace_id) == (SPAN, TRACE)


def test_sample_attributes_that_would_be_series_are_left_out(through, pyroscope):
    request = cpu_request()
    [sample] = [sample for _, _, sample in otlp.samples_of(request.message)]
    sample.attribute_indices.extend(
        request.attribute(*each) for each in {"thread.id": "17", "span_name": "GET /", "b": True}.items())
    server = through()
    send(server, request)
    [push] = pyroscope.wait(1)
    assert pprof.labels_of(push.profile, push.profile.sample[0]) == (("span_name", "GET /"), )
    left_out = server.metrics()["braid_pyroscope_labels_left_out"]
    assert {labels: n for labels, n in left_out.items() if 'of="sample"' in labels} == {
        'exporter="pyroscope",of="sample"': 2}
    server.wait_log("thread.id")


def test_configured_sample_attributes(through, pyroscope):
    request = cpu_request()
    [sample] = [sample for _, _, sample in otlp.samples_of(request.message)]
    values = {"thread.id": 17, "b": True, "d": 0.5, "l": ["x", "y"], "m": {"k": [1, "z"]},
              "raw": b"\0\xff", "span_name": "GET /"}
    sample.attribute_indices.extend(request.attribute(*each) for each in values.items())
    send(through(labels={"sample_attributes": ["thread.*", "b", "d", "l", "m", "raw"]}), request)
    [push] = pyroscope.wait(1)
    found = set(pprof.labels_of(push.profile, push.profile.sample[0]))
    assert found == {("thread.id", 17, ""), ("b", "true"), ("d", "0.5"), ("l", "x"), ("l", "y"),
                     ("m", '{"k":[1,"z"]}'), ("raw", "AP8=")}


def test_a_resource_with_many_attributes_keeps_the_important_ones(through, pyroscope):
    resource = {"host.name": "h", "k8s.pod.name": "p", "service.instance.id": "uuid",
                "process.pid": 7, **{f"noise.{i}": "x" for i in range(60)}}
    send(through(), cpu_request(resource=resource))
    [push] = pyroscope.wait(1)
    assert push.labels == {"__name__": "process_cpu", "service_name": "shop", "__delta__": "false",
                           "host.name": "h", "k8s.pod.name": "p"}


def test_configured_labels_stay_within_pyroscopes_limits(through, pyroscope):
    resource = {"process.pid": 7, "": "no key", "long": "é" * 2000, "one": ["x"], "two": ["x", "y"],
                **{f"noise.{i:02}": str(i) for i in range(60)}}
    server = through(labels={"resource_attributes": ["*"], "static": {"env": "test"}})
    send(server, cpu_request(resource=resource))
    [push] = pyroscope.wait(1)
    assert len(push.labels) == 30
    assert push.labels["env"] == "test" and push.labels["process.pid"] == "7"
    assert push.labels["long"] == "é" * 1024  # 2048 bytes
    assert push.labels["one"] == "x" and push.labels["two"] == '["x","y"]'
    left_out = server.metrics()["braid_pyroscope_labels_left_out"]['exporter="pyroscope",of="series"']
    assert left_out == 60 + 8 - 30
    server.wait_log("noise[.]")


def test_labels_of_samples_count_towards_the_limit(through, pyroscope):
    """Pyroscope adds them to those of the series, and rejects more than 30 in total."""
    request = cpu_request(resource={f"noise.{i:02}": str(i) for i in range(60)})
    [sample] = [sample for _, _, sample in otlp.samples_of(request.message)]
    sample.attribute_indices.extend(
        request.attribute(*each) for each in {"a": "x", "b": "y", "span_id": SPAN, "n": 7}.items())
    send(through(labels={"resource_attributes": ["*"], "sample_attributes": ["*"]}), request)
    pyroscope.wait(1)
    [key] = pyroscope.stored()
    # Includes __name__ and __delta__, which are not stored.
    assert len(key.labels) == 30 - 2 and {("a", "x"), ("b", "y")} < key.labels


CLIENT = {"pyroscope.name": "process_cpu"}  # the scope's attributes in an SDK's request


@pytest.mark.parametrize("labels, series, of_sample", [
    ({}, {"env": "prod", "service.name": "tag", "region": "eu"}, {"user": "x", "span_name": "GET /"}),
    ({"resource_attributes": ["env"]}, {"env": "prod"}, {"user": "x", "span_name": "GET /"}),
    ({"resource_attributes": [], "sample_attributes": []}, {}, {}),
    ({"sample_attributes": ["user"], "resource_attributes": ["service.*"]}, {"service.name": "tag"}, {"user": "x"}),
])
def test_lists_also_apply_to_clients(through, pyroscope, labels, series, of_sample):
    request = Request()
    scope = request.scope({"service.name": "shop", "pyroscope.label.service.name": "tag", "env": "prod",
                           "region": "eu", "__session_id__": "7"}, CLIENT)
    sample = request.profile(scope, CPU, CPU, 10_000_000).samples.add(stack_index=request.stack(["a"]), values=[1])
    texts = {"user": "x", "span_name": "GET /", "span_id": SPAN}
    sample.attribute_indices.extend(request.attribute(*each) for each in texts.items())
    send(through(labels=labels), request)
    [push] = pyroscope.wait(1)
    always = {"__name__": "process_cpu", "service_name": "shop", "__session_id__": "7"}
    assert push.labels == {**always, **series}
    assert dict(pprof.labels_of(push.profile, push.profile.sample[0])) == {"span_id": SPAN, **of_sample}


def test_an_empty_list_means_none(through, pyroscope):
    send(through(labels={"resource_attributes": []}), cpu_request(resource={"host.name": "h"}))
    [push] = pyroscope.wait(1)
    assert push.labels == {"__name__": "process_cpu", "service_name": "shop", "__delta__": "false"}


def test_wall_clock_samples_are_not_cpu_time(through, pyroscope):
    request = Request()
    profile = request.profile(request.scope({"service.name": "shop"}), ("samples", "count"),
                              ("wall", "nanoseconds"), 10_000_000)
    profile.samples.add(stack_index=request.stack(["a"]), values=[3])
    send(through(), request)
    pyroscope.wait(1)
    assert {key.type: value for key, value in pyroscope.stored().items()} == {
        "wall:samples:count:wall:nanoseconds": 3}


def test_sanitized_names(through, pyroscope):
    server = through(labels={"sanitize": True, "resource_attributes": ["*"]})
    send(server, cpu_request(resource={"k8s.pod-name": "p", "9x": "y"}))
    [push] = pyroscope.wait(1)
    assert {"k8s_pod_name": "p", "_x": "y"}.items() <= push.labels.items()


@pytest.mark.parametrize("age_s, reason", [(3700, "too_old"), (-700, "too_new")])
def test_profiles_outside_the_time_window_are_not_sent(through, pyroscope, age_s,
                                                                      reason):
    request = cpu_request(2)
    request.message.resource_profiles[0].scope_profiles[0].profiles[0].time_unix_nano -= age_s * 10**9
    server = through()
    send(server, request)
    pyroscope.wait(1)
    assert of_service(pyroscope.stored()) == {"shop-1": 2}
    dropped = server.metrics()["braid_ledger_dropped"]
    assert [n for labels, n in dropped.items() if f'reason="{reason}"' in labels] == [1]
    server.wait_log(re.escape(reason))


def test_large_profiles_are_divided(through, pyroscope):
    request = Request()
    profile = request.profile(request.scope({"service.name": "shop"}), CPU, CPU, 10_000_000)
    stacks = [request.stack([f"f{i}"]) for i in range(100)]
    for i in range(1000):
        profile.samples.add(stack_index=stacks[i % 100], values=[i])
    server = through(limits={"max_samples": 300})
    send(server, request)
    pushes = sorted(pyroscope.wait(4), key=lambda push: push.profile.time_nanos)
    assert [len(push.profile.sample) for push in pushes] == [300, 300, 300, 100]
    assert sum(pyroscope.stored().values()) == sum(range(1000))
    times = [push.profile.time_nanos for push in pushes]
    assert [t - times[0] for t in times] == [0, 10**6, 2 * 10**6, 3 * 10**6]
    assert max(len(push.profile.string_table) for push in pushes) < 210


def test_profiles_are_divided_by_their_size(through, pyroscope):
    request = Request()
    profile = request.profile(request.scope({"service.name": "shop"}), CPU, CPU, 10_000_000)
    for i in range(50):
        profile.samples.add(stack_index=request.stack([f"{i}" * 400]), values=[1])
    profile.samples.add(stack_index=request.stack(["x" * 5000]), values=[1])
    server = through(limits={"max_profile_size": 4096})
    send(server, request)
    until(lambda: sum(pyroscope.stored().values()) == 50, "all samples but the large one")
    assert max(len(push.raw) for push in pyroscope.profiles()) <= 4096
    dropped = server.metrics()["braid_ledger_dropped"]
    assert [n for labels, n in dropped.items() if 'reason="too_large"' in labels] == [1]


@pytest.mark.parametrize("whole", [False, True], ids=["2.x", "1.x"])
def test_a_bad_profile_does_not_affect_the_others(through, pyroscope, whole):
    pyroscope.refuse(lambda push: push.labels["service_name"] == "shop-5", whole=whole)
    server = through()
    send(server, cpu_request(13))
    pyroscope.wait(12)
    until(lambda: server.ledger("profiles")["dropped"] == 1, "the bad one was given up")
    assert of_service(pyroscope.stored()) == {f"shop-{i}": i + 1 for i in range(13) if i != 5}
    assert len(pyroscope.profiles()) == 12  # no duplicates
    dropped = server.metrics()["braid_ledger_dropped"]
    assert [n for labels, n in dropped.items() if 'reason="profile_rejected"' in labels] == [1]
    assert server.ledger("profiles")["sent"] == 12


@pytest.mark.parametrize("status", [429, 500, 503])
def test_profiles_beside_a_refused_one_are_stored_once(through, pyroscope, status):
    """The answer does not identify the profile, so each of several profiles is sent in a separate
    request."""
    pyroscope.refuse(lambda push: push.labels["service_name"] in ("shop-1", "shop-2"), http=status, times=4,
                     message="push rate limit")
    send(through(retry_on_failure={"initial_interval": "50ms"}), cpu_request(8))
    pyroscope.wait(8)
    assert of_service(pyroscope.stored()) == {f"shop-{i}": i + 1 for i in range(8)}
    assert len(pyroscope.profiles()) == 8 and pyroscope.n_requests == 8 + 4


@pytest.mark.parametrize("status", [429, 500, 503])
def test_requests_to_a_busy_server_are_retried(through, pyroscope, status):
    pyroscope.refuse(lambda push: True, http=status, times=2, whole=True)
    send(through(retry_on_failure={"initial_interval": "50ms"}), cpu_request())
    pyroscope.wait(1)
    assert pyroscope.n_requests == 3


@pytest.mark.parametrize("status", [401, 403, 404])
def test_permanent_failures_are_given_up(through, pyroscope, status):
    pyroscope.refuse(lambda push: True, http=status, whole=True)
    server = through()
    send(server, cpu_request(5))
    server.wait_log(f"HTTP {status}")
    assert not pyroscope.profiles() and until(lambda: pyroscope.n_requests == 5, "a request of each profile")


@pytest.mark.parametrize("options, header, value", [
    ({"tenant": "team-a"}, "x-scope-orgid", "team-a"),
    ({"basic_auth": {"username": "u", "password": "p"}}, "authorization", "Basic dTpw"),
    ({"bearer_token": "secret"}, "authorization", "Bearer secret"),
    ({"headers": {"X-Mine": "1"}}, "x-mine", "1"),
])
def test_headers(through, pyroscope, options, header, value):
    send(through(**options), cpu_request())
    [push] = pyroscope.wait(1)
    assert push.headers[header] == value


def test_tenant_of_the_client(through, pyroscope):
    server = through(tenant="default", tenant_metadata="X-Scope-OrgID")
    send(server, cpu_request(service="a"), headers={"X-Scope-OrgID": "team-a"})
    send(server, cpu_request(service="b"))
    assert {push.labels["service_name"]: push.headers["x-scope-orgid"]
            for push in pyroscope.wait(2)} == {"a": "team-a", "b": "default"}


def test_an_unavailable_endpoint_does_not_delay_the_others(braid, pyroscope):
    """There are more requests than the queue has consumers; each would be retried at the
    unavailable endpoint for five minutes."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        dead = "http://127.0.0.1:%d" % nobody.getsockname()[1]
        server = braid(pipelines({"pyroscope": {"endpoints": [dead, pyroscope.url], "compression": "none"}},
                                 signals=["profiles"]), "--shutdown-timeout", "500ms")
        for _ in range(25):
            send(server, cpu_request(1))
        pyroscope.wait(25)
        words = server.stop()["profiles"]
        assert words["sent"] == words["received"] and words["left"] == 0
        assert "(shutdown)" in server.log()


def test_every_endpoint_gets_everything(braid, pyroscope):
    other = Pyroscope()
    try:
        other.refuse(lambda push: True, http=503, times=1, whole=True)
        server = braid(pipelines(
            {"pyroscope": {"endpoints": [pyroscope.url, other.url + "/prefix"], "compression": "none",
                           "retry_on_failure": {"initial_interval": "50ms"}}},
            signals=["profiles"]))
        send(server, cpu_request(3))
        pyroscope.wait(3)
        other.wait(3)
        assert pyroscope.stored() == other.stored()
        assert pyroscope.n_requests == 3 and other.n_requests == 4
        assert other.paths[0] == "/prefix/push.v1.PusherService/Push"
        server.stop()
    finally:
        other.close()
