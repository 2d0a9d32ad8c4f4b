"""CPU that one step of an agent costs, here and in two other harnesses."""
