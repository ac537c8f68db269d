"""Counts how many of the three reasons for doubt the answer gives."""

import json
import sys

WORDS = {"address": ("address",), "product": ("security paper",), "abroad": ("abroad", "export", "overseas")}

answer = json.load(sys.stdin)["answer"].lower()
found = [name for name, words in WORDS.items() if any(word in answer for word in words)]
json.dump(
    {
        "score": len(found) / len(WORDS),
        "hits": [f"Names the reason: {name}." for name in found],
        "misses": [f"Leaves out the reason: {name}." for name in WORDS if name not in found],
    },
    sys.stdout,
)
