"""What a suite file says, and the rules of its format."""
