"""Checks of the settings before a site starts; they connect to nothing."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from stepvad.errors import ConfigError, MissingExtraError
from stepvad.events.rules import Rules
from stepvad.files import secret
from stepvad.site.models import Loaded, Models
from stepvad.site.notify.words import opens_here_only, page_address
from stepvad.site.playback import open_scene
from stepvad.site.settings.page import is_loopback, server_tls
from stepvad.site.settings.secrets import secret_uses
from stepvad.site.settings.sections import TOKEN, CameraSettings, SiteSettings
from stepvad.site.sinks import target_named
from stepvad.skeletons import COCO17, missing_joints
from stepvad.stream import Stream
from stepvad.video.camera import device_of
from stepvad.video.models import model_file
from stepvad.video.source import open_footage
from stepvad.windows.runs import is_resampled, rate_note


def check(settings: SiteSettings) -> Iterator[str]:
    """Yield a line for each check that passes; the first failure raises."""
    # each camera: its model, its source and the way to it
    models = Models()
    check_method(settings)
    for camera in settings.cameras:
        if settings.learns(camera) and not settings.model_of(camera).exists():
            _try(camera)
            yield f"ok: camera {camera.name}: no alerts until the site has learned a first model"
            yield from _link(camera)
            continue
        model = models.load(settings.model_of(camera))
        rules, waits = check_model(camera, model), model.no_limit(camera)
        _try(camera)
        alerts = f"alerts at scores of {rules.threshold:.3g} or more"
        yield f"ok: camera {camera.name}: {waits or alerts}"
        yield from _rate(camera, model)
        yield from _link(camera)
    if any(camera.has_pictures for camera in settings.cameras):
        for network in (settings.pose.detector, settings.pose.pose):
            yield f"ok: the network {network} is in {model_file(network)}"
    yield from _sinks(settings)
    if settings.web.enabled:
        yield from _page(settings)


def check_method(settings: SiteSettings) -> None:
    """Raise if the site is to learn by a method that is not installed."""
    needs_torch = settings.is_learning and settings.learning.method == "step"
    if needs_torch and find_spec("torch") is None:
        raise MissingExtraError("method step", "train")


def check_model(camera: CameraSettings, model: Loaded) -> Rules:
    """The rules of a camera; raise unless its model fits its joints, its rate and its limit."""
    rules = model.rules_of(camera)
    Stream(model.detector, fps=camera.rate)
    is_played = camera.kind in ("demo", "poses")
    skeleton = open_scene(camera).clip.skeleton if is_played else COCO17
    if missing := missing_joints(skeleton, model.detector.skeleton):
        raise ConfigError(
            f"camera {camera.name}: expected a model of its joints ({skeleton.name}), "
            f"got one that needs {', '.join(missing)[:100]}"
        )
    return rules


def _sinks(settings: SiteSettings) -> Iterator[str]:
    """Check secrets and the targets of messages to people; connects to nobody."""
    # every reference to a secret leads to one
    for reference in dict.fromkeys(use.reference for use in secret_uses(settings)):
        secret(reference)
        yield f"ok: there is a secret in {reference}"
    for people in settings.sinks.notify:
        for to in people.to:
            yield f"ok: people {people.name}: {to}: {target_named(to, settings).describe()}"
    link = page_address(settings.web)
    if settings.sinks.notify and opens_here_only(link):
        yield (
            f"warning: messages link to {link}, which opens on this machine only; "
            "set public_url under [web]"
        )


def _page(settings: SiteSettings) -> Iterator[str]:
    """Say where the page is, and who can read what it sends."""
    web = settings.web
    token = web.token or settings.data / TOKEN
    yield f"ok: the page is at {web.url}/ and asks for the token in {token}"
    if web.certificate and web.key:
        server_tls(web.certificate, web.key)
        yield f"ok: the page can use the certificate {web.certificate}"
    elif not (web.trusted_proxies or is_loopback(web.host)):
        yield "warning: others can reach the page, without TLS: the token can be read on the way"


def _rate(camera: CameraSettings, model: Loaded) -> Iterator[str]:
    """Compare a camera's frame rate with those of its model and calibration."""
    config = model.detector.config
    note = rate_note(config, camera.rate)
    if note is not None:
        is_fine = is_resampled(config, camera.rate)
        yield f"{'ok' if is_fine else 'warning'}: camera {camera.name}: {note}"
    note = model.calibration_note(camera.name, camera.rate, camera.threshold)
    if note is not None:
        yield f"warning: camera {camera.name}: {note}"


def _try(camera: CameraSettings) -> None:
    """Check that a camera's source can be opened; makes no network connections."""
    match camera.kind:
        case "stream":
            camera.address()
        case "video":
            open_footage(Path(camera.url), picture_rate=camera.picture_rate)
        case "device":
            device_of(camera.url).check_readable()
        case "poses" | "demo":
            open_scene(camera)


def _link(camera: CameraSettings) -> Iterator[str]:
    """Report whether a camera's password is protected in transit."""
    if camera.kind != "stream":
        return
    # from the worst way of a password to the best
    address, name = camera.address(), camera.name
    scheme, password = address.scheme, address.has_password
    if camera.tls_insecure:
        got = "get the password" if password else "be accepted"
        yield (
            f"warning: camera {name}: TLS is not verified (tls_insecure): an impostor would {got}; "
            "name its authority or its certificate as tls_ca"
        )
    elif camera.uses_tls:
        address.tls.context()
        yield f"ok: camera {name}: TLS is verified, host name included, by {address.tls.bundle()}"
    elif password:
        yield (
            f"warning: camera {name}: TLS is not used: over {scheme}:// the password travels in "
            f"clear (Basic) or as a hash (Digest); use {scheme}s:// if the camera has it"
        )
    else:
        yield f"ok: camera {name}: TLS is not used, and there is no password to protect"
