"""Classes of cases, a file each, found by their names; see scripts/campaign_parts/case.py."""
