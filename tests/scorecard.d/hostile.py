# SPDX-License-Identifier: Apache-2.0
"""The line about the cost of small requests: each row is an attack that once cost a hundred times
its bytes."""

import collections
import contextlib
import gzip
import re
import socket
import struct

import bombs
import clients
import otlp
import raw
from bombs import MIB, Bomb, field, zeros
from braid import ROOT, Braid, pipelines
from card import Figure, line
from load import memory_mib
from memory import growth_mib, peers
from otlp import PROFILES, TRACES
from raw import DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, block, frame, literal

RECORDING = ROOT / "tests" / "corpus" / "jfr" / "packed"
SMALL_EVENT = 103  # type of an event of eight bytes in that recording
SPAN = b"\x0a\x1c\x12\x1a\x12\x18\x0a\x10" + bytes(range(1, 17)) + b"\x2a\x04work"


# --- Shared by the rows --------------------------------------------------------------------------

def dead():
    """Returns a backend that refuses connections, with an unlimited queue."""
    return {"otlp": {"endpoint": "127.0.0.1:1", "tls": {"insecure": True}, "retry_on_failure": {"max_elapsed_time": "0s"},
                     "sending_queue": {"queue_size": 100_000_000}}}


def limited(limit_mib, **more):
    limiter = {"memory_limiter": {"check_interval": "1s", "limit_mib": limit_mib}}
    config = pipelines(dead(), processors={**limiter, **more}, workers=1)
    config["receivers"]["pprof"] = {"http": {"endpoint": "127.0.0.1:0"}}
    profiles = config["service"]["pipelines"]["profiles"]
    config["service"]["pipelines"]["profiles"] = {**profiles, "receivers": ["otlp", "pprof"]}
    return config


@contextlib.contextmanager
def running(config, folder):
    server = Braid(config, folder, "--shutdown-timeout", "1s")
    try:
        server.http  # waits until it listens
        yield server
    finally:
        server.kill()


def peak_mib(server):
    return memory_mib(server.process.pid, "VmHWM")


def within(server, limit_mib, what, good=True):
    """Checks the peak memory, which may exceed the limit by a twentieth."""
    most = peak_mib(server)
    return f"{most:.0f} MiB{what}", good and most <= limit_mib * 1.05


def codes(answers):
    return ", ".join(f"{n} x {code}" for code, n in sorted(collections.Counter(answers).items()))


def one_request(folder, name, path, kind, encoding, body, plain, allowed_mib, wanted=()):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % nobody.getsockname()[1]
        grown, code = growth_mib(Bomb(name, path, kind, encoding, body, plain), folder, address)
    return f"{grown:.1f} MiB, {code}", grown <= allowed_mib and (not wanted or code in wanted)


# --- The rows ------------------------------------------------------------------------------------

def empty_parts(folder):
    """8 KB of gzip four times: no memory is kept for them."""
    body = gzip.compress(b"\x0a\0" * 4_194_303, 9)
    with running(limited(200), folder) as server:
        clients.http(server.http, TRACES.path, SPAN).expect_ok()
        before, answers = peak_mib(server), []
        for _ in range(4):
            answers.append(clients.http(server.http, TRACES.path, body, headers={"content-encoding": "gzip"}).code)
        grown = peak_mib(server) - before
        return f"{grown:.1f} MiB, {codes(answers)}", grown <= 33 and set(answers) <= {200, 400}


