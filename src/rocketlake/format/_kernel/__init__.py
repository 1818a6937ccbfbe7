"""The hot loops: chosen once, at import, native or pure. Only `format` looks inside."""
