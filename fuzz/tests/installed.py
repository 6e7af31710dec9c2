"""The project as a user has it: a wheel, in an environment of its own, beside what it needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Installed:
    """bin: the environment's scripts."""

    bin: Path

    def run(self, folder: Path, *words: str, timeout: float = 300.0) -> subprocess.CompletedProcess[str]:
        """A command in `folder`, as a user types it with the environment activated."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTEST", "PYTHON", "CI", "GITHUB", "COV"))
        }
        return subprocess.run(
            [str(self.bin / words[0]), *words[1:]],
            cwd=folder,
            env={**kept, "PATH": f"{self.bin}{os.pathsep}{kept['PATH']}", "COLUMNS": "200", "HOME": str(folder)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


def install(folder: Path) -> Installed:
    """Build the wheel of this checkout and install it under `folder`. A few seconds; no network."""
    source, env = folder / "source", folder / "env"
    source.mkdir()
    for name in ("kvcore", "reference", "properties", "fuzz"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "kvcore_fuzz.py"):
        shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    _do(*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder), str(source))
    (wheel,) = folder.glob("*.whl")
    _do(sys.executable, "-m", "venv", "--without-pip", str(env))
    python = env / "bin" / "python"
    _do(*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    # What it depends on is installed here already. A .pth inside that folder is not read, so that a checkout which is
    # installed there is not seen.
    (packages,) = (env / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    script = env / "bin" / "pytest"
    script.write_text(f"#!{python}\nimport sys\nfrom pytest import console_main\nsys.exit(console_main())\n")
    script.chmod(0o755)
    return Installed(env / "bin")


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
