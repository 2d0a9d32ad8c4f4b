"""Looking at an installation in a Kubernetes cluster: what is missing there, and what to do about it."""
