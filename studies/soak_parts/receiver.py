"""A receiver of webhooks that can go away and come back at the same address."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.video.servers import free_port


class Receiver:
    """Counts what is posted to it: the ids of events by kind."""

    def __init__(self) -> None:
        self.port = free_port()
        self.n_messages = 0
        self.ids: dict[str, set[str]] = {"new": set(), "update": set(), "end": set()}
        self._server: ThreadingHTTPServer | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/events"

    def start(self) -> None:
        receiver = self

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.ids[body["type"].rpartition(".")[2]].add(body["subject"])
                receiver.n_messages += 1
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Answer)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
