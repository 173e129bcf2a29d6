"""Settings of the messages that reach people: to whom, when, and how often."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from stepvad.files.secrets import is_reference
from stepvad.settings.section import NAME, Hours, Section, check_distinct, reference

BROWSERS = "browsers"
"""The target that stands for all browsers in which somebody asked for notifications."""
MOST_TARGETS = 16


def _target(text: str, info: ValidationInfo) -> str:
    if text == BROWSERS:
        return text
    if not is_reference(text):
        raise ValueError(
            f"expected {BROWSERS}, env:NAME or file:PATH, got something else | put the address "
            "(ntfys://, mailtos://, tgram://...) into an environment variable or a file and name "
            "that here: it holds a secret"
        )
    return reference(text, info)


Target = Annotated[str, AfterValidator(_target)]


class NotifySettings(Section):
    """People who get a message when an event starts."""

    name: str = Field("people", pattern=NAME, description="Unique name of the group.")
    to: list[Target] = Field(
        min_length=1,
        max_length=MOST_TARGETS,
        description='"browsers" for every browser in which someone pressed "Notify this browser", '
        "and references to Apprise addresses (ntfys://, mailtos://, tgram:// and others) "
        "as env:NAME or file:PATH, because they contain secrets.",
    )
    cameras: list[str] = Field(
        default_factory=list, max_length=1000, description="Only these cameras; empty: all."
    )
    zones: list[str] = Field(
        default_factory=list, max_length=1000, description="Only events in these zones; empty: all."
    )
    quiet_hours: Hours = Field(
        default_factory=list,
        max_length=24,
        description='Hours without messages, such as ["22:00-06:00"], in the machine\'s time zone.',
    )
    in_quiet_hours: Literal["hold", "drop"] = Field(
        "hold",
        description="hold: one summary when the quiet hours are over; drop: no message at all.",
    )
    most_per_hour: int = Field(
        12,
        ge=1,
        le=1000,
        description="Messages per hour at most; further events are combined into one.",
    )
    repeat_minutes: float | None = Field(
        None,
        gt=0,
        le=1440,
        description="Repeat the message at this interval until someone has seen the event.",
    )
    repeat_times: int = Field(
        3, ge=1, le=100, description="Number of repeats, with repeat_minutes."
    )
    say_when_over: bool = Field(
        False, description="Send a second, short message when the event is over."
    )

    @property
    def browsers(self) -> bool:
        """Whether browsers get the messages."""
        return BROWSERS in self.to

    def check_names(self, cameras: Collection[str], zones: Collection[str]) -> None:
        """Raise unless every camera and zone named here is one of the site."""
        for noun, named, known in (("camera", self.cameras, cameras), ("zone", self.zones, zones)):
            unknown = [name for name in named if name not in known]
            if unknown:
                there = ", ".join(dict.fromkeys(known)) or "none"
                raise ValueError(
                    f"sinks.notify {self.name}: expected {noun}s of the site, got {unknown[0]!r} | "
                    f"its {noun}s: {there}"
                )

    @field_validator("to")
    @classmethod
    def _distinct(cls, to: list[str]) -> list[str]:
        check_distinct(to)
        return to


def of_people(people: NotifySettings) -> list[str]:
    """Describe who gets which messages, without secrets."""
    to = ", ".join(people.to)
    limits = "; ".join(limits_of(people))
    return [f"to people ({people.name}), events of {concern_of(people)}: {to}", f"  {limits}"]


def concern_of(people: NotifySettings) -> str:
    """Describe of which cameras and zones people hear."""
    where = _either(people.cameras, "camera") if people.cameras else "all cameras"
    return f"{where} in {_either(people.zones, 'zone')}" if people.zones else where


def limits_of(people: NotifySettings) -> list[str]:
    """Describe when people get messages."""
    limits = [f"at most {people.most_per_hour} messages an hour, the rest in one"]
    if people.quiet_hours:
        hours = " and ".join(people.quiet_hours)
        then = "one message after" if people.in_quiet_hours == "hold" else "no message, ever"
        limits.append(f"none from {hours} ({then})")
    if people.repeat_minutes is not None:
        limits.append(
            f"again every {people.repeat_minutes:g} minutes until someone has seen the event, "
            f"at most {people.repeat_times} times"
        )
    if people.say_when_over:
        limits.append("another when it is over")
    return limits


def _either(names: list[str], noun: str) -> str:
    return f"{noun}{'' if len(names) == 1 else 's'} {', '.join(names)}"
