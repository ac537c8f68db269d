"""The same over HTTP, with nothing but the standard library, for agents in any language to copy.

persona-pipeline corrections serve &
python docs/examples/corrections_http.py michael general "Thank you all for your efforts."
"""

import json
import os
import sys
import urllib.request
from collections.abc import Callable
from typing import Any

SERVICE = os.environ.get("PERSONA_CORRECTIONS_URL", "http://127.0.0.1:8765")
TOKEN = os.environ.get("PERSONA_CORRECTIONS_TOKEN", "")


def ask(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the service's answer; an empty one when there is none, whatever the reason."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    request = urllib.request.Request(SERVICE + path, json.dumps(body).encode("utf-8"), headers)
    try:
        with urllib.request.urlopen(request, timeout=6) as response:
            return json.load(response)
    except (OSError, ValueError):
        return {}


def guidance(agent_id: str, channel: str) -> str:
    """Return what to append to the prompt of the agent's next turn, and of that turn only."""
    return ask("/v1/interventions", {"agent_id": agent_id, "channel": channel}).get("guidance") or ""


def send_message(agent_id: str, channel: str, text: str, rewrite: Callable[[str, str], str]) -> str:
    """Send a text, rewritten as often as the gate asks for it, and return what was sent. No answer means: send it."""
    attempt, action_id = 1, None
    while True:
        action = {"agent_id": agent_id, "channel": channel, "text": text, "attempt": attempt, "action_id": action_id}
        decision = ask("/v1/gate", action)
        if decision.get("action") != "retry":
            return text
        text = rewrite(text, decision["feedback"])
        attempt, action_id = attempt + 1, decision["action_id"]


def main() -> None:
    agent_id, channel, text = sys.argv[1:4]
    print(guidance(agent_id, channel) or "(no guidance for the next turn)")
    print("sent:", send_message(agent_id, channel, text, lambda old, feedback: f"{old} (rewritten)"))


if __name__ == "__main__":
    main()
