"""What a run brought, kept, compared and told in short."""
