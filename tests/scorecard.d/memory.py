# SPDX-License-Identifier: Apache-2.0
"""Lines about memory, and about connections that use it."""

import contextlib
import itertools
import resource
import select
import socket
import statistics
import time

import bombs
import card
import clients
import otlp
from bombs import MIB
from braid import Braid, exporter, pipelines, until
from card import Figure, line
from load import Late, Load, memory_mib
from otlp import PROFILES, TRACES
from pki import Authority
from raw import DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, block, frame, sanitized
from sink import Sink

LIMIT = {"memory_limiter": {"limit_mib": 200, "check_interval": "1s"}}
BODY = otlp.trace_request(1).SerializeToString()


# --- 12


@line(12, "peak resident memory with a memory limit of 200 MiB, an unreachable backend, and overload with traces and "
      "profiles, as gzip and JSON",
      "<= 210 MiB; requests are rejected only with UNAVAILABLE or 503 and a retry delay; all requests are accepted "
      "within 5 s after the backend returns")
def overload(folder, fast):
    sink = Sink()
    late = Late(sink.grpc)
    queue = {"queue_size": 1 << 30, "sizer": "bytes"}
    server = Braid(pipelines(exporter("grpc", late, sending_queue=queue), processors=LIMIT, workers=2), folder / "braid")
    load = Load(server, 3000, clients_each=4).start()
    minutes = card.minutes(1)
    try:
        time.sleep(60 * minutes)
        load.stop()
        peak = memory_mib(server.process.pid, "VmHWM")
        late.open()
        begun = time.monotonic()
        until(load.all_taken, "recovery", 60)
        took = time.monotonic() - begun
        taken = sum(n for code, n in load.answers.items() if code in ("OK", 200))
        return Figure(f"{minutes} min: {peak:.0f} MiB; {taken} requests accepted, "
                      f"{sum(load.answers.values()) - taken} rejected, "
                      f"{sum(load.wrong.values())} wrongly{' ' + str(dict(load.wrong)) if load.wrong else ''}; recovers in {took:.1f} s",
                      peak <= 210 and not load.wrong and took <= 5)
    finally:
        load.stop()
        server.kill()
        late.close()
        sink.close()


# --- 13


def growing(exporter, address, folder, limit_mib):
    """Returns a config with all receivers, and an unavailable backend or an exporter without one."""
    exporters = {"otlp": {"endpoint": address, "tls": {"insecure": True}},
                 "debug": {"verbosity": "detailed", "output_paths": [str(folder / "debug.txt")]},
                 "store": {"directory": str(folder / "store")},
                 "file": {"path": str(folder / "out.json")}}
    config = pipelines({exporter: exporters[exporter]},
                       processors={"memory_limiter": {**LIMIT["memory_limiter"], "limit_mib": limit_mib}})
    config["receivers"]["pprof"] = {"http": {"endpoint": "127.0.0.1:0"}}
    config["receivers"]["pyroscope"] = {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}}
    config["service"]["pipelines"]["profiles"] = {
        **config["service"]["pipelines"]["profiles"], "receivers": ["otlp", "pprof", "pyroscope"]}
    return config


def growth_mib(bomb, folder, address, limit_mib=200):
    """Returns (MiB, answer) of one request to a new Braid, which has read a small request of that
    format before."""
    server = Braid(growing(bomb.exporter, address, folder, limit_mib), folder)
    try:
        clients.http(server.http, TRACES.path, BODY)
        if bomb.path == PROFILES.path:
            clients.http(server.http, PROFILES.path, otlp.profile_request(20).SerializeToString())
        if bomb.node != "receiver/otlp":
            clients.http(server.address("http", bomb.node), bomb.path, bytes(300_000), bomb.content_type)
        before = memory_mib(server.process.pid, "VmHWM")
        if not sanitized():  # unlimited growth should fail the process, not the machine
            resource.prlimit(server.process.pid, resource.RLIMIT_AS, (4096 * MIB, 4096 * MIB))
        answer = clients.http(server.address("http", bomb.node), bomb.path, bomb.body, bomb.content_type,
                              {"content-encoding": bomb.encoding}).code
        return memory_mib(server.process.pid, "VmHWM") - before, answer
    finally:
        server.kill()


@line(13, "largest memory growth by one request (empty messages, depth, unknown fields, JSON, dictionaries, gzip and "
      "zstd bombs, profiles of other formats, data that is printed, stored or written to a file)",
      "<= 4 x body + 1 MiB (for a compression bomb: the limit of a decompressed body + 1 MiB); 0 crashes", fast=True)
