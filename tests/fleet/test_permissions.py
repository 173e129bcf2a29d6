"""Attempts of a stolen site against another one, of the same owner and of another."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from dataclasses import dataclass
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error
from nats.js.errors import APIError

from stepvad.fleet import streams
from stepvad.fleet.connection import Connection, UnavailableError, connected
from stepvad.fleet.permissions import MAX_PAYLOAD, SPARE, SUBSCRIPTIONS, Owner, accounts
from stepvad.fleet.settings import StreamSettings
from stepvad.site.settings.sections import BrokerSettings
from tests.fleet.servers import Broker, broker, broker_settings

MAKE_CERTIFICATES = Path(__file__).parents[2] / "deploy/fleet/make-certificates"
USERS = ("admin", "writer", "page", "thief", "yard", "camera", "central")
PASSWORDS = {name: f"secret-of-{name}" for name in USERS}
SETTINGS = StreamSettings(events_per_site=20, events_mb=10, files_mb=10, poses_mb=10)
SITES = {"thief": "gates", "yard": "yards"}
pytestmark = pytest.mark.anyio
SHORT_S = 0.3
"""Long enough for a broker on the same machine."""

ONE = (Owner(sites=SITES, devices={"camera": "thief"}, passwords=PASSWORDS),)
TWO = (
    Owner(
        name="east",
        sites={"thief": "gates"},
        devices={"camera": "thief"},
        passwords=PASSWORDS,
        memory_mb=20,
        disk_mb=3000,
    ),
    Owner(name="west", sites={"yard": "yards"}, passwords=PASSWORDS, memory_mb=20, disk_mb=3000),
)
CASES: Mapping[str, tuple[Owner, ...]] = {"one owner": ONE, "two owners": TWO}


@dataclass
class Outcome:
    changed: dict[str, list[bytes]]
    """Subjects in the streams of the yard's owner that are not as before, but for the thief's."""
    asked: list[Msg]
    """Questions that reached the yard."""
    said: str
    """Violations that the broker reported to the thief."""


class Attacker:
    """The bare client of a stolen site, and what the broker said against it."""

    client: Client

    def __init__(self) -> None:
        self.said: list[str] = []

    async def publish(
        self, subject: str, data: bytes = b"{}", reply: str = "", **headers: str
    ) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with suppress(Error):
            await self.client.publish(subject, data, reply=reply, headers=named or None)
            await self.client.flush()
        await asyncio.sleep(SHORT_S)

    async def answer(self, subject: str, data: bytes = b"") -> bytes | None:
        """What somebody answers; None if nobody does."""
        with suppress(Error, TimeoutError):
            told = await self.client.request(subject, data, timeout=SHORT_S)
            return None if told.headers and "Status" in told.headers else told.data
        return None


Attack = Callable[[Attacker], Awaitable[object]]


@dataclass
class Scene:
    """A broker with a stolen site, `thief`, and another one, `yard`, which works meanwhile."""

    server: Broker
    owners: tuple[Owner, ...]

    def user(self, name: str, owner: Owner) -> str:
        return f"{owner.name}-{name}" if owner.name else name

    def settings(self, name: str, owner: Owner) -> BrokerSettings:
        return broker_settings(
            [self.server], user=self.user(name, owner), password=f"env:OF_{name.upper()}"
        )

    def victim(self, name: str = "yard") -> AbstractAsyncContextManager[Connection]:
        """A user of the owner of the yard."""
        return connected(self.settings(name, self.owners[-1]), name)

    @asynccontextmanager
    async def as_thief(self, name: str = "thief") -> AsyncIterator[Attacker]:
        user, attacker = self.user(name, self.owners[0]), Attacker()

        async def hear(error: Exception) -> None:
            attacker.said.append(str(error).lower())

        attacker.client = await nats.connect(
            self.server.address,
            user=user,
            password=PASSWORDS[name],
            inbox_prefix=f"_INBOX.{user}",
            error_cb=hear,
            allow_reconnect=False,
        )
        try:
            yield attacker
        finally:
            await attacker.client.close()

    async def set_up(self, owner: Owner) -> None:
        async with connected(self.settings("admin", owner), "admin") as admin:
            for wanted in streams.configurations(SETTINGS):
                wanted.max_bytes = 10 * streams.MB
                await admin.js.add_stream(wanted)
            for subject in (
                *(streams.registry("yards"), streams.registry("gates"), streams.chunk("f" * 64, 0)),
                *(streams.marks("yard"), streams.marks("thief")),
            ):
                await admin.publish(subject, subject.encode())

    async def held(self) -> dict[str, list[bytes]]:
        """All that the streams of the yard's owner hold, by subject."""
        found: dict[str, list[bytes]] = {}
        async with self.victim("admin") as admin:
            for stream in ("EVENTS", "REGISTRY", "FILES", "MARKS", "STATUS", "POSES"):
                state = (await admin.js.stream_info(stream)).state
                for sequence in range(state.first_seq, state.last_seq + 1):
                    with suppress(APIError):
                        told = await admin.js.get_msg(stream, sequence)
                        found.setdefault(told.subject or "", []).append(told.data or b"")
        return found

    async def attempt(self, attack: Attack, as_: str = "thief") -> Outcome:
        """Let a thief do something while the yard works; what has changed, and what was heard."""
        asked: list[Msg] = []

        async def answer(message: Msg) -> None:
            asked.append(message)
            if message.reply:
                await message.respond(b"poses of the yard")

        async with self.victim() as yard:
            await yard.answer(streams.ask("yard"), answer)
            await yard.publish(streams.events("yard"), b"event of the yard")
            await yard.publish(streams.status("yard"), b"status of the yard")
            before = await self.held()
            async with self.as_thief(as_) as thief:
                await attack(thief)
            after = await self.held()
            await yard.publish(streams.events("yard"), b"a later event of the yard")
        changed = {
            subject: after.get(subject, [])
            for subject in before.keys() | after.keys()
            if before.get(subject) != after.get(subject) and not subject.endswith("thief")
        }
        return Outcome(changed, asked, " ".join(thief.said))


