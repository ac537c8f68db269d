"""What an agent said of itself: facts with the lines they were said in, what of them contradicts, and what is canon."""
