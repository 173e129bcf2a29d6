"""Checks of the settings before a site starts; they connect to nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stepvad.files import secret
from stepvad.site.models import Loaded, Models
from stepvad.site.notify.words import opens_here_only, page_address
from stepvad.site.playback import open_scene
from stepvad.site.settings.page import BROWSERS, server_tls
from stepvad.site.settings.sections import CameraSettings, SiteSettings
from stepvad.site.sinks import target_named
from stepvad.stream import Stream
from stepvad.video.camera import device_of
from stepvad.video.models import model_file
from stepvad.video.source import open_footage
from stepvad.windows.runs import is_resampled, rate_note


def check(settings: SiteSettings) -> Iterator[str]:
    """Yield a line for each check that passes; the first failure raises."""
    # each camera: its model, its source and the way to it
    models = Models()
    for camera in settings.cameras:
        if settings.learns(camera) and not settings.model_of(camera).exists():
            _try(camera)
            yield f"ok: camera {camera.name}: no alerts until the site has learned a first model"
            yield from _link(camera)
            continue
        # the model, the limit and the rate fit together
        model = models.load(settings.model_of(camera))
        rules = model.rules_of(camera)
        Stream(model.detector, fps=camera.rate)
        _try(camera)
        yield f"ok: camera {camera.name}: alerts at scores of {rules.threshold:.3g} or more"
        yield from _rate(camera, model)
        yield from _link(camera)
    if any(camera.has_pictures for camera in settings.cameras):
        for network in (settings.pose.detector, settings.pose.pose):
            yield f"ok: the network {network} is in {model_file(network)}"
    yield from _sinks(settings)
    web = settings.web
    if web.enabled and web.certificate and web.key:
        server_tls(web.certificate, web.key)
        yield f"ok: the page can use the certificate {web.certificate}"


def _sinks(settings: SiteSettings) -> Iterator[str]:
    """Check secrets and the targets of messages to people; connects to nobody."""
    # every reference to a secret leads to one
    sinks, web = settings.sinks, settings.web
    references = [webhook.secret for webhook in sinks.webhooks]
    references += [sinks.mqtt.password if sinks.mqtt else None, web.token]
    references += [to for people in sinks.notify for to in people.to if to != BROWSERS]
    for reference in references:
        if reference is not None:
            secret(reference)
            yield f"ok: there is a secret in {reference}"
    for people in sinks.notify:
        for to in people.to:
            yield f"ok: people {people.name}: {to}: {target_named(to, settings).describe()}"
    link = page_address(web)
    if sinks.notify and opens_here_only(link):
        yield (
            f"warning: messages link to {link}, which opens on this machine only; "
            "set public_url under [web]"
        )


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
