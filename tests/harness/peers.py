# SPDX-License-Identifier: Apache-2.0
"""Real servers for comparisons, if their binaries are given: PYROSCOPE and TEMPO name programs
built from github.com/grafana/pyroscope (2.x) and github.com/grafana/tempo (3.x). They listen
only on loopback."""

import json
import os
import socket
import subprocess
import urllib.error
import urllib.request

from braid import DEADLINE_S, until

PYROSCOPE, TEMPO = os.environ.get("PYROSCOPE"), os.environ.get("TEMPO")

START_S = 60.0


def free_ports(count):
    """Returns ports that are free now: these servers do not report the port that the system chose."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Peer:
    """A process with an HTTP address; its output is in `folder`/log."""

    def __init__(self, command, folder, port):
        folder.mkdir(parents=True, exist_ok=True)
        self.address = f"127.0.0.1:{port}"
        self._log = open(folder / "log", "ab")
        self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=self._log,
                                        stderr=subprocess.STDOUT)

    def call(self, path, body=None, kind="application/json", **headers):
        """Returns (status, body) of a GET, or of a POST of `body`."""
        request = urllib.request.Request(f"http://{self.address}{path}", body,
                                         {**({"content-type": kind} if body is not None else {}), **headers})
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as failure:
            return failure.code, failure.read()
        except OSError as failure:
            return 0, str(failure).encode()

    def stop(self, kill=True):
        if kill:
            self.process.kill()
        else:
            self.process.terminate()
        self.process.wait()
        self._log.close()


def pyroscope(folder, ports=None, **flags):
    """Starts a Pyroscope that accepts profiles of any age. flags: further options, `_` for `-` and
    `__` for `.`. With the same folder and ports (of `free_ports(4)`) it continues with the data
    of an earlier process."""
    http, grpc, raft, gossip = ports or free_ports(4)
    options = {
        "server.http-listen-address": "127.0.0.1", "server.http-listen-port": http,
        "server.grpc-listen-address": "127.0.0.1", "server.grpc-listen-port": grpc,
        "memberlist.bind-addr": "127.0.0.1", "memberlist.bind-port": gossip,
        "memberlist.advertise-addr": "127.0.0.1", "memberlist.advertise-port": gossip,
        "metastore.raft.bind-address": f"127.0.0.1:{raft}", "metastore.raft.advertise-address": f"127.0.0.1:{raft}",
        "metastore.raft.dir": folder / "raft", "metastore.raft.snapshots-dir": folder / "raft",
        "metastore.data-dir": folder / "metastore", "metastore.address": f"127.0.0.1:{grpc}",
        "query-backend.address": f"127.0.0.1:{grpc}", "compactor.data-dir": folder / "compactor",
        "architecture.storage": "v2", "querier.max-query-length": "0", "querier.max-query-lookback": "0",
        "storage.backend": "filesystem", "storage.filesystem.dir": folder / "blocks",
        "pyroscopedb.data-path": folder / "db", "self-profiling.disable-push": "true", "usage-stats.enabled": "false",
        "validation.reject-older-than": "0", **{name.replace("__", ".").replace("_", "-"): value
                                                for name, value in flags.items()}}
    for ring in ("compactor.ring", "distributor.ring", "overrides-exporter.ring", "query-frontend",
                 "query-scheduler.ring", "store-gateway.sharding-ring", "ingester.lifecycler",
                 "segment-writer.lifecycler"):
        options[f"{ring}.{'addr' if 'lifecycler' in ring else 'instance-addr'}"] = "127.0.0.1"
    command = [PYROSCOPE, "-target=all"] + [f"-{name}={value}" for name, value in options.items()]
    return Peer(command, folder, http)


TEMPO_CONFIG = """
server: {http_listen_address: 127.0.0.1, http_listen_port: %d, grpc_listen_address: 127.0.0.1, grpc_listen_port: %d}
distributor: {receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:%d"}}}}}
memberlist: {bind_addr: [127.0.0.1], bind_port: %d, advertise_addr: 127.0.0.1}
query_frontend: {query_end_cutoff: 0s}
usage_report: {reporting_enabled: false}
storage: {trace: {backend: local, local: {path: FOLDER/blocks}, wal: {path: FOLDER/wal}}}
live_store: {wal: {path: FOLDER/live}, shutdown_marker_dir: FOLDER/marker}
backend_scheduler: {local_work_path: FOLDER/work}
"""


def tempo(folder):
    """Starts a Tempo. Returns it and the address of its OTLP/HTTP receiver."""
    http, grpc, otlp, gossip = free_ports(4)
    folder.mkdir(parents=True, exist_ok=True)
    config = (TEMPO_CONFIG % (http, grpc, otlp, gossip)).replace("FOLDER", str(folder))
    (folder / "tempo.yaml").write_text(config)
    return Peer([TEMPO, f"-config.file={folder / 'tempo.yaml'}"], folder, http), f"127.0.0.1:{otlp}"


def ready(peer, condition, what):
    """Waits for condition(); fails with the process' output if it ended."""
    def look():
        if peer.process.poll() is not None:
            raise AssertionError(f"exit code {peer.process.returncode}: {what}")
        return condition()
    return until(look, what, START_S)


def as_json(body):
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("utf8", "replace")
