"""Install the storage server for tests that pip cannot: Azurite, into `.tools`; done once.

    python3 tools/install_servers.py

Needs node and npm; on Debian, as root, they are installed where they are missing.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".tools" / "azurite"
VERSION = "3.35.0"  # the last one for node 20, and the one whose conditional writes were tried
MAIN = FOLDER / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
STAMP = FOLDER / "installed"


def main() -> None:
    if STAMP.is_file() and STAMP.read_text() == VERSION and MAIN.is_file():
        return
    if shutil.which("node") is None or shutil.which("npm") is None:
        install_node()
    print(f"installing azurite {VERSION} into {FOLDER.relative_to(ROOT)}", flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    npm = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"]
    run([*npm, "--prefix", str(FOLDER), f"azurite@{VERSION}"])
    STAMP.write_text(VERSION)


def install_node() -> None:
    """Install Debian's node and npm."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        sys.exit(
            "the tests of Azure storage need node 18 or newer, with npm\n"
            "  Try: install nodejs and npm with the system's package manager"
        )
    apt = ["apt-get", "-y", "-q", "--no-install-recommends"]
    run([*apt, "update"])
    run([*apt, "install", "nodejs", "npm"])


def run(command: list[str]) -> None:
    """Run a command; say what went wrong if it fails, and end."""
    done = subprocess.run(
        command,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}")


if __name__ == "__main__":
    main()
