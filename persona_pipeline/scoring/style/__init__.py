"""How an agent writes: who writes alike, and an alarm when one no longer writes as it did. No judge."""
