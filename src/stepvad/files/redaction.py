"""Redaction of credentials in addresses and requests."""

from __future__ import annotations

import re

HIDDEN = "***"
SECRET_NAME = "pass|pwd|token|secret|auth|key|sig|credential"
_USERINFO = re.compile(r"(?<=://)[^\s'\"<>]*@")
_QUERY = re.compile(rf"([?&;][^=&\s]*(?:{SECRET_NAME})[^=&\s]*=)[^&\s'\"<>]*", re.IGNORECASE)
_HEADER = re.compile(r"(authorization\s*[:=]\s*)[^\r\n]*", re.IGNORECASE)


def redact(text: str) -> str:
    """Return the text with the credentials of every address and request hidden."""
    text = _USERINFO.sub(f"{HIDDEN}@", text)
    text = _QUERY.sub(rf"\g<1>{HIDDEN}", text)
    return _HEADER.sub(rf"\g<1>{HIDDEN}", text)
