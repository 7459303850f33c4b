-- Flights and miles of each carrier; messages that were published twice count once.
SELECT
    message.carrier AS carrier,
    count(*) AS flights,
    sum(CAST(message.distance AS BIGINT)) AS miles
FROM silver
WHERE status = 'ok' AND NOT repeat
GROUP BY message.carrier
ORDER BY carrier
