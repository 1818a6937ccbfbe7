"""Command line: reads argv, prints, exits."""
