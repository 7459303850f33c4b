"""Options and service of ``twistd fyrehose-relay``."""

from __future__ import annotations

from random import SystemRandom
from typing import Any

from twisted.application.service import IService

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward
from fyrehose_twisted.fyrehose.protocol.relay import RelayProtocol
from fyrehose_twisted.fyrehose.service.options import BackboneOptions
from fyrehose_twisted.fyrehose.service.relay import RelayService
from fyrehose_twisted.fyrehose.service.serving_options import FORMER_NAMES, ServingOptions, probe_port
from fyrehose_twisted.net.options import integer_option, protocol_option
from fyrehose_twisted.process.secret import read_secret

DEFAULT_RELAY_PORT = 2324


class Options(ServingOptions, BackboneOptions):
    """Command-line options of the relay."""

    aliases = FORMER_NAMES
    default_port = DEFAULT_RELAY_PORT
    synopsis = "--backbone HOST:PORT [options]"
    longdesc = (
        "Follows the stream of a backbone, or of another relay, and serves it to clients of its own under the same"
        " numbers. Given several with --backbone, it follows one of them, and another one if that one falls silent."
        " Listens on loopback by default. Any other interface requires --secret-file, --allow or --open."
    )
    optParameters = [
        ["port", "p", DEFAULT_RELAY_PORT, "UDP port to listen on", integer_option("port", 0, 65_535)],
        ["backbone-secret-file", None, None, "file with the secret of the backbone [default: that of --secret-file]"],
        protocol_option("RelayProtocol"),
    ]
    optFlags = [
        ["backbone-multicast", None, "listen to the multicast group of the backbone, if it has one"],
        ["answer-repairs", None, "let no client send repairs to another one, such as behind address translation"],
    ]

    def _check(self) -> None:
        self.check_serving()
        self.check_backbone()
        secret = read_secret(self["backbone-secret-file"]) if self["backbone-secret-file"] else self["secret"]
        self["client-config"] = ClientConfig(
            secret=secret, mac=self.mac_policy, multicast=bool(self["backbone-multicast"])
        )
        self.load_protocol(RelayProtocol)


def makeService(options: Options) -> IService:
    """Twisted: return the service for ``options``.

    :raises SystemExit: with a message of one line, if the service could not start.
    """
    try:
        if options["inherited"] is None:
            probe_port("fyrehose-relay", options["interface"], options["port"])
        protocol = options["class"](
            options["config"],
            options["client-config"],
            RandomForward(SystemRandom()),
            answer_repairs=bool(options["answer-repairs"]),
        )
        service: Any = RelayService(
            protocol,
            options["backbone"],
            options["port"],
            options["interface"],
            stream=options.stream,
            metrics=options["metrics"],
            open_to_all=bool(options["open"]),
            multicast=options["multicast-sending"],
            read_config=options.read_config if options["limits"] else None,
            inherited=options["inherited"],
        )
    except FyrehoseError as error:
        raise SystemExit(f"fyrehose-relay: {error}") from None
    return service  # type: ignore[no-any-return]
