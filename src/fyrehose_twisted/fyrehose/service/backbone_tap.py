"""Options and service of ``twistd fyrehose-backbone``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import SystemRandom
from typing import Any

from twisted.application.service import IService
from twisted.python import usage

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.node.backbone.backbone import SETTLE_TIME
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward, RoundRobinForward
from fyrehose_twisted.fyrehose.protocol.backbone import BackboneProtocol
from fyrehose_twisted.fyrehose.protocol.member import MemberProtocol
from fyrehose_twisted.fyrehose.service.backbone import BackboneService, StreamService, StreamsService
from fyrehose_twisted.fyrehose.service.connect import DEFAULT_PORT
from fyrehose_twisted.fyrehose.service.member.config import MemberServiceConfig
from fyrehose_twisted.fyrehose.service.member.options import MemberOptions, member_state_path
from fyrehose_twisted.fyrehose.service.member.service import MemberService
from fyrehose_twisted.fyrehose.service.member.state_file import MemberStateFile, check_member_state
from fyrehose_twisted.fyrehose.service.options import check_stream_name, float_option, require_parent_directory
from fyrehose_twisted.fyrehose.service.serving_options import FORMER_NAMES, LIMITS, ServingOptions, probe_port
from fyrehose_twisted.fyrehose.service.state_file import SequenceFile
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE
from fyrehose_twisted.interfaces import IForwardPolicy
from fyrehose_twisted.net.options import (
    integer_option,
    probe_ports,
    protocol_option,
    require_choice,
    state_option,
)
from fyrehose_twisted.process.sighup import positive_number

MAX_STREAMS = 64
"""Maximum number of streams in one process."""

_NOT_WITH_STREAMS = {
    "name": "default",
    "port": DEFAULT_PORT,
    "start-at": None,
    "multicast": None,
    "systemd": None,
    "member": None,
}
"""Options for a single stream, with their defaults."""


class Options(ServingOptions, MemberOptions):
    """Command-line options of the backbone."""

    aliases = {**FORMER_NAMES, "f": "forward", "s": "state"}
    limits = {**LIMITS, "min-rate": positive_number}
    synopsis = "[options]"
    longdesc = (
        "Assigns a number to every message and sends it to all subscribers. Listens on loopback by default. Any other"
        " interface requires --secret-file, --allow or --open. With --member it belongs to a group of backbones: if one"
        " fails, another one takes over."
    )
    optParameters = [
        ["port", "p", DEFAULT_PORT, "UDP port to listen on", integer_option("port", 0, 65_535)],
        state_option("fyrehose-NAME.state in the current directory"),
        [
            "start-at",
            None,
            None,
            "first number, for a new stream or a lost state file",
            integer_option("start-at", 1, MAX_SEQUENCE),
        ],
        [
            "settle-time",
            None,
            SETTLE_TIME,
            "seconds to wait for clients before the first number is assigned",
            float_option("settle-time"),
        ],
        ["forward", None, "random", "choice among clients equally likely to hold a message: random or round-robin"],
        [
            "min-rate",
            None,
            1_024,
            "KiB/s always granted to publishers, however far repairs lag; 0 never throttles publishers",
            integer_option("min-rate", 0, 2**30),
        ],
        protocol_option("BackboneProtocol"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self["streams"] = {}

    def opt_stream(self, text: str) -> None:
        """NAME:PORT of one of several streams in this process (repeatable), instead of --name and --port; --state is
        then the directory of their state files"""
        name, _, port = text.rpartition(":")
        if not (port.isascii() and port.isdecimal() and int(port) <= 65_535):
            raise usage.UsageError(f"--stream {text!r} is not NAME:PORT")
        check_stream_name(name, "stream")
        if name in self["streams"]:
            raise usage.UsageError(f"--stream {name} is given twice")
        if int(port) and int(port) in self["streams"].values():
            raise usage.UsageError(f"--stream {text}: another stream has this port")
        if len(self["streams"]) == MAX_STREAMS:
            raise usage.UsageError(f"--stream is given more than {MAX_STREAMS} times; start another backbone")
        self["streams"][name] = int(port)

    def _check(self) -> None:
        if self["streams"]:
            self._check_streams()
            return
        self._check_choices()
        self.check_name()
        self["state"] = self["state"] or f"fyrehose-{self['name']}.state"
        self["state"] = self.absolute_path("state")
        require_parent_directory(self["state"])
        interface = self.check_serving()
        self["group-member"] = self.parse_member((interface, self["port"]), self["secret"])
        self.load_protocol(BackboneProtocol if self["group-member"] is None else MemberProtocol)

    def _check_streams(self) -> None:
        for option, default in _NOT_WITH_STREAMS.items():
            if self[option] != default:
                raise usage.UsageError(f"--{option} does not apply with --stream: it is for one stream")
        self._check_choices()
        self["state"] = self.absolute_path("state") or Path(self.parent["rundir"] if self.parent else ".").absolute()
        if not self["state"].is_dir():
            raise usage.UsageError(f"--state {self['state']} is not a directory, as --stream requires")
        interface = self.check_serving()
        self.parse_member((interface, DEFAULT_PORT), self["secret"])  # Refuses what only a member has.
        self.load_protocol(BackboneProtocol)

    def _check_choices(self) -> None:
        require_choice("forward", self["forward"], "random", "round-robin")
        if not 0 <= self["settle-time"] <= 60:
            raise usage.UsageError(f"--settle-time {self['settle-time']}: choose 0 to 60 s")

    def read_config(self) -> BackboneConfig:
        """See :meth:`~fyrehose_twisted.fyrehose.service.serving_options.ServingOptions.read_config`."""
        rate = self.read_limits().get("min-rate", self["min-rate"])
        return replace(super().read_config(), min_rate=rate * 2**10 or None)


def makeService(options: Options) -> IService:
    """Twisted: return the service for ``options``.

    :raises SystemExit: with a message of one line, if the service could not start.
    """
    if options["streams"]:
        return _make_streams(options)
    stream = options.stream
    path: Path = options["state"]
    member: MemberServiceConfig | None = options["group-member"]

    def open_state() -> SequenceFile:
        return SequenceFile(path, stream, start_at=options["start-at"])

    try:
        # Report errors now, in one line, while twistd still has the terminal.
        if options["inherited"] is None:
            probe_port("fyrehose-backbone", options["interface"], options["port"])
        if path.exists():
            SequenceFile.check(path, stream, start_at=options["start-at"])
        else:
            _probe_directory(path)
        service: Any
        rest: dict[str, Any] = {
            "metrics": options["metrics"],
            "open_to_all": bool(options["open"]),
            "multicast": options["multicast-sending"],
            "read_config": options.read_config if options["limits"] else None,
            "inherited": options["inherited"],
        }
        place = options["port"], options["interface"]
        if member is None:
            protocol = options["class"](options["config"], _policy(options), settle_time=options["settle-time"])
            service = BackboneService(protocol, open_state, *place, **rest)
        else:
            service = _make_member(options, member, open_state, place, rest)
    except FyrehoseError as error:
        raise SystemExit(f"fyrehose-backbone: {error}") from None
    return service  # type: ignore[no-any-return]


def _make_member(
    options: Options,
    member: MemberServiceConfig,
    open_state: Callable[[], SequenceFile],
    place: tuple[int, str],
    rest: dict[str, Any],
) -> MemberService:
    path = member_state_path(options["state"])
    probe_ports([("peer-listen", member.endpoint), ("control", member.control_endpoint)])
    check_member_state(path, options.stream, member.name)
    protocol = options["class"](config=options["config"], policy=_policy(options), settle_time=options["settle-time"])
    return MemberService(
        protocol,
        member,
        open_state,
        lambda: MemberStateFile(path, options.stream, member.name),
        *place,
        stream=options.stream,
        **rest,
    )


def _make_streams(options: Options) -> IService:
    services: dict[str, StreamService] = {}
    try:
        for name, port in options["streams"].items():
            services[name] = _make_stream(options, name, port)
        return StreamsService(services, metrics=options["metrics"])
    except FyrehoseError as error:
        raise SystemExit(f"fyrehose-backbone: {error}") from None


def _make_stream(options: Options, name: str, port: int) -> StreamService:
    stream = f"fyrehose://{name}"
    path: Path = options["state"] / f"fyrehose-{name}.state"

    def read_config() -> BackboneConfig:
        return replace(options.read_config(), stream=stream)

    probe_port("fyrehose-backbone", options["interface"], port)
    if path.exists():
        SequenceFile.check(path, stream)
    else:
        _probe_directory(path)
    return StreamService(
        stream,
        options["class"](read_config(), _policy(options), settle_time=options["settle-time"]),
        lambda: SequenceFile(path, stream),
        port,
        options["interface"],
        open_to_all=bool(options["open"]),
        read_config=read_config if options["limits"] else None,
    )


def _policy(options: Options) -> IForwardPolicy:
    return RoundRobinForward() if options["forward"] == "round-robin" else RandomForward(SystemRandom())


def _probe_directory(path: Path) -> None:
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise SystemExit(f"fyrehose-backbone: state file {path} cannot be created: {error.strerror}") from None
