# SPDX-License-Identifier: Apache-2.0
"""Makes certificates with the openssl command: an authority, and valid and invalid certificates
signed by it."""

import dataclasses
import pathlib
import subprocess


@dataclasses.dataclass(frozen=True)
class Names:
    cert: pathlib.Path
    key: pathlib.Path


CONFIG = """
[ca]
default_ca = own
[own]
database = {folder}/index
serial = {folder}/serial
new_certs_dir = {folder}
certificate = {folder}/ca.pem
private_key = {folder}/ca.key
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
"""


def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True, stdin=subprocess.DEVNULL)


class Authority:
    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self.cert = folder, folder / "ca.pem"
        (folder / "index").write_text("")
        (folder / "serial").write_text("01")
        (folder / "config").write_text(CONFIG.format(folder=folder))
        self._request("ca", "/CN=tests", "-x509", "-days", 30, "-addext", "basicConstraints=critical,CA:true",
                      out="ca.pem")

    def _request(self, name, subject, *more, out):
        key = self._folder / f"{name}.key"
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key,
                "-out", self._folder / out, "-subj", subject, *more)
        return key

    def issue(self, name, extensions, start="20200101000000Z", end="20491231000000Z"):
        key = self._request(name, f"/CN={name}", out=f"{name}.csr")
        (self._folder / f"{name}.ext").write_text("\n".join(extensions) + "\n")
        cert = self._folder / f"{name}.pem"
        openssl("ca", "-batch", "-notext", "-config", self._folder / "config", "-in", self._folder / f"{name}.csr",
                "-out", cert, "-startdate", start, "-enddate", end, "-extfile", self._folder / f"{name}.ext")
        return Names(cert, key)

    def server(self):
        return self.issue("server", ["subjectAltName=DNS:localhost,IP:127.0.0.1", "extendedKeyUsage=serverAuth"])

    def client(self, name="client"):
        return self.issue(name, ["extendedKeyUsage=clientAuth"])

    def bad_clients(self):
        """Returns {reason: certificate} of invalid client certificates."""
        alone = self._request("alone", "/CN=client", "-x509", "-days", 30, out="alone.pem")
        middle = self.issue("middle", ["basicConstraints=CA:false", "extendedKeyUsage=clientAuth"])
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                self._folder / "below.key", "-out", self._folder / "below.csr", "-subj", "/CN=below")
        openssl("x509", "-req", "-in", self._folder / "below.csr", "-CA", middle.cert, "-CAkey", middle.key,
                "-CAcreateserial", "-out", self._folder / "below.leaf", "-days", 30)
        below = self._folder / "below.pem"
        below.write_text((self._folder / "below.leaf").read_text() + middle.cert.read_text())
        return {
            "expired": self.issue("expired", ["extendedKeyUsage=clientAuth"], end="20200102000000Z"),
            "not yet valid": self.issue("early", ["extendedKeyUsage=clientAuth"], start="20480101000000Z"),
            "for servers": self.issue("wrong", ["extendedKeyUsage=serverAuth"]),
            "for code": self.issue("code", ["extendedKeyUsage=codeSigning"]),
            "signed by itself": Names(self._folder / "alone.pem", alone),
            "signed by a leaf": Names(below, self._folder / "below.key"),
        }
