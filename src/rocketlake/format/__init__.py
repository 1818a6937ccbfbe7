"""Bytes on disk <-> values; pure functions over buffers.

1. Nothing here opens a file, knows a path or asks for the time.
2. Bad bytes never raise from a scan: they end it with a reason.
3. Layouts are documented in docs/formats, with the names used here.
"""
