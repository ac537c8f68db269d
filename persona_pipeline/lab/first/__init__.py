"""A first look at exported messages, without a judge, a key or a world."""
