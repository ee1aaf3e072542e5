"""Payload that looks like the key that decides a line's kind, and is not.

Invariant: all of it is nested below the top level or quoted inside a string, so a reader that knows depth
and strings is never misled, and one that searches for bytes always is.
"""

# A line of another kind, quoted as a tool does that prints a transcript.
_QUOTED = r"{\"type\":\"compaction\",\"id\":\"quoted\",\"role\":\"user\"}\n{\"type\":\"session\"}"

#: A JSON object: nested keys, keys inside arrays, string values that equal keys, and quoted lines.
TRAP = (
    '{"type":"compaction","role":"user","isCompactSummary":true,'
    '"nested":{"type":"system","subtype":"compact_boundary","payload":{"type":"message"}},'
    '"list":[{"type":"tool_review_state"},["type",":","compaction"],[{"type":"compacted"}]],'
    '"value":"type","last":"\\"type\\":","brackets":"]}{[,\\\\",'
    f'"quoted":"{_QUOTED}"}}'
)
