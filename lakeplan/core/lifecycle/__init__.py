"""Which branches go, by which policy, since when; and what is known of each."""
