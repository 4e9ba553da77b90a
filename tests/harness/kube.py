# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes API, if its binaries are given: KUBE_APISERVER and ETCD name programs built from k8s.io/kubernetes
and go.etcd.io/etcd. No scheduler, controller or kubelet runs, so a test makes every object and sets every status."""

import json
import os
import ssl
import subprocess
import urllib.error
import urllib.request

import certs
from braid import DEADLINE_S
from peers import Peer, free_ports, ready

KUBE_APISERVER, ETCD = os.environ.get("KUBE_APISERVER"), os.environ.get("ETCD")

AUDIT = """{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata",
"omitStages": ["RequestReceived", "ResponseStarted"]}]}"""


class Api:
    """An etcd and a kube-apiserver, which can be stopped and started again with the same data and address."""

    def __init__(self, folder):
        folder.mkdir(parents=True)
        self.folder = folder
        self.account = folder / "account"
        self.account.mkdir()
        self.key = certs.self_signed(self.account)
        (self.account / "server.crt").rename(self.account / "ca.crt")
        subprocess.run(["openssl", "genrsa", "-out", folder / "sa.key", "2048"], check=True, capture_output=True,
                       timeout=DEADLINE_S)
        (folder / "tokens").write_text('admin,admin,admin,"system:masters"\n')
        (folder / "audit.json").write_text(AUDIT)
        self.context = ssl.create_default_context(cafile=self.account / "ca.crt")
        client, peer, self.port = free_ports(3)
        self.etcd_address = f"http://127.0.0.1:{client}"
        self.etcd = Peer([ETCD, f"--data-dir={folder / 'etcd'}", f"--listen-client-urls={self.etcd_address}",
                          f"--advertise-client-urls={self.etcd_address}", f"--listen-peer-urls=http://127.0.0.1:{peer}"],
                         folder / "etcd-log", client)
        self.start()

    def start(self, **flags):
        options = {"etcd_servers": self.etcd_address, "bind_address": "127.0.0.1", "secure_port": self.port,
                   "advertise_address": "127.0.0.1", "cert_dir": self.folder / "certs",
                   "tls_cert_file": self.account / "ca.crt", "tls_private_key_file": self.key,
                   "service_account_issuer": "https://kubernetes.default.svc",
                   "service_account_key_file": self.folder / "sa.key",
                   "service_account_signing_key_file": self.folder / "sa.key",
                   "token_auth_file": self.folder / "tokens", "authorization_mode": "RBAC",
                   "disable_admission_plugins": "ServiceAccount", "service_cluster_ip_range": "10.96.0.0/16",
                   "endpoint_reconciler_type": "none", "audit_policy_file": self.folder / "audit.json",
                   "audit_log_path": self.folder / "audit.log", **flags}
        self.server = Peer([KUBE_APISERVER, *(f"--{name.replace('_', '-')}={value}" for name, value in options.items())],
                           self.folder / "log", self.port)
        wanted = ("/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system")
        ready(self.server, lambda: all(self.call("GET", path)[0] == 200 for path in wanted), "the Kubernetes API")

    def stop(self):
        self.server.stop(kill=False)

    def end(self):
        self.stop()
        self.etcd.stop()

    def call(self, method, path, body=None):
        """Returns (status, JSON or text) of a request with the permissions of an administrator."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}",
                                         None if body is None else json.dumps(body).encode(), method=method,
                                         headers={"authorization": "Bearer admin", "content-type": kind})
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S, context=self.context) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as failure:
            status, text = failure.code, failure.read()
        except OSError as failure:
            return 0, str(failure)
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text.decode()

    def do(self, method, path, body=None):
        """Returns the object in the answer of a request that must succeed."""
        status, answer = self.call(method, path, body)
        assert 200 <= status < 300, (method, path, answer)
        return answer

    def log_in(self, rules):
        """Makes a service account with the permissions `rules`, and writes its token to the directory `account`."""
        name = {"metadata": {"name": "braid"}}
        roles = "/apis/rbac.authorization.k8s.io/v1"
        account = "/api/v1/namespaces/default/serviceaccounts"
        self.do("POST", account, name)
        self.do("POST", f"{roles}/clusterroles", name | {"rules": rules})
        self.do("POST", f"{roles}/clusterrolebindings", name | {
            "subjects": [{"kind": "ServiceAccount", "name": "braid", "namespace": "default"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "braid"}})
        token = self.do("POST", f"{account}/braid/token", {"spec": {}})["status"]["token"]
        (self.account / "token").write_text(token)

    def add_pod(self, name, ip, owner=None, **labels):
        """Makes a pod with a status as of a kubelet. Returns its uid."""
        pods = "/api/v1/namespaces/shop/pods"
        owners = [{"apiVersion": "apps/v1", "kind": owner["kind"], "name": owner["metadata"]["name"],
                   "uid": owner["metadata"]["uid"], "controller": True}] if owner else []
        pod = self.do("POST", pods, {"metadata": {"name": name, "labels": labels, "ownerReferences": owners},
                                     "spec": {"nodeName": "node-1",
                                              "containers": [{"name": "web", "image": "registry:5000/shop/web:1.2"}]}})
        self.do("PATCH", f"{pods}/{name}/status", {"status": {
            "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "startTime": "2026-01-02T03:04:06Z",
            "containerStatuses": [{"name": "web", "image": "registry:5000/shop/web:1.2", "restartCount": 1, "ready": True,
                                   "imageID": "", "containerID": "containerd://c1"}]}})
        return pod["metadata"]["uid"]

    def audit(self):
        """Returns the (URI, status) of the requests of the service account, in the order of their ends."""
        lines = map(json.loads, (self.folder / "audit.log").read_text().splitlines())
        return [(line["requestURI"], line["responseStatus"]["code"]) for line in lines
                if line["user"].get("username") == "system:serviceaccount:default:braid"]
