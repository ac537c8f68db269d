"""Data as YAML that reads back as the same data, whichever version of YAML it is read as."""

import re
from typing import Any

import yaml

_WIDTH = 120
# Text that only escapes keep as it is; text that YAML 1.2 reads as a number and PyYAML, which writes 1.1, leaves bare.
_ESCAPED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\t]")
_LIKE_A_NUMBER = re.compile(r"[-+.]?[0-9]")


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if _ESCAPED.search(text):
        style = '"'
    elif _LIKE_A_NUMBER.match(text):
        style = "'"
    elif "\n" in text and text.strip() == text:
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(data: Any) -> str:
    """Return data as YAML that is the same in versions 1.1 and 1.2."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
