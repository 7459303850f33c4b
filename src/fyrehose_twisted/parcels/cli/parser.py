"""``fyrehose parcels``: publish to a cluster, follow its events, and operate it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from fyrehose_twisted.process.arguments import hide_letter, parse_count, parse_positive

# Clients are imported on demand, because `fyrehose --help` imports this module.
if TYPE_CHECKING:
    from fyrehose_twisted.parcels.client.http_client import ParcelsClient

DESCRIPTION = "Publish to a cluster of parcels nodes, follow its events, and operate it."

NODE = "127.0.0.1:7878"
"""The same as :data:`fyrehose_twisted.parcels.service.config.DEFAULT_LISTEN`."""
HTTP = "http://127.0.0.1:8878"
MAX_WAITING = 10_000
"""Maximum number of events that wait to be published over HTTP."""

REFORM = (
    "Force a new cluster after its quorum is lost for good. The last resort: the chosen node continues alone with its"
    " events, and all others have to join as new members. Choose the node with the most events. Events that only other"
    " nodes had are lost, even if acknowledged, and their numbers are assigned again."
)

TRANSFER = (
    "Let another member order the events, such as before the leader is restarted. Events wait for a moment; none is"
    " lost. Pass the URLs of all nodes, so that the leader is among them."
)

REMOVE = (
    "Remove a member from the cluster. It leaves and stops if it can be reached; otherwise the others go on without it"
    " at once. Pass the URLs of all nodes, so that the leader is among them."
)
BACKUP = (
    "Write a backup of a cluster to a file. It has the events that the node holds, the numbers and idempotency keys"
    " that the cluster remembers, and the application's state, if the node has one."
)
RESTORE = (
    "Write the files of a node that begins a new cluster from a backup. Numbers continue after the last one of the"
    " backup, under a new cluster id."
)


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to ``commands``, the result of :meth:`argparse.ArgumentParser.add_subparsers`.

    The parsed options have a ``command``: a coroutine function that takes the options and a reactor, and returns an
    exit status.
    """
    parser: argparse.ArgumentParser = commands.add_parser("parcels", help=DESCRIPTION, description=DESCRIPTION)
    inner = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[..., Any], about: str, timeout: float) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = inner.add_parser(name, help=about.partition(".")[0] + ".", description=about)
        made.add_argument(
            "--timeout", type=parse_positive, default=timeout, metavar="S", help="give up after S seconds [%(default)g]"
        )
        made.set_defaults(command=run, run=None)
        return made

    publish = command("publish", _publish, "Publish one event per line, over TCP or HTTP.", 30.0)
    publish.add_argument("file", nargs="?", metavar="FILE", help="input file [standard input]; - for standard input")
    node = publish.add_argument(
        "-n", "--node", action="append", metavar="HOST:PORT", help=f"address of a node; repeat it for failover [{NODE}]"
    )
    named = publish.add_argument(
        "-c", "--cluster", default="default", metavar="NAME", help="name of the cluster [%(default)s]"
    )
    publish.add_argument("--name", metavar="NAME", help="publisher name [a unique one]")
    publish.add_argument("--secret-file", metavar="FILE", help="file with the cluster's secret")
    publish.add_argument("--dial", metavar="ENDPOINT", help="endpoint for connections, such as tls:{host}:{port} [TCP]")
    publish.add_argument(
        "--http",
        action="append",
        type=_url,
        metavar="URL",
        help="URL of a node; repeat it for failover [none: TCP]",
    )
    publish.add_argument("--token-file", metavar="FILE", help="with --http, file with the nodes' token")
    publish.add_argument(
        "--expect",
        type=_expected,
        metavar="N",
        help="with --http, publish only if the last event has number N, and nothing comes in between",
    )
    publish.add_argument("--numbers", action="store_true", help="print the sequence number of each event")

    follow = command("follow", _follow, "Print ordered events as they arrive, over HTTP.", 10.0)
    _add_nodes(follow)
    follow.add_argument(
        "--from", dest="start", type=parse_count, metavar="N", help="sequence number of the first event [the next one]"
    )
    follow.add_argument(
        "--cluster-id",
        type=_cluster_id,
        metavar="ID",
        help="cluster id that N belongs to; fail if the cluster was re-created since",
    )
    follow.add_argument("--founding", dest="cluster_id", type=_cluster_id, help=argparse.SUPPRESS)
    follow.add_argument("--count", type=parse_count, metavar="N", help="stop after N events")
    follow.add_argument("--format", choices=("lines", "json"), default="lines", help="output format [%(default)s]")

    state = command("state", _state, "Get the application's state that the nodes hold.", 10.0)
    _add_nodes(state)
    state.add_argument(
        "--linearizable", action="store_true", help="get one with every event that was acknowledged before"
    )
    state.add_argument("-o", "--output", metavar="FILE", help="file for it [standard output]")

    cluster = command("cluster", _cluster, "Show the status of a cluster, as one of its nodes sees it.", 10.0)
    _add_nodes(cluster)
    cluster.add_argument("--json", action="store_true", help="print the complete status as JSON")

    transfer = command("transfer-leadership", _transfer_leadership, TRANSFER, 10.0)
    _add_nodes(transfer)
    transfer.add_argument("--to", metavar="NAME", help="member that takes over [the one with the longest log]")

    remove = command("remove", _remove, REMOVE, 10.0)
    remove.add_argument("member", metavar="NAME", help="member to remove")
    _add_nodes(remove)

    backup = command("backup", _back_up, BACKUP, 30.0)
    backup.add_argument("file", metavar="FILE", help="file for the backup")
    _add_nodes(backup)

    restored = inner.add_parser("restore", help=RESTORE.partition(".")[0] + ".", description=RESTORE)
    restored.set_defaults(command=_restore, run=None)
    restored.add_argument("file", metavar="FILE", help="file of `fyrehose parcels backup`")
    restored.add_argument("directory", metavar="DIRECTORY", help="directory for the node's journal; empty or missing")
    restored.add_argument("-n", "--name", required=True, metavar="NAME", help="name of the node")
    restored.add_argument(
        "--advertise", default=NODE, metavar="HOST:PORT", help="address that the node will advertise [%(default)s]"
    )

    reform = command("reform", _reform, REFORM, 10.0)
    reform.add_argument("--http", required=True, type=_url, metavar="URL", help="node that continues")
    reform.add_argument("--token-file", metavar="FILE", help="file with the node's token")
    confirmed = reform.add_argument(
        "-c", "--cluster", required=True, metavar="NAME", help="name of the cluster, as confirmation"
    )
    reform.add_argument("--yes", action="store_true", help="proceed; otherwise, only show the consequences")
    # In the other commands -n is --name and -c is --control.
    for option in (node, named, confirmed):
        hide_letter(option)
    return parser


