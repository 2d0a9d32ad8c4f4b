"""What the backends that use a Docker engine share: its API, its streams, and what they ask it for."""
