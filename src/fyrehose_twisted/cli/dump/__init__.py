"""Command that prints captured or live traffic of the four protocols in words."""
