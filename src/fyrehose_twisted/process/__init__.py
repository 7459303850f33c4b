"""What a service needs of the process that it runs in: options, secrets, state files, signals, systemd, logs."""
