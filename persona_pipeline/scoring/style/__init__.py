"""How an agent writes, and who writes alike."""
