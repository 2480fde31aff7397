"""Whether a captured program fits its budget, and in which tiles it would."""
