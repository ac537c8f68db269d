"""Checks of a suite's metadata that warn and never fail."""

import re

_NUMBER = r"(?:0|[1-9][0-9]*)"
_PART = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_PART}(?:\.{_PART})*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)


def check_version(text: str) -> str | None:
    """Return what is wrong with a semantic version, None when it is one."""
    return None if _SEMVER.fullmatch(text) else f"{text!r} is no semantic version; write one such as 1.0.0"


def check_license(text: str) -> str | None:
    """Return what is wrong with an SPDX licence expression, None when it is one, or when there is no list to look it up in."""
    try:
        from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
    except ImportError:
        return None
    try:
        canonicalize_license_expression(text)
    except InvalidLicenseExpression:
        return f"{text!r} is no SPDX identifier; write one such as Apache-2.0"
    return None
