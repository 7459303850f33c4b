"""Options and service of ``twistd fyrehose-client``, which runs a subscriber or publisher."""

from __future__ import annotations

from typing import Any

from twisted.application.service import IService
from twisted.python import usage

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.protocol.client import ClientProtocol
from fyrehose_twisted.fyrehose.service.client import ClientService
from fyrehose_twisted.fyrehose.service.options import SealOptions, SubscriberOptions, parse_start, start_option
from fyrehose_twisted.net.options import protocol_option


class Options(SubscriberOptions, SealOptions):
    """Command-line options of the client."""

    synopsis = "--protocol dotted.Name [options]"
    longdesc = "Runs your subclass of SubscriberProtocol or PublisherProtocol as a client of a backbone."
    optParameters = [
        start_option("live"),
        protocol_option("SubscriberProtocol or PublisherProtocol"),
    ]
    optFlags = [
        ["raw", None, "deliver messages as on the wire, with envelopes and repeats"],
        ["allow-plain", None, "with --seal-key-file, deliver messages that are not sealed, too"],
        ["no-journal", None, "store no messages for the repairs of other clients"],
    ]

    def _check(self) -> None:
        if not self["protocol"]:
            raise usage.UsageError("--protocol NAME is required: the dotted name of the class to run")
        self.check_name()
        self.check_backbone()
        self.load_protocol(ClientProtocol)
        self["keys"] = self.read_keys(allow_plain=bool(self["allow-plain"]))
        if self["keys"] is not None and self["raw"]:
            raise usage.UsageError("--raw delivers messages as on the wire, sealed; omit it or --seal-key-file")
        self["config"] = ClientConfig(
            start=parse_start(self["from"]),
            raw=bool(self["raw"]),
            journal=not self["no-journal"],
            keepalive_interval=self["keepalive"],
            multicast=bool(self["multicast"]),
            secret=self.read_secret(),
            mac=self.mac_policy,
        )


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
            stream=options.stream,
            keys=options["keys"],
        )
    except FyrehoseError as error:
        raise SystemExit(f"fyrehose-client: {error}") from None
    return service  # type: ignore[no-any-return]
