# SPDX-License-Identifier: Apache-2.0
"""Receiver pprof: a Go program scraped over the network, a directory, uploads."""

import gzip
import itertools
import json
import os
import pathlib
import re
import subprocess

import pytest
import zstandard

import clients
import ingest
import otlp
import pprof
from braid import DEADLINE_S, until
from scraped import OFF, config, functions, go_program, of_type, samples, target

TESTS = pathlib.Path(__file__).parents[1]
EXAMPLE = TESTS.parent / "config" / "examples" / "scrape.yaml"
FOLDED = b"main;work 3\nmain;rest 1\n"


@pytest.fixture(scope="module")
def program():
    with go_program() as address:
        yield address


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A PEM file with the key and the certificate of 127.0.0.1, which is self-signed."""
    path = tmp_path_factory.mktemp("tls") / "program.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-keyout", path, "-out", path.with_suffix(".crt"), "-days", "2", "-subj", "/CN=program", "-addext",
                    "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True, timeout=DEADLINE_S)
    path.write_text(path.read_text() + path.with_suffix(".crt").read_text())
    return path


def wait_for(sink, kind, function):
    """Waits for samples of the kind that contain the function, and returns them."""
    return until(lambda: [each for each in of_type(sink, kind) if f"main.{function}" in functions(each)],
                 f"{function} in {kind}")


def scrapes(server, result):
    return server.metrics()["braid_receiver_pprof_scrapes"][f'receiver="pprof",result="{result}"']


# --- Scraping


def test_every_profile_of_a_go_program(braid, sink, program):
    server = braid(config(sink, {
        "targets": target(program, env="prod"), "scrape_interval": "2s",
        "profiles": {"heap": None}}))
    [cpu, *_] = wait_for(sink, ("process_cpu", "cpu"), "burnCPU")
    assert cpu["resource"] == {"instance": program, "env": "prod", "service.name": "shop"}
    assert cpu["type"] == ("cpu", "nanoseconds") and cpu["period"] == 10_000_000
    assert cpu["profile"][1] > 0.9e9  # seconds=1, and delays of a busy machine
    assert cpu["values"][0] % cpu["period"] == 0
    made = [each["values"][0] for each in wait_for(sink, ("memory", "alloc_space"), "allocate")
            if each["attributes"]["bytes"][0] == 65536]  # the number of calls of allocate since the last scrape
    assert made and all(value > 0 and value % 65536 == 0 for value in made)
    wait_for(sink, ("mutex", "contentions"), "contend")
    wait_for(sink, ("block", "delay"), "contend")
    until(lambda: of_type(sink, ("goroutine", "goroutine")), "goroutines")
    server.stop()


def counts(sink):
    """Returns the counted waits of contend, one number per profile."""
    totals = {}
    for each in of_type(sink, ("mutex", "contentions")):
        totals[each["profile"][0]] = totals.get(each["profile"][0], 0) + each["values"][0]
    return [totals[time] for time in sorted(totals)]


def mutex_only(**more):
    return {**OFF, "mutex": {"enabled": True, **more}}


def test_deltas_add_up_to_the_cumulative_profile(braid, new_sink, program):
    """The same program is scraped in both ways: the sum of the deltas is the difference of the
    totals."""
    deltas, sums = new_sink(), new_sink()
    ways = [(deltas, True), (sums, False)]
    servers = [braid(config(sink, {"targets": target(program), "scrape_interval": "500ms", "delta": delta,
                                   "profiles": mutex_only()})) for sink, delta in ways]
    until(lambda: len(counts(deltas)) >= 4 and len(counts(sums)) >= 5, "scrapes")
    for server in servers:
        server.stop()
    growing, each = counts(sums), counts(deltas)
    assert growing == sorted(growing)
    marked = {"pprof.profile.cumulative"}
    assert all(marked <= set(sample["profile"][3]) for sample in samples(sums))
    assert not any(marked & set(sample["profile"][3]) for sample in samples(deltas))
    assert 0 < sum(each) < growing[-1]  # waits before the first scrape are not in any of the differences


def test_deltas_computed_by_the_program(braid, sink, program):
    """?seconds= of net/http/pprof, and godeltaprof's profiles."""
    server = braid(config(sink, {
        "targets": target(program), "scrape_interval": "2s",
        "profiles": {**mutex_only(seconds=1), "godeltaprof_memory": {"enabled": True},
                     "godeltaprof_block": {"enabled": True}}}))
    wait_for(sink, ("mutex", "contentions"), "contend")
    wait_for(sink, ("memory", "alloc_space"), "allocate")
    wait_for(sink, ("block", "contentions"), "contend")
    assert not any("pprof.profile.cumulative" in each["profile"][3] for each in samples(sink))
    server.stop()


