"""Log, queue and index files as they are on the disk, read without opening the store."""
