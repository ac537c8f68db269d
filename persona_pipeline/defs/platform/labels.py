"""What every asset carries alike."""

OWNERS = ["team:persona-quality"]
