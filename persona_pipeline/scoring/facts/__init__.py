"""Statements an agent made about itself: facts with their lines, contradictions between them, and canon facts."""