@pytest.fixture(autouse=True)
def _passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, password in PASSWORDS.items():
        monkeypatch.setenv(f"OF_{name.upper()}", password)


@pytest.fixture(params=CASES)
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    owners = CASES[request.param]
    with broker(tmp_path / "broker", accounts(*owners)) as server:
        made = Scene(server, owners)
        for owner in owners:
            await made.set_up(owner)
        yield made


async def test_a_site_does_all_that_it_needs(scene: Scene) -> None:
    async with scene.victim() as yard, scene.victim("page") as page:

        async def answer(message: Msg) -> None:
            await message.respond(b"because of " + message.data)

        await yard.answer(streams.ask("yard"), answer)
        assert await yard.publish(streams.events("yard"), b"event") == 1
        assert await yard.publish(streams.status("yard"), b"fine") == 1
        marks = await yard.last("MARKS", streams.marks("yard"))
        assert marks is not None
        for stream, subject in (
            *(("REGISTRY", streams.registry("yards")), ("MARKS", streams.marks("yard"))),
            ("FILES", streams.chunk("f" * 64, 0)),
        ):
            found = await yard.last(stream, subject)
            assert found is not None
            assert found.data == subject.encode()
        assert await page.request(streams.ask("yard"), b"x") == b"because of x"
        with pytest.raises(UnavailableError, match="got nobody"):
            await page.request(streams.ask("nobody"), b"x")
        status = await page.last("STATUS", streams.status("yard"))
        assert status is not None
        assert status.data == b"fine"
        assert await page.publish(streams.marks("yard"), b"new", expect=marks.revision)


async def test_a_device_sends_poses_of_its_site_and_nothing_else(scene: Scene) -> None:
    async def go(device: Attacker) -> None:
        await device.publish("poses.thief.gate", b"poses")
        assert not device.said
        for subject in ("poses.yard.gate", "events.thief", "status.thief", "ask.thief"):
            await device.publish(subject)
            assert f'publish to "{subject}"' in device.said[-1]

    assert not {*(await scene.attempt(go, "camera")).changed} - {"poses.thief.gate"}


HEARD = [
    *("events.yard", "status.yard", "marks.yard", "poses.yard.*", "ask.yard", "_INBOX.yard.>"),
    *("events.*", "status.thief", "_INBOX.>", "$JS.>", ">"),
]


async def test_a_site_hears_nothing_of_another(scene: Scene) -> None:
    heard: list[Msg] = []

    async def take(message: Msg) -> None:
        heard.append(message)

    async def listen(thief: Attacker) -> None:
        for n, subject in enumerate(HEARD, 1):
            await thief.client.subscribe(subject, cb=take)
            await thief.client.flush()
            await asyncio.sleep(SHORT_S)
            assert len(thief.said) == n, subject
            assert "permissions violation for subscription" in thief.said[-1]
        async with scene.victim("page") as page:
            assert await page.request(streams.ask("yard"), b"") == b"poses of the yard"

    outcome = await scene.attempt(listen)
    assert not heard
    assert len(outcome.asked) == 1


