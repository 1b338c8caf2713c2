"""Other people's solvers, by kind of problem; a rival that is not installed is a row that says so."""
