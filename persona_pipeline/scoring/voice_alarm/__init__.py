"""A voice alarm: does an agent still sound like itself? Read message by message, without a judge, at a stated false-alarm rate."""

from persona_pipeline.scoring.voice_alarm.following import (
    BEFORE,
    KnownChange,
    VoiceAlarm,
    VoiceChange,
    VoiceReading,
    VoiceWatch,
    follow_voice,
    voice_change,
    voice_changes,
)
from persona_pipeline.scoring.voice_alarm.learning import FEWEST_OWN, learn_voice
from persona_pipeline.scoring.voice_alarm.model import VoiceKind, VoiceModel, VoiceProvenance
from persona_pipeline.scoring.voice_alarm.storing import LearntVoice, current_voice, learn_stored_voice, stored_voice

__all__ = [
    "BEFORE",
    "FEWEST_OWN",
    "KnownChange",
    "LearntVoice",
    "VoiceAlarm",
    "VoiceChange",
    "VoiceKind",
    "VoiceModel",
    "VoiceProvenance",
    "VoiceReading",
    "VoiceWatch",
    "current_voice",
    "follow_voice",
    "learn_stored_voice",
    "learn_voice",
    "stored_voice",
    "voice_change",
    "voice_changes",
]
