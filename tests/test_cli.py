"""The command line: what each verb prints and where, and what each exit code means."""

from __future__ import annotations

import bz2
import gc
import gzip
import io
import itertools
import json
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("click", reason="the command line is an extra")
pytest.importorskip("rich", reason="the command line is an extra")

import mmapstore
from mmapstore import loader
from mmapstore.cli import main, opening, output
from mmapstore.cli import tail as tail_module
from mmapstore.cli.run import EXIT_CODES, app
from mmapstore.dialect import DIALECTS

ROOT = Path(__file__).parent.parent
REAL = Path(os.environ.get("MMAPSTORE_REAL_TRANSCRIPTS", ROOT / "../shared/transcripts"))

#: those that read one transcript; `ls` and `cache` have tests of their own
VERBS = sorted(
    name
    for name, command in app.commands.items()
    if "file" in [parameter.name for parameter in command.params]
)


def _message(number, text=None, **more):
    blocks = [] if text is None else [{"type": "text", "text": text}]
    return {
        "type": "message",
        "id": f"m{number}",
        "role": "user" if number % 2 == 0 else "assistant",
        "blocks": blocks,
        "createdAt": f"2026-01-02T03:04:{number:02}Z",
    } | more


HEADER = {"type": "session", "schema": 2, "sessionId": "s", "createdAt": "2026-01-02T03:04:05Z"}


def _lines(*records):
    """Return records as lines; bytes are taken as they are."""
    return b"".join(
        record if isinstance(record, bytes) else json.dumps(record).encode() + b"\n"
        for record in records
    )


class Ran:
    """What one command did."""

    def __init__(self, code, out, err):
        self.code = code
        self.raw = out
        self.out = out.decode()
        self.err = err.decode()

    @property
    def rows(self):
        assert "\x1b" not in self.out
        return [_strictly(line) for line in self.out.splitlines()]


def _strictly(line):
    def refuse(name):
        raise ValueError(name)

    return json.loads(line, parse_constant=refuse)


@pytest.fixture
def run(capsysbinary):
    """Return a function that runs a command in this process."""

    def run_command(*arguments):
        capsysbinary.readouterr()
        code = main([str(argument) for argument in arguments])
        return Ran(code, *capsysbinary.readouterr())

    return run_command


@pytest.fixture
def five(write):
    """Five messages behind a header, the last but one damaged."""
    damaged = b'{"type":"message","id":"m3","role":"assistant","blocks":[\n'
    return write(
        _lines(HEADER, _message(0, "zero"), _message(1, "one"), _message(2, "two"), damaged)
        + _lines(_message(4, "four"))
    )


# -- tail ---------------------------------------------------------------------------------


def test_tail_prints_position_role_time_id_and_then_the_text(run, write):
    done = run("tail", write(_lines(HEADER, _message(0, "hello\nthere"))))
    assert (done.code, done.err) == (0, "")
    assert done.out == "0  user  2026-01-02T03:04:00Z  m0\n  hello\n  there\n\n"


def test_tail_prints_the_newest_ten(run, write):
    path = write(_lines(HEADER, *(_message(number, "x") for number in range(12))))
    heads = [line for line in run("tail", path).out.splitlines() if line[:1].isdigit()]
    assert [int(line.split()[0]) for line in heads] == list(range(2, 12))


@pytest.mark.parametrize(
    ("arguments", "positions"),
    [
        # position 3 is damaged: it takes a place and is not shown
        (["-n", "2"], [4]),
        (["-n", "3"], [2, 4]),
        (["--limit", "1"], [4]),
        (["-n", "all"], [0, 1, 2, 4]),
        (["-n", "99"], [0, 1, 2, 4]),
        (["-n", "2", "--before", "2"], [0, 1]),
        (["--before", "0"], []),
        (["--before", "99", "-n", "1"], [4]),
    ],
)
def test_tail_limit_and_before(run, five, arguments, positions):
    rows = run("tail", five, "--json", *arguments).rows
    assert [row["position"] for row in rows] == positions


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_tail_that_shows_nothing_says_why(run, five, write, as_json):
    empty = write(b"", "empty.jsonl")
    bare = write(_lines(HEADER, b"\n"), "bare.jsonl")
    torn = write(b'{"type":', "torn.jsonl")
    for path, options, told in [
        (empty, [], "no messages: the file is empty"),
        (bare, [], "no messages: 2 other lines, dialect native"),
        (five, ["--dialect", "kimi"], "no messages: 6 other lines, dialect kimi"),
        (torn, ["--dialect", "pi"], "no messages: 0 other lines, dialect pi"),
        (five, ["--before", "0"], "no messages before position 0; there are 5"),
    ]:
        done = run("tail", path, *options, *as_json)
        assert (done.code, done.out) == (0, "")
        assert done.err.splitlines()[0] == f"mmapstore: {path}: {told}"