def growth(folder, fast):
    size = 8 * MIB if fast else 64 * MIB - 1024
    worst, text, within, n = 0.0, "", 0, 0
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        for bomb in itertools.chain(bombs.shapes(size), bombs.profiles(size), bombs.repeated(MIB),
                                    bombs.repeated(2 * MIB), bombs.exported(4 * MIB)):
            # other receivers: their growth is the subject
            limit_mib = 200 if bomb.node == "receiver/otlp" else 8 * size // MIB + 100
            grown, code = growth_mib(bomb, folder / str(n), "127.0.0.1:%d" % nobody.getsockname()[1], limit_mib)
            allowed = bomb.plain / MIB * (1 if bomb.name.endswith("bomb") else 4) + 1
            n += 1
            within += grown <= allowed
            if grown / allowed > worst:
                worst = grown / allowed
                text = f"{bomb.name}, {grown:.1f} of {allowed:.1f} MiB, status {code}"
    return Figure(f"{within} of {n} requests of {size // MIB + (size % MIB > 0)} MiB within the target; worst: {text}", within == n)


# --- 16


def peers(n, address, each, receive_buffer=None):
    """Opens n connections from different loopback addresses, for limits per address."""
    host, port = address.rsplit(":", 1)
    for i in range(n):
        made = socket.socket()
        if receive_buffer:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)  # also limits the server's buffer
        made.bind((f"127.0.{1 + i // 200 % 250}.1", 0))
        made.connect((host, int(port)))
        each(made)
        yield made


def whole_request():
    message = b"\0" + len(BODY).to_bytes(4, "big") + BODY
    grpc = (b"content-type", b"application/grpc")
    return (PREFACE + frame(SETTINGS) + frame(HEADERS, END_HEADERS, 1, block(TRACES.method, grpc, (b"te", b"trailers")))
            + frame(DATA, END_STREAM, 1, message))


def answered(data):
    """Returns whether the trailers of an answer are among these frames."""
    at = 0
    while at + 9 <= len(data):
        if data[at + 3] == HEADERS and data[at + 4] & END_STREAM:
            return True
        at += 9 + int.from_bytes(data[at:at + 3], "big")
    return False


@line(16, "10,000 idle HTTP/2 connections, each after one request",
      "resident memory grows by <= 160 MiB (16 KiB each); a request over a new connection is answered in < 10 ms")
def idle(folder, fast):
    server = Braid(pipelines({"nop": {}}), folder / "braid")
    request = whole_request()

    def ask(peer):
        peer.settimeout(30)
        peer.sendall(request)
        got = b""
        while not answered(got) and (part := peer.recv(65536)):
            got += part
    try:
        with contextlib.ExitStack() as stack:
            warm = [stack.enter_context(each) for each in peers(100, server.grpc, ask)]
            before = memory_mib(server.process.pid, "VmRSS")
            made = [stack.enter_context(each) for each in peers(10000, server.grpc, ask)]
            grown = memory_mib(server.process.pid, "VmRSS") - before
            slowest = 0.0
            for each in peers(50, server.grpc, lambda peer: None):
                with each:
                    begun = time.monotonic()
                    ask(each)
                    slowest = max(slowest, time.monotonic() - begun)
            gone = select.poll()
            for each in made:
                gone.register(each, select.POLLRDHUP)
            alive = len(made) - len(gone.poll(0))
            return Figure(f"{grown:.0f} MiB ({grown * 1024 / max(alive, 1):.1f} KiB each), {alive} open in addition to {len(warm)}; "
                          f"slowest of 50 new connections {slowest * 1000:.1f} ms",
                          alive == 10000 and grown <= 160 and slowest < 0.01)
    finally:
        server.kill()


# --- 17

GETS = b"GET /nowhere HTTP/1.1\r\nHost: h\r\n\r\n" * 2000
SLOW = {  # the first bytes, and then a byte each second; "" sends nothing
    "head": ("http", b"POST /v1/traces HTTP/1.1\r\nHost: h\r\nX: ", b"x"),
    "body": ("http", b"POST /v1/traces HTTP/1.1\r\nHost: h\r\nContent-Length: 999999\r\n\r\n", b"x"),
    "nothing": ("grpc", b"", b""),
    "preface": ("grpc", PREFACE[:10], b""),
    "half a frame": ("grpc", PREFACE + frame(SETTINGS)[:5], b""),
    "h2 body": ("grpc", whole_request()[:-len(BODY)], b""),
    "TLS": ("tls", bytes.fromhex("160301020001"), b"\0"),
    "reader": ("http", GETS, GETS),  # a client that does not read
}


