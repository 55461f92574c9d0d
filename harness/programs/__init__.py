"""Programs over one instance, recorded for all of them.

After ACRoBat (Fegade, Chen, Gibbons and Mowry, MLSys 2024); what its text leaves open is told in
docs/programs.md.
"""