def too_many_parts(folder):
    """More parts than a request may have, each with content: it can never succeed, so the answer is
    never 503."""
    body = gzip.compress(SPAN * (16 * MIB // len(SPAN)), 1)
    with running(limited(200), folder) as server:
        code = clients.http(server.http, TRACES.path, body, headers={"content-encoding": "gzip"}).code
        return f"{code}", code in (200, 400)


def heads(folder):
    """Six heads announce 60 MB each, then 59 MB are sent for each."""
    with running(limited(64), folder) as server:
        head = (f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: {otlp.PROTOBUF}\r\n"
                "Content-Length: 60000000\r\n\r\n").encode()
        streams = [raw.Raw(server.http, head) for _ in range(6)]
        for _ in range(59):
            for stream in streams:
                stream.send(bytes(1_000_000))
        answers = []
        for stream in streams:
            stream.read()
            found = re.match(rb"HTTP/1.1 (\d+) ", stream.got)
            hinted = b"retry-after: " in stream.got.lower()
            answers.append((found.group(1).decode() if found else "none") + " with a hint" * hinted)
            stream.socket.close()
        return within(server, 64, f", {codes(answers)}", set(answers) <= {"503 with a hint", "413", "none"})


def json_numbers(folder):
    body = bombs.many(b"0,", 64 * MIB - 1024, b'{"x":[', b"]}")
    return one_request(folder, "numbers", TRACES.path, otlp.JSON, "gzip", gzip.compress(body, 9), len(body), 2 * 64 + 1)


def header_tables(folder):
    """100 streams, each with 15 references to a header of 4 KB in HPACK's table, on 20 connections."""
    with running(limited(200), folder) as server:
        first = frame(HEADERS, END_HEADERS, 1, block(TRACES.method) + b"\x40" + literal(b"x", b"y" * 4000)[1:])
        rest = b"".join(frame(HEADERS, END_HEADERS, n, block(TRACES.method) + b"\xbe" * 15) for n in range(3, 201, 2))
        clients.http(server.http, TRACES.path, SPAN).expect_ok()
        before = memory_mib(server.process.pid, "VmRSS")
        streams = [raw.Raw(server.grpc, PREFACE + frame(SETTINGS) + first + rest) for _ in range(20)]
        for stream in streams:
            stream.wait(lambda: stream.got)
        clients.http(server.http, TRACES.path, SPAN).expect_ok()  # the server has read everything before it
        grown = (memory_mib(server.process.pid, "VmRSS") - before) / len(streams)
        for stream in streams:
            stream.socket.close()
        return f"{grown:.2f} MiB a connection", grown <= 1


def number(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def events(size):
    """A recording in which a small event is repeated; the offsets in its header are adjusted."""
    data, at = RECORDING.read_bytes(), 68
    length, pools, metadata = struct.unpack(">QQQ", data[8:32])
    while True:
        n, behind = number(data, at)
        if number(data, behind)[0] == SMALL_EVENT:
            break
        at += n
    more = data[at:at + n] * (size // n)
    moved = [value + len(more) * (value > at) for value in (length, pools, metadata)]
    return data[:8] + struct.pack(">QQQ", *moved) + data[32:at] + more + data[at:length]


def recording(folder):
    body = events(64 * MIB - 65536)
    with running(limited(1000), folder) as server:
        before = peak_mib(server)
        answer = clients.http(server.address("http", "receiver/pprof"), "/v1/profiles/upload?name=shop&format=jfr",
                              gzip.compress(body, 6), None, {"content-encoding": "gzip"})
        grown, allowed = peak_mib(server) - before, 4 * len(body) / MIB + 1
        return f"{grown:.0f} of {allowed:.0f} MiB, {answer.code}", grown <= allowed and answer.code in (200, 204, 400, 413)


def references(folder):
    """Resource attributes that all refer to one string of 1 MiB: inlined for a backend they are 200
    MiB."""
    request = PROFILES.request()
    request.dictionary.string_table.extend(["", "k", "x" * MIB])
    for table in ("mapping_table", "location_table", "function_table", "link_table", "attribute_table", "stack_table"):
        getattr(request.dictionary, table).add()
    one = request.resource_profiles.add()
    one.scope_profiles.add().profiles.add().samples.add(values=[1])
    attributes = b"".join(field(1, b"\x18\x01" + field(2, b"\x40\x02")) for _ in range(200))
    inner = one.SerializeToString()
    body = field(1, field(1, attributes) + inner) + field(2, request.dictionary.SerializeToString())
    with running(limited(200), folder) as server:
        answers = [clients.http(server.http, PROFILES.path, gzip.compress(body), headers={"content-encoding": "gzip"}).code
                   for _ in range(10)]
        return within(server, 200, f", {codes(answers)}", set(answers) == {400})


def unknown_fields(folder):
    body = b"\xf8\x07\x01" * 2_000_000
    return one_request(folder, "unknown", TRACES.path, otlp.PROTOBUF, "gzip", gzip.compress(body, 9), len(body),
                       len(body) / MIB * 1.25 + 1)


def bomb(encoding):
    return lambda folder: one_request(folder, encoding, TRACES.path, otlp.PROTOBUF, encoding, zeros(encoding, 64 * MIB),
                                      64 * MIB, 65, (400, 413))


def unread(folder):
    """1,000 connections, window 0, 90 requests each whose answers they never read."""
    with running(limited(200), folder) as server:
        head = block(TRACES.method, (b"content-type", b"application/grpc"), (b"te", b"trailers"))
        message = b"\0" + len(SPAN).to_bytes(4, "big") + SPAN
        first = PREFACE + frame(SETTINGS, payload=b"\0\4\0\0\0\0") + b"".join(
            frame(HEADERS, END_HEADERS, n, head) + frame(DATA, END_STREAM, n, message) for n in range(1, 181, 2))
        clients.http(server.http, TRACES.path, SPAN).expect_ok()
        before = memory_mib(server.process.pid, "VmRSS")
        made = []
        for peer in peers(1000, server.grpc, lambda peer: peer.sendall(first)):
            made.append(peer)
        clients.http(server.http, TRACES.path, SPAN)
        grown = (peak_mib(server) - before) * 1024 / len(made)
        for peer in made:
            peer.close()
        return within(server, 200, f", {grown:.0f} KiB each", grown <= 256)


def pipelined(server, body, most):
    """Sends pipelined requests until one is rejected: {status: n}"""
    head = (f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: {otlp.PROTOBUF}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode()
    per_round, statuses, sent = max(1, min(500, 4 * MIB // len(body))), collections.Counter(), 0
    streams = [raw.Raw(server.http) for _ in range(4)]
    while sent < most and not statuses["503"]:
        for stream in streams:
            stream.send((head + body) * per_round)
            sent += per_round
        for stream in streams:
            statuses.update(stream.statuses(per_round))
    for stream in streams:
        stream.socket.close()
    return statuses


def small_requests(**more):
    def row(folder):
        with running(limited(100, **more), folder) as server:
            statuses = pipelined(server, SPAN, 3_000_000)
            return within(server, 100, f", {dict(statuses)}", set(statuses) == {"200", "503"})
    return row


def medium_requests(folder):
    """67 KB is just over a size class of buffers."""
    body = otlp.trace_request(67, size=666).SerializeToString()
    with running(limited(100), folder) as server:
        statuses = pipelined(server, body, 10_000)
        used = statuses["200"] * len(body) / MIB
        return within(server, 100, f", {used:.0f} MiB of them payload", used >= 55)


def dictionaries(folder):
    """Profiles with different names, merged into one batch that is never sent."""
    with running(limited(100, batch={"timeout": "60s", "send_batch_size": 100_000_000}), folder) as server:
        codes_, n = collections.Counter(), 0
        while n < 400 and not codes_[503]:
            request = otlp.profile_request(50, first=1 + 50 * n)
            request.dictionary.string_table.extend(f"function {n} {i} " + "x" * 60 for i in range(8000))
            used = len(request.dictionary.string_table)
            for i in range(used - 8000, used):
                request.dictionary.function_table.add(name_strindex=i)
            first = len(request.dictionary.function_table) - 8000
            for i in range(8000):
                request.dictionary.location_table.add().lines.add(function_index=first + i)
            places = len(request.dictionary.location_table) - 8000
            request.dictionary.stack_table.add(location_indices=range(places, places + 8000))
            request.resource_profiles[0].scope_profiles[0].profiles[0].samples.add(
                stack_index=len(request.dictionary.stack_table) - 1, values=[1])
            codes_[clients.http(server.http, PROFILES.path, request.SerializeToString()).code] += 1
            n += 1
        held = server.metrics()["braid_memory_bytes"]['holder="dictionaries"'] / MIB
        return within(server, 100, f", {held:.0f} MiB of dictionaries, {dict(codes_)}", held > 1 and set(codes_) <= {200, 413, 503})


ROWS = {
    "8 KB of empty parts, four times": ("<= 33 MiB, 200 or 400", empty_parts),
    "16 MiB of parts with a span each": ("never 503", too_many_parts),
    "six heads of 60 MB, limit 64 MiB": ("<= 67 MiB, 503 with a hint", heads),
    "64 MiB of JSON numbers in an unknown member": ("<= 129 MiB", json_numbers),
    "HPACK, 100 streams of 60 KB of headers": ("<= 1 MiB a connection", header_tables),
    "64 MiB of equal events of a recording": ("<= 4 x body + 1 MiB", recording),
    "200 references to 1 MiB, ten times, limit 200 MiB": ("<= 210 MiB, 400", references),
    "2 M unknown fields": ("<= body + 1 MiB", unknown_fields),
    "gzip bomb": ("<= 65 MiB", bomb("gzip")),
    "zstd bomb": ("<= 65 MiB", bomb("zstd")),
    "1,000 connections with window 0, 90 requests each, limit 200 MiB": ("<= 210 MiB, 256 KiB each", unread),
    "spans of 30 bytes, pipelined, limit 100 MiB": ("<= 105 MiB", small_requests()),
    "the same with batch": ("<= 105 MiB", small_requests(batch={})),
    "67 KB, pipelined, limit 100 MiB": ("<= 105 MiB, >= 55 MiB payload", medium_requests),
    "merged dictionaries, limit 100 MiB": ("<= 105 MiB, counted", dictionaries),
}


@line(28, "small requests that cause a high cost, for each attack in a table of attacks",
      "each attack stays within its limit in the table (tests/scorecard.d/hostile.py)")
def table(folder, fast):
    good, texts = 0, []
    for n, (name, (wanted, measure)) in enumerate(ROWS.items()):
        try:
            figure, met = measure(folder / str(n))
        except Exception as error:  # the other rows are measured nevertheless
            figure, met = f"no figure: {type(error).__name__} {str(error)[:100]}", False
        print(f"        {'ok' if met else 'MISS':4} {name}: wanted {wanted}; {figure}", flush=True)
        good += met
        if not met:
            texts.append(f"{name}: {figure}")
    return Figure(f"{good} of {len(ROWS)} attacks{'; missed: ' + '; '.join(texts) if texts else ''}", good == len(ROWS))
