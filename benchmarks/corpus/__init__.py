"""Generated loops and legitimate texts for the repetition detector."""
