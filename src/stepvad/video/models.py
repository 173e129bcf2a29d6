"""The registry of known networks, their download and cache."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stepvad.errors import ModelFileError, os_reason
from stepvad.files import PUBLIC, replacing

DETECTOR, POSE = "rtmdet-nano", "rtmpose-s"
"""The default networks: small, and published by their authors."""
MAX_BYTES = 1 << 30
"""Largest download; the networks are 4 to 60 MB."""
TIMEOUT_S = 30.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A network by name: its file and checksum, and its licence.

    An empty `url` means the file is not published: supply it, and the checksum verifies it. If
    `url` is an archive, the file is its only `.onnx`.
    """

    name: str
    file: str
    sha256: str
    licence: str
    url: str = ""
    role: Literal["detector", "pose"] = "pose"
    measured: Literal["yes", "another export", "no"] = "no"
    """The documented figures are of this file; another export has the same layout."""

    @property
    def cached(self) -> Path:
        """Path of its file once it was fetched."""
        return cache_directory() / self.file


_RTMPOSE = "https://download.openmmlab.com/mmpose/v1/projects/rtmposev1/onnx_sdk"
_RTMDET = "rtmdet_nano_8xb32-100e_coco-obj365-person-05d8511e"
_RTMPOSE_S = "rtmpose-s_simcc-body7_pt-body7_420e-256x192-acd4a1ef_20230504"
_RTMPOSE_M = "rtmpose-m_simcc-body7_pt-body7_420e-256x192-e48f03d0_20230504"

CARDS: tuple[ModelCard, ...] = (
    ModelCard(
        "rtmdet-nano",
        f"{_RTMDET}.onnx",
        "8297e829ccc5590c8e2d32d5a211f322a0585fb7467eec85eb12c9525b0b95d6",
        "Apache-2.0",
        f"{_RTMPOSE}/{_RTMDET}.zip",
        "detector",
        "another export",
    ),
    ModelCard(
        "yolox-nano",
        "yolox_nano.onnx",
        "c789161ed43c8269fcd4e67c67eeeb4e80c622da2eb296a20bc6007bd18a0b7d",
        "Apache-2.0",
        "https://github.com/Megvii-BaseDetection/YOLOX/releases/download/0.1.1rc0/yolox_nano.onnx",
        "detector",
        "another export",
    ),
    ModelCard(
        "movenet-lightning",
        "movenet-lightning.onnx",
        "a3e6f5dd7b7c67c3df71e7b0c19358330f7b72b9b0c63cae4eb7aad9d4fa317f",
        "Apache-2.0",
        measured="yes",
    ),
    ModelCard(
        "movenet-thunder",
        "movenet-thunder.onnx",
        "ca403adab168861f9692612077e420282c00d6523f617083d1368bf9c0579418",
        "Apache-2.0",
    ),
    ModelCard(
        "rtmpose-s",
        f"{_RTMPOSE_S}.onnx",
        "9aeb635b83f86aea45cf45d85798f7eba1a162de8e0d721c44e54fe5eebaf47d",
        "Apache-2.0",
        f"{_RTMPOSE}/{_RTMPOSE_S}.zip",
    ),
    ModelCard(
        "rtmpose-m",
        f"{_RTMPOSE_M}.onnx",
        "5c0a4bf67953e6d2ac43ce15e77dc9d5d354ae18430a47d2c5963a7bc5683e3c",
        "Apache-2.0",
        f"{_RTMPOSE}/{_RTMPOSE_M}.zip",
    ),
)


def model_file(model: str | Path, cards: tuple[ModelCard, ...] = CARDS) -> Path:
    """Return the file of a network: a path as is, or a known name from the cache.

    A name is downloaded once; a path never causes a download.
    """
    path = Path(model)
    if path.is_file():
        return path
    card = next((card for card in cards if card.name == str(model)), None)
    if card is None:
        raise ModelFileError(
            f"{model}: expected a file or one of {', '.join(card.name for card in cards)}",
            hint="check the path",
        )
    # fetched once, and checked every time: a damaged file must not pass for a network
    if not card.cached.is_file():
        _fetch(card, card.cached)
    _check(card, card.cached.read_bytes(), card.cached)
    return card.cached


def known_file(model: str) -> Path:
    """Where the file of a network is, or will be once it was fetched."""
    cached = next((card.cached for card in CARDS if card.name == model), None)
    return Path(model) if cached is None or Path(model).is_file() else cached


def cards_of(names: Sequence[str], cards: tuple[ModelCard, ...] = CARDS) -> list[ModelCard]:
    """The networks of these names; without names, the default detector and pose network."""
    known = {card.name: card for card in cards}
    wanted = names or (DETECTOR, POSE)
    if other := next((name for name in wanted if name not in known), None):
        raise ModelFileError(
            f"{other}: expected one of {', '.join(known)}", hint="see stepvad models"
        )
    return [known[name] for name in wanted]


def is_whole(card: ModelCard) -> bool | None:
    """Compare the cached file with its checksum; None if there is no file."""
    if not card.cached.is_file():
        return None
    return hashlib.sha256(card.cached.read_bytes()).hexdigest() == card.sha256


def cache_directory() -> Path:
    """The cache of downloaded networks: STEPVAD_CACHE, or `stepvad` in the user's cache."""
    named = os.environ.get("STEPVAD_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stepvad"


def _fetch(card: ModelCard, kept: Path) -> None:
    if not card.url:
        raise ModelFileError(
            f"{card.name}: expected the file {kept}, got none, and nobody publishes it",
            hint="give the path of the ONNX file instead of its name, or put it there",
        )
    log.info("fetching %s (licence %s) from %s", card.name, card.licence, card.url)
    content = _onnx_in(card, _download(card, kept))
    _check(card, content, kept)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelFileError(
            f"{kept.parent}: expected a directory for networks, got: {os_reason(error)}",
            hint="name another one in STEPVAD_CACHE",
        ) from error
    with replacing(kept, ModelFileError, mode=PUBLIC) as temporary:
        temporary.write_bytes(content)


def _download(card: ModelCard, kept: Path) -> bytes:
    import urllib.request  # brings ssl, which a camera's process never needs

    try:
        with urllib.request.urlopen(card.url, timeout=TIMEOUT_S) as answer:  # noqa: S310  URLs of CARDS
            content: bytes = answer.read(MAX_BYTES)
    except OSError as error:
        raise ModelFileError(
            f"{card.name}: expected to fetch {card.url}, got: {error}",
            hint=f"without internet, fetch it on another machine and copy it to {kept}",
        ) from error
    return content


def _onnx_in(card: ModelCard, content: bytes) -> bytes:
    """Extract the only ONNX file of an archive; return other content as is."""
    if not card.url.endswith(".zip"):
        return content
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            found = [info for info in archive.infolist() if info.filename.endswith(".onnx")]
            if len(found) == 1 and found[0].file_size <= MAX_BYTES:
                return archive.read(found[0])
    except zipfile.BadZipFile as error:
        raise ModelFileError(
            f"{card.name}: expected an archive at {card.url}, got something else",
            hint="try again, or give the path of the ONNX file",
        ) from error
    raise ModelFileError(
        f"{card.name}: expected one ONNX file in {card.url}, got {len(found)}",
        hint="unpack it and give the path of the ONNX file",
    )


def _check(card: ModelCard, content: bytes, kept: Path) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != card.sha256:
        raise ModelFileError(
            f"{card.name}: expected the checksum {card.sha256}, got {found}",
            hint=f"remove {kept} if it is there and try again; pass your own file by its path",
        )
