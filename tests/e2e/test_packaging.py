# SPDX-License-Identifier: Apache-2.0
"""The Debian package: built from the binary under test, installed in a separate root directory, and
removed again."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from braid import BINARY

ROOT = pathlib.Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"

pytestmark = [pytest.mark.release_only,
              pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="not a Debian system")]


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    build, out = tmp_path_factory.mktemp("build"), tmp_path_factory.mktemp("out")
    shutil.copy(BINARY, build / "braid")
    run(PACKAGING / "deb", build, out)
    (made,) = out.glob("braid_*.deb")
    return made


def dpkg(root, *arguments):
    """Runs dpkg for a directory that contains only dpkg's records: dependencies of the package are
    not in it."""
    for folder in ("info", "updates", "triggers"):
        (root / "var/lib/dpkg" / folder).mkdir(parents=True, exist_ok=True)
    (root / "var/lib/dpkg/status").touch()
    (root / "var/lib/dpkg/available").touch()
    return run("dpkg", f"--root={root}", "--force-depends", "--force-not-root", "--force-script-chrootless", "--no-triggers",
               f"--log={root}/dpkg.log", *arguments)


def test_package_installs_and_is_removed(package, tmp_path):
    dpkg(tmp_path, "--install", package)
    assert re.fullmatch(r"braid \d+\.\d+\.\d+ \(commit ([0-9a-f]{12}|unknown)\)\n", run(tmp_path / "usr/bin/braid", "--version"))
    config = tmp_path / "etc/braid/braid.yaml"
    assert config.is_file()
    assert "Status: install ok installed" in (tmp_path / "var/lib/dpkg/status").read_text()
    dpkg(tmp_path, "--purge", "braid")
    remaining = [path for path in tmp_path.rglob("*") if path.is_file() and "braid" in path.name]
    assert remaining == []


def test_depends_on_what_it_is_linked_with(package):
    depends = run("dpkg-deb", "--field", package, "Depends")
    for library in ("libc6", "libuv1", "libnghttp2-14", "libsqlite3-0", "libzstd1", "libjansson4", "librdkafka1"):
        assert re.search(rf"\b{re.escape(library)}\b", depends), depends


def test_its_config_is_valid(tmp_path):
    text = (PACKAGING / "braid.yaml").read_text().replace("/var/lib/braid", str(tmp_path))
    text = re.sub(r":(4317|4318|4040|3200)\b", ":0", text).replace("port: 8888", "port: 0")
    run(BINARY, "validate", "--config", f"yaml:{text}")


def test_the_unit_names_files_of_the_package(package):
    files = {line.split()[-1].lstrip(".") for line in run("dpkg-deb", "--contents", package).splitlines()}
    unit = (PACKAGING / "braid.service").read_text()
    for path in re.findall(r"^ExecStart\w*=(\S+)", unit, re.M) + re.findall(r"--config (\S+)", unit):
        assert path in files
    assert {"/usr/share/man/man1/braid.1.gz", "/usr/share/man/man5/braid.yaml.5.gz"} <= files


@pytest.mark.skipif(not shutil.which("lintian"), reason="lintian is not installed")
def test_lintian_finds_no_errors(package):
    run("lintian", "--allow-root", "--fail-on", "error", package)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_the_unit_is_hardened():
    report = run("systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", PACKAGING / "braid.service")
    assert float(re.search(r"exposure level for braid.service: ([0-9.]+)", report)[1]) <= 2.0


# Each maintainer script on a machine with systemd: its arguments, and the commands that it must run, in order.
SCRIPTS = [
    ("postinst", ["configure", ""], ["deb-systemd-helper enable", "deb-systemd-invoke start"]),
    ("postinst", ["configure", "0.0.9"], ["deb-systemd-helper enable", "deb-systemd-invoke restart"]),
    ("prerm", ["upgrade", "0.2.0"], []),
    ("prerm", ["remove"], ["deb-systemd-invoke stop"]),
    ("postrm", ["remove"], ["systemctl --system daemon-reload"]),
    ("postrm", ["purge"], ["systemctl --system daemon-reload", "deb-systemd-helper purge"]),
]


@pytest.mark.parametrize("script, arguments, expected", SCRIPTS)
def test_maintainer_scripts(tmp_path, script, arguments, expected):
    log = tmp_path / "log"
    for name in ("systemctl", "deb-systemd-helper", "deb-systemd-invoke", "rm"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{log}\n')
        (tmp_path / name).chmod(0o755)
    text = (PACKAGING / "scripts" / script).read_text()
    assert "-d /run/systemd/system" in text
    copy = tmp_path / script
    copy.write_text(text.replace("-d /run/systemd/system", f"-d {tmp_path}"))
    run("sh", copy, *arguments, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    ran = log.read_text() if log.exists() else ""
    at = 0
    for command in expected:
        at = ran.find(command, at) + 1
        assert at, (command, ran)
    assert ("deb-systemd-invoke" in ran) == any("deb-systemd-invoke" in command for command in expected)
    assert ("rm -rf /var/lib/braid" in ran) == (arguments[0] == "purge")


def test_manual_has_every_section(tmp_path):
    run(PACKAGING / "manual", BINARY, tmp_path)
    sections = re.findall(r"^\.SH (.*)$", (tmp_path / "braid.1").read_text(), re.M)
    assert set(sections) >= {"NAME", "SYNOPSIS", "OPTIONS", "EXAMPLES", "EXIT STATUS", "FILES", "ENVIRONMENT", "SIGNALS", "SEE ALSO"}


def test_manual_has_every_option(tmp_path):
    run(PACKAGING / "manual", BINARY, tmp_path)
    page = (tmp_path / "braid.yaml.5").read_text().replace("\\-", "-").replace("\\e", "\\")

    def names(options, prefix=""):
        for option in options:
            if option["type"] != "ignored":
                yield prefix + option["name"]
                yield from names(option.get("options", ()), prefix + option["name"] + ("[]." if option["type"] == "list" else "."))

    components = json.loads(run(BINARY, "components", "--json"))
    assert len(components) > 20
    for component in components:
        for name in names(component["options"]):
            assert f".B {name}\n" in page, (component["name"], name)


def complete(folder, *words):
    """Returns the shell's completions after `words`, in `folder`."""
    script = (f'. {folder}/braid.bash; COMP_WORDS=({" ".join(words)} ""); COMP_CWORD={len(words)}; _braid; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    return run("bash", "-c", script, cwd=folder, env={"PATH": os.environ["PATH"]}).split()


def test_completion(tmp_path):
    run(PACKAGING / "manual", BINARY, tmp_path)
    assert {"validate", "query", "migrate", "components", "--config"} <= set(complete(tmp_path, "braid"))
    assert complete(tmp_path, "braid", "query") == ["spans", "trace", "profile", "top", "diff"]
    assert "--min-duration" in complete(tmp_path, "braid", "query", "spans")
    (tmp_path / "saved.braid").touch()
    for command in ("open", "save", "migrate"):
        assert "saved.braid" in complete(tmp_path, "braid", command), command


def test_sbom_names_the_libraries():
    bom = json.loads(run(PACKAGING / "sbom", BINARY))
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.5")
    purls = [component["purl"] for component in bom["components"]]
    assert any(purl.startswith("pkg:deb/debian/libuv1") for purl in purls)
    assert len(purls) == len(set(purls))
