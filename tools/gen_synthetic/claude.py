"""Claude Code's transcript: `type` after the body on assistant lines, asides between the messages.

A tool's result stands twice in its line, as in the real ones; a checkpoint is a boundary and a summary.
"""

from typing import ClassVar

from .marks import IMAGE, NESTED
from .roles import ASSISTANT, CALL, FAILED_TOOL, USER
from .shape import Shape
from .traps import TRAP

_ASIDE_IDS = '"uuid":"%(aside)b","timestamp":"%(time1)b"'
_IMAGE = '{"type":"image","source":{"type":"base64","media_type":"image/png","data":"%(image)b"}},'
_USAGE = (
    '"usage":{"input_tokens":12,"cache_creation_input_tokens":345,"cache_read_input_tokens":6789,'
    '"output_tokens":210,"service_tier":"standard"}'
)


class Claude(Shape):
    """User and assistant lines in a tree, with progress, snapshot and system lines."""

    varying: ClassVar[tuple[str, ...]] = (
        *("id", "aside", "embedded", "call", "next"),
        *("time", "time1", "remark"),
    )

    def header_template(self) -> None:
        """Return nothing: these transcripts have no header."""

    def plain_template(self) -> str:
        """Return a user's message."""
        return self._user('"%(text)b"', 0)

    def templates(self, role: int, flags: int, variant: int) -> tuple[str, ...]:
        """Return the message line and, in some variants, an aside after it."""
        image = _IMAGE if flags & IMAGE else ""
        text = '{"type":"text","text":"%(text)b"}'
        if role == USER:
            content = f"[{image}{text}]" if image else '"%(text)b"'
            lines = (self._user(content, flags), self._snapshot())
        elif role == ASSISTANT:
            lines = (self._assistant(f"[{image}{text}]", flags), self._duration())
        elif role == CALL:
            call = (
                '{"type":"tool_use","id":"toolu_%(next)b","name":"Read",'
                '"input":{"file_path":"/home/user/project/src/part.py"}}'
            )
            lines = (self._assistant(f"[{image}{text},{call}]", flags), self._hook())
        else:
            lines = (self._result(image, role == FAILED_TOOL, flags), self._embedded())
        return lines if variant == 0 else lines[:1]

    def checkpoint_templates(self) -> tuple[str, ...]:
        """Return the boundary and the summary."""
        boundary = (
            f'{{"parentUuid":null,"logicalParentUuid":"%(through)b",{self._session()},'
            '"type":"system","subtype":"compact_boundary","content":"Compacted","isMeta":false,'
            '"timestamp":"%(time)b","uuid":"%(aside)b","level":"info",'
            '"compactMetadata":{"trigger":"auto","preTokens":150000}}'
        )
        summary = (
            f'{{"parentUuid":"%(aside)b",{self._session()},"type":"user",'
            '"message":{"role":"user","content":"%(summary)b"},"isVisibleInTranscriptOnly":true,'
            '"isCompactSummary":true,"uuid":"%(checkpoint)b","timestamp":"%(time1)b"}'
        )
        return boundary, summary

    def _session(self) -> str:
        return (
            '"isSidechain":false,"userType":"external","cwd":"/home/user/project",'
            f'"sessionId":"{self.session_id}","version":"2.1.0","gitBranch":"main"'
        )

    def _head(self, flags: int = 0) -> str:
        trap = f',"context":{TRAP}' if flags & NESTED else ""
        return f'"parentUuid":%(link)b,{self._session()}{trap}'

    def _tail(self, flags: int) -> str:
        trap = f',"thinkingMetadata":{TRAP}' if flags & NESTED else ""
        return f'"uuid":"%(id)b","timestamp":"%(time)b"{trap}'

    def _user(self, content: str, flags: int) -> str:
        return (
            f'{{{self._head(flags)},"type":"user","message":{{"role":"user","content":{content}}},'
            f"{self._tail(flags)}}}"
        )

    def _assistant(self, content: str, flags: int) -> str:
        return (
            f'{{{self._head(flags)},"message":{{"model":"claude-synthetic","id":"msg_%(call)b",'
            f'"type":"message","role":"assistant","content":{content},"stop_reason":null,'
            f'"stop_sequence":null,{_USAGE}}},"requestId":"req_%(call)b","type":"assistant",'
            f"{self._tail(flags)}}}"
        )

    def _result(self, image: str, failed: bool, flags: int) -> str:
        text = '"%(text)b"'
        content = f'[{image}{{"type":"text","text":{text}}}]' if image else text
        error = ',"is_error":true' if failed else ""
        return (
            f'{{{self._head(flags)},"type":"user","message":{{"role":"user","content":['
            f'{{"tool_use_id":"toolu_%(call)b","type":"tool_result","content":{content}{error}}}]}},'
            f'{self._tail(flags)},"toolUseResult":{{"type":"text","file":{{'
            f'"filePath":"/home/user/project/src/part.py","content":{text},"numLines":1}}}},'
            '"sourceToolAssistantUUID":%(link)b}'
        )

    def _snapshot(self) -> str:
        return (
            '{"type":"file-history-snapshot","messageId":"%(id)b","snapshot":{"messageId":"%(id)b",'
            '"trackedFileBackups":{},"timestamp":"%(time1)b"},"isSnapshotUpdate":false}'
        )

    def _duration(self) -> str:
        return (
            f'{{"parentUuid":"%(id)b",{self._session()},"type":"system","subtype":"turn_duration",'
            f'"durationMs":41068,"timestamp":"%(time1)b","uuid":"%(aside)b","isMeta":false}}'
        )

    def _hook(self) -> str:
        return (
            f'{{"parentUuid":"%(id)b",{self._session()},"type":"progress","data":{{'
            '"type":"hook_progress","hookEvent":"PreToolUse","hookName":"PreToolUse:Read",'
            '"command":"true"},"parentToolUseID":"toolu_%(next)b","toolUseID":"toolu_%(next)b",'
            '"timestamp":"%(time1)b","uuid":"%(aside)b"}'
        )

    def _embedded(self) -> str:
        """Return a progress line that holds a whole record of a subagent."""
        return (
            f'{{"parentUuid":"%(id)b",{self._session()},"type":"progress","data":{{'
            '"message":{"type":"user","message":{"role":"user","content":[{"type":"text",'
            '"text":"%(remark)b"}]},"uuid":"%(embedded)b","timestamp":"%(time)b"},'
            '"normalizedMessages":[],"type":"agent_progress","prompt":"","agentId":"a%(call)b"},'
            f'"toolUseID":"agent_%(call)b","parentToolUseID":"toolu_%(call)b",{_ASIDE_IDS}}}'
        )
