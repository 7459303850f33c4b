"""Real IRC servers, and clients that share no code with the package."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from integration.running.programs import DEADLINE, Program, Start, wait_until

NGIRCD = """
[Global]
Name=irc.test
Info=t
Listen=127.0.0.1
Ports={port}
[Limits]
MaxConnectionsIP=0
MaxJoins=0
MaxNickLength=30
MaxPenaltyTime=0
PingTimeout=600
PongTimeout=600
[Options]
DNS=no
Ident=no
PAM=no
[Operator]
Name=root
Password=secret
"""


NGIRCD_TLS = """
[SSL]
CertFile={certificate}
KeyFile={key}
Ports={tls_port}
"""


INSPIRCD = """
<config format="xml">
<server name="irc.test" description="t" network="T" id="0AA">
<admin name="t" nick="t" email="t@example.invalid">
<bind address="127.0.0.1" port="{port}" type="clients">
<connect name="all" allow="*" pingfreq="600" localmax="1000" globalmax="1000" commandrate="100000" fakelag="no"
 threshold="1000000" resolvehostnames="no" useident="no" hardsendq="8388608" softsendq="4194304" recvq="8388608">
<performance netbuffersize="65534">
<class name="all" commands="*" privs="*" usermodes="*" chanmodes="*">
<type name="all" classes="all">
<oper name="root" password="secret" host="*@*" type="all">
<module name="cap">
<module name="namesx">
"""


HYBRID = """
serverinfo { name = "irc.test"; sid = "0HY"; description = "t"; network_name = "T"; hub = no; };
class { name = "u"; ping_time = 10 minutes; number_per_ip_local = 1000; number_per_ip_global = 1000;
 max_number = 1000; sendq = 1 megabyte; recvq = 8000 bytes; };
listen { host = "127.0.0.1"; port = {port}; };
auth { user = "*@*"; class = "u"; flags = exceed_limit, can_flood, no_tilde; };
operator { name = "root"; user = "*@*"; password = "secret"; encrypted = no; class = "u"; flags = kill; };
general { throttle_count = 1000; disable_auth = yes; anti_nick_flood = no; };
log { use_logging = no; };
"""


HELD_BACK = {
    "ngircd": ("MaxPenaltyTime=0\n",),
    "inspircd": (' commandrate="100000" fakelag="no"', 'threshold="1000000"'),
    "ircd-hybrid": (", can_flood",),
}
"""Settings of the configurations above that disable throttling."""


class Ircd:
    """A real IRC server on loopback; its operator is ``root`` with the password ``secret``.

    :param holds_back: read from clients as slowly as it does by default, and not as fast as it can.
    :ivar kind: ``ngircd``, ``inspircd`` or ``ircd-hybrid``.
    :ivar tls_port: where it speaks TLS, if it was given a certificate.
    """

    def __init__(
        self,
        start: Start,
        kind: str,
        path: str | Path,
        ports: tuple[int, int],
        root: Path,
        certificate: tuple[Path, Path] | None,
        *,
        holds_back: bool,
    ) -> None:
        self._start = start
        self._path = str(path)
        self._root = root
        self.kind = kind
        self.port, self.tls_port = ports
        self.address = f"127.0.0.1:{self.port}"
        text = {"ngircd": NGIRCD, "inspircd": INSPIRCD, "ircd-hybrid": HYBRID}[kind].replace("{port}", str(self.port))
        for words in HELD_BACK[kind] if holds_back else ():
            assert words in text
            text = text.replace(words, "")
        if certificate is not None:
            text += NGIRCD_TLS.format(certificate=certificate[0], key=certificate[1], tls_port=self.tls_port)
        self.config = root / "config"
        self.config.write_text(text.lstrip())
        self.config.chmod(0o644)  # Independent of the umask, since ircd-hybrid reads it as another user.
        self.program: Program

    def start(self) -> Ircd:
        """Start or restart it, and wait until it listens."""
        options: dict[str, Any] = {"cwd": self._root}
        match self.kind:
            case "ngircd":
                command = ["-n", "-f", self.config]
            case "inspircd":
                command = ["--nofork", "--nolog", "--nopid", f"--config={self.config}"]
                command += ["--runasroot"] if os.geteuid() == 0 else []
            case _:
                files = ("pidfile", "logfile", "klinefile", "dlinefile", "xlinefile", "resvfile")
                command = ["-foreground", "-configfile", self.config]
                command += [part for file in files for part in (f"-{file}", self._root / file)]
                options |= {"user": "nobody"} if os.geteuid() == 0 else {}  # It refuses to run as root.
        self.program = self._start(self._path, *command, of_ours=False, **options)
        wait_until(self._listens, lambda: f"{self.kind} does not listen: {self.program}")
        return self

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.program.destroy()

    def _listens(self) -> bool:
        assert self.program.process.poll() is None, self.program
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), DEADLINE):
            return True
        return False


class IrcStranger:
    """IRC client that shares no code with the package: a socket and a reader thread.

    :ivar lines: received lines, without CR LF.
    """

    def __init__(self, port: int, nick: str, channel: str = "") -> None:
        self._changed = threading.Condition()
        self.lines: list[bytes] = []
        self.nick = nick
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        self.say(f"NICK {nick}", f"USER {nick} 0 * :{nick}")
        self.wait_for(rb" (376|422) ")
        if channel:
            self.say(f"JOIN {channel}")
            self.wait_for(rb" 366 ")

    def say(self, *lines: str | bytes) -> None:
        """Send lines."""
        self.socket.sendall(b"".join((x.encode() if isinstance(x, str) else x) + b"\r\n" for x in lines))

    def matching(self, pattern: bytes) -> list[bytes]:
        """Return the lines that match ``pattern``."""
        return [line for line in tuple(self.lines) if re.search(pattern, line)]

    def wait_for(self, pattern: bytes, times: int = 1) -> list[bytes]:
        """Return the lines that match ``pattern`` once there are ``times``."""
        with self._changed:
            found = self._changed.wait_for(lambda: len(self.matching(pattern)) >= times, DEADLINE)
            last = [line[:100] for line in self.lines[-20:]]
            assert found, f"{self.nick}: {len(self.matching(pattern))} of {times} {pattern!r}: {last}"
        return self.matching(pattern)

    def close(self) -> None:
        """Disconnect without QUIT."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(DEADLINE)
        self.socket.close()

    def _read(self) -> None:
        rest = b""
        with suppress(OSError):
            while data := self.socket.recv(65_536):
                *lines, rest = (rest + data).split(b"\r\n")
                for line in lines:
                    if line.startswith(b"PING "):
                        self.say(b"PONG " + line[5:])
                with self._changed:
                    self.lines += lines
                    self._changed.notify_all()


StartIrcd = Callable[..., Ircd]
JoinIrc = Callable[..., IrcStranger]
