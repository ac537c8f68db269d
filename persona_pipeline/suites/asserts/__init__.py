"""What must hold of an answer: types of asserts, those that are alike in one file, and the judge they ask."""
