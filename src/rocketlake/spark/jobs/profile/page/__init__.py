"""A profile as one page of HTML that needs nothing else: no network, no fonts, no libraries."""