@pytest.mark.parametrize(
    ("before", "told"), [(5, ""), (6, "--before 6 is past the end: taken as 5\n")]
)
def test_tail_says_when_before_is_past_the_end(run, five, before, told):
    done = run("tail", five, "-n", "1", "--before", before)
    assert done.err == (f"mmapstore: {five}: {told}" if told else "")
    assert "four" in done.out


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        (1, ""),
        (2, "1 of 2 messages are folded into another with the same id"),
        (5, "2 of 5 messages are folded into another with the same id"),
    ],
)
def test_tail_tells_how_many_messages_were_folded(run, write, limit, told):
    damaged = b'{"type":"message","id":"m9","role":"user","blocks":[\n'
    records = [_message(0), _message(0), damaged, _message(1, "old"), _message(1, "new")]
    path = write(_lines(HEADER, *records))
    done = run("tail", path, "-n", limit)
    notes = [line for line in done.err.splitlines() if "damaged" not in line]
    assert notes == ([f"mmapstore: {path}: {told}"] if told else [])
    assert "damaged" in done.err or limit < 3


def test_tail_json_has_one_object_a_message(run, five):
    row = run("tail", five, "--json", "-n", "1").rows[0]
    message = _message(4, "four")
    assert row == {
        "position": 4,
        "id": "m4",
        "role": "user",
        "time": message["createdAt"],
        "text": "four",
        "message": message,
    }


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_tail_mentions_damaged_lines_with_position_reason_and_offset(run, five, as_json):
    done = run("tail", five, "-n", "2", *as_json)
    offset = five.read_bytes().index(b'{"type":"message","id":"m3"')
    assert done.code == 0
    assert f"{five}: position 3 is damaged: " in done.err
    assert f"(at byte {offset})" in done.err
    assert "m4" in done.out
    assert "damaged" not in done.out


def test_tail_of_undamaged_messages_mentions_no_damage_elsewhere(run, five):
    assert run("tail", five, "-n", "1").err == ""


@pytest.mark.parametrize("count", [1, 2, 3])
def test_tail_gives_the_same_in_pages(run, write, monkeypatch, count):
    path = write(_lines(HEADER, *(_message(number, "x" * number) for number in range(8))))
    whole = run("tail", path, "-n", "7", "--before", "8").out
    monkeypatch.setattr(tail_module, "_PAGE_COUNT", count)
    assert run("tail", path, "-n", "7", "--before", "8").out == whole
    monkeypatch.setattr(tail_module, "_PAGE_NBYTES", 1)
    assert run("tail", path, "-n", "7", "--before", "8").out == whole


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-n", "3"], "mmapstore: 5 older messages: --before 5\n"),
        (["-n", "3", "--before", "5"], "mmapstore: 2 older messages: --before 2\n"),
        (["-n", "3", "--before", "2"], ""),
        (["-n", "all"], ""),
        (["-n", "3", "--json"], ""),
    ],
)
def test_tail_tells_a_person_how_to_go_on(run, write, monkeypatch, arguments, told):
    path = write(_lines(HEADER, *(_message(number, "x") for number in range(8))))
    monkeypatch.setattr(tail_module, "_PAGE_COUNT", 2)
    monkeypatch.setattr(output, "talks", lambda: True)
    assert run("tail", path, *arguments).err == told
    monkeypatch.setattr(output, "talks", lambda: False)
    assert run("tail", path, *arguments).err == ""


@pytest.mark.parametrize("text", ["word " * 2000, "line\n" * 100])
def test_tail_clips_long_text_and_says_so(run, write, text):
    path = write(_lines(HEADER, _message(0, text)))
    clipped, full = run("tail", path).out, run("tail", path, "--full").out
    assert len(clipped) < 1200
    assert "more characters; --full shows all]" in clipped
    assert "more characters" not in full
    assert full.split("\n", 1)[1].replace("  ", "").split() == text.split()


def test_tail_json_clips_nothing(run, write):
    path = write(_lines(HEADER, _message(0, "word " * 2000)))
    assert run("tail", path, "--json").rows[0]["text"] == "word " * 2000


@pytest.mark.parametrize(
    ("blocks", "summary"),
    [
        (
            [{"type": "tool_call", "name": "edit", "callId": "c", "input": {"path": "a.py"}}],
            '[tool_call edit: {"path":"a.py"}]',
        ),
        (
            [{"type": "tool_result", "content": [{"type": "text", "text": "two\n words"}]}],
            "[tool_result: two words]",
        ),
        ([{"type": "image"}] * 6, "[image] [image] [image] [image] and 2 more"),
        ([{"functionCall": {"name": "ls", "args": {"d": "/"}}}], '[functionCall ls: {"d":"/"}]'),
        (
            [{"type": "thinking", "thinking": "a" * 100}],
            f"[thinking: {'a' * 72}...] [28 more characters; --full shows all]",
        ),
        ([], "[no text; fields: type, id, role, blocks, createdAt]"),
        ([{"type": "te\x1bxt\n"}], "[te\\x1bxt\\n]"),
        ([17, None, "text"], "[no text; fields: type, id, role, blocks, createdAt]"),
        ("not a list", None),
    ],
)
def test_tail_sums_up_what_has_no_text(run, write, blocks, summary):
    done = run("tail", write(_lines(HEADER, _message(0, blocks=blocks))))
    body = done.out.splitlines()[1:]
    assert body == [f"  {'not a list' if summary is None else summary}", ""]


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ({"output": "one\ntwo"}, " -> one two]"),
        ({"status": 7}, ' -> {"status":7}]'),
        ({"output": "w " * 100}, f" -> {'w ' * 35}w...] [128 more characters; --full shows all]"),
        ({"output": "a"}, " -> a]"),
        (None, "]"),
    ],
)
def test_tail_tells_the_result_beside_the_arguments(run, write, result, told):
    block = {"type": "tool_call", "name": "edit", "args": {"path": "a"}, "result": result}
    done = run("tail", write(_lines(HEADER, _message(0, blocks=[block], role="tool"))))
    assert done.out.splitlines()[-2] == '  [tool_call edit: {"path":"a"}' + told


