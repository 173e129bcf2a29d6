from __future__ import annotations

import re
from pathlib import Path

import pytest

from stepvad.errors import ConfigError
from stepvad.fleet.settings import load, load_edge, load_worker
from stepvad.site.intake import demo
from tests.pages import ROOT

EDGE = 'name = "north"\n[[cameras]]\nname = "yard"\nurl = "demo:"\n'


def test_the_settings_that_the_guide_shows_are_settings(tmp_path: Path) -> None:
    guide = (ROOT / "docs/guides/fleet-edge-and-events.md").read_text()
    edge, fleet = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "site.toml").write_text(edge)
    told = load_edge(tmp_path / "site.toml")
    assert (told.name, told.fleet.publish) == ("north", "poses")
    assert told.fleet.bus.tls is not None
    assert told.fleet.bus.tls.key == tmp_path / "certs/edge-north.key"
    (tmp_path / "fleet.toml").write_text(fleet)
    assert load(tmp_path / "fleet.toml").events.dsn == "env:STEPVAD_EVENTS_DSN"


def test_the_first_settings_of_a_fleet_work_without_any_file(tmp_path: Path) -> None:
    guide = (ROOT / "docs/guides/run-a-fleet.md").read_text()
    fleet, edge, models, *_ = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "fleet.toml").write_text(fleet)
    (tmp_path / "site.toml").write_text(edge)
    told, site = load_worker(tmp_path / "fleet.toml"), load_edge(tmp_path / "site.toml")
    assert told.models[0].model.is_file()
    assert told.web.port != site.web.port
    assert site.cameras[0].rate == demo.RATE
    assert told.bus == site.fleet.bus
    (tmp_path / "models.toml").write_text(models)
    assert load(tmp_path / "models.toml").models[0].model == tmp_path / "north.safetensors"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('[fleet]\npublish = "pictures"\n', r"line 6: fleet.publish: expected 'poses' or 'events'"),
        ("[fleet]\nframes = 3\n", r"line 6: fleet.frames: expected a known key"),
        ("[fleet]\nbuffer_mb = 0\n", r"line 6: fleet.buffer_mb: expected greater than 0"),
        ('[fleet.bus]\ninbox = ">"\n', r"line 6: fleet.bus.inbox: expected the form"),
    ],
)
def test_an_edge_refuses_what_it_cannot_do_with_the_line(
    tmp_path: Path, more: str, words: str
) -> None:
    (tmp_path / "site.toml").write_text(EDGE + more)
    with pytest.raises(ConfigError, match=words):
        load_edge(tmp_path / "site.toml")


def test_a_dsn_is_a_reference_and_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text('[events]\ndsn = "postgresql://a:canary-Zq7@b/c"\n')
    with pytest.raises(ConfigError, match=r"line 2: events.dsn: expected env:NAME") as told:
        load(tmp_path / "fleet.toml")
    assert "canary" not in f"{told.value}"


def test_hours_are_refused_where_poses_leave_the_site(tmp_path: Path) -> None:
    file = tmp_path / "edge.toml"
    text = '[[cameras]]\nname = "a"\nurl = "demo:"\nhours = ["08:00-18:00"]\n'
    file.write_text(text)
    with pytest.raises(ConfigError, match='expected hours with publish = "events"'):
        load_edge(file)
    file.write_text(f'{text}[fleet]\npublish = "events"\n')
    assert load_edge(file).cameras[0].hours == ["08:00-18:00"]
