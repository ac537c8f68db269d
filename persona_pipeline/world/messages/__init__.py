"""Messages: their files, the store's mirror of them, and revision numbers"""
