"""Acknowledged messages: publish(kept=1) and publish(kept=2) compared with JetStream, one at a time and many in flight.

fyrehose: a backbone and two durable journals, whose --fsync is `batch` (each group of messages is synced before the
journal confirms them) or a number of seconds. With kept=0 a message is acknowledged once it has a number, without a
disk write.

JetStream: one server, a stream with one replica in a file. By default it acknowledges after a write to the page cache,
and syncs every two minutes; with `sync_interval: always` it syncs before it acknowledges (nats-server 2.10).

disk: append and fdatasync of one message in a loop, in the same directory: no system that syncs is faster.

All clients are Python, publish and await the acknowledgement. Medians over rounds that alternate between the systems.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple
from urllib.request import urlopen

from race.machine import describe
from race.servers import NATS, PATIENCE, Broker, Missing, free_port, program, start_ours
from results import add_option, write

from fyrehose_twisted.process.progress import ProgressBar

Publish = Callable[[bytes], Awaitable[object]]

DISK = "append and fdatasync"
JETSTREAM, ALWAYS = "JetStream", "JetStream, sync always"
NAMES = {
    DISK: "append and `fdatasync`",
    "fyrehose, kept=0": "`kept=0`",
    "fyrehose, kept=1, --fsync batch": "`kept=1`",
    "fyrehose, kept=2, --fsync batch": "`kept=2`",
}
"""Names of systems in the docs, if others."""
SYNCED, NOT_SYNCED = "synced", "not synced"


class Figures(NamedTuple):
    """Result of one round with one system. Times are in seconds."""

    median: float
    p99: float
    alone: float
    """Messages a second, one at a time."""
    together: float
    """Messages a second, many in flight."""


class System(NamedTuple):
    """A system to measure."""

    name: str
    kind: str
    port: int
    kept: int
    answers: str
    """State of a message when it is acknowledged."""


async def measure(publish: Publish, options: argparse.Namespace) -> Figures:
    """Publish one message at a time, and then many at once."""
    data = bytes(options.size)
    for _ in range(20):
        await publish(data)
    times: list[float] = []
    begun = time.perf_counter()
    while (started := time.perf_counter()) < begun + options.seconds:
        await publish(data)
        times.append(time.perf_counter() - started)
    alone = len(times) / (time.perf_counter() - begun)
    done = 0
    begun = time.perf_counter()

    async def flow() -> None:
        nonlocal done
        while time.perf_counter() < begun + options.seconds:
            await publish(data)
            done += 1

    await asyncio.gather(*(flow() for _ in range(options.flight)))
    cuts = quantiles(times, n=100)
    return Figures(cuts[49], cuts[98], alone, done / (time.perf_counter() - begun))


async def measure_ours(system: System, options: argparse.Namespace) -> Figures:
    """Measure the library's publisher."""
    from twisted.internet import reactor
    from twisted.internet.defer import Deferred

    from fyrehose_twisted.fyrehose.config import ClientConfig
    from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
    from fyrehose_twisted.fyrehose.service.connect import join

    loop = asyncio.get_running_loop()
    protocol = PublisherProtocol(ClientConfig(subscribe=False, journal=False))
    joining = Deferred.fromCoroutine(join(reactor, protocol, f"127.0.0.1:{system.port}"))
    publisher = await joining.asFuture(loop)

    def publish(data: bytes) -> Awaitable[object]:
        answered = loop.create_future()
        publisher.publish(data, kept=system.kept).addCallbacks(answered.set_result, answered.set_exception)
        return answered

    try:
        return await measure(publish, options)
    finally:
        await publisher.leave().asFuture(loop)


async def measure_nats(system: System, options: argparse.Namespace) -> Figures:
    """Measure nats-py on a stream of its own."""
    import nats
    from nats.js.errors import NotFoundError

    connection = await nats.connect(f"nats://127.0.0.1:{system.port}")
    stream: Any = connection.jetstream(publish_async_max_pending=2 * options.flight)
    with suppress(NotFoundError):
        await stream.delete_stream("bench")
    await stream.add_stream(name="bench", subjects=["bench"], storage="file", num_replicas=1)
    try:
        return await measure(lambda data: stream.publish("bench", data), options)
    finally:
        await connection.close()


