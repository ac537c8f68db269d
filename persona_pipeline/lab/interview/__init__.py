"""Interviews: an agent is asked prepared scenes, in several sessions, and its answers are judged by its claims"""
