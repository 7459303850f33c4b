"""URLs of object storage as Spark's file systems take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.tier.location import displayed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEMES = {"s3": "s3a"}
"""Schemes that Hadoop calls otherwise."""

_PACKAGES = {
    "s3a": "org.apache.hadoop:hadoop-aws",
    "abfs": "org.apache.hadoop:hadoop-azure",
    "abfss": "org.apache.hadoop:hadoop-azure",
}
"""Packages of Hadoop's own file systems, which have its version."""


def spark_path(url: str) -> str:
    """Return the path of an object for Spark.

    :raises ConfigurationError: if Spark cannot reach it.
    """
    parts = urlsplit(url)
    if "+" in parts.scheme:
        raise ConfigurationError(f"Spark cannot read {displayed(url)} by itself, as fsspec can: read without parquet=")
    return f"{_SCHEMES.get(parts.scheme, parts.scheme)}://{parts.netloc}{unquote(parts.path)}"


def hadoop_options(url: str) -> dict[str, str]:
    """Return the settings of a bucket that are in its URL, as Hadoop names them."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query))
    bucket, found = f"fs.s3a.bucket.{parts.netloc}", {}
    if "endpoint_override" in given:
        found[f"{bucket}.endpoint"] = f"{given.get('scheme', 'https')}://{given['endpoint_override']}"
        found[f"{bucket}.path.style.access"] = "true"
    if "region" in given:
        found[f"{bucket}.endpoint.region"] = given["region"]
    if "scheme" in given:
        found[f"{bucket}.connection.ssl.enabled"] = str(given["scheme"] == "https").lower()
    return found


def require_file_system(spark: SparkSession, url: str) -> None:
    """Check that Spark has the file system for a URL. With Spark Connect, the server checks when it reads.

    :raises ConfigurationError: if it has not; the message names what to add.
    """
    scheme = urlsplit(spark_path(url)).scheme
    session: Any = spark
    java = getattr(session, "_jvm", None)
    if java is None:
        return
    hadoop = java.org.apache.hadoop
    try:
        hadoop.fs.FileSystem.getFileSystemClass(scheme, session._jsparkSession.sessionState().newHadoopConf())
    except Exception:  # Py4J's, for one of Java's.
        package = _PACKAGES.get(scheme)
        if package is None:
            remedy = f"add the package with Hadoop's file system for {scheme}:// to spark.jars.packages"
        else:
            remedy = f"start Spark with spark.jars.packages={package}:{hadoop.util.VersionInfo.getVersion()}"
        raise ConfigurationError(
            f"Spark has no file system for {scheme}://, which it needs to read {displayed(url)} by itself: {remedy};"
            " or read without parquet=, then the source reads all records from the journal, from moved segments with"
            " pyarrow"
        ) from None
