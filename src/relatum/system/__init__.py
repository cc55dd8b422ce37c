"""Access to the machine: atomic files, locks, signals, progress display, devices, memory, launchers. No torch here."""
