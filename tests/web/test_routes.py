"""The API: cameras, events, explanations, replays and drawings of places."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, Page, expect

from stepvad.codec import from_plain
from stepvad.explain.event import EventExplanation
from stepvad.formats import tracks
from stepvad.poses import Pose
from stepvad.site.accounts import Accounts
from stepvad.site.intake.place_drawing import draw_place, drawing_bytes
from stepvad.site.intake.place_drawings import PLACES, SIGNATURE, PlaceDrawings, to_png
from stepvad.site.intake.recent import UNSEEN, RecentFrames, ScoredFrame, whole_pixels
from stepvad.site.recorder import Recorder, Recording
from stepvad.video.source import Image
from tests.browser import CHROMIUM, complaints, log_in, new_page
from tests.site.intake.test_place_drawing import people
from tests.site.sites import Running, write_networks, write_site
from tests.video.clips import write_images
from tests.video.graphs import yolox_of_bright
from tests.video.servers import SLOWER, free_port, wait_until
from tests.web.sites import (
    BEARER,
    EXPLANATION,
    FPS,
    HERE,
    NOW,
    SIZE,
    TOKEN,
    Site,
    browser_of,
    crowd,
    explained,
    happen,
    person,
    record,
    with_people,
)


def test_cameras_tell_their_health_counts_and_drift(mill: Site, client: TestClient) -> None:
    mill.status.state("yard", "online", "", NOW)
    mill.status.frame("yard", 1, NOW, SIZE, [person(1), person(2)], {1: 4.0})
    mill.status.count("yard", "shed", 5)
    mill.status.drift("yard", "people are larger", True)
    yard, gate = client.get("/api/cameras").json()
    assert (yard["state"], yard["people"], yard["counts"]["shed"]) == ("online", 2, 5)
    assert yard["load"] == {"state": "ok", "left_out": 0.0, "words": ""}
    assert (yard["drift"], yard["drifted"], yard["threshold"]) == ("people are larger", True, 3.0)
    assert yard["zones"]["door"][0] == [0.1, 0.1]
    assert [0, 5, 6] in yard["bones"]
    assert (gate["state"], gate["reason"]) == ("offline", "not connected yet")
    assert client.get("/api/cameras/yard").json()["name"] == "yard"
    assert client.get("/api/cameras/roof").status_code == 404
    assert client.get("/api/site").json()["cameras"] == ["yard", "gate"]


def test_timelines_have_scores_and_the_threshold(mill: Site, client: TestClient) -> None:
    mill.status.frame("yard", 1, NOW, SIZE, [person(1)], {1: 4.0})
    told = client.get("/api/cameras/yard/timeline").json()
    assert told == {"camera": "yard", "threshold": 3.0, "points": [[int(NOW), 4.0]]}
    assert client.get("/api/timelines").json()[0] == told
    assert client.get("/api/cameras/roof/timeline").status_code == 404


def test_events_are_filtered(mill: Site, client: TestClient) -> None:
    first, second = happen(mill, 1), happen(mill, 2, camera="gate")
    last = happen(mill, 3, over=False)

    def ids(**query: str | float) -> list[str]:
        return [one["id"] for one in client.get("/api/events", params=query).json()["events"]]

    assert ids() == [last.id, second.id, first.id]
    assert ids(camera="gate") == [second.id]
    assert ids(open="true") == [last.id]
    assert ids(open="false") == [second.id, first.id]
    assert ids(since=second.start_time) == [last.id, second.id]
    assert ids(until=second.start_time) == [first.id]


def test_events_are_searched_by_zone_words_score_and_review(mill: Site, client: TestClient) -> None:
    made = [
        record(1, why="Left arm raised", zones=("door",), top_score=4.0),
        record(2, camera="gate", why="whole body crouched", zones=("lane", "door"), top_score=9.0),
        record(3, why=None, zones=(), top_score=3.5, threshold=1.0),
    ]
    for one in made:
        mill.store.change("new", one)
    arm, body, quiet = (one.id for one in made)

    def ids(**query: str | float) -> list[str]:
        answer = client.get("/api/events", params=query)
        assert answer.status_code == 200, answer.text
        return [one["id"] for one in answer.json()["events"]]

    assert ids(zone="door") == [body, arm]
    assert ids(zone="lane") == [body]
    assert ids(zone="doo") == []
    assert ids(words="ARM left") == [arm]
    assert ids(words="arm crouched") == []
    assert ids(words="gate") == [body]
    assert ids(words="%") == []
    assert ids(min_score=4.0) == [body, arm]
    assert ids(min_times=2.0) == [quiet, body]
    assert ids(zone="door", words="raised", min_score=3.9, camera="yard") == [arm]
    client.put(f"/api/events/{arm}/review")
    client.put(f"/api/events/{body}/mark", json={"mark": "right"})
    assert ids(review="to_review") == [quiet]
    assert ids(review="reviewed") == [body, arm]
    assert ids(review="right") == [body]
    assert ids(review="normal") == []
    assert client.get("/api/events", params={"review": "maybe"}).status_code == 422
    assert client.get("/api/events").json()["to_review"] == 1


def test_an_event_links_to_its_recording_with_a_margin(mill: Site, client: TestClient) -> None:
    one = happen(mill, 1)
    start, end = int(one.start_time) - 10, int(one.end_time or 0) + 11
    linked = f"http://frigate:5000/api/yard/start/{start}/end/{end}/clip.mp4?id={one.id}"
    assert client.get(f"/api/events/{one.id}").json()["recording"] == linked
    (listed,) = client.get("/api/events").json()["events"]
    assert listed["recording"] == linked


def test_events_come_page_by_page(mill: Site, client: TestClient) -> None:
    made = [happen(mill, number).id for number in range(5)]
    seen, query = [], {"limit": "2"}
    for _ in range(3):
        answer = client.get("/api/events", params=query).json()
        seen += [one["id"] for one in answer["events"]]
        query["before"] = answer["next"]
    assert seen == made[::-1]
    assert answer["next"] is None
    assert client.get("/api/events", params={"before": "nobody"}).status_code == 404


def test_an_event_is_marked_as_normal_and_that_is_taken_back(
    mill: Site, client: TestClient
) -> None:
    one = happen(mill, 1)
    assert client.get(f"/api/events/{one.id}").json()["mark"] is None
    marked = client.put(f"/api/events/{one.id}/mark", json={"mark": "normal"})
    assert marked.json()["mark"] == "normal"
    assert one.id in mill.store.marked()
    client.put(f"/api/events/{one.id}/mark", json={"mark": None})
    assert client.get(f"/api/events/{one.id}").json()["mark"] is None
    assert client.put("/api/events/nobody/mark", json={"mark": "normal"}).status_code == 404
    for wrong in ({}, {"mark": "odd"}, {"mark": "right", "normal": True}):
        assert client.put(f"/api/events/{one.id}/mark", json=wrong).status_code == 422
    right = client.put(f"/api/events/{one.id}/mark", json={"mark": "right"}).json()
    assert right["mark"] == "right"
    assert client.put(f"/api/events/{one.id}/mark", json={"mark": None}).json()["mark"] is None


def test_an_event_is_reviewed_by_a_look(client: TestClient, mill: Site) -> None:
    one = happen(mill, 7)
    assert client.get(f"/api/events/{one.id}").json()["reviewed"] is None
    assert client.put(f"/api/events/{one.id}/review").json()["reviewed"] > 1e9
    (listed,) = client.get("/api/events").json()["events"]
    assert (listed["reviewed"] > 1e9, listed["mark"]) == (True, None)
    assert client.put("/api/events/nobody/review").status_code == 404


def test_an_explanation_is_made_when_it_is_asked_for(mill: Site, client: TestClient) -> None:
    one = happen(mill, 1)
    missing = client.get(f"/api/events/{one.id}/explanation")
    assert missing.status_code == 404
    assert "expected its poses, got none" in missing.json()["detail"]
    told = EXPLANATION | {"more": "than asked for"}
    mill.explanations[one.id] = from_plain(EventExplanation, told, "explanation")
    assert client.get(f"/api/events/{one.id}/explanation").json() == EXPLANATION
    assert client.get("/api/events/nobody/explanation").status_code == 404
    several = EXPLANATION | {"views": [{"name": "pose", "share": 0.4}]}
    mill.explanations[one.id] = from_plain(EventExplanation, several, "explanation")
    assert client.get(f"/api/events/{one.id}/explanation").json() == several


def test_events_are_deleted_but_not_while_they_go_on(mill: Site, client: TestClient) -> None:
    one, going = happen(mill, 1), happen(mill, 2, over=False)
    assert client.delete(f"/api/events/{going.id}").status_code == 409
    assert client.delete(f"/api/events/{one.id}").status_code == 204
    assert client.delete(f"/api/events/{one.id}").status_code == 404
    assert mill.store.poses(one.id) is None
    assert client.delete("/api/events").status_code == 422
    happen(mill, 3)
    answer = client.delete("/api/events", params={"camera": "yard"})
    assert answer.json() == {"events": 1, "poses": 0, "kept_open": 1}
    assert [one.id for one in mill.store.events()] == [going.id]


def test_what_is_stored_is_listed_without_paths(mill: Site, client: TestClient) -> None:
    happen(mill, 1)
    told = client.get("/api/stored").json()
    assert {one["what"]: one["count"] for one in told["kept"]}["poses"] == 1
    assert told["cameras"] == {"yard": 1}
    assert all("/" not in name for name in told["files"])


def test_sinks_tell_their_lag(mill: Site, client: TestClient) -> None:
    mill.status.sink("mqtt", 3, 2, "refused")
    assert client.get("/api/sinks").json() == [
        {"name": "mqtt", "lag": 3, "failures": 2, "last_error": "refused", "refused": 0}
    ]


def test_messages_that_were_refused_are_listed_and_sent_again(
    mill: Site, client: TestClient
) -> None:
    assert client.get("/api/undelivered").json() == {"refused": 0, "messages": []}
    mill.store.sinks = ("mqtt", "webhook:pager")
    one = happen(mill, 1)
    for message in mill.store.outbox.waiting():
        mill.store.outbox.refused(message.sink, message.seq, "expected 2xx, got 400")
    told = client.get("/api/undelivered").json()
    assert told["refused"] == len(told["messages"]) > 1
    assert {message["sink"] for message in told["messages"]} == {"mqtt", "webhook:pager"}
    assert {message["event_id"] for message in told["messages"]} == {one.id}
    assert told["messages"][0]["error"] == "expected 2xx, got 400"
    first = told["messages"][0]["id"]
    assert client.post("/api/undelivered/resend", json={"ids": [first]}).json() == {"messages": 1}
    assert [message.seq for message in mill.store.outbox.waiting()] == [first]
    done = client.post("/api/undelivered/resend", json={"sink": "webhook:pager"}).json()
    assert done["messages"] == len(mill.store.outbox.waiting("webhook:pager"))
    client.post("/api/undelivered/resend", json={})
    assert client.get("/api/undelivered").json()["refused"] == 0
    assert client.post("/api/undelivered/resend", json={"ids": "all"}).status_code == 422


def test_metrics_are_those_of_the_live_status(mill: Site, client: TestClient) -> None:
    mill.status.state("yard", "online", "", NOW)
    mill.status.count("yard", "shed", 7)
    mill.status.observe_latency("yard", 0.03)
    mill.status.observe_latency("yard", 1000.0)
    mill.status.sink("mqtt", 3, 2, "", refused=4)
    mill.status.dropped_tasks({"recording": 2})
    told = client.get("/metrics")
    assert 'stepvad_background_tasks_dropped_total{kind="recording"} 2.0' in told.text
    assert told.headers["content-type"].startswith("text/plain; version=")
    lines = told.text.splitlines()
    assert 'stepvad_frames_shed_total{camera="yard"} 7.0' in lines
    assert 'stepvad_sink_refused_total{sink="mqtt"} 4.0' in lines
    assert 'stepvad_sink_lag{sink="mqtt"} 3.0' in lines
    assert 'stepvad_camera_up{camera="yard"} 1.0' in lines
    assert 'stepvad_camera_up{camera="gate"} 0.0' in lines
    assert 'stepvad_camera_left_out_ratio{camera="yard"} 0.0' in lines
    assert 'stepvad_latency_seconds_bucket{camera="yard",le="0.02"} 0.0' in lines
    assert 'stepvad_latency_seconds_bucket{camera="yard",le="0.05"} 1.0' in lines
    assert 'stepvad_latency_seconds_bucket{camera="yard",le="60"} 1.0' in lines
    assert 'stepvad_latency_seconds_bucket{camera="yard",le="+Inf"} 2.0' in lines
    assert 'stepvad_latency_seconds_sum{camera="yard"} 1000.03' in lines
    assert 'stepvad_sink_lag{sink="mqtt"} 3.0' in lines


def test_it_is_ready_when_a_camera_is_online_and_the_store_answers(
    mill: Site, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.get("/healthz").text == "ok\n"
    assert client.get("/readyz").status_code == 503
    mill.status.state("yard", "online", "", NOW)
    assert client.get("/readyz").status_code == 200

    def broken(**_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(mill.store, "events", broken)
    assert client.get("/readyz").status_code == 503
    answer = client.get("/api/events")
    assert answer.status_code == 503
    assert "disk" not in answer.text


def test_the_page_and_its_parts_are_served(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    for name in ("house.css", "player.js", "icon.svg"):
        assert client.get(f"/static/{name}").status_code == 200, name
    assert client.get("/static/login.py").status_code == 404
    assert client.get("/static/..%2f__init__.py").status_code == 404


def test_the_scene_of_an_event_has_everybody_around_its_peak(
    mill: Site, client: TestClient
) -> None:
    one = happen(mill, 2)
    mill.store.put_poses(one.id, tracks.to_bytes(crowd()))
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
        recorder.record(n, at + n / FPS, [person(4)])
    clip = recorder.finish()
    assert clip is not None
    recorder.save(clip)
    (path,) = (mill.settings.data / "poses" / "yard").iterdir()
    one = Recording.from_path(path)
    assert one is not None
    assert one.begin == pytest.approx(at, abs=0.001)
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


PICTURES = os.environ.get("STEPVAD_TEST_PICTURES")
"""A directory for pictures of the page, to be looked at by people."""
SIDE = 240
LIT = """((x, y) => {
  const canvas = document.querySelector('.camera .people');
  const { width, height } = canvas;
  const copy = Object.assign(document.createElement('canvas'), { width, height });
  const pen = copy.getContext('2d', { willReadFrequently: true });
  pen.drawImage(canvas, 0, 0);
  const side = Math.min(width, height); // the picture is square, the card may be wider
  const at = (share, all) => Math.round((all - side) / 2 + share * side);
  const { data } = pen.getImageData(at(x, width) - 4, at(y, height) - 4, 9, 9);
  return Math.max(...data.filter((_, n) => n % 4 < 3));
})"""
"""How bright the wall is around a place, given as fractions of the picture."""


@pytest.fixture
def drawn(mill: Site) -> Site:
    """A site whose yard has a drawing."""
    yard, gate = mill.settings.cameras
    cameras = [yard.model_copy(update={"draw_place": True}), gate]
    mill.settings = mill.settings.model_copy(update={"cameras": cameras})
    folder = mill.settings.data / PLACES
    folder.mkdir()
    (folder / "yard.png").write_bytes(to_png(bytes(drawing_bytes((64, 48))), (64, 48)))
    mill.drawings = PlaceDrawings(mill.settings, mill.status)
    return mill


def test_a_drawing_is_shown_listed_and_deleted(drawn: Site) -> None:
    client = TestClient(drawn.app(), base_url=HERE, headers=BEARER)
    file = drawn.settings.data / PLACES / "yard.png"
    version = client.get("/api/cameras/yard").json()["place"]
    assert version == file.stat().st_mtime_ns // 1_000_000
    assert client.get("/api/cameras/gate").json()["place"] is None
    shown = client.get("/api/cameras/yard/place")
    assert (shown.status_code, shown.headers["content-type"]) == (200, "image/png")
    assert shown.content == file.read_bytes()
    assert shown.content.startswith(SIGNATURE)
    (kept,) = [k for k in client.get("/api/stored").json()["kept"] if "drawings" in k["what"]]
    assert (kept["count"], kept["bytes"]) == (1, len(shown.content))
    assert client.delete("/api/cameras/yard/place").status_code == 204
    assert not file.exists()
    assert client.get("/api/cameras/yard").json()["place"] is None
    assert not [k for k in client.get("/api/stored").json()["kept"] if "drawings" in k["what"]]


@pytest.mark.parametrize("camera", ["gate", "nowhere", "..%2Ftoken"])
def test_where_there_is_no_drawing_the_answer_is_404(drawn: Site, camera: str) -> None:
    client = TestClient(drawn.app(), base_url=HERE, headers=BEARER)
    for method in ("GET", "DELETE"):
        assert client.request(method, f"/api/cameras/{camera}/place").status_code == 404


def test_a_guard_sees_a_drawing_and_does_not_delete_it(drawn: Site, tmp_path: Path) -> None:
    accounts = with_people(Accounts(tmp_path / "accounts.db"))
    guard = browser_of(drawn.app(accounts=accounts), "jan")
    assert guard.get("/api/cameras/yard/place").status_code == 200
    assert guard.delete("/api/cameras/yard/place").status_code == 403
    assert guard.get("/api/cameras/yard/place").status_code == 200
    accounts.close()


def scene() -> list[Image]:
    """Two seconds with somebody in bright light at the left, then six of an empty dark room."""
    empty = np.full((SIDE, SIDE, 3), 10, np.uint8)
    empty[SIDE // 4 :, SIDE // 2 : SIDE // 2 + SIDE // 4] = 90  # a door
    lit = np.full((SIDE, SIDE, 3), 230, np.uint8)
    lit[SIDE // 2 :, SIDE // 8 : SIDE // 4] = 20  # somebody
    return [lit] * 20 + [empty] * 60


def write_room(directory: Path, port: int) -> Path:
    networks = write_networks(directory)
    cell = [0.0, 0.0, float(np.log(3)), float(np.log(4)), 0.95, 0.95]
    yolox_of_bright(directory / "yolox_tiny.onnx", 36, cell)
    write_images(directory / "room.mkv", np.stack(scene()))
    camera = (
        '[[cameras]]\nname = "room"\nurl = "room.mkv"\nrate = 10.0\nthreshold = 20.0\n'
        "loop = true\ndraw_place = true\n"
    )
    (directory / "token").write_text(TOKEN)
    (directory / "token").chmod(0o600)
    web = f'[web]\nport = {port}\ntoken = "file:token"\n'
    return write_site(directory, camera, networks, more=web)


def check_wall(page: Page) -> None:
    """The door is painted and the person is not."""
    expect(page.locator(".camera")).to_have_attribute("data-place", "true")
    assert page.evaluate(f"{LIT}(0.5, 0.8)") > 60, "the left side of the door"
    assert page.evaluate(f"{LIT}(0.75, 0.8)") > 60
    assert page.evaluate(f"{LIT}(0.625, 0.25)") > 60, "its top"
    assert page.evaluate(f"{LIT}(0.625, 0.8)") < 20, "within it"
    said = re.compile("on a drawing of the place$")
    expect(page.locator(".people")).to_have_attribute("aria-label", said)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_camera_draws_its_place_and_the_page_paints_it(tmp_path: Path, chromium: Browser) -> None:
    port = free_port()
    settings = write_room(tmp_path, port)
    assert tomllib.loads(settings.read_text())["cameras"][0]["draw_place"]
    file = tmp_path / "site-data" / PLACES / "room.png"
    with Running(settings) as site, new_page(chromium) as page:
        wait_until(file.exists, 90 * SLOWER)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        first = file.stat().st_mtime_ns
        assert file.read_bytes() == to_png(edges_of_the_empty_room(), (SIDE, SIDE))
        log_in(page, f"http://127.0.0.1:{port}/", TOKEN)
        check_wall(page)
        loaded = sum("/place?" in one.url for one in page.requests())
        if PICTURES:
            page.screenshot(path=f"{PICTURES}/place-wall.png")
        assert loaded == 1
        gone = page.evaluate(
            "fetch('/api/cameras/room/place', {method: 'DELETE'}).then((a) => a.status)"
        )
        assert gone == 204
        expect(page.locator(".camera")).to_have_attribute("data-place", "false")
        wait_until(lambda: file.exists() and file.stat().st_mtime_ns != first, 60 * SLOWER)
        check_wall(page)
        page.goto(f"http://127.0.0.1:{port}/settings")
        expect(page.locator("#draw-again")).to_be_visible()
        expect(page.locator("[name=draw_place]")).to_be_checked()
        assert complaints(page) == []
        assert site.stop() == 0


def edges_of_the_empty_room() -> bytes:
    drawing = draw_place(scene()[-1], people(), 0.25)
    assert drawing is not None
    return drawing
