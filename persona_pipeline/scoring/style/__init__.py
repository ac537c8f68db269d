"""Writing style of agents: similarity of voices, and an alarm when a voice changes. Needs no judge."""
