# SPDX-License-Identifier: Apache-2.0
"""Lines about durable queues and their disk: crashes and errors at every call, power cuts.

strace injects the crashes and errors, and runs beside the server (-D), so that the server is the
child of the test.
"""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import time

import clients
from braid import until
from card import Figure, joined, line
from durable_bed import DOWN, Numbers, arrived, backend, config, emptied, missing, request, running
from otlp import TRACES
from sink import Reply

# All calls by which a log may change files; those that it does not use are not reached.
CHANGES = ("pwritev", "pwritev2", "pwrite64", "write", "writev", "fdatasync", "fsync", "sync_file_range", "ftruncate",
           "fallocate", "rename", "renameat2", "unlink", "unlinkat", "mkdir", "io_uring_enter")
REQUESTS = 8
POINTS_MAX = 60  # of one call
STRACE = shutil.which("strace")
ONE_THREAD = {"UV_THREADPOOL_SIZE": "1"}  # strace counts the calls of each thread
NO_STRACE = Figure("skipped: strace is not installed", False, skipped=True)


def tracer(folder, call, fault, when):
    """Returns the command that runs a program with a fault in call number `when` (`3`, or `3+`)."""
    return (STRACE, "-D", "-f", "-qq", "-o", str(folder / "strace"), "-e", f"trace={call}",
            "-e", f"inject={call}:{fault}:when={when}")


def injected(folder):
    """Returns how often the fault has happened."""
    with contextlib.suppress(OSError):
        return (folder / "strace").read_text(errors="replace").count("INJECTED")
    return 0


def send(server, numbers):
    """Returns the numbers that were acknowledged; ends early if the server does."""
    taken = set()
    for number in numbers:
        if server.process.poll() is not None:
            break
        if clients.grpc(server.grpc, TRACES, request(number)).ok:
            taken.add(number)
    return taken


# --- 6


def crash_at(folder, call, n):
    """Crashes in call number n. Returns whether it was reached, and how many requests were lost."""
    with backend(Reply() if n % 2 else DOWN) as sink:
        made, taken = config(sink, folder / "queue"), set()
        with running(made, folder / "one", env=ONE_THREAD,
                     under=tracer(folder, call, "signal=SIGKILL", n)) as server:
            with contextlib.suppress(AssertionError):  # it may end before it listens
                taken = send(server, range(1, REQUESTS + 1))
                until(lambda: server.process.poll() is not None, "the crash", 0.3)
            reached = server.process.poll() is not None
            server.kill()
        sink.reply = Reply()
        with running(made, folder / "two") as server:
            return reached, missing(server, sink, taken), len(taken)