@pytest.mark.parametrize("auth, header", [
    ({"bearer_token": "canary-7"}, "Bearer canary-7"),
    ({"basic_auth": {"username": "Aladdin", "password": "open sesame"}}, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
])
def test_authentication_over_tls(braid, new_sink, certificate, auth, header):
    with go_program("-authorization", header, "-certificate", str(certificate)) as address:
        sink = new_sink()
        profiles = {**OFF, "goroutine": {"enabled": True}}
        common = {"targets": target(address, "https"), "scrape_interval": "200ms", "profiles": profiles}
        server = braid(config(sink, {**common, **auth, "tls": {"ca_file": str(certificate)}}))
        until(lambda: of_type(sink, ("goroutine", "goroutine")), "goroutines")
        assert header.split()[1] not in server.log() and "canary-7" not in server.log()
        server.stop()
        stranger = braid(config(sink, {**common, "tls": {"ca_file": str(certificate)}}))
        stranger.wait_log("HTTP 401 who are you?")
        distrustful = braid(config(sink, {**common, **auth}))
        distrustful.wait_log(r"pprof/goroutine: .*certificate")
        until(lambda: scrapes(stranger, "failed") >= 3, "failures")
        assert len(re.findall("who are you", stranger.log())) == 1  # logged once


def test_scrape_is_skipped_while_another_profiler_runs(braid, sink, program):
    """net/http/pprof answers 500: the scrape is skipped, not failed."""
    with subprocess.Popen(["curl", "-s", "-o", os.devnull, f"http://{program}/debug/pprof/profile?seconds=5"]) as other:
        server = braid(config(sink, {"targets": target(program), "scrape_interval": "2s",
                                     "profiles": {**OFF, "cpu": {"enabled": True}}}))
        until(lambda: scrapes(server, "in_use") >= 1, "a skip")
        assert scrapes(server, "failed") == 0 and "\twarn\t" not in server.log()
        assert other.wait(DEADLINE_S) == 0
    wait_for(sink, ("process_cpu", "cpu"), "burnCPU")
    server.stop()


def test_a_program_that_restarts(braid, sink):
    with go_program() as address:
        server = braid(config(sink, {"targets": target(address), "scrape_interval": "200ms",
                                     "profiles": {**OFF, "goroutine": {"enabled": True}}}))
        until(lambda: of_type(sink, ("goroutine", "goroutine")), "goroutines")
    until(lambda: scrapes(server, "failed") >= 5, "failures")
    server.wait_log("\twarn\t")
    assert server.log().count("\twarn\t") == 1
    server.stop()


def test_shutdown_during_a_scrape(braid, sink, program):
    server = braid(config(sink, {"targets": target(program), "scrape_interval": "60s",
                                 "profiles": {**OFF, "cpu": {"enabled": True}, "goroutine": {"enabled": True}}}))
    server.metrics()
    words = server.stop()
    assert words["profiles"]["left"] == words["profiles"]["dropped"] == 0


def test_targets_are_spread_over_workers(braid, sink, program):
    targets = [{"endpoint": f"http://{program}", "labels": {"service_name": f"shop-{n}"}} for n in range(5)]
    server = braid(config(sink, {"targets": targets, "scrape_interval": "500ms",
                                 "profiles": {**OFF, "goroutine": {"enabled": True}}}, workers=3))
    until(lambda: {each["resource"]["service.name"] for each in samples(sink)} == {f"shop-{n}" for n in range(5)},
          "all targets")
    server.stop()


# --- A directory and uploads


def test_folder(braid, sink, tmp_path):
    folder, done = tmp_path / "in", tmp_path / "in" / "done"
    done.mkdir(parents=True)
    server = braid(config(sink, {"file": {"path": str(folder), "poll_interval": "50ms", "after": "move",
                                          "move_to": str(done), "labels": {"service_name": "nightly"}}}))
    (folder / "a.tmp").write_bytes(FOLDED)
    (folder / "a.tmp").rename(folder / "a.folded")
    (folder / "cpu.pb.gz").write_bytes((TESTS / "data" / "pprof" / "cpu.pb.gz").read_bytes())
    until(lambda: {path.name for path in done.iterdir()} == {"a.folded", "cpu.pb.gz"}, "both files")
    types = {("samples", "count"), ("cpu", "nanoseconds")}
    until(lambda: {each["type"] for each in samples(sink)} == types
          and any(functions(each)[-1] == "main" for each in samples(sink)), "both of them")
    arrived = samples(sink)
    folded = [each for each in arrived if functions(each)[-1] == "main"]
    assert sorted(each["values"][0] for each in folded) == [10_000_000, 30_000_000]
    assert {each["resource"]["service.name"] for each in arrived} == {"nightly"}
    server.stop()


def recording(name):
    return gzip.decompress((TESTS / "data" / "jfr" / f"{name}.jfr.gz").read_bytes())


def unknown_recording():
    """A recording whose events are all unknown."""
    data = recording("jdk17-default")
    for name in (b"ExecutionSample", b"ObjectAllocation", b"JavaMonitorEnter", b"ThreadPark"):
        data = data.replace(b"jdk." + name, b"xdk." + name)
    return data


def test_recordings_in_a_folder(braid, sink, pyroscope, tmp_path):
    """Times and periods come from the recording; each event has the name that Pyroscope uses. Files
    that cannot be read are kept and logged."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("jdk17-default", "agent-both", "agent-wall"):
        (folder / f"{name}.jfr").write_bytes(recording(name))
    (folder / "unknown.jfr").write_bytes(unknown_recording())
    settings = config(sink, {"file": {"path": str(folder), "poll_interval": "50ms", "after": "delete"}})
    settings["exporters"] = {"pyroscope": {"endpoint": pyroscope.url, "limits": {"max_age": "0"}}}
    settings["service"]["pipelines"]["profiles"]["exporters"] = ["pyroscope"]
    server = braid(settings)
    until(lambda: [path.name for path in folder.iterdir()] == ["unknown.jfr"], "all but one")
    until(lambda: "unknown.jfr: no sample of the profile could be read" in server.log(), "the one that is named")
    server.stop()
    found = {(push.labels["__name__"], kind): push.profile for push in pyroscope.profiles() for kind in push.names()}
    assert {("process_cpu", "cpu"), ("wall", "wall"), ("block", "contentions"), ("block", "delay"),
            ("memory", "live")} <= set(found)
    assert ("live", "live") not in found
    periods = {(name, kind, profile.period) for (name, kind), profile in (
        ((push.labels["__name__"], push.names()[0]), push.profile) for push in pyroscope.profiles())}
    assert {("process_cpu", "cpu", 10_000_000), ("process_cpu", "cpu", 20_000_000),
            ("wall", "wall", 50_000_000), ("wall", "wall", 20_000_000)} <= periods
    starts = {int.from_bytes(recording(name)[32:40], "big") for name in ("jdk17-default", "agent-both", "agent-wall")}
    assert {push.profile.time_nanos // 10**9 for push in pyroscope.profiles()} == {start // 10**9 for start in starts}


def test_each_unreadable_file_is_logged(braid, sink, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    names = [f"{i}.txt" for i in range(5)]
    for name in names:
        (folder / name).write_bytes(b"\1\2\3")
    server = braid(config(sink, {"file": {"path": str(folder), "poll_interval": "50ms", "after": "delete"}}))
    until(lambda: all(f"/{name}: unknown format" in server.log() for name in names), "all of them")
    assert {path.name for path in folder.iterdir()} == set(names)
    server.stop()


def test_an_unreadable_upload_is_rejected(braid, sink):
    server = braid(config(sink, {"http": {"endpoint": "127.0.0.1:0"}}))
    answer = clients.http(server.address("http", "receiver/pprof"), "/v1/profiles/upload?name=shop",
                          unknown_recording(), None)
    assert answer.code == 400 and b"it contains no supported events" in answer.body
    server.stop()


def test_upload_as_the_readme_says(braid, sink, tmp_path):
    (tmp_path / "stacks").write_bytes(FOLDED)
    server = braid(config(sink, {"http": {"endpoint": "127.0.0.1:0"}}))
    address = server.address("http", "receiver/pprof")
    url = f"http://{address}/v1/profiles/upload?name=shop.cpu&labels=env=prod"
    done = subprocess.run(["curl", "-sS", "--fail", "--data-binary", f"@{tmp_path / 'stacks'}", url],
                          capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    sink.wait(otlp.PROFILES, 2)
    assert sorted(each["values"][0] for each in samples(sink)) == [10_000_000, 30_000_000]
    assert samples(sink)[0]["resource"] == {"service.name": "shop", "env": "prod"}
    refused = clients.http(address, "/v1/profiles/upload", b"\x01\x02", None)
    assert refused.code == 400 and b"unknown format" in refused.body
    server.stop()


BURN = """
function leaf(n) { let s = 0; for (let i = 0; i < n; i++) s += Math.sqrt(i); return s; }
function work(end) { while (Date.now() < end) leaf(20000); }
work(Date.now() + 500);
"""


def test_cpuprofile_of_node(braid, sink, tmp_path):
    """node --cpu-prof: one sample for each of Node's, whose time is a delta and whose value is the
    interval until the next."""
    (tmp_path / "burn.js").write_text(BURN)
    subprocess.run(["node", "--cpu-prof", "--cpu-prof-name=x.cpuprofile", "burn.js"], cwd=tmp_path, check=True,
                   timeout=DEADLINE_S)
    data = (tmp_path / "x.cpuprofile").read_bytes()
    server = braid(config(sink, {"http": {"endpoint": "127.0.0.1:0"}}))
    address = server.address("http", "receiver/pprof")
    until_s = 1_700_000_000
    path = f"/v1/profiles/upload?name=shop&from={until_s - 9}&until={until_s}"
    assert clients.http(address, path, data, None).code == 200
    server.stop()
    theirs, found = json.loads(data), samples(sink)
    times = [theirs["startTime"] + each for each in itertools.accumulate(theirs["timeDeltas"])]
    lasted = [max(0, after - at) for at, after in zip(times, [*times[1:], theirs["endTime"]])]
    assert [each["values"][0] // 1000 for each in found] == lasted
    assert [each["timestamps"][0] for each in found] == [
        until_s * 10**9 - (max(times) - at) * 1000 for at in times]
    assert {(each["type"], each["scope"][1]["pyroscope.metric"]) for each in found} == {
        (("wall", "nanoseconds"), "wall")}
    in_work = [each["values"][0] for each in found if "work" in functions(each)]
    assert sum(in_work) > 0.3e9 and functions(found[0])[-1] != "(root)"


def firefox_frames(thread):
    """Returns, for each stack, leaf first, (name, library, address); a frame has a name or an
    address."""
    stacks, frames, funcs = thread["stackTable"], thread["frameTable"], thread["funcTable"]
    strings, resources, made = thread["stringArray"], thread["resourceTable"], []
    for prefix, frame in zip(stacks["prefix"], stacks["frame"]):
        func = frames["func"][frame]
        name, resource = strings[funcs["name"][func]], funcs["resource"][func]
        library = strings[resources["name"][resource]] if resource >= 0 else ""
        made.append([("", library, frames["address"][frame]) if name.startswith("0x") else (name, library, 0),
                     *(made[prefix] if prefix is not None else [])])
    return made


def test_profile_of_samply(braid, sink, tmp_path):
    """Each sample has the sampling interval as wall time, and the CPU time in the file. The format
    is detected by content, for files and uploads."""
    data = (TESTS / "corpus" / "gecko" / "samply.json").read_bytes()
    server = braid(config(sink, {"http": {"endpoint": "127.0.0.1:0"},
                                 "file": {"path": str(tmp_path), "poll_interval": "50ms", "after": "delete"}}))
    (tmp_path / "a.tmp").write_bytes(data)
    (tmp_path / "a.tmp").rename(tmp_path / "a.json")
    until(lambda: not list(tmp_path.glob("a.json")), "the file")
    from_folder = list(until(lambda: samples(sink), "its samples"))
    assert clients.http(server.address("http", "receiver/pprof"), "/v1/profiles/upload?name=shop", data,
                        None).code == 200
    server.stop()
    theirs, want = json.loads(data), []
    interval_ns, start_ms = theirs["meta"]["interval"] * 1e6, theirs["meta"]["startTime"]
    for thread in theirs["threads"]:
        stacks, table = firefox_frames(thread), thread["samples"]
        who = (thread["name"], int(str(thread["tid"]).split(".")[0]), int(thread["pid"].split(".")[0]))
        times = list(itertools.accumulate(table["timeDeltas"]))
        for i, stack in enumerate(table["stack"]):
            at = (who, stacks[stack], round((start_ms + times[i]) * 1000))
            want.append((*at, "wall", table["weight"][i] * interval_ns))
            if i > 0:
                want.append((*at, "cpu", table["threadCPUDelta"][i] * 1e3))

    def seen(each):
        who = tuple(each["attributes"][key][0] for key in ("thread.name", "thread.id", "process.pid"))
        frames = [(frame["lines"][0][0] if frame["lines"] else "", frame["mapping"][3], frame["address"])
                  for frame in each["frames"]]
        return who, frames, each["timestamps"][0], each["type"][0], each["values"][0]

    assert len(want) > 150 and {each[0][0] for each in want} == {"burn", "rester"}
    for arrived in (from_folder, samples(sink)[len(from_folder):]):
        found = sorted(map(seen, arrived), key=repr)
        assert len(found) == len(want)
        for ours, his in zip(found, sorted(want, key=repr)):
            assert ours[:2] == his[:2] and ours[3] == his[3]
            assert abs(ours[2] - his[2] * 1000) <= 2000 and abs(ours[4] - his[4]) <= 1  # the file's numbers are doubles


# --- Datadog's profilers

DATADOG = "/profiling/v1/input"
EVENT = {"version": "4", "family": "python", "attachments": ["profile.pprof"],
         "tags_profiler": "env:prod,service:shop,version:1.2,process_id:7,runtime-id:r,endless:x,broken"}


def datadog_pprof():
    """Three samples: CPU time in a span whose id is over 2^63; memory; only zeros."""
    profile = pprof.Profile(time_nanos=START_NS, duration_nanos=10**9, period=1)
    strings = ["", "cpu-time", "nanoseconds", "cpu-samples", "count", "alloc-space", "bytes", "gpu-time", "main",
               "span id", "local root span id", "thread name", "MainThread", "12"]
    profile.string_table.extend(strings)
    for kind, unit in ((1, 2), (3, 4), (5, 6), (7, 2)):
        profile.sample_type.add(type=kind, unit=unit)
    profile.period_type.type, profile.period_type.unit = 1, 2
    profile.function.add(id=1, name=8)
    profile.location.add(id=1).line.add(function_id=1)
    sample = profile.sample.add(location_id=[1], value=[5000, 1, 0, 0])
    sample.label.add(key=9, num=SPAN - 2**64)
    sample.label.add(key=10, num=11)
    sample.label.add(key=11, str=12)
    profile.sample.add(location_id=[1], value=[0, 0, 64, 0]).label.add(key=10, str=13)  # as dd-trace-go has it
    profile.sample.add(location_id=[1], value=[0, 0, 0, 0])
    return profile.SerializeToString()


SPAN = 0xfedcba9876543210
START_NS = 1_700_000_000_000_000_000


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
def test_datadog(braid, sink, pack):
    kind, body = ingest.form(**{"event": json.dumps(EVENT).encode(), "code-provenance.json": b"{}",
                                "profile.pprof": pack(datadog_pprof())})
    server = braid(config(sink, {"http": {"endpoint": "127.0.0.1:0"}}))
    answer = ingest.http1(server.address("http", "receiver/pprof"), DATADOG, body, {"content-type": kind})
    assert (answer.code, answer.body) == (200, b"")
    server.stop()
    found = sorted(samples(sink), key=lambda each: each["type"])
    assert [(each["scope"][1]["pyroscope.metric"], *each["type"], *each["values"], each["link"][1]) for each in found] == [
        ("memory", "alloc_space", "bytes", 64, f"{12:016x}"),
        ("process_cpu", "cpu", "nanoseconds", 5000, f"{SPAN:016x}"),
        ("process_cpu", "cpu_samples", "count", 1, f"{SPAN:016x}")]
    assert found[1]["period_type"] == ("cpu", "nanoseconds") and found[1]["profile"][:2] == (START_NS, 10**9)
    assert found[1]["attributes"]["thread name"] == ("MainThread", "")
    assert found[0]["resource"] == {"service.name": "shop", "deployment.environment.name": "prod",
                                    "service.version": "1.2", "process.pid": "7", "service.instance.id": "r"}


@pytest.mark.parametrize("fields, why", [
    ({"profile.pprof": b""}, 'no field "event"'), ({"event": b"{}"}, "no profile"),
    ({"event": b"[]", "profile.pprof": b""}, "event.json: "), ({"event": b"{", "profile.pprof": b""}, "event.json: "),
    ({"event": b"{}", "profile.pprof": b"\4\"M\x18lz4"}, "file profile.pprof: neither a pprof nor a JFR recording"),
    ({"event": b"{}", "profile.pprof": b"\x28\xb5\x2f\xfd"}, "file profile.pprof: "),
])
def test_invalid_datadog_requests_are_rejected(braid, sink, fields, why):
    kind, body = ingest.form(**fields)
    server = braid(config(sink, {"http": {"endpoint": "127.0.0.1:0"}}))
    answer = ingest.http1(server.address("http", "receiver/pprof"), DATADOG, body, {"content-type": kind})
    assert answer.code == 400 and why in answer.body.decode()
    server.stop()


def test_files_of_gos_runtime(braid, sink):
    """Cumulative types are marked; those of memory in use and of sampling are not."""
    server = braid(config(sink, {"http": {"endpoint": "127.0.0.1:0"}}))
    address = server.address("http", "receiver/pprof")
    for name in ("allocs", "block", "cpu", "goroutine", "heap", "mutex", "threadcreate"):
        body = (TESTS / "data" / "pprof" / f"{name}.pb.gz").read_bytes()
        assert clients.http(address, f"/v1/profiles/upload?name={name}", body, None).code == 200
    server.stop()
    marked = {(each["resource"]["service.name"], each["type"][0]) for each in samples(sink)
              if "pprof.profile.cumulative" in each["profile"][3]}
    assert marked == {*((name, kind) for name in ("allocs", "heap") for kind in ("alloc_objects", "alloc_space")),
                      *((name, kind) for name in ("block", "mutex") for kind in ("contentions", "delay"))}


# --- The example


def test_the_example(braid, sink, program, tmp_path):
    """config/examples/scrape.yaml, with only hosts, ports and its directory changed."""
    (tmp_path / "profiles").mkdir()
    text = re.sub(r"\blocalhost:\d+$", "127.0.0.1:0", EXAMPLE.read_text(), flags=re.M)
    for old, new in (("127.0.0.1:6060", program), ("/var/lib/braid/profiles", str(tmp_path / "profiles")),
                     ("tempo:4317", sink.grpc), ("pyroscope:4040", sink.grpc)):
        assert old in text
        text = text.replace(old, new)
    reader = "[{pull: {exporter: {prometheus: {host: 127.0.0.1, port: 0}}}}]"
    server = braid(text, "--set=receivers.pprof.scrape_interval=2s",
                   f"--set=service.telemetry.metrics.readers={reader}")
    (tmp_path / "profiles" / "a").write_bytes(FOLDED)
    wait_for(sink, ("process_cpu", "cpu"), "burnCPU")
    until(lambda: any(each["resource"].get("service.name") == "nightly" for each in samples(sink)), "the file")
    until(lambda: not (tmp_path / "profiles" / "a").exists(), "its end")
    server.stop()
