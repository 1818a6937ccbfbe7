"""Files and store directories: the only package that calls the operating system about them."""
