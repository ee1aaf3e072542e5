"""The tortures in their short form: they hold, and each of them notices what it is there for."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork") or not Path("/proc/self/fd").exists(),
    reason="the tortures fork, and look into /proc",
)


def torture(directory: Path, *arguments: str, mutant: str = "") -> tuple[int, str, str]:
    """Run a torture; with a mutant, in a process in which something has been broken."""
    code = f"{textwrap.dedent(mutant)}\nfrom tools.torture.__main__ import main\nraise SystemExit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments, "--directory", str(directory)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def counts(summary: str) -> dict[str, int]:
    rows = (line.strip().partition(" ") for line in summary.splitlines()[1:])
    return {what: int(count) for count, _, what in rows}


@pytest.mark.parametrize(
    ("name", "cycles", "counted"),
    [
        ("kills", 30, {"kills": 30}),
        ("syscalls", 60, {"faults": 60}),
        ("strace", 15, {"faults": 15}),
        ("power", 1, {"rounds": 1}),
        ("readers", 40, {"rewrites": 40}),
        ("clients", 12, {"messages acknowledged": 96, "clients killed": 12}),
        ("nofile", 25, {}),
    ],
)
def test_it_holds(name: str, cycles: int, counted: dict[str, int], tmp_path: Path) -> None:
    code, out, err = torture(tmp_path, name, "--cycles", str(cycles))
    assert code == 0, out + err
    found = counts(out)
    skipped = [what for what in found if what.startswith("skipped: ")]
    if skipped:
        pytest.skip(skipped[0].removeprefix("skipped: "))
    assert {what: found.get(what) for what in counted} == counted
    assert not list(tmp_path.iterdir()), "something was left"


MUTANTS = {
    "an append that is not synced": (
        "power",
        """
        from mmapstore import fileio
        fileio.sync_data = lambda fd: None
        """,
        "acknowledged",
    ),
    "a rename that is not synced": (
        "power",
        """
        from mmapstore import fileio
        fileio.sync_directory = lambda path: None
        """,
        "acknowledged",
    ),
    "a sync whose failure is not told": (
        "syscalls",
        """
        import contextlib
        from mmapstore import fileio
        real = fileio.sync_data
        def sync_data(fd):
            with contextlib.suppress(OSError):
                real(fd)
        fileio.sync_data = sync_data
        """,
        "acknowledged although a call that it stands on has failed",
    ),
    "a descriptor that is not closed": (
        "syscalls",
        """
        import os
        from mmapstore import fileio
        real = fileio.sync_directory
        def sync_directory(path):
            real(path)
            os.open(path, os.O_RDONLY)
        fileio.sync_directory = sync_directory
        """,
        "a descriptor was left open",
    ),
    "an append that is not made": (
        "kills",
        """
        import mmapstore
        real = mmapstore.Host.append_messages
        def append_messages(host, session, messages, turn_id=None):
            return real(host, session, messages[:1], turn_id) * len(messages)
        mmapstore.Host.append_messages = append_messages
        """,
        "append",
    ),
    "a rewrite in place": (
        "readers",
        """
        from mmapstore import fileio
        def replace_durably(path, parts, *, like=None, before_rename=None):
            data = [bytes(part) for part in parts]
            if before_rename is not None:
                before_rename()
            with open(path, "wb") as file:
                for part in data:
                    file.write(part)
                    file.flush()
        fileio.replace_durably = replace_durably
        """,
        "",
    ),
}


@pytest.mark.parametrize("what", MUTANTS)
def test_it_notices(what: str, tmp_path: Path) -> None:
    name, mutant, said = MUTANTS[what]
    cycles = {"power": "4", "syscalls": "300"}.get(name, "60")
    code, out, err = torture(tmp_path, name, "--cycles", cycles, mutant=mutant)
    assert code == 1, f"{what} was not noticed: {out}{err}"
    assert said in err
    assert "DID NOT HOLD" in out
    assert "seed 1; what is left: " in out
    (left,) = tmp_path.iterdir()
    assert str(left) in out


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    code, _, err = torture(tmp_path, "nothing")
    assert code == 2
    assert "invalid choice" in err
