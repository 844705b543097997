"""A server whose answer has no end."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def sending(piece: bytes, pause: float, begin: bytes = b"") -> Iterator[str]:
    """Yield the address of a server that sends a piece again and again as its answer, or as the end of it."""
    server, stop = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def answer() -> None:
        with contextlib.suppress(OSError):
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(begin)
                while not stop.is_set():
                    connection.sendall(piece)
                    stop.wait(pause)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
    finally:
        stop.set()
        server.close()
        thread.join(10)
