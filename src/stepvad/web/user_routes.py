"""API routes of accounts: who I am, all users, and the audit log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from stepvad.errors import ConfigError, DataError
from stepvad.site.accounts import NAME, Account, Accounts, AuditEntry, Role, User, link_path
from stepvad.web.identity import Identity, KnownBy
from stepvad.web.routes import Problem, Strict

MOST_ENTRIES = 500
UserName = Annotated[str, Path(description="Name of a user.", max_length=64)]
NO_USER: dict[int | str, dict[str, Any]] = {
    404: {"model": Problem, "description": "There is no such user."}
}
TAKEN: dict[int | str, dict[str, Any]] = {
    409: {"model": Problem, "description": "This cannot be done now."}
}


@dataclass(frozen=True, slots=True)
class Me:
    """Who is logged in."""

    name: str
    role: Role
    known_by: KnownBy
    """By the token, by a session, or by the word of a proxy."""


class UserAnswer(BaseModel):
    """An account without its secrets."""

    model_config = ConfigDict(from_attributes=True, frozen=True, use_attribute_docstrings=True)

    name: str
    role: Role
    has_password: bool
    created: float
    last_login: float | None
    link_expires: float | None
    """Until when its log-in link can be used."""


class LinkAnswer(BaseModel):
    """A log-in link; it is shown once."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    user: UserAnswer
    path: str
    """The link, without the address of the page."""


class RoleRequest(Strict):
    """A role to have."""

    role: Role


class UserRequest(RoleRequest):
    """A user to add."""

    name: str = Field(pattern=NAME)


def add_user_routes(app: FastAPI, accounts: Accounts) -> None:
    """Add all routes of accounts."""
    _add_users(app, accounts)
    _add_one_user(app, accounts)

    @app.get("/api/me", tags=["users"])
    def me(request: Request) -> Me:
        """Who asks."""
        identity: Identity = request.state.identity
        return Me(identity.user.name, identity.user.role, identity.known_by)

    @app.get("/api/audit", tags=["users"])
    def audit(
        before: Annotated[
            int | None, Query(description="`seq` of the last line seen.", ge=0, le=2**62)
        ] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_ENTRIES)] = 50,
    ) -> list[AuditEntry]:
        """Who looked at what, who changed what, and who logged in; the newest first."""
        return accounts.audit.entries(before=before, limit=limit)


def _add_users(app: FastAPI, accounts: Accounts) -> None:
    @app.get("/api/users", tags=["users"])
    def users() -> list[UserAnswer]:
        """All accounts by name."""
        return [UserAnswer.model_validate(account) for account in accounts.all()]

    @app.post("/api/users", tags=["users"], status_code=201, responses=TAKEN)
    def add(wanted: UserRequest, request: Request) -> LinkAnswer:
        """Add a user, who chooses a password with the link of the answer within a day."""
        request.state.audit_subject = f"{wanted.name}: {wanted.role}"
        try:
            accounts.create(wanted.name, wanted.role)
        except ConfigError as error:
            raise HTTPException(409, str(error)) from None
        return _link(accounts, wanted.name)


def _add_one_user(app: FastAPI, accounts: Accounts) -> None:
    @app.put("/api/users/{name}/role", tags=["users"], responses=NO_USER | TAKEN)
    def role(name: UserName, wanted: RoleRequest, request: Request) -> UserAnswer:
        """Change a role; it counts from the next request on."""
        account = _known(accounts, name)
        _check_other(request, account)
        request.state.audit_subject = f"{account.name}: {wanted.role}"
        return UserAnswer.model_validate(accounts.set_role(account.name, wanted.role))

    @app.post("/api/users/{name}/link", tags=["users"], responses=NO_USER)
    def link(name: UserName) -> LinkAnswer:
        """A new log-in link; earlier ones are worthless from then on."""
        return _link(accounts, _known(accounts, name).name)

    @app.delete("/api/users/{name}", tags=["users"], status_code=204, responses=NO_USER | TAKEN)
    def remove(name: UserName, request: Request) -> Response:
        """Remove a user, who is logged out everywhere."""
        account = _known(accounts, name)
        _check_other(request, account)
        accounts.remove(account.name)
        return Response(status_code=204)


def _known(accounts: Accounts, name: str) -> Account:
    try:
        return accounts.account(name)
    except DataError as error:
        raise HTTPException(404, str(error)) from None


def _check_other(request: Request, account: Account) -> None:
    """Nobody takes the own role or account away by mistake."""
    user: User = request.state.user
    if user.name == account.name:
        raise HTTPException(
            409, f"user {account.name}: expected another user, got the one who is logged in"
        )


def _link(accounts: Accounts, name: str) -> LinkAnswer:
    key = accounts.new_link(name)
    return LinkAnswer(user=UserAnswer.model_validate(accounts.account(name)), path=link_path(key))
