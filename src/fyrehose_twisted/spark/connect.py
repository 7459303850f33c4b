"""Sessions of Spark Connect, whose Spark runs in a server, without access to Java or to the Spark context."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fyrehose_twisted.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VARIABLES = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""Environment variables with which PySpark uses Spark Connect. PySpark sets the second itself for such a session."""


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect."""
    # The class cannot be imported without grpcio.
    return any(kind.__module__.startswith("pyspark.sql.connect.") for kind in type(spark).__mro__)


def require_classic(spark: SparkSession, call: str) -> None:
    """Check that a session is classic.

    :param call: the call that requires it, for the message.
    :raises ConfigurationError: if the session is one of Spark Connect.
    """
    if is_connect(spark):
        raise ConfigurationError(
            f"{call} requires a classic Spark session, not Spark Connect: run it in another process, with the master"
            " of the Spark cluster instead of the Connect server, such as --master spark://HOST:7077"
        )


def require_classic_environment() -> None:
    """Check that PySpark starts classic sessions in this process.

    :raises ConfigurationError: if an environment variable selects Spark Connect.
    """
    for name in _VARIABLES:
        if name in os.environ:
            raise ConfigurationError(
                f"{name}={os.environ[name]} selects Spark Connect, which this command does not support: unset {name},"
                " and name the master of a Spark cluster with --master"
            )
