"""Edits of a settings file: what was asked for changes, and not one byte beside it."""

from __future__ import annotations

import tomllib
from difflib import ndiff
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from stepvad.errors import ConfigError
from stepvad.site.settings.editing import Edit, edited, join_tables, split_tables
from stepvad.site.settings.file import SettingsError, load
from stepvad.site.settings.live import FileChangedError, read_settings, save_settings

TEXT = """\
# The shop in the High Street.
name = "shop" # its name
model = "m.safetensors"

# by the till
[[cameras]]
name = "door"   # the front door
url = "rtsp://10.0.0.2/stream"
zones.till = [[0.1, 0.1], [0.5, 0.1], [0.5, 0.9]] # since May

# the yard
[[cameras]]
name = "yard"
url = "clips/yard.mp4"
rate = 10.0

[cameras.zones]
gate = [
  [0.1, 0.1], # post
  [0.5, 0.1], [0.5, 0.9],
]

# the roof
[[cameras]]
name = "roof"
url = "demo:"
zones = { hatch = [[0.1, 0.1], [0.5, 0.1], [0.5, 0.9]] } # found out
hours = ["08:00-18:00"]

# broker
[sinks.mqtt]
host = "localhost"

[[sinks.webhooks]]
url = "https://example.org/hook"

[retention]
events_days = 3 # as agreed

# nothing below
"""
FIRST = [(0.1, 0.1), (0.5, 0.1), (0.5, 0.9)]
CORNERS = [(0.0, 0.0), (1.0, 0.0), (1 / 3, 1.0)]
DRAWN = "[[0.0, 0.0], [1.0, 0.0], [0.3333, 1.0]]"
EDIT: TypeAdapter[Edit] = TypeAdapter(Edit)


def apply(*edits: dict[str, Any], text: str = TEXT) -> str:
    return edited(text, [EDIT.validate_python(one) for one in edits])


def changed(*edits: dict[str, Any], text: str = TEXT) -> tuple[list[str], list[str]]:
    """The lines that are gone, and the new ones."""
    lines = [*ndiff(text.splitlines(), apply(*edits, text=text).splitlines())]
    gone = [line[2:] for line in lines if line.startswith("- ")]
    return gone, [line[2:] for line in lines if line.startswith("+ ")]


def change(camera: str, **keys: object) -> dict[str, Any]:
    return {"edit": "change camera", "camera": camera, "keys": keys}


def zone(camera: str, name: str, **more: object) -> dict[str, Any]:
    """One more zone of a camera."""
    known = {"door": "till", "yard": "gate", "roof": "hatch"}[camera]
    zones = {known: FIRST, name: CORNERS}
    return {"edit": "set zones", "camera": camera, "zones": zones} | more


def test_tables_joined_are_the_text_again() -> None:
    assert join_tables(split_tables(TEXT)) == TEXT
    assert [table.path for table in split_tables(TEXT)][1:4] == [
        ("cameras",),
        ("cameras",),
        ("cameras", "zones"),
    ]


def test_brackets_in_texts_and_lists_are_no_headers() -> None:
    text = 'a = """\n[no]\n"""\nb = [\n[1],\n]\n # [no]\n  [[yes]] # [no]\nc = "[no]"\n'
    assert [table.path for table in split_tables(text)] == [(), ("yes",)]
    assert join_tables(split_tables(text)) == text


def test_a_key_is_changed_on_its_line_and_a_new_one_goes_to_its_camera() -> None:
    gone, new = changed(change("door", name="entrance", url="demo:", rate=12.5, record=True))
    assert gone == ['name = "door"   # the front door', 'url = "rtsp://10.0.0.2/stream"']
    assert new == [
        'name = "entrance"   # the front door',
        'url = "demo:"',
        "rate = 12.5",
        "record = true",
    ]
    text = apply(change("door", rate=12.5))
    assert "# since May\nrate = 12.5\n\n# the yard\n[[cameras]]" in text
    assert "rate = 5\n\n[cameras.zones]" in apply(change("yard", rate=5))


