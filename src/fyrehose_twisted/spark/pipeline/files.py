"""Small files and directories wherever Spark writes: on this machine, on HDFS, in an object store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fyrehose_twisted.errors import StateFileError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Files:
    """Files below one directory, through the file system of Hadoop that Spark uses for it.

    Names are relative to the directory, with ``/`` between their parts. What fails raises an error of Py4J.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        session: Any = spark
        self._jvm = session._jvm
        self._gateway = session.sparkContext._gateway
        self._conf = session._jsparkSession.sessionState().newHadoopConf()
        self._hadoop = self._jvm.org.apache.hadoop.fs
        given = self._hadoop.Path(root)
        self._system = given.getFileSystem(self._conf)
        self._root = given.makeQualified(self._system.getUri(), self._system.getWorkingDirectory())

    def path(self, name: str = "") -> str:
        """Return the full name, which Spark understands."""
        return str(self._hadoop_path(name).toString())

    def exists(self, name: str) -> bool:
        """Return whether there is such a file or directory."""
        return bool(self._system.exists(self._hadoop_path(name)))

    def list(self, name: str) -> list[str]:
        """Return the names in a directory, sorted; none if there is no such directory."""
        if not self.exists(name):
            return []
        return sorted(str(status.getPath().getName()) for status in self._system.listStatus(self._hadoop_path(name)))

    def delete(self, name: str) -> None:
        """Delete a file, or a directory with all that is in it, if there is one."""
        self._system.delete(self._hadoop_path(name), True)

    def read_text(self, name: str) -> str | None:
        """Return what a file has, ``None`` if there is none."""
        if not self.exists(name):
            return None
        stream = self._system.open(self._hadoop_path(name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write_text(self, name: str, text: str) -> None:
        """Put a file in place of what is there. Whoever reads sees either the one or the other, whole."""
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
        """Return the object that a JSON file has, ``None`` if there is no such file.

        :raises StateFileError: if it has something else.
        """
        text = self.read_text(name)
        if text is None:
            return None
        try:
            mark = json.loads(text)
        except ValueError:
            mark = None
        if not isinstance(mark, dict):
            raise StateFileError(f"{self.path(name)} is no JSON object; nothing but the pipeline may write there")
        return mark

    def write_json(self, name: str, value: dict[str, Any]) -> None:
        """Write an object as JSON, as :meth:`write_text` does."""
        self.write_text(name, json.dumps(value, sort_keys=True))

    def _hadoop_path(self, name: str) -> Any:
        return self._hadoop.Path(self._root, name) if name else self._root
