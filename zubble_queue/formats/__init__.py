"""Readers of task files and writers of results. A reader is `read(path, defaults) -> list[Parcel]`."""
