"""What a target is, whatever kind: what it is asked, what it answers, and what its answers rest on."""
