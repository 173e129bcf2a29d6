"""The files to install a fleet with: what their tools say, and that they fit together."""

from __future__ import annotations

import copy
import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepvad.fleet import plan
from stepvad.fleet.settings import load
from tests.pages import ROOT

FLEET = ROOT / "deploy" / "fleet"
CHART = FLEET / "chart"
TOOLS = ROOT / ".venv" / "bin"
SITES = {"sites": {"south_1": {"settings": 'name = "south_1"\n'}}}
VARIANTS = {
    "usual": ["--set-json", f"sites={json.dumps(SITES['sites'])}"],
    "public, own database": [
        *("--set", "nats.public.type=LoadBalancer", "--set", "postgres.enabled=false"),
        *("--set", "networkPolicy.enabled=false"),
    ],
}
OLDEST, NEWEST = "1.29", "1.37"
HOMES = {
    "nats": ["nats/nats.conf", "nats/cluster.conf"],
    "postgres": ["postgres/postgresql.conf", "postgres/pg_hba.conf", "postgres/roles.sql"],
    "fleet": ["fleet.toml"],
}
YAMLLINT = (
    "{extends: default, rules: {line-length: disable, document-start: disable, "
    "comments: {min-spaces-from-content: 1}}}"
)


def tool(name: str) -> Path:
    path = TOOLS / name
    if not path.exists():
        pytest.skip(f"needs {name}")
    return path


