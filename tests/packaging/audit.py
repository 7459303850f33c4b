"""Vulnerability check of this environment by pip-audit, for ``make audit``; a package without an answer fails it.

Exit status: 0 if no vulnerability is known, 1 if one is, 3 if the check was incomplete.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SERVICES = ("pypi", "osv")
"""Services of pip-audit, tried in order until one answers."""
OURS = "fyrehose-twisted"
KNOWN, UNKNOWN = 1, 3


def ask(service: str) -> dict[str, Any] | None:
    """Return the report of pip-audit, ``None`` without one."""
    command = [sys.executable, "-m", "pip_audit", "--local", "--format=json", "--progress-spinner=off"]
    done = subprocess.run([*command, f"--vulnerability-service={service}"], capture_output=True, text=True)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return None
    return report


def judge(report: dict[str, Any] | None, service: str) -> tuple[list[str], int]:
    """Return the text and the exit status for a report."""
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
    """Judge the report in a file, or run pip-audit. :return: the exit status."""
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
