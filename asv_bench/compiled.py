"""The compiled scan: built once with rustc, run as a program that times itself.

What it prints is its own time, so starting a process is no part of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

SOURCE_PATH = Path(__file__).with_name("compiled_scan") / "scan.rs"

#: the types whose lines are messages, by dialect
MESSAGE_TYPES = {"native": ("message",), "claude": ("user", "assistant")}


class UnavailableError(RuntimeError):
    """Is raised with the reason why there is no compiled scan here."""


@dataclass(frozen=True, slots=True)
class CompiledScan:
    """The program, ready to run."""

    program: Path

    def run(self, path: Path, message_types: Iterable[str], repetitions: int = 1) -> dict[str, Any]:
        """Return what it prints about a file: ``ns`` of each repetition, and the counts."""
        command = [str(self.program), str(path), str(repetitions), *message_types]
        done = subprocess.run(command, capture_output=True, check=True)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


def build(directory: Path) -> CompiledScan:
    """Return the compiled scan, which is built below `directory` if it is not there.

    Raises
    ------
    UnavailableError
        There is no rustc, or it failed.
    """
    rustc = shutil.which(os.environ.get("RUSTC") or "rustc")
    if rustc is None:
        message = "no rustc on the path"
        raise UnavailableError(message)
    about = subprocess.run([rustc, "-vV"], capture_output=True, check=False)
    digest = hashlib.sha256(SOURCE_PATH.read_bytes() + about.stdout).hexdigest()
    program = directory / "compiled_scan" / f"scan-{digest[:12]}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=program.parent) as scratch:
            built = Path(scratch) / "scan"
            # The edition is named because a bare rustc still takes the oldest one.
            command = [rustc, "--edition", "2021", "-O", "-o", str(built), str(SOURCE_PATH)]
            done = subprocess.run(command, capture_output=True, check=False)
            if done.returncode:
                message = f"rustc failed: {done.stderr.decode(errors='replace').strip()[:200]}"
                raise UnavailableError(message)
            built.replace(program)
    return CompiledScan(program)
