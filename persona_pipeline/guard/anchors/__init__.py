"""One check of the judge: messages with a known verdict, asked in every live run."""
