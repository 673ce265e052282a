"""Benchmarks: each measures in one interleaved run and reports medians and ratios."""