def restart_seconds(folder, mib):
    """Returns the size of a log in MiB, and the shortest of three times from the start until the server
    listens; the machine may be busy."""
    with backend(DOWN) as sink:
        made = config(sink, folder / "queue", max_size=4 << 30)
        made["receivers"]["otlp"]["protocols"]["grpc"]["max_recv_msg_size_mib"] = 8
        body = request(1, 4 << 20)
        with running(made, folder / "one") as server:
            for _ in range(mib // 4):
                clients.grpc(server.grpc, TRACES, body).expect_ok()
            server.kill()
        size = sum(each.stat().st_size for each in (folder / "queue").glob("*.wal"))
        times = []
        for n in range(3):
            begun = time.monotonic()
            with running(made, folder / f"again{n}") as server:
                server.address("grpc")
                times.append(time.monotonic() - begun)
        return size >> 20, min(times)


@line(6, "a crash at each system call by which the durable queue changes files; a restart with 1 GiB of stored requests",
      "0 acknowledged requests lost; the restart takes at most 1 s")
def crashes(folder, fast):
    if not STRACE:
        return NO_STRACE
    points, lost, acknowledged = {}, 0, 0
    for call in CHANGES:
        unreached = 0  # in a row: with a backend that is up, fewer calls may be needed
        for n in range(1, POINTS_MAX + 1):
            reached, gone, taken = crash_at(folder / f"{call}{n}", call, n)
            lost, acknowledged = lost + gone, acknowledged + taken
            unreached = 0 if reached else unreached + 1
            points[call] = points.get(call, 0) + reached
            if unreached == 2:
                break
    points = {call: n for call, n in points.items() if n}
    mib, took = restart_seconds(folder / "large", 1024)
    where = ", ".join(f"{call} {n}" for call, n in points.items())
    return joined(Figure(f"a crash at {sum(points.values())} calls ({where}): {lost} of {acknowledged} acknowledged requests lost",
                         lost == 0 and len(points) > 2),
                  Figure(f"a restart with {mib} MiB: {took:.2f} s", took <= 1))


# --- 8

ERRORS = (("fdatasync", "EIO"), ("fsync", "EIO"), ("pwritev", "EIO"), ("pwritev", "ENOSPC"), ("pwritev2", "EIO"),
          ("pwritev2", "ENOSPC"), ("pwrite64", "EIO"), ("pwrite64", "ENOSPC"), ("ftruncate", "EIO"), ("fallocate", "ENOSPC"),
          ("unlink", "EIO"), ("unlinkat", "EIO"))
READS = ("pread64", "preadv", "preadv2")


class Errors:
    """What the errors have done, over all places."""

    def __init__(self):
        self.places, self.no_start, self.ended, self.stuck, self.lost, self.acknowledged = 0, 0, 0, 0, 0, 0
        self.silent = 0  # neither a metric nor a line of the log

    def figure(self):
        bad = self.ended + self.stuck + self.lost + self.silent
        return Figure(f"errors of {self.places} calls: {self.lost} of {self.acknowledged} acknowledged requests lost; {self.ended} "
                      f"errors ended the process, after {self.stuck} it did not accept requests again, {self.silent} were not reported; "
                      f"because of {self.no_start}, Braid did not start and reported why",
                      bad == 0 and self.places > 10)

    def run(self, folder, call, error, when):
        """Injects an error. Returns whether the call was reached."""
        with backend(DOWN) as sink:
            made = config(sink, folder / "queue")
            with running(made, folder / "one", env=ONE_THREAD,
                         under=tracer(folder, call, f"error={error}", when)) as server:
                taken = self._serve(server, folder)
                if not injected(folder):
                    return False
                server.kill()
            sink.reply = Reply()
            self.places += 1
            self.acknowledged += len(taken)
            with running(made, folder / "two") as server:
                self.lost += missing(server, sink, taken)
            return True

    def run_read(self, folder, call, when):
        """Injects an error into a read after a restart. Returns whether the call was reached."""
        with backend(DOWN) as sink:
            made = config(sink, folder / "queue")
            with running(made, folder / "one") as server:
                taken = send(server, range(1, REQUESTS + 1))
                server.kill()
            sink.reply = Reply()
            with running(made, folder / "two", env=ONE_THREAD, under=tracer(folder, call, "error=EIO", when)) as server:
                missing(server, sink, taken, 5)
                if not injected(folder):
                    return False
                if "shared librar" in server.log():  # of the dynamic linker
                    return True
                self.places += 1
                self.acknowledged += len(taken)
                code = server.process.poll()
                self.no_start += code == 1 and "Input/output error" in server.log()
                self.ended += code not in (None, 1)
                server.kill()
            with running(made, folder / "three") as server:
                self.lost += missing(server, sink, taken)
            return True

    def _reported(self, server):
        """Returns whether the error is counted or logged. The metric is updated every second, and the
        log is written by another thread."""
        def look():
            return sum(server.metrics()["braid_storage_errors"].values()) or "file_storage" in server.log()
        with contextlib.suppress(AssertionError):
            return bool(until(look, "the report", 3))
        return False

    def _serve(self, server, folder):
        try:
            taken = send(server, range(1, REQUESTS + 1))
        except AssertionError:  # it did not start
            self.no_start += server.process.poll() == 1 and bool(server.log().strip())
            self.ended += server.process.poll() != 1
            return set()
        numbers = itertools.count(REQUESTS + 1)
        with contextlib.suppress(AssertionError):
            until(lambda: taken.update(send(server, [next(numbers)])) or max(taken, default=0) > REQUESTS, "healing", 5)
        self.ended += server.process.poll() is not None
        self.stuck += server.process.poll() is None and max(taken, default=0) <= REQUESTS
        if injected(folder) and server.process.poll() is None and len(taken & set(range(1, REQUESTS + 1))) < REQUESTS:
            self.silent += not self._reported(server)
        return taken


def full_disk(folder):
    """Fills a file system of 8 MiB, and lets the backend take the requests."""
    disk = folder / "disk"
    disk.mkdir(parents=True)
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], capture_output=True).returncode:
        return Figure("full disk: skipped, because only root can mount one", True)
    try:
        with backend(DOWN) as sink, running(config(sink, disk / "queue", max_size=1 << 30), folder / "one") as server:
            taken, n = set(), 0
            while n < 400:
                n += 1
                answer = clients.grpc(server.grpc, TRACES, request(n, 100000))
                if not answer.ok:
                    break
                taken.add(n)
            refused = answer.code
            sink.reply = Reply()
            lost = missing(server, sink, taken)
            begun = time.monotonic()
            until(lambda: clients.grpc(server.grpc, TRACES, request(1000)).ok, "healing", 20)
            took = time.monotonic() - begun
            return Figure(f"full disk: {len(taken)} requests accepted, then {refused}; {lost} lost; accepts requests {took:.1f} s after "
                          "the disk has room",
                          refused == "UNAVAILABLE" and lost == 0 and took <= 5 and len(taken) > 10)
    finally:
        subprocess.run(["umount", "-l", disk])


