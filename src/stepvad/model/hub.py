"""Models on the Hugging Face Hub: hf://OWNER/NAME/FILE, or hf://OWNER/NAME@REVISION/FILE."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from stepvad.errors import MissingExtraError, ModelFileError

SCHEME = re.compile(r"hf:/{1,2}")
"""A path joins two slashes into one."""
REST = re.compile(
    r"(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w.-]+))?/(?P<file>[\w./-]+\.safetensors)"
)
TIMEOUT_S = 10.0


class HubAddress(NamedTuple):
    """Where on the Hub a model is; a revision is a branch, a tag or a commit."""

    repository: str
    file: str
    revision: str | None


def address(path: Path) -> HubAddress | None:
    """The address in a path, None if it is a path of this machine."""
    scheme = SCHEME.match(str(path))
    if scheme is None:
        return None
    found = REST.fullmatch(str(path)[scheme.end() :])
    if found is None:
        raise ModelFileError(
            f"model: expected hf://OWNER/NAME/FILE.safetensors, got {path}",
            hint="with a revision: hf://OWNER/NAME@REVISION/FILE.safetensors",
        )
    return HubAddress(found["repository"], found["file"], found["revision"])


def local(path: Path) -> Path:
    """The file itself: a path of this machine as it is, a model of the Hub from its cache."""
    wanted = address(path)
    return path if wanted is None else _downloaded(wanted)


def _downloaded(wanted: HubAddress) -> Path:
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError:
        raise MissingExtraError("reading a model from the Hub", "hub") from None
    try:
        return Path(
            hf_hub_download(
                wanted.repository,
                wanted.file,
                revision=wanted.revision,
                etag_timeout=TIMEOUT_S,
            )
        )
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelFileError(
            f"{wanted.repository}: expected {wanted.file} on the Hub, got: {reason}",
            hint="check the address and the connection; set HF_TOKEN for private models",
        ) from error
