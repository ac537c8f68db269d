"""A suite from beginning to end: read, asked, graded, several times where it says so."""
