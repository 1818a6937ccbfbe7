"""Runs the code blocks of documentation pages; CONTRIBUTING.md says how a block is made to run."""