def _add_nodes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--http", action="append", type=_url, metavar="URL", help=f"URL of a node; repeat it for failover [{HTTP}]"
    )
    parser.add_argument("--token-file", metavar="FILE", help="file with the nodes' token")


def _url(text: str) -> str:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine or parts.query or parts.fragment or not text.isascii() or not text.isprintable():
        raise argparse.ArgumentTypeError(f"{text!r} is not a URL such as {HTTP}")
    return text


def _cluster_id(text: str) -> str:
    if re.fullmatch("[0-9a-f]{16}", text) is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not 16 hexadecimal digits, as `fyrehose parcels cluster` shows them"
        )
    return text


def _expected(text: str) -> int:
    if re.fullmatch("[0-9]{1,19}", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a sequence number, or 0 for no event")
    return int(text)


async def _publish(options: argparse.Namespace, reactor: Any) -> int:
    from fyrehose_twisted.errors import ConfigurationError
    from fyrehose_twisted.parcels.cli.publish import publish_over_http, publish_over_tcp

    wanted = ("--token-file", "--expect") if options.http is None else ("--node", "--secret-file", "--dial")
    for option in wanted:
        if getattr(options, option[2:].replace("-", "_")) is not None:
            raise ConfigurationError(f"{option} is {'only' if options.http is None else 'not'} for --http")
    if options.http is None:
        return await publish_over_tcp(options, options.node or [NODE], reactor)

    async def act(client: ParcelsClient) -> int:
        return await publish_over_http(options, client, reactor)

    return await _with_client(options, reactor, act)


async def _follow(options: argparse.Namespace, reactor: Any) -> int:
    async def act(client: ParcelsClient) -> int:
        from fyrehose_twisted.parcels.cli.follow import follow

        return await follow(options, client, reactor)

    return await _with_client(options, reactor, act)


async def _state(options: argparse.Namespace, reactor: Any) -> int:
    async def act(client: ParcelsClient) -> int:
        from fyrehose_twisted.parcels.cli.state import show_state

        return await show_state(options, client)

    return await _with_client(options, reactor, act)


async def _cluster(options: argparse.Namespace, reactor: Any) -> int:
    async def act(client: ParcelsClient) -> int:
        from fyrehose_twisted.parcels.cli.cluster import show_cluster

        return await show_cluster(options, client)

    return await _with_client(options, reactor, act)


async def _transfer_leadership(options: argparse.Namespace, reactor: Any) -> int:
    async def act(client: ParcelsClient) -> int:
        from fyrehose_twisted.parcels.cli.cluster import transfer_leadership

        return await transfer_leadership(options, client, reactor)

    return await _with_leader(options, reactor, act)


async def _remove(options: argparse.Namespace, reactor: Any) -> int:
    async def act(client: ParcelsClient) -> int:
        from fyrehose_twisted.parcels.cli.cluster import remove

        return await remove(options, client, reactor)

    return await _with_leader(options, reactor, act)


async def _with_leader(
    options: argparse.Namespace, reactor: Any, act: Callable[[ParcelsClient], Coroutine[Any, Any, int]]
) -> int:
    """Run ``act`` with a client of each node in turn, until one of them leads."""
    from fyrehose_twisted.errors import NotLeader

    urls = options.http or [HTTP]
    for url in urls[:-1]:
        options.http = [url]
        try:
            return await _with_client(options, reactor, act)
        except NotLeader:
            continue
    options.http = urls[-1:]
    return await _with_client(options, reactor, act)


async def _back_up(options: argparse.Namespace, reactor: Any) -> int:
    async def act(client: ParcelsClient) -> int:
        from fyrehose_twisted.parcels.cli.backup import back_up

        return await back_up(options, client)

    return await _with_client(options, reactor, act)


async def _restore(options: argparse.Namespace, reactor: Any) -> int:
    from fyrehose_twisted.parcels.cli.backup import restore_backup

    return await restore_backup(options)


async def _reform(options: argparse.Namespace, reactor: Any) -> int:
    async def act(client: ParcelsClient) -> int:
        from fyrehose_twisted.parcels.cli.cluster import reform

        return await reform(options, client)

    # No failover here, because it matters which node continues.
    options.http = [options.http]
    return await _with_client(options, reactor, act)


async def _with_client(
    options: argparse.Namespace, reactor: Any, act: Callable[[ParcelsClient], Coroutine[Any, Any, int]]
) -> int:
    """Run ``act`` with a client of the nodes; return its exit status.

    :raises ConfigurationError: if the client is not installed, or the token file is invalid.
    """
    from fyrehose_twisted.errors import ConfigurationError
    from fyrehose_twisted.parcels.service.options import read_token

    try:
        from fyrehose_twisted.parcels.client.http_client import ParcelsClient
    except ModuleNotFoundError as error:
        package = (error.name or "treq").partition(".")[0]
        raise ConfigurationError(
            f"HTTP needs {package}, which is not installed: pip install 'fyrehose_twisted[web]'"
        ) from error
    client = ParcelsClient(
        options.http or [HTTP],
        publisher=getattr(options, "name", None),
        max_waiting=MAX_WAITING,
        token=read_token(options.token_file) if options.token_file else None,
        reactor=reactor,
        timeout=options.timeout,
        timeout_total=options.timeout,
    )
    try:
        return await act(client)
    finally:
        await client.close()
