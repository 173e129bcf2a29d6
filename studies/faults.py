"""Faults of a site, one by one: what people hear, after how long, and what is lost.

    python -m studies faults [--only NAME,...] [--seed 1] [--page PAGE]

Every row has a site of its own: `stepvad watch` on a small disk, one RTSP camera and two that play
poses, each with an anomaly every twelve seconds; a webhook, Mosquitto with a subscriber, a mailbox
behind an SMTP server, and a file. The command keeps the site running as the systemd unit in
`deploy` says. Once every sink has heard of every camera, something is broken for a while, and
undone; then the site must send alerts of all cameras to all sinks again. What was played and what
was heard is compared: LOST is an anomaly that no sink heard of; DOUBLED is the same message twice
at one receiver, two events or two mails about one anomaly; LATE is a message more than 15 s after
its anomaly, or after its receiver was back. With --page the rows are written into a page, others
stay as they are. It needs root (to mount disks), a C compiler, Mosquitto, and GStreamer's RTSP
server. Ctrl-C ends it and leaves nothing mounted or running.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from statistics import median

from studies.fault_parts.deck import DECK, Fault
from studies.fault_parts.servers import SINKS
from studies.fault_parts.site import CAMERAS, Site, StoppedError, write_stream
from studies.fault_parts.truth import Verdict, anomalies, judge

START_S, BACK_S, DRAIN_S, OVER_S, STEP_S = 90.0, 90.0, 30.0, 90.0, 0.2
CALM_S = 8.0
"""No more anomalies are counted in the last seconds."""
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
HEADER = (
    "| fault | for | people are told | alerts, the slowest of each: webhook, MQTT, mail "
    "| lost / doubled / late | not watched | `/readyz` | remarks |\n"
    "|---|--:|---|---|---|--:|---|---|"
)


@dataclass(frozen=True, slots=True)
class Row:
    """What a fault did."""

    name: str
    words: str
    seconds: float
    told: list[tuple[float, str]]
    """Messages about the site: seconds since the fault, and the subject."""
    verdict: Verdict
    blind_s: float
    ready: list[tuple[float, int, str]]
    remarks: list[str]

    is_excused: bool
    """Whether the row says why alerts are late or doubled."""

    @property
    def is_good(self) -> bool:
        found = self.verdict
        is_bad = (found.late > 0 or found.doubled > 0) and not self.is_excused
        return not (found.lost or found.missed or is_bad)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", help="names of faults: " + ", ".join(one.name for one in DECK))
    parser.add_argument("--seed", type=int, default=1, help="of the order of the faults")
    parser.add_argument("--beside", type=int, default=3, help="sites at the same time")
    parser.add_argument("--seconds", type=float, help="how long each fault lasts")
    parser.add_argument("--page", type=Path, help="write the rows into this page")
    parser.add_argument("--keep", type=Path, help="leave logs and messages of each row here")
    given = parser.parse_args(arguments)
    names = given.only.split(",") if given.only else [one.name for one in DECK]
    known = {one.name: one for one in DECK}
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no fault {unknown[0]!r}: {', '.join(known)}")
    chosen = [known[name] for name in names]
    rows = play_all(chosen, given)
    rows.sort(key=lambda row: [*known].index(row.name))
    lines = [line(row) for row in rows]
    print("\n".join([HEADER, *lines]))
    if given.page:
        write_page(given.page, lines, given)
    good = {row.name for row in rows if row.is_good}
    bad = [fault.name for fault in chosen if fault.name not in good]  # or not played at all
    print(f"verdict: {'good' if not bad else 'FAILED: ' + ', '.join(bad)}")
    sys.exit(1 if bad else 0)


def play_all(chosen: list[Fault], given: argparse.Namespace) -> list[Row]:
    """Play faults, some beside each other; Ctrl-C ends all in order."""
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    order = random.Random(given.seed).sample(chosen, len(chosen))
    rows: list[Row] = []
    began = time.monotonic()

    def run(fault: Fault) -> None:
        if stopping.is_set():
            return
        try:
            row = play(fault, base / fault.name, stream, stopping, given.seconds)
        except StoppedError:
            return
        except Exception as error:
            print(f"{fault.name}: could not be played: {error!r}", flush=True)
            return
        finally:
            if given.keep:
                _keep(base / fault.name, given.keep / fault.name)
        rows.append(row)
        at = time.monotonic() - began
        print(f"{at:5.0f} s  {fault.name:17} {'ok    ' if row.is_good else 'FAILED'} {line(row)}",
              flush=True)  # fmt: skip

    with tempfile.TemporaryDirectory(prefix="faults-") as place:
        base = Path(place)
        stream = write_stream(base)
        with ThreadPoolExecutor(given.beside) as pool:
            for future in [pool.submit(run, fault) for fault in order]:
                future.result()
    if stopping.is_set():
        print("stopped", file=sys.stderr)
        sys.exit(130)
    return rows


def play(
    fault: Fault, directory: Path, stream: Path, stopping: threading.Event, seconds: float | None
) -> Row:
    """Run a site, break something, undo it, and judge what was heard."""
    directory.mkdir()
    site = Site(directory, stopping)
    with site.run(stream):
        if not all_heard(site, 0.0, START_S):
            raise RuntimeError(f"the site does not alert:\n{site.running.log.read_text()[-2000:]}")
        since = time.time()
        undone = broken(site, fault, seconds or fault.seconds)
        if not all_heard(site, undone, BACK_S):
            site.remarks.append(f"not all sinks hear of all cameras within {BACK_S:.0f} s after")
        until = time.time() - CALM_S
        _wait_while(lambda: _waits(site, since, until), site, DRAIN_S)
        _wait_while(lambda: _is_open(site, since), site, OVER_S)
        site.is_over.set()
        if (code := site.running.stop()) != 0:
            site.remarks.append(f"exit code {code}")
        (directory / "heard.json").write_text(
            json.dumps(
                {
                    "since": since, "undone": undone, "ready": site.ready,
                    "events": [asdict(one) for one in site.messages.events],
                    "mails": [asdict(one) for one in site.messages.mails],
                    "unseen": [asdict(one) for one in site.unseen],
                },
                indent=1,
            )
        )  # fmt: skip
    return _row(fault, site, since, undone, until)


def broken(site: Site, fault: Fault, seconds: float) -> float:
    """Break something for a while; the time at which it was undone."""
    until = time.monotonic() + seconds
    playing = fault.play(site)
    try:
        while time.monotonic() < until:
            if next(playing, "over") == "over":
                site.wait(max(until - time.monotonic(), 0.0))
            site.wait(STEP_S)
    finally:
        playing.close()  # type: ignore[attr-defined]
    return time.time()


def all_heard(site: Site, since: float, limit_s: float) -> bool:
    """Whether each camera's new anomaly is heard of by every sink in time."""
    deadline = time.monotonic() + limit_s
    wanted = {(camera, sink) for camera in CAMERAS for sink in SINKS}
    while time.monotonic() < deadline:
        some = anomalies(site.messages, [], time.time())
        if wanted <= {(one.camera, sink) for one in some if one.at > since for sink in one.heard}:
            return True
        site.wait(0.5)
    return False


