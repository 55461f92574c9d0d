"""Tables, one module per kind; experiments name the kind."""
