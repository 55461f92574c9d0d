"""Programs with control flow over one instance, recorded for all instances of a mini-batch.

After ACRoBat (Fegade, Chen, Gibbons and Mowry, MLSys 2024); what its text leaves open is told in
docs/programs.md.
"""
