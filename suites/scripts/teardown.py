"""Nothing outlives a case: the workspace is removed by the run. This is where a service would be stopped."""
