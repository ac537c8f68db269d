"""What changed since it was last evaluated, and must be evaluated again"""
