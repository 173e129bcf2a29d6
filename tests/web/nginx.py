"""nginx in front of a page, as the guide sets it up."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.pages import ROOT
from tests.video.servers import wait_until
from tests.web.certificates import Certificate

NGINX = shutil.which(
    "nginx",
    path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"]),
)
NAME = "cameras.example.org"
CONFIG = """
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
{user}
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
{example}
}}
"""


GUIDE = "run-a-site"
SIGN_ON_GUIDE = "who-may-see-what"


def example(guide: str = GUIDE) -> str:
    """The configuration that a guide shows."""
    text = (ROOT / f"docs/guides/{guide}.md").read_text("utf-8")
    (shown,) = re.findall(r"```nginx\n(.*?)```", text, re.DOTALL)
    return str(shown)


@contextmanager
def nginx(
    directory: Path,
    port: int,
    page_port: int,
    certificate: Certificate,
    *,
    guide: str = GUIDE,
    more: Sequence[tuple[str, str]] = (),
) -> Iterator[None]:
    """A guide's proxy with other ports and another certificate, until the block ends."""
    assert NGINX is not None
    shown = example(guide)
    for old, new in (
        *more,
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("http://127.0.0.1:8080", f"http://127.0.0.1:{page_port}"),
        (f"/etc/letsencrypt/live/{NAME}/fullchain.pem", str(certificate.chain)),
        (f"/etc/letsencrypt/live/{NAME}/privkey.pem", str(certificate.key)),
    ):
        assert old in shown
        shown = shown.replace(old, new)
    config = directory / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""
    config.write_text(CONFIG.format(directory=directory, user=user, example=shown))
    log = directory / "error.log"
    process = subprocess.Popen([NGINX, "-p", directory, "-c", config, "-e", log])
    try:
        wait_until(lambda: (directory / "nginx.pid").exists() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.terminate()
        process.wait(20)
