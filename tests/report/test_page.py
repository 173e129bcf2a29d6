"""The page about a clip, for one view and for several."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace

import numpy as np
import pytest

from stepvad.detector import Detector
from stepvad.events.rules import events_in
from stepvad.events.threshold import Threshold
from stepvad.explain import explain
from stepvad.explain.event import HEAT, PER_PIXEL
from stepvad.poses import Clip, Track
from stepvad.report import plots
from stepvad.report.page import ReportedClip, render
from stepvad.video.timeline import clock
from tests.report.pages import Element, case_of, motions, read

LIMIT = 5_000_000


@pytest.fixture(scope="module")
def page(case: ReportedClip) -> Element:
    return read(render(case))


def test_every_event_has_its_row(page: Element, case: ReportedClip) -> None:
    found = events_in(case.scores.windows, case.fps, case.rules)
    assert len(found) > 20
    rows = page.one("tbody").every("tr")
    told = [[cell.text for cell in row.every("td")] for row in rows]
    for number, (row, event) in enumerate(zip(told, found, strict=True), start=1):
        first, last = (clock(second, tenths=True) for second in (event.first_s, event.last_s))
        assert row[:2] == [str(number), f"{first}\N{EN DASH}{last}"]
        assert next(int(track) for track in re.findall("[0-9]+", row[2])) == event.peak_track
        assert float(row[3].replace(",", "")) == pytest.approx(event.peak, abs=0.051)


def test_the_highest_are_explained_and_the_rest_is_listed(
    page: Element, case: ReportedClip
) -> None:
    peaks = [incident.event.peak for incident in case.incidents]
    highest = {n + 1 for n in np.argsort(peaks)[-20:].tolist()}
    assert {*motions(page)} == highest
    linked = {row.attributes["id"] for row in page.one("tbody").every("tr") if row.every("a")}
    assert linked == {f"row-{n}" for n in highest}
    assert f"The {len(peaks) - 20} events with the lowest peaks are only listed" in page.text


@pytest.mark.parametrize("every", [1, 11])
def test_a_look_is_the_explanation_of_the_whole_clip(
    detector: Detector, yard: Clip, every: int
) -> None:
    """Also where most poses are missing and filled in."""
    clip, T = thinned(yard, every), detector.config.T
    case, n_windows = case_of(detector, clip, max_interpolated=1.0), 0
    looks = [(one.event, one.explained) for one in case.incidents if one.explained is not None]
    for event, look in looks:
        assert look.peak.track == event.peak_track
        assert look.peak.frames[-1] == round(event.peak_s * case.fps)
        assert look.peak.score == pytest.approx(event.peak, abs=1e-3)
        places = [(window.track, int(window.frames[-1])) for window in look.windows]
        assert set(np.diff([end for _, end in places])) <= {T, 2 * T}
        for window, other in zip(look.windows, explain(detector, clip, places), strict=True):
            np.testing.assert_allclose(window.contributions, other.contributions, atol=1e-6)
            np.testing.assert_allclose(window.ghost, other.ghost, atol=1e-3)
            assert window.words == other.words
        n_windows += len(places)
    assert n_windows > 2 * len(looks) > 10


def thinned(clip: Clip, every: int) -> Clip:
    """One pose of so many."""
    tracks = [
        Track(one.id, one.frames[::every], one.keypoints[::every], one.confidence[::every])
        for one in clip.tracks
    ]
    return Clip(clip.name, clip.fps, clip.n_frames, tuple(tracks))


def test_the_animations_hold_the_poses_to_a_twentieth_of_a_pixel(
    page: Element, case: ReportedClip, yard: Clip
) -> None:
    tracks = {track.id: track for track in yard.tracks}
    played = motions(page)
    for incident in case.incidents:
        if incident.explained is None:
            continue
        motion, look = played[incident.number], incident.explained
        frames = np.concatenate([window.frames for window in look.windows])
        n = len(frames)
        assert motion["first"] == frames[0]
        assert frames[motion["peak"]] == round(incident.event.peak_s * case.fps)
        observed = np.reshape(motion["observed"], (n, -1, 2)) / PER_PIXEL
        track = tracks[incident.event.peak_track]
        seen, rows, own = np.intersect1d(frames, track.frames, return_indices=True)
        assert len(seen) > n // 2
        np.testing.assert_allclose(observed[rows], track.keypoints[own], atol=0.0501)
        ghost = np.concatenate([window.ghost for window in look.windows])
        given = np.reshape(motion["ghost"], (n, -1, 2)) / PER_PIXEL
        np.testing.assert_allclose(given, ghost, atol=0.0501)
        added = np.concatenate([window.contributions for window in look.windows])
        share = np.clip(added / added.max(), 0, None)
        np.testing.assert_allclose(np.array(motion["heat"]) / HEAT, share, atol=0.00501)
        half = motion["size"] / 2
        away = np.abs(
            np.reshape(motion["observed"], (n, -1, 2)) - np.array(motion["camera"])[:, None]
        )
        assert away.max() <= half


def test_words_shares_scale_and_confidence_are_told(page: Element, case: ReportedClip) -> None:
    articles = {article.attributes["id"]: article for article in page.every("article")}
    spoken = 0
    for incident in case.incidents:
        if incident.explained is None:
            continue
        peak, text = incident.explained.peak, articles[f"event-{incident.number}"].text
        for finding in incident.explained.findings:
            assert finding.says[1:] in text
            assert clock(finding.first_frame / case.fps, tenths=True) in text
            spoken += 1
        for part in peak.parts:
            if part.share >= 0.01:
                assert f"{part.name}{100 * part.share:.0f} %" in text
        (sigma,) = peak.scales
        place = case.detector.config.sigmas.tolist().index(sigma) + 1
        assert f"σ = {sigma:.2g}, number {place} of {case.detector.config.L}" in text
        assert f"{peak.confidence:.2f}: it lowers " in text
    assert spoken > 20


def test_the_strip_stands_in_for_the_animation(page: Element) -> None:
    for article in page.every("article"):
        stills = article.one("ol", kind="strip").every("li")
        assert len(stills) == 6
        for still in stills:
            size = float(still.one("svg").attributes["viewbox"].split()[2])
            for path in still.every("path"):
                places = [float(n) for n in re.findall("-?[0-9]+", path.attributes["d"])]
                assert len(places) == 4 * 17
                assert min(places) >= 0
                assert max(places) <= size


def test_twenty_events_are_small(case: ReportedClip) -> None:
    html = render(case)
    assert html.count("<article") == 20
    assert len(html.encode()) < LIMIT / 5


def test_the_same_case_gives_the_same_bytes(
    detector: Detector, yard: Clip, case: ReportedClip
) -> None:
    assert render(case) == render(case_of(detector, yard))


def test_names_are_harmless(case: ReportedClip) -> None:
    name = "</title></script><script>alert(1)</script>&amp;\"'$version"
    scores = replace(case.scores, clip=name)
    html = render(replace(case, scores=scores, model_name=name, incidents=case.incidents[:2]))
    page = read(html)
    assert page.one("title").text.startswith(name)
    assert page.one("h1").text == name
    assert name in page.every("dl")[0].text
    scripts = [script for script in page.every("script") if "alert" in script.text]
    assert scripts == []
    assert len(page.every("script")) == 1 + len(page.every("article"))


def test_it_refers_to_nothing_outside(case: ReportedClip) -> None:
    html = render(case)
    for element in read(html).every():
        assert not {"src", "srcset", "action", "style", "onclick"} & {*element.attributes}
        assert element.tag not in ("link", "iframe", "img", "object", "use", "image")
        assert element.attributes.get("href", "#").startswith("#")
    assert re.findall("https?://[^\"']*", html) == ["http://www.w3.org/2000/svg"]  # a name
    assert "url(" not in html
    assert "@import" not in html


def test_the_policy_allows_this_script_and_this_style_alone(page: Element) -> None:
    (policy,) = [
        meta.attributes["content"]
        for meta in page.every("meta")
        if meta.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'; ")
    scripts = [script for script in page.every("script") if not script.attributes]
    for text, rule in ((page.one("style").text, "style-src"), (scripts[0].text, "script-src")):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_colours_are_those_of_the_pictures(page: Element) -> None:
    sheet = page.one("style").text
    assert "$" not in sheet
    assert f"--truth: {plots.TRUTH};" in sheet
    assert f"--heat: {plots.VERMILION};" in sheet
    assert f"--odd: {plots.BLUE};" in sheet


def test_the_head_tells_the_threshold_and_its_budget(case: ReportedClip) -> None:
    head = read(render(case)).every("header")[0].text
    assert "chosen by hand. An event" in head
    assert "A window with more than 50\xa0% interpolated poses raises no event." in head
    assert case.model_sha256[:12] in head
    assert f"windows of {case.detector.config.T} frames" in head
    ranked = Threshold(
        value=case.rules.threshold, alerts_per_hour=0.5, how="ranked", hours=3.0, events=9
    )
    for threshold in (ranked, replace(ranked, how="counted")):
        head = read(render(replace(case, threshold=threshold))).every("header")[0].text
        assert threshold.words.replace(" %", "\N{NO-BREAK SPACE}%") in head
    assert "chosen by hand" not in head


def test_the_truth_is_shaded_where_it_is(case: ReportedClip) -> None:
    abnormal = np.zeros(case.scores.n_frames, np.bool_)
    abnormal[100:150] = abnormal[400:] = True
    page = read(render(replace(case, abnormal=abnormal)))
    lane = page.one("svg", kind="timeline").every("rect", kind="truth")
    places = [(float(r.attributes["x"][:-1]), float(r.attributes["width"][:-1])) for r in lane]
    n = case.scores.n_frames
    np.testing.assert_allclose(
        places, [(10_000 / n, 5_000 / n), (40_000 / n, 100 - 40_000 / n)], atol=0.011
    )
    assert "labelled as abnormal" in page.text
    assert "labelled as abnormal" not in read(render(case)).text


def test_a_calm_clip_has_a_page_too(case: ReportedClip) -> None:
    nobody = case.scores.windows.part(slice(0, 0))
    for scores in (case.scores, replace(case.scores, windows=nobody)):
        page = read(render(replace(case, scores=scores, incidents=())))
        assert "No event in" in page.text
        assert not page.every("article")
        assert not page.every("tbody")


def test_only_frames_that_were_watched_count_as_footage(case: ReportedClip) -> None:
    late = replace(case, first_frame=case.scores.n_frames - 250)
    head = read(render(late)).every("header")[0].text
    assert " in 10 s of footage" in head
    assert "250 frames at 25 a second" in head


def test_a_page_without_explanations_lists_all(detector: Detector, yard: Clip) -> None:
    page = read(render(case_of(detector, yard, most=0)))
    assert not page.every("article")
    assert len(page.one("tbody").every("tr")) > 20


def test_views_have_shares_and_no_noise_scales(usual_model: Detector, yard: Clip) -> None:
    case = case_of(usual_model, yard, most=3)
    page = read(render(case))
    explained = [one for one in case.incidents if one.explained is not None]
    assert len(explained) == 3
    articles = {article.attributes["id"]: article.text for article in page.every("article")}
    for incident in explained:
        assert incident.explained is not None
        peak, text = incident.explained.peak, articles[f"event-{incident.number}"]
        assert f"Share of the peak score: {peak.share_words}" in text
        assert "noise scale" not in text
        assert all(finding.says[1:] in text for finding in incident.explained.findings)
    assert "motion over 25 frames, place over 8 frames" in page.text
    assert "Scores tell how rarely people move like this in normal footage" in page.text
    for word in ("σ", "sigma", "component", "noise scale", "Confidence of poses"):
        assert word not in page.text
