"""How far a judge can be believed: measured against people's labels, and against itself when it changes."""
