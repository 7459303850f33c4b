"""Sessions, options and journal arguments of the Spark commands."""

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
from fyrehose_twisted.spark.connect import require_classic_environment
from fyrehose_twisted.spark.errors import innermost_cause
from fyrehose_twisted.spark.java import java_home

# pyspark is imported when a session is opened, because `fyrehose-pipeline --help` imports this module too.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fyrehose_twisted.spark.source.journal_locations import JournalLocation

QUIET = "spark.fyrehose.quiet"
"""Configuration key that disables the progress display of a session."""

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    # The default, INT96, is deprecated, and readers ignore its statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Limits batches between Java and Python by size, since the size of a record varies, up to 65 kB.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 2**20),
}
"""Settings of every session of the commands. All can be changed while a session runs."""

_MASTER_PATTERN = re.compile(r"local(\[[^\]]+\])?|local-cluster\[[^\]]+\]|yarn|(spark|k8s)://.+")


def add_session_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that opens a session with :func:`spark_session`."""
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master", default="local[*]", metavar="URL", help="Spark master, such as spark://HOST:7077 [%(default)s]"
    )
    group.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_parse_setting,
        metavar="K=V",
        help="set a Spark configuration key, such as spark.driver.memory=8g (repeatable)",
    )
    group.add_argument("--spark-log", action="store_true", help="show Spark's log")
    group.add_argument("--quiet", action="store_true", help="hide progress")


def add_journal_options(parser: argparse.ArgumentParser, nargs: str = "+") -> None:
    """Add the journal arguments and options parsed by :func:`locations_from_options`."""
    parser.add_argument(
        "journals",
        nargs=nargs,
        default=[],
        metavar="JOURNAL",
        help="[NAME=]PATH of a journal directory, or [NAME=]HOST:PORT of a journal server",
    )
    parser.add_argument("--stream", default="", metavar="URI", help="read only this stream; URI* matches a prefix")
    parser.add_argument("--secret-file", metavar="FILE", help="file with the shared secret of the journal servers")


def locations_from_options(options: argparse.Namespace) -> list[JournalLocation]:
    """Return the journals named on the command line.

    :raises ConfigurationError: if a journal is given twice, or the secret cannot be read.
    :raises JournalError: if a location holds no journal, or no journal is of the stream.
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
            # Workers may have another working directory, so they get absolute paths.
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
                f"two journals of {one.stream} are called {one.journal}: give them distinct names with NAME=JOURNAL"
            )
        seen.add((one.journal, one.stream))
        places.add(place_of)
    return origins


@contextmanager
def spark_session(name: str, options: argparse.Namespace | None = None) -> Iterator[SparkSession]:
    """Yield a session for the duration of a command: the active session of this process, or else a new one.

    On exit, the settings of an existing session are restored and it keeps running; a new session is stopped.

    :param name: Spark's name for the application.
    :param options: the options of :func:`add_session_options`; missing ones have their defaults.
    :raises ConfigurationError: if Spark or Java is missing, or a setting cannot be applied.
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

    :param name: Spark's name for the application.
    :param master: URL of the Spark master.
    :param conf: settings that override the defaults.
    :param log: let Spark, and Python workers in local mode, write to standard error. Otherwise they are silent; their
        failures are raised in any case.
    :raises ConfigurationError: if Spark or Java is missing or does not start, ``master`` is invalid, or an environment
        variable selects Spark Connect.
    :raises OperationalError: if the master cannot be reached.
    """
    require_spark()
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if not _MASTER_PATTERN.fullmatch(master):
        raise ConfigurationError(
            f"master {master!r} is none of local[N], spark://HOST:PORT, yarn and k8s://URL; the commands do not support"
            " Spark Connect servers (sc://): name the server's own master, or use read_journal in Python"
        )
    require_classic_environment()
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    if is_local(master):
        settings |= _local_settings()
    if not log:
        logging = Path(str(files("fyrehose_twisted.spark") / "log4j2.properties")).as_uri()
        # spark.driver.extraJavaOptions comes after these options, so a user's log configuration overrides ours.
        settings["spark.driver.defaultJavaOptions"] = f"-Dlog4j2.configurationFile={logging}"
    _prepare_environment(master, (conf or {}).get("spark.submit.pyFiles", ""))
    builder: Any = SparkSession.builder.appName(name).master(master)
    for key, value in (SETTINGS | settings | (conf or {})).items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise ConfigurationError("Spark's Java exited during startup: see its output above") from error
    except Exception as error:
        cause = innermost_cause(str(error))
        if "stopped SparkContext" in cause:  # Spark's message if it loses the master during startup.
            cause = "the master does not answer, or has ended the application"
        raise OperationalError(f"Spark does not start on {master}: {cause}") from error
    if not log:
        _silence(session)
    _register(session)
    return session


