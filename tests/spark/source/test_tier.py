"""Spark reads journals whose segments are in object storage, on the driver and on executors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from suite.object_storage import s3_server, storage_environment

from fyrehose_twisted.journal.store import JournalConfig, open_journal
from fyrehose_twisted.record import Record

pytestmark = pytest.mark.extended

STREAM, COUNT = "fyrehose://test", 500
PROGRAM = """
import json, os, sys
from fyrehose_twisted.spark import register
from fyrehose_twisted.spark.session import make_session
spark = make_session("tier", "local-cluster[2,1,1024]", {"spark.driver.memory": "1g", "spark.executor.memory": "512m"})
register(spark)
rows = spark.read.format("fyrehose").option("path", sys.argv[1]).option("rowsPerPartition", "100").load()
found = rows.selectExpr("count(*)", "count(distinct sequence)", "sum(sequence)", "max(cast(payload as string))")
print(json.dumps([*found.collect()[0], rows.rdd.getNumPartitions()]))
spark.stop()
"""


def test_executors_of_a_cluster_read_segments_from_object_storage(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, STREAM, config=JournalConfig(segment_bytes=3_000, frame_records=16))
    for number in range(1, COUNT + 1):
        journal.append([Record(STREAM, 0, number, number * 1_000_000, b"%06d" % number)])
        journal.commit(sync=False)
    journal.compact()
    journal.close()
    path = tmp_path / "fyrehose-test"
    environment = {**storage_environment(), "PYSPARK_PYTHON": sys.executable}
    with s3_server() as server:
        # In a process of its own, so that this one opens no client that outlives the test.
        move = [
            sys.executable,
            "-c",
            "from fyrehose_twisted.cli.main import main; main()",
            "journal",
            "tier",
            str(path),
        ]
        subprocess.run([*move, "--to", server.url], env=environment, check=True, stdout=subprocess.PIPE)
        assert not list(path.glob("*.seg"))
        assert len(server.list_objects()) > 3
        read = [sys.executable, "-c", PROGRAM, str(path)]
        done = subprocess.run(read, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    *figures, partitions = json.loads(done.stdout.splitlines()[-1])
    assert figures == [COUNT, COUNT, COUNT * (COUNT + 1) // 2, f"{COUNT:06d}"]
    assert partitions > 2
