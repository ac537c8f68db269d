"""What a target is asked: the test's messages as one text, with the files they name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from persona_pipeline.suites.format.files import FileError, Files, repository_root
from persona_pipeline.suites.format.javascript import stringify
from persona_pipeline.suites.format.loading.messages import find_file_part
from persona_pipeline.suites.format.models import Suite, Test


class PromptFiles:
    """Finds and reads the file parts of a suite's messages, confined as the suite's other files are."""

    def __init__(self, suite: Suite) -> None:
        self.files = Files(suite.roots)
        self.suite_folder = suite.path.absolute().parent
        self.top = repository_root(self.suite_folder)

    def find(self, reference: str, test: Test) -> Path:
        """Return the file of a part. Raises ``FileError`` when it is gone."""
        own = Path(test.entry.source.path).parent if test.entry else self.suite_folder
        return find_file_part(self.files, reference, [own, self.suite_folder], self.top)

    def read(self, reference: str, test: Test) -> str:
        return self.files.read(self.find(reference, test))


def message_text(message: dict[str, Any], test: Test, files: PromptFiles) -> str:
    """Return a message's content as text; a file part is the file's text between marks.

    Raises:
        FileError: a file is gone or cannot be read.
    """
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return stringify(content, indent=2)
    texts = []
    for part in content if isinstance(content, list) else ():
        if part.get("type") == "file" and isinstance(part.get("value"), str):
            texts.append(f'<file path="{part["value"]}">\n{files.read(part["value"], test)}\n</file>')
        elif isinstance(part.get("value", part.get("text")), str):
            texts.append(part.get("value", part.get("text")))
    return "\n".join(texts)


def prompt_text(messages: Sequence[dict[str, Any]], test: Test, files: PromptFiles) -> str:
    """Return all messages as one prompt: one alone is its text, several stand under their roles."""
    texts = [(message["role"], message_text(message, test, files)) for message in messages]
    texts = [(role, text) for role, text in texts if text.strip()]
    if len(texts) == 1:
        return texts[0][1]
    return "\n\n".join(f"@[{role.capitalize()}]:\n{text}" for role, text in texts)


def file_parts(test: Test) -> list[str]:
    """Return the paths of the input's file parts, as they are written."""
    return [
        part["value"]
        for message in test.input_messages
        if isinstance(message.get("content"), list)
        for part in message["content"]
        if part.get("type") == "file" and isinstance(part.get("value"), str)
    ]


__all__ = ["FileError", "PromptFiles", "file_parts", "message_text", "prompt_text"]
