"""Trial of a wheel where nothing of the checkout exists: ``python try_release.py WHEEL``.

The wheel is installed with its dependencies into a new virtual environment, in a bare system with nothing but Python
if there are root and debootstrap, and else on this system. Then ``first_run.py`` runs a service and its clients.
"""

from __future__ import annotations

import argparse
import configparser
import os
import re
import shutil
import subprocess
import tempfile
import venv
from pathlib import Path

FIRST_RUN = Path(__file__).with_name("first_run.py")

SUITE = "bookworm"
"""Release of Debian whose Python is the oldest that the library supports."""

PACKAGES = "python3,python3-venv,ca-certificates"

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fyrehose_twisted" / f"bare-{SUITE}"
"""The bare system, made once; each trial runs in a copy."""


def mirror() -> str | None:
    """Return the package mirror of this system, the one that its apt uses; ``None`` if there is none."""
    lists = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    texts = "\n".join(path.read_text(errors="replace") for path in lists if path.is_file())
    found = re.findall(r"^(?:deb(?: \[[^]]*\])? |URIs: *)(\S+)", texts, re.MULTILINE)
    return next((address for address in found if "security" not in address), None)


def missing() -> str | None:
    """Return why no bare system can be made here; ``None`` if it can."""
    if os.geteuid() != 0:
        return "this needs root"
    for program in ("debootstrap", "unshare", "chroot"):
        if shutil.which(program) is None:
            return f"{program} was not found"
    return None if mirror() else "apt names no mirror"


def make_bare_system() -> Path:
    """Return the bare system, after making it if there is none."""
    if not (CACHE / ".complete").exists():
        shutil.rmtree(CACHE, ignore_errors=True)
        CACHE.mkdir(parents=True)
        command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(CACHE), str(mirror())]
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{made.stdout[-2000:]}{made.stderr[-2000:]}")
        (CACHE / ".complete").touch()
    return CACHE


def copy_network_settings(root: Path) -> None:
    """Give a bare system the resolver, certificates and package index of this one."""
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    for name in ("etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt"):
        if (Path("/") / name).exists():
            shutil.copyfile(Path("/") / name, root / name)
    settings = configparser.ConfigParser(interpolation=None, strict=False)
    settings.read(["/etc/pip.conf", Path.home() / ".pip/pip.conf", Path.home() / ".config/pip/pip.conf"])
    for section in settings.values():
        # They name directories and files of this system.
        for name in ("find-links", "extra-index-url", "cert", "cache-dir"):
            section.pop(name, None)
    with open(root / "etc/pip.conf", "w", encoding="utf-8") as file:
        settings.write(file)


def run(command: list[str], cwd: Path, **variables: str) -> None:
    """Run a command, in an environment with nothing else, and end with its output if it fails."""
    proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8", **proxies, **variables}
    done = subprocess.run(command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        output = f"{done.stdout[-4000:]}{done.stderr[-4000:]}"
        raise SystemExit(f"{' '.join(command)}\nexited with status {done.returncode}:\n{output}")


def in_bare_system(wheel: Path, version: str) -> str:
    """Try the wheel in a copy of the bare system, whose mounts and processes end with the trial."""
    base = make_bare_system()
    with tempfile.TemporaryDirectory(prefix="bare-", dir=base.parent) as directory:
        root = Path(directory) / "root"
        subprocess.run(["cp", "--archive", str(base), str(root)], check=True)
        copy_network_settings(root)
        for file in (wheel, FIRST_RUN):
            shutil.copy(file, root / "srv" / file.name)
        script = (
            "set -e; mount -t proc proc /proc; mount -t tmpfs tmpfs /dev/shm 2>/dev/null || true; cd /srv; "
            "if python3 -c 'import twisted' 2>/dev/null; then echo 'Twisted is there already'; exit 1; fi; "
            f"python3 -m venv venv; venv/bin/python -m pip install --quiet --disable-pip-version-check ./{wheel.name}; "
            f"venv/bin/python {FIRST_RUN.name} {version}"
        )
        devices = "; ".join(
            f"touch {root}/dev/{name}; mount --bind /dev/{name} {root}/dev/{name}"
            for name in ("null", "zero", "random", "urandom")
        )
        chroot = f'{devices}; exec chroot {root} /bin/sh -c "$0"'
        namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        certificates = "/etc/ssl/certs/ca-certificates.crt"
        run([*namespaces, "/bin/sh", "-ec", chroot, script], root, HOME="/srv", PIP_CERT=certificates)
    return f"Debian {SUITE} with nothing but Python, made by debootstrap"


def in_environment(wheel: Path, version: str) -> str:
    """Try the wheel in an empty virtual environment of this system."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        venv.create(place / "venv", with_pip=True)
        python = str(place / "venv/bin/python")
        shutil.copy(FIRST_RUN, place)
        home = str(Path.home())
        run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)], place, HOME=home)
        run([python, FIRST_RUN.name, version], place, HOME=directory)
    return "an empty virtual environment of this system"


def main() -> None:
    """Read the arguments and try the wheel."""
    parser = argparse.ArgumentParser(prog="try_release.py", description="Install a wheel and run a service from it.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--in", dest="bare", choices=("auto", "bare-system", "environment"), default="auto")
    options = parser.parse_args()
    wheel = options.wheel.resolve()
    version = wheel.name.split("-")[1]
    reason = missing() if options.bare != "environment" else "as asked for"
    if reason and options.bare == "bare-system":
        raise SystemExit(f"no bare system can be made: {reason}")
    if reason:
        place = f"{in_environment(wheel, version)}, not in a bare one: {reason}"
    else:
        place = in_bare_system(wheel, version)
    print(f"Installed {wheel.name} and ran a backbone, a journal, a publisher and subscribers in {place}")


if __name__ == "__main__":
    main()
