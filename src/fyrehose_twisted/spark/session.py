"""Options, sessions and journal arguments of the Spark commands."""

from __future__ import annotations

import argparse
import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import glob
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fyrehose_twisted.errors import ConfigurationError, OperationalError
from fyrehose_twisted.process.secret import read_secret
from fyrehose_twisted.spark.errors import innermost_cause
from fyrehose_twisted.spark.java import java_home

# pyspark is imported when a session is wanted: this module is imported for `fyrehose-pipeline --help` too.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fyrehose_twisted.spark.source.journal_locations import JournalLocation

QUIET = "spark.fyrehose.quiet"
"""Configuration of a session without progress bars."""

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    # The default, INT96, is deprecated, and has statistics that nobody reads.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A batch between Java and Python has at most so many bytes, whatever a record has: 65 kB at the most.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 2**20),
}
"""What may be set while a session runs, and every session of ours has."""

_MASTER_PATTERN = re.compile(r"local(\[[^\]]+\])?|local-cluster\[[^\]]+\]|yarn|(spark|k8s)://.+")


def add_session_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that opens a session with :func:`spark_session`."""
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master", default="local[*]", metavar="URL", help="the cluster, such as spark://HOST:7077 [%(default)s]"
    )
    group.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_parse_setting,
        metavar="K=V",
        help="set Spark's K, such as spark.driver.memory=8g",
    )
    group.add_argument("--spark-log", action="store_true", help="show what Spark logs")
    group.add_argument("--quiet", action="store_true", help="show no progress")


def add_journal_options(parser: argparse.ArgumentParser, nargs: str = "+") -> None:
    """Add the arguments and options that :func:`locations_from_options` understands."""
    parser.add_argument(
        "journals",
        nargs=nargs,
        default=[],
        metavar="JOURNAL",
        help="[NAME=]PATH, a directory of journals, or [NAME=]HOST:PORT, a server of journals",
    )
    parser.add_argument("--stream", default="", metavar="URI", help="only that stream, or, with * at its end, those")
    parser.add_argument("--secret-file", metavar="FILE", help="file with the secret of the servers")


def locations_from_options(options: argparse.Namespace) -> list[JournalLocation]:
    """Return the journals that a user named.

    :raises ConfigurationError: if one is named twice, or the secret is not to be had.
    :raises JournalError: if there is none at a place, or none of the stream.
    :raises NotConnected: if a server cannot be reached.
    """
    from fyrehose_twisted.spark.source.journal_locations import (
        filter_by_stream,
        locations_in_path,
        locations_on_server,
        parse_server_address,
    )

    secret = read_secret(options.secret_file) if options.secret_file else None
    origins: list[JournalLocation] = []
    for text in options.journals:
        name, place = split_name(text)
        address = None if _exists(place) else parse_server_address(place)
        if address is None:
            # Workers may have another directory to start from, and the whole path is what they are told.
            origins += locations_in_path(place, name, directory=os.getcwd())
        else:
            origins += locations_on_server(place, secret, name=name)
    origins = filter_by_stream(origins, options.stream)
    seen: set[tuple[str, str]] = set()
    places: set[tuple[object, ...]] = set()
    for one in origins:
        place_of = (one.stream, one.path and os.path.realpath(one.path), one.server)
        if place_of in places:
            raise ConfigurationError(f"the journal {one.journal} of {one.stream} is given twice")
        if (one.journal, one.stream) in seen:
            raise ConfigurationError(
                f"two journals of {one.stream} are called {one.journal}; give each a name of its own"
            )
        seen.add((one.journal, one.stream))
        places.add(place_of)
    return origins


@contextmanager
def spark_session(name: str, options: argparse.Namespace | None = None) -> Iterator[SparkSession]:
    """Yield a session for the time of a command: one that runs already in this process, or else a new one.

    Of a session that was there, settings are put back in the end, and it goes on; a new one is stopped.

    :param name: what Spark calls the application.
    :param options: those of :func:`add_session_options`; what is not in them is as by default.
    :raises ConfigurationError: if there is no Spark or no Java, or a setting is not possible.
    :raises OperationalError: if the master cannot be reached.
    """
    given = vars(options) if options is not None else {}
    conf = dict(given.get("conf") or [])
    conf.setdefault(QUIET, str(bool(given.get("quiet"))).lower())
    require_spark()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None:
        session = make_session(name, given.get("master") or "local[*]", conf, log=bool(given.get("spark_log")))
        try:
            yield session
        finally:
            session.stop()
    else:
        with _temporary_settings(active, SETTINGS | conf):
            _register(active)
            yield active


def make_session(
    name: str, master: str = "local[*]", conf: dict[str, str] | None = None, *, log: bool = False
) -> SparkSession:
    """Start Spark and return a session in which the format ``fyrehose`` is registered.

    :param name: what Spark calls the application.
    :param master: where it runs.
    :param conf: settings that go before ours.
    :param log: whether Spark, and Python workers in local mode, may write to standard error as they do by themselves;
        otherwise they are silent, for what they fail with is raised.
    :raises ConfigurationError: if there is no Spark or no Java, they do not start, or ``master`` is none.
    :raises OperationalError: if the master cannot be reached.
    """
    require_spark()
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if not _MASTER_PATTERN.fullmatch(master):
        raise ConfigurationError(
            f"master {master!r} is none of local[N], spark://HOST:PORT, yarn and k8s://URL;"
            " a Spark Connect server (sc://) cannot be one"
        )
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    if is_local(master):
        settings |= _local_settings()
    if not log:
        logging = Path(str(files("fyrehose_twisted.spark") / "log4j2.properties")).as_uri()
        # They come before spark.driver.extraJavaOptions, so a user who names a file of his own has it.
        settings["spark.driver.defaultJavaOptions"] = f"-Dlog4j2.configurationFile={logging}"
    _prepare_environment(master, (conf or {}).get("spark.submit.pyFiles", ""))
    builder: Any = SparkSession.builder.appName(name).master(master)
    for key, value in (SETTINGS | settings | (conf or {})).items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise ConfigurationError("Spark's Java ended before it could be used; what it said stands above") from error
    except Exception as error:
        cause = innermost_cause(str(error))
        if "stopped SparkContext" in cause:  # So it says if the master was lost while it started.
            cause = "it does not answer, or has ended the application"
        raise OperationalError(f"Spark does not start on {master}: {cause}") from error
    if not log:
        _silence(session)
    _register(session)
    return session


def is_local(master: str) -> bool:
    """Return whether a master URL stands for local threads."""
    return master == "local" or master.startswith("local[")


def _prepare_environment(master: str, shipped: str) -> None:
    """Say to Java and to the workers what they look for in the environment."""
    os.environ["JAVA_HOME"] = str(java_home())
    if shipped:
        # Spark leaves these out where it plans a stream, which it does in a worker on this machine.
        known = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([*shipped.split(","), *([known] if known else [])])
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # Else workers are whatever python3 the PATH has, which need not have this package.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


def _local_settings() -> dict[str, str]:
    # Spark would make the warehouse where the command was called.
    warehouse = tempfile.mkdtemp(prefix="fyrehose-warehouse-")
    atexit.register(shutil.rmtree, warehouse, ignore_errors=True)
    settings = {
        "spark.driver.memory": f"{_heap_megabytes()}m",
        # Spark's 200 are for clusters; each is a task, and most would have nothing to do.
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        "spark.sql.warehouse.dir": Path(warehouse).as_uri(),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    if "SPARK_LOCAL_DIRS" not in os.environ:
        settings["spark.local.dir"] = tempfile.gettempdir()  # Java does not know TMPDIR.
    return settings


def _heap_megabytes() -> int:
    """Return how much the Java that does all the work may take: a quarter of the memory, from 1 GiB to 4 GiB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return max(1_024, min(memory // 4, 4_096))


def _silence(session: SparkSession) -> None:
    """Keep off standard error what is neither Spark's log nor told by us."""
    from pyspark.logger import PySparkLogger

    # What pyspark raises it also logs.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    # Python workers that are stopped half way say so with a traceback. What Spark logs has been connected before.
    java: Any = session.sparkContext._jvm
    nowhere = java.java.io.OutputStream.nullOutputStream()
    java.java.lang.System.setErr(java.java.io.PrintStream(nowhere))


def require_spark() -> None:
    """Check that Spark and what Python needs for it are installed.

    :raises ConfigurationError: if not; it names the extra.
    """
    missing = []
    for module in ("pyspark", "pyarrow", "pandas"):
        try:
            __import__(module)
        except ImportError:
            missing.append(module)
    if missing:
        verb = "are" if len(missing) > 1 else "is"
        raise ConfigurationError(
            f"{', '.join(missing)} {verb} not installed; this needs: pip install 'fyrehose_twisted[spark]'"
        )


def _register(session: SparkSession) -> None:
    from fyrehose_twisted.spark import register

    register(session)


@contextmanager
def _temporary_settings(session: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    from pyspark.errors import AnalysisException

    before: dict[str, str | None] = {}
    try:
        for key, value in settings.items():
            if session.conf.get(key, None) == value:
                continue
            old = session.conf.get(key, None)
            try:
                session.conf.set(key, value)
            except AnalysisException:
                raise ConfigurationError(f"{key} can only be set before Spark starts, and here it runs") from None
            before[key] = old
        yield
    finally:
        for key, old in before.items():
            with suppress(Exception):  # It may have been stopped meanwhile.
                session.conf.unset(key) if old is None else session.conf.set(key, old)


def _exists(place: str) -> bool:
    return os.path.exists(place) or bool(glob(place))


def split_name(text: str) -> tuple[str, str]:
    """Split ``[NAME=]PLACE`` into name (or ``""``) and place."""
    name, equals, place = text.partition("=")
    # A directory of Parquet files may well be called day=1; what is there is meant.
    if not equals or not name or "/" in name or _exists(text):
        return "", text
    return name, place


def _parse_setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (equals and key.startswith("spark.")):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form spark.KEY=VALUE")
    return key, value
