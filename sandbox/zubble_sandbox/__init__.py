"""Where commands run: one Protocol, several backends."""
