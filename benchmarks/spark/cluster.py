"""A standalone cluster: a master and workers, each in a network namespace of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pyspark
from multicast.segment import Segment, address

from fyrehose_twisted.spark.java import java_home

PORT = 7077
PATIENCE = 60.0
STOP_SECONDS = 20.0


class Cluster:
    """Master and workers of one core each. The driver runs beside the master.

    :ivar master: URL of the master.
    :ivar enter: command that runs another one in the namespace of the master.
    :ivar conf: settings of a driver there.
    """

    def __init__(self, directory: Path, workers: int, memory: str) -> None:
        self.master = f"spark://{address(1)}:{PORT}"
        self.conf = {
            "spark.driver.host": address(1),
            "spark.driver.bindAddress": address(1),
            "spark.executor.memory": memory,
        }
        self._directory, self._processes = directory, list[subprocess.Popen[bytes]]()
        self._segment = Segment(workers, apart=False)
        self.enter = self._segment.sender.enter
        try:
            self._start("master", 1, "Master", "--port", str(PORT), said="I have been elected leader")
            for number in range(2, workers + 2):
                options = ("--cores", "1", "--memory", memory, "--work-dir", str(directory / f"work-{number}"))
                said = "Successfully registered with master"
                self._start(f"worker-{number}", number, "Worker", *options, self.master, said=said)
        except BaseException:
            self.close()
            raise

    @property
    def processes(self) -> list[int]:
        """Processes of the master and the workers, whose children are the executors."""
        return [one.pid for one in self._processes]

    def close(self) -> None:
        """Stop all processes, and remove the network."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            process.kill()
            process.wait()
        self._segment.close()

    def _start(self, name: str, number: int, kind: str, *options: str, said: str) -> None:
        namespace = (self._segment.sender, *self._segment.subscribers)[number - 1]
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": address(number),
        }
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        command = [*namespace.enter, str(program), f"org.apache.spark.deploy.{kind.lower()}.{kind}"]
        command += ["--host", address(number), "--webui-port", "0", *options]
        log = self._directory / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=self._directory)
        self._processes.append(process)
        until = time.monotonic() + PATIENCE
        while not re.search(said, log.read_text()):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the {name} did not start: {log.read_text()[-2_000:]}")
            time.sleep(0.1)
