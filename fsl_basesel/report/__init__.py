"""What a run came to, for people: paired statistics, figures, and one HTML page."""