@pytest.mark.parametrize(
    "result", ["one\ntwo", {"content": [{"type": "text", "text": "one\ntwo"}]}]
)
def test_a_result_that_is_all_of_the_text_stands_under_its_call(run, write, result):
    block = {"type": "tool_call", "name": "edit", "args": {"path": "a"}, "result": result}
    done = run("tail", write(_lines(HEADER, _message(0, blocks=[block], role="tool"))))
    assert done.out.splitlines()[1:] == ['  [tool_call edit: {"path":"a"}]', "  one", "  two", ""]


def _claude(*parts, number=0):
    message = {"role": "user", "content": list(parts)}
    return {"type": "user", "uuid": f"u{number}", "parentUuid": None, "message": message}


def _given(content, **more):
    return {"type": "tool_result", "tool_use_id": "c", "content": content, **more}


def test_tail_counts_nothing_of_a_part_that_is_the_text(run, write):
    done = run("tail", write(_lines(_claude(_given("w " * 50)))))
    assert done.out.splitlines()[1:] == ["  [tool_result]", f"  {'w ' * 49}w", ""]


def test_each_of_several_results_has_its_label_and_what_else_is_there_is_named(run, write):
    image = {"type": "image", "data": "0"}
    texts = [{"type": "text", "text": "two"}, {"type": "text", "text": "three"}]
    done = run("tail", write(_lines(_claude(_given(texts[:1]), image, _given(texts[1:] * 2)))))
    assert done.out.splitlines()[1:] == [
        "  [tool_result]",
        "  two",
        "  [image]",
        "  [tool_result]",
        "  three",
        "  three",
        "",
    ]
    # what the text leaves out is named as well
    done = run("tail", write(_lines(_claude(_given("one"), _given(texts)))))
    assert done.out.splitlines()[1:] == [
        "  [tool_result]",
        "  one",
        "  [tool_result: two three]",
        "",
    ]


def test_a_long_result_is_clipped_as_text_is(run, write):
    path = write(_lines(_claude(_given("line\n" * 100))))
    done = run("tail", path)
    assert done.out.splitlines()[1:14] == ["  [tool_result]", *["  line"] * 12]
    assert "[440 more characters; --full shows all]" not in done.out.splitlines()[13]
    assert "more characters; --full shows all]" in done.out.splitlines()[14]
    assert run("tail", path, "--full").out.count("line") == 100


#: parts of a message, by what they hold a word of: (for Claude Code, for a native transcript)
PARTS = {
    "text": (
        lambda word: {"type": "text", "text": word},
        lambda word: {"type": "text", "text": word},
    ),
    "thinking": (
        lambda word: {"type": "thinking", "thinking": word, "signature": "s"},
        lambda word: {"type": "thinking", "text": word},
    ),
    "call": (
        lambda word: {"type": "tool_use", "id": "c", "name": "run", "input": {"a": word}},
        lambda word: {"type": "tool_call", "callId": "c", "name": "run", "args": {"a": word}},
    ),
    "result": (
        lambda word: _given(f"first\n{word}"),
        lambda word: {"type": "tool_call", "args": {}, "result": f"first\n{word}"},
    ),
    "result in parts": (
        lambda word: _given([{"type": "text", "text": word}]),
        lambda word: {"type": "tool_call", "result": {"content": [{"type": "text", "text": word}]}},
    ),
    "image": (
        lambda word: {"type": "image", "source": word},
        lambda word: {"type": "attachment", "ref": word},
    ),
}


@pytest.mark.parametrize("agent", [0, 1], ids=["claude", "native"])
def test_every_part_is_printed_once_and_labelled(run, write, agent):
    """Of every message of up to three parts, whatever they are."""
    counter = itertools.count()
    records, held = [] if agent == 0 else [HEADER], []
    for count in (1, 2, 3):
        for kinds in itertools.product(PARTS, repeat=count):
            words = [f"word{next(counter)}." for _ in kinds]
            parts = [PARTS[kind][agent](word) for kind, word in zip(kinds, words, strict=True)]
            number = len(held)
            held.append(list(zip(kinds, words, strict=True)))
            records.append(
                _message(number, blocks=parts) if agent else _claude(*parts, number=number)
            )
    path = write(_lines(*records))
    shown = [
        run("tail", path, "-n", "all", *options).out.split("\n\n") for options in ([], ["--full"])
    ]
    shown.append([run("show", path, number).out for number in range(42)])
    for outs in shown:
        for parts, out in zip(held, outs, strict=False):
            for kind, word in parts:
                # of a picture nothing is told but that it is there
                assert out.count(word) == (kind != "image" or outs is not shown[0]), (kind, out)
                label = PARTS[kind][agent](word)["type"]
                assert kind == "text" or label in out, (kind, out)
    assert [len(outs) for outs in shown] == [len(held) + 1] * 2 + [42]