def measure_disk(options: argparse.Namespace) -> Figures:
    """Measure the disk alone."""
    times: list[float] = []
    with tempfile.TemporaryFile(dir=options.directory) as file:
        begun = time.perf_counter()
        while (started := time.perf_counter()) < begun + options.seconds:
            os.write(file.fileno(), bytes(options.size))
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - started)
    cuts = quantiles(times, n=100)
    return Figures(cuts[49], cuts[98], len(times) / (time.perf_counter() - begun), 0.0)


def child(system: System, options: argparse.Namespace) -> Figures:
    """Measure one system in this process, on asyncio with Twisted on top of it."""
    if system.kind == NATS:
        return asyncio.run(measure_nats(system, options))
    from twisted.internet import asyncioreactor

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    asyncioreactor.install(loop)
    from twisted.internet import reactor

    running: Any = reactor
    running.startRunning(installSignalHandlers=False)
    return loop.run_until_complete(measure_ours(system, options))


def run(system: System, options: argparse.Namespace) -> Figures:
    """Measure one round of one system in a process of its own."""
    if system.kind == DISK:
        return measure_disk(options)
    command = [sys.executable, __file__, "--client", json.dumps(system), "--seconds", str(options.seconds)]
    command += ["--size", str(options.size), "--flight", str(options.flight)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{system.name} failed:\n{done.stderr}")
    return Figures(*json.loads(done.stdout))


@contextmanager
def running(broker: Broker) -> Iterator[Broker]:
    """Stop a program at the end of the run."""
    try:
        yield broker
    finally:
        broker.stop()


def start_journal(directory: Path, backbone: Broker, name: str, fsync: str) -> Broker:
    """Start a durable journal, and wait until it has joined."""
    command = [str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile=", "fyrehose-journal"]
    kept, port = directory / name, free_port(socket.SOCK_STREAM)
    command += ["--directory", str(kept), "--backbone", f"127.0.0.1:{backbone.ports[0]}", "--fsync", fsync]
    command += ["--metrics", f"tcp:{port}"]
    journal = Broker(name, command, (port, port), directory / f"{name}.log")
    journal.wait_for_listener()
    deadline = time.monotonic() + PATIENCE
    while b"\nfyrehose_client_connected 1.0" not in urlopen(f"http://127.0.0.1:{port}/metrics").read():
        journal.check()
        if time.monotonic() > deadline:
            raise SystemExit(f"{name} does not join its backbone")
        time.sleep(0.05)
    return journal


def start_jetstream(directory: Path, sync: str | None) -> Broker:
    """Start nats-server with JetStream.

    :param sync: its sync_interval.
    :raises Missing: if it or its client is not installed, or it does not support the setting.
    """
    if find_spec("nats") is None:
        raise Missing("needs nats-py, which is in the extra 'bench'")
    port, name = free_port(socket.SOCK_STREAM), f"jetstream-{sync}"
    config = directory / f"{name}.conf"
    setting = "" if sync is None else f"sync_interval: {sync}\n"
    config.write_text(f"listen: 127.0.0.1:{port}\njetstream {{\nstore_dir: '{directory / name}'\n{setting}}}\n")
    command = [program("nats-server", "nats-server"), "-c", str(config)]
    if subprocess.run([*command, "-t"], capture_output=True).returncode:
        raise Missing("needs nats-server 2.10")
    broker = Broker(NATS, command, (port, port), directory / f"{name}.log")
    broker.wait_for_listener()
    return broker


def start(stack: ExitStack, directory: Path, options: argparse.Namespace) -> tuple[list[System], dict[str, str]]:
    """Start all servers; return the systems to measure, and missing programs."""
    systems, missing = [System(DISK, DISK, 0, 0, SYNCED)], dict[str, str]()
    for fsync in options.fsync:
        where = directory / f"fsync-{fsync}"
        where.mkdir()
        backbone = stack.enter_context(running(start_ours(where)))
        for name in ("one", "two"):
            stack.enter_context(running(start_journal(where, backbone, name, fsync)))
        for kept in (0, 1, 2):
            if kept or fsync == options.fsync[0]:
                answers = "in memory" if not kept else f"{SYNCED} by {kept}"
                name = f"fyrehose, kept={kept}" + (f", --fsync {fsync}" if kept else "")
                systems.append(System(name, "fyrehose", backbone.ports[0], kept, answers))
    for name, sync, answers in ((JETSTREAM, None, NOT_SYNCED), (ALWAYS, "always", SYNCED)):
        try:
            jetstream = stack.enter_context(running(start_jetstream(directory, sync)))
        except Missing as why:
            missing[name] = str(why)
        else:
            systems.append(System(name, NATS, jetstream.ports[0], 0, answers))
    return systems, missing


def report(results: dict[System, list[Figures]], missing: dict[str, str], options: argparse.Namespace) -> None:
    """Print medians, and ratios to JetStream with default settings."""
    shown = {
        system: Figures(*(median(column) for column in zip(*rounds, strict=True))) for system, rounds in results.items()
    }
    basis = next((figures for system, figures in shown.items() if system.name == JETSTREAM), None)
    print(f"{options.size}-byte messages, medians of {options.rounds} rounds of {options.seconds:g} s; {describe()}\n")
    print(f"{'':<32}{'when answered':>14}{'median, ms':>12}{'99 %, ms':>10}{'alone/s':>10}", end="")
    print(f"{f'{options.flight} in flight/s':>18}{'of JetStream':>14}{'in flight':>11}")
    for system, figures in shown.items():
        print(f"{system.name:<32}{system.answers:>14}{figures.median * 1e3:>12.3f}{figures.p99 * 1e3:>10.3f}", end="")
        print(f"{figures.alone:>10,.0f}{figures.together:>18,.0f}", end="")
        if basis is not None and system.kind != DISK:
            print(f"{figures.alone / basis.alone:>14.2f}{figures.together / basis.together:>11.2f}", end="")
        print()
    for name, why in missing.items():
        print(f"{name}: {why}")


def table(results: dict[System, list[Figures]], flight: int) -> dict[str, dict[str, float]]:
    """Return the table for the docs."""
    rows: dict[str, dict[str, float]] = {}
    for system, rounds in results.items():
        name = NAMES.get(system.name, system.name)
        figures = Figures(*(median(column) for column in zip(*rounds, strict=True)))
        for label, value in (
            ("one at a time/s", figures.alone),
            (f"{flight} in flight/s", figures.together if system.kind != DISK else None),
            ("median, ms", figures.median * 1e3),
            ("99 %, ms", figures.p99 * 1e3),
        ):
            if value is not None:
                rows.setdefault(label, {})[name] = value
    return rows


def main() -> None:
    """Run the rounds and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement, each round [%(default)g]")
    parser.add_argument("--size", type=int, default=128, help="bytes of a message [%(default)s]")
    parser.add_argument("--flight", type=int, default=64, help="messages in flight [%(default)s]")
    parser.add_argument("--fsync", nargs="+", default=["batch", "0.1"], help="of the journals [%(default)s]")
    parser.add_argument("--directory", type=Path, help="disk to measure [default: that of temporary files]")
    add_option(parser, "kept")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        print(json.dumps(child(System(*json.loads(options.client)), options)))
        return
    with tempfile.TemporaryDirectory(dir=options.directory) as directory, ExitStack() as stack:
        systems, missing = start(stack, Path(directory), options)
        results: dict[System, list[Figures]] = {system: [] for system in systems}
        for _ in ProgressBar(range(options.rounds), unit=" rounds", desc="measured"):
            for system, rounds in results.items():
                rounds.append(run(system, options))
    report(results, missing, options)
    told = [{**system._asdict(), "rounds": [one._asdict() for one in rounds]} for system, rounds in results.items()]
    how = f"medians of {options.rounds} rounds of {options.seconds:g} s"
    write(options.json, {"kept": table(results, options.flight)}, how, describe(), systems=told)


if __name__ == "__main__":
    main()
