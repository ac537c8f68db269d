"""Recorded judgments: files of JSON lines, and what is answered from them."""

from persona_pipeline.judging.recordings.files import (
    Recording,
    load_recording_file,
    load_recordings,
    sign_recordings,
    signing_secret,
)
from persona_pipeline.judging.recordings.replay import RecordedBackend, RecordingWriter, rejudge

__all__ = [
    "RecordedBackend",
    "Recording",
    "RecordingWriter",
    "load_recording_file",
    "load_recordings",
    "rejudge",
    "sign_recordings",
    "signing_secret",
]
