"""Messages that read as if they were written for the judge. They are reported, and never change a score."""

import base64
import binascii
import re
import unicodedata
from functools import cache, lru_cache

from persona_pipeline.world.trajectory import Trajectory

_SCORE = (
    r"(?:scor(?:e|ing)|rating|rate|grade|mark|points?|verdict|bewert\w*|punktzahl|note|puntua\w*|puntaje|puntos|nota"
    r"|оцен\w*|балл\w*)"
)
_MARKERS = (
    r"(?:system|assistant|user|im_start|im_end|tool_result|tool_use"
    r"|function_results?|transcript|instructions?)"
)
_PATTERNS = (
    # Orders to drop the rules, in several languages.
    r"\b(?:ignore|disregard|forget|override)\b.{0,40}"
    r"\b(?:instruction|rule|rubric|prompt|guideline|criteri|claim|everything above|previous|prior)",
    r"\b(?:ignorier\w*|vergiss|missachte)\b.{0,40}\b(?:anweisung|regel|vorgabe|bisherige|vorherige)",
    r"\b(?:ignora|olvida|omite)\b.{0,40}\b(?:instrucci|regla|anterior|istruzion)",
    r"\b(?:ignore[zr]?|oublie[zr]?)\b.{0,40}\b(?:instruction|consigne|règle|précédent)",
    r"(?:игнорируй\w*|забудь\w*).{0,40}(?:инструкц|правил|предыдущ)",
    r"(?:忽略|无视|忘记|無視).{0,20}(?:指令|指示|规则|規則|说明|以上)",
    r"(?:指示|命令|ルール).{0,10}(?:無視|忘れ)",
    r"(?:이전|위의).{0,10}(?:지시|규칙|명령).{0,10}(?:무시|잊)",
    r"(?:تجاهل|انس).{0,30}(?:التعليمات|القواعد)",
    # A number asked of a judge.
    rf"\b(?:give|assign|award|return|output|respond|answer|set|put)\b.{{0,40}}\b{_SCORE}\b.{{0,20}}"
    r"\b(?:9|10|nine|ten|full|maximum|max|perfect|highest|top)\b",
    rf"\b{_SCORE}\b\s*(?:it|this|me|us|them|must be|should be|is|mit|als?|de|=|:|of|to|at|as)?\s*(?:an?\s+)?"
    r"(?:\b9\b|\bnine\b|10\s*/\s*10)",
    r"(?:打|给|評分|评分|得分|スコア|点数|점수).{0,8}(?:9|九|満点|满分|만점)",
    # Whoever judges, addressed.
    r"\b(?:dear|attention|note to|message (?:to|for)|hey|hello|you are)\s+(?:the\s+|an?\s+)?"
    r"(?:llm\s+|ai\s+|automated\s+)?(?:judge|grader|evaluator|assessor)\b",
    r"\b(?:judge|grader|evaluator)s?\b\s*[:,]\s*(?:please|this|the|you|ignore|score|give|treat)\b",
    r"\b(?:new|updated|real|actual|hidden)\s+(?:system\s+)?(?:instructions?|prompt|rubric)\b",
    # Answers, roles and delimiters of the machinery.
    r"[\"']?(?:verdicts?|proposition_id|tool_result|tool_use_id)[\"']?\s*[:=]\s*[\[{\"']",
    r"[\"']score[\"']\s*:\s*\d",
    rf"<\|?\s*/?\s*{_MARKERS}\b[^<>]{{0,40}}\|?>",
    r"(?:^|\n)\s*(?:#{1,4}\s*)?(?:system|assistant|developer|human)\s*(?:prompt|message)?\s*:\s*\S",
    r"\[/?(?:INST|SYSTEM|END(?: OF)? (?:DATA|TRANSCRIPT|MESSAGES|CONVERSATION))\]",
    r"(?:-{3,}|={3,}|#{3,})\s*end of (?:data|transcript|messages|conversation|evidence)",
    r"\bend[_ ]of[_ ]transcript\b",
)
_HIDDEN = re.compile("[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e0fff]")
# Joiners in emoji and in Arabic or Indic words are ordinary; hidden runs between Latin letters are not.
_HIDDEN_IN_WORD = re.compile(r"[A-Za-z][\u00ad\u180e\u200b-\u200d\u2060-\u2064\ufeff]+[A-Za-z]")
_TAGS_OR_OVERRIDES = re.compile("[\u202d\u202e\U000e0020-\U000e007e](?![\U000e0020-\U000e007f]{0,8}\U000e007f)")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{32,}={0,2}")
# Cyrillic and Greek letters that pass for Latin ones.
_LOOKALIKES = str.maketrans("аеорсухіјѕԁɡһӏΑΒΕΖΗΙΚΜΝΟΡΤΥΧο", "aeopcyxijsdghlABEZHIKMNOPTYXo")


@lru_cache(maxsize=4096)
def reads_as_injection(text: str) -> bool:
    """Whether a message shows a known pattern of an attack on a judge; a hint, which errs both ways."""
    if _HIDDEN_IN_WORD.search(text) or _TAGS_OR_OVERRIDES.search(text):
        return True
    folded = unicodedata.normalize("NFKC", _HIDDEN.sub("", text))
    return any(_matches(variant) for variant in {folded, folded.translate(_LOOKALIKES), *_decoded(folded)})


@lru_cache(maxsize=256)
def suspicious_entries(trajectory: Trajectory) -> tuple[str, ...]:
    """Return the outside ids of the entries that read as an injection, in order."""
    return tuple(
        entry.message_id
        for entry in trajectory.entries
        if reads_as_injection(entry.text) or reads_as_injection(entry.speaker)
    )


def _matches(text: str) -> bool:
    return any(pattern.search(text) for pattern in _compiled())


@cache
def _compiled() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.IGNORECASE | re.DOTALL) for pattern in _PATTERNS)


def _decoded(text: str) -> list[str]:
    decoded = []
    for match in _BASE64.finditer(text):
        try:
            decoded.append(base64.b64decode(match[0] + "=" * (-len(match[0]) % 4)).decode("utf-8"))
        except (binascii.Error, UnicodeDecodeError):
            continue
    return decoded
