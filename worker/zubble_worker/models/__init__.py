"""Endpoints that continue a conversation, and the doubles that play one from a script."""
