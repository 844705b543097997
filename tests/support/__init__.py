"""Helpers of tests: servers, small images, facts and locks, and the command line."""
