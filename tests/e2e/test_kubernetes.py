# SPDX-License-Identifier: Apache-2.0
"""The manifests of packaging/kubernetes: they are valid by Kubernetes' schemas, and Braid accepts
their configs."""

import pathlib
import re
import subprocess

import kubernetes_validate
import pytest
import yaml

from braid import BINARY, exporter, pipelines

FOLDER = pathlib.Path(__file__).parents[2] / "packaging" / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))


# Options of KEDA's trigger `kafka`, from keda.sh/docs/2.22/scalers/apache-kafka
KEDA_KAFKA = {"bootstrapServers", "consumerGroup", "topic", "lagThreshold", "activationLagThreshold",
              "offsetResetPolicy", "allowIdleConsumers", "scaleToZeroOnInvalidOffset", "excludePersistentLag",
              "limitToPartitionsWithLag", "partitionLimitation", "version", "sasl", "tls"}
WORKLOADS = ("Deployment", "DaemonSet")


def documents(path):
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def of_kind(path, *kinds):
    """Returns {name: document} of all documents of these kinds."""
    return {document["metadata"]["name"]: document for document in documents(path) if document["kind"] in kinds}


def configs(path):
    """Returns {name: Braid's config} of all ConfigMaps."""
    return {name: document["data"]["braid.yaml"] for name, document in of_kind(path, "ConfigMap").items()}


def test_there_are_manifests():
    assert len(FILES) == 5


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_schema(path):
    for document in documents(path):
        if document["kind"] != "ScaledObject":  # Kubernetes has no schema of KEDA's objects
            kubernetes_validate.validate(document, "1.34", strict=True)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_config(path):
    for config in configs(path).values():
        config = re.sub(r"(localhost|0\.0\.0\.0):\d+", "127.0.0.1:0", config)
        done = subprocess.run([BINARY, "validate", "--set", "service.telemetry.metrics.level=none",
                               "--config", f"yaml:{config}"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_mounted_volumes_exist(path):
    """A pod mounts only its own volumes, and only ConfigMaps contained in the file."""
    for document in of_kind(path, *WORKLOADS).values():
        pod = document["spec"]["template"]["spec"]
        volumes = {volume["name"]: volume["configMap"]["name"] for volume in pod["volumes"]}
        assert set(volumes.values()) <= set(configs(path))
        for container in pod["containers"] + pod.get("initContainers", []):
            assert {mount["name"] for mount in container.get("volumeMounts", ())} <= set(volumes)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_references_between_objects(path):
    """Selectors, target ports and autoscalers name objects of the file; a scaled workload sets no replicas."""
    workloads = of_kind(path, *WORKLOADS)
    pods = {document["spec"]["template"]["metadata"]["labels"]["app"]: document["spec"]["template"]["spec"]
            for document in workloads.values()}
    for service in of_kind(path, "Service").values():
        named = {port["name"] for each in pods[service["spec"]["selector"]["app"]]["containers"] for port in each["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= named
    for budget in of_kind(path, "PodDisruptionBudget").values():
        assert budget["spec"]["selector"]["matchLabels"]["app"] in pods
    for scaler in of_kind(path, "HorizontalPodAutoscaler", "ScaledObject").values():
        assert "replicas" not in workloads[scaler["spec"]["scaleTargetRef"]["name"]]["spec"]


def test_the_agent_may_read_the_objects_that_it_needs():
    """The role allows list and watch of the resources that processors/k8s_attributes/README.md names for the config."""
    path = FOLDER / "agent.yaml"
    (role,), (binding,) = of_kind(path, "ClusterRole").values(), of_kind(path, "ClusterRoleBinding").values()
    allowed = {(group, resource): rule["verbs"] for rule in role["rules"] for group in rule["apiGroups"]
               for resource in rule["resources"]}
    assert allowed == dict.fromkeys([("", "pods"), ("", "namespaces"), ("apps", "replicasets")], ["list", "watch"])
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (agent,) = of_kind(path, "DaemonSet").values()
    (account,) = of_kind(path, "ServiceAccount")
    assert agent["spec"]["template"]["spec"]["serviceAccountName"] == binding["subjects"][0]["name"] == account
    processor = yaml.safe_load(configs(path)["braid-node-agent"])["processors"]["k8s_attributes"]
    (container,) = agent["spec"]["template"]["spec"]["containers"]
    (variable,) = container["env"]
    assert variable["name"] == processor["filter"]["node_from_env_var"]


def test_the_agents_find_the_gateways():
    """The agents look up the headless Service of the gateways, on the port of the exporter's default."""
    path = FOLDER / "balanced.yaml"
    exporter = yaml.safe_load(configs(path)["braid-agent"])["exporters"]["load_balancing"]
    service = of_kind(path, "Service")[exporter["resolver"]["dns"]["hostname"]]["spec"]
    assert service["clusterIP"] == "None"
    assert [port["port"] for port in service["ports"]] == [4317]


def test_gateways_scale_by_a_metric_that_braid_has(braid, sink):
    (scaler,) = of_kind(FOLDER / "balanced.yaml", "HorizontalPodAutoscaler").values()
    names = [each["pods"]["metric"]["name"] for each in scaler["spec"]["metrics"] if each["type"] == "Pods"]
    assert names and set(names) <= set(braid(pipelines(exporter("grpc", sink))).metrics())


def test_readers_scale_by_the_lag_of_their_topics():
    """The triggers of KEDA name the brokers, the group and the topics of the readers."""
    path = FOLDER / "kafka.yaml"
    (scaled,) = of_kind(path, "ScaledObject").values()
    assert scaled["apiVersion"] == "keda.sh/v1alpha1"
    receiver = yaml.safe_load(configs(path)["braid-readers"])["receivers"]["kafka"]
    metadata = [trigger["metadata"] for trigger in scaled["spec"]["triggers"] if trigger["type"] == "kafka"]
    assert [each["topic"] for each in metadata] == ["otlp_spans", "otlp_profiles"]  # the defaults of the receiver
    for each in metadata:
        assert set(each) <= KEDA_KAFKA
        assert all(isinstance(value, str) for value in each.values())
        assert [each["bootstrapServers"]] == receiver["brokers"]
        assert each["consumerGroup"] == receiver["group_id"]
        assert each["offsetResetPolicy"] == receiver["initial_offset"]
    partitions = int(re.search(r"with (\d+) partitions", path.read_text())[1])
    assert scaled["spec"]["minReplicaCount"] <= scaled["spec"]["maxReplicaCount"] == partitions