def test_what_a_model_thought_is_in_no_text(run, write):
    thought = {"type": "thinking", "text": "hidden"}
    path = write(_lines(HEADER, _message(0, blocks=[thought])))
    (row,) = run("tail", path, "--json").rows
    assert row["text"] == ""
    assert run("tail", path).out.splitlines()[1:] == ["  [thinking: hidden]", ""]
    assert '"text": "hidden"' in run("show", path, 0).out


def test_a_thought_without_a_type_is_labelled(run, write):
    first = {"uuid": "u", "sessionId": "s", "type": "assistant", "version": "1"}
    parts = [{"text": "hidden", "thought": True}, {"text": "said"}]
    path = write(_lines({**first, "message": {"parts": parts}}))
    assert run("tail", path).out.splitlines()[1:] == ["  said", "  [thought: hidden]", ""]


@pytest.mark.parametrize("gap", [" ", " \n\t", "\n" * 30])
def test_tail_counts_what_it_leaves_out_of_a_part(run, write, gap):
    thought = f"{gap}{'a' * 40}{gap}{'b' * 40}"
    block = {"type": "thinking", "thinking": thought}
    body = run("tail", write(_lines(HEADER, _message(0, blocks=[block])))).out.splitlines()[1]
    shown, count = body.removeprefix("  [thinking: ").split("...] [")
    hidden = int(count.split()[0])
    assert shown.split() == thought[: len(thought) - hidden].split()


def test_a_text_cannot_pass_for_the_head_of_a_message(run, write):
    forged = "7  assistant  2026-01-02T03:04:05Z  m7"
    done = run("tail", write(_lines(HEADER, _message(0, f"x\n{forged}\r\n{forged}\x0b{forged}"))))
    assert [line for line in done.out.splitlines() if line.startswith("7")] == []


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_tail_does_not_show_an_unterminated_last_line_but_mentions_it(run, write, as_json):
    torn = _lines(_message(1, "not yet"))[:-1]
    path = write(_lines(HEADER, _message(0, "zero")) + torn)
    done = run("tail", path, *as_json)
    assert "not yet" not in done.out
    assert f"{len(torn)} bytes" in done.err
    assert "--unterminated" in done.err
    assert done.code == 0


@pytest.mark.parametrize(
    ("torn", "shown"),
    [
        (_lines(_message(1, "not yet"))[:-1], "  not yet"),
        (b'{"type":"message","id":"m1","blo\xff\x1b[2J', r'  {"type":"message","id":"m1","blo\xff'),
    ],
)
def test_tail_shows_it_marked_when_asked(run, write, torn, shown):
    path = write(_lines(HEADER, _message(0, "zero")) + torn)
    done = run("tail", path, "--unterminated")
    mark, *rest = done.out[done.out.index("--- ") :].splitlines()
    assert "unterminated" in mark
    assert f"{len(torn)} bytes" in mark
    assert any(line.startswith(shown) for line in rest)
    assert done.err == ""
    assert "\x1b" not in done.out


def test_tail_marks_it_in_json(run, write):
    torn = _lines(_message(1, "not yet"))[:-1]
    path = write(_lines(HEADER, _message(0, "zero")) + torn)
    settled, row = run("tail", path, "--unterminated", "--json").rows
    assert "unterminated" not in settled
    assert (row["unterminated"], row["position"], row["text"]) == (True, None, "not yet")
    assert row["message"] == _message(1, "not yet")
    path.write_bytes(_lines(HEADER) + torn[:-1] + b"\xff")
    (row,) = run("tail", path, "--unterminated", "--json").rows
    assert (row["unterminated"], row["id"], row["message"]) == (True, None, None)
    assert row["text"].endswith("\\xff")


# -- show ---------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["2", "m2"])
def test_show_takes_a_position_or_an_id(run, five, reference):
    done = run("show", five, reference)
    assert done.code == 0
    head, *body = done.out.splitlines()
    assert head.startswith("2  user  2026-01-02T03:04:02Z  m2  (")
    assert body == ["two"]


def test_show_takes_a_number_for_an_id_where_told_to(run, write):
    path = write(_lines(HEADER, _message(0, "by position"), _message(1, "by id", id="0")))
    assert "by position" in run("show", path, "0").out
    assert "by id" in run("show", path, "--id", "0").out
    # more digits than any position has
    long = "9" * 5000
    path.write_bytes(_lines(HEADER, _message(0, "long", id=long)))
    assert "long" in run("show", path, long).out


