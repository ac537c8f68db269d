"""What must hold of an answer: one type of assert a file, and the judge they ask."""
