"""The people of a site's settings: their targets, and test messages to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepvad.errors import ConfigError, StepvadError
from stepvad.site.notify.push import BrowserTarget, PushSubscriptions
from stepvad.site.notify.sending import AppriseTarget, Target
from stepvad.site.notify.words import NoticeWords, page_address
from stepvad.site.settings.page import BROWSERS

if TYPE_CHECKING:
    from stepvad.site.settings.page import NotifySettings
    from stepvad.site.settings.sections import Sinks, SiteSettings


@dataclass(frozen=True, slots=True)
class TestResult:
    """What came back from a test message to one target."""

    __test__ = False  # no test class of pytest

    to: str
    ok: bool
    words: str


def sink_names(sinks: Sinks) -> Iterator[tuple[str, NotifySettings, str]]:
    """The sinks for people: name in the store, settings and target. Each target has its own.

    So a service that is down delays no other, and nobody gets a message twice because of it.
    """
    for settings in sinks.notify:
        for number, to in enumerate(settings.to, start=1):
            more = f":{number}" if number > 1 else ""
            yield f"notify:{settings.name}{more}", settings, to


def target_of(to: str, settings: SiteSettings) -> Target:
    """The target that a name in `to` stands for; read its secret."""
    if to == BROWSERS:
        contact = page_address(settings.web)
        return BrowserTarget(
            PushSubscriptions(settings.data, settings.web.accounts), contact=contact
        )
    return AppriseTarget(to)


def words_of(settings: SiteSettings) -> NoticeWords:
    """The words of messages about this site."""
    return NoticeWords(settings.name, page_address(settings.web))


def people(settings: SiteSettings, name: str | None) -> NotifySettings:
    """The people of this name; without a name, those of the only section."""
    found = settings.sinks.notify
    if not found:
        raise ConfigError(
            "sinks.notify: expected people to notify, got none in the settings",
            hint='add [[sinks.notify]] with to = ["browsers"]; see the guide "Alerts on phones"',
        )
    if name is None and len(found) == 1:
        return found[0]
    for one in found:
        if one.name == name:
            return one
    known = ", ".join(one.name for one in found)
    got = "no name" if name is None else repr(name[:64])
    raise ConfigError(f"sinks.notify: expected one of {known}, got {got}", hint="name one of them")


def send_test(settings: SiteSettings, to_whom: NotifySettings) -> Iterator[TestResult]:
    """Send a test message to each target, at once and whatever the hour; yield what came back."""
    notice = words_of(settings).test(to_whom.name)
    for to in to_whom.to:
        try:
            yield TestResult(to, True, target_of(to, settings).send(notice))
        except StepvadError as error:
            yield TestResult(to, False, str(error))
