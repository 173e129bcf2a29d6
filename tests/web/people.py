"""People with accounts, and browsers that they log in with."""

from __future__ import annotations

from argon2 import PasswordHasher
from fastapi import FastAPI
from fastapi.testclient import TestClient

from stepvad.site.accounts import Accounts, Role
from tests.web.sites import HERE

PASSWORD = "correct horse battery staple"
HASH = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1).hash(PASSWORD)
"""Cheap to verify, for tests; the parameters are part of the hash."""
PEOPLE: dict[str, Role] = {"lena": "look", "jan": "judge", "ada": "administer"}


def with_people(accounts: Accounts) -> Accounts:
    """Accounts of one user per role."""
    for name, role in PEOPLE.items():
        accounts.create(name, role, HASH)
    return accounts


def visitor(app: FastAPI, address: str = "10.0.0.7") -> TestClient:
    """A browser in which nobody is logged in."""
    return TestClient(
        app,
        base_url=HERE,
        headers={"Origin": HERE},
        follow_redirects=False,
        client=(address, 50_000),
    )


def log_in(client: TestClient, name: str, password: str = PASSWORD) -> int:
    return client.post("/login", data={"name": name, "password": password}).status_code


def browser_of(app: FastAPI, name: str, address: str = "10.0.0.7") -> TestClient:
    """A browser in which somebody is logged in."""
    client = visitor(app, address)
    assert log_in(client, name) == 303
    return client