def test_a_value_that_stays_the_same_stays_as_it_is_written() -> None:
    assert (
        apply(change("yard", rate=10, name="yard"), change("roof", hours=["08:00-18:00"])) == TEXT
    )
    assert apply(change("yard", rate=10.0), zone("yard", "gate", zones={"gate": FIRST})) == TEXT
    assert changed(change("roof", loop=True), change("roof", loop=1))[1] == ["loop = 1"]


def test_nothing_removes_a_key() -> None:
    assert changed(change("roof", hours=None, rate=None)) == (['hours = ["08:00-18:00"]'], [])


@pytest.mark.parametrize(
    ("camera", "gone", "new"),
    [
        ("door", [], [f"zones.new = {DRAWN}"]),
        ("yard", [], [f"new = {DRAWN}"]),
        (
            "roof",
            ["zones = { hatch = [[0.1, 0.1], [0.5, 0.1], [0.5, 0.9]] } # found out"],
            [
                "zones = { hatch = [[0.1, 0.1], [0.5, 0.1], [0.5, 0.9]], "
                f"new = {DRAWN} }} # found out"
            ],
        ),
    ],
)
def test_a_zone_is_drawn_in_the_form_that_the_camera_has(
    camera: str, gone: list[str], new: list[str]
) -> None:
    assert changed(zone(camera, "new")) == (gone, new)
    with_hours = zone(camera, "new", zone_hours={"new": ["22:00-06:00"]})
    assert changed(with_hours)[1][-1 if camera != "yard" else 0] == (
        'zone_hours.new = ["22:00-06:00"]'
    )
    assert apply(with_hours, zone(camera, "new")) == apply(zone(camera, "new"))


def test_a_zone_is_drawn_again_renamed_and_deleted() -> None:
    till = "zones.till = [[0.1, 0.1], [0.5, 0.1], [0.5, 0.9]] # since May"
    assert changed(zone("door", "till")) == ([till], [f"zones.till = {DRAWN} # since May"])
    rename = zone("door", "till", zones={"desk": CORNERS}, zone_hours={"desk": []})
    assert changed(rename) == ([till], [f"zones.desk = {DRAWN}", "zone_hours.desk = []"])
    delete = zone("door", "till", zones={})
    assert changed(delete) == ([till], [])
    assert apply(rename, delete) == apply(delete)
    assert tomllib.loads(apply(delete))["cameras"][0] == {
        "name": "door",
        "url": "rtsp://10.0.0.2/stream",
    }


@pytest.mark.parametrize(
    ("camera", "first", "following"),
    [
        ("door", "# by the till", "# the yard"),
        ("yard", "# the yard", "# the roof"),
        ("roof", "# the roof", "# broker"),
    ],
)
def test_a_camera_goes_with_its_zones_and_the_comment_above_it(
    camera: str, first: str, following: str
) -> None:
    text = apply({"edit": "remove camera", "camera": camera})
    assert text == TEXT[: TEXT.index(first)] + TEXT[TEXT.index(following) :]


def test_a_camera_is_added_after_the_others_as_a_person_would() -> None:
    add = {
        "edit": "add camera",
        "keys": {"name": "hall", "url": "rtsp://10.0.0.9/1", "credentials": "env:HALL", "rate": 15},
        "zones": {"stairs": CORNERS},
        "zone_hours": {"stairs": []},
    }
    wanted = f"""\
[[cameras]]
name = "hall"
url = "rtsp://10.0.0.9/1"
credentials = "env:HALL"
rate = 15
zones.stairs = {DRAWN}
zone_hours.stairs = []

"""
    assert apply(add) == TEXT.replace("# broker\n", f"{wanted}# broker\n")
    short = 'model = "m"\n[[cameras]]\nname = "a"\nurl = "demo:"'
    assert apply(add, text=short) == f"{short}\n\n{wanted[:-1]}"