def test_show_takes_the_offset_of_a_message_without_id(run, write):
    path = write(_lines(HEADER, _message(0, "zero"), {**_message(1, "no id"), "id": None}))
    offset = path.read_bytes().rindex(b'{"type": "message"')
    done = run("show", path, f"@{offset}")
    assert "no id" in done.out
    assert f"@{offset}" in done.out


def test_show_raw_writes_the_exact_bytes(run, five):
    lines = five.read_bytes().splitlines(keepends=True)[1:]
    # position 3 is damaged: its bytes can be had all the same
    for position, line in enumerate(lines):
        assert run("show", five, position, "--raw").raw == line


@pytest.mark.parametrize("reference", ["3", "m3"])
def test_a_damaged_message_is_refused_with_how_to_see_its_bytes(run, five, reference):
    done = run("show", five, reference)
    assert (done.code, done.out) == (3, "")
    hint = "`mmapstore show FILE 3 --raw` writes its bytes"
    assert done.err.endswith(f"; {hint}\n")
    told = hint.split("`")[1].replace("FILE", str(five)).split()[1:]
    assert run(*told).raw == five.read_bytes().splitlines(keepends=True)[4]


def test_show_json_prints_the_effective_message(run, write):
    record = {"snapshotId": "s", "state": "active"}
    block = {"type": "tool_result", "result": {"details": {"review": record}}}
    state = {
        "type": "tool_review_state",
        "messageId": "m0",
        "snapshotId": "s",
        "state": "rolledBack",
    }
    path = write(_lines(HEADER, _message(0, blocks=[block], role="tool"), state))
    (message,) = run("show", path, "m0", "--json").rows
    assert message["blocks"][0]["result"]["details"]["review"]["state"] == "rolledBack"
    assert b'"active"' in run("show", path, "m0", "--raw").raw


def test_show_prints_a_message_whole(run, write):
    text = "word " * 5000
    call = {"type": "tool_call", "name": "edit", "input": {"long": "y" * 5000}}
    blocks = [{"type": "text", "text": text}, call]
    done = run("show", write(_lines(HEADER, _message(0, blocks=blocks))), 0)
    _head, shown, part, *rest = done.out.splitlines()
    assert shown == text
    assert part == "--- tool_call edit"
    *rest, heading, long = rest
    assert json.loads("\n".join(rest)) == call | {"input": {"long": "[text below]"}}
    assert (heading, long) == ("--- tool_call edit input.long", "y" * 5000)


SCRIPT = "if True:\n\tprint('\"')\n"


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        ({"type": "thinking", "thinking": SCRIPT}, f"--- thinking\n{SCRIPT}"),
        ({"type": "thinking", "thinking": "w " * 99}, f"--- thinking\n{'w ' * 99}\n"),
        (
            {"type": "tool_call", "name": "run", "input": {"code": [SCRIPT], "n": 1}},
            (
                '--- tool_call run\n{\n  "type": "tool_call",\n  "name": "run",\n  "input": {\n'
                '    "code": [\n      "[text below]"\n    ],\n    "n": 1\n  }\n}\n'
                f"--- tool_call run input.code[0]\n{SCRIPT}"
            ),
        ),
        (
            {"type": "tool_result", "output": {"a": SCRIPT, "b": "said\nbefore"}},
            (
                '--- tool_result\n{\n  "type": "tool_result",\n  "output": {\n'
                '    "a": "[text below]",\n    "b": "[text above]"\n  }\n}\n'
                f"--- tool_result output.a\n{SCRIPT}"
            ),
        ),
    ],
)
def test_long_strings_inside_a_part_are_shown_as_text(run, write, block, shown):
    message = _message(0, blocks=[{"type": "text", "text": "said\nbefore"}, block])
    path = write(_lines(HEADER, message))
    assert run("show", path, 0).out.split("\n", 3)[3] == shown
    full = run("tail", path, "--full").out.split("\n", 3)[3]
    assert full == "".join(f"  {line}".rstrip(" ") + "\n" for line in shown.splitlines()) + "\n"
    (row,) = run("show", path, 0, "--json").rows
    assert row == message


def test_so_are_those_of_a_message_that_holds_nothing_else(run, write):
    done = run("show", write(_lines(HEADER, _message(0, meta={"note": SCRIPT}))), 0)
    assert '"note": "[text below]"' in done.out
    assert done.out.endswith(f"\n--- field meta.note\n{SCRIPT}")


def test_a_part_nested_deeper_than_calls_is_shown(run, write):
    block = b'{"type":"x","deep":' + b"[" * 900 + b'"a\\nb"' + b"]" * 900 + b"}"
    line = b'{"type":"message","id":"m","role":"user","blocks":[' + block + b"]}\n"
    done = run("show", write(_lines(HEADER, line)), 0)
    assert done.out.endswith(f"\n--- x deep{'[0]' * 900}\na\nb\n")


def test_show_prints_all_fields_where_there_is_nothing_else(run, write):
    message = _message(0, meta={"a": [1]})
    done = run("show", write(_lines(HEADER, message)), 0)
    assert json.loads(done.out.split("\n", 1)[1]) == message


