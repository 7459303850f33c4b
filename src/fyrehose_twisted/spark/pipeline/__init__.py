"""Pipeline from journals to tables: bronze as stored, silver with each number once, gold aggregated over time."""