def test_sections_are_changed_made_and_removed() -> None:
    def section(name: str, item: str | None = None, **keys: object) -> dict[str, Any]:
        return {"edit": "change section", "section": name, "name": item, "keys": keys}

    assert changed(section("retention", events_days=4, poses_days=2)) == (
        ["events_days = 3 # as agreed"],
        ["events_days = 4 # as agreed", "poses_days = 2"],
    )
    assert apply(section("pose", workers=2)) == f"{TEXT}\n[pose]\nworkers = 2\n"
    assert 'hook"\n\n[sinks.file]\npath = "e.jsonl"\n\n[ret' in apply(
        section("sinks.file", path="e.jsonl")
    )
    assert changed(section("sinks.webhooks", "webhook", timeout_s=2))[1] == ["timeout_s = 2"]
    assert '[[sinks.webhooks]]\nname = "desk"\nurl = "http://d"\n\n[ret' in apply(
        section("sinks.webhooks", "desk", url="http://d")
    )


def test_a_camera_that_is_not_there_is_said() -> None:
    with pytest.raises(
        ConfigError, match="cameras: expected one of the file, got 'cellar'"
    ) as told:
        apply(change("cellar", rate=3))
    assert "load it again" in told.value.hint


def test_a_file_of_another_form_is_left_to_people() -> None:
    text = 'model = "m"\ncameras = [{ name = "a", url = "demo:" }]\n'
    with pytest.raises(ConfigError, match="expected a separate table, got a value in another"):
        apply(change("a", rate=3), text=text)
    with pytest.raises(ConfigError, match="edit the text"):
        apply({"edit": "add camera", "keys": {"name": "b"}}, text=text)
    only = 'model = "m"\n\n[[cameras]]\nname = "a"\nurl = "demo:"\n'
    with pytest.raises(ConfigError, match="expected at least one camera"):
        apply({"edit": "remove camera", "camera": "a"}, text=only)


def test_the_ends_of_lines_stay() -> None:
    windows = TEXT.replace("\n", "\r\n")
    assert apply(change("door", rate=3), text=windows) == apply(change("door", rate=3)).replace(
        "\n", "\r\n"
    )


NAMES = st.sampled_from(["door", "yard", "roof"])
ZONES = st.sampled_from(["till", "gate", "hatch", "new", "old"])
EDITS = st.one_of(
    st.builds(lambda c, r: change(c, rate=r), NAMES, st.integers(1, 120) | st.none()),
    st.builds(lambda c, u: change(c, url=u), NAMES, st.text(max_size=20)),
    st.builds(lambda c, h: change(c, hours=h), NAMES, st.just(["08:00-18:00"]) | st.none()),
    st.builds(
        lambda c, zones, hours: {
            "edit": "set zones",
            "camera": c,
            "zones": dict.fromkeys(zones, CORNERS),
            "zone_hours": {name: [] for name in hours},
        },
        *(NAMES, st.lists(ZONES), st.lists(ZONES)),
    ),
)


@given(st.lists(EDITS, max_size=8))
def test_edits_change_what_they_say_and_nothing_else(edits: list[dict[str, Any]]) -> None:
    text = TEXT
    for edit in edits:
        before = tomllib.loads(text)
        try:
            text = apply(edit, text=text)
        except ConfigError:
            continue
        camera = next(one for one in before["cameras"] if one["name"] == edit["camera"])
        expect(camera, edit)
        after = tomllib.loads(text)
        for one in (*before["cameras"], *after["cameras"]):
            for key in ("zones", "zone_hours"):
                if not one.get(key, True):
                    del one[key]  # an empty table is none
        assert after == before
        for comment in (
            "# The shop",
            "# its name",
            "# by the till\n[[",
            "# broker\n[",
            "# nothing",
        ):
            assert comment in text


