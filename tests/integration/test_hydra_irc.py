"""Active connection and IRC links on real servers of three kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from integration.running.clock import SkippingClock
from integration.running.irc import Ircd, IrcStranger, JoinIrc, StartIrcd
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.error import ConnectError
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure

from fyrehose_twisted.hydra.events import Outcome
from fyrehose_twisted.hydra.irc.active import ActiveConnection, Channel, IrcConfig
from fyrehose_twisted.hydra.irc.bots import parse_line
from fyrehose_twisted.hydra.irc.nick_service import NickServiceConfig
from fyrehose_twisted.hydra.irc.view import IrcView
from fyrehose_twisted.hydra.node.relay.pending_replies import PendingReplies
from fyrehose_twisted.hydra.service.config import HydraConfig
from fyrehose_twisted.hydra.service.service import HydraService
from fyrehose_twisted.hydra.transports.irc import IrcEndpoint, IrcLinkConfig
from fyrehose_twisted.hydra.wire.line_splitting import max_line_length, split_to_fit
from fyrehose_twisted.hydra.wire.lines import server_error_text

reactor: Any = installed_reactor
DEADLINE = 120.0
"""Seconds after which an awaited event fails a test; reached only on failure."""

KINDS = [
    "ngircd",
    # Registration takes a second on this server.
    pytest.param("inspircd", marks=pytest.mark.soak(seconds=60)),
    pytest.param("ircd-hybrid", marks=pytest.mark.soak(seconds=60)),
]
MAX_PING = 600.0
"""Timeout of links; tests advance the clock instead of waiting."""
NO_LINE_END = bytes(value for value in range(1, 256) if value not in b"\r\n")


async def until(condition: Callable[[], object], why: Callable[[], object] = str) -> None:
    """Wait until a condition holds."""
    done: Deferred[None] = Deferred()

    def look() -> None:
        if condition() and not done.called:
            done.callback(None)

    looking = LoopingCall(look)
    looking.start(0.01).addErrback(lambda failure: done.called or done.errback(failure))
    try:
        await done.addTimeout(DEADLINE, reactor)
    except Exception as problem:
        raise AssertionError(why()) from problem
    finally:
        if looking.running:
            looking.stop()


class Active:
    """Active connection and its recorded events."""

    def __init__(self, *servers: str, nick: str = "bot", channels: str = "#c", **more: Any) -> None:
        self.told: list[tuple[str, Any]] = []
        self.batches: list[Sequence[bytes]] = []
        config = IrcConfig(tuple(servers), nick, tuple(map(Channel, channels.split())), **more)
        self.connection = ActiveConnection(
            config,
            reactor,
            on_opened=lambda prefix: self.told.append(("opened", prefix)),
            on_closed=lambda reason: self.told.append(("closed", reason)),
            on_received=self.batches.append,
            on_answered=lambda number: self.told.append(("answered", number)),
            on_prefix_changed=lambda prefix: self.told.append(("renamed", prefix)),
        )
        self.connection.open()

    @property
    def lines(self) -> list[bytes]:
        return [line for batch in self.batches for line in batch]

    def count(self, what: str) -> int:
        return sum(word == what for word, _ in self.told)

    async def is_told(self, what: str, times: int = 1) -> Any:
        await until(lambda: self.count(what) >= times, lambda: f"{what}: {self.told}")
        return [value for word, value in self.told if word == what][times - 1]

    async def has_lines(self, part: bytes, times: int = 1) -> list[bytes]:
        def found() -> list[bytes]:
            return [line for line in self.lines if part in line]

        await until(lambda: len(found()) >= times, lambda: f"{len(found())} of {times} {part!r}")
        return found()

    async def close(self) -> str:
        self.connection.close("the test is over")
        closed: str = await self.is_told("closed", self.count("closed") + 1)
        return closed


@pytest.fixture
def active() -> Iterator[Callable[..., Active]]:
    """Return a function that opens an active connection."""
    actives: list[Active] = []

    def made(*servers: str, **more: Any) -> Active:
        actives.append(Active(*servers, **more))
        return actives[-1]

    yield made
    for one in actives:
        if one.connection.server:
            one.connection.close("the test is over", graceful=False)
            pytest_twisted.blockon(Deferred.fromCoroutine(until(lambda one=one: not one.connection.server)))


@pytest.mark.parametrize("kind", KINDS)
@pytest_twisted.ensureDeferred
async def test_irc_lines_are_relayed_verbatim_both_ways(
    kind: str, start_ircd: StartIrcd, irc_stranger: JoinIrc, active: Callable[..., Active]
) -> None:
    ircd = start_ircd(kind)
    stranger = await deferToThread(irc_stranger, ircd, "anna", "#c")
    bot = active(ircd.address)
    prefix = await bot.is_told("opened")
    assert prefix.startswith(b"bot!")
    assert prefix == bot.connection.prefix
    await deferToThread(stranger.wait_for, rb"^:" + prefix.replace(b".", rb"\.") + rb" JOIN :?#c$")
    assert await bot.has_lines(b" JOIN ") == stranger.matching(rb"^:bot!.* JOIN ")

    # Not more at once than ircd-hybrid accepts from one client: 8,000 bytes.
    said = [b"PRIVMSG #c :%d %b." % (number, NO_LINE_END) for number in range(200)]
    for start in range(0, len(said), 20):
        for line in said[start : start + 20]:
            assert bot.connection.say(line)
        await deferToThread(stranger.wait_for, rb" PRIVMSG #c :", start + 20)
    heard = stranger.matching(rb" PRIVMSG #c :")
    assert heard == [b":%b %b" % (prefix, line) for line in said]

    for start in range(0, len(said), 20):
        stranger.say(*said[start : start + 20])
        await bot.has_lines(b" PRIVMSG #c :", start + 20)
    heard = await bot.has_lines(b" PRIVMSG #c :", len(said))
    assert [line.partition(b" ")[2] for line in heard] == said
    assert len(bot.batches) < len(said) / 2  # Lines received together are delivered together.

    stranger.say("TOPIC #c :t", "MODE #c +m", "NOTICE bot :private", "PRIVMSG bot :\x01VERSION\x01", "QUIT :gone")
    assert (await bot.has_lines(b" QUIT "))[0].startswith(b":anna!")
    for part in (b" TOPIC #c :t", b" MODE #c ", b" NOTICE bot :private", b" PRIVMSG bot :\x01VERSION\x01"):
        assert len(await bot.has_lines(part)) == 1
    assert await bot.close() == "the test is over"
    assert bot.told == [("opened", prefix), ("closed", "the test is over")]


@pytest.mark.parametrize("kind", KINDS)
@pytest_twisted.ensureDeferred
async def test_ping_is_answered_after_the_errors_for_earlier_lines(
    kind: str, start_ircd: StartIrcd, irc_stranger: JoinIrc, active: Callable[..., Active]
) -> None:
    ircd = start_ircd(kind)
    stranger = await deferToThread(irc_stranger, ircd, "anna", "#c")
    stranger.say("JOIN #shut", "MODE #shut +in", "JOIN #mute", "MODE #mute +m")
    await deferToThread(stranger.wait_for, rb" MODE #mute :?\+m")
    bot = active(ircd.address, channels="#c #mute")
    prefix = await bot.is_told("opened")
    lines = [
        b"PRIVMSG #c :one",
        b"KICK #c anna",
        b"PRIVMSG nobody :hi",
        b"PRIVMSG #mute :hi",
        b"MODE #c +o bot",
        b"TOPIC #shut :hi",
        b"JOIN #shut",
        b"PRIVMSG #c :two",
    ]
    answers = PendingReplies()
    for number, line in enumerate(lines, 1):
        assert bot.connection.say(line)
        answers.add(str(number), line, 0.0)
        bot.connection.ask(number)
    assert await bot.is_told("answered", len(lines)) == len(lines)
    assert [value for word, value in bot.told if word == "answered"] == list(range(1, len(lines) + 1))
    errors = [line for line in bot.lines if server_error_text(line)]
    assert all(map(answers.match_error, errors)), errors
    refused = {
        int(one.line_id or 0): server_error_text(one.errors[0]) for one in answers.acknowledge(len(lines)) if one.errors
    }
    assert {number: str(text)[:3] for number, text in refused.items()} == {
        2: "482",
        3: "401",
        4: "404",
        5: "482",
        6: "442",
        7: "473",
    }
    assert await deferToThread(stranger.wait_for, rb"^:" + prefix.replace(b".", rb"\.") + rb" PRIVMSG #c :", 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest_twisted.ensureDeferred
async def test_split_message_arrives_complete(
    kind: str, start_ircd: StartIrcd, irc_stranger: JoinIrc, active: Callable[..., Active]
) -> None:
    ircd = start_ircd(kind)
    stranger = await deferToThread(irc_stranger, ircd, "anna", "#c")
    bot = active(ircd.address)
    prefix = await bot.is_told("opened")
    limits = bot.connection.limits
    room = max_line_length(prefix, limits)
    whole = b"PRIVMSG #c :" + b"x" * (min(room, 510) - 12)
    assert split_to_fit(whole, prefix, limits, split=True) == [whole]
    long = b"PRIVMSG #c :" + b"y" * 498
    parts = split_to_fit(long, prefix, limits, split=True)
    assert len(parts) == 1 + (room < 510)
    for line in (whole, *parts):
        assert bot.connection.say(line)
    heard = await deferToThread(stranger.wait_for, rb" PRIVMSG #c :", 1 + len(parts))
    assert heard == [b":%b %b" % (prefix, line) for line in (whole, *parts)]


def view_of(bot: Active) -> IrcView:
    """Return the view that nodes get from the lines of a connection."""
    view = IrcView()
    for number, line in enumerate(bot.lines):
        view.line_received(parse_line(line, 1, number))
    return view


@pytest.mark.parametrize("kind", KINDS)
@pytest_twisted.ensureDeferred
async def test_members_and_operators_are_known_from_the_relayed_lines(
    kind: str, start_ircd: StartIrcd, irc_stranger: JoinIrc, active: Callable[..., Active]
) -> None:
    ircd = start_ircd(kind)
    anna = await deferToThread(irc_stranger, ircd, "anna", "#c")
    bob = await deferToThread(irc_stranger, ircd, "bob", "#c")
    anna.say("MODE #c +v anna", "MODE #c +v bob")
    await deferToThread(bob.wait_for, rb" MODE #c \+v :?bob")
    bot = active(ircd.address)
    await bot.is_told("opened")
    await until(lambda: view_of(bot).is_in("#c", "bob"), lambda: str(bot.lines[-12:]) + str(bob.lines[-6:]))
    view = view_of(bot)
    assert view.nick == "bot"
    assert view.members("#c") == {"anna": "ov", "bob": "v", "bot": ""}

    carl = await deferToThread(irc_stranger, ircd, "carl", "#c")
    anna.say("MODE #c +b-v+o *!*@spam.example bob carl", "MODE #c -o anna")
    await deferToThread(anna.wait_for, rb" MODE #c -o :?anna")
    carl.say("NICK Carla", "KICK #c bob :out", "MODE #c +l 50", "MODE #c +o bot")
    await until(lambda: view_of(bot).is_op("#c", "bot"), lambda: str(bot.lines[-12:]) + str(bob.lines[-6:]))
    assert view_of(bot).members("#c") == {"anna": "v", "Carla": "o", "bot": "o"}

    for line in (b"MODE #c +i", b"INVITE bob #c", b"NICK robot", b"JOIN #new"):
        assert bot.connection.say(line)
    await deferToThread(bob.wait_for, rb" INVITE bob :?#c")
    bob.say("JOIN #c")
    anna.say("QUIT :bye")
    await until(
        lambda: view_of(bot).is_in("#c", "bob") and not view_of(bot).is_in("#c", "anna"), lambda: str(bot.lines)
    )
    view = view_of(bot)
    assert view.members("#c") == {"Carla": "o", "bob": "", "robot": "o"}
    assert (view.nick, view.joined) == ("robot", ["#c", "#new"])
    assert [channel.name for channel in view.to_join([])] == ["#c", "#new"]
    assert bot.connection.prefix.startswith(b"robot!")
    assert await bot.close() == "the test is over"


@pytest.mark.parametrize("kind", KINDS)
@pytest_twisted.ensureDeferred
async def test_nick_service_is_told_the_password_and_nobody_else(
    kind: str, start_ircd: StartIrcd, irc_stranger: JoinIrc, active: Callable[..., Active]
) -> None:
    ircd = start_ircd(kind)
    service = await deferToThread(irc_stranger, ircd, "Services", "")
    ghost = await deferToThread(irc_stranger, ircd, "bot", "#c")
    bot = active(ircd.address, nick_service=NickServiceConfig("s3cret", service="Services"), reclaim_interval=600.0)
    assert (await bot.is_told("opened")).startswith(b"bot_!")
    await deferToThread(service.wait_for, rb" PRIVMSG Services :IDENTIFY s3cret")
    await deferToThread(service.wait_for, rb" PRIVMSG Services :GHOST bot s3cret")
    ghost.say("QUIT :freed")
    service.say("NOTICE bot_ :Ghost with your nick has been killed.")
    assert (await bot.is_told("renamed")).startswith(b"bot!")
    await deferToThread(service.wait_for, rb" PRIVMSG Services :IDENTIFY s3cret", 2)
    assert not [line for line in ghost.matching(rb"s3cret") + bot.lines if b"s3cret" in line]
    assert await bot.close() == "the test is over"


@pytest.mark.parametrize("kind", KINDS)
@pytest_twisted.ensureDeferred
async def test_taken_nick_is_reclaimed_once_it_is_free(
    kind: str, start_ircd: StartIrcd, irc_stranger: JoinIrc, active: Callable[..., Active]
) -> None:
    ircd = start_ircd(kind)
    ghost = await deferToThread(irc_stranger, ircd, "bot")
    bot = active(ircd.address, reclaim_interval=0.2)
    assert (await bot.is_told("opened")).startswith(b"bot_!")
    stranger = await deferToThread(irc_stranger, ircd, "anna", "#c")
    await deferToThread(ghost.close)
    assert (await bot.is_told("renamed")).startswith(b"bot!")
    await deferToThread(stranger.wait_for, rb"^:bot_!\S+ NICK :?bot$")
    bot.connection.say(b"PRIVMSG #c :it is me")
    assert await deferToThread(stranger.wait_for, b"it is me") == [b":%b PRIVMSG #c :it is me" % bot.connection.prefix]


@pytest_twisted.ensureDeferred
async def test_nick_is_reclaimed_when_its_holder_renames_itself_in_the_channel(
    start_ircd: StartIrcd, irc_stranger: JoinIrc, active: Callable[..., Active]
) -> None:
    ircd = start_ircd("ircd-hybrid")
    ghost = await deferToThread(irc_stranger, ircd, "bot", "#c")
    bot = active(ircd.address, reclaim_interval=10_000)
    await bot.is_told("opened")
    ghost.say("NICK other")
    assert (await bot.is_told("renamed")).startswith(b"bot!")


@pytest.mark.parametrize("kind", KINDS)
@pytest_twisted.ensureDeferred
async def test_connection_rejoins_after_a_kick_and_reconnects_after_a_kill(
    kind: str,
    start_ircd: StartIrcd,
    irc_stranger: JoinIrc,
    active: Callable[..., Active],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fyrehose_twisted.hydra.irc.active.REJOIN_DELAYS", (0.05, 60.0))
    ircd = start_ircd(kind)
    oper = await deferToThread(irc_stranger, ircd, "anna", "#c")
    oper.say("OPER root secret")
    await deferToThread(oper.wait_for, b" 381 ")
    bot = active(ircd.address)
    await bot.is_told("opened")
    oper.say("KICK #c bot :out")
    assert len(await bot.has_lines(b"JOIN", 2)) == 2
    assert len(await bot.has_lines(b"KICK #c bot :out")) == 1
    bot.connection.say(b"PART #c")  # The server does not revert it.
    await bot.has_lines(b"PART", 1)
    bot.connection.say(b"JOIN #c")
    await bot.has_lines(b"JOIN", 3)
    oper.say("KILL bot :enough")
    assert "enough" in await bot.is_told("closed")
    assert not bot.connection.say(b"PRIVMSG #c :too late")
    bot.connection.open()
    await bot.is_told("opened", 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest_twisted.ensureDeferred
async def test_connection_fails_over_when_its_irc_server_is_killed(
    kind: str, start_ircd: StartIrcd, active: Callable[..., Active]
) -> None:
    first, second = start_ircd(kind), start_ircd(kind)
    bot = active(first.address, second.address)
    await bot.is_told("opened")
    first.kill()
    await bot.is_told("closed")
    bot.connection.open()
    await bot.is_told("opened", 2)
    assert bot.connection.server == second.address
    await bot.close()
    bot.connection.open()
    assert await bot.is_told("closed", 3) == "refused"


@pytest.mark.parametrize("kind", KINDS)
@pytest_twisted.ensureDeferred
async def test_channels_that_refuse_the_bot_are_retried(
    kind: str, start_ircd: StartIrcd, irc_stranger: JoinIrc, active: Callable[..., Active]
) -> None:
    ircd = start_ircd(kind)
    oper = await deferToThread(irc_stranger, ircd, "anna", "#shut")
    oper.say("JOIN #key", "MODE #shut +i", "MODE #key +k door")
    await deferToThread(oper.wait_for, rb" MODE #key \+k")
    bot = active(ircd.address, channels="#shut #c #key", rejoin_interval=0.2)
    await bot.is_told("opened")
    assert {line.rpartition(b" ")[2].lstrip(b":") for line in await bot.has_lines(b"JOIN")} == {b"#c"}
    oper.say("MODE #shut -i")
    assert len(await bot.has_lines(b"JOIN", 2)) == 2
    alone = active(ircd.address, nick="alone", channels="#key")
    assert (await alone.is_told("closed")).startswith("no channel could be joined (#key: 475 ")
    keyed = ActiveConnection(
        IrcConfig((ircd.address,), "keyed", (Channel("#key", "door"),)),
        reactor,
        on_opened=lambda prefix: oper.say(f"PRIVMSG #key :{prefix.decode()}"),
        on_closed=lambda reason: None,
        on_received=lambda lines: None,
    )
    keyed.open()
    await deferToThread(oper.wait_for, b"^:keyed!.* JOIN :?#key")
    keyed.close("the test is over")
    await until(lambda: not keyed.server)


@pytest_twisted.ensureDeferred
async def test_irc_over_tls_accepts_a_configured_trust_root(
    start_ircd: StartIrcd, irc_stranger: JoinIrc, active: Callable[..., Active], certified: tuple[Path, Path]
) -> None:
    certificate, key = certified
    ircd = start_ircd("ngircd", (certificate, key))
    stranger = await deferToThread(irc_stranger, ircd, "anna", "#c")
    bot = active(f"tls:127.0.0.1:{ircd.tls_port}:trustRoots={certificate.parent}")
    await bot.is_told("opened")
    for number in range(100):
        bot.connection.say(b"PRIVMSG #c :%d" % number)
    assert len(await deferToThread(stranger.wait_for, b" PRIVMSG #c :", 100)) == 100
    stranger.say("PRIVMSG #c :hi")
    await bot.has_lines(b" PRIVMSG #c :hi")
    assert await bot.close() == "the test is over"
    trusting_nobody = active(f"tls:127.0.0.1:{ircd.tls_port}", nick="other")
    assert "opened" not in await trusting_nobody.is_told("closed")


@pytest.mark.soak(seconds=60)
@pytest.mark.parametrize("kind", ["ngircd", "inspircd", "ircd-hybrid"])
@pytest_twisted.ensureDeferred
async def test_throttling_irc_server_is_not_considered_silent(
    kind: str, start_ircd: StartIrcd, irc_stranger: JoinIrc
) -> None:
    ircd = start_ircd(kind, holds_back=True)
    stranger = await deferToThread(irc_stranger, ircd, "anna", "#c")
    node = HydraService(
        HydraConfig(
            network_size=1,
            bootstrap=True,
            irc_rate=20.0,
            irc_burst=20,
            irc=IrcConfig((ircd.address,), "bot", (Channel("#c"),)),
            listen="tcp:0:interface=127.0.0.1",
            guardian=False,
        )
    )
    node.privilegedStartService()
    node.startService()
    try:
        # Enough lines to be throttled by each of the three servers.
        outcomes = await gatherResults([node.say(f"PRIVMSG #c :{number}") for number in range(20)])
        assert outcomes == [Outcome.SAID] * 20
        assert node.counters["irc_silent"] == 0
    finally:
        await node.stopService()
    heard = stranger.matching(rb" PRIVMSG #c :")
    assert [int(line.rpartition(b":")[2]) for line in heard] == list(range(20))


class End(Protocol):
    """One end of a link."""

    def __init__(self) -> None:
        self.data = b""
        self.lost: Failure | None = None

    @property
    def lines(self) -> list[bytes]:
        return self.data.split(b"\n")[:-1]

    def dataReceived(self, data: bytes) -> None:
        assert self.lost is None
        self.data += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        assert self.lost is None
        self.lost = reason

    async def is_lost(self) -> BaseException:
        await until(lambda: self.lost)
        assert self.lost is not None
        return self.lost.value


def dial(ircd: Ircd, nick: str, peer: str, clock: Any = reactor, **more: Any) -> Any:
    """Connect one end."""
    options = {"rate": 200.0, "max_ping": MAX_PING, **more}
    config = IrcLinkConfig(host="127.0.0.1", port=ircd.port, nick=nick, peer=peer, **options)
    endpoint = IrcEndpoint(clock, config)
    return endpoint.connect(Factory.forProtocol(End))


async def linked(ircd: Ircd, clock: Any = reactor, **more: Any) -> tuple[Any, Any]:
    """Connect both ends; the clock is that of the first."""
    ends = [dial(ircd, "ivan", "boris", clock, **more), dial(ircd, "boris", "ivan", **more)]
    for end in ends:
        end.addTimeout(DEADLINE, reactor)
    return (await ends[0], await ends[1])


async def is_off_irc(stranger: IrcStranger, nick: str) -> None:
    """Wait until the server has released a nick."""

    def is_off() -> bool:
        stranger.say(f"ISON {nick}")
        return any(line.endswith(b" :") for line in stranger.matching(b" 303 "))

    await until(is_off)


async def hang_up(*ends: Any) -> None:
    for end in ends:
        if end.lost is None:
            end.transport.loseConnection()
        await end.is_lost()


@pytest.mark.parametrize("secret", [None, b"sixteen bytes or more"])
@pytest.mark.parametrize("kind", KINDS)
@pytest_twisted.ensureDeferred
async def test_irc_link_delivers_all_data(kind: str, secret: bytes | None, start_ircd: StartIrcd) -> None:
    ircd = start_ircd(kind)
    ivan, boris = await linked(ircd, secret=secret)
    assert ivan.transport.getPeer().host == f"irc:{ircd.address}:boris"
    texts = [
        [b"%d " % number + NO_LINE_END * (4 if number % 50 == 7 else number % 2) for number in range(200)]
        for _ in range(2)
    ]
    assert max(map(len, texts[0])) > 1_000
    for mine, his in zip(*texts, strict=True):
        ivan.transport.write(mine + b"\n")
        boris.transport.write(his.upper() + b"\n")
    boris.transport.loseConnection()  # Only after all data was sent.
    await ivan.is_lost()
    assert ivan.lines == [his.upper() for his in texts[1]]
    await boris.is_lost()

    ivan, boris = await linked(ircd, secret=secret)  # The nicks are free at once.
    ivan.transport.write(b"hello again\n")
    await until(lambda: boris.lines)
    assert boris.lines == [b"hello again"]
    await hang_up(ivan, boris)


@pytest.mark.parametrize("kind", KINDS)
@pytest_twisted.ensureDeferred
async def test_irc_link_ends_when_its_peer_is_gone(
    kind: str, start_ircd: StartIrcd, irc_stranger: JoinIrc, skipping_clock: type[SkippingClock]
) -> None:
    ircd, clock = start_ircd(kind), skipping_clock()
    oper = await deferToThread(irc_stranger, ircd, "anna")
    oper.say("OPER root secret")
    await deferToThread(oper.wait_for, b" 381 ")
    ivan, boris = await linked(ircd, clock)
    oper.say(
        "NOTICE ivan :H1 0 1/1 YQ", "NOTICE ivan :H1 OVER x y", "PRIVMSG ivan :H1 0 1/1 YQ"
    )  # A message of any user.
    oper.say("KILL boris :enough")
    assert "enough" in str(await boris.is_lost())
    clock.skip(MAX_PING)  # It checks whether the other end is present.
    assert "no longer on IRC" in str(await ivan.is_lost())
    assert ivan.data == b""

    ivan, boris = await linked(ircd, clock)
    boris.transport.abortConnection()
    await boris.is_lost()
    await is_off_irc(oper, "boris")
    clock.skip(MAX_PING)  # The QUIT is lost if the server sees the abort before it has read it.
    reason = str(await ivan.is_lost())
    assert "cleanly: closed" in reason or "not on IRC" in reason

    ivan, boris = await linked(ircd)
    ircd.kill()
    await boris.is_lost()
    await ivan.is_lost()
    with pytest.raises(ConnectError, match="refused"):
        await dial(ircd, "ivan", "boris")


@pytest_twisted.ensureDeferred
async def test_taken_nick_of_an_irc_link_is_reported(start_ircd: StartIrcd, irc_stranger: JoinIrc) -> None:
    ircd = start_ircd("ngircd")
    await deferToThread(irc_stranger, ircd, "boris")
    with pytest.raises(ConnectError, match="the nick boris is refused"):
        await dial(ircd, "boris", "ivan")
    waiting = dial(ircd, "ivan", "boris")
    stranger = await deferToThread(irc_stranger, ircd, "anna")
    waiting.cancel()  # It leaves IRC.
    with pytest.raises(CancelledError):
        await waiting
    await is_off_irc(stranger, "ivan")
