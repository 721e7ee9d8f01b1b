"""Every operation under seeded schedules of writers and faults, judged by a checker that replays
the history.
"""
