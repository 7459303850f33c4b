"""Small files and directories on any file system of Spark: local, HDFS or object store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.spark.connect import require_classic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Files:
    """Files below one directory, accessed through Spark's Hadoop file system.

    Names are relative to the directory, with ``/`` as separator. Failures raise Py4J errors.

    :raises ConfigurationError: if the session is one of Spark Connect.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        require_classic(spark, "the pipeline")
        session: Any = spark
        self._jvm = session._jvm
        self._gateway = session.sparkContext._gateway
        self._conf = session._jsparkSession.sessionState().newHadoopConf()
        self._hadoop = self._jvm.org.apache.hadoop.fs
        given = self._hadoop.Path(root)
        self._system = given.getFileSystem(self._conf)
        self._root = given.makeQualified(self._system.getUri(), self._system.getWorkingDirectory())

    def path(self, name: str = "") -> str:
        """Return the full path for Spark."""
        return str(self._hadoop_path(name).toString())

    def exists(self, name: str) -> bool:
        """Return whether a file or directory exists."""
        return bool(self._system.exists(self._hadoop_path(name)))

    def list(self, name: str) -> list[str]:
        """List the names in a directory, sorted; empty if the directory does not exist."""
        if not self.exists(name):
            return []
        return sorted(str(status.getPath().getName()) for status in self._system.listStatus(self._hadoop_path(name)))

    def delete(self, name: str) -> None:
        """Delete a file, or a directory recursively, if it exists."""
        self._system.delete(self._hadoop_path(name), True)

    def read_text(self, name: str) -> str | None:
        """Return the text of a file; ``None`` if the file does not exist."""
        if not self.exists(name):
            return None
        stream = self._system.open(self._hadoop_path(name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write_text(self, name: str, text: str) -> None:
        """Replace a file atomically; readers see either the old or the new content."""
        temporary = self._hadoop_path(f"{name}.tmp")
        stream = self._system.create(temporary, True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        rename = self._hadoop.Options.Rename
        how = self._gateway.new_array(rename, 1)
        how[0] = rename.OVERWRITE
        context = self._hadoop.FileContext.getFileContext(self._root.toUri(), self._conf)
        context.rename(temporary, self._hadoop_path(name), how)

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return the object in a JSON file; ``None`` if the file does not exist.

        :raises StateFileError: if the file does not hold a JSON object.
        """
        text = self.read_text(name)
        if text is None:
            return None
        try:
            mark = json.loads(text)
        except ValueError:
            mark = None
        if not isinstance(mark, dict):
            raise StateFileError(f"{self.path(name)} is not a JSON object: only the pipeline may write this file")
        return mark

    def write_json(self, name: str, value: dict[str, Any]) -> None:
        """Replace a file with an object as JSON, atomically like :meth:`write_text`."""
        self.write_text(name, json.dumps(value, sort_keys=True))

    def _hadoop_path(self, name: str) -> Any:
        return self._hadoop.Path(self._root, name) if name else self._root
