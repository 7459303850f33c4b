"""The ``fyrehose`` command."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fyrehose_twisted.cli.doctor import command as doctor
from fyrehose_twisted.cli.dump import command as dump
from fyrehose_twisted.cli.wireshark import command as wireshark
from fyrehose_twisted.freenet.cli import parser as freenet
from fyrehose_twisted.fyrehose.cli import parser as backbone
from fyrehose_twisted.hydra.cli import parser as hydra
from fyrehose_twisted.journal.cli import parser as journal
from fyrehose_twisted.parcels.cli import parser as parcels
from fyrehose_twisted.process.arguments import ArgumentParser, parse_count, parse_positive, parse_seconds
from fyrehose_twisted.sealing.cli import parser as sealing
from fyrehose_twisted.sim.runs import cli as simulate
from fyrehose_twisted.sim.runs.cli import print_error

# Commands import what they need when they run: Twisted and its reactor take a second, which --help need not wait for.
if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from fyrehose_twisted.fyrehose.config import Start
    from fyrehose_twisted.sim.scenario import Scenario

BACKBONE = "127.0.0.1:2323"
"""The same as :data:`fyrehose_twisted.fyrehose.service.connect.DEFAULT_BACKBONE`."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit: 0 for success, 1 for failure, 2 for wrong usage."""
    if sys.stderr is None:  # Closed by the parent process; print() would use standard output instead.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    # NumPy comes with a library that starts threads for matrices. Unused here, they would spin for 0.1 s.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    options = _parser().parse_args(arguments)
    try:
        status = _run_in_reactor(options) if options.run is None else options.run(options)
    except KeyboardInterrupt:
        status = print_error("interrupted")
    except BrokenPipeError:
        status = 1
    sys.exit(_flush(status))


def _run_in_reactor(options: argparse.Namespace) -> int:
    """Run a command that needs a reactor, and return its exit status."""
    from twisted.internet.defer import Deferred
    from twisted.internet.task import react

    outcome = 1

    def run(reactor: Any) -> Deferred[Any]:
        _stop_on_interrupt(reactor)
        running: Deferred[Any] = Deferred.fromCoroutine(_run(options, reactor))

        def finish(status: int) -> None:
            nonlocal outcome
            outcome = status

        running.addCallback(finish)
        # On SIGINT the reactor stops; the command gets the chance to leave in order.
        reactor.addSystemEventTrigger("before", "shutdown", _cancel, running)
        return running

    with suppress(SystemExit):
        react(run)
    return outcome


def _stop_on_interrupt(reactor: Any) -> None:
    from twisted.internet.error import ReactorNotRunning

    def stop() -> None:
        with suppress(ReactorNotRunning):
            reactor.stop()

    # Twisted's own handler comes with the running reactor; before that, an interrupt could end up in any callback.
    signal.signal(signal.SIGINT, lambda number, frame: reactor.callFromThread(stop))


def _cancel(running: Deferred[Any]) -> Deferred[None]:
    from twisted.internet.defer import Deferred

    done: Deferred[None] = Deferred()
    running.addBoth(lambda result: done.callback(None))
    running.cancel()
    return done