def said(*words: str | Path, code: int = 0) -> str:
    done = subprocess.run([*map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def helm(command: str, variant: str, *more: str, code: int = 0) -> str:
    words = ["--set-file", f"accounts={FLEET / 'cameras.csv'}", *VARIANTS[variant], *more]
    return said(tool("helm"), *command.split(), CHART, *words, code=code)


@cache
def manifests(variant: str) -> list[dict[str, Any]]:
    tool("helm")
    words = ["--set-file", f"accounts={FLEET / 'cameras.csv'}", *VARIANTS[variant]]
    command: list[str | Path] = [
        TOOLS / "helm",
        "template",
        "fleet",
        CHART,
        "--namespace",
        "fleet",
        *words,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def of_kind(kind: str, variant: str = "usual") -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in manifests(variant) if one["kind"] == kind}


@pytest.mark.parametrize("variant", VARIANTS)
def test_helm_lints_the_chart(variant: str) -> None:
    assert "0 chart(s) failed" in helm("lint --strict", variant)


@pytest.mark.parametrize("wrong", ["writer.replica=3", "page.replicas=0", "image=stepvad", "x=1"])
def test_a_value_that_is_none_is_refused(wrong: str) -> None:
    told = helm("lint", "usual", "--set", wrong, code=1)
    assert "values don't meet the specifications of the schema" in told


def test_a_chart_without_users_of_the_brokers_is_refused() -> None:
    told = said(tool("helm"), "template", "fleet", CHART, code=1)
    assert "made by stepvad fleet plan" in told


def problem(manifest: dict[str, Any], version: str) -> str:
    validate = pytest.importorskip("kubernetes_validate")
    try:
        validate.validate(manifest, version, strict=True)
    except validate.ValidationError as error:
        return f"{manifest['kind']} {manifest['metadata']['name']}: {error.message}"
    return ""


@pytest.mark.parametrize("version", [pytest.param(OLDEST, marks=pytest.mark.slow), NEWEST])
@pytest.mark.parametrize("variant", VARIANTS)
def test_kubernetes_would_take_every_manifest(variant: str, version: str) -> None:
    assert len(manifests(variant)) >= 14
    assert [text for one in manifests(variant) if (text := problem(one, version))] == []


def test_a_misspelt_or_wrong_field_is_found() -> None:
    writer = of_kind("Deployment")["writer"]
    misspelt, wrong = copy.deepcopy(writer), copy.deepcopy(writer)
    spec = misspelt["spec"]["template"]["spec"]
    spec["terminationGracePeriodSecond"] = spec.pop("terminationGracePeriodSeconds")
    wrong["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"] = "http"
    assert "terminationGracePeriodSecond" in problem(misspelt, NEWEST)
    assert "'http' is not of type 'integer'" in problem(wrong, NEWEST)


def test_a_site_has_its_name_its_disk_and_one_copy() -> None:
    site = of_kind("StatefulSet")["site-south-1"]
    assert site["spec"]["replicas"] == 1
    (claim,) = site["spec"]["volumeClaimTemplates"]
    (container,) = site["spec"]["template"]["spec"]["containers"]
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    assert mounts["/data"] == claim["metadata"]["name"]
    assert of_kind("ConfigMap")["site-south-1"]["data"] == {"site.toml": 'name = "south_1"\n'}


def test_pods_can_do_little_and_are_watched() -> None:
    found = [*of_kind("Deployment").values(), *of_kind("StatefulSet").values()]
    assert len(found) == 5
    for one in found:
        spec = one["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"]
        for container in spec["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert {"readinessProbe", "livenessProbe"} <= {*container}
            assert container["resources"]["limits"]["memory"]


def test_whatever_has_copies_loses_one_at_a_time_and_speaks_to_few() -> None:
    budgets = of_kind("PodDisruptionBudget")
    assert {*budgets} == {"nats", "writer", "page", "site"}
    policies = of_kind("NetworkPolicy")
    assert policies["nothing"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert "site-to-nats-4222" in policies
    assert not [name for name in policies if name.startswith("site-to-postgres")]


@pytest.mark.parametrize("name", HOMES)
def test_the_chart_carries_the_files_of_the_fleet_unchanged(name: str) -> None:
    homes = {path.rpartition("/")[2]: FLEET / path for path in HOMES[name]}
    assert of_kind("ConfigMap")[name]["data"] == {
        file: path.read_text("utf-8") for file, path in homes.items()
    }
    assert all((CHART / "files" / file).is_symlink() for file in homes)


@pytest.mark.parametrize(
    "name",
    [
        *("compose.yaml", "cloudnativepg.yaml", ".compose-lint.yml", "chart/Chart.yaml"),
        *("chart/values.yaml", "redpanda-connect.yaml"),
    ],
)
def test_yamllint_has_nothing_to_say(name: str) -> None:
    assert said(tool("yamllint"), "--strict", "-d", YAMLLINT, FLEET / name) == ""


def test_shellcheck_has_nothing_to_say() -> None:
    scripts = [FLEET / name for name in ("prepare", "make-certificates", "make-secrets")]
    assert said(tool("shellcheck"), *scripts) == ""


def test_the_compose_file_is_of_the_specification_and_safe() -> None:
    compose = yaml.safe_load((FLEET / "compose.yaml").read_text("utf-8"))
    spec = pytest.importorskip("compose_spec")
    facts = {key: one for key, one in compose.items() if key[:2] != "x-"}
    spec.PyCompose.from_yaml(yaml.safe_dump(facts)).validate()
    config = FLEET / ".compose-lint.yml"
    file = FLEET / "compose.yaml"
    said(tool("compose-lint"), "check", "--fail-on", "low", "--config", config, file)
    for name, service in compose["services"].items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        for secret in service.get("secrets", []):
            of = secret if isinstance(secret, str) else secret["source"]
            assert of in compose["secrets"], name


def test_the_settings_of_the_centre_can_be_read_and_fit_the_brokers() -> None:
    settings = load(FLEET / "fleet.toml")
    assert settings.streams.replicas == 3
    compose = yaml.safe_load((FLEET / "compose.yaml").read_text("utf-8"))
    hosts = {server.split("//")[1].split(".")[0] for server in settings.broker.servers}
    assert hosts <= {*compose["services"]}


def certificates(directory: Path, *sites: str) -> Path:
    names = [f"nats-{n}.nats" for n in range(3)]
    said(FLEET / "make-certificates", directory / "certs", *names, "postgres", "--", *sites)
    return directory / "certs"


def test_the_cameras_of_the_example_make_the_site_of_the_compose_file(tmp_path: Path) -> None:
    (site,) = plan.read_cameras(FLEET / "cameras.csv")
    compose = yaml.safe_load((FLEET / "compose.yaml").read_text("utf-8"))
    volumes = compose["services"]["site"]["volumes"]
    assert f"./sites/{site.name}.toml:/data/site.toml:ro" in volumes
    certs = certificates(tmp_path, site.name)
    assert (certs / f"{site.name}.pem").is_file()
    assert (certs / f"{site.name}.key").stat().st_mode & 0o077 == 0


def test_make_secrets_makes_those_that_the_chart_names(tmp_path: Path) -> None:
    certificates(tmp_path, "south_1")
    # kubectl comes from no package: a stand-in prints what it would be asked
    stand_in = tmp_path / "bin" / "kubectl"
    stand_in.parent.mkdir()
    stand_in.write_text(
        '#!/bin/sh\ncase "$*" in */dev/stdin) cat >/dev/null ;; esac\n'
        'for word; do case "$word" in stepvad-*) echo "$word" ;; esac; done\n'
    )
    stand_in.chmod(0o755)
    command: list[str | Path] = [FLEET / "make-secrets", tmp_path / "certs", "south_1"]
    environment = {"PATH": f"{stand_in.parent}:/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    made = {line for line in done.stdout.splitlines() if line.startswith("stepvad-")}
    named = {*yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))["secrets"].values()}
    assert made == named | {"stepvad-site-south-1"}
