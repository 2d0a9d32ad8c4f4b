"""The program that is pid 1 of every sandbox, and the words it shares with the worker.

These modules run twice: inside, loaded as one bundle by the sandbox's own Python (3.9 or newer, standard
library only, see `zubble_sandbox.bundle`), and in the worker, which imports the wire format and the tree
walk. They import nothing but each other and the standard library, and of that only what starts fast:
`socket`, `json`, `typing` and `subprocess` would double the time to open a sandbox.
"""
