# SPDX-License-Identifier: Apache-2.0
"""Runs librdkafka's mock cluster, which speaks Kafka's protocol, and reads and writes its topics with
librdkafka's client (tests/support/kafka_tool.c)."""

import json
import os
import subprocess

from braid import ROOT

TOOL = str((ROOT / os.environ.get("BRAID_BUILD", "build") / "tests/support/kafka_tool").resolve())
PRODUCE, FETCH, OFFSET_COMMIT = 0, 1, 8  # API keys of the protocol
# error codes of the protocol
UNKNOWN_TOPIC, NOT_LEADER, TOO_LARGE, NOT_AUTHORIZED = 3, 6, 10, 29


class Cluster:
    def __init__(self, brokers=1):
        self.process = subprocess.Popen([TOOL, "mock", str(brokers)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.brokers = self.process.stdout.readline().strip()
        assert self.brokers

    def do(self, *words):
        """Runs a command of kafka_tool."""
        print(*words, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "ok\n", words

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _run(self, *words, **more):
        done = subprocess.run([TOOL, words[0], self.brokers, *map(str, words[1:])], check=True,
                              stdout=subprocess.PIPE, timeout=60, **more)
        return done.stdout

    def messages(self, topic, quiet_ms=1500):
        """Returns all messages of a topic: key and value are bytes, or None."""
        found = [json.loads(line) for line in self._run("dump", topic, quiet_ms).splitlines()]
        for each in found:
            for name in ("key", "value"):
                each[name] = None if each[name] is None else bytes.fromhex(each[name])
        return found

    def send(self, topic, body, key="-"):
        self._run("send", topic, key, input=body)

    def committed(self, group, topic, partitions):
        """Returns the offset that a group has committed for each partition; negative: none."""
        return [int(line) for line in self._run("committed", group, topic, partitions).split()]
