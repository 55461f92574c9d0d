"""Policies, one a module; what each must offer: harness/contracts/policy.py."""
