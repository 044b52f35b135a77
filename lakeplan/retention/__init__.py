"""Which commits are kept, by which rule, why and until when. Pure."""
