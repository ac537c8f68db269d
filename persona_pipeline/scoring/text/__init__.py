"""Measures of text that need no judge: tokens, n-grams, phrases, agreement, vocabulary, voice."""
