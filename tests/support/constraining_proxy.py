"""A Messages API before a local chat server, which holds its model to the schema: valid JSON, whatever it is worth."""

import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class ConstrainingProxy:
    """Translates ``output_config`` into the chat server's ``response_format``; serves in a thread of its own.

    Args:
        chat_url: of an OpenAI-compatible server.
    """

    def __init__(self, chat_url: str) -> None:
        self.chat_url = chat_url
        self.answers: list[str] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(404, {"type": "error", "error": {"type": "not_found_error", "message": "no models here"}})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self._send(200, proxy.answered(body))

            def _send(self, code: int, data: Any) -> None:
                text = json.dumps(data).encode()
                self.send_response(code)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answered(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the Messages API's answer to a request's body."""
        chat = {
            "messages": [{"role": "system", "content": _text(body["system"])}, *_turns(body["messages"])],
            "max_tokens": body["max_tokens"],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"schema": body["output_config"]["format"]["schema"]},
            },
        }
        request = urllib.request.Request(
            f"{self.chat_url}/v1/chat/completions", json.dumps(chat).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=600) as response:
            told = json.load(response)
        choice, usage = told["choices"][0], told["usage"]
        self.answers.append(choice["message"]["content"])
        return {
            "id": "msg_local",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [{"type": "text", "text": choice["message"]["content"]}],
            "stop_reason": "max_tokens" if choice["finish_reason"] == "length" else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]},
        }


def _turns(messages: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Turns in alternation, as chat templates want them."""
    return [{"role": item["role"], "content": _text(item["content"]) or "I read it."} for item in messages]


def _text(blocks: Any) -> str:
    if isinstance(blocks, str):
        return blocks
    return "\n".join(str(block.get("text") or block.get("content") or "") for block in blocks)
