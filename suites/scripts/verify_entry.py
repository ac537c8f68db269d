"""Checks that the note the assistant wrote names the entry of the block list that the suite expects."""

import json
import sys

case = json.load(sys.stdin)
entry = case["config"]["entry"]
notes = [
    call["input"].get("text", "")
    for message in case["output_messages"]
    for call in message.get("tool_calls", [])
    if call["tool"] == "write_note"
]
in_note = any(entry in note for note in notes)
in_answer = entry in case["answer"]
result = {
    "score": (in_note + in_answer) / 2,
    "hits": [text for met, text in ((in_note, "The note names the entry."), (in_answer, "The answer does.")) if met],
    "misses": [
        text for met, text in ((in_note, "The note lacks the entry."), (in_answer, "The answer does.")) if not met
    ],
}
json.dump(result, sys.stdout)
