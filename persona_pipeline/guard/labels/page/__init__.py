"""The page that labels in a browser on this machine."""
