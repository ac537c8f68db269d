"""A verdict for each message: in character, out of character, or unclear."""
