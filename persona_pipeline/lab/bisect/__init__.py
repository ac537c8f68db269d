"""The commit, and the change in it, that made an agent's scores drop."""
