"""Measures of text without a judge: tokens, n-grams, phrases, agreement, vocabulary, voice."""
