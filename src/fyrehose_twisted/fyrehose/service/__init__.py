"""Sockets and ``twistd`` services of fyrehose backbones and clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fyrehose_twisted._exports import exports

if TYPE_CHECKING:
    from fyrehose_twisted.fyrehose.service.backbone import BackboneService as BackboneService
    from fyrehose_twisted.fyrehose.service.client import ClientService as ClientService
    from fyrehose_twisted.fyrehose.service.connect import DEFAULT_BACKBONE as DEFAULT_BACKBONE
    from fyrehose_twisted.fyrehose.service.connect import DEFAULT_PORT as DEFAULT_PORT
    from fyrehose_twisted.fyrehose.service.connect import DatagramService as DatagramService
    from fyrehose_twisted.fyrehose.service.connect import bind_client as bind_client
    from fyrehose_twisted.fyrehose.service.connect import join as join
    from fyrehose_twisted.fyrehose.service.journal import JournalService as JournalService
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "BackboneService": "backbone",
            "ClientService": "client",
            "DEFAULT_BACKBONE": "connect",
            "DEFAULT_PORT": "connect",
            "DatagramService": "connect",
            "JournalService": "journal",
            "bind_client": "connect",
            "join": "connect",
        },
    )
