"""What relatum needs from the machine: files written whole or not at all, progress bars, memory. No torch here."""
