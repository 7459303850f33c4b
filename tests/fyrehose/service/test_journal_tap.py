"""Options of ``twistd fyrehose-journal`` and their one-line errors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from twisted.python.usage import UsageError

from fyrehose_twisted.fyrehose.config import Start
from fyrehose_twisted.fyrehose.protocol.journal import JournalProtocol
from fyrehose_twisted.fyrehose.service import journal_tap
from fyrehose_twisted.fyrehose.service.journal import JournalService
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import JournalConfig, open_journal

SECRET = b"a secret that is long enough"
STREAM = "fyrehose://default"


class OfOurs(JournalProtocol):
    """A protocol of an application."""


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text, mode in (("secret", SECRET, 0o600), ("open", SECRET, 0o644), ("short", b"short", 0o600)):
        (tmp_path / name).write_bytes(text)
        (tmp_path / name).chmod(mode)
    return tmp_path


def options_of(text: str) -> Any:
    options = journal_tap.Options()
    options.parseOptions(text.split())
    return options


def service_of(text: str) -> JournalService:
    service: Any = journal_tap.makeService(options_of(text))
    return service  # type: ignore[no-any-return]


def refusal_of(text: str) -> str:
    with pytest.raises(SystemExit) as refused:
        service_of(text)
    said = str(refused.value)
    assert "\n" not in said
    return said


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("", r"--directory DIR is required"),
        ("-d d --name A", r"--name 'A': use lower-case letters"),
        ("-d d --name ../x", r"--name '../x': use lower-case letters"),
        ("-d d --backbone here", r"'here' is not HOST:PORT, such as 127.0.0.1:2323"),
        ("-d d --from then", r"start position 'then' is not live, oldest or a number"),
        ("-d d --from 0", r"start at number 0; numbers go from 1 to 281474976710655"),
        ("-d d --interface localhost", r"--interface 'localhost' is not an IP address"),
        ("-d d --interface [::1]", r"--interface '\[::1\]' is not an IP address"),
        ("-d d --port banana", r"--port 'banana' is not a whole number"),
        ("-d d --port 65536", r"--port 65536 is outside 0 to 65535"),
        ("-d d --retention much", r"retention 'much'; use 7d, 50GB or 7d,50GB"),
        ("-d d --retention 7d,8d", r"retention '7d,8d'; use 7d, 50GB or 7d,50GB"),
        ("-d d --retention 0s", r"a retention of 0.0 s is out of range; it must be above 0"),
        ("-d d --fsync soon", r"--fsync 'soon': choose batch, or an interval of 0.001 to 3600 s"),
        ("-d d --fsync nan", r"--fsync 'nan': choose batch"),
        ("-d d --fsync 0", r"--fsync '0': choose batch"),
        ("-d d --fsync -1", r"--fsync '-1': choose batch"),
        ("-d d --fsync 3601", r"--fsync '3601': choose batch"),
        ("-d d --secret-file none", r"secret file none cannot be read: No such file"),
        ("-d d --secret-file short", r"secret file short: the secret has 5 bytes; it needs at least 16"),
        ("-d d --serve-secret-file secret", r"--serve-secret-file requires --serve ENDPOINT"),
        ("-d d --serve tcp:0 --serve-secret-file open", r"secret file open is accessible to all users; chmod 600 it"),
        ("-d d --protocol no.Where", r"--protocol no.Where cannot be imported"),
        (
            "-d d --protocol fyrehose_twisted.fyrehose.protocol.client.SubscriberProtocol",
            r"SubscriberProtocol is not a subclass of .*JournalProtocol",
        ),
    ],
)
def test_invalid_journal_options_are_reported_in_one_line(arguments: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as refused:
        options_of(arguments)
    assert "\n" not in str(refused.value)


def test_journal_options_have_defaults() -> None:
    options = options_of("-d journals")
    assert options["directory"] == Path.cwd() / "journals"
    assert options["config"].start is Start.OLDEST
    assert options["config"].secret is None
    assert options["journal-config"] == JournalConfig()
    assert options["sync-interval"] is None
    assert options["class"] is JournalProtocol
    service = service_of("-d journals")
    assert service.backbone == "127.0.0.1:2323"
    assert not Path("journals").exists(), "no directory is created before privileges are dropped"


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        ("--fsync batch", "sync-interval", None),
        ("--fsync 0.2", "sync-interval", 0.2),
        ("--fsync 3600", "sync-interval", 3_600.0),
        ("--retention 7d", "journal-config", JournalConfig(retention=Retention(seconds=604_800))),
        ("--retention 1h,50GB", "journal-config", JournalConfig(retention=Retention(3_600, 50 * 10**9))),
        ("--retention 8MB", "journal-config", JournalConfig(10**6, retention=Retention(size=8 * 10**6))),
        ("--retention 1kB", "journal-config", JournalConfig(65_536, retention=Retention(size=1_000))),
        ("--serve tcp:0 --serve-secret-file secret", "serve-secret", SECRET),
        ("--port 2324", "port", 2_324),
        ("--interface 127.0.0.2", "interface", "127.0.0.2"),
    ],
)
def test_journal_options_are_parsed(arguments: str, name: str, value: object) -> None:
    assert options_of(f"-d d {arguments}")[name] == value


@pytest.mark.parametrize(("text", "start"), [("live", Start.LIVE), ("oldest", Start.OLDEST), ("7", 7)])
def test_the_start_option_of_a_new_journal_is_parsed(text: str, start: Start | int) -> None:
    config = options_of(f"-d d --from {text} --secret-file secret")["config"]
    assert config.start == start
    assert config.secret == SECRET


def test_the_protocol_option_names_an_application_class() -> None:
    name = "fyrehose_twisted.fyrehose.protocol.journal.JournalProtocol"
    assert options_of(f"-d d --protocol {name}")["class"] is JournalProtocol


def test_an_unwritable_journal_directory_is_refused(in_tmp_path: Path) -> None:
    (in_tmp_path / "file").write_bytes(b"")
    because = f"cannot be written: {in_tmp_path}/file is not a writable directory"
    assert refusal_of("-d file") == f"fyrehose-journal: --directory {in_tmp_path}/file {because}"
    assert refusal_of("-d file/sub/sub") == f"fyrehose-journal: --directory {in_tmp_path}/file/sub/sub {because}"


def test_an_unsearchable_journal_directory_is_refused(in_tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = in_tmp_path / "locked"
    locked.mkdir()
    looking = os.stat

    # Simulated, since root may search every directory.
    def stat(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        if str(path).startswith(f"{locked}/"):
            raise PermissionError(13, "Permission denied")
        return looking(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(locked))
    because = f"cannot be written: {locked} is not a writable directory"
    assert refusal_of("-d locked/sub") == f"fyrehose-journal: --directory {locked}/sub {because}"


def test_a_journal_in_use_by_another_writer_is_refused(in_tmp_path: Path) -> None:
    journal = open_journal(in_tmp_path / "d", STREAM)
    assert refusal_of("-d d") == (
        f"fyrehose-journal: {in_tmp_path}/d/fyrehose-default is in use by another process that writes to it"
    )
    assert service_of("-d d --name other")
    journal.close()
    assert service_of("-d d")


def test_a_journal_that_cannot_be_locked_is_refused(in_tmp_path: Path) -> None:
    (in_tmp_path / "d" / "fyrehose-default" / "lock").mkdir(parents=True)
    assert refusal_of("-d d") == f"fyrehose-journal: {in_tmp_path}/d/fyrehose-default cannot be locked: Is a directory"


@pytest.mark.parametrize("serve", ["tcp:0:interface=0.0.0.0", "tcp:2324:interface=192.0.2.1"])
def test_serving_readers_on_other_interfaces_requires_a_secret(serve: str) -> None:
    assert refusal_of(f"-d d --serve {serve}") == (
        f"fyrehose-journal: {serve!r} is not on loopback, so any host could read the journals; give a secret"
    )
    assert service_of(f"-d d --serve {serve} --serve-secret-file secret")


def test_serving_readers_on_loopback_requires_no_secret() -> None:
    assert service_of("-d d --serve tcp:0")
    assert service_of("-d d --serve unix:its.socket")
    assert refusal_of("-d d --serve nonsense:1").startswith("fyrehose-journal: 'nonsense:1' is not an endpoint")
