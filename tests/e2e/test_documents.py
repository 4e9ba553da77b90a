# SPDX-License-Identifier: Apache-2.0
"""Every command in the documents is run by a test, or its section states that it is not. A command is a line of a shell block, or
inline code that starts with a program of this repository. HOW lists, for each, RUN (this test runs it), NOT_RUN, or the file that
runs it and a text in that file. A command without an entry fails, and so does an entry without a command."""

import gzip
import pathlib
import re
import shutil
import subprocess
import typing

import pytest

import clients
from braid import BINARY, DEADLINE_S, pipelines
from otlp import PROFILES

pytestmark = pytest.mark.release_only

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md",
         *(page for name in ("using", "operating", "contributing") for page in sorted((ROOT / "docs" / name).glob("*.md")))]
MARK = "not run by the tests"  # in the section of a command that is not
RUN, NOT_RUN = object(), object()

OWN = r"(?:\./)?(?:braid|tests/\w+|scripts/\w+|build/\S+|bench/run|demo/run|packaging/deb)"
INLINE = re.compile(rf"`((?:[A-Z]+=\S+ )*(?:{OWN} [^`]+|(?:meson|ninja|gdb|curl) [^`]+|"
                    r"tests/(?:layers|names|links|lists|conditions|prose)|scripts/metrics))`")

HOW = [
    # The programs of this repository.
    (r"braid validate --config (FILE|braid\.yaml)", RUN),
    (r"braid print-config( --defaults)? --config FILE", RUN),
    (r"braid components( --json)?", RUN),
    (r"braid --(version|help)", RUN),
    (r"braid migrate collector\.yaml( --rest rest\.yaml( > braid\.yaml)?)?", RUN),
    (r"curl -s localhost:8888/metrics .*", RUN),
    (r"\./tests/run --help", RUN),
    (r"tests/(layers|names|links|lists)", "tests/meson.build::'layers', 'links', 'lists', 'names'"),
    (r"tests/conditions src/wire", RUN),
    (r"tests/lint( \S+)?", "tests/run::tests/lint"),
    (r"tests/(conditions|prose)", RUN),
    (r"tests/prose --list docs/using", RUN),
    (r"scripts/metrics( --check)?", RUN),
    (r"tests/scorecard .*", "tests/run::tests/scorecard"),
    (r"tests/fleet .*", "tests/e2e/test_fleet.py::def test_fleet"),
    (r"braid validate( --config /etc/braid/braid\.yaml)?", "tests/e2e/test_validate.py::def test_valid_tls_files"),
    (r"braid --config (URI|\w+\.yaml)", "tests/harness/braid.py::--config"),
    (r"braid --config collector\.yaml --skip-unsupported", "tests/e2e/test_migrate.py::def test_skip_unsupported"),
    (r"braid --set processors\.join\.hold=20s .*", "tests/e2e/test_quickstart.py::def test_marks_are_found_by_grafanas_query"),
    (r"(build/)?braid query( .*)?", "tests/e2e/test_quickstart.py::def test_demo"),
    (r"braid (open|save)( .*)?", "tests/e2e/test_replay.py::def test_saved_while_it_runs_and_opened_elsewhere"),
    (r"build/braid", "tests/e2e/test_quickstart.py::def test_logs_nothing"),
    (r"TEMPO_ENDPOINT=\S+ PYROSCOPE_ENDPOINT=\S+ build/braid --config config/examples/pyroscope\.yaml",
     "tests/e2e/test_examples.py::examples"),
    (r"OTEL_EXPORTER_OTLP_(ENDPOINT|PROTOCOL)=\S+", "tests/sdks/conftest.py::def recipe"),
    # Building and testing.
    (r"scripts/packages build page( tests)?", "tests/run::scripts/packages build"),
    (r"meson setup build( --werror)?( && ninja -C build( braid)?)?", "tests/run::meson setup"),
    (r"ninja -C build", "tests/run::ninja -C"),
    (r"build/tests/unit/app --mode write readmes", "tests/unit/app/test_readmes.c::--mode write"),
    (r"(FUZZ_SECONDS=\d+ )?(\./)?tests/run( (source gcc|gcc e2e|release|asan|fuzz|fuzz-long|page))?", "tests/run::usage: tests/run"),
    (r"FUZZ_SECONDS=\d+ tests/fuzz/long .*", "tests/run::tests/fuzz/long build-fuzz"),
    (r"ninja -C build && build/tests/.*", NOT_RUN),
    (r"meson test -C .*", NOT_RUN),
    (r"build/(tests|venv)/.*", NOT_RUN),
    (r"BRAID=.*", NOT_RUN),
    (r"(TEMPO|PYROSCOPE)=<binary> .*", NOT_RUN),
    (r"gdb .*", NOT_RUN),
    (r"\./demo/run", NOT_RUN),
    (r"npm .*--prefix web.*", NOT_RUN),
    (r"web/screenshots", NOT_RUN),
    (r"tests/page/lint( --fix)?", "tests/run::tests/page/lint"),
    (r"tests/page/run", "tests/run::tests/page/run"),
    # Deploying.
    (r"packaging/deb build \.", "tests/e2e/test_packaging.py::PACKAGING / \"deb\""),
    (r"(apt-get install|systemctl enable) .*", NOT_RUN),
    (r"(podman|docker) .*", NOT_RUN),
    # Grafana and its backends.
    (r"curl -s localhost:\d+/(ready|api/datasources/).*", NOT_RUN),
    (r"curl -sG? localhost:\d+/(api/search|querier\.v1\.QuerierService/).*", NOT_RUN),
    (r"now=.*", NOT_RUN),
    # The recipes.
    (r"go (mod|get|build) .*|\./shop", "tests/sdks/test_recipes.py::recipe(\"Go\")"),
    (r"npm (init|install) .*|node shop\.mjs", "tests/sdks/test_recipes.py::recipe(\"Node.js\")"),
    (r"(mvn|javac|jar|java @java\.options) .*|mkdir -p extension/.*|echo SpanProfiles .*|cp agents/.*",
     "tests/sdks/test_recipes.py::recipe(\"Java\")"),
    (r"python3 -m venv venv|venv/bin/.*", "tests/sdks/test_recipes_python.py::recipes.section"),
    (r"mkdir -p /var/lib/braid/profiles", "tests/sdks/test_recipes_config.py::/var/lib/braid/profiles"),
    (r"curl --data-binary @shop\.txt .*", "tests/sdks/test_recipes_config.py::def test_upload"),
    (r"(py-spy record|java -XX:|node --cpu-prof|perf (record|script)).*", NOT_RUN),
    (r"DD_PROFILING_ENABLED=true .*", NOT_RUN),
]

