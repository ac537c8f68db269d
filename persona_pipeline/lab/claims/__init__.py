"""Claims are tested too: broken on purpose, measured for noise, drafted from what was said."""
