"""One HTML page that shows what a comparison of journals and the tables made of them have found."""