# A quick or harmless form of a command that takes long or writes to the tree.
INSTEAD = {"tests/conditions": "tests/conditions --self-test", "tests/prose": "tests/prose --self-test",
           "scripts/metrics": "scripts/metrics --check"}

# Indented blocks that are not commands.
OTHER = re.compile(r"braid_\w+(\{\w+\})? = |START {5,}TOOK|SELF {5,}TOTAL|[ \d.]+ m?s |\+ sum\(")

CONFIG = """
receivers: {nop: {}}
exporters: {nop: {}}
service: {pipelines: {traces: {receivers: [nop], exporters: [nop]}}}
"""


class Command(typing.NamedTuple):
    page: pathlib.Path
    line: int
    text: str
    section: str  # the text under the heading above

    @property
    def where(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}: {self.text}"


def continues(text):
    """Whether a command goes on in the next line."""
    return text.endswith("\\") or text.count("'") % 2 == 1


def shell_lines(lines):
    """(index, text) of each line of a shell block: one in an sh fence, or indented after an empty line."""
    fence, indented, begun = None, False, None
    for at, line in enumerate(lines):
        opens = re.match(r"```(\w*)", line)
        if opens:
            fence = None if fence is not None else opens[1]
            continue
        after_empty = at == 0 or not lines[at - 1].strip()
        indented = fence is None and line.startswith("    ") and (indented or after_empty)
        if not (fence == "sh" or indented) or (indented and OTHER.search(line)):
            continue
        text = re.sub(r" {2,}# .*", "", line.strip())
        begun = (begun[0], begun[1].rstrip("\\ ") + " " + text) if begun else (at, text)
        if not continues(begun[1]):
            yield begun
            begun = None
    assert not begun, begun