READ = [
    *("$JS.API.DIRECT.GET.MARKS.marks.yard", "$JS.API.DIRECT.GET.EVENTS.events.yard"),
    *("$JS.API.DIRECT.GET.REGISTRY.registry.yards", "$JS.API.DIRECT.GET.STATUS.status.yard"),
    *("$JS.API.DIRECT.GET.MARKS", "$JS.API.STREAM.MSG.GET.EVENTS", "$JS.API.STREAM.INFO.EVENTS"),
    *("$JS.API.STREAM.NAMES", "$JS.API.CONSUMER.CREATE.EVENTS", "$JS.API.INFO", "ask.yard"),
]
FORGED = [
    *("events.yard", "status.yard", "marks.yard", "marks.thief", "poses.yard.gate"),
    *("registry.yards", "registry.gates", f"files.{'f' * 64}.0", "$JS.API.STREAM.PURGE.EVENTS"),
    *("$JS.API.STREAM.DELETE.EVENTS", "$JS.API.STREAM.UPDATE.EVENTS", "$JS.API.STREAM.CREATE.X"),
]


async def test_a_site_reads_and_forges_nothing_of_another(scene: Scene) -> None:
    async def use(thief: Attacker) -> None:
        for subject in READ + FORGED:
            if subject in READ:
                assert await thief.answer(subject, b'{"last_by_subj": "events.yard"}') is None
            else:
                await thief.publish(subject, b"forged")
            assert f'permissions violation for publish to "{subject.lower()}"' in thief.said[-1]

    outcome = await scene.attempt(use)
    assert not outcome.changed
    assert not outcome.asked


TARGETS = ["events.yard", "status.yard", "marks.yard", "registry.yards"]
API = ["$JS.API.STREAM.PURGE.EVENTS", "$JS.API.STREAM.DELETE.EVENTS", "$JS.API.STREAM.PURGE.MARKS"]
OWN = ["events.thief", "$JS.API.DIRECT.GET.MARKS.marks.thief"]


async def test_an_answer_changes_nothing_wherever_a_site_sends_it(scene: Scene) -> None:
    # in the account that has the streams, each of these would be a message or a command
    async def reply(thief: Attacker) -> None:
        for subject in OWN:
            for target in [*TARGETS, *API, "ask.yard"]:
                await thief.publish(subject, reply=target)

    outcome = await scene.attempt(reply)
    assert not outcome.changed
    assert not [one for one in outcome.asked if one.reply]


async def test_no_site_takes_the_id_of_a_message_of_another(scene: Scene) -> None:
    async def take(thief: Attacker) -> None:
        await thief.publish("events.thief", Nats_Msg_Id="the next of the yard")
        async with scene.victim() as yard:
            before = (await scene.held())["events.yard"]
            await yard.publish(streams.events("yard"), b"the next")
            # a site gives no ids that one could take
            assert (await scene.held())["events.yard"] == [*before, b"the next"]

    await scene.attempt(take)


async def test_a_site_that_rolls_up_a_stream_or_fills_its_quota_evicts_nobody(
    scene: Scene,
) -> None:
    async def fill(thief: Attacker) -> None:
        for words in ("all", "sub"):
            for subject in ("status.thief", "events.thief"):
                await thief.publish(subject, Nats_Rollup=words)
        told = [await thief.answer("events.thief") for _ in range(25)]
        assert b"maximum messages per subject" in (told[-1] or b"")

    assert not (await scene.attempt(fill)).changed


async def test_a_site_that_sends_or_subscribes_to_more_than_it_needs_is_cut_off(
    scene: Scene,
) -> None:
    async def flood(thief: Attacker) -> None:
        await thief.publish("events.thief", bytes(MAX_PAYLOAD))
        assert thief.client.is_connected
        await thief.publish("events.thief", bytes(MAX_PAYLOAD + 1))
        assert not thief.client.is_connected

    async def subscribe(thief: Attacker) -> None:
        for n in range(SUBSCRIPTIONS + 1):
            assert thief.client.is_connected, n
            await thief.client.subscribe("ask.thief")
        await asyncio.sleep(SHORT_S)
        assert not thief.client.is_connected

    for attack in (flood, subscribe):
        assert not (await scene.attempt(attack)).changed


