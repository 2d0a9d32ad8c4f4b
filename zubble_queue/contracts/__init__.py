"""The words all parts share: frozen records and Protocols, no I/O."""
