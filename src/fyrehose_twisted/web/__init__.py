"""What all HTTP services of the library share: sites with limits, answers, streams, and who may ask."""
