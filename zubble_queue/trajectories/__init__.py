"""What runs did: folded from their events, written in others' formats, and read from those."""
