"""The API of settings and of messages to people."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from stepvad.site import demo
from stepvad.site.accounts import Accounts
from stepvad.site.notify.push import MOST_EACH, PushSubscriptions
from stepvad.site.settings.changes import Changes
from stepvad.site.settings.file import load
from stepvad.site.settings.live import SettingsEditor
from stepvad.site.settings.page import NotifySettings
from stepvad.site.settings.sections import Sinks, SiteSettings
from stepvad.site.sinks import send_test
from stepvad.site.trial import CameraProblem, try_camera
from tests.site.notify.services import Browser, push_service
from tests.site.receivers import web_server
from tests.site.sites import video_camera, write_networks
from tests.video.servers import CANARY
from tests.video.tls_servers import recording_server
from tests.web.sites import BEARER, HERE, Site, browser_of, site
from tests.web.sites import with_people as with_accounts

TEXT = f"""\
# The mill.
name = "mill"
model = "{demo.MODEL}"

# by the gate
[[cameras]]
name = "gate"
url = "demo:" # the bundled scene
rate = 12.5
zones.left = [[0.0, 0.0], [0.5, 0.0], [0.5, 1.0], [0.0, 1.0]]

[sinks.file]
path = "events.jsonl"
"""
ZONE = [[0.1, 0.2], [0.3, 0.2], [0.3, 0.6]]
LEFT = {"left": [[0.0, 0.0], [0.5, 0.0], [0.5, 1.0], [0.0, 1.0]]}
LIVE = {"edit": "set zones", "camera": "gate", "zones": LEFT | {"door": ZONE}}


class Editing:
    """A site with a settings file, and somebody who may change it."""

    def __init__(self, mill: Site, directory: Path, text: str = TEXT) -> None:
        self.file = directory / "site.toml"
        self.file.write_text(text)
        self.restarts = 0
        self.applied: list[SiteSettings] = []
        self.left: list[str] = []
        mill.editor = SettingsEditor(self.file, load(self.file), self._restart)
        mill.editor.apply = self._apply
        self.client = TestClient(mill.app(), base_url=HERE, headers=BEARER)

    def _restart(self) -> None:
        self.restarts += 1

    def _apply(self, settings: SiteSettings, changes: Changes) -> list[str]:
        self.applied.append(settings)
        assert self.left != ["wrong"]
        return self.left

    def settings(self) -> dict[str, Any]:
        answer = self.client.get("/api/settings")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def edit(self, *edits: dict[str, Any], digest: str | None = None) -> tuple[int, Any]:
        digest = digest or self.settings()["digest"]
        body = {"digest": digest, "edits": edits}
        answer = self.client.patch("/api/settings", json=body)
        return answer.status_code, answer.json()

    def refused(self, text: str) -> str:
        """Why a text is not saved."""
        body = {"digest": self.settings()["digest"], "text": text}
        answer = self.client.put("/api/settings", json=body)
        assert answer.status_code == 422
        return str(answer.json()["detail"]["problem"])

    def post(self, path: str, **body: object) -> tuple[int, Any]:
        answer = self.client.post(f"/api/settings/{path}", json=body)
        return answer.status_code, answer.json()


@pytest.fixture
def editing(mill: Site, tmp_path: Path) -> Editing:
    (tmp_path / "files").mkdir()
    return Editing(mill, tmp_path / "files")


def test_the_file_is_read_with_its_values(editing: Editing) -> None:
    told = editing.settings()
    assert told["text"] == TEXT
    assert told["wrong"] is None
    (gate,) = told["values"]["cameras"]
    assert gate == {"name": "gate", "url": "demo:", "rate": 12.5, "zones": LEFT, "zone_hours": {}}
    assert told["values"]["sinks"] == ["file"]
    assert told["values"]["retention"]["events_days"] == 30


def test_edits_are_saved_together_and_the_site_starts_again_once(editing: Editing) -> None:
    status, told = editing.edit(
        {"edit": "add camera", "keys": {"name": "yard", "url": "demo:", "rate": 12.5}},
        LIVE,
        {"edit": "change section", "section": "retention", "keys": {"events_days": 3}},
    )
    assert (status, told["effect"], editing.restarts) == (200, "restart", 1)
    assert "because of: camera yard." in told["words"]
    text = editing.file.read_text()
    assert told["text"] == text
    assert told["digest"] == editing.settings()["digest"]
    assert text.startswith("# The mill.\n")
    assert "zones.door = [[0.1, 0.2], [0.3, 0.2], [0.3, 0.6]]\n" in text
    assert [camera.name for camera in load(editing.file).cameras] == ["gate", "yard"]
    assert (editing.file.parent / "site.toml.before").read_text() == TEXT


def test_what_changes_nothing_starts_nothing_again(editing: Editing) -> None:
    status, told = editing.edit({"edit": "change camera", "camera": "gate", "keys": {"rate": 12.5}})
    assert (status, told["effect"], editing.restarts) == (200, "none", 0)


def test_what_needs_no_restart_is_applied_and_said_before(editing: Editing) -> None:
    asked = {"digest": editing.settings()["digest"], "edits": [LIVE]}
    answer = editing.client.post("/api/settings/effect", json=asked)
    assert answer.json()["effect"] == "live"
    _, unsaid = editing.post("effect", text=TEXT.replace("rate = 12.5", "rate = "))
    assert unsaid == {"effect": "none", "words": ""}
    assert (editing.applied, editing.file.read_text()) == ([], TEXT)
    status, told = editing.edit(LIVE)
    assert (status, told["effect"], editing.restarts) == (200, "live", 0)
    assert [*editing.applied[0].camera("gate").zones] == ["left", "door"]
    # a comment alone is saved, and nothing is applied
    digest, text = told["digest"], f"{told['text']}# seen\n"
    answer = editing.client.put("/api/settings", json={"digest": digest, "text": text})
    assert (answer.json()["effect"], len(editing.applied)) == ("none", 1)
    assert editing.file.read_text() == text
    # what a stage in the way does not let happen takes a restart
    editing.left = ["webhook:desk"]
    status, told = editing.edit(LIVE | {"zones": LEFT})
    assert (status, told["effect"], editing.restarts) == (200, "restart", 1)
    assert "because of: webhook:desk." in told["words"]


def test_a_change_that_fails_half_way_is_said_and_leaves_the_file_before(editing: Editing) -> None:
    editing.left = ["wrong"]
    status, told = editing.edit(LIVE)
    assert status == 422
    assert "expected to apply the change, got: AssertionError" in told["detail"]["problem"]
    assert "restarts with the settings before" in told["detail"]["hint"]
    assert (editing.file.read_text(), editing.restarts) == (TEXT, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f'{TEXT}\n[web]\nhost = "192.0.2.1"\n', "web: expected to listen on 192.0.2.1, got: "),
        (f'data = "/proc/none"\n{TEXT}', "data: expected a directory that the site can write to"),
    ],
)
def test_what_would_keep_the_site_from_coming_back_is_refused(
    editing: Editing, text: str, words: str
) -> None:
    assert words in editing.refused(text)


@pytest.mark.parametrize(
    ("edit", "line", "words"),
    [
        ({"keys": {"rate": -3}}, 9, "cameras.rate: expected greater than 0, got -3"),
        ({"keys": {"hours": ["8-18"]}}, 11, "expected hours as HH:MM-HH:MM, got '8-18'"),
        ({"keys": {"credentials": "secret"}}, 11, "expected env:NAME or file:PATH"),
        ({"keys": {"url": "ftp://a/b"}}, 8, "expected one of rtsp, rtsps"),
        ({"keys": {"colour": "red"}}, 11, "expected a known key, got 'colour'"),
    ],
)
def test_a_broken_edit_is_refused_with_its_line(
    editing: Editing, edit: dict[str, Any], line: int, words: str
) -> None:
    status, told = editing.edit({"edit": "change camera", "camera": "gate"} | edit)
    assert status == 422
    wrong = told["detail"]
    assert words in wrong["problem"]
    assert wrong["line"] == line
    assert wrong["excerpt"].startswith(next(iter(edit["keys"])))
    assert editing.file.read_text() == TEXT
    assert editing.restarts == 0
    assert [one.name for one in editing.file.parent.iterdir()] == ["site.toml"]


def test_what_would_not_start_is_refused(editing: Editing) -> None:
    status, told = editing.edit(
        {"edit": "change camera", "camera": "gate", "keys": {"model": "none.safetensors"}}
    )
    assert status == 422
    assert "none.safetensors" in told["detail"]["problem"]
    assert editing.file.read_text() == TEXT


def test_a_change_by_hand_is_not_overwritten(editing: Editing) -> None:
    digest = editing.settings()["digest"]
    by_hand = TEXT.replace("12.5", "10")
    editing.file.write_text(by_hand)
    status, told = editing.edit({"edit": "remove camera", "camera": "gate"}, digest=digest)
    assert status == 409
    assert "was changed since" in told["detail"]["problem"]
    assert "load it again" in told["detail"]["hint"]
    answer = editing.client.put("/api/settings", json={"digest": digest, "text": TEXT})
    assert answer.status_code == 409
    assert editing.file.read_text() == by_hand


def test_the_whole_text_is_saved_or_refused(editing: Editing) -> None:
    digest = editing.settings()["digest"]
    broken = TEXT.replace("rate = 12.5", "rate = fast")
    answer = editing.client.put("/api/settings", json={"digest": digest, "text": broken})
    assert answer.status_code == 422
    assert answer.json()["detail"]["line"] == 9
    assert editing.file.read_text() == TEXT
    text = TEXT.replace("rate = 12.5", "rate = 10 # slower")
    answer = editing.client.put("/api/settings", json={"digest": digest, "text": text})
    assert answer.status_code == 200
    assert (answer.json()["effect"], editing.restarts) == ("restart", 1)
    assert editing.file.read_text() == text


def test_a_file_that_was_broken_by_hand_is_shown_with_the_line(editing: Editing) -> None:
    editing.file.write_text(TEXT.replace("rate = 12.5", "ratte = 12.5"))
    told = editing.settings()
    assert told["values"] is None
    assert told["wrong"]["line"] == 9
    assert "got 'ratte'" in told["wrong"]["problem"]


def test_a_port_that_another_program_has_is_refused(editing: Editing) -> None:
    import socket

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        text = f"{TEXT}\n[web]\nport = {other.getsockname()[1]}\n"
        assert "Address already in use" in editing.refused(text)


def test_without_a_file_every_route_says_so(client: TestClient) -> None:
    for answer in (
        client.get("/api/settings"),
        client.put("/api/settings", json={"digest": "", "text": ""}),
        client.post("/api/settings/try-camera", json={"keys": {}}),
        client.post("/api/settings/test-sink", json={"name": "file"}),
    ):
        assert answer.status_code == 404
        assert "no settings file" in answer.json()["detail"]["problem"]


def test_a_camera_of_poses_is_tried(editing: Editing) -> None:
    status, told = editing.post("try-camera", keys={"url": "demo:"})
    assert (status, told["size"]) == (200, [1280, 720])
    assert (told["cost"], told["advice"]) == (None, [])  # what a file plays costs nothing
    assert told["people"]
    assert all(len(person) == 17 for person in told["people"])
    assert [0, 5, 6] in told["bones"]


@pytest.mark.slow
def test_a_camera_with_pictures_is_tried_with_the_networks_of_the_site(
    mill: Site, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    networks, video = write_networks(files), video_camera("walk", files, n_frames=20)
    assert video
    editing = Editing(mill, files, TEXT + networks)
    status, told = editing.post("try-camera", keys={"url": "walk.mkv"})
    assert (status, "problem" in told) == (200, False)
    assert len(told["people"]) == 1
    assert "this machine carries" in told["advice"][0]
    (person,) = told["people"]
    width, height = told["size"]
    assert all(0 <= x <= width and 0 <= y <= height for x, y in person)
    _, told = editing.post("try-camera", keys={"url": "none.mkv"})
    assert "expected a video file, got no file" in told["problem"]


SECRETS = """
[[cameras]]
name = "door"
url = "rtsp://127.0.0.1:9/stream"
credentials = "env:DOOR"
threshold = 3.0
rate = 12.5
[[sinks.webhooks]]
url = "https://example.org/hook"
secret = "file:hook.secret"
"""


@pytest.fixture
def guarded(mill: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Editing:
    """A site with a password of a camera, and other secrets beside it."""
    monkeypatch.setenv("DOOR", "admin:tops3cret")
    monkeypatch.setenv("MQTTPW", "tops3cret")
    files = tmp_path / "files"
    files.mkdir()
    for name, line in (("hook", "tops3cret"), ("ntfy", "ntfys://tops3cret@ntfy.example/topic")):
        (files / f"{name}.secret").write_text(line)
        (files / f"{name}.secret").chmod(0o600)
    return Editing(mill, files, TEXT + SECRETS + write_networks(files))


def test_a_browser_has_no_secret_sent_to_its_own_host(
    guarded: Editing, caplog: pytest.LogCaptureFixture
) -> None:
    with web_server() as thief:
        netloc = thief.address.removeprefix("http://")
        cameras: list[dict[str, str | None]] = [
            {"url": f"{thief.address}/camera/${{MQTTPW}}"},
            {"url": f"http://${{DOOR}}@{netloc}/camera", "credentials": None},
            {"url": f"{thief.address}/camera", "credentials": "env:DOOR"},
            {"url": f"{thief.address}/camera", "credentials": "file:ntfy.secret"},
        ]
        changes = [{"edit": "change camera", "camera": "door", "keys": keys} for keys in cameras]
        hook = {"section": "sinks.webhooks", "name": "webhook", "keys": {"url": thief.address}}
        changes.append({"edit": "change section"} | hook)
        before = guarded.file.read_text()
        refused = [guarded.post("try-camera", keys=keys) for keys in cameras]
        refused += [guarded.edit(change) for change in changes]
        text = before.replace("https://example.org", thief.address)
        body = {"digest": guarded.settings()["digest"], "text": text}
        answer = guarded.client.put("/api/settings", json=body)
        refused.append((answer.status_code, answer.json()))
    assert thief.got == []
    for status, told in refused:
        assert status == 422
        assert told["detail"]["problem"].startswith("expected secrets that the saved settings use")
        assert "on the machine itself" in told["detail"]["hint"]
    assert guarded.file.read_text() == before
    assert "tops3cret" not in json.dumps(refused) + caplog.text
    # who asked for it stands in the audit log
    log = guarded.client.get("/api/audit").json()
    found = [one["subject"] for one in log if one["action"] == "was refused"]
    assert len(found) == len(refused)
    assert f"for {thief.address}, got env:DOOR" in "\n".join(found)


def test_a_password_typed_in_a_browser_goes_into_a_private_file(guarded: Editing) -> None:
    secrets = load(guarded.file).data / "secrets"
    keys = {"name": "new", "url": "rtsp://127.0.0.1:9/1", "credentials": "admin:typed", "rate": -1}
    status, told = guarded.edit({"edit": "add camera", "keys": keys})
    assert (status, [*secrets.iterdir()]) == (422, []), told
    status, told = guarded.edit({"edit": "add camera", "keys": keys | {"rate": 12.5}})
    assert status == 200, told
    (file,) = secrets.iterdir()
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("admin:typed\n", 0o600)
    assert load(guarded.file).camera("new").credentials == f"file:{file}"
    assert "admin:typed" not in guarded.file.read_text()
    # from then on it is a secret like the others
    moved = {"edit": "change camera", "camera": "new", "keys": {"url": "rtsp://127.0.0.2:9/1"}}
    status, told = guarded.edit(moved)
    assert (status, "got file:" in told["detail"]["problem"]) == (422, True)


@pytest.mark.slow
def test_a_camera_that_does_not_answer_is_said_without_its_password(guarded: Editing) -> None:
    keys = {"url": "rtsp://127.0.0.1:9/other?session=5", "credentials": "env:DOOR"}
    status, told = guarded.post("try-camera", keys=keys)
    assert status == 200
    assert "refused" in told["problem"]
    assert "tops3cret" not in json.dumps(told)
    # its host stands in the audit log, and who tried it
    log = guarded.client.get("/api/audit").json()
    tried = [(one["user"], one["subject"]) for one in log if one["action"] == "tried a camera"]
    assert tried == [("token", "rtsp://127.0.0.1:9")]
    # a password that was typed goes to the camera and stays nowhere
    with recording_server() as camera:
        keys = {"url": f"http://127.0.0.1:{camera.port}/1", "credentials": f"viewer:{CANARY}"}
        _, told = guarded.post("try-camera", keys=keys)
    assert camera.got_password
    assert CANARY not in json.dumps(told)
    assert [*(load(guarded.file).data / "secrets").iterdir()] == []


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, "cameras.url: expected a value, got none"),
        ({"url": "ftp://host/a"}, "expected one of rtsp"),
        ({"url": "rtsp://a:b@host/1"}, "expected an address without credentials"),
        ({"url": "rtsp://host/1", "credentials": "a-b"}, "expected env:NAME or file:PATH"),
    ],
)
def test_what_the_file_may_not_have_is_not_tried(
    editing: Editing, keys: dict[str, str], words: str
) -> None:
    status, told = editing.post("try-camera", keys=keys)
    assert status == 422
    assert words in told["detail"]["problem"]
    assert "a:b" not in json.dumps(told)


def test_one_camera_is_tried_at_a_time(editing: Editing, monkeypatch: pytest.MonkeyPatch) -> None:
    began, over = threading.Event(), threading.Event()

    def slow(*_: object) -> CameraProblem:
        began.set()
        over.wait(30)
        return CameraProblem("over")

    monkeypatch.setattr("stepvad.site.settings.live.try_camera", slow)
    asked = {"keys": {"url": "demo:"}}
    first = threading.Thread(target=editing.post, args=["try-camera"], kwargs=asked)
    first.start()
    assert began.wait(30)
    status, told = editing.post("try-camera", keys={"url": "demo:"})
    over.set()
    first.join()
    assert status == 409
    assert "another camera is being tried" in told["detail"]["problem"]


def test_a_trial_has_a_deadline(editing: Editing) -> None:
    assert editing.file
    found = try_camera(load(editing.file).cameras[0], load(editing.file).pose, "text", within_s=0.0)
    assert found == CameraProblem("no picture within 0 s")


def test_a_test_goes_through_the_sink(editing: Editing) -> None:
    status, told = editing.post("test-sink", name="file")
    assert (status, told["outcome"]) == (200, "sent")
    lines = (editing.file.parent / "events.jsonl").read_text().splitlines()
    new, end = map(json.loads, lines)
    assert (new["type"], end["type"]) == ("new", "end")
    assert (new["after"]["label"], new["after"]["camera"]) == ("test", "gate")
    assert end["after"]["id"] == new["after"]["id"]
    status, told = editing.post("test-sink", name="mqtt")
    assert told == {
        "outcome": "failed",
        "words": "sink: expected one of the site, got 'mqtt'; its sinks: file",
    }


@pytest.mark.slow
def test_a_webhook_says_what_it_answered(mill: Site, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    with web_server() as server:
        hook = f'[[sinks.webhooks]]\nname = "desk"\nurl = "{server.address}/hook"\n'
        editing = Editing(mill, files, TEXT + hook)
        _, told = editing.post("test-sink", name="webhook:desk")
        assert told["outcome"] == "sent"
        assert [json.loads(one.body)["type"] for one in server.got] == [
            "dev.stepvad.event.new",
            "dev.stepvad.event.end",
        ]
        assert not (files / "events.jsonl").exists()  # the other sink got nothing
        server.statuses.append(404)
        _, told = editing.post("test-sink", name="webhook:desk")
        assert told["outcome"] == "failed"
        assert "expected 2xx, got 404" in told["words"]


ENDPOINT = "https://updates.push.services.mozilla.com/wpush/v2/abc"
PATH = "/api/notifications/subscriptions"


def with_people(mill: Site, *to: str) -> Site:
    people = NotifySettings(name="guards", to=[*to])
    settings = mill.settings.model_copy(update={"sinks": Sinks(notify=[people])})
    return replace(mill, settings=settings)


@pytest.fixture
def visitor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """Of a site that notifies browsers and env:PEOPLE."""
    monkeypatch.setenv("PEOPLE", "json://127.0.0.1:9/canary")
    with site(tmp_path) as mill:
        app = with_people(mill, "browsers", "env:PEOPLE").app()
        yield TestClient(app, base_url=HERE, headers=BEARER, follow_redirects=False)


def subscription(browser: Browser, endpoint: str = ENDPOINT) -> dict[str, object]:
    """As a browser sends it, with a field that we do not use."""
    keys = {"p256dh": browser.p256dh, "auth": browser.auth}
    return {"endpoint": endpoint, "expirationTime": None, "keys": keys}


def test_who_gets_messages(visitor: TestClient, tmp_path: Path) -> None:
    found = visitor.get("/api/notifications").json()
    (people,) = found["people"]
    assert people["name"] == "guards"
    assert people["to"] == ["browsers", "env:PEOPLE"]
    assert people["events"] == "all cameras"
    assert people["limits"] == ["at most 12 messages an hour, the rest in one"]
    assert people["browsers"] is True
    assert found["browsers"] == 0
    assert found["public_key"] == PushSubscriptions(tmp_path).key().x962_str
    assert "canary" not in str(found)


def test_a_browser_comes_and_goes(visitor: TestClient, tmp_path: Path) -> None:
    browser = Browser()
    assert visitor.put(PATH, json=subscription(browser)).status_code == 204
    assert visitor.put(PATH, json=subscription(browser)).status_code == 204
    assert visitor.get("/api/notifications").json()["browsers"] == 1
    (one,) = PushSubscriptions(tmp_path).all()
    assert (one.endpoint, one.auth) == (ENDPOINT, browser.auth)
    for _ in range(2):
        gone = visitor.request("DELETE", PATH, json={"endpoint": ENDPOINT})
        assert gone.status_code == 204
    assert visitor.get("/api/notifications").json()["browsers"] == 0


def test_a_site_posts_to_push_services_of_browsers_only(visitor: TestClient) -> None:
    answer = visitor.put(PATH, json=subscription(Browser(), "https://127.1/"))
    assert answer.status_code == 422
    assert "at the push service of a browser's maker" in answer.json()["detail"]


def test_whoever_may_look_silences_nobody_elses_phone(mill: Site, tmp_path: Path) -> None:
    with closing(Accounts(tmp_path / "accounts.db")) as accounts:
        app = with_people(mill, "browsers").app(accounts=with_accounts(accounts))
        ada, lena, keys = browser_of(app, "ada"), browser_of(app, "lena"), Browser()
        assert ada.put(PATH, json=subscription(keys)).status_code == 204
        for n in range(64):
            assert lena.put(PATH, json=subscription(keys, f"{ENDPOINT}/{n}")).status_code == 204
        found = [one.account for one in PushSubscriptions(tmp_path).all()]
    assert found == ["ada", *["lena"] * MOST_EACH]


@pytest.mark.parametrize(
    ("p256dh", "auth"),
    [("x", ""), ("", ""), (None, "ö"), (None, ""), ("BAAA", None), ("B" + "A" * 86, None)],
)
def test_keys_that_are_none_are_refused(
    visitor: TestClient, p256dh: str | None, auth: str | None
) -> None:
    browser = Browser()
    keys = {
        "p256dh": browser.p256dh if p256dh is None else p256dh,
        "auth": browser.auth if auth is None else auth,
    }
    answer = visitor.put(PATH, json={"endpoint": ENDPOINT, "keys": keys})
    assert answer.status_code == 422
    assert "expected the keys of a browser" in answer.json()["detail"]


def test_a_site_that_notifies_no_browser_says_so(tmp_path: Path) -> None:
    with site(tmp_path) as mill:
        visitor = TestClient(mill.app(), base_url=HERE, headers=BEARER)
        found = visitor.get("/api/notifications").json()
        assert found == {"people": [], "browsers": 0, "public_key": None}
        answer = visitor.put(PATH, json=subscription(Browser()))
        assert answer.status_code == 409
        assert 'to = ["browsers"]' in answer.json()["detail"]
    assert not (tmp_path / "notifications").exists(), "no key is made in vain"


@pytest.mark.slow
def test_from_the_site_to_the_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscribe at the site, send a test, and read it as the browser does."""
    monkeypatch.setattr("stepvad.web.site_routes.check_endpoint", lambda endpoint: None)
    browser = Browser()
    with push_service(tmp_path) as service, site(tmp_path / "data") as mill:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "chain.pem"))
        mill = with_people(mill, "browsers")
        visitor = TestClient(mill.app(), base_url=HERE, headers=BEARER)
        visitor.put(PATH, json=subscription(browser, f"{service.address}/send/1"))
        assert send_test(mill.settings, "notify:guards") == "1 of 1 browsers got it"
        assert b'"title": "mill: test"' in browser.read(service.got[0][2])


def test_the_service_worker_is_at_the_root_and_may_run(visitor: TestClient) -> None:
    answer = visitor.get("/sw.js")
    assert answer.headers["Content-Type"].startswith("text/javascript")
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    assert "showNotification" in answer.text
    assert "Notify this browser" in visitor.get("/notifications").text
