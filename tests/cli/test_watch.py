from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stepvad.cli import app
from stepvad.errors import ConfigError
from stepvad.site import demo
from stepvad.site.checking import check
from stepvad.site.settings.file import load
from stepvad.site.sinks import send_test
from tests.site.receivers import web_server
from tests.video.servers import free_port

pytestmark = pytest.mark.slow


def site(directory: Path, *people: str) -> Path:
    path = directory / "site.toml"
    text = f'model = "{demo.MODEL}"\n[[cameras]]\nname = "yard"\nurl = "demo:"\nrate = 12.5\n'
    path.write_text(text + "".join(f"[[sinks.notify]]\n{one}\n" for one in people))
    return path


def test_a_test_message_and_what_came_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with web_server() as server:
        server.statuses = [200, 403]
        address = server.address.removeprefix("http://")
        monkeypatch.setenv("GOOD", f"json://{address}/good-canary")
        path = site(tmp_path, 'to = ["browsers", "env:GOOD"]')
        words = ["watch", str(path), "--check", "--send-test"]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0
        assert "ok: camera yard: alerts at scores of" in done.stdout
        assert done.stdout.splitlines()[-2:] == [
            "ok: browsers: no browser has asked for notifications yet",
            "ok: env:GOOD: the json service took it",
        ]
        facts = json.loads(server.got[0].body)
        assert facts["title"] == "site: test"
        assert "Nothing has happened." in facts["message"]
        done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 1
    last = json.loads(done.stdout)[-1]
    assert last["state"] == "failed"
    assert "json of env:GOOD: expected the service to take a message, got: " in last["what"]
    assert "canary" not in done.output


def test_a_test_message_needs_people_and_a_check(tmp_path: Path) -> None:
    path = str(site(tmp_path))
    for words, told in (
        (["--check", "--send-test"], "expected people to notify, got none"),
        (["--send-test"], "expected --send-test and --json with --check, got them alone"),
    ):
        done = CliRunner().invoke(app, ["watch", path, *words])
        assert isinstance(done.exception, ConfigError)
        assert told in str(done.exception)


def test_watch_check_looks_at_the_addresses_and_connects_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NTFY", f"ntfy://127.0.0.1:{free_port()}/canary")
    path = site(tmp_path, 'to = ["browsers", "env:NTFY"]')
    told = [*check(load(path))]
    assert "ok: there is a secret in env:NTFY" in told
    assert "ok: people people: browsers: none yet" in told
    assert "ok: people people: env:NTFY: a ntfy address" in told
    link = "warning: messages link to http://127.0.0.1:8080, which opens on"
    assert any(line.startswith(link) for line in told)
    assert "canary" not in str(told)
    assert not (tmp_path / "site-data").exists(), "nothing is written"
    monkeypatch.setenv("NTFY", "canary://x")
    with pytest.raises(
        ConfigError, match="env:NTFY: expected an address that Apprise knows"
    ) as error:
        [*check(load(path))]
    assert "canary" not in str(error.value)


def test_the_settings_page_tests_one_target_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with web_server() as server:
        server.statuses = [200]
        monkeypatch.setenv("GOOD", f"json://{server.address.removeprefix('http://')}/x")
        send_test(load(site(tmp_path, 'to = ["browsers", "env:GOOD"]')), "notify:people:2")
    assert json.loads(server.got[0].body)["title"] == "site: test"
