"""How the model says what it wants."""
