"""Running suites: targets, trials, results and their history."""
