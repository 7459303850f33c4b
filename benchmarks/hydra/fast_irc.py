"""IRC server for one client, which only sends it lines, or counts the lines that it says.

Commands come on standard input, one a line: ``give FIRST COUNT``, and ``said``, which is answered with the number of
PRIVMSGs and the monotonic time of the last one.
"""

from __future__ import annotations

import queue
import socket
import sys
import threading
import time

PREFIX = b":talker!talker@host.example PRIVMSG #hydra :"


def line(number: int, size: int) -> bytes:
    """Return a line from IRC of about ``size`` bytes."""
    return PREFIX + (b"%d " % number).ljust(size - len(PREFIX) - 2, b"x") + b"\r\n"


class Server:
    """Serves the latest client."""

    def __init__(self, port: int, size: int) -> None:
        self._size = size
        self._listener = socket.create_server(("127.0.0.1", port))
        self.said = 0
        self.last = 0.0
        self.wanted: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self._client: socket.socket | None = None

    def run(self) -> None:
        """Serve forever."""
        while True:
            client, _ = self._listener.accept()
            self._client = client
            self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        rest, nick = b"", b"bot"
        while data := client.recv(1 << 18):
            *lines, rest = (rest + data).split(b"\n")
            said = sum(one.startswith(b"PRIVMSG ") for one in lines)
            if said:
                self.said += said
                self.last = time.monotonic()
                if said == len(lines):
                    continue
            for words in (one.split() for one in lines):
                match words:
                    case [b"NICK", name]:
                        nick = name
                    case [b"USER", *_]:
                        numerics = b":s 001 %s :hello\r\n:s 422 %s :no motd\r\n" % (nick, nick)
                        client.sendall(numerics)
                    case [b"JOIN", name, *_]:
                        client.sendall(b":%s!b@h JOIN %s\r\n:s 366 %s %s :end\r\n" % (nick, name, nick, name))
                    case [b"PING", *words]:
                        client.sendall(b":s PONG s %s\r\n" % b" ".join(words))

    def give(self) -> None:
        """Send requested lines, forever, as fast as the client reads."""
        while True:
            first, count = self.wanted.get()
            assert self._client is not None, "somebody is there"
            for begin in range(first, first + count, 1_000):
                end = min(begin + 1_000, first + count)
                self._client.sendall(b"".join(line(number, self._size) for number in range(begin, end)))


def main() -> None:
    """Serve until standard input ends."""
    server = Server(int(sys.argv[1]), int(sys.argv[2]))
    for work in (server.run, server.give):
        threading.Thread(target=work, daemon=True).start()
    for command in sys.stdin:
        match command.split():
            case ["give", first, count]:
                server.wanted.put((int(first), int(count)))
            case ["said"]:
                print(server.said, server.last, flush=True)


if __name__ == "__main__":
    main()
