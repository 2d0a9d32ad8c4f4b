"""A provider with a rate limit and bursts of refusals, against many agents in several workers."""
