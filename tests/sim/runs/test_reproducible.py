"""Equal traces of equal seeds in any process."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from fyrehose_twisted.cli.main import _scenarios

SEEDS = {"fyrehose.journals": 1, "hydra.carriers": 1}
"""Seeds of scenarios other than 0, whose runs print a disk or in which a guardian has several links."""

PROGRAM = """
import json
import sys
from hashlib import sha256
from io import StringIO

from fyrehose_twisted.cli.main import _scenarios

seeds = json.loads(sys.argv[1])
for scenario in _scenarios():
    brief = {"duration": min(45.0, scenario.duration), "settle_timeout": 5.0}
    if scenario.name.startswith("fyrehose."):
        # As many faults as in a whole run, for clients that are there from the beginning.
        brief |= {"messages": 100, "profiles": tuple(role for role in scenario.profiles if not role.start_delay)}
    out = StringIO()
    type(scenario.__name__, (scenario,), brief)(seeds.get(scenario.name, 0)).run(out)
    trace = out.getvalue()
    print(json.dumps([scenario.name, trace.count("\\n"), sha256(trace.encode()).hexdigest()]))
"""


def start(hash_seed: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM, json.dumps(SEEDS)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_each_scenario_gives_equal_traces_whatever_the_hash_seed() -> None:
    processes = [start("1"), start("2")]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    one, other = ([json.loads(line) for line in output.splitlines()] for output in outputs)
    assert [name for name, _, _ in one] == [scenario.name for scenario in _scenarios()]
    assert all(lines > 100 for _, lines, _ in one)
    assert [name for (name, *trace), (_, *another) in zip(one, other, strict=True) if trace != another] == []
