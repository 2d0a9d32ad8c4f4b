"""The data plane: claims tasks, drives agents, seals their endings."""
