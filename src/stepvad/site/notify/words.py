"""The text of messages to people."""

from __future__ import annotations

import ipaddress
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Literal
from urllib.parse import quote, urlsplit

from stepvad.events.camera import WENT_DOWN, WENT_DOWN_WORDS
from stepvad.events.record import Record
from stepvad.site.settings.page import Web, is_loopback
from stepvad.site.troubles import TroubleChange

NotificationKind = Literal["new", "again"]
UNSTORED = "The site cannot store events now, so the page may not show this."
LISTED = 5
"""Events that a message describes; of more it says the number only."""
MOST_WHY = 240
"""Longest explanation, in characters; the rest is on the page."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message as people read it."""

    title: str
    body: str
    link: str = ""
    """The address of the event or of the list of events; empty if nobody could open it."""
    tag: str = ""
    """Messages with the same tag replace each other on a screen."""

    @property
    def text(self) -> str:
        """The body with the link, for services that show text only."""
        return f"{self.body}\n{self.link}" if self.link else self.body


@dataclass(frozen=True, slots=True)
class NoticeWords:
    """Turns events into messages."""

    site: str
    page: str = ""
    """Address of the page without a slash at its end; empty: no links."""
    zone: tzinfo | None = None
    """Time zone of the times; None: that of the machine."""

    def notice(
        self,
        kind: NotificationKind,
        records: Sequence[Record],
        now: float,
        *,
        next_at: float | None = None,
        unstored: bool = False,
    ) -> Notice:
        """The message about one event or several; `unstored`: the disk does not take them yet."""
        is_one = len(records) == 1
        made = self._one(kind, records[0], now) if is_one else self._several(kind, records, now)
        if unstored:
            link = f"{self.page}/" if self.page else ""
            made = replace(made, body=f"{made.body}\n{UNSTORED}", link=link)
        if next_at is None:
            return made
        limit = (
            "This is the last message of this hour: further events follow in one message from "
            f"{datetime.fromtimestamp(next_at, self.zone):%H:%M} on."
        )
        return replace(made, body=f"{made.body}\n{limit}")

    def troubles(self, changes: Sequence[TroubleChange], now: float) -> Notice:
        """The message about troubles of the site that began or ended."""
        said = [_changed(one) for one in changes]
        if len(said) == 1:
            title, body = said[0], self._detail(changes[0], now)
        else:
            more = f" and {len(said) - 2} more" if len(said) > 2 else ""
            title = f"{said[0]}, {said[1]}{more}"
            parts = zip(said, changes, strict=True)
            body = "\n".join(f"{text}. {self._detail(one, now)}" for text, one in parts)
        link = f"{self.page}/" if self.page else ""
        return Notice(f"{self.site}: {title}", body, link, "trouble")

    def _detail(self, change: TroubleChange, now: float) -> str:
        """The reason of a trouble and its time."""
        began = self._when(change.since, now)
        if change.kind == "end":
            return f"Before, since {began}: {change.fault.words}"
        detail = change.fault.detail.rstrip(".")
        return f"{detail[:1].upper()}{detail[1:]}. {began}" if detail else began

    def test(self, name: str) -> Notice:
        """A message that shows that messages arrive."""
        return Notice(
            f"{self.site}: test",
            f"This is how alerts for {name} arrive. Nothing has happened.",
            f"{self.page}/" if self.page else "",
            "test",
        )

    def _one(self, kind: NotificationKind, record: Record, now: float) -> Notice:
        seen = "Nobody has looked yet. " if kind == "again" else ""
        # the link opens this event
        body = f"{seen}{what(record)}. {self._when(record.start_time, now)}"
        link = f"{self.page}/#event/{quote(record.id, safe='')}" if self.page else ""
        return Notice(place(record), body, link, record.id)

    def _several(self, kind: NotificationKind, records: Sequence[Record], now: float) -> Notice:
        # one line for each of the latest events, and how many of each camera
        counts = Counter(_sentence(record.camera) for record in records)
        cameras = ", ".join(f"{camera} {n}" for camera, n in counts.most_common(LISTED))
        ending = {"new": "", "again": ", nobody has looked yet"}[kind]
        lines = [
            f"{self._when(one.start_time, now)} {place(one)}: {said[:1].lower()}{said[1:]}"
            for one in records[-LISTED:]
            for said in [what(one)]
        ]
        if len(records) > LISTED:
            lines.insert(0, f"{cameras}. The latest {LISTED}:")
        return Notice(
            f"{self.site}: {len(records)} events{ending}",
            "\n".join(lines),
            f"{self.page}/#events" if self.page else "",
            f"events {kind}",
        )

    def _when(self, time: float, now: float) -> str:
        """The time, with the day if it was another one."""
        then, today = (datetime.fromtimestamp(one, self.zone) for one in (time, now))
        clock = then.strftime("%H:%M:%S")
        if then.date() == today.date():
            return clock
        return f"{then.day} {then.strftime('%b')} {clock}"


def place(record: Record) -> str:
    """The camera and its zones."""
    return ", ".join([_sentence(record.camera), *record.zones])


def what(record: Record) -> str:
    """A sentence on the event, without its full stop."""
    why = (record.why or "").rstrip(".")
    # long words are cut, and a fall says so first
    if len(why) > MOST_WHY:
        why = f"{why[: MOST_WHY - 1].rstrip()}…"
    strangest = f". {_sentence(record.strangest)}" if record.strangest else ""
    if record.label == WENT_DOWN:
        more = why.removeprefix(WENT_DOWN_WORDS).removeprefix("; ")
        return f"Someone {WENT_DOWN_WORDS}" + (f": {more}" if more else "") + strangest
    return "Someone is moving unusually" + (f": {why}" if why else "") + strangest


def lasted(seconds: float) -> str:
    """A duration in words."""
    if seconds < 60:
        return f"{max(round(seconds), 1)} s"
    if seconds < 600:
        return f"{int(seconds // 60)} min {round(seconds % 60)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _changed(change: TroubleChange) -> str:
    """The beginning or end of a trouble, without its full stop."""
    if change.kind == "begin":
        return change.fault.words
    return f"{change.fault.over}, after {lasted(change.lasted_s)}"


def page_address(web: Web) -> str:
    """The address of the page in messages; empty if there is none that anybody could open."""
    if not web.enabled:
        return ""
    if web.public_url:
        return web.public_url.rstrip("/")
    if web.port == 0:
        return ""
    scheme = "https" if web.certificate else "http"
    host = web.host
    with suppress(ValueError):  # of a name
        if ipaddress.ip_address(host).is_unspecified:
            host = socket.gethostname()
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{web.port}"


def opens_here_only(page: str) -> bool:
    """True if the links of messages work on this machine only."""
    return is_loopback(urlsplit(page).hostname or "")


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
