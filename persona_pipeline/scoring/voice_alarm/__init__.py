"""A voice alarm: does an agent still sound like itself? Read message by message, without a judge, at a stated false-alarm rate."""
