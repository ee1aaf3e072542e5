"""Synthetic transcripts: the same bytes for the same seed, at any size.

A `Spec` says what to generate; `lines` streams it, `write` puts it in a file, `generate` returns it. As a
command: ``python -m tools.gen_synthetic OUT --messages 12000 --nbytes 129M``.

All content is made up: words are drawn letter by letter, images are noise.

>>> from tools.gen_synthetic import Spec, generate
>>> transcript = generate(Spec(messages=3, nbytes=4_000, seed=7))
>>> len(transcript), transcript.count(b'"type":"message"')
(4000, 3)
"""

from .output import write, write_to
from .spec import (
    DAMAGE_KINDS,
    MILLION,
    PRESETS,
    RECORDS_LARGE,
    RECORDS_SMALL,
    SHORT_LINES,
    Spec,
)
from .stream import generate, lines

__all__ = [
    "DAMAGE_KINDS",
    "MILLION",
    "PRESETS",
    "RECORDS_LARGE",
    "RECORDS_SMALL",
    "SHORT_LINES",
    "Spec",
    "generate",
    "lines",
    "write",
    "write_to",
]
