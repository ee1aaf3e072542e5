"""The library beside what a user would pick instead, over the same files in one run.

    python -m asv_bench.peers [--quick] [--data DIR] [--json]

Every peer answers the same questions, and its answers are compared with the library's
before anything is measured: who answers something else is not measured. A peer may
keep whatever its library keeps by itself between two calls, and is then asked, as the
library is, whether the file has changed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import mmapstore

from . import data
from .measure import WINDOW_COUNT, interleave
from .opponents import OPPONENTS
from .tasks import UnfitError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .tasks import Task

#: the questions, in the order of the columns
QUESTIONS = {
    "newest cold": f"from the path to the newest {WINDOW_COUNT} messages, decoded",
    "newest warm": "the same, asked again",
    "id cold": "from the path to the last message with an id, decoded",
    "id warm": "the same, asked again",
    "kinds": "how many lines of each kind",
}

_FILES = ("records-small", "records-large")


class Comparison:
    """All opponents over one file.

    Attributes
    ----------
    ms : dict of str to dict of str to float
        By opponent and question; a question that an opponent has no answer to is left out.
    refused : dict of str to str
        Opponents that were not measured, and why.
    """

    def __init__(self, path: Path, directory: Path, rounds: int) -> None:
        wanted = wanted_id(path)
        self.ms: dict[str, dict[str, float]] = {}
        self.refused: dict[str, str] = {}
        tasks: dict[str, dict[str, Task]] = {}
        for name, prepare in OPPONENTS.items():
            try:
                tasks[name] = prepare(path, wanted, directory)
            except (ImportError, UnfitError) as error:
                self.refused[name] = str(error)
        for question in QUESTIONS:
            self._ask(question, tasks, rounds)

    def _ask(self, question: str, tasks: dict[str, dict[str, Task]], rounds: int) -> None:
        expected = tasks["mmapstore"][question].answer()
        contenders = {}
        for name, asked in tasks.items():
            if question not in asked:
                continue
            answer = asked[question].answer()
            if answer == expected:
                contenders[name] = asked[question].contender
            else:
                self.refused[f"{name}, {question}"] = f"answers {str(answer)[:60]}"
        samples = interleave(contenders, rounds)
        for name, ns in samples.items():
            self.ms.setdefault(name, {})[question] = min(ns) / 1e6


def wanted_id(path: Path) -> str:
    """Return the id that is asked for: the message in the middle of the file."""
    with mmapstore.open(path, cache_dir=None) as transcript:
        return transcript.message_id(transcript.message_count // 2)


def table(comparison: Comparison) -> str:
    """Return a comparison as lines of text, milliseconds in the cells."""
    width = max(map(len, comparison.ms))
    lines = [" " * width + "".join(f"{question:>14}" for question in QUESTIONS)]
    for name, ms in comparison.ms.items():
        cells = (f"{ms[q]:.3f}" if q in ms else "-" for q in QUESTIONS)
        lines.append(name.ljust(width) + "".join(f"{cell:>14}" for cell in cells))
    lines += [f"not measured: {name}: {why}" for name, why in comparison.refused.items()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare over the records' files, and print."""
    parser = argparse.ArgumentParser(prog="python -m asv_bench.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the smaller file, two rounds")
    parser.add_argument("--data", type=Path, help="where the measured files are kept")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of tables")
    chosen = parser.parse_args(arguments)
    files = data.Files(chosen.data or data.default_directory(), data.FULL)
    names, rounds = (_FILES[:1], 2) if chosen.quick else (_FILES, 4)
    compared = {name: Comparison(files.path(name), files.directory, rounds) for name in names}
    if chosen.json:
        print(json.dumps({name: vars(one) for name, one in compared.items()}, indent=1))
        return 0
    for question, meaning in QUESTIONS.items():
        print(f"{question:>12}: {meaning}")
    for name, comparison in compared.items():
        spec = data.FULL[name]
        print(
            f"\n{name}: {spec.messages:,} messages, {spec.nbytes / 1e6:.0f} MB; ms, least of {rounds}"
        )
        print(table(comparison))
    return 0


if __name__ == "__main__":
    sys.exit(main())
