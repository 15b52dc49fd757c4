"""Two loops in C, for what takes most of the agent's and the laboratory's processor time. Each has a reference in pure
Python, which serves where there is no compiler, and which it agrees with to the last bit."""