async def test_a_site_shuts_nobody_of_another_owner_out(scene: Scene) -> None:
    async def crowd(thief: Attacker) -> None:
        async with AsyncExitStack() as stack:
            made, own = 0, scene.settings("thief", scene.owners[0])
            with suppress(UnavailableError):
                while made < 3 * SPARE:
                    await stack.enter_async_context(connected(own, "thief"))
                    made += 1
            assert made < 2 * SPARE
            if len(scene.owners) == 1:  # it can take the connections of its owner's sites
                return
            async with scene.victim() as yard:
                await yard.publish(streams.events("yard"), b"event")

    await scene.attempt(crowd)


@pytest.mark.parametrize(
    ("name", "subjects"),
    [
        ("writer", ["events.yard", "$JS.API.STREAM.PURGE.MARKS", "ask.yard"]),
        ("page", ["events.yard", "$JS.API.STREAM.PURGE.EVENTS", "$JS.API.STREAM.DELETE.MARKS"]),
    ],
)
async def test_the_writer_and_the_page_do_their_own_work_alone(
    scene: Scene, name: str, subjects: Sequence[str]
) -> None:
    async with scene.as_thief(name) as user:
        for subject in subjects:
            await user.publish(subject)
        assert len(user.said) == len(subjects)


async def test_a_replica_of_the_centre_reads_poses_and_answers_the_page(tmp_path: Path) -> None:
    owner = Owner(
        sites=SITES, replicas={"central": "g"}, devices={"camera": "central"}, passwords=PASSWORDS
    )

    async def answer(message: Msg) -> None:
        await message.respond(b"here")

    with broker(tmp_path / "broker", accounts(owner)) as server:
        scene = Scene(server, (owner,))
        await scene.set_up(owner)
        async with (
            scene.victim("central") as central,
            scene.victim("page") as page,
            scene.as_thief("camera") as device,
        ):
            await central.answer(streams.ask("central"), answer)
            await central.publish(streams.events("central"), b"event")
            assert await page.request(streams.ask("central"), b"") == b"here"
            assert await device.answer("poses.central.gate", b"poses")
            reader = streams.Reader(central, streams.POSES, "central")
            await reader.open(filter_subject=streams.poses("central", "*"))
            assert [one.data for one in await reader.read()] == [b"poses"]


async def test_sites_with_certificates_keep_apart_too(tmp_path: Path) -> None:
    certs = tmp_path / "certs"
    subprocess.run(
        [MAKE_CERTIFICATES, certs, "--", "thief", "yard"], check=True, capture_output=True
    )
    tls = (
        f'tls {{ cert_file: "{certs}/nats.pem", key_file: "{certs}/nats.key", '
        f'ca_file: "{certs}/ca.pem", verify_and_map: true }}\n'
    )

    def settings(server: Broker, name: str) -> BrokerSettings:
        files = {
            "ca": certs / "ca.pem",
            "cert": certs / f"{name}.pem",
            "key": certs / f"{name}.key",
        }
        servers = [server.address.replace("nats://", "tls://")]
        return BrokerSettings.model_validate({"servers": servers, "tls": files})

    with broker(tmp_path / "broker", tls + accounts(Owner(sites=SITES))) as server:
        async with connected(settings(server, "admin"), "admin") as admin:
            await admin.js.add_stream(streams.configurations(SETTINGS)[0])
        async with connected(settings(server, "thief"), "thief") as thief:
            await thief.publish(streams.events("thief"), b"own")
            with pytest.raises(UnavailableError):
                await thief.publish(streams.events("yard"), b"forged")
        async with connected(settings(server, "yard"), "yard") as yard:
            assert await yard.publish(streams.events("yard"), b"real") == 2


def test_a_password_may_be_a_digest_and_a_renewed_certificate_can_replace_a_stolen_one() -> None:
    text = accounts(Owner(sites=SITES, passwords={"yard": "$2a$11$xyz", "thief": 'p"q'}))
    assert '"password": "$2a$11$xyz"' in text
    assert r'"password": "p\"q"' in text
    text = accounts(Owner(sites=SITES, subjects={"yard": "CN=yard,OU=2"}))
    assert '"user": "CN=yard,OU=2"' in text
    assert '"user": "CN=thief"' in text
