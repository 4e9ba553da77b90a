# SPDX-License-Identifier: Apache-2.0
"""record.py PORT DIRECTORY SECONDS: writes every OTLP/gRPC request as it came, and answers that all is well."""

import concurrent.futures
import gzip
import pathlib
import sys
import time

import grpc


class Recorder(grpc.GenericRpcHandler):
    def __init__(self, directory):
        self.directory, self.count = pathlib.Path(directory), 0

    def service(self, _):
        return grpc.unary_unary_rpc_method_handler(self.take)

    def take(self, request, _):
        self.count += 1
        (self.directory / f"{self.count}.pb.gz").write_bytes(gzip.compress(request, mtime=0))
        return b""


def main(port, directory, seconds):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((Recorder(directory), ))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    time.sleep(float(seconds))
    server.stop(1).wait()


main(*sys.argv[1:])
