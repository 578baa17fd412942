"""A TCP proxy before a Redis that can swallow replies: the request arrives, its sender never hears of it."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class CuttingProxy:
    """Listens on 127.0.0.1; `cut(n)` swallows the next n replies and closes their connections."""

    def __init__(self, socket_path: str):
        self._path = socket_path
        self._left = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        self._open: list[socket.socket] = []

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for one in (self._listener, *self._open):
            _shut(one)
            one.close()
        for thread in self._threads:
            thread.join(5)

    def cut(self, replies: int) -> None:
        with self._lock:
            self._left = replies

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._path)
            self._open += [near, far]
            for pump in (self._requests, self._replies):
                thread = threading.Thread(target=pump, args=(near, far), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _requests(self, near, far):
        self._pump(near, far, far.sendall)

    def _replies(self, near, far):
        def hand_on(chunk):
            with self._lock:
                is_cut = self._left > 0
                self._left -= is_cut
            if is_cut:
                raise ConnectionError
            near.sendall(chunk)

        self._pump(far, near, hand_on)

    @staticmethod
    def _pump(source, other, hand_on):
        with suppress(OSError):  # either side went away: so does the other
            while chunk := source.recv(65536):
                hand_on(chunk)
        for one in (source, other):
            _shut(one)


def _shut(one):
    with suppress(OSError):  # closed already
        one.shutdown(socket.SHUT_RDWR)
