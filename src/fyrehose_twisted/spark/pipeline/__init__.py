"""From journals to tables: bronze as journalled, silver with each number once, gold counted over time."""