def p99(*addresses, rounds=11, n=100):
    """Measures all alternately, so that other load on the machine affects all. Returns the median
    of the rounds for each, since such load comes in bursts."""
    took = {each: [] for each in addresses}
    for _ in range(rounds * n):
        for address in addresses:
            begun = time.monotonic()
            try:
                clients.http(address, TRACES.path, BODY).expect_ok()
                took[address].append(time.monotonic() - begun)
            except OSError:
                took[address].append(float("inf"))  # not served at all
    return [statistics.median(sorted(each[at:at + n])[n * 99 // 100] for at in range(0, rounds * n, n))
            for each in took.values()]


def slow_peers(kind, n, addresses):
    where, first, _ = SLOW[kind]

    def begin(peer):
        peer.setblocking(False)
        with contextlib.suppress(OSError):
            peer.send(first)
    return list(peers(n, addresses[where], begin, 4096 if kind == "reader" else None))


def trickle(crowd, seconds):
    """Returns {kind: seconds until its last one was closed}, and how many of each were not."""
    begun = time.monotonic()
    poll, kinds, left, last = select.poll(), {}, {}, {}
    for kind, sockets in crowd.items():
        left[kind] = len(sockets)
        for each in sockets:
            kinds[each.fileno()] = (kind, each)
            poll.register(each, select.POLLRDHUP)
    while time.monotonic() - begun < seconds and any(left.values()):
        until_next = time.monotonic() + 1
        for fd, _ in poll.poll(1000):
            kind, _ = kinds.pop(fd)
            poll.unregister(fd)
            left[kind] -= 1
            last[kind] = time.monotonic() - begun
        for kind, each in list(kinds.values()):
            with contextlib.suppress(OSError):
                each.send(SLOW[kind][2])
        time.sleep(max(0, until_next - time.monotonic()))
    return last, left


@line(17, "1,000 slow clients of each kind (they send a request head, a body, an HTTP/2 preface, a frame or a TLS "
      "handshake slowly, or read slowly, ...)",
      "all are disconnected within 30 s; <= 256 KiB of memory for each; the p99 latency of a healthy client (the median "
      "of eleven rounds of 100 requests) at most doubles, or stays below 5 ms, one loop iteration")
def slow(folder, fast):
    names = Authority(folder / "pki").server()
    config = pipelines({"nop": {}})
    config["receivers"]["otlp/tls"] = {"protocols": {"http": {
        "endpoint": "127.0.0.1:0", "tls": {"cert_file": str(names.cert), "key_file": str(names.key)}}}}
    for pipeline in config["service"]["pipelines"].values():
        pipeline["receivers"] = ["otlp", "otlp/tls"]
    server, alone = Braid(config, folder / "braid"), Braid(pipelines({"nop": {}}), folder / "alone")
    crowd = {}
    try:
        addresses = {"http": server.http, "grpc": server.grpc, "tls": server.address("http", "receiver/otlp/tls")}
        clients.http(server.http, TRACES.path, BODY).expect_ok()
        held = {}  # in KiB, by kind
        for kind in SLOW:
            before = memory_mib(server.process.pid, "VmRSS")
            crowd[kind] = slow_peers(kind, 1000, addresses)
            clients.http(server.http, TRACES.path, BODY).expect_ok()  # the server has read everything before it
            held[kind] = (memory_mib(server.process.pid, "VmRSS") - before) * 1024 / 1000
        calm, busy = p99(alone.http, server.http)
        most = max(held, key=held.get)
        last, left = trickle(crowd, 45)
        open_ = ", ".join(f"{n} of {kind}" for kind, n in left.items() if n)
        latest = max(last.values(), default=0)
        return Figure(f"{'open after 45 s: ' + open_ if open_ else f'all disconnected after {latest:.0f} s'}; "
                      f"{held[most]:.1f} KiB for each client of the kind that takes most memory ({most}); "
                      f"p99 {busy * 1000:.1f} ms, without slow clients {calm * 1000:.1f} ms",
                      not open_ and int(latest) <= 30 and held[most] <= 256 and busy <= max(2 * calm, 0.005))
    finally:
        for sockets in crowd.values():
            for each in sockets:
                each.close()
        server.kill()
        alone.kill()
