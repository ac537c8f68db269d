"""The store as a local page to work in: agents, messages with the claims they broke, thumbs that are labels, suites; labelling"""
