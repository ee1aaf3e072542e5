"""Codex CLI's rollout: one envelope for all lines, the kind in it and in its payload.

Only `response_item` messages are messages: a tool message here is an assistant's remark, the call and its
output. The interface's copies of user and agent messages follow them, as in the real files.
"""

from typing import ClassVar

from .marks import IMAGE, NESTED
from .roles import ASSISTANT, CALL, USER
from .shape import Shape
from .traps import TRAP

_IMAGE = '{"type":"input_image","image_url":"data:image/png;base64,%(image)b"},'


def _line(time: str, kind: str, payload: str, trace: str = "") -> str:
    return f'{{"timestamp":"%({time})b",{trace}"type":"{kind}","payload":{{{payload}}}}}'


class Codex(Shape):
    """Session meta, turn contexts, response items and interface events."""

    varying: ClassVar[tuple[str, ...]] = ("id", "call", "time", "time1", "time2", "remark")

    def header_template(self) -> str:
        """Return the session_meta line."""
        return (
            f'{{"timestamp":"{self.started}","type":"session_meta","payload":{{'
            f'"id":"{self.session_id}","timestamp":"{self.started}","cwd":"/home/user/project",'
            '"originator":"codex_cli_rs","cli_version":"0.104.0","source":"cli",'
            '"model_provider":"synthetic","base_instructions":{"text":"Synthetic."},'
            '"git":{"commit_hash":"0000000000000000000000000000000000000000","branch":"main"}}}'
        )

    def plain_template(self) -> str:
        """Return a user's message."""
        return self._message("time", "user", "%(text)b", 0)

    def templates(self, role: int, flags: int, variant: int) -> tuple[str, ...]:
        """Return the message line and the lines that belong to it."""
        if role == USER:
            context = _line(
                "time",
                "turn_context",
                '"turn_id":"%(id)b","cwd":"/home/user/project","approval_policy":"never",'
                '"sandbox_policy":{"type":"read-only"},"model":"synthetic-1","summary":"auto"',
            )
            copy = _line(
                "time2", "event_msg", '"type":"user_message","message":"%(text)b","images":[]'
            )
            message = self._message("time1", "user", "%(text)b", flags)
            return (context, message, copy) if variant == 0 else (message, copy)
        if role in (ASSISTANT, CALL):
            copy = _line("time", "event_msg", '"type":"agent_message","message":"%(text)b"')
            tokens = _line(
                "time2",
                "event_msg",
                '"type":"token_count","info":{"total_token_usage":{"total_tokens":9012}}',
            )
            message = self._message("time1", "assistant", "%(text)b", flags)
            return (copy, message, tokens) if variant == 0 else (copy, message)
        call = (
            '"type":"function_call","name":"exec_command",'
            r'"arguments":"{\"type\":\"exec\",\"cmd\":\"ls src\"}","call_id":"call_%(call)b"'
        )
        output = '"type":"function_call_output","call_id":"call_%(call)b","output":"%(text)b"'
        return (
            self._message("time", "assistant", "%(remark)b", flags, ',"phase":"commentary"'),
            _line("time1", "response_item", call),
            _line("time2", "response_item", output),
        )

    def checkpoint_templates(self) -> tuple[str, ...]:
        """Return the compacted line and the event that echoes it."""
        history = (
            '{"type":"message","role":"user","content":['
            '{"type":"input_text","text":"%(summary)b"}]}'
        )
        return (
            _line("time", "compacted", f'"message":"","replacement_history":[{history}]'),
            _line("time1", "event_msg", '"type":"context_compacted"'),
        )

    def _message(self, time: str, role: str, text: str, flags: int, phase: str = "") -> str:
        image = _IMAGE if flags & IMAGE else ""
        kind = "input_text" if role == "user" else "output_text"
        trace = f'"trace":{TRAP},' if flags & NESTED else ""
        metadata = f',"metadata":{TRAP}' if flags & NESTED else ""
        payload = (
            f'"type":"message","id":"msg_%(id)b","role":"{role}",'
            f'"content":[{image}{{"type":"{kind}","text":"{text}"}}]{phase}{metadata}'
        )
        return _line(time, "response_item", payload, trace)
