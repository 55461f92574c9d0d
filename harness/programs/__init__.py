"""Programs over one instance, recorded for all instances of a mini-batch.

Source: ACRoBat (Fegade, Chen, Gibbons and Mowry, MLSys 2024); docs/programs.md lists choices that
its text leaves open.
"""
