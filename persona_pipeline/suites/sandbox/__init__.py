"""Programs of a suite, held in: their processes, their workspaces, their way to a target."""
