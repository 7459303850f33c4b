"""Check of the limit on open files."""

from __future__ import annotations

from fyrehose_twisted.cli.doctor.finding import DoctorFinding, ok, unknown, warn, wrong

OPEN_FILES = "open files"

MIN_OPEN_FILES, RECOMMENDED_OPEN_FILES = 192, 1_024
"""A journal opens up to 128 files at once; a node accepts hundreds of connections by default."""


def assess_open_files(soft: int | None, hard: int | None) -> DoctorFinding:
    """Assess the limit on open files; ``None`` stands for unlimited.

    :param soft: limit in force.
    :param hard: limit up to which an unprivileged process may raise it.
    """
    if soft is None:
        return ok(OPEN_FILES, "a process may open any number")
    found = f"a process may open {soft:,}, and raise that to {'any number' if hard is None else f'{hard:,}'}"
    enough = hard is None or hard >= RECOMMENDED_OPEN_FILES
    advice = (
        f"ulimit -n {RECOMMENDED_OPEN_FILES}"
        if enough
        else f"as root: raise the hard limit to {RECOMMENDED_OPEN_FILES}"
    )
    advice += ", or LimitNOFILE= under systemd: each connection uses one file, a journal up to 128"
    if soft < MIN_OPEN_FILES:
        return wrong(OPEN_FILES, found, advice)
    if soft < RECOMMENDED_OPEN_FILES:
        return warn(OPEN_FILES, found, advice)
    return ok(OPEN_FILES, found)


def check_open_files() -> DoctorFinding:
    """Check the limit of this process. Other processes of the same session have the same limit."""
    try:
        import resource

        soft, hard = (
            None if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(resource.RLIMIT_NOFILE)
        )
    except (ImportError, OSError, ValueError) as error:
        return unknown(OPEN_FILES, error, "check with: ulimit -n")
    return assess_open_files(soft, hard)
