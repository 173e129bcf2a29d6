"""The link from an event to the clip of a video recorder."""

from __future__ import annotations

import pytest

from stepvad.errors import StepvadError
from stepvad.incidents.recording import recording_url
from tests.site.records import record
from tests.site.sites import camera


def test_names_in_braces_become_the_times_of_the_event() -> None:
    one = record("north/yard").ended("calm", 1005.0)
    found = recording_url("https://nvr/clip?c={camera}&a={start}&b={end}&t={start_iso}", one)
    assert found == "https://nvr/clip?c=north%2Fyard&a=990&b=1016&t=1970-01-01T00%3A16%3A30Z"
    going_on = recording_url("http://nvr/{start}-{end}/{end_iso}/{id}", record())
    assert going_on.startswith("http://nvr/990-1071/1970-01-01T00%3A17%3A51Z/")


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("http://nvr/{name}", "expected only {camera}, "),
        ("http://nvr/{camera.__class__}", "expected only {camera}, "),
        ("http://nvr/{camera!r}", "expected only {camera}, "),
        ("http://nvr/{}", "expected only {camera}, "),
        ("http://nvr/{camera", "expected only {camera}, "),
        ("javascript:alert({start})", "expected http:// or https://"),
        ("rtsp://nvr/{start}", "expected http:// or https://"),
        ("http://{camera}/clip", "a fixed host"),
        ("http://user:word@nvr/{start}", "without credentials"),
        ("http://nvr/{start}?token=abc", "without credentials"),
    ],
)
def test_another_address_is_refused(address: str, problem: str) -> None:
    with pytest.raises((ValueError, StepvadError)) as error:
        camera(recorder=address)
    assert problem in str(error.value)
