from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.web.sites import BEARER, HERE, Site, site


@pytest.fixture
def mill(tmp_path: Path) -> Iterator[Site]:
    """A site with two cameras and no event."""
    with site(tmp_path) as made:
        yield made


@pytest.fixture
def app(mill: Site) -> FastAPI:
    return mill.app()


@pytest.fixture
def client(app: FastAPI) -> TestClient:
    """Somebody with the token."""
    return TestClient(app, base_url=HERE, headers=BEARER, follow_redirects=False)


@pytest.fixture
def stranger(app: FastAPI) -> TestClient:
    """Somebody without it."""
    return TestClient(app, base_url=HERE, follow_redirects=False)
