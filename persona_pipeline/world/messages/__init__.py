"""Messages: files of them, the store's mirror of those files, and counts of what everybody said"""
