"""Judging: questions go to a backend (live or recorded) and come back as verdicts, scored 0-9 or unscored."""