def _flush(status: int) -> int:
    """Flush standard output and return the exit status. The reader of a pipe may have gone."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            return print_error(f"standard output: {error.strerror}", status or 1)
    return status


async def _run(options: argparse.Namespace, reactor: Any) -> int:
    from twisted.internet.defer import CancelledError

    from fyrehose_twisted.errors import FyrehoseError

    command: Callable[[argparse.Namespace, Any], Coroutine[Any, Any, int]] = options.command
    try:
        return await command(options, reactor)
    except FyrehoseError as error:
        return print_error(error)
    except OSError as error:
        return print_error(f"{error.filename or 'input or output'}: {error.strerror}")
    except CancelledError:
        return print_error("interrupted")


async def _publish(options: argparse.Namespace, reactor: Any) -> int:
    from fyrehose_twisted.fyrehose.cli.publish import publish

    return await publish(options, reactor)


async def _subscribe(options: argparse.Namespace, reactor: Any) -> int:
    from fyrehose_twisted.fyrehose.cli.subscribe import subscribe

    return await subscribe(options, reactor)


async def _ping(options: argparse.Namespace, reactor: Any) -> int:
    from fyrehose_twisted.fyrehose.cli.ping import ping

    return await ping(options, reactor)


def _scenarios() -> Iterable[type[Scenario]]:
    from fyrehose_twisted.freenet.simulation.scenarios import SCENARIOS as FREENET
    from fyrehose_twisted.fyrehose.simulation.scenarios import SCENARIOS as FYREHOSE
    from fyrehose_twisted.hydra.simulation.scenarios import SCENARIOS as HYDRA
    from fyrehose_twisted.parcels.simulation.scenarios import SCENARIOS as PARCELS

    return (*FYREHOSE, *HYDRA, *FREENET, *PARCELS)


def _envelope_finder(stream: str) -> Any:
    from fyrehose_twisted.payloads import envelope_finder

    return envelope_finder(stream)


def _payload_reader(key_files: Sequence[str]) -> Any:
    from fyrehose_twisted.payloads import PayloadReader
    from fyrehose_twisted.sealing.key_source import KeySource

    return PayloadReader([KeySource(path) for path in key_files])


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="fyrehose",
        description="Publish and subscribe, operate nodes, inspect journals, and run the simulator.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[..., Any], description: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=description, description=description)
        made.add_argument(
            "-b",
            "--backbone",
            action=_AddBackbone,
            default=BACKBONE,
            metavar="HOST:PORT",
            help="address of the backbone, or of several that take over from one another, with commas or repeated"
            " [%(default)s]",
        )
        made.add_argument("--secret-file", metavar="FILE", help="file with the secret of the backbone")
        made.add_argument(
            "--require-mac",
            action="store_true",
            help="with --secret-file, accept no message without a MAC of the backbone",
        )
        made.add_argument(
            "--connect-timeout",
            type=parse_positive,
            default=10.0,
            metavar="S",
            help="seconds to wait for the backbone [%(default)g]",
        )
        made.set_defaults(command=run, run=None)
        return made

    pub = command("pub", _publish, "Publish each line of the input as a message.")
    pub.add_argument("file", nargs="?", metavar="FILE", help="input file [standard input]; - is standard input")
    framing = pub.add_mutually_exclusive_group()
    framing.add_argument(
        "--raw", action="store_true", help="publish without envelopes, for subscribers that do not understand them"
    )
    framing.add_argument(
        "--publisher-state",
        metavar="FILE",
        help="record in FILE how many lines are published; the same input, even if it has grown, is resumed after them",
    )
    _add_seal_key_file(pub, "seal messages with the first key of FILE, so that only holders of a key can read them")
    pub.add_argument(
        "--sign-key-file", metavar="FILE", help="sign sealed messages with the private key in FILE; see fyrehose key"
    )
    key = pub.add_mutually_exclusive_group()
    key.add_argument("--key", metavar="KEY", help="key of all messages, 1 to 255 bytes")
    key.add_argument(
        "--key-separator", metavar="TEXT", help="each line is a key, TEXT and the message; TEXT is not part of either"
    )
    pub.add_argument(
        "--kept",
        type=parse_count,
        default=0,
        metavar="N",
        help="count a message as published once N durable journals have synced it to disk",
    )
    pub.add_argument(
        "--timeout",
        type=parse_positive,
        default=30.0,
        metavar="S",
        help="seconds after which a message fails [%(default)g]",
    )
    sub = command("sub", _subscribe, "Print messages in order, with gaps repaired.")
    sub.add_argument(
        "--from",
        dest="start",
        type=_start,
        default="live",
        metavar="WHERE",
        help="live, oldest or a sequence number [live]",
    )
    sub.add_argument(
        "--state",
        metavar="FILE",
        help="record the position in FILE and resume there; --from applies while FILE does not exist",
    )
    sub.add_argument("--count", type=parse_count, metavar="N", help="stop after N messages")
    sub.add_argument("--format", choices=("lines", "json"), default="lines", help="output format [%(default)s]")
    sub.add_argument("--key", metavar="KEY", help="print only messages with this key")
    sub.add_argument("--key-prefix", metavar="TEXT", help="print only messages with a key that begins with TEXT")
    sub.add_argument(
        "--key-separator", metavar="TEXT", help="print the key of a message, or nothing, and TEXT before each line"
    )
    sub.add_argument("--raw", action="store_true", help="print messages as on the wire, with envelopes and repeats")
    _add_seal_key_file(sub, "open messages with the keys in FILE, and drop those that are not sealed with one of them")
    sub.add_argument(
        "--allow-plain", action="store_true", help="with --seal-key-file, print messages that are not sealed, too"
    )
    sub.add_argument(
        "--multicast", action="store_true", help="listen to the multicast group of the backbone, if it has one"
    )
    sub.add_argument(
        "--keepalive",
        type=_interval,
        default=0.9,
        metavar="S",
        help="seconds between KEEPALIVEs, 0.1 to 0.9 [%(default)g]",
    )
    measure = command("ping", _ping, "Measure the round-trip time to the backbone with KEEPALIVEs.")
    measure.add_argument(
        "--count", type=parse_count, default=10, metavar="N", help="number of KEEPALIVEs [%(default)s]"
    )
    measure.add_argument(
        "--interval", type=_interval, default=0.2, metavar="S", help="seconds between them, 0.1 to 0.9 [%(default)g]"
    )
    simulate.add_parser(commands, _scenarios)
    journal.add_parser(commands, _payload_reader, _envelope_finder)
    sealing.add_parser(commands)
    backbone.add_parser(commands)
    parcels.add_parser(commands)
    hydra.add_parser(commands)
    freenet.add_parser(commands)
    doctor.add_parser(commands)
    dump.add_parser(commands)
    wireshark.add_parser(commands)
    return parser


def _add_seal_key_file(parser: argparse.ArgumentParser, about: str) -> None:
    parser.add_argument("--seal-key-file", metavar="FILE", help=f"{about}; read again on SIGHUP")


class _AddBackbone(argparse.Action):
    """Addition of a value of ``--backbone`` to earlier ones, separated by commas."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        given = getattr(namespace, self.dest)
        setattr(namespace, self.dest, values if given is self.default else f"{given},{values}")


def _interval(text: str) -> float:
    value = parse_seconds(text)
    if not 0.1 <= value <= 0.9:
        raise argparse.ArgumentTypeError(f"{text!r} is outside 0.1 to 0.9")
    return value


def _start(text: str) -> Start | int:
    from fyrehose_twisted.fyrehose.service.options import parse_start

    try:
        return parse_start(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
