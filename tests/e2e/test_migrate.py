"""braid migrate and --skip-unsupported, by the program."""
import os
import pathlib
import stat
import subprocess

BINARY = os.environ.get("BRAID", "build/braid")
CASES = pathlib.Path(__file__).parent.parent / "conformance" / "migrate"
DEADLINE_S = 60


def braid(*args):
    return subprocess.run([BINARY, *map(str, args)], capture_output=True, text=True, timeout=DEADLINE_S,
                          env={"MY_POD_IP": "127.0.0.1"})


def test_migrated_config_is_valid(tmp_path):
    done = braid("migrate", CASES / "agent.yaml", "--rest", tmp_path / "rest.yaml")
    assert done.returncode == 0, done.stderr
    assert "agent.yaml:19:3: receivers::jaeger: left out: " in done.stderr
    (tmp_path / "braid.yaml").write_text(done.stdout)
    checked = braid("validate", "--config", tmp_path / "braid.yaml")
    assert checked.returncode == 0, checked.stderr
    assert "prometheus:" in (tmp_path / "rest.yaml").read_text()
    assert stat.S_IMODE((tmp_path / "rest.yaml").stat().st_mode) == 0o600


def test_rest_is_never_written_over(tmp_path):
    (tmp_path / "rest.yaml").write_text("mine")
    done = braid("migrate", CASES / "agent.yaml", "--rest", tmp_path / "rest.yaml")
    assert done.returncode == 1 and done.stdout == ""
    assert "rest.yaml cannot be written: File exists" in done.stderr
    assert (tmp_path / "rest.yaml").read_text() == "mine"


def test_nothing_to_run():
    done = braid("migrate", CASES / "metrics_only.yaml")
    assert done.returncode == 1 and done.stdout == ""
    assert "service::pipelines: nothing is left" in done.stderr


def test_skip_unsupported():
    assert braid("validate", "--config", CASES / "agent.yaml").returncode == 1
    done = braid("validate", "--skip-unsupported", "--config", CASES / "agent.yaml")
    assert done.returncode == 0, done.stderr
    assert "processors::k8sattributes: left out: Braid has no such processor" in done.stderr