def _wait_while(lasts: Callable[[], bool], site: Site, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while lasts() and time.monotonic() < deadline:
        site.wait(0.5)


def _is_open(site: Site, since: float) -> bool:
    """Whether people were told that something is wrong, and not yet that it is over."""
    told = [one.subject for one in site.messages.mails if not one.is_alert and one.at > since]
    begun = [words for words in told if "again" not in words and "restarted" not in words]
    return len(begun) > sum("again" in words for words in told)


def _waits(site: Site, since: float, until: float) -> bool:
    """Whether some sink has not heard of some anomaly yet."""
    some = anomalies(site.messages, site.unseen, until)
    return any(one.at > since and one.is_seen and len(one.heard) < len(SINKS) for one in some)


def _row(fault: Fault, site: Site, since: float, undone: float, until: float) -> Row:
    some = anomalies(site.messages, site.unseen, until)
    verdict = judge(some, site.messages, since - 2.0, dict.fromkeys(fault.away, undone))
    told = [
        (mail.at - since, mail.says)
        for mail in site.messages.mails
        if not mail.is_alert and mail.at > since
    ]
    blind = [min(gap.until, until) - gap.since for gap in site.unseen]
    ready = [(at - since, *what) for at, *what in site.ready if at > since]
    remarks = [*([fault.why] if fault.why else []), *site.remarks]
    return Row(
        fault.name, fault.words, undone - since, told, verdict,
        max(blind, default=0.0), ready, remarks, bool(fault.why),
    )  # fmt: skip


def line(row: Row) -> str:
    """A row of the table."""
    found = row.verdict
    slowest = ", ".join(
        f"{max(found.delays[sink]):.1f}" if found.delays[sink] else "none" for sink in SINKS[:3]
    )
    usual = [one for sink in SINKS[:3] for one in found.delays[sink]]
    alerts = f"{found.played - found.unseen}: {slowest} s"
    if usual:
        alerts += f" (median {median(usual):.1f})"
    told = "; ".join(f"“{words}” after {at:.0f} s" for at, words in row.told) or "nothing"
    verdict = f"{found.lost} / {found.doubled} / {found.late}"
    missed = [f"{n} not heard by {sink}" for sink, n in found.missed.items()]
    unseen = [f"{found.unseen} anomalies while not watched"] if found.unseen else []
    remarks = "; ".join([*missed, *unseen, *row.remarks])
    blind = f"{row.blind_s:.0f} s" if row.blind_s else ""
    cells = [
        row.words, f"{row.seconds:.0f} s", told, alerts, verdict, blind, _readiness(row), remarks
    ]  # fmt: skip
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def _readiness(row: Row) -> str:
    """The answers of /readyz other than 200, each with the seconds from and to."""
    spans: list[tuple[str, float, float]] = []
    for (at, status, words), (end, *_) in pairwise([*row.ready, (row.ready[-1][0], 0, "")]):
        what = "no answer" if status == 0 else f"{status} {words}"
        if status == 200:
            continue
        if spans and spans[-1][0] == what and at - spans[-1][2] < 1.0:
            spans[-1] = what, spans[-1][1], end
        else:
            spans.append((what, at, end))
    shown = [f"{what}, {since:.0f} to {until:.0f} s" for what, since, until in spans[:2]]
    return "; ".join([*shown, *([f"{len(spans) - 2} more times"] if spans[2:] else [])]) or "200"


def write_page(page: Path, lines: list[str], given: argparse.Namespace) -> None:
    """Put rows into the page, in the order of the deck; those of other faults stay."""
    text = page.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    old, _, after = rest.partition(END)
    known = {one.split(" | ")[0].strip("| "): one for one in [*old.splitlines()[4:], *lines]}
    rows = [known[one.words] for one in DECK if one.words in known]
    facts = (
        f"Seed {given.seed}, {date.today()}, version {version('stepvad')}, {os.cpu_count()} cores"
    )
    facts += f" ({_processor()}), {given.beside} sites at a time."
    table = "\n".join([BEGIN, facts, "", HEADER, *rows, END])
    page.write_text(before + table + after, "utf-8")


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _keep(directory: Path, to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    for name in ("log.txt", "heard.json", "events.jsonl"):
        if (directory / name).exists():
            shutil.copy(directory / name, to / name)
