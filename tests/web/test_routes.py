"""The API: cameras, events, explanations and replays."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from stepvad.codec import from_plain
from stepvad.events.record import Mark
from stepvad.explain.event import EventExplanation
from stepvad.formats import tracks
from stepvad.poses import Pose
from stepvad.site.marks import ExceptionFacts, MarkEffect
from stepvad.site.recorder import Recorder, Recording
from stepvad.site.status import UNSEEN, RecentFrames, ScoredFrame, whole_pixels
from stepvad.web.routes import AT_ITS_SITE
from tests.web.sites import (
    BEARER,
    EXPLANATION,
    FPS,
    HERE,
    NOW,
    SIZE,
    Site,
    crowd,
    explained,
    happen,
    person,
    record,
)


def test_cameras_tell_their_health_counts_and_drift(mill: Site, client: TestClient) -> None:
    mill.status.state("yard", "online", "", NOW)
    mill.status.frame("yard", 1, NOW, SIZE, [person(1), person(2)], {1: 4.0})
    mill.status.count("yard", "shed", 5)
    mill.status.drift("yard", "people are larger", True)
    yard, gate = client.get("/api/cameras").json()
    assert (yard["state"], yard["people"], yard["counts"]["shed"]) == ("online", 2, 5)
    assert yard["load"] == {
        "state": "ok", "left_out": 0.0, "words": "", "hangs": False, "divisor": 1,
    }  # fmt: skip
    assert (yard["drift"], yard["drifted"], yard["threshold"]) == ("people are larger", True, 3.0)
    assert yard["zones"]["door"][0] == [0.1, 0.1]
    assert [0, 5, 6] in yard["bones"]
    assert (gate["state"], gate["reason"]) == ("offline", "not connected yet")
    assert client.get("/api/cameras/yard").json()["name"] == "yard"
    assert client.get("/api/cameras/roof").status_code == 404
    assert client.get("/api/site").json()["cameras"] == ["yard", "gate"]


def test_timelines_have_scores_and_the_threshold(mill: Site, client: TestClient) -> None:
    mill.status.frame("yard", 1, NOW, SIZE, [person(1)], {1: 4.0})
    told = client.get("/api/timelines").json()[0]
    assert told == {"camera": "yard", "threshold": 3.0, "points": [[int(NOW), 4.0]]}


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


def test_a_page_without_a_site_behind_it_leaves_the_effect_of_a_mark_to_the_site(
    mill: Site, client: TestClient
) -> None:
    one = happen(mill, 1)
    effect = f"/api/events/{one.id}/mark-effect"
    found = client.get(effect, params={"mark": "normal"}).json()
    assert (found["words"], found["hides"]) == (AT_ITS_SITE, [])
    assert client.get(effect).json()["mark"] is None
    assert client.get(effect, params={"mark": "odd"}).status_code == 422
    assert client.get("/api/events/nobody/mark-effect").status_code == 404
    assert client.get("/api/exceptions").json() == []
    assert client.delete(f"/api/exceptions/{one.id}").status_code == 404


class Follower:
    """What marks do at a site, where one event is an exception."""

    def __init__(self, id: str) -> None:
        self.known = ExceptionFacts(event=id, camera="yard", at=1.0, place=(1, 2, 3, 4), windows=9)

    def effect(self, id: str, mark: Mark | None) -> MarkEffect:
        return MarkEffect(mark=mark, words=f"{id} {mark}", said="done", hides=("other",))

    def exceptions(self) -> list[ExceptionFacts]:
        return [self.known]


def test_exceptions_are_listed_and_removed_with_their_mark(mill: Site) -> None:
    one = happen(mill, 1)
    mill.marks = Follower(one.id)  # type: ignore[assignment]
    mill.store.mark(one.id, "normal", 5.0)
    with TestClient(mill.app(), base_url=HERE, headers=BEARER) as client:
        found = client.get(f"/api/events/{one.id}/mark-effect", params={"mark": "right"}).json()
        assert found == {
            "mark": "right",
            "words": f"{one.id} right",
            "said": "done",
            "hides": ["other"],
        }
        (listed,) = client.get("/api/exceptions").json()
        assert (listed["event"], listed["camera"], listed["windows"]) == (one.id, "yard", 9)
        assert client.delete("/api/exceptions/nobody").status_code == 404
        assert client.delete(f"/api/exceptions/{one.id}").status_code == 204
    assert mill.store.marked() == {}


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
        mill.store.outbox.refused(message, "expected 2xx, got 400")
    told = client.get("/api/undelivered").json()
    assert told["refused"] == len(told["messages"]) > 1
    assert {message["sink"] for message in told["messages"]} == {"mqtt", "webhook:pager"}
    assert {message["event_id"] for message in told["messages"]} == {one.id}
    assert told["messages"][0]["error"] == "expected 2xx, got 400"
    done = client.post("/api/undelivered/resend", json={}).json()
    assert done["messages"] == told["refused"] == len(mill.store.outbox.waiting())
    assert client.get("/api/undelivered").json()["refused"] == 0


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
    writer = mill.store._database._usable()
    writer.execute("PRAGMA query_only = ON")
    mill.store.check()
    refused = client.get("/readyz")
    assert refused.status_code == 503
    assert refused.text == ("events cannot be stored: attempt to write a readonly database\n")
    writer.execute("PRAGMA query_only = OFF")
    mill.store.check()
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


def test_a_search_that_takes_too_long_says_how_to_narrow_it(
    mill: Site, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    happen(mill, 1)
    monkeypatch.setattr("stepvad.web.routes.SEARCH_S", 0)
    monkeypatch.setattr("stepvad.site.store.database.PROGRESS_STEPS", 1)
    answer = client.get("/api/events?words=arm")
    assert answer.status_code == 422
    assert "narrow it: by a camera, by time, or by fewer words" in answer.json()["detail"]


@pytest.mark.parametrize("value", ["NaN", "1e400", "9" * 5000, '"\\ud800"'])
def test_numbers_that_json_cannot_write_are_refused_in_words(
    client: TestClient, value: str
) -> None:
    for method, path, body in (
        ("PUT", "/api/settings", '{"digest": "", "text": %s}'),
        ("POST", "/api/users", '{"name": %s, "role": "look"}'),
    ):
        headers = {"Content-Type": "application/json"}
        answer = client.request(method, path, content=body % value, headers=headers)
        assert answer.status_code in (400, 422), (path, value)
        assert answer.json()["detail"]
