"""tshark with the project's dissectors, and the fields that it finds."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import fyrehose_twisted.cli.wireshark

PLUGIN = Path(fyrehose_twisted.cli.wireshark.__file__).with_name("fyrehose.lua")
LAYERS = ("fyrehose", "hydra", "hydra_udp", "freenet", "parcels")

Fields = dict[str, list[str]]


class Tshark:
    """Runs of tshark with an empty configuration.

    :param program: path of tshark.
    :param home: directory for its configuration.
    """

    def __init__(self, program: Path, home: Path) -> None:
        self._program = program
        self._home = home

    def run(self, capture: Path, *options: str, plugin: Path | None = PLUGIN) -> str:
        """Return the output for a capture. Nothing but that may be written, such as errors of Lua.

        :raises RuntimeError: if it fails or complains.
        """
        loaded = () if plugin is None else ("-X", f"lua_script:{plugin}")
        command = (str(self._program), *loaded, "-n", "-r", str(capture), *options)
        environment = {"HOME": str(self._home), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
        ran = subprocess.run(command, capture_output=True, timeout=300, env=environment)
        complaints = [
            line for line in ran.stderr.decode(errors="replace").splitlines() if "Running as user" not in line
        ]
        if ran.returncode or complaints:
            raise RuntimeError(f"tshark: {ran.returncode} {complaints}")
        return ran.stdout.decode(errors="replace")

    def packets(self, capture: Path, *options: str) -> list[Fields]:
        """Return the fields of our protocols, and ip.src, of each frame with one of them, by name."""
        # tshark also reads the datagram that an ICMP message about a closed port repeats.
        wanted = f"!icmp && ({' || '.join(LAYERS)})"
        output = self.run(capture, "-Y", wanted, "-T", "json", "--no-duplicate-keys", *options)
        found = []
        for packet in json.loads(output):
            fields: Fields = defaultdict(list)
            for name, layer in packet["_source"]["layers"].items():
                if name.split(".")[0] in LAYERS:
                    _collect(name, layer, fields)
                elif name == "ip":
                    fields["ip.src"] = [layer["ip.src"]]
            found.append(dict(fields))
        return found


def _collect(name: str, value: Any, fields: Fields) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _collect(key, inner, fields)
    elif isinstance(value, list):
        for inner in value:
            _collect(name, inner, fields)
    else:
        fields[name].append(value)
