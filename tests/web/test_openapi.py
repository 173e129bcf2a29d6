"""What nobody thought of: every operation of the OpenAPI document, asked at random."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepvad.codec import from_plain
from stepvad.explain.event import EventExplanation
from stepvad.site.accounts import Accounts
from tests.web.sites import BEARER, EXPLANATION, Site, happen, record, site

pytestmark = pytest.mark.slow

EXAMPLES = 25
"""For each operation."""
HEADERS = BEARER | {"Host": "127.0.0.1"}


def operations(mill: Site, accounts: Accounts) -> list[Any]:
    import schemathesis  # takes seconds

    app = mill.app(accounts=accounts)
    schema: Any = schemathesis.openapi.from_asgi("/openapi.json", app, headers=HEADERS)
    return [found.ok() for found in schema.get_all_operations()]


def ask_at_random(operation: Any, known: list[str]) -> set[int]:
    """What was answered to questions that fit the document, and to some that do not."""
    from schemathesis.generation import GenerationMode

    heard = set()
    fitting = operation.as_strategy()
    asked = st.one_of(
        fitting,
        operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)
        if operation.path_parameters or operation.query or operation.body
        else fitting,
    )

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(case=asked, id=st.sampled_from([None, *known]))
    def ask(case: Any, id: str | None) -> None:
        if id is not None and "id" in (case.path_parameters or {}):
            case.path_parameters["id"] = id  # or else nothing is ever found
        if id is not None and "users" in case.path and "name" in (case.path_parameters or {}):
            case.path_parameters["name"] = "lena"
        answer = case.call(headers=HEADERS)
        heard.add(answer.status_code)
        assert answer.status_code < 500, (operation.label, answer.text)

    ask()
    return heard


def test_nothing_that_is_asked_is_a_server_error(tmp_path: Path) -> None:
    with site(tmp_path) as mill, closing(Accounts(tmp_path / "accounts.db")) as accounts:
        known = [record(number).id for number in range(3)]
        mill.status.state("yard", "online", "", 1.0)
        found = operations(mill, accounts)
        assert len(found) >= 21
        heard = {}
        for operation in found:
            mill.store.delete(ids=known)
            for number in range(3):
                mill.explanations[happen(mill, number).id] = from_plain(
                    EventExplanation, EXPLANATION, "explanation"
                )
            if accounts.find("lena") is None:
                accounts.create("lena", "look")
            heard[operation.label] = ask_at_random(operation, known)
        assert 200 in heard["GET /api/events/{id}"]
        assert 404 in heard["GET /api/events/{id}"]
        assert {200, 404} <= heard["PUT /api/users/{name}/role"] | heard["DELETE /api/users/{name}"]
        assert {201, 422} <= heard["POST /api/users"]
        assert {200, 422} <= heard["PUT /api/events/{id}/mark"] | heard["GET /api/events"]
