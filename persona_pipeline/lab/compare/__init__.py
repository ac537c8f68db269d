"""Two versions of a world compared, scene by scene, until it is decided which is better"""