def expect(camera: dict[str, Any], edit: dict[str, Any]) -> None:
    """Change the plain values as an edit should change the text."""
    if edit["edit"] == "change camera":
        for key, value in edit["keys"].items():
            camera.pop(key, None)
            if value is not None:
                camera[key] = value
        return
    corners = [[round(v, 4) for v in xy] for xy in CORNERS]
    camera["zones"] = dict.fromkeys(edit["zones"], corners)
    camera["zone_hours"] = edit["zone_hours"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "site.toml"
    path.write_text(TEXT)
    return path


def test_a_saved_file_is_new_and_the_one_before_is_kept(file: Path) -> None:
    file.chmod(0o640)
    read = read_settings(file)
    text = apply(change("door", rate=3))
    saved = save_settings(file, text, read.digest)
    assert file.read_text() == text
    assert (file.parent / "site.toml.before").read_text() == TEXT
    assert file.stat().st_mode & 0o777 == 0o640
    assert read_settings(file) == saved
    assert load(file).camera("door").rate == 3
    assert sorted(one.name for one in file.parent.iterdir()) == ["site.toml", "site.toml.before"]


def test_nobody_overwrites_what_another_changed(file: Path) -> None:
    read = read_settings(file)
    by_hand = TEXT.replace("events_days = 3", "events_days = 9")
    file.write_text(by_hand)
    with pytest.raises(FileChangedError, match="got one that was changed since") as raised:
        save_settings(file, apply(change("door", rate=3)), read.digest)
    assert "load it again" in raised.value.hint
    assert file.read_text() == by_hand


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("rate = 10.0", "rate = -1", 15, "cameras.rate: expected greater than 0, got -1"),
        ('name = "yard"', 'name = "door"', 6, "expected distinct names"),
        ("events_days = 3", "events_days = ", 38, "expected TOML"),
        ('"08:00-18:00"', '"8-18"', 28, "expected hours as HH:MM-HH:MM, got '8-18'"),
        ('hours = ["08:00-18:00"]', "hours = []", 28, "cameras.hours"),
        ('hours = ["08', 'zone_hours.x = ["08', 24, "expected zone_hours of its zones, got 'x'"),
        ("hours = [", 'credentials = "admin:admin"\nhours = [', 28, "expected env:NAME"),
    ],
)
def test_a_broken_text_is_refused_with_the_line(
    file: Path, old: str, new: str, line: int, words: str
) -> None:
    text = TEXT.replace(old, new)
    assert text != TEXT
    with pytest.raises(SettingsError) as raised:
        save_settings(file, text, read_settings(file).digest)
    assert words in raised.value.problem
    assert f"line {line}" in raised.value.problem
    assert raised.value.line == line
    assert "admin:admin" not in str(raised.value)
    assert file.read_text() == TEXT
    assert [*file.parent.iterdir()] == [file]


def test_a_link_stays_one_and_a_file_that_is_gone_is_said(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.toml"
    link.symlink_to(file)
    text = apply(change("door", rate=3))
    save_settings(link, text, read_settings(link).digest)
    assert link.is_symlink()
    assert file.read_text() == text
    with pytest.raises(ConfigError, match="expected a settings file, got: No such file"):
        save_settings(tmp_path / "none.toml", text, "")


def test_a_place_that_cannot_be_written_is_said_and_nothing_is_half_saved(file: Path) -> None:
    (file.parent / "site.toml.before" / "full").mkdir(parents=True)
    with pytest.raises(ConfigError, match="expected a place that can be written") as raised:
        save_settings(file, apply(change("door", rate=3)), read_settings(file).digest)
    assert "permissions" in raised.value.hint
    assert file.read_text() == TEXT


def test_the_ends_of_lines_of_a_file_survive_a_browser(file: Path) -> None:
    file.write_bytes(TEXT.replace("\n", "\r\n").encode())
    saved = save_settings(file, TEXT.replace("3 #", "4 #"), read_settings(file).digest)
    assert file.read_bytes() == TEXT.replace("3 #", "4 #").replace("\n", "\r\n").encode()
    assert saved == read_settings(file)
