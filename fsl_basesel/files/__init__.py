"""Files: what users bring is read here, and everything the library keeps is written here."""
