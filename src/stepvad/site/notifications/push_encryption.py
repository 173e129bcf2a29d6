"""Web Push: a message that one browser can read (RFC 8291), signed by one site (RFC 8292)."""

from __future__ import annotations

import base64
import json
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from stepvad.errors import DataError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

RECORD_SIZE = 4096
MOST_PLAIN = 3993
"""Longest text that fits into the one record that push services must take."""
POINT_BYTES, AUTH_BYTES, SALT_BYTES = 65, 16, 16
TOKEN_S = 12 * 3600
"""How long a signature is valid; services accept a day at most."""


def to_base64(raw: bytes) -> str:
    """URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def from_base64(text: str, size: int) -> bytes:
    """Decode URL-safe base64 of a value of this many bytes."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raw = b""
    if len(raw) != size:
        raise DataError(f"subscription: expected {size} bytes in base64, got something else")
    return raw


@dataclass(frozen=True, slots=True)
class BrowserKeys:
    """What a browser gives away so that messages to it can be encrypted."""

    p256dh: bytes
    """Its public key, an uncompressed point on P-256."""
    auth: bytes
    """A secret that it shares with this site."""

    @classmethod
    def of(cls, p256dh: str, auth: str) -> BrowserKeys:
        """Decode and check the keys of a subscription."""
        from cryptography.hazmat.primitives.asymmetric import ec

        point = from_base64(p256dh, POINT_BYTES)
        try:
            ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
        except ValueError:
            raise DataError("subscription: expected a point on P-256, got something else") from None
        return cls(point, from_base64(auth, AUTH_BYTES))


def encrypt(
    plain: bytes,
    keys: BrowserKeys,
    *,
    salt: bytes | None = None,
    own: EllipticCurvePrivateKey | None = None,
) -> bytes:
    """One aes128gcm record; `salt` and the sender's own key are random unless a test gives them."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if len(plain) > MOST_PLAIN:
        raise DataError(f"push message: expected at most {MOST_PLAIN} bytes, got {len(plain)}")
    salt = os.urandom(SALT_BYTES) if salt is None else salt
    own = ec.generate_private_key(ec.SECP256R1()) if own is None else own
    theirs = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), keys.p256dh)
    own_point = public_point(own)
    # RFC 8291, 3.4: both public keys are part of the keying material
    shared = own.exchange(ec.ECDH(), theirs)
    info = b"WebPush: info\0" + keys.p256dh + own_point
    material = _derive(shared, salt=keys.auth, info=info, length=32)
    key = _derive(material, salt=salt, info=b"Content-Encoding: aes128gcm\0", length=16)
    nonce = _derive(material, salt=salt, info=b"Content-Encoding: nonce\0", length=12)
    header = salt + struct.pack("!IB", RECORD_SIZE, len(own_point)) + own_point
    return header + AESGCM(key).encrypt(nonce, plain + b"\x02", None)  # 2 ends the last record


def authorization(endpoint: str, key: EllipticCurvePrivateKey, now: float, contact: str) -> str:
    """The header that proves to a push service which site sends."""
    parts = urlsplit(endpoint)
    claims = {"aud": f"{parts.scheme}://{parts.netloc}", "exp": int(now) + TOKEN_S}
    if contact:
        claims["sub"] = contact
    head = {"typ": "JWT", "alg": "ES256"}
    signed = ".".join(to_base64(json.dumps(one).encode()) for one in (head, claims))
    token = f"{signed}.{to_base64(_signature(key, signed.encode()))}"
    return f"vapid t={token}, k={to_base64(public_point(key))}"


def public_point(key: EllipticCurvePrivateKey) -> bytes:
    """The public key as an uncompressed point."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def new_key() -> bytes:
    """A new private key as PEM."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def read_key(pem: bytes) -> EllipticCurvePrivateKey:
    """Parse a private key on P-256; raise `ValueError` for anything else."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, None)
    except ValueError:  # its words differ from version to version
        raise ValueError("not a private key in PEM") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("not a key on P-256")
    return key


def _derive(secret: bytes, *, salt: bytes, info: bytes, length: int) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), length, salt, info).derive(secret)


def _signature(key: EllipticCurvePrivateKey, signed: bytes) -> bytes:
    """ECDSA as JSON Web Signatures want it: r and s, 32 bytes each."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256

    r, s = decode_dss_signature(key.sign(signed, ec.ECDSA(SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")
