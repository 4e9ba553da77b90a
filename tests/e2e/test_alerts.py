# SPDX-License-Identifier: Apache-2.0
"""The alerting rules and the dashboard: promtool accepts them, each rule fires, and each metric exists."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
RULES = ROOT / "packaging/prometheus/braid-alerts.yaml"
DASHBOARD = ROOT / "packaging/grafana/braid-dashboard.json"

pytestmark = pytest.mark.release_only


def metrics_of(expression):
    return set(re.findall(r"\b(?:braid|otelcol)_[a-z_]+", expression))


def catalogue():
    return set(re.findall(r'\{"(\w+)"', (ROOT / "src/app/metric_help.c").read_text()))


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
@pytest.mark.parametrize("command", [["check", "rules", RULES.name], ["test", "rules", "braid-alerts-test.yaml"]])
def test_promtool(command):
    done = subprocess.run(["promtool", *command], cwd=RULES.parent, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_use_metrics_that_exist():
    used = metrics_of(RULES.read_text())
    assert len(used) >= 15
    assert used <= catalogue()


def test_the_document_describes_each_alert():
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    assert len(alerts) == 10
    described = re.findall(r"^\| `(Braid\w+)`", (ROOT / "docs/operating/metrics.md").read_text(), re.M)
    assert alerts == described


def test_the_dashboard_uses_metrics_that_exist():
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert len(expressions) > 25
    for expression in expressions:
        assert metrics_of(expression) and metrics_of(expression) <= catalogue(), expression
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
