"""lfn: measures, tunes, emulates and fills long fat networks.

The package contains `lfn.couple`, the channel between two coupled models.
"""