def commands():
    for page in PAGES:
        lines = page.read_text().split("\n")
        heads, fenced = [0], False
        for at, line in enumerate(lines):
            fenced ^= line.startswith("```")
            if not fenced and re.match(r"#+ ", line):
                heads.append(at)
        heads.append(len(lines))

        def section(at, lines=lines, heads=heads):
            begin = max(head for head in heads[:-1] if head <= at)
            return " ".join(lines[begin:next(head for head in heads if head > at)])

        for at, text in shell_lines(lines):
            yield Command(page, at + 1, text, section(at))
        if page.name == "scorecard.md":
            continue  # its table has the command of each figure
        for at, line in enumerate(lines):
            for found in INLINE.finditer(line):
                yield Command(page, at + 1, found[1], section(at))


ALL = list(commands())


def entry(command):
    return next((at for at, (pattern, _) in enumerate(HOW) if re.fullmatch(pattern, command.text)), None)


def test_every_command_has_an_entry():
    assert len(ALL) > 80
    unknown = [command.where for command in ALL if entry(command) is None]
    assert not unknown, "add to HOW:\n" + "\n".join(unknown)


def test_every_entry_has_a_command():
    used = {entry(command) for command in ALL}
    unused = [pattern for at, (pattern, _) in enumerate(HOW) if at not in used]
    assert not unused, unused


def test_what_is_not_run_is_marked():
    bare = [command.where for command in ALL
            if entry(command) is not None and HOW[entry(command)][1] is NOT_RUN and MARK not in command.section]
    assert not bare, f'their sections need "{MARK}":\n' + "\n".join(bare)


def test_what_others_run_is_there():
    others = [how.split("::", 1) for _, how in HOW if isinstance(how, str)]
    missing = [f"{path} without {needle}" for path, needle in others if needle not in (ROOT / path).read_text()]
    assert not missing


def test_names_in_the_tour_exist():
    """The functions and files that the pages about the code name."""
    code = {file: file.read_text() for name in ("src", "config", "receivers", "processors", "exporters", "connectors", "extensions")
            for file in (ROOT / name).rglob("*.[ch]")}
    words = set(re.findall(r"\w+", "\n".join(code.values())))
    for page in ("tour.md", "layers.md"):
        text = (ROOT / "docs/contributing" / page).read_text()
        gone = [name for name in re.findall(r"`([a-z]+_\w+)`", text) if name not in words]
        gone += [name for name in re.findall(r"`([\w/]+\.[ch])`", text)
                 if not any(f"/{file.relative_to(ROOT)}".endswith(f"/{name}") for file in code)]
        assert not gone, (page, gone)


@pytest.mark.parametrize("text", sorted({command.text for command in ALL
                                         if entry(command) is not None and HOW[entry(command)][1] is RUN}))
def test_run(text, tmp_path, braid):
    if text.startswith("curl "):
        running = braid(pipelines({"nop": {}}, processors={"join": {}}))
        profiles = gzip.decompress((ROOT / "tests/data/ebpf/1.pb.gz").read_bytes())
        clients.grpc(running.grpc, PROFILES, profiles).expect_ok()
        text = text.replace("localhost:8888", running.address("metrics", node=None))
    if not text.startswith("braid "):
        done = subprocess.run(["bash", "-c", INSTEAD.get(text, text)], cwd=ROOT, capture_output=True, text=True,
                              timeout=DEADLINE_S * 4)
        assert done.returncode == 0, done.stdout + done.stderr
        return
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/braid").symlink_to(pathlib.Path(BINARY).absolute())
    for name in ("FILE", "braid.yaml"):
        (tmp_path / name).write_text(CONFIG)
    shutil.copy(ROOT / "tests/data/collector/three_signals.yaml", tmp_path / "collector.yaml")
    done = subprocess.run(["bash", "-c", text], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S,
                          env={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"})
    assert done.returncode == 0, done.stdout + done.stderr