# -- info and verify ----------------------------------------------------------------------

INFO_FIELDS = [
    "path",
    "dialect",
    "nbytes",
    "file_len",
    "torn_nbytes",
    "lines",
    "messages",
    "compactions",
    "compaction_lines",
    "review_states",
    "other",
    "cache",
    "access",
]


def test_info_counts_every_line_once(run, write):
    compaction = {"type": "compaction", "id": "c", "summary": "s", "throughMessageId": "m0"}
    state = {"type": "tool_review_state", "messageId": "m", "snapshotId": "s", "state": "x"}
    data = _lines(HEADER, _message(0, "x"), compaction, state, state, b"\n", b"{broken\n", b"[]\n")
    path = write(data + b'{"torn')
    (facts,) = run("info", path, "--json").rows
    assert list(facts) == INFO_FIELDS
    assert facts == {
        "path": str(path),
        "dialect": "native",
        "nbytes": len(data) + 6,
        "file_len": len(data),
        "torn_nbytes": 6,
        "lines": 8,
        "messages": 1,
        "compactions": 1,
        "compaction_lines": 1,
        "review_states": 2,
        "other": 4,
        "cache": "miss",
        "access": facts["access"],
    }
    assert facts["access"] in ("mmap", "pread")


def test_info_counts_checkpoints_and_their_lines_apart(run, write):
    message = {"type": "user", "uuid": "u", "message": {"role": "user", "content": "x"}}
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "b", "parentUuid": None}
    summary = {**message, "uuid": "s", "isCompactSummary": True}
    path = write(_lines({"parentUuid": None, **message}, boundary, summary))
    (facts,) = run("info", path, "--json").rows
    assert facts["dialect"] == "claude"
    assert (facts["compactions"], facts["compaction_lines"]) == (1, 2)


def test_info_prints_a_table_for_people(run, five):
    done = run("info", five)
    rows = [line.split("  ", 1) for line in done.out.splitlines()]
    nbytes = five.stat().st_size
    assert {name: value.strip() for name, value in rows} == {
        "file": str(five),
        "dialect": "native",
        "size": f"{nbytes} bytes",
        "complete lines end at": f"byte {nbytes}",
        "torn tail": "none",
        "lines": "6",
        "messages": "5",
        "compactions": "0",
        "compaction lines": "0",
        "review states": "0",
        "other lines": "1",
        "layout cache": "miss",
        "read by": rows[-1][1].strip(),
    }
    assert (
        len(
            {
                len(line) - len(row[1].lstrip())
                for line, row in zip(done.out.splitlines(), rows, strict=True)
            }
        )
        == 1
    )
    assert done.err == ""


@pytest.mark.parametrize(
    ("torn", "told"),
    [
        (b'{"type":"mess', "13 bytes of an unfinished line"),
        (b"{", "1 byte of an unfinished line"),
        (b'{"type":"x"}', "12 bytes, whole JSON, but no newline yet"),
        (b'{"type":"x"} 1', "14 bytes of an unfinished line"),
    ],
)
def test_an_unterminated_line_is_told_once_and_whether_it_is_whole(run, write, torn, told):
    path = write(_lines(HEADER, _message(0, "zero")) + torn)
    assert f"torn tail              {told}\n" in run("info", path).out
    for arguments in (["tail", path], ["show", path, "0"], ["verify", path]):
        done = run(*arguments)
        assert done.err.count(told) == 1, arguments
        assert " byte" not in done.out or arguments[0] == "show"


def test_an_unterminated_line_too_long_to_read_is_not_judged(run, write, monkeypatch):
    monkeypatch.setattr(opening, "_TOLD_NBYTES", 11)
    done = run("tail", write(_lines(HEADER) + b'{"type":"x"}'))
    assert "12 bytes, no newline yet" in done.err


def test_info_tells_what_became_of_the_layout_cache(run, five, tmp_path, monkeypatch):
    monkeypatch.setenv("MMAPSTORE_CACHE_DIR", str(tmp_path / "cache"))
    # as if the last change were long ago
    monkeypatch.setattr(loader, "is_racy", lambda *_, **__: False)

    def told(*options):
        (facts,) = run("info", five, "--json", *options).rows
        return facts["cache"]

    assert told("--no-cache") == "off"
    assert not (tmp_path / "cache").exists()
    assert [told(), told(), told("--no-cache")] == ["miss", "hit", "off"]
    with five.open("ab") as file:
        file.write(_lines(_message(5, "five")))
    assert [told(), told()] == ["stale", "hit"]
    assert "layout cache           hit\n" in run("info", five).out


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_info_says_why_a_layout_cache_cannot_be_kept(run, five, write, monkeypatch, as_json):
    monkeypatch.setattr(loader, "is_racy", lambda *_, **__: False)
    taken = write(b"", "taken")
    monkeypatch.setenv("MMAPSTORE_CACHE_DIR", str(taken))
    done = run("info", five, *as_json)
    assert (done.code, "miss" in done.out) == (0, True)
    told = f"mmapstore: {five}: the layout cache cannot be kept: {taken}: "
    assert (done.err.startswith(told), done.err.count("\n")) == (True, 1)
    assert run("info", five, "--no-cache").err == ""
    # what only reads is not told
    assert run("tail", five, "-n", "1").err == ""


