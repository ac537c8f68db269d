"""Which commit, and what in it, made an agent's scores fall"""
