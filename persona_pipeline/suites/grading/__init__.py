"""How an answer is graded: what every assert is, what it may use, its grade, and what is asked of a judge."""
