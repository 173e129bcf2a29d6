"""Web Push encryption against the example of its standard, and its signature."""

from __future__ import annotations

import json

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from stepvad.errors import DataError
from stepvad.site.notifications.push_encryption import (
    MOST_PLAIN,
    BrowserKeys,
    authorization,
    encrypt,
    from_base64,
    new_key,
    public_point,
    read_key,
    to_base64,
)
from tests.site.notifications.pushes import Browser, unpadded

# RFC 8291, appendix A
PLAIN = b"When I grow up, I want to be a watermelon"
BROWSER_KEY = (
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
)
AUTH = "BTBZMqHH6r4Tts7J_aSIgg"
OWN = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
SALT = "DGv6ra1nlYgDCS1FRnbzlw"
SENT = (
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6T"
    "lzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4"
    "a-fN"
)


def test_the_example_of_the_standard() -> None:
    own = ec.derive_private_key(int.from_bytes(unpadded(OWN), "big"), ec.SECP256R1())
    sent = encrypt(PLAIN, BrowserKeys.of(BROWSER_KEY, AUTH), salt=unpadded(SALT), own=own)
    assert to_base64(sent) == SENT


def test_a_browser_reads_it_and_no_other_can() -> None:
    browser, other = Browser(), Browser()
    keys = BrowserKeys.of(browser.p256dh, browser.auth)
    one, two = encrypt(PLAIN, keys), encrypt(PLAIN, keys)
    assert browser.read(one) == browser.read(two) == PLAIN
    assert one != two
    with pytest.raises(InvalidTag):
        other.read(one)


def test_the_longest_message_fits_into_one_record() -> None:
    browser = Browser()
    keys = BrowserKeys.of(browser.p256dh, browser.auth)
    sent = encrypt(b"x" * MOST_PLAIN, keys)
    assert len(sent) == 4096
    assert browser.read(sent) == b"x" * MOST_PLAIN
    with pytest.raises(DataError, match="at most 3993 bytes, got 3994"):
        encrypt(b"x" * (MOST_PLAIN + 1), keys)


@pytest.mark.parametrize(
    ("p256dh", "auth"),
    [("", AUTH), (BROWSER_KEY, "AAAA"), (BROWSER_KEY, "ö"), (to_base64(b"\4" + b"x" * 64), AUTH)],
)
def test_keys_that_are_none_are_refused(p256dh: str, auth: str) -> None:
    with pytest.raises(DataError, match="subscription: expected"):
        BrowserKeys.of(p256dh, auth)


def test_the_signature_names_the_service_and_the_site_and_holds() -> None:
    key = read_key(new_key())
    header = authorization("https://push.example:444/send/x", key, 1000.0, "https://mill.example")
    token, _, public = header.removeprefix("vapid t=").partition(", k=")
    assert from_base64(public, 65) == public_point(key)
    signed, _, signature = token.rpartition(".")
    head, claims = (json.loads(unpadded(part)) for part in signed.split("."))
    assert head == {"typ": "JWT", "alg": "ES256"}
    assert claims == {
        "aud": "https://push.example:444",
        "exp": 1000 + 12 * 3600,
        "sub": "https://mill.example",
    }
    raw = unpadded(signature)
    r, s = (int.from_bytes(half, "big") for half in (raw[:32], raw[32:]))
    key.public_key().verify(encode_dss_signature(r, s), signed.encode(), ec.ECDSA(SHA256()))
    assert "sub" not in json.loads(
        unpadded(authorization("https://a.b/c", key, 0, "")[8:].split(".")[1])
    )


def test_a_key_of_another_kind_is_refused() -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    other = ec.generate_private_key(ec.SECP384R1())
    pem = other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for wrong in (pem, b"nothing"):
        with pytest.raises(ValueError, match=r"P-256|PEM"):
            read_key(wrong)
