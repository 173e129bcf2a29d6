"""A web server in a thread of its own, for a process that has other things to do."""

from __future__ import annotations

import asyncio
import socket
import threading

import uvicorn
from starlette.types import ASGIApp

from stepvad.errors import ConfigError

MAX_MESSAGE = 4096
"""Bytes that a browser may send in one message; it has nothing to say."""
MOST_CONNECTIONS = 256
BACKLOG = 128
STOP_S = 5.0
"""How long open requests may go on when the server stops."""


class Server:
    """A server that runs until it is stopped."""

    def __init__(self, app: ASGIApp, listening: socket.socket) -> None:
        self.host, self.port = listening.getsockname()[:2]
        self._listening = listening
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http="h11",
                ws="websockets-sansio",  # waits for slow readers
                loop="asyncio",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws_max_size=MAX_MESSAGE,
                ws_per_message_deflate=False,  # frames are small, and many
                limit_concurrency=MOST_CONNECTIONS,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=int(STOP_S),
            )
        )
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where a browser on this machine finds it."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    @property
    def is_running(self) -> bool:
        """Whether it still answers."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Answer nobody any more; open requests get a moment."""
        self._server.should_exit = True
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(STOP_S)
        self._listening.close()

    def _run(self) -> None:
        # no signal handlers: those are the main thread's
        asyncio.run(self._server.serve(sockets=[self._listening]))


def serve(app: ASGIApp, host: str, port: int) -> Server:
    """Serve an app from now on; port 0 is any free one."""
    return Server(app, _listen(host, port))


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise _refused(host, port, error) from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise _refused(host, port, error) from None
    return listening


def _refused(host: str, port: int, error: Exception) -> ConfigError:
    reason = error.strerror if isinstance(error, OSError) else None
    return ConfigError(
        f"web: expected to listen on {host} port {port}, got: {reason or error}",
        hint="another program may have it: choose another host or port under [web]",
    )
