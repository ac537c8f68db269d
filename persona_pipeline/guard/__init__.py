"""Is it a drop, and can the judge be believed: baselines, calibration, people's labels, findings and their exit codes"""