def test_standard_input_is_never_kept(run, five, tmp_path, monkeypatch):
    monkeypatch.setenv("MMAPSTORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(loader, "is_racy", lambda *_, **__: False)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(five.read_bytes())))
    (facts,) = run("info", "-", "--json").rows
    assert (facts["cache"], facts["messages"]) == ("off", 5)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("access", ["mmap", "pread"])
def test_info_tells_the_access_asked_for(run, five, access):
    (facts,) = run("info", five, "--json", "--access", access).rows
    assert facts["access"] == access


def test_the_dialect_asked_for_is_obeyed(run, five):
    (facts,) = run("info", five, "--json", "--dialect", "generic").rows
    assert (facts["dialect"], facts["messages"]) == ("generic", 6)


def test_verify_of_an_intact_file_is_a_yes(run, write):
    path = write(_lines(HEADER, _message(0, "x")))
    done = run("verify", path)
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{path}: 2 lines, 0 damaged or doubtful\n"
    assert run("verify", path, "--json").raw == b""


def test_verify_reports_each_damaged_line(run, five):
    with five.open("ab") as file:
        file.write(b'not \x1b json\n{"torn')
    done = run("verify", five)
    offset = five.read_bytes().index(b'{"type":"message","id":"m3"')
    message, other, summary = done.out.splitlines()
    assert done.code == 1
    assert message.startswith(f"byte {offset}  line 5  message at position 3: ")
    assert other.startswith(f"byte {five.read_bytes().index(b'not')}  line 7  other: ")
    assert summary == f"{five}: 7 lines, 2 damaged or doubtful"
    assert "6 bytes" in done.err


def test_verify_json_has_one_object_a_finding(run, five):
    done = run("verify", five, "--json")
    (row,) = done.rows
    assert done.code == 1
    assert row.pop("reason")
    assert row == {
        "offset": five.read_bytes().index(b'{"type":"message","id":"m3"'),
        "line_number": 5,
        "kind": "message",
        "position": 3,
    }


# -- every verb ---------------------------------------------------------------------------


def _call(verb, path):
    return [verb, path, "0"] if verb == "show" else [verb, path]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(run, verb):
    done = run(verb, "--help")
    assert done.code == 0
    assert done.out.startswith(f"Usage: mmapstore {verb}")
    assert all(
        parameter.help for parameter in app.commands[verb].params if parameter.opts[0][0] == "-"
    )


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_verb_reads_standard_input(run, five, monkeypatch, open_fds, verb, as_json):
    gc.collect()  # what other tests left behind
    before = open_fds()
    # what comes through a pipe is never kept
    named = run(*_call(verb, five), *as_json, "--no-cache")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(five.read_bytes())))
    piped = run(*_call(verb, "-"), *as_json)
    assert piped.code == named.code
    assert piped.out == named.out.replace(str(five), "-")
    assert piped.err == named.err.replace(str(five), "-")
    # a window holds its file for as long as it lives, and damage may make it wait for this
    gc.collect()
    assert open_fds() == before


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_verb_leaves_the_file_and_its_directory_alone(run, five, unchanged, verb, as_json):
    five.chmod(0o640)
    with unchanged(five):
        run(*_call(verb, five), *as_json)


@pytest.mark.parametrize("verb", VERBS)
def test_an_empty_file_is_an_empty_transcript(run, write, verb):
    done = run(*_call(verb, write(b"")))
    assert done.code == (4 if verb == "show" else 0)


# -- exit codes ---------------------------------------------------------------------------


