# SPDX-License-Identifier: Apache-2.0
"""The manifests of packaging/kubernetes: they are valid by Kubernetes' schemas, and Braid accepts
their configs."""

import pathlib
import re
import subprocess

import kubernetes_validate
import pytest
import yaml

from braid import BINARY

FOLDER = pathlib.Path(__file__).parents[2] / "packaging" / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))


def documents(path):
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def test_there_are_manifests():
    assert len(FILES) == 2


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_schema(path):
    for document in documents(path):
        kubernetes_validate.validate(document, "1.34", strict=True)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_config(path):
    (config,) = (document["data"]["braid.yaml"] for document in documents(path) if document["kind"] == "ConfigMap")
    config = re.sub(r"(localhost|0\.0\.0\.0):\d+", "127.0.0.1:0", config)
    done = subprocess.run([BINARY, "validate", "--set", "service.telemetry.metrics.level=none", "--config", f"yaml:{config}"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_mounted_volumes_exist(path):
    """A pod mounts only its own volumes, and only ConfigMaps contained in the file."""
    maps = {document["metadata"]["name"] for document in documents(path) if document["kind"] == "ConfigMap"}
    for document in documents(path):
        if document["kind"] != "Deployment":
            continue
        pod = document["spec"]["template"]["spec"]
        volumes = {volume["name"]: volume["configMap"]["name"] for volume in pod["volumes"]}
        assert set(volumes.values()) <= maps
        for container in pod["containers"] + pod.get("initContainers", []):
            assert {mount["name"] for mount in container.get("volumeMounts", ())} <= set(volumes)