@line(8, "an error of each system call by which the durable queue writes, syncs or reads files; a full disk",
      "0 acknowledged requests lost; Braid keeps running, accepts requests again within 5 s, and reports the error")
def io_errors(folder, fast):
    if not STRACE:
        return NO_STRACE
    errors = Errors()
    for call, error in ERRORS:
        for n in range(1, POINTS_MAX + 1):
            if not errors.run(folder / f"{call}{error}{n}", call, error, n):
                break
    for call in READS:
        for n in range(1, POINTS_MAX + 1):
            if not errors.run_read(folder / f"{call}{n}", call, n):
                break
    return joined(errors.figure(), full_disk(folder / "full"))


# --- 7

CUTS = 50
INTERVAL_CUTS = 10
IMAGE_MIB = 64


class Disk:
    """An ext4 file system in a file. A copy of the file is what a power cut leaves: it lacks all that
    only the page cache has."""

    def __init__(self, folder):
        self.image, self.copy = folder / "image", folder / "copy"
        self.mounted, self.after = folder / "mounted", folder / "after"
        for each in (self.mounted, self.after):
            each.mkdir(parents=True)
        with open(self.image, "wb") as file:
            file.truncate(IMAGE_MIB << 20)

    def make(self):
        """Returns whether the machine can do it."""
        return (not os.geteuid() and subprocess.run(["mkfs.ext4", "-q", self.image], capture_output=True).returncode == 0
                and self.mount(self.image, self.mounted))

    def mount(self, image, at):
        return subprocess.run(["mount", "-o", "loop", image, at], capture_output=True).returncode == 0

    def cut(self):
        subprocess.run(["cp", "--sparse=always", self.image, self.copy], check=True)

    def close(self):
        for each in (self.mounted, self.after):
            subprocess.run(["umount", each], capture_output=True)


def cut(disk, folder, first, seconds, **storage):
    """Cuts the power once. Returns the next number, the number of acknowledged requests, the ages in
    seconds of those that are lost, and whether the log was damaged."""
    with backend(DOWN) as sink:
        shutil.rmtree(disk.mounted / "queue", ignore_errors=True)
        with running(config(sink, disk.mounted / "queue", max_size=32 << 20, **storage), folder / "one") as server:
            load = Numbers(server.grpc, first)
            time.sleep(seconds + first % 7 * 0.1)
            server.process.send_signal(signal.SIGSTOP)
            before, now = dict(load.acknowledged), time.monotonic()
            disk.cut()
            server.kill()
            load.stop()
        if not disk.mount(disk.copy, disk.after):
            raise RuntimeError("the copy cannot be mounted")
        try:
            sink.reply = Reply()
            with running(config(sink, disk.after / "queue", max_size=32 << 20, **storage), folder / "two") as server:
                until(lambda: emptied(server), "the stored requests", 60)
                numbers = set(arrived(sink))
                damaged = sum(server.metrics()["braid_storage_corrupt"].values())
        finally:
            subprocess.run(["umount", disk.after], check=True)
    return load.next, len(before), [now - at for number, at in before.items() if number not in numbers], damaged


@line(7, "a power cut under load (simulated by a copy of the disk without the page cache)",
      "`sync: always`: 0 acknowledged requests lost; `sync: interval`: only requests that were acknowledged within the "
      "interval (1 s) before the cut may be lost")
def power(folder, fast):
    disk = Disk(folder)
    try:
        if not disk.make():
            return Figure("skipped: needs root, mkfs.ext4 and loop devices", False, skipped=True)
        figures = []
        for sync, rounds, seconds, window in (("always", CUTS, 0.6, 0), ("interval", INTERVAL_CUTS, 2.5, 1.5)):
            first, acknowledged, lost, damaged = 1, 0, [], 0
            for n in range(rounds):
                first, taken, ages, bad = cut(disk, folder / f"{sync}{n}", first, seconds, sync=sync)
                acknowledged, lost, damaged = acknowledged + taken, lost + ages, damaged + bad
            late = sum(age > window for age in lost)
            oldest = f", the oldest acknowledged {max(lost):.2f} s before the cut" if lost else ""
            figures.append(Figure(f"{sync}: {rounds} cuts, {len(lost)} of {acknowledged} acknowledged requests lost{oldest}; "
                                  f"{damaged:.0f} damaged places in the logs",
                                  late == 0 and acknowledged > rounds))
        return joined(*figures)
    finally:
        disk.close()
