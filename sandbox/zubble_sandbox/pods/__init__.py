"""The parts of the pod backend: what a pod looks like, who owns it, how it is filled, reached and swept."""
