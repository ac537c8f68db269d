"""The Dagster project: assets, checks, jobs, schedules and sensors, a folder a domain. Only here is Dagster imported"""
