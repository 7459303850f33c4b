"""Worker process for one target: ``python -m fuzz.worker TARGET``. The command is :mod:`fuzz.run`.

With atheris, inputs with new coverage are kept. Without it inputs are mutated blindly from the seeds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from hashlib import sha1
from pathlib import Path
from random import Random

PATIENCE = 10
"""Seconds for one input; exceeding them is a finding."""
MEMORY = 1_024
"""Megabytes of the process; exceeding them is a finding."""


def options(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="fuzz.worker", description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--corpus", type=Path, required=True, help="directory of inputs")
    parser.add_argument("--findings", type=Path, required=True, help="directory for what is found")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without-atheris", action="store_true")
    return parser.parse_args(arguments)


def run_covered(asked: argparse.Namespace) -> None:
    """Fuzz with atheris, which exits the process."""
    import atheris

    with atheris.instrument_imports(include=["fyrehose_twisted"]):
        from fuzz.targets import load

        target = load(asked.target)
        _seed(asked.corpus, target.seeds())
    command = [
        "fuzz.worker",
        str(asked.corpus),
        f"-artifact_prefix={asked.findings}/",
        f"-max_len={target.longest}",
        f"-max_total_time={asked.seconds}",
        f"-seed={asked.seed}",
        f"-timeout={PATIENCE}",
        f"-rss_limit_mb={MEMORY}",
        "-print_final_stats=1",
        "-keep_seed=1",  # Coverage does not include json and cbor2, so their seeds would seem useless.
    ]
    atheris.Setup(command, target.one)
    atheris.Fuzz()


def run_blindly(asked: argparse.Namespace) -> int:
    """Fuzz without atheris, with progress output in the format of atheris. :return: the exit status."""
    from fuzz.mutation import mutated
    from fuzz.targets import load

    target = load(asked.target)
    _seed(asked.corpus, target.seeds())
    inputs = [path.read_bytes() for path in sorted(asked.corpus.iterdir())]
    rng = Random(asked.seed)
    began = told = time.monotonic()
    count = 0
    while (now := time.monotonic()) - began < asked.seconds:
        data = inputs[count] if count < len(inputs) else mutated(inputs, rng, target.longest)
        count += 1
        kind = "crash"
        try:
            target.one(data)
            if time.monotonic() - now > PATIENCE:
                kind = "timeout"
                raise TimeoutError(f"an input took {time.monotonic() - now:.1f} s")
        except Exception:
            (asked.findings / f"{kind}-{sha1(data, usedforsecurity=False).hexdigest()}").write_bytes(data)
            raise
        if now - told > 1:
            told = now
            print(f"#{count}\tpulse  corp: {len(inputs)}", file=sys.stderr)
    print(f"#{count}\tDONE  corp: {len(inputs)}", file=sys.stderr)
    return 0


def _seed(corpus: Path, seeds: Iterable[bytes]) -> None:
    corpus.mkdir(parents=True, exist_ok=True)
    for data in seeds:
        path = corpus / sha1(data, usedforsecurity=False).hexdigest()
        if not path.exists():
            path.write_bytes(data)


if __name__ == "__main__":
    asked = options(sys.argv[1:])
    asked.findings.mkdir(parents=True, exist_ok=True)
    if asked.without_atheris:
        sys.exit(run_blindly(asked))
    run_covered(asked)
