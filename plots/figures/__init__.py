"""Figures, a module for each kind; an artefact names one."""
