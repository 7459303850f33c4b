"""Options and service of ``twistd fyrehose-client``, which runs a subscriber or publisher."""

from __future__ import annotations

from typing import Any

from twisted.application.service import IService
from twisted.python import usage

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.fyrehose.config import MAX_KEEPALIVE_INTERVAL, ClientConfig, Start
from fyrehose_twisted.fyrehose.protocol.client import ClientProtocol
from fyrehose_twisted.fyrehose.service.client import ClientService
from fyrehose_twisted.fyrehose.service.connect import DEFAULT_BACKBONE
from fyrehose_twisted.fyrehose.service.options import check_stream_name, float_option
from fyrehose_twisted.net.addresses import parse_host_port
from fyrehose_twisted.net.options import ServiceOptions, integer_option, protocol_class
from fyrehose_twisted.process.secret import read_secret


def parse_start(text: str) -> Start | int:
    """Parse a start position: ``live``, ``oldest`` or a number. :raises ValueError: if it is none of these."""
    if text in ("live", "oldest"):
        return Start(text)
    if text.isdecimal():
        return int(text)
    raise ValueError(f"start position {text!r} is not live, oldest or a number")


class Options(ServiceOptions):
    """Command-line options of the client."""

    synopsis = "--protocol dotted.Name [options]"
    longdesc = "Runs your subclass of SubscriberProtocol or PublisherProtocol as a client of a backbone."
    optParameters = [
        ["backbone", "b", DEFAULT_BACKBONE, "HOST:PORT of the backbone"],
        ["protocol", None, None, "dotted name of the class to run"],
        ["name", "n", "default", "name of the stream, fyrehose://NAME, as set at the backbone; for --metrics"],
        ["port", "p", 0, "local UDP port; 0 for any free port", integer_option("port", 0, 65_535)],
        ["from", None, "live", "start position: live, oldest or a number"],
        [
            "keepalive",
            None,
            MAX_KEEPALIVE_INTERVAL,
            "seconds between KEEPALIVEs, 0.1 to 0.9",
            float_option("keepalive"),
        ],
        ["secret-file", None, None, "file with the backbone's secret"],
        ["metrics", None, None, "endpoint to serve Prometheus metrics on, such as tcp:9100 (on loopback)"],
    ]
    optFlags = [
        ["raw", None, "deliver messages as on the wire, with envelopes and repeats"],
        ["no-journal", None, "store no messages for the repairs of other clients"],
    ]

    def postOptions(self) -> None:
        """Check the options and build the configuration."""
        if not self["protocol"]:
            raise usage.UsageError("--protocol NAME is required: the dotted name of the class to run")
        check_stream_name(self["name"])
        try:
            parse_host_port(self["backbone"])
            self["class"] = protocol_class(self["protocol"], ClientProtocol)
            self["config"] = ClientConfig(
                start=parse_start(self["from"]),
                raw=bool(self["raw"]),
                journal=not self["no-journal"],
                keepalive_interval=self["keepalive"],
                secret=read_secret(self["secret-file"]) if self["secret-file"] else None,
            )
        except (FyrehoseError, ValueError) as error:
            raise usage.UsageError(str(error)) from error


def makeService(options: Options) -> IService:
    """Twisted: return the service for ``options``.

    :raises SystemExit: with a message of one line, if the service could not start.
    """
    try:
        service: Any = ClientService(
            options["class"](options["config"]),
            options["backbone"],
            port=options["port"],
            metrics=options["metrics"],
            stream=f"fyrehose://{options['name']}",
        )
    except FyrehoseError as error:
        raise SystemExit(f"fyrehose-client: {error}") from None
    return service  # type: ignore[no-any-return]