def test_no_error_is_a_traceback_and_each_has_its_code(run, five, write, tmp_path):
    text = write(b"plain words\n", "notes.txt")
    os.mkfifo(tmp_path / "fifo")
    zstd = write(b"\x28\xb5\x2f\xfd rest", "x.jsonl.zst")
    gzipped = write(gzip.compress(five.read_bytes()), "x.jsonl.gz")
    bzipped = write(bz2.compress(five.read_bytes()), "x.jsonl.bz2")
    for code, arguments, told in [
        (2, ["nonsense"], "nonsense"),
        (2, ["tail"], "FILE"),
        (2, ["tail", five, "-n", "0"], "'0'"),
        (2, ["tail", five, "-n", "few"], "'few'"),
        (2, ["tail", five, "--before", "-1"], "--before"),
        (2, ["tail", five, "--dialect", "klingon"], "klingon"),
        (2, ["tail", five, "--access", "telepathy"], "telepathy"),
        (2, ["show", five], "POSITION|ID"),
        (2, ["show", five, "-1"], "positions count from 0"),
        (2, ["show", five, "-12"], "positions count from 0"),
        (2, ["show", five, "-x"], "No such option"),
        (2, ["show", five, "0", "--raw", "--json"], "--raw"),
        (3, ["tail", tmp_path], "a directory, not a transcript; `mmapstore ls DIR`"),
        (3, ["tail", "-f", tmp_path], "a directory, not a transcript; `mmapstore ls DIR`"),
        (3, ["tail", tmp_path / "fifo"], "a FIFO, not a transcript; use - to read standard input"),
        (3, ["info", text], "JSON object"),
        (3, ["info", zstd], "zstd -d"),
        (3, ["info", gzipped], "compressed with gzip; to read it: zcat FILE | mmapstore tail -"),
        (3, ["tail", "-f", bzipped], "compressed with bzip2; to read it: bzcat FILE"),
        (3, ["show", five, "3"], "line 5"),
        (4, ["tail", tmp_path / "absent"], "No such file"),
        (4, ["tail", five / "below"], "Not a directory"),
        (4, ["tail", ""], "No such file"),
        (4, ["show", five, "5"], "--id"),
        (4, ["show", five, "m9"], "m9"),
        (4, ["show", five, "@1"], "@1"),
        (4, ["show", five, "--id", "0"], "'0'"),
    ]:
        done = run(*arguments)
        assert (done.code, done.out) == (code, ""), arguments
        assert done.err.startswith("mmapstore: error: "), arguments
        assert told in done.err, arguments
        assert done.err.count("\n") == 1, arguments


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (PermissionError(13, "Permission denied", "f"), 3, "error: f: Permission denied"),
        (OSError(5, "Input/output error"), 3, "error: Input/output error"),
        (mmapstore.TranscriptChangedError("changed", path="f", offset=7), 3, "f: changed"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (FileNotFoundError(2, "No such file", b"\xff\x1b"), 4, "error: \\udcff\\x1b: No such"),
    ],
)
def test_what_the_library_raises_becomes_a_code(run, monkeypatch, error, code, told):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(opening.mmapstore, "open", fail)
    done = run("info", "f")
    assert (done.code, done.out) == (code, "")
    assert told in done.err


def test_an_error_in_the_middle_comes_after_what_was_printed(run, five, monkeypatch):
    pages = tail_module._pages

    def broken(*arguments):
        yield from pages(*arguments)
        raise mmapstore.TranscriptChangedError("changed", path="/dev/fd/9")

    monkeypatch.setattr(tail_module, "_pages", broken)
    done = run("tail", five, "-n", "1")
    assert (done.code, "four" in done.out) == (3, True)
    assert "changed" in done.err


def test_a_bug_keeps_its_traceback(monkeypatch, run):
    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(opening.mmapstore, "open", fail)
    with pytest.raises(ZeroDivisionError):
        run("info", "f")


def test_every_error_of_the_library_has_a_code():
    errors = [
        value
        for value in vars(mmapstore).values()
        if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert len(errors) > 5
    assert all(issubclass(error, tuple(EXIT_CODES)) for error in errors)


@pytest.mark.parametrize("absent", ["click", "rich"])
def test_without_the_extra_it_says_how_to_get_it(run, five, monkeypatch, absent):
    monkeypatch.setitem(sys.modules, absent, None)
    done = run("tail", five)
    assert (done.code, done.out) == (2, "")
    assert absent in done.err
    assert "pip install 'mmapstore[cli]' (from a checkout: pip install '.[cli]')" in done.err
    assert [run(option).err for option in ("--help", "--version")] == [done.err] * 2


def test_without_arguments_it_prints_the_help(run):
    done = run()
    assert (done.code, done.out) == (2, "")
    assert done.err == run("--help").out


def test_the_help_names_the_dialects(run):
    # lines may break at a hyphen
    told = "".join(run("tail", "--help").out.split())
    assert f"Oneof:{','.join(dialect.name for dialect in DIALECTS)}." in told


def test_the_version_is_told(run):
    done = run("--version")
    assert (done.code, done.out) == (0, f"mmapstore {mmapstore.__version__}\n")


# -- real transcripts ---------------------------------------------------------------------


def _expected():
    try:
        rows = (REAL / "EXPECTED.tsv").read_text().splitlines()
    except FileNotFoundError:
        return []
    names = rows[0].split("\t")
    return [dict(zip(names, row.split("\t"), strict=True)) for row in rows[1:]]


@pytest.mark.skipif(not _expected(), reason="the real transcripts are not here")
def test_real_transcripts_count_as_expected_and_print(run):
    for row in _expected():
        path = REAL / row["file"]
        (facts,) = run("info", path, "--json", "--dialect", row["dialect"]).rows
        counted = {
            "file_len": str(facts["file_len"]),
            "lines": str(facts["lines"]),
            "messages": str(facts["messages"]),
            "compaction_lines": str(facts["compaction_lines"]),
            "checkpoints": str(facts["compactions"]),
        }
        assert counted == {name: row[name] for name in counted}, path
        done = run("tail", path, "-n", "20")
        assert done.code == 0, path
        assert "\x1b" not in done.out, path
        assert len(run("tail", path, "-n", "20", "--json").rows) <= 20, path
