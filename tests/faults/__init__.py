"""Every operation under seeded schedules of writers and faults. A checker replays the history and
judges it.
"""
