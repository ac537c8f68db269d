"""Types of asserts; similar types share a file."""
