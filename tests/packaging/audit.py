"""Asks pip-audit about everything in this environment, for ``make audit``. What nobody was told about is not fine.

Exit status: 0 if no vulnerability is known, 1 if one is, 3 if that could not be found out.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SERVICES = ("pypi", "osv")
"""Those that pip-audit knows to ask, until one has answered."""
OURS = "fyrehose-twisted"
KNOWN, UNKNOWN = 1, 3


def ask(service: str) -> dict[str, Any] | None:
    """Return the report of pip-audit, ``None`` if it has none."""
    command = [sys.executable, "-m", "pip_audit", "--local", "--format=json", "--progress-spinner=off"]
    done = subprocess.run([*command, f"--vulnerability-service={service}"], capture_output=True, text=True)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return None
    return report


def judge(report: dict[str, Any] | None, service: str) -> tuple[list[str], int]:
    """Return what to say of a report, and the exit status."""
    if report is None:
        return [f"make audit: {service} does not answer, so nothing is known of vulnerabilities."], UNKNOWN
    asked = [found for found in report["dependencies"] if found["name"] != OURS]
    known = [
        f"{found['name']} {found['version']}: {each['id']}, fixed in {', '.join(each['fix_versions']) or 'no version'}"
        for found in asked
        for each in found.get("vulns", ())
    ]
    silent = [found["name"] for found in asked if "skip_reason" in found]
    if known:
        unanswered = f"; of {len(silent)} packages nothing is known" if silent else ""
        return [*known, f"make audit: {len(known)} vulnerabilities are known{unanswered}."], KNOWN
    if silent or not asked:
        names = ", ".join(silent[:3]) + (", ..." if len(silent) > 3 else "")
        return [
            f"make audit: {service} says nothing of {len(silent)} of {len(asked)} packages ({names}),"
            " so it is not known whether they have vulnerabilities."
        ], UNKNOWN
    return [f"make audit: {service} knows of no vulnerability in {len(asked)} packages."], 0


def main(arguments: list[str]) -> int:
    """Judge the report in a file, or ask for one. :return: the exit status."""
    if arguments:
        lines, status = judge(json.loads(Path(arguments[0]).read_text()), "pypi")
    else:
        for service in SERVICES:
            lines, status = judge(ask(service), service)
            if status != UNKNOWN:
                break
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
