"""The process of a site."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from stepvad.site.service import Service
from stepvad.site.settings.file import load
from stepvad.site.settings.sections import SiteSettings
from stepvad.site.stages import set_up
from stepvad.web.app import serve_page


def watch(path: Path) -> int:
    """Run a site until SIGTERM or Ctrl-C; return the exit code."""
    settings = load(path)
    return Service().run(lambda service: _run(service, settings, path))


def watch_demo(data: Path, port: int) -> int:
    """Run a site on the bundled scene until SIGTERM or Ctrl-C; return the exit code."""
    from stepvad.site.intake import demo

    settings = demo.settings(data, port)
    return Service().run(lambda service: _run(service, settings))


def _run(service: Service, settings: SiteSettings, path: Path | None = None) -> list[str]:
    from stepvad.site.app import Site, exclusive_lock
    from stepvad.site.learning.learner import start_process
    from stepvad.site.settings.live import SettingsEditor

    set_up(settings.logs)
    editor = None if path is None else SettingsEditor(path, settings, service.restart)
    with exclusive_lock(settings.data):
        serve = partial(serve_page, editor=editor)
        site = Site(
            settings,
            serve=serve if settings.web.enabled else None,
            rounds=None if path is None else start_process(path),
            reload=service.restart,
        )
        return site.run(service.stop, service.beat)
