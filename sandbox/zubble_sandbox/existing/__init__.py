"""Going into containers and pods that somebody else made, and leaving them as they were."""
