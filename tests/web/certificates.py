"""A certificate for a name, made by a certificate authority of this test."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate chain and its key."""

    chain: Path
    key: Path


def make_certificate(directory: Path, *names: str) -> Certificate:
    """A certificate for these names, signed by itself."""
    made = Certificate(directory / "chain.pem", directory / "key.pem")
    subjects = ",".join(f"IP:{name}" if name[0].isdigit() else f"DNS:{name}" for name in names)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", f"/CN={names[0]}", "-addext",
         f"subjectAltName={subjects}", "-keyout", made.key, "-out", made.chain],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return made
