"""Scenes of events and moments: everybody in view, from the store, from memory, from recordings."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from stepvad.intake.recent import UNSEEN, RecentFrames, whole_pixels
from stepvad.intake.status import ScoredFrame
from stepvad.poses import Pose
from stepvad.site.explainer import packed
from stepvad.site.recorder import Recorder
from stepvad.site.replay import recorded_at
from tests.web.scenes import FPS, crowd, explained
from tests.web.sites import SIZE, Site, happen, person, record


def test_the_scene_of_an_event_has_everybody_around_its_peak(
    mill: Site, client: TestClient
) -> None:
    one = happen(mill, 2)
    mill.store.put_poses(one.id, packed(crowd()))
    mill.store.put_explanation(one.id, explained(200))
    scene = client.get(f"/api/events/{one.id}/scene").json()["scene"]
    assert [who["track"] for who in scene["people"]] == [1, 2]
    assert (scene["deciding"], scene["involved"]) == (2, [2])
    assert (scene["first"], scene["at"], scene["n_frames"]) == (120, 80, 141)
    second = scene["people"][1]
    assert (second["frames"][0], second["frames"][-1]) == (0, 129)
    assert second["xy"][0][:2] == [120, 100]
    assert second["xy"][0][6:8] == [None, None]
    mill.status.frame("yard", 1, time.time(), SIZE, [person(1)], {})
    assert client.get(f"/api/events/{one.id}/scene").json()["scene"]["size"] == [*SIZE]


def test_an_event_without_poses_has_no_scene(mill: Site, client: TestClient) -> None:
    broken = happen(mill, 1)
    found = client.get(f"/api/events/{broken.id}/scene").json()
    assert (found["scene"], found["words"]) == (None, "Its poses cannot be read.")
    without = record(2)
    mill.store.change("new", without)
    found = client.get(f"/api/events/{without.id}/scene").json()
    assert found["words"] == "Its poses have not arrived yet, or are no longer kept."
    assert client.get("/api/events/nobody/scene").status_code == 404


def moment(client: TestClient, at: float) -> dict[str, Any]:
    answer = client.get("/api/cameras/yard/moment", params={"at": at})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_moment_is_an_event_or_what_memory_holds_or_words(mill: Site, client: TestClient) -> None:
    now = time.time()
    for n in range(100):
        mill.status.frame(
            "yard", n, now - 10 + n / FPS, SIZE, [person(1), person(2 + n // 50)], {1: 1.0}
        )
    found = moment(client, now - 5)
    scene = found["scene"]
    assert (found["event"], found["words"]) == (None, "")
    assert [who["track"] for who in scene["people"]] == [1, 2, 3]
    assert scene["size"] == [*SIZE]
    assert (scene["at"], scene["n_frames"]) == (50, 100)
    assert scene["start"] == pytest.approx(now - 10)
    old = moment(client, now - 4000)
    assert old["scene"] is None
    assert "no longer in memory" in old["words"]
    assert moment(client, now + 500)["words"] == "That is in the future."
    one = happen(mill, 1)
    assert moment(client, one.start_time + 2)["event"] == one.id
    assert client.get("/api/cameras/roof/moment", params={"at": now}).status_code == 404


def test_a_moment_comes_from_a_recording(mill: Site, client: TestClient) -> None:
    at = 1_700_000_000.25
    recorder = Recorder(mill.settings.data / "poses", "yard", FPS)
    for n in range(300):
        recorder.add(n, at + n / FPS, [person(4)])
    clip = recorder.finish()
    assert clip is not None
    recorder.write(clip)
    (path,) = (mill.settings.data / "poses" / "yard").iterdir()
    assert recorded_at(path) == pytest.approx(at, abs=0.001)
    assert recorded_at(Path("other.parquet")) is None
    scene = moment(client, at + 20)["scene"]
    assert [who["track"] for who in scene["people"]] == [4]
    assert (scene["at"], scene["first"], scene["n_frames"]) == (80, 120, 141)
    assert scene["start"] == pytest.approx(at + 12, abs=0.01)
    missing = moment(client, at + 90)
    assert missing["scene"] is None
    assert missing["words"].startswith("Nobody was in view then")


def test_memory_is_bounded_in_time_and_follows_a_clock_set_back() -> None:
    recent = RecentFrames(kept_s=10)
    for second in (*range(30), 25):
        poses = (person(1),)
        recent.add("a", ScoredFrame(second, float(second), SIZE, poses, {1: 2.0}))
    assert [one.wall for one in recent.between("a", 0, 99)] == [*map(float, range(19, 26)), 25.0]
    assert recent.between("b", 0, 99) == []


def test_joints_that_were_not_found_are_not_drawn() -> None:
    pose = Pose(1, np.full((17, 2), 7.6, np.float32), np.eye(1, 17, 2, dtype=np.float32)[0])
    joints = whole_pixels([pose])
    assert joints[0, 2].tolist() == [8, 8]
    assert (joints[0, 3] == UNSEEN).all()
