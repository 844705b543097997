"""A server on the loopback interface, for tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext


class Handler(BaseHTTPRequestHandler):
    """Common base: HTTP/1.1, and silent."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def serving(handler: type[Handler], tls: SSLContext | None = None) -> Iterator[str]:
    """Yield the address of a server that answers with `handler`, over `tls` where it is given."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
