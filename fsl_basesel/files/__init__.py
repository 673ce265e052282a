"""Files: user files are read here, and all files of the library are written here."""
