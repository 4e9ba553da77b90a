# SPDX-License-Identifier: Apache-2.0
"""The Debian package: built from the binary under test, installed in a root of its own, and removed again."""

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
    """dpkg for a folder that has nothing but its own records: what the package depends on is not in it."""
    for folder in ("info", "updates", "triggers"):
        (root / "var/lib/dpkg" / folder).mkdir(parents=True, exist_ok=True)
    (root / "var/lib/dpkg/status").touch()
    (root / "var/lib/dpkg/available").touch()
    return run("dpkg", f"--root={root}", "--force-depends", "--force-not-root", "--force-script-chrootless", "--no-triggers",
               f"--log={root}/dpkg.log", *arguments)


def test_installs_and_goes(package, tmp_path):
    dpkg(tmp_path, "--install", package)
    assert run(tmp_path / "usr/bin/braid", "--version").startswith("braid ")
    config = tmp_path / "etc/braid/braid.yaml"
    assert config.is_file()
    assert "Status: install ok installed" in (tmp_path / "var/lib/dpkg/status").read_text()
    dpkg(tmp_path, "--purge", "braid")
    left = [path for path in tmp_path.rglob("*") if path.is_file() and "braid" in path.name]
    assert left == []


def test_depends_on_what_it_is_linked_with(package):
    depends = run("dpkg-deb", "--field", package, "Depends")
    for library in ("libc6", "libuv1", "libnghttp2-14", "libsqlite3-0", "libzstd1", "libjansson4"):
        assert re.search(rf"\b{re.escape(library)}\b", depends), depends


def test_its_config_is_valid(tmp_path):
    text = (PACKAGING / "braid.yaml").read_text().replace("/var/lib/braid", str(tmp_path))
    text = re.sub(r":(4317|4318|4040|3200)\b", ":0", text).replace("port: 8888", "port: 0")
    run(BINARY, "validate", "--config", f"yaml:{text}")


def test_the_unit_names_what_the_package_has(package):
    files = {line.split()[-1].lstrip(".") for line in run("dpkg-deb", "--contents", package).splitlines()}
    unit = (PACKAGING / "braid.service").read_text()
    for path in re.findall(r"^Exec\w+=(\S+)", unit, re.M) + re.findall(r"--config (\S+)", unit):
        assert path in files
    assert {"/usr/share/man/man1/braid.1.gz", "/usr/share/man/man5/braid.yaml.5.gz"} <= files


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
    script = (f'. {folder}/braid.bash; COMP_WORDS=({" ".join(words)} ""); COMP_CWORD={len(words)}; _braid; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    return run("bash", "-c", script, env={"PATH": os.environ["PATH"]}).split()


def test_completion(tmp_path):
    run(PACKAGING / "manual", BINARY, tmp_path)
    assert {"validate", "query", "migrate", "components", "--config"} <= set(complete(tmp_path, "braid"))
    assert complete(tmp_path, "braid", "query") == ["spans", "trace", "profile", "top", "diff"]
    assert "--min-duration" in complete(tmp_path, "braid", "query", "spans")


def test_sbom_names_the_libraries():
    bom = json.loads(run(PACKAGING / "sbom", BINARY))
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.5")
    purls = [component["purl"] for component in bom["components"]]
    assert any(purl.startswith("pkg:deb/debian/libuv1") for purl in purls)
    assert len(purls) == len(set(purls))
