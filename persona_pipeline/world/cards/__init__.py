"""Character cards (V1-V3, as JSON, PNG or CHARX): read within bounds, made personas, and given back without loss."""
