"""The report of a detector with several views says what each of them adds."""

from __future__ import annotations

from stepvad import Config, Detector
from stepvad.evaluation.walkers import make_clips
from stepvad.poses import Clip
from stepvad.report.page import render
from tests.report.pages import case_of, read


def test_views_have_shares_and_no_noise_scales(yard: Clip) -> None:
    footage = [clip for clip, _ in make_clips(8, seed=5, seconds=6.0)]
    quick = Config(K=12, width=16, max_steps=8, ema_warmup=True, clock=True)
    detector = Detector.fit(footage, quick.with_views(("pose", "motion", "place"), 25.0))
    case = case_of(detector, yard, most=3)
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
    assert "motion over 25 frames, motion over 8 frames, place over 8 frames" in page.text
    assert "1 is the mean of normal footage" in page.text
    for word in ("σ", "sigma", "component", "noise scale"):
        assert word not in page.text
