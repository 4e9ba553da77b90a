# SPDX-License-Identifier: Apache-2.0
"""A receiver that checks its clients, and requests to it."""

import requests

import clients
import otlp
from braid import DEADLINE_S, exporter, pipelines
from otlp import TRACES

TOKEN = "canary-bearer-5c0f"
BEARER = {"bearertokenauth": {"token": TOKEN}}
AUTH = {"auth": {"authenticator": "bearertokenauth"}}


def guarded(sink, extensions=None, **more):
    """Returns a config whose receiver checks clients on both protocols."""
    extensions = extensions or BEARER
    auth = {"auth": {"authenticator": next(iter(extensions))}}
    return pipelines(exporter("grpc", sink), extensions=extensions, grpc=auth, http=auth, **more)


def send_grpc(server, *metadata, signal=TRACES):
    return clients.grpc(server.grpc, signal, otlp.request_of(signal, 3).SerializeToString(), metadata)


def post(server, signal=TRACES, path=None, **more):
    return requests.post(f"http://{server.http}{path or signal.path}", otlp.request_of(signal, 3).SerializeToString(),
                         headers={"content-type": "application/x-protobuf", **more.pop("headers", {})},
                         timeout=DEADLINE_S, **more)


def rejected(server, reason):
    """Returns how many requests the metrics count as rejected for a reason."""
    counts = server.metrics().get("braid_auth_rejected", {})
    return sum(value for labels, value in counts.items() if f'reason="{reason}"' in labels)
