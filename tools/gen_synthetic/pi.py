"""The pi coding agent's session, version 3: `type` first, eight-digit ids in a tree."""

from typing import ClassVar

from .marks import IMAGE, NESTED
from .roles import ASSISTANT, CALL, FAILED_TOOL, USER
from .shape import Shape
from .traps import TRAP

_REPLY = (
    '"api":"synthetic-completions","provider":"synthetic","model":"synthetic-1","usage":{'
    '"input":12,"output":7,"cacheRead":0,"cacheWrite":0,"totalTokens":19},"stopReason":"stop"'
)
_ENTRY = '"id":"%(id)b","parentId":%(link)b,"timestamp":"%(time)b"'


class Pi(Shape):
    """Messages, compactions and changes of the model."""

    varying: ClassVar[tuple[str, ...]] = ("id", "aside", "call", "next", "time", "time1", "ms")
    short_ids: ClassVar[bool] = True

    def header_template(self) -> str:
        """Return the session line."""
        return (
            f'{{"type":"session","version":3,"id":"{self.session_id}",'
            f'"timestamp":"{self.started}","cwd":"/home/user/project"}}'
        )

    def plain_template(self) -> str:
        """Return a user's message."""
        return self.templates(USER, 0, 1)[0]

    def templates(self, role: int, flags: int, variant: int) -> tuple[str, ...]:
        """Return the message line and, in some variants, a change of the model after it."""
        image = (
            '{"type":"image","data":"%(image)b","mimeType":"image/png"},' if flags & IMAGE else ""
        )
        content = f'{image}{{"type":"text","text":"%(text)b"}}'
        if role == USER:
            body = f'"role":"user","content":[{content}]'
        elif role == ASSISTANT:
            body = f'"role":"assistant","content":[{content}],{_REPLY}'
        elif role == CALL:
            call = '{"type":"toolCall","id":"call_%(next)b","name":"read","arguments":{"path":"part.py"}}'
            body = f'"role":"assistant","content":[{content},{call}],{_REPLY}'
        else:
            failed = "true" if role == FAILED_TOOL else "false"
            body = (
                '"role":"toolResult","toolCallId":"call_%(call)b","toolName":"read",'
                f'"content":[{content}],"isError":{failed}'
            )
        # A field before `type` is not this writer's habit, but no reader may depend on that.
        before = f'"details":{TRAP},' if flags & NESTED else ""
        after = f',"details":{TRAP}' if flags & NESTED else ""
        message = (
            f'{{{before}"type":"message",{_ENTRY},"message":{{{body}{after},"timestamp":%(ms)b}}}}'
        )
        change = (
            '{"type":"model_change","id":"%(aside)b","parentId":"%(id)b",'
            '"timestamp":"%(time1)b","provider":"synthetic","modelId":"synthetic-1"}'
        )
        return (message, change) if role == USER and variant == 0 else (message,)

    def checkpoint_templates(self) -> tuple[str, ...]:
        """Return the compaction line."""
        compaction = (
            '{"type":"compaction","id":"%(checkpoint)b","parentId":%(link)b,'
            '"timestamp":"%(time)b","summary":"%(summary)b","firstKeptEntryId":"%(kept)b",'
            '"tokensBefore":150000,"details":{"readFiles":[],"modifiedFiles":[]},"fromHook":false}'
        )
        return (compaction,)
