"""The process of a site."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from stepvad.services.page import serve_page
from stepvad.services.process import Service
from stepvad.settings.file import load
from stepvad.settings.sections import SiteSettings
from stepvad.supervision.logs import set_up


def watch(path: Path) -> int:
    """Run a site until SIGTERM or Ctrl-C; return the exit code."""
    settings = load(path)
    return Service().run(lambda service: _run(service, settings, path))


def watch_demo(data: Path, port: int) -> int:
    """Run a site on the bundled scene until SIGTERM or Ctrl-C; return the exit code."""
    from stepvad.intake import demo

    settings = demo.settings(data, port)
    return Service().run(lambda service: _run(service, settings))


def _run(service: Service, settings: SiteSettings, path: Path | None = None) -> list[str]:
    from stepvad.site.app import Site, alone
    from stepvad.site.editor import SettingsEditor
    from stepvad.site.learning.learner import start_process

    set_up(settings.logs)
    editor = None if path is None else SettingsEditor(path, settings, service.restart)
    with alone(settings.data):
        serve = partial(serve_page, editor=editor)
        site = Site(
            settings,
            serve=serve if settings.web.enabled else None,
            rounds=None if path is None else start_process(path),
            reload=service.restart,
        )
        return site.run(service.stop, service.beat)
