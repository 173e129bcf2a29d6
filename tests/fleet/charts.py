"""The chart of a fleet, as Helm renders it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.deployed import FLEET

yaml = pytest.importorskip("yaml")
CHART = FLEET / "chart"
VARIANTS = {
    "as it comes": (),
    "scaled by Kubernetes": ("--set", "autoscaling.kind=hpa"),
    "not scaled, open to edges": (
        *("--set", "autoscaling.kind=none,nats.public.type=LoadBalancer"),
        *("--set", "nats.storage.className=fast,imagePullSecrets[0].name=registry"),
    ),
    "with a database and a Prometheus of others": (
        *("--set", "postgres.enabled=false,prometheus.enabled=false,database.host=stepvad-rw"),
        *("--set", "networkPolicy.enabled=false"),
    ),
}


def tool(name: str) -> str:
    """A program beside Python or on the path; without it, a test is skipped."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"no {name}")
    return found


def said(*words: str | Path, code: int = 0) -> str:
    """What a program says."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@cache
def rendered(*more: str) -> str:
    """The manifests, as one text."""
    command = [tool("helm"), "template", "fleet", str(CHART), "--namespace", "stepvad", *more]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def manifests(*more: str) -> list[dict[str, Any]]:
    """All resources; not to be changed."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [one for one in yaml.load_all(rendered(*more), loader) if one]


def of_kind(kind: str, *more: str) -> dict[str, dict[str, Any]]:
    """Resources of a kind, by name."""
    return {one["metadata"]["name"]: one for one in manifests(*more) if one["kind"] == kind}


def pods(*more: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every pod that the chart makes: its part, and its template."""
    for kind in ("Deployment", "StatefulSet", "Job"):
        for one in of_kind(kind, *more).values():
            template = one["spec"]["template"]
            yield template["metadata"]["labels"]["app.kubernetes.io/component"], template
