"""Clients for applications on asyncio: the same nodes and protocols, on an event loop instead of a reactor.

    from fyrehose_twisted import aio

    async with aio.connect("10.0.0.1:2323") as stream:
        await stream.publish(b"...", kept=1)
        async for message in stream:
            print(message.sequence, message.data)

Nothing here imports or installs Twisted's reactor. Any event loop that can watch sockets will do, also uvloop. What the
library logs goes to the standard library's ``logging``, to the loggers below ``fyrehose_twisted``.
"""

from fyrehose_twisted.aio.clusters import Cluster as Cluster
from fyrehose_twisted.aio.clusters import cluster as cluster
from fyrehose_twisted.aio.journals import journal as journal
from fyrehose_twisted.aio.streams import Stream as Stream
from fyrehose_twisted.aio.streams import connect as connect
