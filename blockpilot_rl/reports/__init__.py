"""Tables, plots, sentences and reports of results."""
