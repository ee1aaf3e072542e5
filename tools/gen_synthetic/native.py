"""The native transcript, format 2."""

from typing import ClassVar

from .marks import IMAGE, NESTED
from .roles import ASSISTANT, CALL, FAILED_TOOL, TOOL, USER
from .shape import Shape
from .spec import Spec
from .traps import TRAP

# Unknown fields with misleading content: they stand on both sides of `type` in every order, sorted too.
_BEFORE, _AFTER = "payload", "zone"
# The writer's order, and that of no particular writer.
_FIRST = (
    _BEFORE,
    "type",
    "id",
    "role",
    "toolName",
    "isError",
    "blocks",
    "meta",
    "turnId",
    "createdAt",
    _AFTER,
)
_MIDDLE = (
    _BEFORE,
    "id",
    "role",
    "blocks",
    "type",
    "toolName",
    "isError",
    "meta",
    "turnId",
    "createdAt",
    _AFTER,
)
_STATE = ("id", "state")
_REVIEW = (
    '{"review":{"version":1,"snapshotId":"snap-%(id)b","path":"src/part.py","operation":"edit",'
    '"status":"modified","state":"active","reversible":true}}'
)


class Native(Shape):
    """Messages, compactions and review states as the host of this format writes them."""

    tree: ClassVar[bool] = False

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._link = b"0" * 8
        self._review = self.press.form(
            _STATE,
            self._ordered(
                {
                    "type": '"tool_review_state"',
                    "messageId": '"%(id)b"',
                    "snapshotId": '"snap-%(id)b"',
                    "state": '"%(state)b"',
                }
            ),
        )

    def header_template(self) -> str:
        """Return the session line."""
        return self._ordered(
            {
                "type": '"session"',
                "schema": "2",
                "sessionId": f'"{self.session_id}"',
                "createdAt": f'"{self.started}"',
                "title": f'"Synthetic session, seed {self.spec.seed}"',
            }
        )

    def plain_template(self) -> str:
        """Return a user's message."""
        return self.templates(USER, 0, 0)[0]

    def templates(self, role: int, flags: int, variant: int) -> tuple[str, ...]:
        """Return the message line."""
        fields = {
            "type": '"message"',
            "id": '"%(id)b"',
            "role": '"user"',
            "blocks": self._blocks(role, flags),
            "createdAt": '"%(time)b"',
        }
        if role in (ASSISTANT, CALL):
            fields["meta"] = '{"status":"complete"}'
        if flags & NESTED:
            fields |= dict.fromkeys((_BEFORE, _AFTER), TRAP)
        if role != USER:
            fields["role"] = '"assistant"'
            fields["turnId"] = '"turn-%(link)b"'
        if role >= TOOL:
            fields |= {"role": '"tool"', "toolName": '"edit"'}
            if role == FAILED_TOOL:
                fields["isError"] = "true"
            elif self.spec.key_order == "last":
                # The writer of sorted keys did not leave out what is false.
                fields["isError"] = "false"
        return (self._ordered(fields),)

    def checkpoint_templates(self) -> tuple[str, ...]:
        """Return the compaction line."""
        return (
            self._ordered(
                {
                    "type": '"compaction"',
                    "id": '"%(checkpoint)b"',
                    "summary": '"%(summary)b"',
                    "throughMessageId": '"%(through)b"',
                    "firstKeptMessageId": '"%(kept)b"',
                    "tokensBefore": "150000",
                    "createdAt": '"%(time)b"',
                }
            ),
        )

    def review(self, owner: bytes, state: bytes) -> bytes:
        """Return a state line for the snapshot of a tool message."""
        return self._review.fill((owner, state))[0]

    def review_nbytes(self) -> int:
        """Return the most bytes of a state line."""
        return self._review.overhead

    def _blocks(self, role: int, flags: int) -> str:
        trap = f"{TRAP}," if flags & NESTED else ""
        image = (
            '{"type":"image","mimeType":"image/png","data":"%(image)b"},' if flags & IMAGE else ""
        )
        text = '{"type":"text","text":"%(text)b"}'
        if role < TOOL:
            return f"[{trap}{image}{text}]"
        details = f',"details":{_REVIEW}' if self.spec.reviews else ""
        return (
            f'[{trap}{{"type":"tool_call","callId":"call-%(call)b","name":"edit",'
            f'"args":{{"path":"src/part.py"}},"result":{{"content":[{image}{text}]{details}}},'
            '"status":"complete"}]'
        )

    def _ordered(self, fields: dict[str, str]) -> str:
        order: tuple[str, ...] = tuple(fields)
        if self.spec.key_order == "last":
            order = tuple(sorted(fields))
        elif "blocks" in fields:
            order = _MIDDLE if self.spec.key_order == "middle" else _FIRST
        elif self.spec.key_order == "middle":
            order = (*order[1:3], order[0], *order[3:])
        return "{" + ",".join(f'"{key}":{fields[key]}' for key in order if key in fields) + "}"
