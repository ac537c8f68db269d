"""Programs of a suite: limited processes, and workspaces."""
