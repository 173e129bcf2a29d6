"""The files to install a fleet with: what their tools say, and that they fit together."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stepvad.fleet import settings
from stepvad.fleet.events import writer
from stepvad.fleet.events.writer import WriterMetrics
from stepvad.fleet.subjects import SHARDS
from stepvad.fleet.worker import stats
from stepvad.fleet.worker.scoring import ScoringStats
from tests.fleet.deployed import (
    BROKERS,
    CHART,
    FLEET,
    VARIANTS,
    expressions,
    manifests,
    of_kind,
    pods,
    rendered,
    said,
    services,
    tool,
    yaml,
)
from tests.fleet.servers import PROGRAM
from tests.pages import ROOT

HOMES = {
    "nats": ["nats/nats.conf", "nats/cluster.conf", "nats/sites.conf"],
    "postgres": ["postgres/postgresql.conf", "postgres/pg_hba.conf", "postgres/roles.sql"],
    "prometheus": ["prometheus/prometheus.yml", "prometheus/rules.yaml"],
    **{role: [f"{role}.toml"] for role in ("admin", "worker", "events", "page")},
}
YAML = [
    *("compose.yaml", "cloudnativepg.yaml", ".compose-lint.yml", "chart/Chart.yaml"),
    *("chart/values.yaml", "prometheus/prometheus.yml", "prometheus/rules.yaml"),
]
YAMLLINT = (
    "{extends: default, rules: {line-length: disable, document-start: disable, "
    "comments: {min-spaces-from-content: 1}}}"
)
OLDEST, NEWEST = "1.29", "1.37"


@pytest.mark.parametrize("variant", VARIANTS)
def test_helm_lints_the_chart(variant: str) -> None:
    told = said(tool("helm"), "lint", "--strict", CHART, *VARIANTS[variant])
    assert "0 chart(s) failed" in told


@pytest.mark.parametrize("wrong", ["worker.replica=3", "autoscaling.kind=maybe", "image=stepvad"])
def test_a_value_that_is_none_is_refused(wrong: str) -> None:
    told = said(tool("helm"), "lint", CHART, "--set", wrong, code=1)
    assert "values don't meet the specifications of the schema" in told


def problem(manifest: dict[str, Any], version: str) -> str:
    """What is wrong with a manifest by the schemas of Kubernetes; an empty text if nothing is."""
    return _problem(json.dumps(manifest), version)


@cache
def _problem(text: str, version: str) -> str:
    """Looked for once in what several variants have in common."""
    validate = pytest.importorskip("kubernetes_validate")
    manifest = json.loads(text)
    try:
        validate.validate(manifest, version, strict=True)
    except validate.ValidationError as error:
        return f"{manifest['kind']} {manifest['metadata']['name']}: {error.message}"
    return ""


@pytest.mark.parametrize("version", [pytest.param(OLDEST, marks=pytest.mark.slow), NEWEST])
@pytest.mark.parametrize("variant", VARIANTS)
def test_kubernetes_would_take_every_manifest(variant: str, version: str) -> None:
    found = [one for one in manifests(*VARIANTS[variant]) if one["kind"] != "ScaledObject"]
    assert len(found) >= 20
    assert [text for one in found if (text := problem(one, version))] == []


def test_a_misspelt_or_wrong_field_is_found() -> None:
    worker = of_kind("Deployment")["worker"]
    misspelt, wrong = copy.deepcopy(worker), copy.deepcopy(worker)
    spec = misspelt["spec"]["template"]["spec"]
    spec["terminationGracePeriodSecond"] = spec.pop("terminationGracePeriodSeconds")
    wrong["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"] = "http"
    assert "terminationGracePeriodSecond" in problem(misspelt, NEWEST)
    assert "'http' is not of type 'integer'" in problem(wrong, NEWEST)


@pytest.mark.parametrize("name", YAML)
def test_yamllint_has_nothing_to_say(name: str) -> None:
    assert said(tool("yamllint"), "--strict", "-d", YAMLLINT, FLEET / name) == ""


def test_shellcheck_has_nothing_to_say() -> None:
    scripts = [FLEET / name for name in ("prepare", "make-certificates", "make-users")]
    assert said(tool("shellcheck"), *scripts, FLEET / "make-secrets") == ""


@pytest.mark.parametrize("name", HOMES)
def test_the_chart_carries_the_files_of_the_fleet_unchanged(name: str) -> None:
    homes = {path.rpartition("/")[2]: FLEET / path for path in HOMES[name]}
    assert of_kind("ConfigMap")[name]["data"] == {
        file: path.read_text("utf-8") for file, path in homes.items()
    }
    assert all((CHART / "files" / file).is_symlink() for file in homes)


def certificates(directory: Path, *sites: str) -> Path:
    names = [f"{name}.nats" for name in BROKERS]
    said(FLEET / "make-certificates", directory / "certs", *names, "postgres", "--", *sites)
    return directory / "certs"


def test_the_broker_takes_the_configuration_of_the_chart(tmp_path: Path) -> None:
    certificates(tmp_path)
    for name, text in of_kind("ConfigMap")["nats"]["data"].items():
        (tmp_path / name).write_text(text)

    def tested() -> subprocess.CompletedProcess[str]:
        command = [PROGRAM, "-t", "-c", "cluster.conf"]
        known = os.environ | {"BROKER": "nats-0"}
        return subprocess.run(command, cwd=tmp_path, env=known, capture_output=True, text=True)

    assert tested().returncode == 0, tested().stderr
    text = (tmp_path / "nats.conf").read_text("utf-8")
    (tmp_path / "nats.conf").write_text(text.replace("interval: always", "interval: sometimes"))
    assert tested().returncode == 1
    memory = re.search(r"max_memory_store: (\d+)GB", text)
    limit = of_kind("StatefulSet")["nats"]["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert memory is not None
    assert int(limit["limits"]["memory"].removesuffix("Gi")) > int(memory[1])
    assert re.search(r"^ *sync_interval: always", text, re.MULTILINE)


def test_brokers_and_database_start_the_same_way_everywhere() -> None:
    chart = of_kind("StatefulSet")
    container = chart["nats"]["spec"]["template"]["spec"]["containers"][0]
    words = [*container["command"], *container["args"]]
    del words[(at := words.index("-P")) : at + 2]
    env = {one["name"]: one for one in container["env"]}
    assert env["BROKER"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    for name in BROKERS:
        service = services()[name]
        assert service["command"] == words
        assert service["environment"] == {"BROKER": name, "GOMEMLIMIT": env["GOMEMLIMIT"]["value"]}
        assert service["working_dir"] == container["workingDir"]
        assert service["networks"]["default"]["aliases"] == [f"{name}.nats"]
    assert chart["nats"]["spec"]["replicas"] == len(BROKERS)
    database = chart["postgres"]["spec"]["template"]["spec"]["containers"][0]
    assert database["args"] == services()["postgres"]["command"]
    job = of_kind("Job")["setup-1"]["spec"]["template"]["spec"]["containers"][0]
    assert job["command"] == services()["setup"]["entrypoint"]
    dollars = [word.replace("$$", "$") for word in services()["postgres"]["entrypoint"]]
    assert database["command"] == dollars
    images = {name: services()[name]["image"] for name in ("nats-0", "postgres", "prometheus")}
    assert {*images.values()} <= {*re.findall(r"image: (\S+)", rendered())}


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_pod_may_do_more_than_it_has_to(variant: str) -> None:
    found = dict(pods(*VARIANTS[variant]))
    assert {"nats", "worker", "events", "page", "setup"} <= {*found}
    for part, template in found.items():
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] >= 999
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert "memory" in container["resources"]["limits"]
            assert re.search(r":v?\d+\.\d+(\.\d+)?(-\w+)?$", container["image"])
            if part != "setup":
                assert {"readinessProbe", "livenessProbe"} <= {*container}


def test_secrets_are_named_and_never_told() -> None:
    assert not of_kind("Secret")
    text = rendered()
    assert not re.search(r"BEGIN [A-Z ]*KEY|password *[:=] *['\"]?\w", text, re.IGNORECASE)
    by_part = {part: {*re.findall(r"'name': '(stepvad-\w+)'", str(pod))} for part, pod in pods()}
    shared = {"stepvad-fleet"}  # the service account's name is nobody's secret
    assert {part: names - shared for part, names in by_part.items()} == {
        "nats": {"stepvad-nats"},
        "nats-exporter": set(),
        "worker": {"stepvad-worker"},
        "events": {"stepvad-events", "stepvad-writer"},
        "page": {"stepvad-reader"},
        "setup": {"stepvad-admin", "stepvad-owner"},
        "postgres": {"stepvad-postgres"},
        "prometheus": set(),
    }


def test_make_secrets_makes_what_the_chart_asks_for(tmp_path: Path) -> None:
    tool("kubectl")
    made = said(FLEET / "make-secrets", certificates(tmp_path))
    found = {one["metadata"]["name"]: one for one in yaml.safe_load_all(made)}
    assert {*found} == {*yaml.safe_load((CHART / "values.yaml").read_text())["secrets"].values()}
    assert {*found["stepvad-token"]["data"]} == {"token"}
    for name, one in found.items():
        assert problem(one, NEWEST) == ""
        if name != "stepvad-token":
            assert {*one["data"]} == {"ca.crt", "tls.crt", "tls.key"}
            assert all(one["data"].values())


def test_services_budgets_and_policies_are_about_pods_that_there_are() -> None:
    parts = {part for part, _ in pods()}
    for service in of_kind("Service").values():
        part = service["spec"]["selector"]["app.kubernetes.io/component"]
        (spec,) = [pod["spec"] for name, pod in pods() if name == part]
        ports = {port["name"] for one in spec["containers"] for port in one["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for kind in ("PodDisruptionBudget", "NetworkPolicy"):
        found = re.findall(r"'app.kubernetes.io/component': '([\w-]+)'", str(of_kind(kind)))
        assert {*found} <= parts
    assert {*of_kind("PodDisruptionBudget")} == {"nats", "worker", "events"}


def test_only_who_has_to_may_reach_a_port() -> None:
    policies = of_kind("NetworkPolicy")
    assert policies["nothing"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    ways = set()
    for policy in policies.values():
        (name, to) = (policy["metadata"]["name"], policy["spec"])
        for rule in to.get("ingress", []):
            if name.endswith("-in"):
                known = re.findall(r"component': '([\w-]+)'", str(rule["from"]))
                ways |= {(part, name[:-3], rule["ports"][0]["port"]) for part in known}
    assert ways == {
        *((part, "nats-4222", 4222) for part in ("worker", "events", "setup")),
        *((part, "postgres-5432", 5432) for part in ("events", "page", "setup")),
        ("nats", "nats-6222", 6222),
        ("nats-exporter", "nats-8222", 8222),
        ("prometheus", "worker-9100", 9100),
        ("prometheus", "events-9100", 9100),
        ("prometheus", "nats-exporter-7777", 7777),
    }
    for part, to, port in ways:
        egress = policies[f"{part}-to-{to.rpartition('-')[0]}-{port}"]["spec"]["egress"]
        assert egress[0]["ports"] == [{"port": port, "protocol": "TCP"}]
    opened = of_kind("NetworkPolicy", *VARIANTS["not scaled, open to edges"])
    assert {*opened} - {*policies} == {"edges"}


def test_workers_have_time_to_drain_and_are_scaled_by_lag() -> None:
    spec = of_kind("Deployment")["worker"]["spec"]
    assert "replicas" not in spec  # the autoscaler's
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] >= 60
    assert services()["worker"]["stop_grace_period"] == "60s"
    scaled = of_kind("ScaledObject")["worker"]["spec"]
    hpa = of_kind("HorizontalPodAutoscaler", *VARIANTS["scaled by Kubernetes"])["worker"]["spec"]
    known = {"scaleTargetRef", "minReplicaCount", "maxReplicaCount", "pollingInterval"}
    assert {*scaled} == known | {"fallback", "advanced", "triggers"}
    for trigger in scaled["triggers"]:
        assert {*trigger} == {"type", "name", "metricType", "metadata"}
        assert all(isinstance(value, str) for value in trigger["metadata"].values())
    asked = [one["metadata"]["query"] for one in scaled["triggers"] if one["type"] == "prometheus"]
    rules = yaml.safe_load((FLEET / "prometheus" / "rules.yaml").read_text())["groups"]
    records = {rule.get("record") for group in rules for rule in group["rules"]}
    assert len(asked) == 2
    assert {*asked} <= records
    behaviour = scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behaviour == hpa["behavior"]
    assert scaled["maxReplicaCount"] == hpa["maxReplicas"] <= SHARDS
    none = of_kind("Deployment", *VARIANTS["not scaled, open to edges"])["worker"]
    assert none["spec"]["replicas"] == hpa["minReplicas"]


def test_promtool_takes_the_rules_and_they_go_off_when_they_should() -> None:
    promtool = tool("promtool")
    said(promtool, "check", "config", FLEET / "prometheus" / "prometheus.yml")
    said(promtool, "test", "rules", ROOT / "tests" / "fleet" / "data" / "rules-test.yaml")


def test_compose_is_of_the_specification_and_safe() -> None:
    spec = pytest.importorskip("compose_spec")
    text = yaml.safe_load((FLEET / "compose.yaml").read_text("utf-8"))
    merged = {key: value for key, value in text.items() if not key.startswith("x-")}
    parsed = spec.PyCompose.from_yaml(yaml.safe_dump(merged))
    parsed.validate()
    assert parsed.service_names() == sorted(services())
    merged["services"]["worker"]["stop_grace_periods"] = "60s"
    with pytest.raises(ValueError, match="stop_grace_periods"):
        spec.PyCompose.from_yaml(yaml.safe_dump(merged))
    config = ("--config", FLEET / ".compose-lint.yml")
    said(tool("compose-lint"), "check", "--fail-on", "low", *config, FLEET / "compose.yaml")


def test_everything_that_compose_names_is_there(tmp_path: Path) -> None:
    compose = yaml.safe_load((FLEET / "compose.yaml").read_text("utf-8"))
    certs = certificates(tmp_path, "north")
    for name, service in services().items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            if source.startswith("."):
                assert source == "./models" or (FLEET / source).exists(), source
            else:
                assert source in compose["volumes"]
        for secret in service.get("secrets", []):
            told = secret if isinstance(secret, str) else secret["source"]
            file = Path(compose["secrets"][told]["file"])
            assert file.parent.name == "secrets" or (certs / file.name).is_file()
            if isinstance(secret, dict):
                assert Path(secret["target"]).name == file.name, name
        if "build" in service:
            assert (FLEET / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    assert os.access(FLEET / "prepare", os.X_OK)


def test_every_role_is_told_of_the_same_bus_and_of_its_own_certificate() -> None:
    told = {role: settings.load(FLEET / f"{role}.toml") for role in ("admin", "events")}
    told["worker"] = settings.load_worker(FLEET / "worker.toml")
    edge = settings.load_edge(FLEET / "edge.toml")
    buses = {role: one.bus for role, one in told.items()} | {"edge-north": edge.fleet.bus}
    for role, bus in buses.items():
        assert bus.servers == [f"tls://{name}.nats:4222" for name in BROKERS]
        assert (bus.shards, bus.replicas, bus.inbox) == (SHARDS, 3, f"_INBOX.{role}")
        assert bus.tls is not None
        assert bus.tls.cert == FLEET / "certs" / f"{role}.pem"
    page = settings.load(FLEET / "page.toml")
    assert page.web.token == "file:/run/secrets/token"
    for name in ("setup", "events", "page"):
        address = services()[name]["environment"]["STEPVAD_EVENTS_DSN"]
        assert f'value: "{address}"' in rendered()


def test_every_metric_of_ours_that_a_rule_or_a_panel_asks_for_is_one_that_a_role_has() -> None:
    worker = stats.WorkerMetrics(
        stats.WorkerStats(), ScoringStats(), lambda: 0, lambda: 0, lambda: 0, lambda: 0
    )
    found = [*worker.collect(), *WriterMetrics(writer.WriterStats()).collect()]
    names = {f"{one.name}_total" if one.type == "counter" else one.name for one in found}
    names |= {f"{one.name}_bucket" for one in found if one.type == "histogram"}
    rules = (FLEET / "prometheus" / "rules.yaml").read_text("utf-8")
    rules += " ".join(expressions())
    asked = {*re.findall(r"\bstepvad_fleet_[a-z_]+\b", rules)}
    assert len(asked) > 6
    assert asked <= names, asked - names
    reasons = {*re.findall(r'reason="(\w+)"', rules)}
    shard = (ROOT / "src" / "stepvad" / "fleet" / "worker" / "shard.py").read_text("utf-8")
    assert all(f'"{reason}"' in shard for reason in reasons)
