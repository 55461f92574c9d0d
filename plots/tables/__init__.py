"""Tables, a module for each kind; an experiment names one."""
