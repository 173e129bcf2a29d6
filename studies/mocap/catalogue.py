"""Catalogue of the motions used from CMU's collection, by class and person, chosen one by one.

A line like `16:11-34,47` names the motions 16_11 to 16_34 and 16_47 of subject 16. Motions were
proposed by their labels and accepted by their 3-D joints; unlisted motions are not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Half = Literal["a", "b", "validation"]
MotionKind = Literal[
    "run", "jump", "fall", "floor", "fight", "dance", "acrobatics", "climb", "throw"
]  # fmt: skip

KINDS: tuple[MotionKind, ...] = (
    "run", "jump", "fall", "floor", "fight", "dance", "acrobatics", "climb", "throw",
)  # fmt: skip
"""Classes of anomalies; `floor` is crawling, rolling and getting up from the floor."""

NORMAL: Mapping[str, str] = {
    "walk": (
        "02:01-02 05:01 06:01 07:01-12 08:01-04,06,08-11 09:12 10:04 12:01-03 15:01 "
        "16:11-34,47,58 26:01 27:01 29:01 32:01-02 35:01-16,28-34 36:02-03,09 37:01 38:01-02 "
        "39:01-14 40:02 41:02 43:01 45:01 46:01 47:01 49:01 54:22 55:04 56:01 "
        "69:01-09,11-15,20-33 81:01-04,17-18 82:08-15 83:36-39 90:22-23 "
        "91:01-04,10,17-18,22-23,27,29,31,34-36,57,62 104:02,19,22,27,35-36,39 111:14,34-36 "
        "113:05-06,10,25-26 114:13,15 132:17-22,45-50 133:11-24 136:20-24 137:29 141:19,29-30 "
        "143:32,38 144:33-34"
    ),
    "turn": "69:16-19 76:10 69:34-41,51-55",
    "sidestep": "69:42-43,45,47-48,50,56-67 83:01,04,15,18-21,33,44,55,63,66-68 111:26 113:17-18",
    "stand": (
        "77:01-04 111:16,25,28,37 113:12,16,21,23,27 114:12 140:06-07 141:16,18,20-21 137:28 "
        "18:08 19:08"
    ),
    "sit": "13:01-06 14:27-32 15:10 86:09 111:09-11 113:15 114:04-06 141:17 143:18-19",
    "gesture": (
        "13:26-28 14:24-26 15:08 27:02,06 28:01,05 30:01,07 31:01,05 32:03,07 41:10-11 143:25 "
        "18:01-02 19:01-02 20:12 21:12 22:13 23:13"
    ),
    "work": (
        "13:21-25 14:10-13,15 143:26-28 137:26-27 69:68-75 26:09-11 143:11-13 "
        "79:05-06,12,15-16,31-32,36-42,44,55,75,78-81,84-85 80:01,06,18-19,24-29,33,40,50,61,73"
    ),
    "drink": "13:07-09 14:04-05,37",
    "together": "20:03-04 21:03-04 22:04-07 23:04-07",
}
"""Normal motions, by activity."""

ABNORMAL: Mapping[MotionKind, str] = {
    "run": (
        "02:03 09:01-11 16:08,35-46,48-57 35:17-26 38:03 77:10-13 104:04,06,08-10,37,48,53-57 "
        "127:03-20 128:02-03,05-07 141:02-03,34 143:01-04,42"
    ),
    "jump": (
        "02:04 13:11,13,19,32,39-42 16:01-07,09-10 49:02-03 75:01-03,06-12,15 "
        "83:40-43,45-54,56-62,64-65 91:37-56,58-61 118:01-30 124:11 127:21-22,25-28 "
        "131:03-04,07-08 133:03-07 141:04-06 143:05-09"
    ),
    "fall": "85:15 90:12-13,16-18 111:12 113:08,14 114:11",
    "floor": "82:05 111:03,06-08,21 114:02,16 133:01-02 77:16-18 140:01-04,08-09",
    "fight": (
        "02:05 13:17-18 14:02-03 17:10 75:16 76:01-02 79:08 80:10 86:01 87:01 88:06 90:05-07 "
        "111:19 113:13 135:02-07,09,11 141:14 143:23-24 144:05-06,09-10"
    ),
    "dance": (
        "05:02-20 19:15 20:01 21:01 49:09-14,16-17,22 55:01 90:28,30-31 113:04 120:05,07 141:12 "
        "143:35"
    ),
    "acrobatics": (
        "49:06-08 85:01-08,10-14 87:03-05 88:01,04-05,07-09 89:03-04 "
        "90:02-04,08-09,11,14-15,19,29,33-36 127:23-24 128:10-11 144:01-02"
    ),
    "climb": "01:02-14 13:33-34 14:33-35 43:02-03 81:14-15 143:37",
    "throw": "33:01-02 34:01-02 79:91-92 111:33 113:24 124:01-02,12-13 141:10-11 143:20,22",
}
"""Motions with an anomaly, by class; `truth` determines the abnormal frames."""

SAME_PERSON: Mapping[str, str] = {"20": "18", "21": "19"}
"""Subjects with the bone lengths of another subject, treated as the same person."""

HALF_A = (
    "01 02 05 06 07 12 13 16 18 19 22 23 27 28 33 34 35 37 45 75 76 79 82 88 90 91 111 127 133 135"
)
HALF_B = (
    "09 10 14 17 30 31 32 36 39 40 41 46 49 55 69 77 80 81 83 85 86 87 89 104 113 114 118 120 124 "
    "132 136 143 144"
)
VALIDATION = "08 15 26 29 38 43 47 54 56 128 131 137 140 141"
HALVES: Mapping[Half, tuple[str, ...]] = {
    "a": tuple(HALF_A.split()),
    "b": tuple(HALF_B.split()),
    "validation": tuple(VALIDATION.split()),
}
"""Persons by half: split 1 fits on b and tests on a, split 2 vice versa."""

EXCLUDED: Mapping[str, str] = {
    "copies": "subjects 63, 73, 84, 102, 103, 105, 106, 117, 121, 122, 123, 139 hold the motions "
    "of 64, 70, 74, 78, 93, 91, 141, 85, 90, 83, 70, 77 under another number, bit for bit: a split "
    "by subject number alone would put one motion on both sides; and 14_36 is 14_31",
    "no label": "motions without a label, or labelled clean or Unknown, cannot be checked",
    "wrong clock": "bodies of subjects 75, 87 and 88 fall with four to six times gravity while in "
    "the air, so they play at double speed, and are slowed down; subjects 74, 78 and 93 walk at "
    "up to 2 or 3 m/s and seem to be likewise, but never fly long enough to tell, and are left out",
    "calibration": "motorcycle poses, T-poses, ranges of motion",
    "neither": "acted walks (drunk, zombie, sad, limping, crouched), animals, mimed sports and "
    "dances in couples (60, 61), which are neither plainly normal nor of a class",
    "ground": "uneven terrain, slopes, stairs, ledges and platforms (82_02 to 82_04, 88_02, 89_05, "
    "90_01), whose floor the flat scene does not have",
    "substrings": "swordplay and playground for lay, chopping for hop, pick box up for box, "
    "exact footfalls for fall: the lists go by name and not by text",
    "gentle": "runs below 2.1 m/s (111_23, 111_24, 113_07), punches, blocks and dances without any "
    "sign of the rules (135_10, 144_07 and others of 144, 18_15, 55_02, 111_05, 120_06, 143_34)",
    "short": "motions without 2 s in one piece that are normal, or 0.8 s that are not",
    "water": "swimming (125, 126) is motion that no street shows",
}
"""Excluded motions, and the reasons."""


def names(lines: str) -> tuple[str, ...]:
    """Expand `16:11-34,47 17:10` into the names of motions: `16_11`, …, `17_10`."""
    found = []
    for entry in lines.split():
        subject, trials = entry.split(":")
        for part in trials.split(","):
            first, _, last = part.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            found += [f"{subject}_{number:02d}" for number in numbers]
    return tuple(found)


def person_of(name: str) -> str:
    """The person in a motion: its subject, or the first subject number of the same person."""
    subject = name.split("_")[0]
    return SAME_PERSON.get(subject, subject)


def half_of(name: str) -> Half:
    """The half of the collection a motion belongs to, by its person."""
    person = person_of(name)
    return next(half for half, persons in HALVES.items() if person in persons)


def normal_names(half: Half) -> tuple[str, ...]:
    """The normal motions of a half, in the order of the lists."""
    listed = [name for lines in NORMAL.values() for name in names(lines)]
    return tuple(name for name in listed if half_of(name) == half)


def abnormal_names(half: Half, kind: MotionKind) -> tuple[str, ...]:
    """The motions of a half that show one class of anomaly."""
    return tuple(name for name in names(ABNORMAL[kind]) if half_of(name) == half)
