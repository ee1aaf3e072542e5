"""What to generate: one value that decides every byte of a transcript.

Invariant: equal specs give equal bytes; a spec that no transcript can meet raises ValueError when it is
made, or, if only its size is impossible, when its generation starts.
"""

from dataclasses import dataclass
from typing import Final, Literal

Shape = Literal["native", "claude", "codex", "pi"]
KeyOrder = Literal["first", "last", "middle"]
DamageKind = Literal[
    "truncated", "nul_run", "glued", "invalid_utf8", "bare_word", "not_object", "blank"
]

SHAPES: Final[tuple[Shape, ...]] = ("native", "claude", "codex", "pi")
KEY_ORDERS: Final[tuple[KeyOrder, ...]] = ("first", "last", "middle")
DAMAGE_KINDS: Final[tuple[DamageKind, ...]] = (
    "truncated",
    "nul_run",
    "glued",
    "invalid_utf8",
    "bare_word",
    "not_object",
    "blank",
)
#: A message's moment has this many places for the extra lines of one sort that follow it.
EXTRAS_A_MESSAGE: Final = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A transcript to generate.

    Attributes
    ----------
    messages : message lines, repeated ones included, damaged and torn ones not; in Codex's, those are the
        response items of type message, and a tool message is a remark with a call and its output
    nbytes : bytes of the file, torn tail included; met within 1 %
    seed : 0 <= seed < 2**64
    shape : whose transcript it looks like
    header : whether the first line is the session's (Claude's transcripts have none in any case)
    key_order : where native lines have `type`: "first" is the writer's order; "last" sorts the keys, so that
        `type` ends the line; "middle" puts it after the blocks and before what is left
    tool_share : share of the messages that carry a tool's result; past a half, several follow one call
    tool_factor : mean text of those, as a multiple of the mean text of the others
    images : messages that hold a base64 image
    image_nbytes : bytes of base64 in each, a multiple of four
    compactions : checkpoints, spread evenly (two lines each in Claude's transcripts and in Codex's)
    reviews : review state lines (native only); every tool message then holds a review record
    repeats : messages that carry an earlier message's id with other content
    non_ascii : share of messages whose text has 2-, 3- and 4-byte characters, U+0085, U+2028 and U+2029
    escaped : share of messages whose text has JSON escapes
    lone_surrogates : messages whose text holds an escaped surrogate without its partner
    nested : messages that hold `type` keys nested in objects and arrays and quoted in strings, in unknown
        fields before and after the real key (so it is neither first nor last in them, whatever key_order)
    whitespace : white space between the tokens of every line
    crlf : CR LF line ends
    torn_nbytes : bytes of one further message line that follow the last line end
    damaged : lines in addition that are not one JSON object, spread evenly
    damage : their kinds, taken in turn
    """

    messages: int
    nbytes: int
    seed: int = 1
    shape: Shape = "native"
    header: bool = True
    key_order: KeyOrder = "first"
    tool_share: float = 0.4
    tool_factor: float = 1.0
    images: int = 0
    image_nbytes: int = 200_000
    compactions: int = 0
    reviews: int = 0
    repeats: int = 0
    non_ascii: float = 0.0
    escaped: float = 0.0
    lone_surrogates: int = 0
    nested: int = 0
    whitespace: bool = False
    crlf: bool = False
    torn_nbytes: int = 0
    damaged: int = 0
    damage: tuple[DamageKind, ...] = DAMAGE_KINDS

    def __post_init__(self) -> None:
        """Refuse what no transcript can meet, whatever its size."""
        most = EXTRAS_A_MESSAGE * self.messages
        self._check_range("messages", 1, 1 << 29)
        self._check_range("nbytes", 1, 1 << 62)
        self._check_range("seed", 0, (1 << 64) - 1)
        self._check_range("torn_nbytes", 0, 1 << 40)
        self._check_range("image_nbytes", 12, 1 << 32)
        self._check_range("repeats", 0, self.messages // 2)
        for name in ("images", "lone_surrogates", "nested"):
            self._check_range(name, 0, self.messages)
        for name in ("compactions", "reviews", "damaged"):
            self._check_range(name, 0, most)
        for name in ("tool_share", "non_ascii", "escaped"):
            self._check_range(name, 0, 1)
        self._check_range("tool_factor", 0.1, 1000)
        self._check_choice("shape", SHAPES)
        self._check_choice("key_order", KEY_ORDERS)
        for problem, message in (
            (self.image_nbytes % 4, "image_nbytes is base64 text: it must be a multiple of four"),
            (not self.damage, "damage names no kind of damage"),
            (set(self.damage) - set(DAMAGE_KINDS), f"damage may name {', '.join(DAMAGE_KINDS)}"),
            (self.shape != "native" and self.reviews, "only native transcripts have review states"),
            (
                self.shape != "native" and self.key_order != "first",
                "only native transcripts have a choice of key order",
            ),
        ):
            if problem:
                raise ValueError(message)

    def _check_range(self, name: str, least: float, most: float) -> None:
        value = getattr(self, name)
        if not least <= value <= most:
            message = f"{name} must be between {least} and {most} here, not {value}"
            raise ValueError(message)

    def _check_choice(self, name: str, choices: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in choices:
            message = f"{name} must be one of {', '.join(choices)}, not {value!r}"
            raise ValueError(message)


#: Plain text, 10.7 KB a line.
RECORDS_SMALL: Final = Spec(messages=3_000, nbytes=32_000_000)
RECORDS_LARGE: Final = Spec(messages=12_000, nbytes=129_000_000)
#: 1.4 KB a line.
SHORT_LINES: Final = Spec(messages=200_000, nbytes=280_000_000)
#: 0.3 KB a line.
MILLION: Final = Spec(messages=1_000_000, nbytes=300_000_000)

PRESETS: Final = {
    "records-small": RECORDS_SMALL,
    "records-large": RECORDS_LARGE,
    "short-lines": SHORT_LINES,
    "million": MILLION,
}
