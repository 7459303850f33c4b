"""Journals of other machines, over TCP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fyrehose_twisted._exports import exports

if TYPE_CHECKING:
    from fyrehose_twisted.journal.remote.client import RemoteJournal as RemoteJournal
    from fyrehose_twisted.journal.remote.client import RemoteReader as RemoteReader
    from fyrehose_twisted.journal.remote.client import ServedStream as ServedStream
    from fyrehose_twisted.journal.remote.client import connect as connect
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "RemoteJournal": "client",
            "RemoteReader": "client",
            "ServedStream": "client",
            "connect": "client",
        },
    )
