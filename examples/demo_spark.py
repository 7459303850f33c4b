"""Spark for the demo: runs commands of ``fyrehose-pipeline`` in sequence, in one session.

Each would start Spark anew, which takes longer than its work on so few messages. Standard input has the arguments of a
command on each line, as a shell takes them; the answer is a line of JSON with its exit status and what it printed.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from contextlib import redirect_stdout
from io import StringIO

from fyrehose_twisted.spark.cli import main
from fyrehose_twisted.spark.session import make_session

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "4",
    # Most of a short run would go into compiling what runs a few times only.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
    f" -Djava.io.tmpdir={tempfile.gettempdir()}",
}


def run(line: str) -> dict[str, object]:
    """Run a command; return its exit status and output."""
    printed = StringIO()
    with redirect_stdout(printed):
        try:
            main(shlex.split(line))
        except SystemExit as ended:
            return {"status": ended.code or 0, "printed": printed.getvalue()}
    raise AssertionError("it always exits")


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # Whatever Java prints goes to the log.
    session = make_session("demo", conf=SETTINGS)
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(run(line)), file=answers, flush=True)
    session.stop()
