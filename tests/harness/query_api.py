# SPDX-License-Identifier: Apache-2.0
"""A server with a store and its query API."""

import json
import urllib.error
import urllib.parse
import urllib.request

import pytest

import clients
from braid import DEADLINE_S, until
from otlp import PROFILES, TRACES


class QueryApi:
    """A server and its query API."""

    def __init__(self, server):
        self.server, self.address = server, server.address("http", "extension/query")

    def send(self, *requests):
        for request in requests:
            signal = TRACES if hasattr(request, "resource_spans") else PROFILES
            clients.grpc(self.server.grpc, signal, request.SerializeToString()).expect_ok()

    def raw(self, path, **params):
        query = urllib.parse.urlencode(params)
        with urllib.request.urlopen(f"http://{self.address}{path}?{query}", timeout=DEADLINE_S) as answer:
            return answer.headers, answer.read()

    def get(self, path, **params):
        return json.loads(self.raw(path, **params)[1])

    def refused(self, path, **params):
        with pytest.raises(urllib.error.HTTPError) as failure:
            self.raw(path, **params)
        return failure.value.code, json.loads(failure.value.read())

    def any(self, path, **params):
        """Returns (status, JSON) of an answer with any status."""
        try:
            return 200, self.get(path, **params)
        except urllib.error.HTTPError as failure:
            return failure.code, json.loads(failure.read())

    def post(self, path, message):
        request = urllib.request.Request(f"http://{self.address}{path}", json.dumps(message).encode(),
                                         {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return json.load(answer)

    def braid(self, path, **params):
        return self.get(f"/api/braid/{path}", **params)

    def stored(self, n_samples):
        until(lambda: self.braid("status")["store"]["samples"] >= n_samples, f"{n_samples} samples")
