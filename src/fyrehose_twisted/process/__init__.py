"""Process-level support for services: options, secrets, state files, signals, systemd, logs."""
