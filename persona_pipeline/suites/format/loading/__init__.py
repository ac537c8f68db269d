"""Reading suite files into the models of the format."""
