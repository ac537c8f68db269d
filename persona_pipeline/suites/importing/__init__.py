"""Import of eval files of other tools. Parts without a counterpart are findings with their places."""
