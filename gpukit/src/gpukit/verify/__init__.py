"""Is this container what the project expects, and does its GPU compute?"""