def is_local(master: str) -> bool:
    """Return whether a master URL denotes local mode."""
    return master == "local" or master.startswith("local[")


def _prepare_environment(master: str, shipped: str) -> None:
    """Set the environment variables that Java and the workers read."""
    os.environ["JAVA_HOME"] = str(java_home())
    if shipped:
        # Spark does not pass these files to the local worker in which it plans a stream.
        known = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([*shipped.split(","), *([known] if known else [])])
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # Workers would otherwise use the first python3 in PATH, which may lack this package.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


def _local_settings() -> dict[str, str]:
    # By default, Spark creates the warehouse in the working directory.
    warehouse = tempfile.mkdtemp(prefix="fyrehose-warehouse-")
    atexit.register(shutil.rmtree, warehouse, ignore_errors=True)
    settings = {
        "spark.driver.memory": f"{_heap_megabytes()}m",
        # Spark's default of 200 suits clusters: each partition is a task, and most would be empty.
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        "spark.sql.warehouse.dir": Path(warehouse).as_uri(),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    if "SPARK_LOCAL_DIRS" not in os.environ:
        settings["spark.local.dir"] = tempfile.gettempdir()  # Java ignores TMPDIR.
    return settings


def _heap_megabytes() -> int:
    """Return the heap size of the driver in MiB: a quarter of the memory, from 1 GiB to 4 GiB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return max(1_024, min(memory // 4, 4_096))


def _silence(session: SparkSession) -> None:
    """Suppress output on standard error that is neither Spark's log nor our own."""
    from pyspark.logger import PySparkLogger

    # pyspark also logs the errors that it raises.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    # Python workers stopped midway print a traceback. Spark's log already holds its own reference to standard error.
    java: Any = session.sparkContext._jvm
    nowhere = java.java.io.OutputStream.nullOutputStream()
    java.java.lang.System.setErr(java.java.io.PrintStream(nowhere))


def require_spark() -> None:
    """Check that pyspark and the packages it needs are installed.

    :raises ConfigurationError: if one is missing; the message names the extra to install.
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
            f"{', '.join(missing)} {verb} not installed: run pip install 'fyrehose_twisted[spark]'"
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
                raise ConfigurationError(f"{key} can only be set before Spark starts; Spark is running") from None
            before[key] = old
        yield
    finally:
        for key, old in before.items():
            with suppress(Exception):  # The session may have been stopped meanwhile.
                session.conf.unset(key) if old is None else session.conf.set(key, old)


def _exists(place: str) -> bool:
    return os.path.exists(place) or bool(glob(place))


def split_name(text: str) -> tuple[str, str]:
    """Split ``[NAME=]LOCATION`` into name (or ``""``) and location."""
    name, equals, place = text.partition("=")
    # A directory of Parquet files may be called day=1, so an existing path is never split.
    if not equals or not name or "/" in name or _exists(text):
        return "", text
    return name, place


def _parse_setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (equals and key.startswith("spark.")):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form spark.KEY=VALUE")
    return key, value
