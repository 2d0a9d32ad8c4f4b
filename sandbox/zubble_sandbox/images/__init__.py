"""Root file systems for sandboxes: taken apart from what others made, kept by content, mounted read-only.

What is read here may have been written by anybody: nothing of it is executed, no link of it is followed out
of the folder it is written to, and its size is bounded.
"""
