"""Values that all rooms share: frozen, and without rules of their own."""
