"""The library beside what a user would pick instead, over the same files in one run.

    python -m asv_bench.peers [--quick] [--data DIR] [--json [FILE]] [--plot FILE]
    python -m asv_bench.peers --from FILE [--plot FILE]

Every peer answers the same questions, and its answers are compared with the library's
before anything is measured: who answers something else is not measured. A peer may
keep whatever its library keeps by itself between two calls, and is then asked, as the
library is, whether the file has changed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import mmapstore

from . import data, machine, options
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
_LIBRARIES = (*machine.LIBRARIES, "msgspec", "polars", "duckdb", "pysimdjson")


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


def table(comparison: Comparison | SimpleNamespace) -> str:
    """Return a comparison as lines of text, milliseconds in the cells."""
    width = max(map(len, comparison.ms))
    lines = [" " * width + "".join(f"{question:>14}" for question in QUESTIONS)]
    for name, ms in comparison.ms.items():
        cells = (f"{ms[q]:.3f}" if q in ms else "-" for q in QUESTIONS)
        lines.append(name.ljust(width) + "".join(f"{cell:>14}" for cell in cells))
    lines += [f"not measured: {name}: {why}" for name, why in comparison.refused.items()]
    return "\n".join(lines)


def measured(files: data.Files, names: Sequence[str], rounds: int) -> dict[str, Any]:
    """Return the figures of all opponents over the named files, and what they stand on."""
    compared = {name: Comparison(files.path(name), files.directory, rounds) for name in names}
    specs = {name: files.specs[name] for name in names}
    return {
        "machine": machine.facts(_LIBRARIES),
        "rounds": rounds,
        "questions": QUESTIONS,
        "files": {
            name: {"messages": spec.messages, "nbytes": spec.nbytes} for name, spec in specs.items()
        },
        "compared": {name: vars(one) for name, one in compared.items()},
    }


def report(found: dict[str, Any]) -> str:
    """Return figures as text: the questions, a table a file, and the machine."""
    lines = [f"{question:>12}: {meaning}" for question, meaning in found["questions"].items()]
    for name, comparison in found["compared"].items():
        messages, nbytes = found["files"][name]["messages"], found["files"][name]["nbytes"]
        size = f"{messages:,} messages, {nbytes / 1e6:.0f} MB"
        lines += [f"\n{name}: {size}; ms, least of {found['rounds']}"]
        lines += [table(SimpleNamespace(**comparison))]
    return "\n".join([*lines, "", machine.sentence(found["machine"])])


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare over the records' files, print, and draw."""
    parser = options.parser("peers", __doc__, quick="only the smaller file, two rounds", kept=True)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the figures here, as SVG")
    chosen = parser.parse_args(arguments)
    if chosen.source:
        found = json.loads(chosen.source.read_text(encoding="utf-8"))
    else:
        files = data.Files(chosen.data or data.default_directory(), data.FULL)
        names, rounds = (_FILES[:1], 2) if chosen.quick else (_FILES, 8)
        found = measured(files, names, rounds)
    text = json.dumps(found, indent=1, ensure_ascii=False)
    if chosen.json:
        Path(chosen.json).write_text(text + "\n", encoding="utf-8")
    if chosen.plot:
        from . import plot_peers  # measuring needs nothing of what it draws with

        chosen.plot.write_text(plot_peers.draw(found), encoding="utf-8")
    print(text if chosen.json == "" else report(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
