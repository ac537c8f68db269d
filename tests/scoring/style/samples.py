"""Three made-up styles of writing, for tests of voices."""

import random

WORDS = (
    *("paper", "sales", "client", "printer", "meeting", "report"),
    *("branch", "order", "coffee", "phone", "roof", "garden"),
)
SHAPES = {
    "loud": ("OH MY GOD the {} fell on the {}!!!", "The {} is the BEST, I told {} everyone!!", "WOW, {}! And a {}?!"),
    "terse": (
        "False. The {} precedes the {}. Fact.",
        "Correct. Count the {} before the {}.",
        "The {} and the {}. Noted.",
    ),
    "lazy": (
        "ummm so like, the {}... and the {}, i guess?",
        "yeah {} or {} or whatever",
        "meh, i lost the {} near the {}",
    ),
}
DISTINCT = {"ann": "loud", "bob": "terse", "cyd": "lazy"}
MERGED = {"ann": "lazy", "bob": "lazy", "cyd": "lazy"}


def line(style: str, generator: random.Random) -> str:
    """Return a message in a style."""
    return generator.choice(SHAPES[style]).format(*generator.sample(WORDS, 2))


def conversation(styles: dict[str, str], count: int, seed: int) -> dict[str, list[str]]:
    """Return ``count`` messages of each agent in its style."""
    generator = random.Random(seed)
    return {agent: [line(style, generator) for _ in range(count)] for agent, style in styles.items()}
